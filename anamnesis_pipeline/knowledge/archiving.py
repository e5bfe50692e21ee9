"""Detector of notes that are no longer needed."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from anamnesis_pipeline.knowledge.detecting import Memory, headline
from anamnesis_pipeline.model import Status
from anamnesis_pipeline.search.retention import is_archivable
from anamnesis_pipeline.store.knowledge_model import Change, Evidence, Kind, Observation, Proposal, Signal, StatusEdit

LOOKS_BACK = timedelta(days=190)
"""Age at which a note is hardly retained, even if it was shown twice."""


class UnneededNotes:
    """An old note of little value that was hardly ever shown, and is not pinned: it is hidden, not deleted."""

    kind = Kind.ARCHIVE
    signals = (Signal.NOTE,)
    looks_back: timedelta | None = LOOKS_BACK

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each."""
        heads = memory.episodes({each.episode_id for each in fresh})
        for of in memory.holding(fresh):
            head = heads[of.episode_id]
            if is_archivable(head, memory.now):
                yield Proposal(
                    self.kind,
                    of.project,
                    f"archive {of.episode_id}",
                    headline(f"Not needed since {head.timestamp:%Y-%m-%d}: {of.quote}"),
                    Change((StatusEdit(of.episode_id, Status.ARCHIVED),)),
                    (Evidence(of.episode_id, of.quote, of.message_id, of.at),),
                    0.9,
                    "unneeded_notes",
                    memory.now,
                )
