"""Detector of notes that say the same."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from anamnesis_pipeline.knowledge.detecting import Memory
from anamnesis_pipeline.knowledge.statements import Claim, claim_of, conflicts
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

SAME = 0.8
"""Least cosine of two notes that say the same."""
SAME_WORDS = 0.75
"""Least share of their words without vectors."""


class DuplicateNotes:
    """Two notes of any origin that say the same: the newer stands for the older, and gets its tags."""

    kind = Kind.MERGE
    signals = (Signal.NOTE,)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each note that another one repeats."""
        for of in memory.holding(fresh):
            for near in memory.statements(of.project).near(of, [Signal.NOTE]):
                other = near.observation
                is_same = near.cosine >= SAME if near.cosine is not None else near.alike >= SAME_WORDS
                older, newer = sorted((of, other), key=lambda each: (str(each.at), each.number))
                one, two = claim_of(older.quote), claim_of(newer.quote)
                if (
                    not is_same
                    or _name_others(one, two)
                    or older.episode_id == newer.episode_id
                    or conflicts(one, two)
                    or set(one.numbers) != set(two.numbers)
                ):
                    continue
                tags = memory.episodes([older.episode_id])[older.episode_id].tags
                yield Proposal(
                    self.kind,
                    older.project,
                    f"merge {older.episode_id}",
                    f"Says the same: {newer.quote}"[:100],
                    Change(
                        (StatusEdit(older.episode_id, Status.SUPERSEDED, newer.episode_id),),
                        tags=((newer.episode_id, tags),) if tags else (),
                    ),
                    dated([Evidence(each.episode_id, each.quote, each.message_id, each.at) for each in (older, newer)]),
                    round(min(0.95, near.cosine or near.alike), 2),
                    "duplicate_notes",
                    memory.now,
                )


def _name_others(one: Claim, two: Claim) -> bool:
    """Return whether two sentences differ in one word each, and so speak of two things."""
    return len(one.stems - two.stems) == len(two.stems - one.stems) == 1 and len(one.stems & two.stems) > 1
