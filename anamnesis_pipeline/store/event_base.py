"""The contract of what a store keeps of what happened to its episodes: one event for each operation of any process."""

import os
import socket
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from anamnesis_pipeline.memory_layers import is_lasting
from anamnesis_pipeline.model import Episode, EpisodeHead

MOST_PROCESSES = 1_000_000
EVENTS_KEPT = 10_000
"""Events that are remembered, the latest ones; a few hundred more until the next are removed."""


class Happening(StrEnum):
    """What was done."""

    WRITE = "write"
    """Episodes came, or were made anew of what a log or document says now."""
    READ = "read"
    """Episodes were answers of a search, or were opened."""
    EDIT = "edit"
    """Somebody changed an episode."""
    PROMOTE = "promote"
    """Somebody changed an episode so that it lasts (`memory_layers`)."""
    FORGET = "forget"
    """An episode was removed on request."""
    CONSOLIDATION = "consolidation"
    """Episodes stand for others, or do no more."""
    STATUS = "status"
    """Episodes of documents were superseded by others, or came back."""


@dataclass(frozen=True, slots=True)
class Event:
    """One operation on `episodes` of them, of which `episode_id` is the first. `number` grows with each; `process`:
    see `this_process`.
    """

    number: int
    at: datetime
    kind: Happening
    process: int
    episode_id: str
    episodes: int
    project: str = ""


def this_process() -> int:
    """The number of this process among those that write: its id. That is 1 in each container, whose name tells them
    apart then.
    """
    own = os.getpid()
    return own if own > 1 else zlib.crc32(socket.gethostname().encode()) % MOST_PROCESSES


class EventRecords(Protocol):
    """The latest events, written in the transaction of what they tell, so that there is one for each that happened."""

    def since(self, number: int, limit: int, kinds: Collection[Happening] = ()) -> list[Event]:
        """The oldest of those behind `number`, of these kinds (all, if none is named), in their order."""

    def latest(self, limit: int, kinds: Collection[Happening] = ()) -> list[Event]:
        """The newest, in their order."""

    def of(self, episode_id: str, limit: int) -> list[Event]:
        """The newest that name this episode, in their order; one about several episodes names only the first."""

    def counts(self) -> dict[str, int]:
        """Kind -> events that are remembered, for all kinds."""

    def clear(self) -> None:
        """Forget all of them: they name episodes and projects. Later ones have higher numbers all the same."""


def kind_of_edit(before: Episode | EpisodeHead, after: Episode | EpisodeHead) -> Happening:
    """Whether an edit made an episode last that did not. Pure."""
    from_now_on = is_lasting(after) and not is_lasting(before)
    return Happening.PROMOTE if from_now_on else Happening.EDIT
