"""The turns of a session: the prompt and Claude's last answer. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.model import Episode, Part, SegmentKind
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS
from anamnesis_pipeline.search.reports import Topic, Unit, units_of
from anamnesis_pipeline.search.words import content_words

PERSON_KINDS = frozenset({SegmentKind.PROMPT, SegmentKind.CHANNEL, SegmentKind.PLAN})
"""A person's turn begins with one of these."""
MACHINE_KINDS = frozenset(
    {SegmentKind.NOTIFICATION, SegmentKind.MACHINE_PROMPT, SegmentKind.PEER, SegmentKind.COMMAND, SegmentKind.SKILL}
)
"""A turn without a person begins with one of these, unless Claude was still at work."""
TOOL_KINDS = frozenset({SegmentKind.TOOL_INPUT, SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})
MIN_WORDS = 5
"""Content words of an informative message."""
PROMPT_WORDS = 3
"""Content words of a prompt that names its subject: `go on` does not."""
MIN_REPORTED = 2
"""Sentences on finished or remaining work that make an answer to a notification a report."""
_REPORTED = frozenset({Topic.DONE, Topic.FILED, Topic.OPEN, Topic.FAILING, Topic.DECIDED})
_INTERRUPTED = "[Request interrupted"
_NO_ANSWER = re.compile(
    r"\s*(?:API Error|No response requested|Credit balance|You've (?:hit|reached) your|Claude (?:AI )?usage limit"
    r"|Execution error|Prompt is too long|Invalid API key|Request timed out)",
    re.IGNORECASE,
)
_GO_ON = frozenset("go on continue proceed yes ok okay sure thanks please next more right good great fine done".split())


@dataclass(frozen=True, slots=True)
class Said:
    """A whole message, and the episode in which it ends."""

    episode: Episode
    kind: SegmentKind
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """The message that began it (None: unknown), and all messages up to the next turn."""

    asked: Said | None
    followed: tuple[Said, ...]

    @property
    def is_of_person(self) -> bool:
        """Return whether a person asked for it."""
        return self.asked is None or self.asked.kind in PERSON_KINDS

    @property
    def tells(self) -> bool:
        """Return whether a person asked for it in words that name its subject."""
        return self.asked is not None and self.is_of_person and says_something(self.asked.text, PROMPT_WORDS)

    @property
    def statements(self) -> list[Said]:
        """Return Claude's statements."""
        return [said for said in self.followed if said.kind is SegmentKind.STATEMENT and said.text.strip()]

    @property
    def answer(self) -> Said | None:
        """Return Claude's statement at the end of the turn; None: it was interrupted."""
        return _answer(self.followed)


@dataclass(frozen=True, slots=True)
class Report:
    """A message about the state of the work. `is_final`: it ended a turn."""

    said: Said
    units: tuple[Unit, ...]
    is_final: bool = True


def messages_of(session: Iterable[Episode], parts: Mapping[str, Part]) -> list[Said]:
    """Return the messages of a session in the order of its log, as far as `parts` has them."""
    episodes = list(session)
    begun: dict[str, Episode] = {}
    for episode in episodes:
        if episode.path not in begun or episode.timestamp < begun[episode.path].timestamp:
            begun[episode.path] = episode
    episodes.sort(key=lambda e: (begun[e.path].timestamp, e.path, int(e.metadata.get("ordinal", 0)), e.timestamp))
    found: dict[str, Said] = {}
    for episode in episodes:
        part = parts.get(episode.episode_id)
        for segment in part.segments if part is not None else ():
            before = found.get(segment.message_key)
            text = before.text + segment.text if before is not None else segment.text
            found[segment.message_key] = Said(episode, segment.kind, text)
    return list(found.values())


def turns_of(messages: Iterable[Said]) -> list[Turn]:
    """Return the turns of these messages, in order."""
    turns, asked, followed = list[Turn](), None, list[Said]()
    for message in messages:
        is_notice = message.kind in MACHINE_KINDS and not message.text.startswith(_INTERRUPTED)
        if message.kind in PERSON_KINDS or (is_notice and _answer(followed) is not None):
            turns.append(Turn(asked, tuple(followed)))
            asked, followed = message, []
        else:
            followed.append(message)
    turns.append(Turn(asked, tuple(followed)))
    return [turn for turn in turns if turn.asked or turn.followed]


def reports_of(turns: Sequence[Turn], most: int) -> list[Report]:
    """Return the messages about the state of a session, latest first: the last `most` informative ones that ended a
    turn. An answer to a notification counts only if it is a report itself. Of an interrupted last turn, all statements
    count, too.
    """
    found = list[Report]()
    for turn in reversed(turns):
        if sum(report.is_final for report in found) == most:
            break
        answer = turn.answer
        if answer is None:
            if not found and turn.is_of_person:
                found += [Report(said, _units(said), is_final=False) for said in reversed(turn.statements)]
            continue
        units = _units(answer)
        if not says_something(answer.text, MIN_WORDS):
            continue
        if turn.is_of_person or sum(unit.topic in _REPORTED for unit in units) >= MIN_REPORTED:
            found.append(Report(answer, units))
    return found


def says_something(text: str, least: int) -> bool:
    """Return whether a text has enough content words: `go on` has none."""
    return sum(word not in STOP_WORDS and word not in _GO_ON for word in content_words(text[:2_000])) >= least


def _units(said: Said) -> tuple[Unit, ...]:
    return tuple(units_of(said.text))


def _answer(followed: Sequence[Said]) -> Said | None:
    for said in reversed(followed):
        if said.kind is SegmentKind.STATEMENT and says_something(said.text, 1) and not _NO_ANSWER.match(said.text):
            return said
        if said.kind in TOOL_KINDS or said.text.startswith(_INTERRUPTED):
            return None
    return None
