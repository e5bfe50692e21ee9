"""Observations of sessions and notes, and proposals made of them: how to change what holds, with verbatim evidence.

A proposal is made by a detector and decided by a person, or by a policy that a person set. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from pydantic import TypeAdapter

from anamnesis_pipeline.model import Status, content_id


class Signal(StrEnum):
    """What an observation is."""

    ERROR = "error"
    """A command or tool failed; the key is the error's signature."""
    CORRECTION = "correction"
    """A person corrects what Claude did."""
    DECISION = "decision"
    PREFERENCE = "preference"
    FACT = "fact"
    """A person tells something to be remembered."""
    CHANGE = "change"
    """Claude tells how something is now."""
    REQUEST = "request"
    """Anything else that a person says in a short sentence."""
    STEPS = "steps"
    """Commands that succeeded one after the other; the key is their sequence."""
    NOTE = "note"
    """A note that was posted, or a record that an LLM drew."""
    TOPIC = "topic"
    """A section of a text with authority."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that one session, note or text says or did.

    `key`: what observations of the same thing share; empty: nothing. `quote`: verbatim out of the episode. `answer`:
    verbatim, too: what fixed an error, or the reason of a decision; it may be from a later episode, `answer_id`, of the
    same session. `number`: its place in the order in which they were stored.
    """

    signal: Signal
    key: str
    episode_id: str
    quote: str
    project: str = ""
    session_id: str = ""
    message_id: str = ""
    at: datetime | None = None
    answer: str = ""
    answer_id: str = ""
    number: int = 0


class Kind(StrEnum):
    """What a proposal is about."""

    MERGE = "merge"
    SUPERSEDE = "supersede"
    CONTRADICTION = "contradiction"
    PROMOTE = "promote"
    LESSON = "lesson"
    STALE_TOPIC = "stale_topic"
    DRIFT = "drift"
    PATTERN = "pattern"
    DOUBT = "doubt"
    ARCHIVE = "archive"


UNDONE_EXACTLY = frozenset(
    {Kind.MERGE, Kind.SUPERSEDE, Kind.CONTRADICTION, Kind.DRIFT, Kind.DOUBT, Kind.ARCHIVE},
)
"""Kinds that only change statuses and tags, so that undoing leaves everything as it was."""


class State(StrEnum):
    """Where a proposal is."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    EXPIRED = "expired"
    """What it would change is otherwise by now, or newer evidence made another one of it."""
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A verbatim quote of an episode."""

    episode_id: str
    quote: str
    message_id: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StatusEdit:
    """Gives an episode a status. `successor`: the one that stands for it from then on."""

    episode_id: str
    status: Status
    successor: str | None = None


@dataclass(frozen=True, slots=True)
class TopicEdit:
    """Puts an entry into a topic file of the project, under a heading. `name`: of the topic, or the id of one of its
    episodes. `former`: hash of the file when it was proposed; empty: there was none.
    """

    name: str
    heading: str
    entry: str
    former: str = ""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """Posts a note of a type, e.g. `procedure`."""

    type: str
    text: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What accepting does; empty fields do nothing. `tags`: episode -> tags that it gets in addition."""

    statuses: tuple[StatusEdit, ...] = ()
    topic: TopicEdit | None = None
    record: NewRecord | None = None
    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """What accepting did, as undoing needs it: the statuses and tags before, the id of the new record, and the file
    with the hashes of its text before and after, which are equal if it had the entry before. `machine`: of the file.
    `is_done`: the file is written. `first_edits`: episodes that no client had edited before, with the hashes of their
    content since.
    """

    statuses: tuple[StatusEdit, ...] = ()
    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    record_id: str = ""
    path: str = ""
    former: str = ""
    written: str = ""
    is_done: bool = True
    machine: str = ""
    first_edits: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of what holds that a detector proposes.

    `target`: what would change; one proposal of a kind and target is open at a time. `confidence` is in [0, 1].
    `reopens`: an earlier one of its kind and target that was rejected, before there was all of this evidence.
    """

    kind: Kind
    project: str
    target: str
    title: str
    change: Change
    evidence: tuple[Evidence, ...]
    confidence: float
    detector: str
    created_at: datetime
    state: State = State.OPEN
    decided_at: datetime | None = None
    decided_by: str = ""
    reason: str = ""
    reopens: str = ""
    applied: Applied | None = None

    @property
    def proposal_id(self) -> str:
        """Hash of kind, target and evidence: the same find is the same proposal."""
        quotes = sorted({f"{each.episode_id} {each.quote}" for each in self.evidence})
        return content_id("proposal", self.kind, self.target, *quotes)

    @property
    def episode_ids(self) -> list[str]:
        """The episodes that it quotes, sorted."""
        return sorted({each.episode_id for each in self.evidence})

    def over(self, former: str) -> "Proposal":
        """Return it for a topic file that has this hash."""
        if self.change.topic is None:
            return self
        return replace(self, change=replace(self.change, topic=replace(self.change.topic, former=former)))

    def saying(self, entry: str) -> "Proposal":
        """Return it with another text in place of the proposed one."""
        topic, record = self.change.topic, self.change.record
        if topic is not None:
            return replace(self, change=replace(self.change, topic=replace(topic, entry=entry)))
        return replace(self, change=replace(self.change, record=record and replace(record, text=entry)))

    def decided(self, state: State, at: datetime, by: str, reason: str = "") -> "Proposal":
        """Return it in this state."""
        return replace(self, state=state, decided_at=at, decided_by=by, reason=reason)


CHANGE, EVIDENCE, APPLIED = TypeAdapter(Change), TypeAdapter(tuple[Evidence, ...]), TypeAdapter(Applied)


def dated(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return evidence in the order of its times; what has none comes first."""
    return tuple(sorted(evidence, key=lambda each: each.at.isoformat() if each.at else ""))
