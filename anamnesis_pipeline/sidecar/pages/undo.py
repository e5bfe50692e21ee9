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
from collections.abc import Callable, Collection, Iterable, Sequence, Set
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
    """An episode is to be deleted at `due`, in seconds of the clock; `begun`: it cannot be taken back any more."""

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
        """By the id of the episode."""
        self._asked: dict[str, tuple[str, ...]] = {}
        """Token -> ids of episodes that it takes back, as long as one of them waits. An id may have several."""
        self._edits: dict[str, tuple[Edit, ...]] = {}
        self._problems: deque[str] = deque(maxlen=PROBLEMS_KEPT)

    def delete_later(self, episode_ids: Sequence[str], *, exclude: bool) -> str:
        """Delete these when nobody takes it back in time; returns the address to which a POST does. What waits already
        waits as long as the others do.

        :param exclude: whether their text stays away from later ingests.
        :raises HTTPException: 429, too many wait already.
        """
        token = secrets.token_urlsafe(12)
        with self._lock:
            waiting = len(self._deletions)
            if len({*self._deletions, *episode_ids}) > MOST_WAITING:
                raise HTTPException(429, f"{waiting:,} deletions wait already; try again in {self._wait_s:.0f} s")
            self._asked[token] = tuple(dict.fromkeys(episode_ids))
            for name in self._asked[token]:
                before = self._deletions.get(name)
                if before is None or not before.begun:
                    away = exclude or (before is not None and before.exclude)
                    self._deletions[name] = Deletion(away, self._clock() + self._wait_s)
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
            ids = list(self._deletions)
        return frozenset([*ids, *(record_id(name, number) for name in ids for number in range(MAX_RECORDS))])

    def address_of(self, episode_ids: Collection[str]) -> str | None:
        """Where the last deletion of some of these can still be taken back; None: it cannot, or there is none."""
        with self._lock:
            tokens = [
                token for token, ids in self._asked.items() if any(name in episode_ids for name in self._waiting(ids))
            ]
        return ADDRESS + tokens[-1] if tokens else None

    def take_back(self, token: str) -> int:
        """Leave undone, or put back as it was; returns how many episodes.

        :raises HTTPException: 410, it is too late; 409, some were edited again meanwhile; 503, the store is busy, and
            the same may be asked again.
        """
        with self._lock:
            edits, left = self._edits.pop(token, ()), self._waiting(self._asked.get(token, ()))
            for name in left:
                del self._deletions[name]
            self._forget_tokens()
        if left:
            return len(left)
        if not edits:
            raise HTTPException(410, "It is too late: this cannot be taken back any more.")
        return self._put_back(token, edits)

    def _put_back(self, token: str, edits: Sequence[Edit]) -> int:
        problems: list[str] = []
        refused: list[tuple[Edit, str]] = []
        for each in edits:
            try:
                take_back(self._services, each)
            except RetryLater as exc:
                refused.append((each, str(exc)))
            except AnamnesisError as exc:
                problems.append(str(exc))
        if refused:
            with self._lock:
                self._edits[token] = tuple(edit for edit, _ in refused)
            raise HTTPException(503, f"Not taken back yet: {refused[0][1]}")
        if problems:
            more = f" ({len(problems)} of {len(edits)})" if len(edits) > 1 else ""
            raise HTTPException(409, f"Not taken back{more}: {problems[0]}")
        return len(edits)

    def _waiting(self, episode_ids: Iterable[str]) -> list[str]:
        """Those whose deletion can be taken back. Called with the lock held."""
        return [name for name in episode_ids if name in self._deletions and not self._deletions[name].begun]

    def _forget_tokens(self) -> None:
        """Drop those that take nothing back any more. Called with the lock held."""
        self._asked = {token: ids for token, ids in self._asked.items() if self._waiting(ids)}

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
            wanted = {name: replace(each, begun=True) for name, each in self._deletions.items() if is_wanted(each)}
            self._deletions.update(wanted)
            self._forget_tokens()
        for name, deletion in wanted.items():
            problem, may_try = self._delete_one(name, deletion)
            tries = deletion.tries + 1
            with self._lock:
                if may_try and tries < TRIES:
                    self._deletions[name] = replace(deletion, tries=tries, due=self._clock() + tries)
                    continue
                del self._deletions[name]
                if problem:
                    self._problems.append(f"{name} is not deleted: {problem}")

    def _delete_one(self, name: str, deletion: Deletion) -> tuple[str, bool]:
        """Why it is not deleted, empty if it is; and whether trying again may help."""
        try:
            delete_episode(self._services.store, name, tombstone=deletion.exclude)
        except RetryLater as exc:
            log.warning("an episode that was to be deleted is not yet: %s", exc)
            return str(exc), True
        except Exception as exc:
            log.exception("an episode that was to be deleted is not")
            return str(exc), False
        return "", False


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
