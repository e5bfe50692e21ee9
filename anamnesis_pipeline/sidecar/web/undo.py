"""Undo of deletions, which are delayed, and of edits, whose old values are kept for a while.

A delayed deletion runs when due, or when the process ends normally. If the process is killed before, the episode is
kept.
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
from anamnesis_pipeline.model import MAX_RECORDS, Episode, record_id
from anamnesis_pipeline.pipeline.publish import delete_episode
from anamnesis_pipeline.services.editing import Edit, take_back
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.sidecar.web.edits import BY_A_PERSON
from anamnesis_pipeline.sidecar.web.html import page_router

WAIT_S = 11.0
"""Seconds that the toast with the Undo button is shown, plus the request's time."""
LOOK_S = 0.5
TRIES = 3
"""Attempts to delete while the store is busy; then the episode is shown again, with the error."""
MAX_WAITING = 1_000
"""Max delayed deletions."""
EDITS_KEPT = 100
PROBLEMS_KEPT = 20
ADDRESS = "/dashboard/undo/"

log = logging.getLogger(__name__)
router = page_router()


@dataclass(frozen=True, slots=True)
class Deletion:
    """Deletion of an episode at `due`, in seconds of the clock; once `begun` it cannot be undone."""

    exclude: bool
    due: float
    tries: int = 0
    begun: bool = False


class Undo:
    """Deletions and edits by undo token. Thread-safe."""

    def __init__(self, services: Services, wait_s: float = WAIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        """:param services: not used before the first deletion or undo."""
        self._services = services
        self._wait_s = wait_s
        self._clock = clock
        self._lock = threading.Lock()
        self._deletions: dict[str, Deletion] = {}
        """By episode id."""
        self._asked: dict[str, tuple[str, ...]] = {}
        """Token -> episode ids that it restores, while one is delayed. An id may have several tokens."""
        self._edits: dict[str, tuple[Edit, ...]] = {}
        self._problems: deque[str] = deque(maxlen=PROBLEMS_KEPT)

    def delete_later(self, episode_ids: Sequence[str], *, exclude: bool) -> str:
        """Schedule deletions; return the URL that undoes them by POST. A repeated id is delayed again.

        :param exclude: whether later ingests skip their text.
        :raises HTTPException: 429, too many are scheduled.
        """
        token = secrets.token_urlsafe(12)
        with self._lock:
            waiting = len(self._deletions)
            if len({*self._deletions, *episode_ids}) > MAX_WAITING:
                raise HTTPException(429, f"{waiting:,} deletions wait already; try again in {self._wait_s:.0f} s")
            self._asked[token] = tuple(dict.fromkeys(episode_ids))
            for name in self._asked[token]:
                before = self._deletions.get(name)
                if before is None or not before.begun:
                    away = exclude or (before is not None and before.exclude)
                    self._deletions[name] = Deletion(away, self._clock() + self._wait_s)
        return ADDRESS + token

    def keep(self, edits: Sequence[Edit]) -> str:
        """Remember edits, dropping the oldest; return the URL that undoes them by POST."""
        token = secrets.token_urlsafe(12)
        with self._lock:
            self._edits[token] = tuple(edits)
            while len(self._edits) > EDITS_KEPT:
                self._edits.pop(next(iter(self._edits)))
        return ADDRESS + token

    def waiting(self) -> frozenset[str]:
        """Return the ids of episodes scheduled for deletion, and of their records: no page shows these."""
        with self._lock:
            ids = list(self._deletions)
        return frozenset([*ids, *(record_id(name, number) for name in ids for number in range(MAX_RECORDS))])

    def address_of(self, episode_ids: Collection[str]) -> str | None:
        """Return the undo URL of the latest deletion of some of these; None: there is none."""
        with self._lock:
            tokens = [
                token for token, ids in self._asked.items() if any(name in episode_ids for name in self._waiting(ids))
            ]
        return ADDRESS + tokens[-1] if tokens else None

    def take_back(self, token: str) -> int:
        """Undo deletions or edits; return the number of episodes.

        :raises HTTPException: 410, it is too late; 409, some were edited again meanwhile; 503, the store is busy, retry
            the same request.
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
                take_back(self._services.store, self._services.poster, each, BY_A_PERSON)
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
        """Return the ids whose deletion can be undone. The caller holds the lock."""
        return [name for name in episode_ids if name in self._deletions and not self._deletions[name].begun]

    def _forget_tokens(self) -> None:
        """Drop tokens without effect. The caller holds the lock."""
        self._asked = {token: ids for token, ids in self._asked.items() if self._waiting(ids)}

    def problems(self) -> list[str]:
        """Return the latest failed deletions, in words."""
        with self._lock:
            return list(self._problems)

    def forget_problems(self) -> None:
        """Clear the list of failed deletions."""
        with self._lock:
            self._problems.clear()

    def delete_due(self) -> None:
        """Run the deletions that are due."""
        self._delete(lambda deletion: deletion.due <= self._clock())

    def delete_all(self) -> None:
        """Run all deletions, with all retries."""
        while self._deletions:
            self._delete(lambda _: True)

    async def run(self) -> None:
        """Run due deletions until cancelled, then all others."""
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
        """Return the error, "" on success; and whether a retry may help."""
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
    """Return the undo state of the application."""
    undo: Undo = request.app.state.undo
    return undo


def shown_of(episodes: Iterable[Episode], waiting: Set[str]) -> list[Episode]:
    """Return the episodes without those scheduled for deletion. Pure."""
    return [each for each in episodes if each.episode_id not in waiting]


@router.post(ADDRESS + "{token}")
def undo(token: str, request: Request) -> Response:
    """Undo an action of a page: 200, or the reason for failure. `app.js` reloads the page in both cases, from a button
    or a toast.
    """
    told = json.dumps({"undone": None, "toast": {"text": "Undone."}})
    return json_reply({"episodes": undo_of(request).take_back(token)}, headers={"HX-Trigger": told})
