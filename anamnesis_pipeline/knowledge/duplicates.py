"""Detector of notes that say the same."""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import combinations

from anamnesis_pipeline.knowledge.detecting import Memory, Near, headline
from anamnesis_pipeline.knowledge.statements import Claim, claim_of, conflicts, differ_in_value, shared_names
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
"""Least cosine of two notes that say the same, with a few words in common."""
MEANT, TOGETHER = 0.72, 1.2
"""The same where they share many words: least cosine, and least sum of both."""
FEW_WORDS = 0.3
REORDERED = 3
"""Least common words of two sentences that say the same in another order, with another word each."""
_LABEL = re.compile(r"([^:]{3,40}):\s")
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
                older, newer = sorted((of, other), key=lambda each: (str(each.at), each.number))
                one, two = claim_of(older.quote), claim_of(newer.quote)
                if (
                    not _says_same(one, two, near)
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
                    headline(f"Says the same: {newer.quote}"),
                    Change(
                        (StatusEdit(older.episode_id, Status.SUPERSEDED, newer.episode_id),),
                        tags=((newer.episode_id, tags),) if tags else (),
                    ),
                    dated([Evidence(each.episode_id, each.quote, each.message_id, each.at) for each in (older, newer)]),
                    round(min(0.95, near.cosine or near.alike), 2),
                    "duplicate_notes",
                    memory.now,
                )


def _says_same(one: Claim, two: Claim, near: Near) -> bool:
    if near.cosine is None:
        return near.alike >= SAME_WORDS
    is_near = near.cosine >= SAME and (near.alike >= FEW_WORDS or len(shared_names(one, two)) > 0)
    return is_near or (near.cosine >= MEANT and near.cosine + near.alike >= TOGETHER)


def _name_others(one: Claim, two: Claim) -> bool:
    """Return whether two sentences differ in one word at the same place, in a value, in what a label in front names, in
    who does what where, or in a `not` alone, and so speak of two things.
    """
    common = one.stems & two.stems
    masked = [[stem if stem in common else "" for stem in claim.said] for claim in (one, two)]
    is_other_word = len(one.stems - common) == len(two.stems - common) == 1 and len(common) > 0
    if is_other_word and (len(common) < REORDERED or masked[0] == masked[1]):
        return True
    labels = [claim_of(found[1]) for claim in (one, two) if (found := _LABEL.match(claim.text))]
    if differ_in_value(one, two) or (len(labels) == 2 and not _names_same(*labels)):
        return True
    return one.stems == two.stems and (one.is_negative != two.is_negative or _is_turned(one, two))


def _names_same(label: Claim, other: Claim) -> bool:
    is_part = label.stems <= other.stems or other.stems <= label.stems
    return is_part and label.values == other.values


def _is_turned(one: Claim, two: Claim) -> bool:
    """Return whether two things change their places, as in `from A to B` and `from B to A`."""
    before, after = ({"who": next(iter(claim.said), ""), **claim.places} for claim in (one, two))
    pairs = ((a, b) for a, b in combinations(before, 2) if {a, b} <= after.keys() and before[a] != before[b])
    return any(before[a] == after[b] and before[b] == after[a] for a, b in pairs)
