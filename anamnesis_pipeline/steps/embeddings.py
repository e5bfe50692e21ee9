"""What the asset `embeddings` does: vectors for passages that have none in a space."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.model import Space, StoredPassage, Variant
from anamnesis_pipeline.store.base import Store


@dataclass(frozen=True, slots=True)
class EmbedReport:
    """What one run embedded. `seconds` covers embedding and writing."""

    episodes: int
    passages: int
    vectors: int
    seconds: float

    @property
    def passages_per_s(self) -> float:
        """Passages a second, 0 when nothing was to do."""
        return self.passages / self.seconds if self.passages and self.seconds else 0.0


def embed_source(
    store: Store,
    space: Space,
    source: str,
    embedder: Embedder,
    checkpoint_every: int,
    on_checkpoint: Callable[[EmbedReport], None] = lambda report: None,
) -> EmbedReport:
    """Embed what a source lacks in a space, newest episodes first.

    Every `checkpoint_every` episodes the vectors are written: a killed run loses at most that many.
    """
    started = time.monotonic()
    report = EmbedReport(0, 0, 0, 0.0)
    while pending := store.vectors.pending(space.key, source, checkpoint_every):
        passages = [passage for episode in pending for passage in episode.passages]
        written = embed_passages(store, space, passages, embedder)
        elapsed = time.monotonic() - started
        report = EmbedReport(
            report.episodes + len(pending), report.passages + len(passages), report.vectors + written, elapsed
        )
        on_checkpoint(report)
        if not written:
            break  # every passage of the batch was deleted meanwhile; the next run looks again
    return report


def embed_passages(store: Store, space: Space, passages: Sequence[StoredPassage], embedder: Embedder) -> int:
    """Vectors of every variant of the space for these passages; returns rows written."""
    texts = {variant: [_text(stored, variant) for stored in passages] for variant in space.variants}
    distinct = list(dict.fromkeys(text for variant in space.variants for text in texts[variant]))
    vectors = embedder.embed(distinct, "passage")
    row_of = {text: row for row, text in enumerate(distinct)}
    ids = [stored.passage_id for stored in passages]
    return sum(
        store.vectors.put(space.key, variant, ids, vectors[[row_of[text] for text in texts[variant]]])
        for variant in space.variants
    )


def _text(stored: StoredPassage, variant: Variant) -> str:
    return stored.passage.text if variant is Variant.TEXT else stored.passage.with_context
