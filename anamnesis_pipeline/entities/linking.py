"""Find the things that sessions, notes and documents touch or name, where something changed. It works without an LLM.

What is the same is kept; a run that is killed goes on with the next.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from anamnesis_pipeline.entities.in_calls import bounded, mentions_of_session
from anamnesis_pipeline.entities.in_texts import things_of
from anamnesis_pipeline.knowledge.utterances import utterances_of
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import Mention, Relation

log = logging.getLogger(__name__)

RULES = 4
"""Number of the rules of `in_calls` and `in_texts`; raised when they change, so that everything is found again."""
RULE = "entities.rules"
"""Stored setting: the number of the rules by which what is stored was found."""
PAGE = 200


@dataclass(frozen=True, slots=True)
class Linked:
    """What one run read: sessions, notes and texts, and how many mentions are new. `waiting`: those left."""

    read: int = 0
    waiting: int = 0
    mentions: int = 0


def link(store: Store, sources: Collection[str] = ()) -> Linked:
    """Find the things in the sessions, notes and texts that changed.

    :param sources: keys; empty: all.
    """
    if store.settings.get(RULE) != RULES:
        store.entities.note_all()
        store.settings.set(RULE, RULES)
    read, new, after = 0, 0, ""
    while fresh := store.entities.unlinked(PAGE, sources, after):
        for each in fresh:
            try:
                found = mentions_of(store, each.origin)
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):  # one bad text stops no other
                log.exception(f"Nothing is found in {each.origin}: its text could not be read")
                found = []
            new += store.entities.settle(each, found)
        read, after = read + len(fresh), fresh[-1].origin
    return Linked(read, store.entities.unlinked_count(), new)


def mentions_of(store: Store, origin: str) -> list[Mention]:
    """Return the things in a session of a log, or in a note or text; none in one that is gone."""
    own = store.episodes.get([origin]).get(origin)
    return mentions_of_text(own) if own is not None else mentions_of_session(utterances_of(store, origin))


def mentions_of_text(episode: Episode) -> list[Mention]:
    """Return the things that a note or a section of a document names."""
    return bounded(
        Mention(
            kind,
            name,
            Relation.DEPENDS_ON if other else Relation.MENTIONED,
            episode.episode_id,
            episode.project,
            episode.session_id,
            at=episode.timestamp,
            other=other,
        )
        for kind, name, other in things_of(episode.raw_exchange or episode.summary)
    )
