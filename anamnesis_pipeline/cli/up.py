"""`anamnesis up`: the sidecar and Dagster as one supervised process group, and the first ingest's progress."""

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.text import Text
from typing_extensions import override

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.embeddings.api_models import api_model
from anamnesis_pipeline.embeddings.models import find_model
from anamnesis_pipeline.errors import AlreadyRunning, AnamnesisError, StoreBusy, UnknownModel
from anamnesis_pipeline.pipeline.host_clock import looked_since
from anamnesis_pipeline.runtime.crawler_wiring import configured_specs
from anamnesis_pipeline.runtime.dagster_home import LOOPBACK, bundled, dagster_command, dagster_url, write_dagster_home
from anamnesis_pipeline.runtime.home_wiring import make_private
from anamnesis_pipeline.runtime.log_roots import EXAMPLE_LOGS, advice_without_logs, retention_advice, survey
from anamnesis_pipeline.runtime.ports import Probe, WantedPort, require_free
from anamnesis_pipeline.runtime.process_group import end_life
from anamnesis_pipeline.runtime.progress import Snapshot, show_progress, take_snapshot
from anamnesis_pipeline.runtime.supervision import ChildSpec, Say, StopRequest, Supervisor, stop_on_signals
from anamnesis_pipeline.runtime.up_lock import Running, hold_lock
from anamnesis_pipeline.services.wiring import effective_settings, impatient, open_store, store_place, stored_settings
from anamnesis_pipeline.settings import ENV_PREFIX, Settings, claude_projects_dir, reachable_host, sidecar_url
from anamnesis_pipeline.store.base import Store

ADVICE = "start MongoDB, or let ANAMNESIS_MONGO_URI say where it is"
ASKED_EVERY_S = 5.0
PAUSE_S = 0.5
WAITED_FOR_S = 600
"""Sources with a longer interval are not awaited before the memory counts as up to date."""


def open_when_there(settings: Settings, stop: StopRequest, say: Say) -> Store | None:
    """Return the store once its server answers; None if the user stops the wait.

    :raises StoreBusy: no answer within `mongo_wait_s`.
    """
    if settings.store != "mongo":
        return open_store(settings)
    place, until, is_told = store_place(settings), time.monotonic() + settings.mongo_wait_s, False
    while not stop.asked:
        try:
            store = open_store(impatient(settings, 0))
        except StoreBusy as exc:
            if time.monotonic() >= until:
                raise StoreBusy(f"{place} did not answer within {settings.mongo_wait_s} s; {ADVICE}") from exc
            if not is_told:
                say(f"{exc}. Waiting {settings.mongo_wait_s} s at most: {ADVICE}")
            is_told = True
            time.sleep(PAUSE_S)
        else:
            if is_told:
                say(f"{place} answers")
            return store
    return None


class StoreWatch(threading.Thread):
    """Reports during its block, once each, that the store's server is lost and that it is back; files are not watched.

    A daemon thread: a call to a dead server blocks, and the exit must not wait for it.
    """

    def __init__(self, settings: Settings, store: Store, say: Say, every_s: float = ASKED_EVERY_S) -> None:
        super().__init__(name="store-watch", daemon=True)
        self._settings, self._store, self._say, self._every_s = settings, store, say, every_s
        self._stop_asked = threading.Event()

    def __enter__(self) -> None:
        """Begin to watch."""
        if self._settings.store == "mongo":
            self.start()

    def __exit__(self, *problem: object) -> None:
        """Stop watching without waiting for an answer."""
        self._stop_asked.set()

    @override
    def run(self) -> None:
        is_away = False
        while not self._stop_asked.wait(self._every_s):
            try:
                stored_settings(self._store)
            except AnamnesisError as exc:
                if not is_away and not self._stop_asked.is_set():
                    self._say(f"{exc}. What runs goes on by itself once it does: {ADVICE}")
                is_away = True
            else:
                if is_away:
                    self._say(f"{store_place(self._settings)} answers again")
                is_away = False


class Up:
    """One `anamnesis up`.

    :param on_ready: called once, when both addresses answer.
    """

    def __init__(self, settings: Settings, console: Console, on_ready: Callable[[], None] = lambda: None) -> None:
        self._settings, self._console, self._on_ready = settings, console, on_ready
        self._life = uuid.uuid4().hex
        self._supervisor: Supervisor
        self._is_announced = False

    def say(self, text: str) -> None:
        """Print one line for the user."""
        self._console.print(Text(text), soft_wrap=True)

    def run(self) -> int:
        """Run until Ctrl-C, SIGTERM or SIGHUP; return the exit status.

        0 also when it is already running on this home, so that `make up` twice is no failure.
        :raises PortInUse: a port is taken; nothing was started.
        :raises GiveUp: the home or the store is not usable; nothing was started.
        """
        settings = self._settings
        make_private(settings.home)
        make_private(settings.logs_dir)
        roots = [str(root) for root in settings.log_roots]
        record = Running(os.getpid(), self._life, sidecar_url(settings), dagster_url(settings), roots)
        try:
            with stop_on_signals() as stop, hold_lock(settings.home / "up.lock", record) as earlier:
                if earlier:  # its watcher may still be running, or was killed too
                    end_life(earlier.life, grace_s=5.0)
                require_free(wanted_ports(settings))
                write_dagster_home(settings.dagster_home)
                if (store := open_when_there(settings, stop, self.say)) is None:
                    return 0
                with closing(store), StoreWatch(settings, store, self.say):
                    self.say(
                        f"Starting on {settings.home} (Ctrl-C ends it; logs of its processes: {settings.logs_dir})"
                    )
                    self._mention_absent_model(effective_settings(store).model)
                    self._supervisor = Supervisor(child_specs(settings), self._life, self.say)
                    with self._progress(effective_settings(store), store):
                        status = self._supervisor.run(stop, self._announce)
                if stop.asked:
                    self.say("Stopped; nothing of it runs any more")
                return status
        except AlreadyRunning as exc:
            self.say(str(exc))
            return 0

    def _mention_absent_model(self, model: str) -> None:
        """Report a model that is not on this disk: it may be downloading, or its name may be wrong."""
        if api_model(model):
            return
        try:
            find_model(model, local_only=True)
        except UnknownModel:
            self.say(
                f"The embedding model {model!r} is not on this disk. Until it is downloaded, what is new is found by "
                "its words only. Should that not end, `anamnesis doctor` says why, and which names are known"
            )

    def _announce(self) -> None:
        """Print the addresses once, when both answer."""
        if not self._is_announced and self._supervisor.is_ready("sidecar", "webserver"):
            self._is_announced = True
            self.say(f"Memory: {sidecar_url(self._settings)}   Dagster: {dagster_url(self._settings)}")
            self._on_ready()

    @contextmanager
    def _progress(self, settings: Settings, store: Store) -> Iterator[None]:
        """Print hints about the logs; then show the first ingest from a separate thread during the block."""
        found = survey(settings.log_roots)
        if hint := retention_advice(claude_projects_dir().parent / "settings.json"):
            self.say(hint)
        if not found.files:
            self.say(advice_without_logs(settings.log_roots, found))
            yield
            return
        stop, reading = threading.Event(), _Reading(settings, store, datetime.now(UTC))
        shown = (reading.snapshot, found.files, self._console, stop)
        thread = threading.Thread(target=show_progress, args=shown, name="progress")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def wanted_ports(settings: Settings) -> list[WantedPort]:
    """Return the three ports, with their variables."""
    return [
        WantedPort("the sidecar", settings.bind, settings.port, "ANAMNESIS_PORT"),
        WantedPort("the Dagster UI", LOOPBACK, settings.dagster_port, "ANAMNESIS_DAGSTER_PORT"),
        WantedPort("the Dagster code server", LOOPBACK, settings.code_port, "ANAMNESIS_CODE_PORT"),
    ]


def child_specs(settings: Settings) -> list[ChildSpec]:
    """Return the sidecar, which starts at once, and Dagster: recovery, code server, then webserver and daemon."""
    environment = child_environment(settings, os.environ)
    workspace = str(settings.dagster_home / "workspace.yaml")
    code_server = (
        *("-m", "dagster", "code-server", "start", "-h", LOOPBACK, "-p", str(settings.code_port)),
        *("-m", "anamnesis_pipeline.definitions", "--use-python-environment-entry-point"),
    )
    webserver = (
        *("-m", "anamnesis_pipeline.sidecar.dagster_ui", "-h", LOOPBACK),
        *("-p", str(settings.dagster_port), "-w", workspace),
    )
    daemon = (dagster_command("dagster-daemon"), "run", "-w", workspace)
    started: list[tuple[str, tuple[str, ...], str | None, Probe | None]] = [
        (
            "sidecar",
            ("-m", "anamnesis_pipeline.sidecar"),
            None,
            Probe(reachable_host(settings.bind), settings.port, "/health"),
        ),
        ("recovery", ("-m", "anamnesis_pipeline.defs.recovery"), None, None),
        ("code-server", code_server, "recovery", Probe(LOOPBACK, settings.code_port)),
        ("webserver", webserver, "code-server", Probe(LOOPBACK, settings.dagster_port, "/server_info")),
        ("daemon", daemon, "code-server", None),
    ]
    return [
        ChildSpec(
            name,
            (sys.executable, *command),
            environment,
            settings.logs_dir / f"{name}.log",
            after=after,
            ready=probe,
            once=name == "recovery",
        )
        for name, command, after, probe in started
    ]


def child_environment(settings: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the children's environment: settings that no store can hold, from any origin."""
    environment = {
        **inherited,
        "ANAMNESIS_HOME": str(settings.home),
        "ANAMNESIS_PORT": str(settings.port),
        "ANAMNESIS_DAGSTER_PORT": str(settings.dagster_port),
        "ANAMNESIS_CODE_PORT": str(settings.code_port),
        "ANAMNESIS_BIND": settings.bind,
        "DAGSTER_HOME": str(settings.dagster_home),
        "PYTHONUNBUFFERED": "1",
    }
    if roots := inherited.get("ANAMNESIS_LOG_ROOTS"):  # relative to the user's directory
        absolute = (str(Path(root).expanduser().absolute()) for root in roots.split(os.pathsep) if root)
        environment["ANAMNESIS_LOG_ROOTS"] = os.pathsep.join(absolute)
    return environment


def waited_for(settings: Settings, store: Store) -> dict[str, str]:
    """Return the sources to scan before the memory counts as up to date, with their hosts. Read again at each call,
    since a removed source is no longer scanned.
    """
    specs = configured_specs(settings, store)
    return {spec.name: spec.host for spec in specs if (spec.interval_s or settings.crawl_interval_s) <= WAITED_FOR_S}


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the display of the progress reads from the store; `since`: the start."""

    settings: Settings
    store: Store
    since: datetime

    def snapshot(self) -> Snapshot:
        is_seen = looked_since(self.store.settings, waited_for(self.settings, self.store), self.since)
        return take_snapshot(self.store, is_seen)


PORTS = ("port", "dagster_port", "code_port")
EXAMPLE_QUERY = "why were customers charged twice"


def run_demo(console: Console) -> int:
    """Run until Ctrl-C, then remove the home; the exit status of `up`."""
    home = Path(tempfile.mkdtemp(prefix="anamnesis-demo-"))
    try:
        # The children read their settings from the environment, as they always do.
        os.environ |= demo_environment(settings_file.load(), home)
        settings = settings_file.load()

        def invite() -> None:
            place = f"{ENV_PREFIX}HOME={quote(str(home))} {ENV_PREFIX}PORT={settings.port}"
            command = f"{place} anamnesis search {EXAMPLE_QUERY!r}"
            console.print(Text(f"In another terminal, try: {command}"), soft_wrap=True)

        return Up(settings, console, invite).run()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def demo_environment(settings: Settings, home: Path) -> dict[str, str]:
    """The variables of a demo: its home, the example logs, and ports that are free now, the configured ones first."""
    ports: dict[str, int] = {}
    for name in PORTS:
        wanted = getattr(settings, name)
        ports[name] = wanted if wanted not in ports.values() and _is_free(wanted) else _any_free_port()
    return {
        f"{ENV_PREFIX}HOME": str(home),
        f"{ENV_PREFIX}LOG_ROOTS": str(bundled(EXAMPLE_LOGS)),
        f"{ENV_PREFIX}BIND": "127.0.0.1",
        **{f"{ENV_PREFIX}{name.upper()}": str(port) for name, port in ports.items()},
    }


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def _any_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
