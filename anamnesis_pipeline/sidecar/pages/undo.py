"""What can be taken back: deletions, which wait, and edits, whose old values are kept for a while.

A deletion that waits is done when its time has come, or when the process ends as it should; a process that is killed
before has deleted nothing.
"""

import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError, RetryLater
from anamnesis_pipeline.model import Episode, record_id
from anamnesis_pipeline.sidecar.pages.edits import Edit, take_back
from anamnesis_pipeline.sidecar.pages.routing import page_router
from anamnesis_pipeline.sidecar.rendering import json_reply
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.steps.episodes import delete_episode
from anamnesis_pipeline.summary_model import MAX_RECORDS

WAIT_S = 11.0
"""As long as the toast that offers to take it back is there, and the way of the click."""
LOOK_S = 0.5
TRIES = 3
"""Of a deletion that a busy store refuses; after these the episode is shown again, and the page says why."""
MOST_WAITING = 1_000
"""Episodes."""
EDITS_KEPT = 100
PROBLEMS_KEPT = 20
ADDRESS = "/dashboard/undo/"

log = logging.getLogger(__name__)
router = page_router()


@dataclass(frozen=True, slots=True)
class Deletion:
    """Episodes that are to be deleted at `due`, in seconds of the clock; `begun`: it cannot be taken back any more."""

    episode_ids: tuple[str, ...]
    exclude: bool
    due: float
    tries: int = 0
    begun: bool = False


class Undo:
    """Deletions and edits by the token that takes them back. Safe to share between threads."""

    def __init__(self, services: Services, wait_s: float = WAIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        """:param services: not looked at before something is deleted or taken back."""
        self._services = services
        self._wait_s = wait_s
        self._clock = clock
        self._lock = threading.Lock()
        self._deletions: dict[str, Deletion] = {}
        self._edits: dict[str, tuple[Edit, ...]] = {}
        self._problems: deque[str] = deque(maxlen=PROBLEMS_KEPT)

    def delete_later(self, episode_ids: Sequence[str], *, exclude: bool) -> str:
        """Delete these when nobody takes it back in time; returns the address to which a POST does.

        :param exclude: whether their text stays away from later ingests.
        :raises HTTPException: 429, too many wait already.
        """
        token = secrets.token_urlsafe(12)
        with self._lock:
            waiting = {name for each in self._deletions.values() for name in each.episode_ids}
            new = tuple(name for name in dict.fromkeys(episode_ids) if name not in waiting)
            if len(waiting) + len(new) > MOST_WAITING:
                raise HTTPException(429, f"{len(waiting):,} deletions wait already; try again in {self._wait_s:.0f} s")
            self._deletions[token] = Deletion(new, exclude, self._clock() + self._wait_s)
        return ADDRESS + token

    def keep(self, edits: Sequence[Edit]) -> str:
        """Remember edits, and forget the oldest; returns the address to which a POST takes them back."""
        token = secrets.token_urlsafe(12)
        with self._lock:
            self._edits[token] = tuple(edits)
            while len(self._edits) > EDITS_KEPT:
                self._edits.pop(next(iter(self._edits)))
        return ADDRESS + token

    def waiting(self) -> frozenset[str]:
        """Ids of the episodes that are to be deleted, and of the records drawn from them: no page shows these."""
        with self._lock:
            ids = [name for each in self._deletions.values() for name in each.episode_ids]
        return frozenset([*ids, *(record_id(name, number) for name in ids for number in range(MAX_RECORDS))])

    def address_of(self, episode_id: str) -> str | None:
        """Where the deletion of an episode can still be taken back; None: it cannot, or there is none."""
        with self._lock:
            tokens = [t for t, each in self._deletions.items() if episode_id in each.episode_ids and not each.begun]
        return ADDRESS + tokens[0] if tokens else None

    def last(self) -> str | None:
        """Where the last deletion that can be taken back is; None: there is none."""
        with self._lock:
            tokens = [token for token, each in self._deletions.items() if not each.begun]
        return ADDRESS + tokens[-1] if tokens else None

    def take_back(self, token: str) -> int:
        """Leave undone, or put back as it was; returns how many episodes.

        :raises HTTPException: 410, it is too late; 409, some were edited again meanwhile.
        """
        with self._lock:
            deletion, edits = self._deletions.get(token), self._edits.pop(token, ())
            if deletion is not None and not deletion.begun:
                del self._deletions[token]
                return len(deletion.episode_ids)
        if not edits:
            raise HTTPException(410, "It is too late: this cannot be taken back any more.")
        problems = []
        for each in edits:
            try:
                take_back(self._services, each)
            except AnamnesisError as exc:
                problems.append(str(exc))
        if problems:
            more = f" ({len(problems)} of {len(edits)})" if len(edits) > 1 else ""
            raise HTTPException(409, f"Not taken back{more}: {problems[0]}")
        return len(edits)

    def problems(self) -> list[str]:
        """Deletions that failed, the latest ones, in words."""
        with self._lock:
            return list(self._problems)

    def forget_problems(self) -> None:
        """Somebody has read them."""
        with self._lock:
            self._problems.clear()

    def delete_due(self) -> None:
        """Do the deletions whose time has come."""
        self._delete(lambda deletion: deletion.due <= self._clock())

    def delete_all(self) -> None:
        """Do all that wait, and what is refused again, as often as it may be."""
        while self._deletions:
            self._delete(lambda _: True)

    async def run(self) -> None:
        """Do what is due until cancelled, then all that waits."""
        try:
            while True:
                await anyio.sleep(LOOK_S)
                if self._deletions:
                    await anyio.to_thread.run_sync(self.delete_due)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.delete_all)

    def _delete(self, is_wanted: Callable[[Deletion], bool]) -> None:
        with self._lock:
            wanted = {token: replace(each, begun=True) for token, each in self._deletions.items() if is_wanted(each)}
            self._deletions.update(wanted)
        for token, deletion in wanted.items():
            refused = self._delete_each(deletion)
            tries = deletion.tries + 1
            with self._lock:
                if refused and tries < TRIES:
                    due = self._clock() + tries
                    self._deletions[token] = replace(deletion, episode_ids=tuple(refused), tries=tries, due=due)
                else:
                    del self._deletions[token]
                    self._problems.extend(f"{name} is not deleted: {problem}" for name, problem in refused.items())

    def _delete_each(self, deletion: Deletion) -> dict[str, str]:
        """Id -> why it could not be deleted now."""
        refused: dict[str, str] = {}
        for name in deletion.episode_ids:
            try:
                delete_episode(self._services.store, name, tombstone=deletion.exclude)
            except RetryLater as exc:
                refused[name] = str(exc)
                log.warning("an episode that was to be deleted is not yet: %s", exc)
            except Exception as exc:
                log.exception("an episode that was to be deleted is not")
                with self._lock:
                    self._problems.append(f"{name} is not deleted: {exc}")
        return refused


def undo_of(request: Request) -> Undo:
    """That of the application that answers."""
    undo: Undo = request.app.state.undo
    return undo


def shown_of(episodes: Iterable[Episode], waiting: Set[str]) -> list[Episode]:
    """Those that a page shows: none that is to be deleted. Pure."""
    return [each for each in episodes if each.episode_id not in waiting]


@router.post(ADDRESS + "{token}")
def undo(token: str, request: Request) -> Response:
    """Take back what a page did: 200, or why it stays. A page whose own button asks is drawn anew, as one whose toast
    asks is (`app.js`).
    """
    told = json.dumps({"undone": None, "toast": {"text": "Undone."}})
    return json_reply({"episodes": undo_of(request).take_back(token)}, headers={"HX-Trigger": told})
