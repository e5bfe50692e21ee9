"""Lessons and procedures that a prompt calls for: at most three, or the reason why there is none.

Whether it calls for any is what the recall gate says of the nearest of them; the order is that of the search.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from anamnesis_pipeline.knowledge.topic_files import LESSONS, read_topic
from anamnesis_pipeline.knowledge.what_holds import EVERYWHERE, TOPIC
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS
from anamnesis_pipeline.search.context_items import Item, class_of, kind_of
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.profiles import PROFILES
from anamnesis_pipeline.search.query import Hit, SearchQuery
from anamnesis_pipeline.search.telling import says_what_it_asks, searched, stage_of, telling
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.services.short_ids import short_ids
from anamnesis_pipeline.store.base import Store

MAX_SKILLS = 3
CANDIDATES = 12
"""Hits considered of each search: sections of topics among them are no lessons."""
LOOKED_AT = 200
"""Episodes among which a lesson or procedure is looked for, to say whether any is known; the newest."""
LESSON, PROCEDURE = "lesson", "procedure"
BESIDE_BEST = 0.7
"""Least share of the best one's certainty: of 48 made prompts it leaves the one meant, and half of the others."""
WORDS_SHOWN = 5
"""Words that a prompt shares with a lesson or procedure, in its reason."""
_POSTED = EpisodeFilter(kinds=(LESSON, PROCEDURE, "record"), types=(LESSON, PROCEDURE))
_WRITTEN = EpisodeFilter(kinds=("document",), tags=(TOPIC,))

TOO_SHORT = "the prompt is too short to say what it is about"
NONE_KNOWN = "no lesson and no procedure is known"
NOT_NEAR = "nothing known is near enough"


@dataclass(frozen=True, slots=True)
class Skill:
    """A lesson or procedure. `item` quotes it whole; `confidence` in [0, 1] that it applies; `why` names the words that
    it shares with the prompt.
    """

    item: Item
    confidence: float
    why: str


@dataclass(frozen=True, slots=True)
class Skills:
    """At most three, the most certain first. `reason`: why there is none; empty: there are some."""

    found: tuple[Skill, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a prompt is asked. `projects`: their stored names; none: in all that are not private. `inside`: the private
    projects and sources around it. `is_stranger`: nothing is stored of its folder.
    """

    projects: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    is_stranger: bool = False


def skills_for(store: Store, engine: Engine, prompt: str, place: Place, most: int = MAX_SKILLS) -> Skills:
    """Return the lessons and procedures that a prompt calls for, of its projects and of those that hold everywhere.

    :param most: maximum number, 1 to `MAX_SKILLS`.
    """
    if not says_what_it_asks(prompt):
        return Skills(reason=TOO_SHORT)
    projects = (*place.projects, EVERYWHERE) if place.projects else ()
    private, is_known = engine.private(), False

    def is_shown(episode: Episode) -> bool:
        is_own = not projects or episode.project in place.projects  # by full name
        return _is_skill(episode) and (is_own or (episode.project == EVERYWHERE and not private.holds(episode)))

    found, problems = list[tuple[float, Hit]](), list[str]()
    for where in (replace(_POSTED, projects=projects), replace(_WRITTEN, projects=projects)):
        stored = store.episodes.page(engine.visible(where, place.inside), LOOKED_AT).items
        if not stored:
            continue
        is_known = is_known or any(map(is_shown, stored))
        query = SearchQuery(
            searched(prompt),
            CANDIDATES,
            where=where,
            track=False,
            explain=True,
            profile=PROFILES["context"],
            include_private=place.inside,
        )
        answer = engine.search(query)
        problems += answer.degraded
        clear = telling([hit for hit in answer.hits if is_shown(hit.episode)], is_stranger=place.is_stranger)
        found += [(_certainty(hit), hit) for hit in clear]
    if not found:
        return Skills(reason="; ".join([NOT_NEAR if is_known else NONE_KNOWN, *problems[:1]]))
    ordered = sorted(found, key=lambda each: -each[0])
    chosen = [each for each in ordered if each[0] >= BESIDE_BEST * ordered[0][0]][:most]
    short = short_ids(store, [hit.episode.episode_id for _, hit in chosen])
    asked = content_words(prompt)
    return Skills(tuple(_skill(hit, certainty, asked, short[hit.episode.episode_id]) for certainty, hit in chosen))


def _is_skill(episode: Episode) -> bool:
    """Return whether an episode is no section of another topic."""
    return episode.kind != "document" or PurePosixPath(episode.path.replace("\\", "/")).stem == LESSONS


def _certainty(hit: Hit) -> float:
    """Return the probability that anything answers, times the hit's score beside the best one's."""
    sure = stage_of(hit, "confidence") or 0.0
    return hit.score / (1 + math.exp(-sure))


def _skill(hit: Hit, certainty: float, asked: Sequence[str], short_id: str) -> Skill:
    episode = hit.episode
    is_written = episode.kind == "document"
    text = _lesson_at(hit, asked) if is_written else episode.raw_exchange or episode.summary
    called = LESSON if is_written else kind_of(episode)
    shared = [word for word in dict.fromkeys(map(str.lower, asked)) if word in _words(text)][:WORDS_SHOWN]
    why = f"it says {', '.join(shared)}" if shared else "its meaning is near"
    item = Item(episode, text, class_of(episode), short_id=short_id, called=called, is_entry=is_written)
    return Skill(item, round(certainty, 2), why)


def _lesson_at(hit: Hit, asked: Collection[str]) -> str:
    """Return the entry of a file that a passage is of. A passage of several, as files had that were read before entries
    had their own: the one with most words of the prompt.
    """
    passage = _flat(hit.passage.passage.text)
    entries = [entry.text for entry in read_topic(hit.episode.raw_exchange).entries]
    its = [entry for entry in entries if passage in _flat(entry) or _flat(entry) in passage]
    wanted = {word.lower() for word in asked}
    return max(its, key=lambda entry: len(wanted & _words(entry)), default=hit.passage.passage.text)


def _words(text: str) -> set[str]:
    return {word.lower() for word in content_words(text)} - STOP_WORDS


def _flat(text: str) -> str:
    """Return the text on one line, without the markers of lists."""
    return " ".join(line.strip().lstrip("-*+ ") for line in text.splitlines() if line.strip())
