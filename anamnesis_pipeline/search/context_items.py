"""Quotes of episodes in a session's context, and their attribution. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anamnesis_pipeline.model import RESERVED_SOURCES, Episode, Part, SegmentKind, StoredPassage, content_id
from anamnesis_pipeline.search.quoting import id_label, label, quoted
from anamnesis_pipeline.search.trust import tier_of

SESSION_CHARS = 8


class SourceClass(StrEnum):
    """The speaker of a quote, least reliable first; a mixed quote gets the first of its classes."""

    TOOL = "tool"
    """Output of a tool, a command or a machine: untrusted words."""
    PEER = "peer"
    """Written by a team mate, another session or an agent."""
    SYSTEM = "system"
    """Sent by Claude Code itself, such as a scheduled prompt."""
    POSTED = "posted"
    """Posted by a client without naming the speaker."""
    SUMMARY = "summary"
    """Derived from other text by a program or an LLM."""
    FILE = "file"
    CHANNEL = "channel"
    """Sent by a person through a channel plugin, such as a chat service."""
    ASSISTANT = "assistant"
    USER = "user"


_CLASS_OF = {
    SegmentKind.PROMPT: SourceClass.USER,
    SegmentKind.STEERING: SourceClass.USER,
    SegmentKind.STATEMENT: SourceClass.ASSISTANT,
    SegmentKind.THINKING: SourceClass.ASSISTANT,
    SegmentKind.TOOL_INPUT: SourceClass.ASSISTANT,
    SegmentKind.AGENT_PROMPT: SourceClass.ASSISTANT,
    SegmentKind.COMPACT_SUMMARY: SourceClass.SUMMARY,
    SegmentKind.RECAP: SourceClass.SUMMARY,
    SegmentKind.CHANNEL: SourceClass.CHANNEL,
    SegmentKind.PEER: SourceClass.PEER,
    SegmentKind.MACHINE_PROMPT: SourceClass.SYSTEM,
    SegmentKind.PLAN: SourceClass.ASSISTANT,
    SegmentKind.SKILL: SourceClass.FILE,
    SegmentKind.DOCUMENT: SourceClass.FILE,
    SegmentKind.OUTLINE: SourceClass.FILE,
    SegmentKind.CODE: SourceClass.FILE,
}
"""Every other kind is of a tool."""


@dataclass(frozen=True, slots=True)
class Item:
    """One quote. `text` is verbatim; `passage_id` is its passage, if it is one. `quote`: the quoted sentences of it and
    its surroundings, if known. `short_id`: of the episode, if it has one. `is_index`: the text only
    says what the episode is about. `called`: what it is, if not of the episode's kind. `is_entry`: the text is one
    of several entries of the episode.
    """

    episode: Episode
    text: str
    said_by: SourceClass
    passage_id: int | None = None
    quote: str = ""
    short_id: str = ""
    is_index: bool = False
    called: str = ""
    is_entry: bool = False

    @property
    def shown_as(self) -> str:
        """Return the id under which a session was shown it: neither an index nor an entry stands for the words of its
        episode.
        """
        if self.is_entry:
            return f"entry {content_id(self.text)} {self.episode.episode_id}"
        return f"index {self.episode.episode_id}" if self.is_index else self.episode.episode_id


@dataclass(frozen=True, slots=True)
class Place:
    """Project and machine of a quote, or of all quotes of a block; empty: none, or they differ."""

    project: str = ""
    machine: str = ""


def place_of(item: Item) -> Place:
    """Return the place of an item."""
    episode = item.episode
    return Place(label(episode.project), label(episode.machine or episode.instance, 40))


def common_place(items: Iterable[Item]) -> Place:
    """Return what the places of all items share; it is shown once instead of with each."""
    places = [place_of(item) for item in items]
    projects, machines = {place.project for place in places}, {place.machine for place in places}
    return Place(*(names.pop() if len(names) == 1 else "" for names in (projects, machines)))


def line_of_place(common: Place) -> str:
    """Return the line above all quotes; empty if they share nothing."""
    project = f" in project {common.project}" if common.project else ""
    machine = f" on machine {common.machine}" if common.machine else ""
    return f"All{project}{machine}:" if project or machine else ""


def line_of(item: Item, text: str, common: Place = Place()) -> str:
    """Return the item as one line: time, place, kind, speaker, words, and where to read more.

    :param text: the quoted text of the item, made by `one_line`.
    :param common: shown once for all items already.
    """
    episode, place = item.episode, place_of(item)
    machine = f"machine {place.machine}" if place.machine != common.machine else ""
    pieces = [label(item.called or kind_of(episode), 30), _session_or_file(episode), machine, f"source {item.said_by}"]
    pieces += [f"trust {tier}" if (tier := tier_of(episode)) else "", _status(episode)]
    about = ", ".join(piece for piece in pieces if piece)
    project = f" in project {place.project}" if place.project != common.project else ""
    name = id_label(item.short_id or episode.episode_id)
    return f"- On {episode.timestamp:%Y-%m-%d}{project} ({about}): {quoted(text)} [{name}]"


def _session_or_file(episode: Episode) -> str:
    if episode.session_id and "lines" not in episode.metadata:
        later = episode.metadata.get("continued_in")
        on = f", continued in session {id_label(later)[:SESSION_CHARS]}" if isinstance(later, str) else ""
        return f"session {id_label(episode.session_id)[:SESSION_CHARS]}{on}"
    return f"file {label(episode.path.rsplit('/', 1)[-1], 60)}" if episode.path else ""


def _status(episode: Episode) -> str:
    if episode.status == "active":
        return "NOT THERE" if episode.kind == "absent" else ""
    return f"{episode.status} by {id_label(episode.superseded_by)}" if episode.superseded_by else episode.status


def passage_item(episode: Episode, stored: StoredPassage, part: Part | None, sentences: Sequence[str] = ()) -> Item:
    """Return the item that quotes a passage.

    :param part: the chunk that the episode was made of, if it is a single one.
    :param sentences: the quoted sentences of the passage or its surroundings; none: the passage is quoted.
    """
    speaker = said_by(episode, stored, part)
    if part is not None and sentences and episode.kind != "record":
        kinds = {s.kind for s in part.segments if any(sentence in s.text for sentence in sentences)}
        speaker = _least_of(kinds) if kinds else speaker
    return Item(episode, stored.passage.text, speaker, stored.passage_id, " ".join(sentences))


def said_by(episode: Episode, stored: StoredPassage, part: Part | None) -> SourceClass:
    """Return the speaker class of a passage; of several, the least reliable."""
    if part is None or episode.kind == "record":
        return class_of(episode)
    ids = set(stored.passage.message_ids)
    kinds = {s.kind for s in part.segments if s.uuid in ids and _overlap(s.text, stored.passage.text)}
    return _least_of(kinds or {s.kind for s in part.segments})


def _least_of(kinds: Iterable[SegmentKind]) -> SourceClass:
    """Return the least reliable class."""
    return min((_CLASS_OF.get(kind, SourceClass.TOOL) for kind in kinds), key=list(SourceClass).index)


def kind_of(episode: Episode) -> str:
    """Return the type of a record that an LLM drew, e.g. `decision`; of any other episode, its kind."""
    return str(episode.metadata.get("type", episode.kind)) if episode.kind == "record" else episode.kind


def class_of(episode: Episode) -> SourceClass:
    """Return the speaker class of an episode's summary."""
    if episode.source == RESERVED_SOURCES[0] and episode.kind != "record":
        return SourceClass.POSTED
    return SourceClass.FILE if "lines" in episode.metadata else SourceClass.SUMMARY


def _overlap(text: str, passage: str) -> bool:
    """Return whether a passage contains some of a message's text; it may begin and end anywhere in it."""
    lines = [line for line in passage.splitlines() if line.strip()]
    return any(line in text for line in lines) or any(line in passage for line in text.splitlines() if line.strip())
