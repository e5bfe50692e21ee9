"""Dreaming: observe what came, and let each detector propose what follows from it. It works without an LLM.

The cost is that of what is new: what was observed is kept, and each detector goes on where it ended. A detector that
fails stops no other. A run that is killed goes on with the next; what it proposed twice is stored once.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.knowledge import observing
from anamnesis_pipeline.knowledge.conflicts import Contradictions, Doubts, SupersededNotes
from anamnesis_pipeline.knowledge.detecting import Detector, Memory
from anamnesis_pipeline.knowledge.duplicates import DuplicateNotes
from anamnesis_pipeline.knowledge.promotions import Promotions, RepeatedCorrections, StaleTopics
from anamnesis_pipeline.knowledge.repetitions import RepeatedErrors, RepeatedSteps
from anamnesis_pipeline.knowledge.utterances import utterances_of
from anamnesis_pipeline.model import RECORD_KIND, RESERVED_SOURCES, Episode
from anamnesis_pipeline.search.trust import Authority, authority_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Observation
from anamnesis_pipeline.store.records.observations import Unobserved
from anamnesis_pipeline.store.records.proposals import Proposed

log = logging.getLogger(__name__)

RULE = "dream.rules"
"""Stored setting: the number of the rules of what is stored as observed."""
CURSOR = "dream.cursor."
"""Settings prefix, then the name of a detector -> the number of the last observation that it has seen."""
LAST_RUN = "dream.last_run"
"""Stored setting: statistics of the last run."""
PAGE = 500

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
)


@dataclass(frozen=True, slots=True)
class DreamReport:
    """What a run did. `observed`: sessions, notes and texts; `waiting`: those left. `problems`: detector -> why it
    failed.
    """

    observed: int = 0
    waiting: int = 0
    observations: int = 0
    proposed: dict[str, Proposed] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    started_at: str = ""
    seconds: float = 0.0


def dream(
    store: Store, now: datetime, embedder: Embedder | None = None, detectors: Sequence[Detector] = DETECTORS
) -> DreamReport:
    """Observe all that changed since the last run, then run the detectors.

    :param embedder: compares meanings; None: words alone are compared.
    """
    started = datetime.now(UTC)
    report = observe(store)
    proposed, problems = dict[str, Proposed](), dict[str, str]()
    for detector in detectors:
        try:
            proposed[name_of(detector)] = detect(store, detector, now, embedder)
        except AnamnesisError as exc:
            log.warning(f"Detector {name_of(detector)} failed; the next run goes on: {exc}")
            problems[name_of(detector)] = str(exc)
    seconds = round((datetime.now(UTC) - started).total_seconds(), 3)
    return replace(report, proposed=proposed, problems=problems, started_at=started.isoformat(), seconds=seconds)


def stats_of(report: DreamReport) -> dict[str, Any]:
    """Return the report as stored and shown."""
    return {**asdict(report), "proposed": {name: asdict(each) for name, each in report.proposed.items()}}


def name_of(detector: Detector) -> str:
    """Return the name of a detector, as proposals and settings have it."""
    return type(detector).__name__


def observe(store: Store) -> DreamReport:
    """Observe the sessions, notes and texts that changed."""
    if store.settings.get(RULE) != observing.RULES:
        store.observations.note_all()
        store.settings.set(RULE, observing.RULES)
    seen, new, done = 0, 0, set[str]()
    while fresh := [each for each in store.observations.unobserved(PAGE) if each.origin not in done]:
        for each in fresh:
            new += store.observations.settle(each, observations_of(store, each))
        done |= {each.origin for each in fresh}
        seen += len(fresh)
    return DreamReport(seen, store.observations.unobserved_count(), new)


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


def detect(store: Store, detector: Detector, now: datetime, embedder: Embedder | None = None) -> Proposed:
    """Let a detector look at what was observed since it last did."""
    cursor = CURSOR + name_of(detector)
    memory, total = Memory(store, now, embedder), Proposed()
    after = int(store.settings.get(cursor) or 0)
    for fresh in _fresh(store, detector, after):
        for proposal in detector.find(memory, fresh):
            total += store.proposals.propose(proposal)
        store.settings.set(cursor, fresh[-1].number)
    return total


def _fresh(store: Store, detector: Detector, after: int) -> Iterator[list[Observation]]:
    while fresh := store.observations.after(detector.signals, after, PAGE):
        yield fresh
        after = fresh[-1].number
