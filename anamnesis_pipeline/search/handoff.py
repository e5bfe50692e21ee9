"""The state of a project for the next session: what holds, state, decisions, open loops, failing tests, news, recent
work, facts. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from anamnesis_pipeline.model import RESERVED_SOURCES, Episode, Part, SegmentKind
from anamnesis_pipeline.parsing.text.sentences import beginning
from anamnesis_pipeline.search.context_items import Item, SourceClass, class_of, kind_of
from anamnesis_pipeline.search.failing_tests import failing
from anamnesis_pipeline.search.fusion import fold
from anamnesis_pipeline.search.open_loops import (
    answers_in,
    decisions_in,
    left_open,
    open_loops,
    question_at_the_end,
    questions_in,
    todos_left,
)
from anamnesis_pipeline.search.reports import Topic, Unit, told
from anamnesis_pipeline.search.token_budget import Section
from anamnesis_pipeline.search.turns import (
    PROMPT_WORDS,
    TOOL_KINDS,
    Report,
    Said,
    Turn,
    messages_of,
    reports_of,
    says_something,
    turns_of,
)
from anamnesis_pipeline.store.session_model import SessionRecord

SESSIONS = 4
"""Sessions that are listed as recent work and searched for open loops."""
ENDS = 12
"""Exchanges read at the end of a session."""
MAX_ITEMS = 5
"""Limit per heading."""
STATES = 3
"""Messages about the state, from the end of the last session."""
STATE_WORDS = 3
"""Minimum content words of a shown message: `All done.` has too few."""
REPORTS = 6
"""Messages at the end of a session that are searched for open loops."""
OPEN_LINES = 12
"""Limit per message."""
OPEN_MESSAGES = 2
"""Limit per session: the latest messages that leave something open."""
PROGRESS = 3
"""Last statements shown of an interrupted turn."""
ACHIEVED = 8
"""Sentences of it that report an achievement, the last ones."""
PROMPTS_SHOWN = 3
"""Prompts shown per session, the last informative ones."""
PROMPT_CHARS = 200
WISH_CHARS = 1_500
"""Limit of a prompt that is searched for wishes: a longer one is mostly pasted."""
COMMITS = 6
"""Limit per session, the last ones."""

HOLDS = "What holds; topics win over what sessions said:"
SAID = "What the topics say, latest first:"
PINNED = "Pinned preferences:"
LESSONS = "Went wrong before; check before similar work:"
STATE = "Where the work stands:"
BEFORE = "Said before that, newest first:"
DECIDED = "Latest decisions:"
OPEN = "Open loops:"
FAILING = "Failing tests:"
NEW = "New since the last session:"
RECENT = "Recent work, newest first:"
FACTS = "Written down to be remembered:"

_ASKED = frozenset({SegmentKind.PROMPT, SegmentKind.STEERING, SegmentKind.CHANNEL})
_HANDOFF = re.compile(r"handoff|hand-off|hand_off", re.IGNORECASE)
_IN_CONTEXT = re.compile(r"(?:.*/)?(?:CLAUDE(?:\.local)?|MEMORY)\.md", re.IGNORECASE)
"""Files that Claude Code itself reads into every session."""
_COMMIT = re.compile(
    r"^\[(?P<branch>[^\]\n]{1,100}) (?P<hash>[0-9a-f]{7,40})\] (?P<subject>[^\n]{1,200})$", re.MULTILINE
)
"""Output of `git commit`."""
_ACHIEVED = re.compile(
    r"\b(?:all|both) [^.?]{0,60}\b(?:pass|passed|green|closed|done|complete|clean)\b"
    r"|\b(?:is|are|now) (?:done|fixed|closed|clean|pushed)\b"
    r"|^(?:committed|pushed|fixed|done|closed|merged)\b|\b0 failures\b|\bcompiles? clean(?:ly)?\b",
    re.IGNORECASE,
)
"""Reports an achievement."""
_ANNOUNCES = ("Now ", "Let me", "Let's", "I'll", "First")
_PLANS = re.compile(r"\b(?:i'll|i will|let me|plan|in order|steps)\b", re.IGNORECASE)
_LASTING = ("correction", "preference", "procedure", "lesson", "fact", "error")
"""Types of lasting memories, the most binding first."""


@dataclass(frozen=True, slots=True)
class Work:
    """The input of a project, each newest first. `parts`: by ID, the chunks of the newest of `talk`. `sessions`: the
    records of its last sessions, each with its episode.
    """

    records: Sequence[Episode] = ()
    """Typed records extracted by an LLM, and posted ones of such a kind."""
    curated: Sequence[Episode] = ()
    notes: Sequence[Episode] = ()
    documents: Sequence[Episode] = ()
    talk: Sequence[Episode] = ()
    parts: Mapping[str, Part] = field(default_factory=dict)
    sessions: Sequence[tuple[Episode, SessionRecord]] = ()


@dataclass(frozen=True, slots=True)
class Handoff:
    """Quotes under each heading, the most important first. `topics`: which there are, and what each is for; `entries`:
    the latest of what they say.
    """

    state: tuple[Item, ...] = ()
    decisions: tuple[Item, ...] = ()
    open_loops: tuple[Item, ...] = ()
    failing: tuple[Item, ...] = ()
    new: tuple[Item, ...] = ()
    recent: tuple[Item, ...] = ()
    facts: tuple[Item, ...] = ()
    topics: tuple[Item, ...] = ()
    pinned: tuple[Item, ...] = ()
    lessons: tuple[Item, ...] = ()
    entries: tuple[Item, ...] = ()

    def sections(self) -> list[Section]:
        """Return the sections of a block."""
        return [
            Section(HOLDS, self.topics, 40, is_whole=True),
            Section(SAID, self.entries, 60, is_whole=True, waits=1),
            Section(PINNED, self.pinned, 60, is_whole=True),
            Section(LESSONS, self.lessons, 60, is_whole=True),
            Section(STATE, self.state[:1], 160, is_whole=True),
            Section(DECIDED, self.decisions, 60, is_whole=True),
            Section(OPEN, self.open_loops, 120, is_whole=True),
            Section(FAILING, self.failing, 60, is_whole=True),
            Section(NEW, self.new, 50, is_whole=True),
            Section(RECENT, self.recent, 70, is_whole=True),
            Section(FACTS, self.facts, 50, is_whole=True),
            Section(BEFORE, self.state[1:], 160, is_whole=True, waits=2),
        ]

    def unknown(self) -> list[str]:
        """Return the headings without content, in words."""
        known = {"decisions": self.decisions, "open loops": self.open_loops, "failing tests": self.failing}
        return [name for name, items in known.items() if not items]


@dataclass(frozen=True, slots=True)
class Session:
    """One session as far as it was read: its episodes newest first, and its messages."""

    episodes: Sequence[Episode]
    messages: Sequence[Said]
    turns: Sequence[Turn]
    reports: Sequence[Report]
    """The latest first."""
    record: SessionRecord | None = None

    @property
    def last(self) -> Episode:
        """Return its newest episode."""
        return self.episodes[0]


def handoff_of(work: Work) -> Handoff:
    """Return the hand-off from these episodes."""
    sessions = _sessions(work)
    decisions = _distinct(_decisions(work, sessions))
    loops = _distinct(_loops(work, sessions))
    state = tuple(_state(sessions[0])) if sessions else ()
    broken = failing(sessions[0].messages) if sessions else None
    failed = (Item(broken.said.episode, broken.describe(), SourceClass.TOOL),) if broken else ()
    told_of = {item.episode.episode_id for item in (*decisions, *loops)}
    facts = _distinct(item for item in _facts(work) if item.episode.episode_id not in told_of)
    told_of |= {item.episode.episode_id for item in facts}
    new = _distinct(item for item in _new(work, sessions) if item.episode.episode_id not in told_of)
    return Handoff(state, decisions, loops, failed, new, tuple(_recent(sessions, has_state=bool(state))), facts)


def _sessions(work: Work) -> list[Session]:
    """Return the last sessions, the most recently active first. Of older ones only the record is known."""
    found: dict[str, list[Episode]] = {}
    for episode in work.talk:
        found.setdefault(episode.session_id or episode.episode_id, []).append(episode)
    records = {name: record for _, record in reversed(work.sessions) for name in record.session_ids}
    sessions = list[Session]()
    for name, episodes in list(found.items())[:SESSIONS]:
        messages = messages_of(episodes, work.parts)
        turns = turns_of(messages)
        sessions.append(Session(episodes, messages, turns, reports_of(turns, REPORTS), records.get(name)))
    for episode, record in work.sessions:
        if len(sessions) < SESSIONS and not found.keys() & {record.session_id, *record.session_ids}:
            sessions.append(Session([episode], (), (), (), record))
    return sessions


def _state(session: Session) -> Iterator[Item]:
    """Yield the last messages of a session about its state, without their open loops, which come later."""
    if not session.reports and session.record is not None and session.record.outcome:
        yield Item(session.last, session.record.outcome, SourceClass.ASSISTANT)
    final = [report for report in session.reports if report.is_final]
    progress = [report for report in session.reports if not report.is_final]
    if progress:
        yield Item(progress[0].said.episode, _progress(progress), SourceClass.ASSISTANT)
    for number, report in enumerate(final[: STATES - bool(progress)]):
        loops = {*left_open(report.units, OPEN_LINES), *(question_at_the_end(report.units) if number == 0 else ())}
        text = told(unit for unit in report.units if unit not in loops)
        if says_something(text, STATE_WORDS):
            yield Item(report.said.episode, text, SourceClass.ASSISTANT)


def _progress(reports: Sequence[Report]) -> str:
    """Return the results of an interrupted turn, its plans, and its last statement."""
    last = reports[:PROGRESS]
    lists = (report for report in reports[PROGRESS:] if sum(unit.is_item for unit in report.units) > 1)
    plan = next((report for report in lists if _PLANS.search(report.said.text)), None)
    before = [unit for report in reversed(reports[PROGRESS:]) for unit in report.units if report is not plan]
    reached = (unit for unit in before if unit.topic is Topic.DONE or _ACHIEVED.search(unit.text))
    done = list(dict.fromkeys(unit for unit in reached if not unit.text.startswith(_ANNOUNCES)))[-ACHIEVED:]
    pieces = (
        ("Planned", plan.units if plan is not None else ()),
        ("So far", done),
        ("Broken off at", [unit for report in reversed(last) for unit in report.units]),
    )
    return " | ".join(f"{name}: {told(units)}" for name, units in pieces if units)


def _decisions(work: Work, sessions: Sequence[Session]) -> Iterator[Item]:
    """Yield recorded decisions, those of hand-off files, then those stated in messages; each group newest first."""
    for episode in work.records:
        if kind_of(episode) == "decision":
            yield Item(episode, _with_why(episode), class_of(episode))
    for episode in work.curated:
        title = " ".join(_title(episode))
        if re.search(r"\bdeci(?:sion|ded)", title, re.IGNORECASE):
            yield Item(episode, episode.raw_exchange, SourceClass.FILE)
    for session in sessions:
        before: Said | None = None
        found = list[Item]()
        for said in session.messages:
            if text := " ".join(_decided(said, before)):
                speaker = SourceClass.USER if said.kind in _ASKED else SourceClass.ASSISTANT
                found.append(Item(said.episode, text, speaker))
            before = said
        yield from reversed(found)
        for decision in session.record.decisions if session.record is not None else ():
            yield Item(session.last, decision, SourceClass.SUMMARY)


def _decided(said: Said, before: Said | None) -> list[str]:
    """Return the decisions in a message: a person's answers and wishes, and Claude's stated decisions."""
    if said.kind in _ASKED and len(said.text) <= WISH_CHARS:
        return decisions_in(said.text, 2, by_person=True)
    if said.kind in {*_ASKED, SegmentKind.STATEMENT}:
        return decisions_in(said.text, 2)
    asks = before is not None and before.kind is SegmentKind.TOOL_INPUT and before.text.startswith("AskUserQuestion\n")
    return answers_in(said.text) if asks and said.kind is SegmentKind.TOOL_RESULT else []


def _loops(work: Work, sessions: Sequence[Session]) -> Iterator[Item]:
    """Yield the open loops of the last sessions, of hand-off files and of notes, newest first."""
    found = [item for session in sessions for item in _left_by(session)]
    for episode in work.curated:
        if _HANDOFF.search(episode.path) or _HANDOFF.search(" ".join(_title(episode))):
            titled = "\n".join((*_title(episode)[-1:], episode.raw_exchange))
            found += _open_in(episode, titled, SourceClass.FILE)
    for episode in work.notes:
        found += _open_in(episode, episode.raw_exchange or episode.summary, class_of(episode))
    yield from sorted(found, key=lambda item: item.episode.timestamp, reverse=True)


def _left_by(session: Session) -> Iterator[Item]:
    """Yield the open loops of a session: an unanswered prompt, a question to the user, those of its last reports, and
    its to-dos.
    """
    last = session.turns[-1] if session.turns else None
    if last is not None and last.is_of_person and last.answer is None:
        asked = next((turn.asked for turn in reversed(session.turns) if turn.asked and turn.tells), last.asked)
        if asked is not None:
            lead = "Asked, not finished" if last.statements else "Asked, not answered"
            yield Item(asked.episode, f"{lead}: {beginning(asked.text, 2 * PROMPT_CHARS)}", SourceClass.USER)
    if session.messages and (questions := questions_in(session.messages[-1].text)):
        yield Item(session.messages[-1].episode, f"Asked the user: {' '.join(questions)}", SourceClass.ASSISTANT)
    reports, open_messages = [report for report in session.reports if report.is_final] or session.reports[:PROGRESS], 0
    for number, report in enumerate(reports):
        units = left_open(report.units, OPEN_LINES)
        if number == 0 and report.is_final:
            asked_last = [unit for unit in question_at_the_end(report.units) if unit not in units]
            units = [*units, *([Unit(told(asked_last), label="Asked the user")] if asked_last else ())]
        if units and open_messages < OPEN_MESSAGES:
            open_messages += 1
            yield Item(report.said.episode, told(units), SourceClass.ASSISTANT)
    tools = [said for said in session.messages if said.kind in TOOL_KINDS]
    if todos := todos_left(said.text for said in tools):
        yield Item(tools[-1].episode, f"To-do list: {'; '.join(todos[:OPEN_LINES])}", SourceClass.ASSISTANT)
    if session.record is not None and not reports and session.record.open_items:
        yield Item(session.last, "; ".join(session.record.open_items[:OPEN_LINES]), SourceClass.SUMMARY)


def _open_in(episode: Episode, text: str, said_by: SourceClass) -> list[Item]:
    lines = open_loops(text, OPEN_LINES)
    return [Item(episode, "; ".join(lines), said_by)] if lines else []


def _new(work: Work, sessions: Sequence[Session]) -> Iterator[Item]:
    """Yield what arrived after the last session: notes, and sections of documents."""
    since = sessions[0].last.timestamp if sessions else None
    came = sorted((*work.notes, *work.documents), key=lambda episode: episode.timestamp, reverse=True)
    for episode in came:
        if since is None or episode.timestamp > since:
            yield Item(episode, episode.summary, class_of(episode))


def _recent(sessions: Sequence[Session], *, has_state: bool) -> Iterator[Item]:
    """Yield the prompts, the outcome, the commits and the tests of each of the last sessions.

    :param has_state: the outcome of the last session is shown already.
    """
    for number, session in enumerate(sessions):
        last = session.last
        if last.source == RESERVED_SOURCES[0]:
            yield Item(last, last.summary, class_of(last))
            continue
        record = session.record
        asked = dict.fromkeys(str(episode.metadata.get("prompt", "")) for episode in session.episodes)
        prompts = [prompt for prompt in asked if says_something(prompt, PROMPT_WORDS)]
        heads = [beginning(prompt, PROMPT_CHARS) for prompt in reversed(prompts[:PROMPTS_SHOWN])]
        if record is not None and says_something(record.prompt, PROMPT_WORDS):
            heads = list(dict.fromkeys((beginning(record.prompt, PROMPT_CHARS), *heads)))
        outcome = told(session.reports[0].units) if session.reports else record.outcome if record is not None else ""
        commits = record.commits if record is not None and record.commits else _commits(session.messages)
        pieces = (
            ("Asked", "; ".join(heads)),
            ("Claude said last", "" if has_state and number == 0 else outcome),
            ("Commits", "; ".join(commits[-COMMITS:])),
            ("Tests", "; ".join(record.tests[-2:]) if record is not None else ""),
        )
        if text := " | ".join(f"{name}: {piece}" for name, piece in pieces if piece):
            yield Item(last, text, SourceClass.ASSISTANT)


def _commits(messages: Iterable[Said]) -> list[str]:
    printed = (said.text for said in messages if said.kind is SegmentKind.TOOL_RESULT)
    found = (commit for text in printed for commit in _COMMIT.finditer(text[:5_000]))
    return list(dict.fromkeys(f"{commit['hash']} {commit['subject']}" for commit in found))


def _facts(work: Work) -> Iterator[Item]:
    """Yield corrections and preferences, then facts from files that Claude does not read by default."""
    for kind in _LASTING:
        for episode in work.records:
            if kind_of(episode) == kind:
                yield Item(episode, _with_why(episode), class_of(episode))
    for episode in work.curated:
        if not _IN_CONTEXT.fullmatch(episode.path):
            yield Item(episode, episode.summary, SourceClass.FILE)


def _distinct(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return the first MAX_ITEMS distinct items."""
    first = list(islice(items, 4 * MAX_ITEMS))
    return tuple(first[group[0]] for group in fold(((item.text,) for item in first), MAX_ITEMS))


def _with_why(episode: Episode) -> str:
    why = episode.metadata.get("why")
    return f"{episode.summary} Why: {why}" if isinstance(why, str) and why.strip() else episode.summary


def _title(episode: Episode) -> list[str]:
    title = episode.metadata.get("title")
    return [str(piece) for piece in title] if isinstance(title, list) else []
