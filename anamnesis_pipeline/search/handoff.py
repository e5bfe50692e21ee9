"""Where a project stands, for whoever goes on: latest decisions, open loops, what is new, recent work, facts. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from anamnesis_pipeline.model import RESERVED_SOURCES, Episode, Part, SegmentKind
from anamnesis_pipeline.search.context_items import Item, SourceClass, class_of
from anamnesis_pipeline.search.folding import fold
from anamnesis_pipeline.search.open_loops import decisions_in, open_loops
from anamnesis_pipeline.search.token_budget import Section
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.stop_words import STOP_WORDS

SESSIONS = 4
"""Sessions whose end tells what is open, and that are listed as recent work."""
ENDS = 3
"""Exchanges at the end of a session that tell how it ended."""
MOST_ITEMS = 5
"""Of one heading."""
PROMPTS_SHOWN = 3
"""Prompts of a session, the last ones that say something."""
PROMPT_CHARS = 160
ENDING_CHARS = 240

DECIDED = "Latest decisions:"
OPEN = "Open loops:"
NEW = "New since the last session:"
RECENT = "Recent work, newest first:"
FACTS = "Written down to be remembered:"

_SAID = frozenset({SegmentKind.STATEMENT})
_ASKED = frozenset({SegmentKind.PROMPT, SegmentKind.STEERING, SegmentKind.CHANNEL})
_HANDOFF = re.compile(r"handoff|hand-off|hand_off", re.IGNORECASE)
_IN_CONTEXT = re.compile(r"(?:.*/)?(?:CLAUDE(?:\.local)?|MEMORY)\.md", re.IGNORECASE)
"""Files that Claude Code reads into every session itself."""
_LASTING = ("correction", "preference", "procedure", "lesson", "fact", "error")
"""Types of what is remembered, the one that binds most first."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is read of a project, each newest first. `parts`: by id, those of the newest of `talk`."""

    records: Sequence[Episode] = ()
    """Typed records that an LLM drew, and what clients posted under such a kind."""
    curated: Sequence[Episode] = ()
    notes: Sequence[Episode] = ()
    documents: Sequence[Episode] = ()
    talk: Sequence[Episode] = ()
    parts: Mapping[str, Part] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Handoff:
    """Quotes under each heading, the most important first."""

    decisions: tuple[Item, ...] = ()
    open_loops: tuple[Item, ...] = ()
    new: tuple[Item, ...] = ()
    recent: tuple[Item, ...] = ()
    facts: tuple[Item, ...] = ()

    def sections(self) -> list[Section]:
        """The same as a block is made of."""
        return [
            Section(DECIDED, self.decisions, 60),
            Section(OPEN, self.open_loops, 80),
            Section(NEW, self.new, 50),
            Section(RECENT, self.recent, 70),
            Section(FACTS, self.facts, 50),
        ]


def handoff_of(work: Work) -> Handoff:
    """The hand-off that these episodes make."""
    sessions = _sessions(work.talk)
    decisions = _distinct(_decisions(work))
    loops = _distinct(_loops(work, sessions))
    told = {item.episode.episode_id for item in (*decisions, *loops)}
    facts = _distinct(item for item in _facts(work) if item.episode.episode_id not in told)
    told |= {item.episode.episode_id for item in facts}
    new = _distinct(item for item in _new(work, sessions) if item.episode.episode_id not in told)
    return Handoff(decisions, loops, new, tuple(_recent(sessions, work.parts)), facts)


def _sessions(talk: Sequence[Episode]) -> list[list[Episode]]:
    """The episodes of each session, newest first; the session that was talked in last comes first."""
    found: dict[str, list[Episode]] = {}
    for episode in talk:
        found.setdefault(episode.session_id or episode.episode_id, []).append(episode)
    return list(found.values())[:SESSIONS]


def _decisions(work: Work) -> Iterator[Item]:
    """Recorded ones, those of hand-off files, then what was said to be decided; each group newest first."""
    for episode in work.records:
        if _type(episode) == "decision":
            yield Item(episode, _with_why(episode), class_of(episode))
    for episode in work.curated:
        title = " ".join(_title(episode))
        if re.search(r"\bdeci(?:sion|ded)", title, re.IGNORECASE):
            yield Item(episode, episode.raw_exchange, SourceClass.FILE)
    for episode in work.talk:
        part = work.parts.get(episode.episode_id)
        for speaker, kinds in ((SourceClass.USER, _ASKED), (SourceClass.ASSISTANT, _SAID)):
            if said := decisions_in(_text(part, kinds), 2):
                yield Item(episode, " ".join(said), speaker)


def _loops(work: Work, sessions: Sequence[Sequence[Episode]]) -> Iterator[Item]:
    """Those that the last sessions ended with, those of hand-off files and of notes; what is newer comes first."""
    found: list[Item] = []
    for session in sessions:
        for episode in session[:ENDS]:
            text = _text(work.parts.get(episode.episode_id), _SAID)
            found += _open_in(episode, text, SourceClass.ASSISTANT)
    for episode in work.curated:
        if _HANDOFF.search(episode.path) or _HANDOFF.search(" ".join(_title(episode))):
            titled = "\n".join((*_title(episode)[-1:], episode.raw_exchange))
            found += _open_in(episode, titled, SourceClass.FILE)
    for episode in work.notes:
        found += _open_in(episode, episode.raw_exchange or episode.summary, class_of(episode))
    yield from sorted(found, key=lambda item: item.episode.timestamp, reverse=True)


def _open_in(episode: Episode, text: str, said_by: SourceClass) -> list[Item]:
    lines = open_loops(text)
    return [Item(episode, "; ".join(lines), said_by)] if lines else []


def _new(work: Work, sessions: Sequence[Sequence[Episode]]) -> Iterator[Item]:
    """What came in after the last session: notes, and sections of documents."""
    since = sessions[0][0].timestamp if sessions else None
    came = sorted((*work.notes, *work.documents), key=lambda episode: episode.timestamp, reverse=True)
    for episode in came:
        if since is None or episode.timestamp > since:
            yield Item(episode, episode.summary, class_of(episode))


def _recent(sessions: Sequence[Sequence[Episode]], parts: Mapping[str, Part]) -> Iterator[Item]:
    """What each of the last sessions was asked, and how it ended."""
    for session in sessions:
        last = session[0]
        if last.source == RESERVED_SOURCES[0]:
            yield Item(last, last.summary, class_of(last))
            continue
        prompts = list(dict.fromkeys(p for e in session if _tells(p := str(e.metadata.get("prompt", "")))))
        asked = "; ".join(_head(prompt, PROMPT_CHARS) for prompt in reversed(prompts[:PROMPTS_SHOWN]))
        ending = _tail(_ending(session, parts), ENDING_CHARS)
        pieces = [f"Asked: {asked}" if asked else "", f"Claude said last: {ending}" if ending else ""]
        if any(pieces):
            yield Item(last, " | ".join(filter(None, pieces)), SourceClass.ASSISTANT)


def _facts(work: Work) -> Iterator[Item]:
    """Corrections and preferences, then what files say that Claude does not read by itself."""
    for kind in _LASTING:
        for episode in work.records:
            if _type(episode) == kind:
                yield Item(episode, _with_why(episode), class_of(episode))
    for episode in work.curated:
        if not _IN_CONTEXT.fullmatch(episode.path):
            yield Item(episode, episode.summary, SourceClass.FILE)


def _distinct(items: Iterable[Item]) -> tuple[Item, ...]:
    """The first MOST_ITEMS that do not say the same."""
    first = list(islice(items, 4 * MOST_ITEMS))
    return tuple(first[group[0]] for group in fold(((item.text,) for item in first), MOST_ITEMS))


def _type(episode: Episode) -> str:
    return str(episode.metadata.get("type", episode.kind)) if episode.kind == "record" else episode.kind


def _with_why(episode: Episode) -> str:
    why = episode.metadata.get("why")
    return f"{episode.summary} Why: {why}" if isinstance(why, str) and why.strip() else episode.summary


def _title(episode: Episode) -> list[str]:
    title = episode.metadata.get("title")
    return [str(piece) for piece in title] if isinstance(title, list) else []


def _text(part: Part | None, kinds: frozenset[SegmentKind]) -> str:
    return "\n".join(s.text for s in part.segments if s.kind in kinds) if part is not None else ""


def _ending(session: Sequence[Episode], parts: Mapping[str, Part]) -> str:
    """The last message in which Claude said something."""
    for episode in session[:ENDS]:
        part = parts.get(episode.episode_id)
        said = [s for s in part.segments if s.kind in _SAID and s.text.strip()] if part is not None else []
        if said:
            return "".join(s.text for s in said if s.message_key == said[-1].message_key)
    return ""


def _tells(prompt: str) -> bool:
    """Whether a prompt says what it is about: `go on` does not."""
    return sum(word not in STOP_WORDS for word in content_words(prompt)) > 2


def _head(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat.rstrip(".") if len(flat) <= most else flat[: most - 1].rsplit(" ", 1)[0] + "\u2026"


def _tail(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else "\u2026" + flat[1 - most :].partition(" ")[2]
