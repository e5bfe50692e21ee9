"""Notifications from sessions whose transcript has grown: their source is ingested soon, at a limited rate."""

import logging
import time
from collections.abc import Collection, Iterable

import anyio
import anyio.to_thread

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.services.dagster.runs import AUTOMATIC_TAG
from anamnesis_pipeline.services.wiring import discover_sources, effective_settings
from anamnesis_pipeline.sidecar.services import Services

log = logging.getLogger(__name__)

SETTLE_S = 3.0
"""A session writes its last lines after the hook."""
GAP_S = 120.0
"""Minimum seconds between notified ingests of one source: each is a process of several seconds. Without notifications a
source is scanned every five minutes."""
MAX_PATHS = 256
"""Max transcripts in the queue; further ones are left to the next scan of all sources."""
TITLE = "Ingest, as a session has gone on"


class Pace:
    """Rate limit per source. Pure except for its state: one time per source."""

    def __init__(self, gap_s: float = GAP_S) -> None:
        self._gap_s = gap_s
        self._waiting: set[str] = set()
        self._last: dict[str, float] = {}

    def due(self, keys: Iterable[str], now: float) -> set[str]:
        """Return the keys to ingest now, from `keys` and the waiting ones; the rest waits."""
        wanted = self._waiting.union(keys)
        ready = {key for key in wanted if now - self._last.get(key, -self._gap_s) >= self._gap_s}
        self._waiting = wanted - ready
        self._last.update(dict.fromkeys(ready, now))
        return ready

    def wait_s(self, now: float) -> float:
        """Return the seconds until a waiting key is due; infinite if none waits."""
        return min((self._last[key] + self._gap_s - now for key in self._waiting), default=float("inf"))


class Nudges:
    """Queues transcripts at once; `run` ingests their sources in the background."""

    def __init__(self, services: Services, settle_s: float = SETTLE_S, gap_s: float = GAP_S) -> None:
        """:param services: not used before `run`."""
        self._services = services
        self._settle_s = settle_s
        self._pace = Pace(gap_s)
        self._paths: set[str] = set()
        self._noted: anyio.Event | None = None

    def note(self, path: str) -> bool:
        """Queue a transcript; False: the queue is full."""
        if len(self._paths) >= MAX_PATHS and path not in self._paths:
            return False
        self._paths.add(path)
        if self._noted is not None:
            self._noted.set()
        return True

    async def run(self) -> None:
        """Ingest the sources of queued transcripts, until cancelled."""
        while True:
            self._noted = anyio.Event()
            if not self._paths:
                with anyio.move_on_after(self._pace.wait_s(time.monotonic())):
                    await self._noted.wait()
            await anyio.sleep(self._settle_s)
            paths, self._paths = self._paths, set()
            try:
                await anyio.to_thread.run_sync(self._read, paths, abandon_on_cancel=True)
            except AnamnesisError as exc:
                log.info("sessions have gone on, and are read at the next look at all sources: %s", exc)
            except Exception:
                log.exception("a nudge failed")

    def _read(self, paths: Collection[str]) -> None:
        """Launch a run for each source that is due.

        :raises ServiceUnreachable: Dagster does not answer.
        """
        sources = discover_sources(effective_settings(self._services.store)).sources if paths else ()
        keys = {source.key for source in sources for path in paths if holds(source, path)}
        ready = self._pace.due(keys, time.monotonic())
        if not ready:
            return
        self._services.store.files.put_sources([source for source in sources if source.key in ready])
        running = {run.source for run in self._services.dagster.ingest_runs().unfinished}
        if wanted := sorted(ready - running):
            self._services.dagster.launch_ingest(wanted, TITLE, {AUTOMATIC_TAG: "session"})


def holds(source: Source, path: str) -> bool:
    """Return whether a transcript belongs to a source; both paths as this machine names them. Pure."""
    return path.replace("\\", "/").startswith(f"{source.root}/{source.folder}/")
