"""A briefing on a question: what is known of it within a budget, what it is mostly about, what to ask next, and what it
lacks; two questions compared; hints; and what was used most lately. No LLM is asked.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_args

from typing_extensions import TypedDict

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import HOLDING, RECORD_KIND, Episode, EpisodeFilter, Status
from anamnesis_pipeline.parsing.text.plain_text import shortened
from anamnesis_pipeline.parsing.text.titles import title_of
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.search.best_sentences import excerpt_of
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.floor import Confidence
from anamnesis_pipeline.search.query import Hit, SearchAnswer, SearchQuery
from anamnesis_pipeline.search.token_estimate import cost, cut
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.schemas import TypeName
from anamnesis_pipeline.services.session_reading import SessionRow, find_session
from anamnesis_pipeline.services.short_ids import short_ids
from anamnesis_pipeline.store.base import Store

LOOKED_AT = 30
"""Hits that a briefing counts; as many as its budget allows are shown."""
NEAREST = 3
"""Hits that are shown where nothing answers well."""
SUBJECT_WORDS = 4
"""Words of the question that a follow-up repeats."""
MEMORY_TOKENS = 160
"""Max tokens of one memory's text."""
COMPARED = 8
MAX_DOMINANT, MAX_TERMS, MAX_FOLLOW_UPS = 5, 8, 6
MAX_CANDIDATES = 40
"""Recurring words that are checked for rarity, those of the most hits."""
RARE_PASSAGES = 60
"""A term is rare if at most so many passages that pass the filters have it."""
MIN_TERM_CHARS = 4
FOLLOW_UP_CHARS = 120
HINT_CHARS = 60
OLD = timedelta(days=90)
STATED = frozenset(get_args(TypeName)) - {"note"}


@dataclass(frozen=True, slots=True)
class BriefRequest:
    """A question, what narrows it, and the most tokens of the memories shown."""

    query: str
    project: str | None = None
    max_tokens: int = 800
    include_private: tuple[str, ...] = ()

    def question(self, top_k: int) -> SearchQuery:
        """The same for the engine; it counts no retrieval."""
        where = EpisodeFilter(projects=(self.project,) if self.project else ())
        return SearchQuery(
            self.query, top_k=top_k, where=where, track=False, weak=True, include_private=self.include_private
        )


class MemoryOut(TypedDict):
    """A key memory: its best passage, cut to fit."""

    episode_id: str
    title: str
    timestamp: str
    project: str
    kind: str
    layer: str
    status: str
    confidence: str
    text: str


class ShareOut(TypedDict):
    """A value, and the number of hits that have it."""

    value: str
    episodes: int


class BriefSessionOut(TypedDict):
    """A session of several hits."""

    session_id: str
    title: str
    episodes: int


class TermOut(TypedDict):
    """A rare word that recurs: in `episodes` of the hits, and in `passages` of all that pass the filters."""

    term: str
    episodes: int
    passages: int


class BriefOut(TypedDict):
    """A briefing on `looked_at` hits that answer; 0: none does, and the memories are the nearest. `memories`, best
    first, have `total_tokens` together. `lacks`: what it cannot say, in words. `follow_ups`: what to ask next: the
    subject with a term, its outcome, and what its sessions left open.
    """

    query: str
    looked_at: int
    total_tokens: int
    memories: list[MemoryOut]
    projects: list[ShareOut]
    sessions: list[BriefSessionOut]
    types: list[ShareOut]
    layers: list[ShareOut]
    terms: list[TermOut]
    follow_ups: list[str]
    lacks: list[str]


def brief_body(store: Store, engine: Engine, wanted: BriefRequest, now: datetime) -> BriefOut:
    """Return the briefing.

    :raises EmbeddingQueueFull: this machine is overloaded.
    """
    answer = engine.search(wanted.question(LOOKED_AT))
    hits = [hit for hit in answer.hits if hit.confidence is not Confidence.WEAK]
    where = engine.visible(wanted.question(1).where, wanted.include_private)
    memories = _within(hits or answer.hits[:NEAREST], wanted.max_tokens)
    unknown = store.text.unknown(content_words(wanted.query))
    terms = _terms(store, where, wanted.query, hits)
    sessions = _sessions(store, engine.visible(EpisodeFilter(), wanted.include_private), hits)
    return {
        "query": wanted.query,
        "looked_at": len(hits),
        "total_tokens": sum(cost(each["title"]) + cost(each["text"]) for each in memories),
        "memories": memories,
        "projects": _shares(hit.episode.project for hit in hits),
        "sessions": [
            {"session_id": row.session_id, "title": row.title, "episodes": number} for row, number in sessions
        ],
        "types": _shares(filter(None, (type_of(hit.episode) for hit in hits))),
        "layers": _shares(hit.layer.value for hit in hits),
        "terms": terms,
        "follow_ups": _follow_ups(wanted.query, unknown, terms, [row for row, _ in sessions]) if hits else [],
        "lacks": _lacks(answer, hits, unknown, len(memories), wanted.max_tokens, now),
    }


def type_of(episode: Episode) -> str:
    """Return what an episode states, e.g. `decision`; empty: nothing that is named. Pure."""
    stated = episode.metadata.get("type") if episode.kind == RECORD_KIND else episode.kind
    return stated if isinstance(stated, str) and stated in STATED else ""


def _within(hits: Sequence[Hit], most: int) -> list[MemoryOut]:
    """Return the first hits, as many as fit."""
    memories: list[MemoryOut] = []
    left = most
    for hit in hits:
        episode, title = hit.episode, title_of(hit.episode)
        text = cut(" ".join(excerpt_of(hit.passages)[0].split()), min(MEMORY_TOKENS, max(0, left - cost(title))))
        left -= cost(title) + cost(text)
        if left < 0 or len(text) < 2:
            break
        memories.append(
            {
                "episode_id": episode.episode_id,
                "title": title,
                "timestamp": utc_text(episode.timestamp),
                "project": episode.project,
                "kind": episode.kind,
                "layer": hit.layer.value,
                "status": episode.status,
                "confidence": hit.confidence.value,
                "text": text,
            }
        )
    return memories


def _shares(values: Iterable[str]) -> list[ShareOut]:
    return [{"value": value, "episodes": number} for value, number in Counter(values).most_common(MAX_DOMINANT)]


def _terms(store: Store, where: EpisodeFilter, query: str, hits: Sequence[Hit]) -> list[TermOut]:
    """Return rare words of several hits that the question does not name."""
    asked = content_words(query)
    recurring: Counter[str] = Counter()
    for hit in hits:
        words = set(content_words(f"{hit.episode.summary} {' '.join(p.passage.text for p in hit.passages)}"))
        recurring.update(
            word
            for word in words
            if len(word) >= MIN_TERM_CHARS
            and not word.isdigit()
            and not any(word.startswith(each) or each.startswith(word) for each in asked)
        )
    least = max(2, len(hits) // 4)
    candidates = [word for word, number in recurring.most_common() if number >= least][:MAX_CANDIDATES]
    held = store.text.held_by_few(candidates, RARE_PASSAGES, where) if candidates else []
    found = [
        (word, recurring[word], len(passages)) for word, passages in zip(candidates, held, strict=True) if passages
    ]
    found.sort(key=lambda each: (-each[1] / each[2], each[0]))  # those of the hits rather than of everything
    return [{"term": word, "episodes": number, "passages": all_} for word, number, all_ in found[:MAX_TERMS]]


def _sessions(store: Store, where: EpisodeFilter, hits: Sequence[Hit]) -> list[tuple[SessionRow, int]]:
    """Return the sessions of the most hits."""
    counts = Counter(hit.episode.session_id for hit in hits if hit.episode.session_id)
    found: dict[str, tuple[SessionRow, int]] = {}
    for session_id, number in counts.most_common(MAX_DOMINANT):
        with suppress(AnamnesisError):  # posted notes may name a session of which nothing is stored
            row = find_session(store, session_id, where)
            found[row.session_id] = (row, number + found.get(row.session_id, (row, 0))[1])
    return list(found.values())


def _follow_ups(
    query: str, unknown: Sequence[str], terms: Sequence[TermOut], sessions: Sequence[SessionRow]
) -> list[str]:
    """Return what to ask next, each once: the subject with a term, its outcome, and what its sessions left open."""
    subject = " ".join([word for word in content_words(query) if word not in unknown][:SUBJECT_WORDS])
    said = [
        *(f"{subject} {each['term']}" for each in terms[:3]),
        f"what was decided in the end: {subject}",
        *(item for row in sessions for item in row.open_items[:1]),
    ]
    whole = (shortened(" ".join(each.split()), FOLLOW_UP_CHARS) for each in said)
    return list(dict.fromkeys(filter(None, whole)))[:MAX_FOLLOW_UPS]


def _lacks(
    answer: SearchAnswer, hits: Sequence[Hit], unknown: Sequence[str], told: int, max_tokens: int, now: datetime
) -> list[str]:
    lacks = list(answer.degraded)
    if unknown:
        lacks.append(f"No text has: {', '.join(unknown)}.")
    if not hits:
        first = "Nothing answers this well; these are the nearest." if answer.hits else "Nothing stored answers this."
        return [first, *lacks]
    if told < len(hits):
        lacks.append(f"{counted(len(hits) - told, 'more hit')} did not fit into {counted(max_tokens, 'token')}.")
    if not any(type_of(hit.episode) for hit in hits):
        lacks.append("No decision, fact, lesson or preference states anything of it; these are passages of sessions.")
    if (newest := max(hit.episode.timestamp for hit in hits)) < now - OLD:
        lacks.append(f"The newest of it is of {newest:%Y-%m-%d}.")
    if doubted := sum(hit.episode.status == Status.CHALLENGED for hit in hits):
        lacks.append(f"{counted(doubted, 'hit')} of it {'is' if doubted == 1 else 'are'} challenged.")
    return lacks


# --- two questions, and hints ----------------------------------------------------------------------------


class NamedOut(TypedDict):
    """An episode, to be recognized by."""

    episode_id: str
    title: str
    timestamp: str
    project: str


class ComparedOut(TypedDict):
    """What the first hits of two questions have in common, and what each finds alone."""

    a: str
    b: str
    both: list[NamedOut]
    only_a: list[NamedOut]
    only_b: list[NamedOut]


def compared_body(engine: Engine, a: BriefRequest, b: BriefRequest) -> ComparedOut:
    """Compare the first hits of two questions; what both find comes in the order of the first.

    :raises EmbeddingQueueFull: this machine is overloaded.
    """
    found = [{hit.episode.episode_id: hit for hit in engine.search(each.question(COMPARED)).hits} for each in (a, b)]
    first, second = found
    return {
        "a": a.query,
        "b": b.query,
        "both": [_named(hit.episode) for name, hit in first.items() if name in second],
        "only_a": [_named(hit.episode) for name, hit in first.items() if name not in second],
        "only_b": [_named(hit.episode) for name, hit in second.items() if name not in first],
    }


def _named(episode: Episode) -> NamedOut:
    return {
        "episode_id": episode.episode_id,
        "title": title_of(episode),
        "timestamp": utc_text(episode.timestamp),
        "project": episode.project,
    }


class HintOut(TypedDict):
    """What an episode is about, in at most 60 characters, and the ids that read it."""

    episode_id: str
    short_id: str
    hint: str


class HintsOut(TypedDict):
    """Hints, best first. `weak`: nothing answers well."""

    hints: list[HintOut]
    weak: bool


def hints_body(store: Store, engine: Engine, wanted: BriefRequest, top_k: int) -> HintsOut:
    """Return the hits of a question, each in a few words.

    :raises EmbeddingQueueFull: this machine is overloaded.
    """
    answer = engine.search(wanted.question(top_k))
    short = short_ids(store, (hit.episode.episode_id for hit in answer.hits))
    return {
        "hints": [
            {
                "episode_id": hit.episode.episode_id,
                "short_id": short[hit.episode.episode_id],
                "hint": shortened(title_of(hit.episode), HINT_CHARS),
            }
            for hit in answer.hits
        ],
        "weak": answer.weak,
    }


# --- what was used lately --------------------------------------------------------------------------------


class HotOut(NamedOut):
    """`queries`: searches that found it and were noted; `reads`: how often it was opened, cited, or the only answer."""

    queries: int
    reads: int


class HotProjectOut(TypedDict):
    """Queries and reads of a project's episodes."""

    project: str
    uses: int


class HotspotsOut(TypedDict):
    """What was used most since a time."""

    since: str
    episodes: list[HotOut]
    projects: list[HotProjectOut]


def hotspots_body(store: Store, engine: Engine, since: datetime, limit: int) -> HotspotsOut:
    """Return the current episodes that were found or read most often since a time, and their projects; nothing
    private. Queries are noted for 90 days and events for some 10,000 operations; older ones do not count.
    """
    queries, reads = store.queries.found_since(since), store.events.reads_since(since)
    uses = Counter(queries) + Counter(reads)
    heads, private = store.episodes.heads(list(uses)), engine.private()
    shown = {name: head for name, head in heads.items() if head.status in HOLDING and not private.holds(head)}
    first = sorted(shown, key=lambda name: (-uses[name], name))[:limit]
    episodes = store.episodes.get(first)
    projects: Counter[str] = Counter()
    for name, head in shown.items():
        projects[head.project] += uses[name]
    return {
        "since": utc_text(since),
        "episodes": [
            {**_named(episodes[name]), "queries": queries.get(name, 0), "reads": reads.get(name, 0)}
            for name in first
            if name in episodes
        ],
        "projects": [{"project": project, "uses": number} for project, number in projects.most_common(limit)],
    }
