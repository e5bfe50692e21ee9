"""Embed texts with an external service instead of a local model: requests, costs, retries and circuit breaking.

Off by default: it needs a model name, an API key and a budget. It excludes private projects: every text that vector
search covers is sent to the service.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from anamnesis_pipeline.embeddings.api_models import ApiModel
from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.errors import (
    DimensionMismatch,
    EmbeddingQueueFull,
    InvalidVectors,
    LlmAnswerInvalid,
    LlmBusy,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
    ModelLoading,
    RetryLater,
)
from anamnesis_pipeline.model import LlmBudget, LlmUse, content_id
from anamnesis_pipeline.pipeline.embedding_api import EmbeddingApi
from anamnesis_pipeline.pipeline.llm_guard import Breaker, BreakerState
from anamnesis_pipeline.pipeline.reembed_state import ANSWERS
from anamnesis_pipeline.store.base import Store

SAMPLE = "The meeting about the harbour crane was moved to Thursday, since the wind is too strong before."
SAME_FROM = 0.99
"""Minimum cosine of two answers to the same text at which both count as one model's."""
BREAKERS = "embeddings of "
"""Prefix of the names of embedding breakers, stored beside those of LLMs."""
AT_ONCE = 4
TEXTS_PER_CALL = 64
BYTES_PER_CALL = 100_000
"""Every service accepts more; small calls limit what a failed call loses."""
ATTEMPTS = {"query": 1, "passage": 4}
LONGEST_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Limits in force now. `refusal`: why nothing may be sent."""

    budget: LlmBudget
    requests_per_minute: int
    refusal: Exception | None = None


class ApiPool:
    """Embed through a service. Each call reserves its cost in the LLM budget before it is made."""

    device = "service"
    precision = "fp32"
    fidelity = None
    cores: tuple[int, ...] = ()
    workers = AT_ONCE

    def __init__(
        self,
        store: Store,
        space_key: str,
        model: ApiModel,
        api: EmbeddingApi,
        terms: Callable[[], Terms],
        mask: Callable[[str], str],
        queue_max: int = 64,
    ) -> None:
        """:param terms: read before each call, so that a project that becomes private takes effect immediately.
        :param mask: masks secrets in each text before sending. Stored texts are masked already; typed queries are not.
        :param queue_max: calls that may wait; one more raises EmbeddingQueueFull.
        """
        self.model_id, self.dim = model.model_id, model.dim
        self._store, self._space_key, self._model, self._api, self._terms = store, space_key, model, api, terms
        self._mask, self._name = mask, f"{BREAKERS}{model.service}"
        self._breaker = Breaker(store.settings, self._name)
        self._waiting, self._queue_max = threading.BoundedSemaphore(queue_max), queue_max
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="embedding-api")
        self._ready, self._closed = False, threading.Event()

    @property
    def ready(self) -> bool:
        """Whether the service answered and proved to serve the expected model."""
        return self._ready and not self._closed.is_set()

    @property
    def depth(self) -> int:
        """Return 0: this pool has no queue."""
        return 0

    def load(self) -> None:
        """Embed a fixed text, and compare the result with the one stored when the space was created.

        :raises DimensionMismatch: the service has another model behind the name.
        """
        if self._ready or self._closed.is_set():
            return
        (now,) = self._vectors([SAMPLE], "passage")
        name = ANSWERS + self._space_key
        before = self._store.settings.get(name)
        if before is None and not self._store.vectors.count(self._space_key):
            self._store.settings.set(name, [round(float(value), 6) for value in now])
        elif before is None or float(np.asarray(before, dtype=np.float32) @ now) < SAME_FROM:
            raise DimensionMismatch(
                f"{self._api.name} answers otherwise than when space {self._space_key} was made: another model is "
                f"behind the name {self.model_id}. Embed everything again: anamnesis reembed start"
            )
        self._ready = True

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Embed texts with the service. Texts longer than the window are sent in pieces, whose vectors are averaged.

        :raises LlmUnavailable, LlmBusy, LlmRefused, RetryLater: the service does not answer, or may not be called.
        """
        if not self.ready:
            raise ModelLoading(f"{self._api.name} was not reached yet; try again in a few seconds")
        if not self._waiting.acquire(blocking=False):
            raise EmbeddingQueueFull(f"{self._queue_max} calls wait for {self._api.name}; try again in a second")
        try:
            return self._vectors(texts, role)
        finally:
            self._waiting.release()

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        """Embed without token vectors, which services do not return."""
        return Embedded(self.embed(texts, role), None)

    def use_cores(self, cores: Sequence[int]) -> None:
        """Do nothing: the service runs on its own cores."""

    def close(self) -> None:
        """Free threads and connections; calling twice is harmless."""
        self._closed.set()
        self._threads.shutdown(wait=True)
        self._api.close()

    def _vectors(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        sent = [self._mask(text.encode("utf-8", "replace").decode()) for text in texts]  # a lone surrogate is no JSON
        most = self._model.window_chars
        pieces = [  # at least one, as services refuse an empty text
            [text[start : start + most] for start in range(0, len(text), most)] or [" "] for text in sent
        ]
        flat = [piece for those in pieces for piece in those]
        calls = list(_calls(flat))
        made = list(self._threads.map(partial(self._retried, role=role), calls))
        rows = np.concatenate(made) if made else np.empty((0, self.dim), dtype=np.float32)
        return _averaged(rows, [len(those) for those in pieces])

    def _retried(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        backoff = wait_random_exponential(max=LONGEST_WAIT_S)

        def wait_s(state: RetryCallState) -> float:
            exc = state.outcome.exception() if state.outcome else None
            asked_for = (exc.retry_after_s or 0.0) if isinstance(exc, LlmBusy) else 0.0
            return max(asked_for, backoff(state))

        retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS[role]),
            wait=wait_s,
            retry=retry_if_exception(_is_worth_waiting),
            sleep=self._wait,
            reraise=True,
        )
        return retrying(self._booked, texts, role)

    def _wait(self, seconds: float) -> None:
        """Sleep, or return early when the pool is closed."""
        self._closed.wait(seconds)

    def _booked(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Make one call with the steps of an LLM call: permission, breaker, budget, rate limit, call, actual cost."""
        terms = self._terms()
        if terms.refusal is not None:
            raise terms.refusal
        state = self._breaker.state()
        if state.is_open(datetime.now(UTC)):
            raise self._left_alone(state)
        most = sum(len(text.encode("utf-8", "replace")) for text in texts)  # a token has at least one byte
        call_id, day = uuid.uuid4().hex, f"{datetime.now(UTC):%Y-%m-%d}"
        if not self._store.llm.reserve(
            call_id, day, self._model.service, self.model_id, self._used(most), terms.budget
        ):
            raise RetryLater("the LLM budget of this day (UTC) is used up; see llm_daily_tokens, llm_daily_dollars")
        self._wait_for_turn(call_id, role, terms.requests_per_minute)
        return self._asked(call_id, texts, role, most)

    def _wait_for_turn(self, call_id: str, role: Role, per_minute: int) -> None:
        """Limit the rate of passage calls across all processes. Queries do not wait, since a user waits for each.

        :raises RetryLater: the breaker has opened, or the pool was closed; the reservation is released.
        """
        if role == "passage":
            self._wait(self._store.llm.take_turn(self._name, datetime.now(UTC), per_minute))
        held = self._breaker.hold()
        if held is None and not self._closed.is_set():
            return
        self._store.llm.settle(call_id, LlmUse())
        raise self._left_alone(held) if held is not None else ModelLoading(f"{self._api.name} was let go of")

    def _asked(self, call_id: str, texts: Sequence[str], role: Role, most: int) -> NDArray[np.float32]:
        try:
            vectors, tokens = self._api.embed(texts, role)
        except (LlmRefused, LlmPromptRefused, LlmBusy, LlmUnavailable, LlmAnswerInvalid, InvalidVectors) as exc:
            was_worked_on = isinstance(exc, LlmUnavailable | InvalidVectors)
            self._store.llm.settle(call_id, None if was_worked_on else LlmUse())
            self._tell_breaker(exc, texts)
            if role == "passage" and isinstance(exc, LlmPromptRefused | LlmAnswerInvalid):
                # the fault is in this episode's texts: the other episodes must still get vectors
                raise InvalidVectors(str(exc)) from None
            raise
        self._store.llm.settle(call_id, self._used(most // 4 if tokens is None else tokens))
        self._breaker.went_well()
        return vectors

    def _left_alone(self, held: BreakerState) -> RetryLater:
        return RetryLater(f"{self._api.name} is left alone for a while: {held.reason}")

    def _used(self, tokens: int) -> LlmUse:
        return LlmUse(1, tokens, 0, tokens * self._model.dollars / 1e6)

    def _tell_breaker(self, exc: Exception, texts: Sequence[str]) -> None:
        match exc:
            case LlmRefused():
                self._breaker.was_refused(str(exc))
            case LlmPromptRefused():
                self._breaker.prompt_was_refused(str(exc), content_id(*texts))
            case LlmUnavailable() | InvalidVectors():
                self._breaker.found_nobody(str(exc))
            case LlmBusy() if not _is_worth_waiting(exc):
                self._breaker.was_told_to_wait(str(exc), exc.retry_after_s or LONGEST_WAIT_S)


def _is_worth_waiting(exc: BaseException) -> bool:
    if isinstance(exc, LlmBusy):
        return (exc.retry_after_s or 0.0) <= LONGEST_WAIT_S
    return isinstance(exc, LlmUnavailable)


def _calls(texts: Sequence[str]) -> Iterator[list[str]]:
    """Group texts into calls, within the limits of one call."""
    call: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode("utf-8", "replace"))
        if call and (len(call) == TEXTS_PER_CALL or size + length > BYTES_PER_CALL):
            yield call
            call, size = [], 0
        call.append(text)
        size += length
    if call:
        yield call


def _averaged(rows: NDArray[np.float32], counts: Sequence[int]) -> NDArray[np.float32]:
    """Average consecutive groups of rows into one vector of unit length each; `counts` are the group sizes."""
    if all(count == 1 for count in counts):
        return rows
    starts = np.cumsum([0, *counts[:-1]])
    sums = np.add.reduceat(rows, starts, axis=0)
    averaged: NDArray[np.float32] = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return averaged
