"""Implement the asset `embeddings`: compute vectors for passages that have none in a space."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.errors import DimensionMismatch, InvalidVectors, SpaceNotFound
from anamnesis_pipeline.model import Space, StoredPassage, Variant
from anamnesis_pipeline.pipeline.index import known_space
from anamnesis_pipeline.pipeline.reembed_state import clear_failure, noting_failure, record_rate
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import PendingEpisode

RATE_WINDOW_S = 60.0
MAX_LEFT = 100
"""Number of episodes without valid vectors after which a run gives up."""


@dataclass(frozen=True, slots=True)
class EmbedReport:
    """What was embedded so far. `seconds` covers embedding and writing.

    `passages_per_s`: over the last minute; 0 when nothing was pending. `checkpoint_s`: duration of the last checkpoint.
    `sources`: source -> passages embedded, if any. `paused`: the run was asked to end, and passages may be pending.
    """

    episodes: int = 0
    passages: int = 0
    vectors: int = 0
    seconds: float = 0.0
    passages_per_s: float = 0.0
    checkpoint_s: float = 0.0
    sources: Mapping[str, int] = field(default_factory=dict)
    paused: bool = False


@dataclass(slots=True)
class _Tally:
    """Counts of a run, its rate over the last minute, and the episodes skipped because their vectors are invalid."""

    started: float = field(default_factory=time.monotonic)
    episodes: int = 0
    passages: int = 0
    vectors: int = 0
    sources: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    pace: deque[tuple[float, int]] = field(default_factory=deque)
    left: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pace.append((self.started, 0))

    def add(self, batch: Sequence[PendingEpisode], vectors: int) -> None:
        """Count a written batch."""
        for episode in batch:
            self.episodes += 1
            self.passages += len(episode.passages)
            self.sources[episode.source] += len(episode.passages)
        self.vectors += vectors
        now = time.monotonic()
        self.pace.append((now, self.passages))
        while len(self.pace) > 2 and now - self.pace[0][0] > RATE_WINDOW_S:
            self.pace.popleft()

    def invalid(self, key: str) -> InvalidVectors:
        """Return the error that names the skipped episodes; there must be some."""
        first, problem = next(iter(self.left.items()))
        return InvalidVectors(f"episodes left without vectors in {key}: {len(self.left)}, first {first}: {problem}")

    def report(self, *, paused: bool = False) -> EmbedReport:
        """Return the report so far."""
        (first, before), (last, after) = self.pace[0], self.pace[-1]
        rate = (after - before) / (last - first) if last > first else 0.0
        checkpoint_s = round(last - self.pace[-2][0], 2) if len(self.pace) > 1 else 0.0
        return EmbedReport(
            self.episodes,
            self.passages,
            self.vectors,
            last - self.started,
            round(rate, 2),
            checkpoint_s,
            dict(self.sources),
            paused,
        )


def embed_sources(
    store: Store,
    space_key: str,
    sources: Sequence[str],
    embedder: Embedder,
    checkpoint_every: int,
    *,
    should_pause: Callable[[], bool] = lambda: False,
    on_checkpoint: Callable[[EmbedReport], None] = lambda report: None,
    before_checkpoint: Callable[[], None] = lambda: None,
) -> EmbedReport:
    """Embed the pending passages of these sources in a space, the newest episodes of all of them first.

    Vectors are written every `checkpoint_every` episodes: a killed run loses at most that many. A failure is recorded
    for later runs, and raised to the caller. Episodes with invalid vectors stay pending, and do not stop the others.

    :param should_pause: called before each checkpoint's work; True ends the run and leaves the rest pending.
    :param before_checkpoint: called before each checkpoint's work, to apply changes made in the meantime.
    :raises SpaceNotFound: the space was dropped, perhaps during the run.
    :raises InvalidVectors: vectors that are no numbers: raised at the end, when all valid ones are written, or once
        `MAX_LEFT` episodes have such.
    """
    with noting_failure(store, space_key):
        space = known_space(store, space_key)
        tally, previous = _Tally(), tuple[int, ...]()
        while not should_pause():
            before_checkpoint()
            batch = _next_batch(store, space, sources, checkpoint_every, tally)
            ids = tuple(passage.passage_id for episode in batch for passage in episode.passages)
            if not batch or ids == previous:  # their vectors were removed again; the next run retries
                if tally.left:
                    raise tally.invalid(space.key)
                return tally.report()
            previous = ids
            if _embed_checkpoint(store, space, batch, embedder, tally):
                report = tally.report()
                record_rate(store, space.key, report.passages_per_s, report.checkpoint_s)
                clear_failure(store, space.key)
                on_checkpoint(report)
        return tally.report(paused=True)


def _next_batch(
    store: Store, space: Space, sources: Sequence[str], episodes: int, tally: _Tally
) -> list[PendingEpisode]:
    found = store.vectors.pending(space.key, sources, episodes + len(tally.left))
    return [episode for episode in found if episode.episode_id not in tally.left][:episodes]


def _embed_checkpoint(
    store: Store, space: Space, batch: Sequence[PendingEpisode], embedder: Embedder, tally: _Tally
) -> bool:
    """Embed a checkpoint's episodes, one at a time where together they fail. Return whether any was written."""
    before = tally.episodes
    try:
        tally.add(batch, _embed_batch(store, space, batch, embedder))
    except InvalidVectors:
        for episode in batch:
            try:
                tally.add([episode], _embed_batch(store, space, [episode], embedder))
            except InvalidVectors as exc:
                tally.left[episode.episode_id] = str(exc)  # the error object would keep the vectors in memory
                if len(tally.left) >= MAX_LEFT:
                    raise tally.invalid(space.key) from exc
    return tally.episodes > before


def _embed_batch(store: Store, space: Space, batch: Sequence[PendingEpisode], embedder: Embedder) -> int:
    try:
        return embed_passages(store, space, [passage for episode in batch for passage in episode.passages], embedder)
    except SpaceNotFound as exc:
        raise SpaceNotFound(f"space {space.key} was dropped while it was being embedded; its vectors are gone") from exc


def embed_passages(store: Store, space: Space, passages: Sequence[StoredPassage], embedder: Embedder) -> int:
    """Write vectors of every variant of the space for these passages, and its token vectors, if any, in one pass.
    Return the number of vector rows written.

    :raises DimensionMismatch: the space has token vectors, and the embedder makes none.
    """
    wanted = space.variants
    if space.token_dims:
        wanted = tuple(dict.fromkeys((*wanted, space.token_variant, Variant.TEXT)))
    texts = {variant: [_text(stored, variant) for stored in passages] for variant in wanted}
    distinct = list(dict.fromkeys(text for variant in wanted for text in texts[variant]))
    made = embedder.embed_with_tokens(distinct, "passage")
    row_of = {text: row for row, text in enumerate(distinct)}
    ids = [stored.passage_id for stored in passages]
    of_variant = {variant: made.vectors[[row_of[text] for text in texts[variant]]] for variant in space.variants}
    tokens = None
    if space.token_dims:
        if made.tokens is None:
            raise DimensionMismatch(f"space {space.key} has token vectors, and {embedder.model_id} was opened without")
        own = [made.tokens[row_of[text]] for text in texts[Variant.TEXT]]
        read = [made.tokens[row_of[text]] for text in texts[space.token_variant]]
        tokens = [rows[-len(last) :].astype(np.int8, copy=False) for rows, last in zip(read, own, strict=True)]
    return store.vectors.put_all(space.key, ids, of_variant, tokens)


def _text(stored: StoredPassage, variant: Variant) -> str:
    return stored.passage.text if variant is Variant.TEXT else stored.passage.with_context
