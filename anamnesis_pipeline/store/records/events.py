"""What happened to episodes: one event for each operation of any process."""

import os
import socket
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from anamnesis_pipeline.model import Episode, EpisodeHead
from anamnesis_pipeline.store.gateway import Gateway, Match, Tables
from anamnesis_pipeline.store.memory_layers import is_lasting
from anamnesis_pipeline.store.values import instant, moment, sought

MAX_PROCESSES = 1_000_000
EVENTS_KEPT = 10_000
"""Events that are kept, the latest ones; a few hundred more until the next are removed."""
REMOVED_EVERY = 256
"""Old events are removed once in so many."""


class Happening(StrEnum):
    """What was done."""

    WRITE = "write"
    """Episodes were stored, or written again from the present text of a log or document."""
    READ = "read"
    """Episodes were answers of a search, or were opened."""
    EDIT = "edit"
    """An episode was edited."""
    PROMOTE = "promote"
    """A person made an episode permanent (`memory_layers`)."""
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
    return own if own > 1 else zlib.crc32(socket.gethostname().encode()) % MAX_PROCESSES


class EventRecords:
    """The latest events, written in the transaction of what they report, so that each operation has one."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def since(self, number: int, limit: int, kinds: Collection[Happening] = ()) -> list[Event]:
        """Return the oldest events after `number`, in their order, of these kinds (all, if none is named)."""
        with self._gateway.read() as tables:
            return list(
                map(
                    _event,
                    tables["events"].find({**_of(kinds), "number": {"$gt": number}}, order=["number"], limit=limit),
                )
            )

    def latest(self, limit: int, kinds: Collection[Happening] = ()) -> list[Event]:
        """Return the newest events, in their order, of these kinds (all, if none is named)."""
        return self._newest(_of(kinds), limit)

    def of(self, episode_id: str, limit: int) -> list[Event]:
        """Return the newest events of this episode, in their order. An event of several episodes names the first."""
        return self._newest({"episode_id": sought(episode_id)}, limit)

    def reads_since(self, when: datetime) -> dict[str, int]:
        """Return id -> number of kept events since a time in which an episode was read alone: opened, cited, or the
        only answer.
        """
        match = {"kind": str(Happening.READ), "at": {"$gte": instant(when)}, "episodes": 1}
        with self._gateway.read() as tables:
            rows = tables["events"].sums(match, by=["episode_id"])
        return {row["episode_id"]: row["rows"] for row in rows}

    def counts(self) -> dict[str, int]:
        """Return kind -> number of events that are kept, for all kinds."""
        with self._gateway.read() as tables:
            found = {row["kind"]: row["rows"] for row in tables["events"].sums({"kind": {"$gte": ""}}, by=["kind"])}
        return {kind: found.get(kind, 0) for kind in Happening}

    def clear(self) -> None:
        """Remove all events: they name episodes and projects. Later ones have higher numbers nevertheless."""
        self._gateway.write(lambda tables: tables["events"].delete({}))

    def _newest(self, match: Match, limit: int) -> list[Event]:
        with self._gateway.read() as tables:
            rows = tables["events"].find(match, order=["-number"], limit=limit)
        return [_event(row) for row in reversed(rows)]


def note(tables: Tables, kind: Happening, episode_ids: Sequence[str], project: str | None = None) -> None:
    """Add one event about these episodes; none if there are none.

    :param project: of the first one; None: it is looked up.
    """
    if not episode_ids:
        return
    if project is None:
        first = tables["episodes"].one({"episode_id": episode_ids[0]}, ["project"])
        project = first["project"] if first else ""
    row = {
        "at": instant(datetime.now(UTC)),
        "kind": str(kind),
        "process": this_process(),
        "episode_id": episode_ids[0],
        "episodes": len(episode_ids),
        "project": project,
    }
    number = tables["events"].insert([row])
    if number % REMOVED_EVERY == 0:
        tables["events"].delete({"number": {"$lte": number - EVENTS_KEPT}})


def kind_of_edit(before: Episode | EpisodeHead, after: Episode | EpisodeHead) -> Happening:
    """Whether an edit made an episode last that did not. Pure."""
    from_now_on = is_lasting(after) and not is_lasting(before)
    return Happening.PROMOTE if from_now_on else Happening.EDIT


def _of(kinds: Collection[Happening]) -> Match:
    return {"kind": {"$in": [str(kind) for kind in kinds]}} if kinds else {}


def _event(row: Mapping[str, Any]) -> Event:
    return Event(
        row["number"],
        moment(row["at"]),
        Happening(row["kind"]),
        row["process"],
        row["episode_id"],
        row["episodes"],
        row["project"],
    )
