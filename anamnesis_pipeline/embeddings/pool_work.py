"""What waits for the workers of an embedding pool, and in which order it is done: queries first."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.embeddings.batching import length_sorted_batches
from anamnesis_pipeline.embeddings.precision import count_invalid, invalid_vectors
from anamnesis_pipeline.embeddings.token_vectors import Projection, Rows

QUERY_CHARS = 8_192
"""Queries that wait are done together up to this many characters, some 2,000 word pieces."""
QUERY_TOKENS = 2_048
"""Bound of padded tokens in one batch of queries."""
TEXTS_PER_PIECING = 32
"""Texts whose word pieces are made in one go: some 15 ms of a core, which a query may have to wait."""

Work = Callable[[], None]


class LoadedModel(Protocol):
    """What the pool needs of a model in memory. Several threads call it at once."""

    @property
    def precision(self) -> str:
        """The arithmetic it runs in, `bf16` or `fp32`."""

    @property
    def fidelity(self) -> float | None:
        """Lowest cosine measured between its vectors and those of fp32; None when it was not measured."""

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Word piece ids of each text, whole."""

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Unit vectors of one batch; a text longer than the model's window is embedded in windows."""

    def forward_with_tokens(
        self, batch: Sequence[Sequence[int]], projection: Projection | None
    ) -> tuple[NDArray[np.float32], list[Rows]]:
        """The same, and the projected unit vectors of each text's own pieces."""


@dataclass(frozen=True, slots=True)
class TokenWish:
    """How token vectors of a call are made. `finish` makes of a text's unit rows what the caller gets."""

    projection: Projection
    finish: Callable[[Rows], NDArray[np.int8] | NDArray[np.float32]]


class Call:
    """One call of the pool: its texts, and what is made of them once the last batch is done."""

    def __init__(
        self, model: LoadedModel, model_id: str, dim: int, texts: Sequence[str], wish: TokenWish | None = None
    ) -> None:
        """:param wish: how its token vectors are made; None: it wants none."""
        self.model = model
        self.texts = texts
        self.dim = dim
        self.wish = wish
        self.made: Future[Embedded] = Future()
        self.token_ids: list[list[int]] = [[] for _ in texts]
        self._model_id = model_id
        self._vectors = np.empty((len(texts), dim), dtype=np.float32)
        self._tokens: dict[int, NDArray[np.int8] | NDArray[np.float32]] = {}
        self._left = len(texts)
        self._lock = threading.Lock()

    @property
    def failed(self) -> bool:
        """Whether some part of it raised: the rest is not worth doing."""
        return self.made.done()

    def fail(self, exc: BaseException) -> None:
        """Raise this where the call was made; a second failure changes nothing."""
        with self._lock:
            if not self.made.done():
                self.made.set_exception(exc)

    def put(self, rows: Sequence[int], vectors: NDArray[np.float32], tokens: Sequence[Rows]) -> None:
        """What was made of some texts; with the last ones the call is answered.

        :param tokens: of each of them; ignored by a call that wants none.
        :raises InvalidVectors: some are no numbers; nothing is returned then.
        """
        wrong = count_invalid(vectors)
        if self.wish is not None:
            wrong = max(wrong, sum(not np.isfinite(found).all() for found in tokens))
        if wrong:
            raise invalid_vectors(self._model_id, self.model.precision, wrong, len(vectors))
        self._vectors[rows] = vectors
        if self.wish is not None:
            self._tokens.update(zip(rows, map(self.wish.finish, tokens), strict=True))
        with self._lock:
            self._left -= len(rows)
            if not self._left and not self.made.done():
                self.made.set_result(Embedded(self._vectors, self._all_tokens()))

    def _all_tokens(self) -> list[NDArray[np.int8] | NDArray[np.float32]] | None:
        return [self._tokens[row] for row in range(len(self.texts))] if self.wish is not None else None

    def forward(self, batch: Sequence[Sequence[int]]) -> tuple[NDArray[np.float32], list[Rows]]:
        """The vectors of one batch, with token vectors if this call wants them."""
        if self.wish is None:
            return self.model.forward(batch), []
        return self.model.forward_with_tokens(batch, self.wish.projection)


class WorkQueue:
    """Hands out work. Queries that wait together are one piece of work; passages go in batches of similar length."""

    def __init__(self, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._changed = threading.Condition()
        self._queries: deque[Call] = deque()
        self._passages: deque[Work] = deque()
        self.closed = False

    @property
    def depth(self) -> int:
        """Queries and batches that wait."""
        return len(self._queries) + len(self._passages)

    def put(self, call: Call, role: Role) -> bool:
        """Take a call; False when the queue is closed."""
        with self._changed:
            if self.closed:
                return False
            if role == "query":
                self._queries.append(call)
            else:
                self._passages.extend(self._piecings(call))
            self._changed.notify_all()
        return True

    def take(self, give_up: Callable[[], bool]) -> Work | None:
        """The next piece of work, waiting for it; None when `give_up` says so, or the queue is closed and empty."""
        with self._changed:
            while self.closed or not give_up():
                if self._queries:
                    return partial(_embed_queries, self._waiting_queries())
                if self._passages:
                    return self._passages.popleft()
                if self.closed:
                    return None
                self._changed.wait()
            return None

    def _waiting_queries(self) -> list[Call]:
        """Those that wait, up to QUERY_CHARS, at least one. Called with the lock held."""
        taken = [self._queries.popleft()]
        chars = _chars(taken[0])
        while self._queries and chars + _chars(self._queries[0]) <= QUERY_CHARS:
            taken.append(self._queries.popleft())
            chars += _chars(taken[-1])
        return taken

    def wake(self) -> None:
        """Let every waiting worker look at `give_up` again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more calls; what waits is still handed out."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _piecings(self, call: Call) -> list[Work]:
        """The word pieces of a call's texts, spread over the workers; who makes the last ones makes the batches."""
        starts = range(0, len(call.texts), TEXTS_PER_PIECING)
        left = [len(starts)]
        return [partial(self._make_pieces, call, start, left) for start in starts]

    def _make_pieces(self, call: Call, start: int, left: list[int]) -> None:
        end = start + TEXTS_PER_PIECING
        with _answering(call):
            call.token_ids[start:end] = call.model.token_ids(call.texts[start:end])
        with self._changed:
            left[0] -= 1
            if left[0] or call.failed:
                return
        batches = length_sorted_batches([len(ids) for ids in call.token_ids], self._batch_tokens)
        with self._changed:
            self._passages.extendleft(partial(_embed_batch, call, batch) for batch in reversed(batches))
            self._changed.notify_all()


def _embed_batch(call: Call, rows: list[int]) -> None:
    with _answering(call):
        if not call.failed:
            call.put(rows, *call.forward([call.token_ids[row] for row in rows]))


def _embed_queries(calls: list[Call]) -> None:
    """Queries of several callers at once; if that fails each alone, so that one bad text fails its caller only."""
    if len(calls) > 1:
        with suppress(Exception):  # raised again below, to whom it concerns
            _embed_together(calls)
    for call in calls:
        if not call.made.done():
            with _answering(call):
                _embed_together([call])


def _embed_together(calls: list[Call]) -> None:
    """In as few batches as the pieces of these queries allow, mostly one."""
    wishing = next((call for call in calls if call.wish is not None), calls[0])
    places = [(call, row) for call in calls for row in range(len(call.texts))]
    token_ids = wishing.model.token_ids([call.texts[row] for call, row in places])
    vectors = np.empty((len(places), calls[0].dim), dtype=np.float32)
    tokens: dict[int, Rows] = {}
    for batch in length_sorted_batches([len(ids) for ids in token_ids], QUERY_TOKENS):
        vectors[batch], found = wishing.forward([token_ids[number] for number in batch])
        tokens.update(zip(batch, found, strict=wishing.wish is not None))
    first = 0
    for call in calls:
        own = range(first, first + len(call.texts))
        call.put(range(len(call.texts)), vectors[own], [tokens[number] for number in own] if call.wish else [])
        first += len(call.texts)


@contextmanager
def _answering(call: Call) -> Iterator[None]:
    """Whatever is raised inside is raised where the call was made, and the worker goes on."""
    try:
        yield
    except BaseException as exc:  # a worker that ended here would leave all its callers waiting
        call.fail(exc)


def _chars(call: Call) -> int:
    return sum(map(len, call.texts))
