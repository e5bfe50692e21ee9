"""What a test makes the search service do: how slow it is, and how it fails."""

from collections.abc import Set
from dataclasses import dataclass, field

EVERY = "*"
"""In a set of names: all indexes."""


@dataclass(slots=True)
class SearchBehaviour:
    """May be changed at any time. Times are seconds.

    `build_s`: from the command until an index is READY, a fifth of it as PENDING; of commands to come. `lag_s`: from a
    commit until its changes are in the indexes. `torn_s`: of what one commit changed, the first half comes so much
    after the second: the process indexes a batch from its end and in several threads, and shows what it has in between
    (https://github.com/mongodb/mongot, `ChangeStreamDocumentUtils`, `DefaultIndexingWorkScheduler`). `frozen`: what is
    committed now gets into no index until it is False again. `never_ready` and `failing`: names of indexes whose build
    does not end, or ends as FAILED. `reachable`: whether the process runs.
    """

    build_s: float = 0.05
    lag_s: float = 0.02
    torn_s: float = 0.0
    frozen: bool = False
    never_ready: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    reachable: bool = True


def is_named(name: str, names: Set[str]) -> bool:
    """Whether a set of names means this one."""
    return name in names or EVERY in names
