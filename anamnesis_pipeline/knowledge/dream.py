"""Observe what came, as every ingest does, and dream: let each detector propose what follows from it. No LLM is asked.

The cost is that of what is new: what was observed is kept, and each detector goes on where it ended. A detector that
fails stops no other. A run that is killed goes on with the next; what it proposed twice is stored once.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.knowledge import observing
from anamnesis_pipeline.knowledge.archiving import UnneededNotes
from anamnesis_pipeline.knowledge.conflicts import Contradictions, Doubts, SupersededNotes
from anamnesis_pipeline.knowledge.detecting import Detector, Memory
from anamnesis_pipeline.knowledge.drifting import DriftedTexts
from anamnesis_pipeline.knowledge.duplicates import DuplicateNotes
from anamnesis_pipeline.knowledge.promotions import Promotions, RepeatedCorrections, StaleTopics
from anamnesis_pipeline.knowledge.repetitions import RepeatedErrors, RepeatedSteps
from anamnesis_pipeline.knowledge.utterances import utterances_of
from anamnesis_pipeline.model import RECORD_KIND, RESERVED_SOURCES, Episode
from anamnesis_pipeline.search.trust import Authority, authority_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Observation, Proposal
from anamnesis_pipeline.store.records.observations import Unobserved
from anamnesis_pipeline.store.values import instant

log = logging.getLogger(__name__)

RULE = "dream.rules"
"""Stored setting: the number of the rules of what is stored as observed."""
CURSOR = "dream.cursor."
"""Settings prefix, then the name of a detector -> the number of the last observation that it has seen."""
BACK = ".looked_back"
"""Behind the name of a detector: instant and number of the last observation to which it looked back."""
FAILED = "dream.failed"
"""Stored setting: session, note or text that could not be read -> how often it had changed, and how often it was tried
since then."""
MAX_TRIES = 3
PAGE = 500
DETECTED_AT_ONCE = 5_000
"""Observations of a project that a detector looks at."""

DETECTORS: tuple[Detector, ...] = (
    DuplicateNotes(),
    SupersededNotes(),
    Contradictions(),
    Doubts(),
    RepeatedErrors(),
    RepeatedCorrections(),
    RepeatedSteps(),
    Promotions(),
    StaleTopics(),
    UnneededNotes(),
    DriftedTexts(),
)


@dataclass(frozen=True, slots=True)
class Observed:
    """What one run observed: sessions, notes and texts, and how many observations are new. `waiting`: those left."""

    observed: int = 0
    waiting: int = 0
    observations: int = 0
    unread: tuple[str, ...] = ()
    """Those whose text could not be read."""


def name_of(detector: Detector) -> str:
    """Return the name of a detector, as proposals and settings have it."""
    return type(detector).__name__


def observe(store: Store, sources: Collection[str] = ()) -> Observed:
    """Observe the sessions, notes and texts that changed. One that cannot be read stays to be observed for some runs
    over all sources, and then until it changes again.

    :param sources: keys; empty: all.
    """
    if store.settings.get(RULE) != observing.RULES:
        store.observations.note_all()
        store.settings.set(RULE, observing.RULES)
    tried, failed = store.settings.get(FAILED) or {}, dict[str, tuple[int, int]]()
    seen, new, last, unread = 0, 0, "", list[str]()
    while fresh := store.observations.unobserved(PAGE, sources, last):
        silent = []
        for each in fresh:
            try:
                found = observations_of(store, each)
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):  # one bad text stops no other
                log.exception(f"Nothing is observed in {each.origin}: its text could not be read")
                unread.append(each.origin)
                if sources:
                    continue
                noted, times = tried.get(each.origin, (each.noted, 0))
                times = times + 1 if noted == each.noted else 1
                if times < MAX_TRIES:
                    failed[each.origin] = each.noted, times
                    continue
                found = []
            if found:
                new += store.observations.settle(each, found)
            else:
                silent.append(each)
        store.observations.settle_silent(silent)
        last = fresh[-1].origin
        seen += len(fresh)
    if (failed or tried) and not sources:
        store.settings.set(FAILED, failed or None)
    return Observed(seen, store.observations.unobserved_count(), new, tuple(unread))


def observations_of(store: Store, of: Unobserved) -> list[Observation]:
    """Return what is observed in a session, note or text; nothing in one that is gone."""
    own = store.episodes.get([of.origin]).get(of.origin)
    if own is None:
        return observing.observations_of_session(utterances_of(store, of.origin))
    if authority_of(own) is Authority.AUTHORITATIVE:
        return observing.observations_of_text(own)
    return observing.observations_of_note(own) if is_note(own) else []


def is_note(episode: Episode) -> bool:
    """Return whether an episode was posted, or drawn by an LLM, and so says one thing."""
    return episode.source == RESERVED_SOURCES[0] or episode.kind == RECORD_KIND


def has_work(store: Store, detector: Detector) -> bool:
    """Return whether there are observations that a detector has not seen."""
    return bool(store.observations.after(detector.signals, int(store.settings.get(CURSOR + name_of(detector)) or 0), 1))


def found_by(
    store: Store, detector: Detector, now: datetime, embedder: Embedder | None = None
) -> Iterator[list[Proposal]]:
    """Yield what a detector finds in what came since it last looked, and in what reached the age at which it looks
    back: project by project, since all statements of one are compared. It has looked once all of it is taken.
    """
    cursor = CURSOR + name_of(detector)
    memory, after = Memory(store, now, embedder), int(store.settings.get(cursor) or 0)
    newest, projects = store.observations.fresh(detector.signals, after)
    for project in projects:
        last = after
        while fresh := store.observations.of_project_after(detector.signals, project, last, newest, DETECTED_AT_ONCE):
            yield list(detector.find(memory, fresh))
            last = fresh[-1].number
    if projects:
        store.settings.set(cursor, newest)
    if detector.looks_back is None:
        return
    at, number = store.settings.get(cursor + BACK) or ("", 0)
    until = instant(now - detector.looks_back)
    while old := store.observations.between(detector.signals, (at, number), until, PAGE):
        yield list(detector.find(memory, sorted(old, key=lambda each: (each.project, each.number))))
        at, number = instant(old[-1].at or now), old[-1].number
        store.settings.set(cursor + BACK, [at, number])
