"""Detectors of statements that cannot both hold: superseded notes, contradictions, and doubts about old ones."""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

from anamnesis_pipeline.knowledge.detecting import Memory, Near
from anamnesis_pipeline.knowledge.observing import CLAUDE
from anamnesis_pipeline.knowledge.statements import claim_of, conflicts
from anamnesis_pipeline.knowledge.wording import REASONS
from anamnesis_pipeline.model import Status
from anamnesis_pipeline.store.knowledge_model import (
    Change,
    Evidence,
    Kind,
    Observation,
    Proposal,
    Signal,
    StatusEdit,
    dated,
)

SHARED = 0.45
"""Least share of the shorter statement's words that both have."""
AKIN = 0.55
"""Least cosine of two statements on the same subject."""
TAKEN_UP = 0.35
"""Both, where the newer one wants what the older one turned down."""
OLD = timedelta(days=30)
"""Age from which on a statement is doubted when something newer speaks against it."""
TITLE_CHARS = 100
_REMOVES = re.compile(
    r"\b(?:remove|delete|drop|get rid|clean up|entferne|lösche|quita|borra|supprime)\b", re.IGNORECASE
)
"""A request to remove something states nothing of it."""
_SAID = (Signal.DECISION, Signal.PREFERENCE, Signal.FACT, Signal.CORRECTION, Signal.REQUEST)


class SupersededNotes:
    """A newer note, or decision with its reason, that says something else on the subject of an older one."""

    kind = Kind.SUPERSEDE
    signals = (Signal.NOTE, Signal.DECISION, Signal.FACT)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each older statement that a newer one corrects; either may be the new one here."""
        for of in memory.holding(fresh):
            for near in memory.statements(of.project).near(of, self.signals):
                older, newer = sorted((of, near.observation), key=lambda each: str(each.at))
                is_reasoned = newer.signal is not Signal.DECISION or newer.answer or REASONS.search(newer.quote)
                if CLAUDE in (older.key, newer.key) or not is_reasoned or older.episode_id == newer.episode_id:
                    continue
                if older.at != newer.at and (why := _conflict(older, newer, near)):
                    # of a session all else that was said still holds
                    status = Status.SUPERSEDED if older.signal is Signal.NOTE else Status.CHALLENGED
                    change = Change((StatusEdit(older.episode_id, status, newer.episode_id),))
                    yield _proposal(self.kind, older, newer, change, near, memory, "superseded_notes", why)


class Contradictions:
    """A session states the opposite of a topic, a decision or a preference, without saying why."""

    kind = Kind.CONTRADICTION
    signals = _SAID
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each older statement that a person contradicts."""
        for of in memory.holding(fresh):
            is_removal = of.signal is Signal.REQUEST and _REMOVES.search(of.quote) is not None
            if of.key == CLAUDE or of.answer or REASONS.search(of.quote) or is_removal:
                continue
            near = memory.statements(of.project).near(
                of, [Signal.TOPIC, Signal.NOTE, Signal.DECISION, Signal.PREFERENCE]
            )
            for each in near:
                older = each.observation
                is_before = older.at is not None and of.at is not None and older.at < of.at
                if not is_before or older.session_id == of.session_id != "" or older.key == CLAUDE:
                    continue
                if why := _conflict(older, of, each):
                    change = Change(
                        tuple(StatusEdit(name, Status.CHALLENGED) for name in sorted({older.episode_id, of.episode_id}))
                    )
                    yield _proposal(self.kind, older, of, change, each, memory, "contradictions", why)
                    break


class Doubts:
    """An old note that what was said or done later speaks against."""

    kind = Kind.DOUBT
    signals = (Signal.FACT, Signal.CHANGE, Signal.DECISION)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each old note."""
        for of in memory.holding(fresh):
            for near in memory.statements(of.project).near(of, [Signal.NOTE, Signal.TOPIC]):
                older = near.observation
                is_old = older.at is not None and of.at is not None and of.at - older.at >= OLD
                if is_old and (why := _conflict(older, of, near)):
                    change = Change((StatusEdit(older.episode_id, Status.CHALLENGED),))
                    yield _proposal(self.kind, older, of, change, near, memory, "doubts", why)
                    break


def _conflict(older: Observation, newer: Observation, near: Near) -> str:
    """Return why the newer one says something else on the same subject; empty: it does not."""
    why = conflicts(claim_of(older.quote), claim_of(newer.quote))
    shared, akin = (TAKEN_UP, TAKEN_UP) if why.startswith("takes up") else (SHARED, AKIN)
    is_akin = near.cosine is None or near.cosine >= akin
    return why if near.shared >= shared and is_akin else ""


def _proposal(
    kind: Kind, older: Observation, newer: Observation, change: Change, near: Near, memory: Memory, name: str, why: str
) -> Proposal:
    evidence = [Evidence(each.episode_id, each.quote, each.message_id, each.at) for each in (older, newer)]
    certain = near.shared if near.cosine is None else (near.shared + near.cosine) / 2
    return Proposal(
        kind,
        older.project,
        f"{kind} {older.episode_id} {older.quote}",
        f"{newer.quote} ({why})"[:TITLE_CHARS],
        change,
        dated(evidence),
        round(min(0.95, certain), 2),
        name,
        memory.now,
    )
