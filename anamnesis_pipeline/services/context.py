"""Build the context of a session: what answers its prompt, or the state of its project."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import count

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Episode, EpisodeFilter, Part
from anamnesis_pipeline.search.best_sentences import Run, best_run
from anamnesis_pipeline.search.context_items import Item, passage_item
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.fusion import fold
from anamnesis_pipeline.search.handoff import Handoff
from anamnesis_pipeline.search.profiles import PROFILES
from anamnesis_pipeline.search.query import Hit, SearchQuery
from anamnesis_pipeline.search.quoting import fenced
from anamnesis_pipeline.search.telling import says_what_it_asks, searched, telling
from anamnesis_pipeline.search.token_budget import Block, Section, count_tokens, counted_tokens, fitted
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.services.folder_project import projects_called, projects_of_folder
from anamnesis_pipeline.services.handoff import read_handoff
from anamnesis_pipeline.services.reminder import Reminder
from anamnesis_pipeline.services.short_ids import short_ids
from anamnesis_pipeline.services.skills import NONE_KNOWN, Place, Skills, skills_for
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.context import SessionMemory, Shown

CANDIDATES = 12
"""Hits considered for one prompt."""
QUOTE_TOKENS = 58
"""Minimum of one quote, two or three sentences: 400 tokens hold 3 or 4. benchmarks/README.md compares other values."""
LONGEST_QUOTE_TOKENS = 160
"""Maximum length of one quote, used where few answer."""
SPARE_QUOTES = 3
"""Hits read beyond those that fit, since the session may know some already."""
AROUND_QUOTE, AROUND_QUOTES = 34, 100
"""Maximum tokens of the text around one quote, and around all of them."""
SKILL_TOKENS = 80
"""Maximum length of a lesson or procedure, in whole sentences; longer where the budget allows."""
SKILLS = "Lessons and procedures for this:"
EMPTIED = frozenset({"clear", "compact"})
"""Start sources of a session with emptied context: what it was shown before may be shown again."""
MIN_TOKENS = 60
"""Below this, no quote fits beside the fence."""
REMINDER_TOKENS = 200
"""Below this, a start has no room for a line on proposals that wait."""
SAME_AMONG = 60
"""Number of items shown last that new ones are compared with, by their words."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """A request for context. Empty fields are unknown. Empty `query`: the session starts.

    :param machine: where `cwd` is; empty: this machine.
    :param source: how the session starts, in Claude Code's terms.
    """

    query: str = ""
    cwd: str = ""
    project: str = ""
    machine: str = ""
    session_id: str = ""
    source: str = ""
    max_tokens: int = 800


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """Text for a session. `skipped` counts items left out, by reason: shown, budget, floor. `no_skills`: why no lesson
    and no procedure answers the prompt; empty: some do, or there is no prompt.
    """

    text: str = ""
    tokens: int = 0
    episodes: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    skipped: Counter[str] = field(default_factory=Counter)
    no_skills: str = ""


class LeftOut(StrEnum):
    """Reason why a quote is not in a block."""

    FLOOR = "floor"
    """It is below the relevance threshold."""
    REPEATED = "repeated"
    """Another quote of the block says the same."""
    BUDGET = "budget"
    """The token budget was used up."""


@dataclass(frozen=True, slots=True)
class ContextPreview:
    """The context of a session that was shown nothing yet, and the quotes left out of it. `no_skills` as of
    `ContextAnswer`.
    """

    projects: tuple[str, ...] = ()
    block: Block = field(default_factory=Block)
    left_out: tuple[tuple[LeftOut, Item], ...] = ()
    no_skills: str = ""


class ContextMaker:
    """Make the context of sessions. Stateless; the store records what each session was shown."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        pieces: PieceCounter,
        machine: str,
        hidden: Set[str] = frozenset(),
        reminder: Reminder | None = None,
    ) -> None:
        """:param machine: name of this machine, whose disk identifies projects.
        :param hidden: ids of episodes that previews and hand-offs leave out.
        :param reminder: of proposals that wait; None: the start of a session does not say so.
        """
        self._hidden, self._reminder = hidden, reminder
        self._store, self._engine, self._pieces, self._machine = store, engine, pieces, machine

    def make(self, asked: ContextRequest, now: datetime) -> ContextAnswer:
        """Return the block for a session. Its items count as shown to the session from now on."""
        if asked.session_id and asked.source in EMPTIED:
            self._store.context.restart(asked.session_id, now)
        if asked.max_tokens < MIN_TOKENS:
            return ContextAnswer()
        memory = self._store.context.session(asked.session_id) if asked.session_id else SessionMemory()
        projects = self.projects(asked)
        skipped: Counter[str] = Counter()
        words, skills, notice = content_words(asked.query), Skills(), ""
        if asked.query:
            hits, clear = self._hits(asked, projects)
            skills = self._skills(asked, projects)
            skipped["floor"] += len(hits) - len(clear)
            known = {shown.episode_id for shown in memory.shown}
            new = [hit for hit in clear if not known & {hit.episode.episode_id, *hit.also}]
            skipped["shown"] += len(clear) - len(new)
            sections = self._answering(asked, new, skills)
        else:
            sections = self._handoff(asked, projects, "" if asked.source in EMPTIED else asked.session_id).sections()
            notice = self._notice(asked, now)
        sections = self._unseen(sections, asked.session_id, memory, skipped)
        block, out = fitted(sections, asked.max_tokens, words, self._pieces, notice)
        if asked.session_id and block.items:
            block, out = self._claimed(block, out, sections, asked, words, now, skipped, notice)
        if notice and not block.items:
            block = Block(fenced([notice]), count_tokens(fenced([notice]), self._pieces))
        skipped["budget"] += len(out)
        ids = tuple(dict.fromkeys(item.episode.episode_id for item in block.items))
        quoted = [item.episode.episode_id for item in block.items if not item.is_index]
        try:
            self._store.episodes.track(list(dict.fromkeys(quoted)), now)
        except AnamnesisError as exc:  # the answer matters more than its count
            log.warning("what a session was told is not counted as retrieved: %s", exc)
        return ContextAnswer(block.text, block.tokens, ids, projects, skipped, skills.reason)

    def _notice(self, asked: ContextRequest, now: datetime) -> str:
        """Return the line that proposals wait, if it is due and the budget has room for it."""
        if self._reminder is None or asked.max_tokens < REMINDER_TOKENS:
            return ""
        try:
            return self._reminder.due(asked.machine or self._machine, now)
        except AnamnesisError as exc:  # a start tells the rest
            log.warning("a session is not told what waits: %s", exc)
            return ""

    def preview(self, asked: ContextRequest) -> ContextPreview:
        """Return what `make` answers a session that was shown nothing yet. Counts as neither shown nor retrieved."""
        projects, left, skills = self.projects(asked), list[tuple[LeftOut, Item]](), Skills()
        if asked.max_tokens < MIN_TOKENS:
            return ContextPreview(projects)
        if asked.query:
            hits, clear = self._hits(asked, projects)
            unclear = [hit for hit in hits if hit not in clear and hit.episode.episode_id not in self._hidden]
            parts = self._parts(hit.episode for hit in unclear)
            left += [(LeftOut.FLOOR, _item(hit, parts)) for hit in unclear]
            skills = self._skills(asked, projects)
            sections = self._answering(asked, clear, skills)
        else:
            sections = self._handoff(asked, projects).sections()
        sections = self._not_hidden(sections)
        told = self._unseen(sections, "", SessionMemory(), Counter())
        kept = [item for section in told for item in section.items]
        left += [(LeftOut.REPEATED, item) for section in sections for item in section.items if item not in kept]
        block, out = fitted(told, asked.max_tokens, content_words(asked.query), self._pieces)
        left += [(LeftOut.BUDGET, item) for item in out]
        return ContextPreview(projects, block, tuple(left), skills.reason)

    def handoff(self, asked: ContextRequest) -> tuple[tuple[str, ...], Handoff, Block]:
        """Return a request's projects, their state, and that state as a block, which names what is unknown. Not counted
        as shown.
        """
        projects = self.projects(asked)
        handoff = self._handoff(asked, projects)
        sections = self._not_hidden(handoff.sections())
        if any(section.items for section in sections):
            unknown = handoff.unknown()
            closing = f"None in the latest sessions: {', '.join(unknown)}." if unknown else ""
            return projects, handoff, fitted(sections, asked.max_tokens, (), self._pieces, closing)[0]
        text = fenced(["Nothing is known of this project yet."])
        tokens = count_tokens(text, self._pieces)
        return projects, handoff, Block(text, tokens) if tokens <= asked.max_tokens else Block()

    def _handoff(self, asked: ContextRequest, projects: tuple[str, ...], without: str = "") -> Handoff:
        """Return the state of the projects; of private sources only those requested by name, or from inside."""
        inside = self._inside(asked, projects)
        hidden = self._engine.private().elsewhere(self._store, projects, inside) if inside else ()
        return read_handoff(self._store, projects, without, hidden)

    def _inside(self, asked: ContextRequest, projects: tuple[str, ...]) -> tuple[str, ...]:
        """Return the projects and the private sources around the folder; none if the request names a project."""
        if asked.project or not asked.cwd:
            return ()
        return (*projects, *self._engine.private().around(asked.cwd, asked.machine or self._machine))

    def _not_hidden(self, sections: Sequence[Section]) -> list[Section]:
        if not self._hidden:
            return list(sections)
        return [
            replace(each, items=[item for item in each.items if item.episode.episode_id not in self._hidden])
            for each in sections
        ]

    def projects(self, asked: ContextRequest) -> tuple[str, ...]:
        """Return the stored projects of a request; none: unknown."""
        if asked.project:
            return projects_called(self._store, asked.project)
        if not asked.cwd:
            return ()
        machine = asked.machine or self._machine
        return projects_of_folder(
            self._store, asked.cwd, machine, is_here=machine == self._machine, private=self._engine.private()
        )

    def _hits(self, asked: ContextRequest, projects: tuple[str, ...]) -> tuple[list[Hit], list[Hit]]:
        """Return the search hits for a prompt, and those above the relevance threshold."""
        if not says_what_it_asks(asked.query) or (asked.project and not projects):
            return [], []
        query = SearchQuery(
            searched(asked.query),
            CANDIDATES,
            where=EpisodeFilter(projects=projects),
            track=False,
            explain=True,
            profile=PROFILES["context"],
            include_private=self._inside(asked, projects),
            sentences=asked.max_tokens // (QUOTE_TOKENS + AROUND_QUOTE) + SPARE_QUOTES,
        )
        hits = list(self._engine.search(query).hits)
        if projects:  # by full name: a search also matches name endings
            hits = [hit for hit in hits if hit.episode.project in projects]
        return hits, telling(hits, is_stranger=bool(asked.cwd) and not projects)

    def _skills(self, asked: ContextRequest, projects: tuple[str, ...]) -> Skills:
        """Return the lessons and procedures for a prompt."""
        if asked.project and not projects:
            return Skills(reason=NONE_KNOWN)
        place = Place(projects, self._inside(asked, projects), is_stranger=bool(asked.cwd) and not projects)
        return skills_for(self._store, self._engine, asked.query, place)

    def _answering(self, asked: ContextRequest, hits: Sequence[Hit], skills: Skills) -> list[Section]:
        """Return the quotes of hits, and the lessons and procedures, which are not quoted besides."""
        items = [skill.item for skill in skills.found]
        quoted = {item.episode.episode_id for item in items}
        others = [hit for hit in hits if hit.episode.episode_id not in quoted]
        told = Section(SKILLS, items, SKILL_TOKENS, is_whole=True)
        return [self._quotes(asked, others, len(items)), *([told] if items else [])]

    def _quotes(self, asked: ContextRequest, hits: Sequence[Hit], beside: int) -> Section:
        """Return the quotes of hits: of each the sentences that answer best.

        :param beside: number of other items that the budget is for.
        """
        share = (asked.max_tokens - AROUND_QUOTES) // max(len(hits) + beside, 1) - AROUND_QUOTE  # fewer may be longer
        most = min(max(share, QUOTE_TOKENS), LONGEST_QUOTE_TOKENS)
        texts = list(dict.fromkeys(s.text for hit in hits for run in hit.runs for s in run))
        tokens = dict(zip(texts, counted_tokens(texts, self._pieces), strict=True))
        parts = self._parts(hit.episode for hit in hits)
        short = short_ids(self._store, (hit.episode.episode_id for hit in hits))
        items = [_item(hit, parts, best_run(hit.runs, most, tokens.__getitem__)) for hit in hits]
        return Section("", [replace(item, short_id=short[item.episode.episode_id]) for item in items], most)

    def _unseen(
        self, sections: Sequence[Section], session_id: str, memory: SessionMemory, skipped: Counter[str]
    ) -> list[Section]:
        """Return the sections without what the session knows: items shown to it, near-duplicates of these, and what it
        said itself since its context was emptied.
        """
        known = {shown.episode_id for shown in memory.shown}
        shown = memory.shown[-SAME_AMONG:]
        passages = self._store.episodes.passages([s.passage_id for s in shown if s.passage_id is not None])
        episodes = self._store.episodes.get([s.episode_id for s in shown if s.passage_id is None])
        texts = [p.passage.text for p in passages.values()] + [e.summary for e in episodes.values()]
        new = [
            [
                item
                for item in section.items
                if item.shown_as not in known and not _said_it(item.episode, session_id, memory)
            ]
            for section in sections
        ]
        groups = fold([(text,) for text in (*texts, *(item.text for items in new for item in items))])
        again = {number - len(texts) for group in groups for number in group[1:]}
        numbered = count()
        found = [
            replace(section, items=[item for item in items if next(numbered) not in again])
            for section, items in zip(sections, new, strict=True)
        ]
        skipped["shown"] += sum(len(section.items) for section in sections) - sum(len(s.items) for s in found)
        return found

    def _claimed(
        self,
        block: Block,
        out: list[Item],
        sections: Sequence[Section],
        asked: ContextRequest,
        words: Sequence[str],
        now: datetime,
        skipped: Counter[str],
        notice: str,
    ) -> tuple[Block, list[Item]]:
        """Return the block without items that another call showed the session in the meantime."""
        shown = [Shown(item.shown_as, item.passage_id) for item in block.items]
        mine = self._store.context.show(asked.session_id, shown, now)
        if mine == {item.episode_id for item in shown}:
            return block, out
        skipped["shown"] += len(shown) - len(mine)
        kept = [replace(s, items=[i for i in s.items if i.shown_as in mine]) for s in sections]
        return fitted(kept, asked.max_tokens, words, self._pieces, notice)[0], out

    def _parts(self, episodes: Iterable[Episode]) -> dict[str, Part]:
        return {part.part_id: part for part in self._store.forgetting.parts([e.episode_id for e in episodes])}


def _said_it(episode: Episode, session_id: str, memory: SessionMemory) -> bool:
    """Return whether an episode is of the session itself, and still in its context."""
    is_own = bool(session_id) and episode.session_id == session_id
    return is_own and (memory.restarted_at is None or episode.timestamp >= memory.restarted_at)


def _item(hit: Hit, parts: dict[str, Part], run: Run = ()) -> Item:
    sentences = [sentence.text for sentence in run]
    return passage_item(hit.episode, hit.passage, parts.get(hit.episode.episode_id), sentences)
