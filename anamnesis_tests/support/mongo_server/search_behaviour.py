"""What a test makes the search service do: how slow it is, and how it fails."""

from collections.abc import Callable, Set
from typing import Any

EVERY = "*"
"""In a set of names: all indexes."""


class SearchBehaviour:
    """May be changed at any time, and holds for what is committed from then on. Times are seconds.

    `build_s`: from the command until an index is READY, a fifth of it as PENDING; of commands to come. `lag_s`: from a
    commit until its changes are in the indexes. `torn_s`: of what came since somebody looked, the first half comes so
    much after the second: the process indexes a batch from its end and in several threads, and shows what it has in
    between (https://github.com/mongodb/mongot, `ChangeStreamDocumentUtils`, `DefaultIndexingWorkScheduler`). `frozen`:
    what is committed now gets into no index until it is False again. `never_ready` and `failing`: names of indexes
    whose build does not end, or ends as FAILED. `reachable`: whether the process runs.
    """

    build_s: float
    lag_s: float
    torn_s: float
    frozen: bool
    never_ready: Set[str]
    failing: Set[str]
    reachable: bool

    def __init__(self, look: Callable[[], object]) -> None:
        """`look` takes note of all that was committed, before anything changes."""
        object.__setattr__(self, "_look", look)
        self.reset()

    def reset(self) -> None:
        """As it is unless a test says otherwise."""
        self.build_s, self.lag_s, self.torn_s = 0.05, 0.02, 0.0
        self.frozen, self.reachable = False, True
        self.never_ready, self.failing = frozenset[str](), frozenset[str]()

    def __setattr__(self, name: str, value: Any) -> None:
        self._look()
        object.__setattr__(self, name, value)


def is_named(name: str, names: Set[str]) -> bool:
    """Whether a set of names means this one."""
    return name in names or EVERY in names
