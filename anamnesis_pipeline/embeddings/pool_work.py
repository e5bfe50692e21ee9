"""The work queue of an embedding pool: queries first."""

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
"""Waiting queries are embedded together up to this many characters, about 2,000 word pieces."""
QUERY_TOKENS = 2_048
"""Limit of padded tokens in one batch of queries."""
TEXTS_PER_PIECING = 32
"""Texts tokenized at once: about 15 ms of a core, for which a query may have to wait."""

Work = Callable[[], None]


class LoadedModel(Protocol):
    """The interface of a model in memory. Several threads call it at once."""

    @property
    def precision(self) -> str:
        """Return its arithmetic, `bf16` or `fp32`."""

    @property
    def fidelity(self) -> float | None:
        """Return the lowest measured cosine between its vectors and those of fp32; None if it was not measured."""

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the word piece IDs of each whole text."""

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return unit vectors of one batch; a text longer than the model's window is embedded in windows."""

    def forward_with_tokens(
        self, batch: Sequence[Sequence[int]], projection: Projection | None
    ) -> tuple[NDArray[np.float32], list[Rows]]:
        """Return the same, and the projected unit vectors of each text's pieces."""


@dataclass(frozen=True, slots=True)
class TokenWish:
    """How to make the token vectors of a call. `finish` converts a text's unit rows to the caller's result."""

    projection: Projection
    finish: Callable[[Rows], NDArray[np.int8] | NDArray[np.float32]]


class Call:
    """One call of the pool: its texts, and its results once the last batch is done."""

    def __init__(
        self, model: LoadedModel, model_id: str, dim: int, texts: Sequence[str], wish: TokenWish | None = None
    ) -> None:
        """:param wish: how to make its token vectors; None: it needs none."""
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
        """Return whether a part of it raised: the rest is skipped."""
        return self.made.done()

    def fail(self, exc: BaseException) -> None:
        """Raise this at the call; a second failure changes nothing."""
        with self._lock:
            if not self.made.done():
                self.made.set_exception(exc)

    def put(self, rows: Sequence[int], vectors: NDArray[np.float32], tokens: Sequence[Rows]) -> None:
        """Add the results of some texts; the last ones complete the call.

        :param tokens: of each of them; ignored by a call that needs none.
        :raises InvalidVectors: some are NaN or zero; nothing is returned then.
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
                tokens_of = [self._tokens[row] for row in range(len(self.texts))] if self.wish is not None else None
                self.made.set_result(Embedded(self._vectors, tokens_of))

    def forward(self, batch: Sequence[Sequence[int]]) -> tuple[NDArray[np.float32], list[Rows]]:
        """Return the vectors of one batch, with token vectors if this call needs them."""
        if self.wish is None:
            return self.model.forward(batch), []
        return self.model.forward_with_tokens(batch, self.wish.projection)


class WorkQueue:
    """Hands out work. Waiting queries are one work item; passages go in batches of similar length."""

    def __init__(self, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._changed = threading.Condition()
        self._queries: deque[Call] = deque()
        self._passages: deque[Work] = deque()
        self.closed = False

    @property
    def depth(self) -> int:
        """Return the number of waiting queries and batches."""
        return len(self._queries) + len(self._passages)

    def put(self, call: Call, role: Role) -> bool:
        """Add a call; return False if the queue is closed."""
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
        """Wait for the next work item; None if `give_up` returns True, or the queue is closed and empty."""
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
        """Return waiting queries up to QUERY_CHARS, at least one. Called with the lock held."""
        taken = [self._queries.popleft()]
        chars = _chars(taken[0])
        while self._queries and chars + _chars(self._queries[0]) <= QUERY_CHARS:
            taken.append(self._queries.popleft())
            chars += _chars(taken[-1])
        return taken

    def wake(self) -> None:
        """Let every waiting worker check `give_up` again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Accept no more calls; waiting work is still handed out."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _piecings(self, call: Call) -> list[Work]:
        """Return the work items that tokenize a call's texts; the worker that finishes last makes the batches."""
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
    """Embed several callers' queries together; after a failure separately, so that a bad text fails only its caller."""
    if len(calls) > 1:
        with suppress(Exception):  # raised again below, at its caller
            _embed_together(calls)
    for call in calls:
        if not call.made.done():
            with _answering(call):
                _embed_together([call])


def _embed_together(calls: list[Call]) -> None:
    """Embed in as few batches as the pieces of these queries allow, mostly one."""
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
    """Raise any error of the block at the call, so that the worker continues."""
    try:
        yield
    except BaseException as exc:  # a worker that ended here would leave all its callers waiting
        call.fail(exc)


def _chars(call: Call) -> int:
    return sum(map(len, call.texts))
