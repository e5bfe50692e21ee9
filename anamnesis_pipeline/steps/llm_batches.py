"""Many LLM calls handed in at once, for less money: submitted, noted, and collected into the cache by a later run.

A note that a batch is about to be handed in is written first, so that one whose id was lost in a crash can be found.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeGuard

from anamnesis_pipeline.errors import LlmAnswerInvalid, LlmBusy, LlmRefused, LlmUnavailable
from anamnesis_pipeline.model import LlmUse
from anamnesis_pipeline.steps.llm_calls import LlmCaller, OnHold
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.summaries.base import BatchBackend, Reply, Request, SummaryBackend

LOOK_AGAIN = timedelta(minutes=10)
"""Between two looks at a batch under way; also how long a note without an id is taken for a batch being handed in."""
_NOTE = "handing-in:"


def takes_batches(backend: SummaryBackend) -> TypeGuard[BatchBackend]:
    """Whether it can be handed many requests at once."""
    return callable(getattr(backend, "submit", None))


class BatchDesk:
    """Hands in and collects the batches of one backend."""

    def __init__(
        self,
        store: Store,
        backend: BatchBackend,
        caller: LlmCaller,
        check: Callable[[str], object],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """:param check: raises LlmAnswerInvalid for a reply that cannot be read; such a one is not cached."""
        self._store = store
        self._backend = backend
        self._caller = caller
        self._check = check
        self._clock = clock

    def collect(self) -> frozenset[str]:
        """Put what is done into the cache; the keys that are still waited for.

        :raises OnHold: the service cannot be asked now.
        """
        waiting: set[str] = set()
        batches = self._store.llm.open_batches(self._backend.name)
        for batch_id, (call_id, keys) in batches.items():
            waiting.update(self._collect(batch_id, call_id, keys, batches))
        return frozenset(waiting)

    def submit(self, requests: Sequence[Request]) -> bool:
        """Hand them in; False when the day's budget does not hold them all.

        :raises OnHold: the service cannot be asked now, and what it was given may or may not have arrived.
        """
        self._caller.wait_for_turn()
        call_id = self._caller.book(_total(self._backend.expected(request) for request in requests))
        if call_id is None:
            return False
        keys = [request.key for request in requests]
        note = f"{_NOTE}{self._clock().timestamp():.0f}:{call_id}"
        self._store.llm.put_batch(note, self._backend.name, call_id, keys)
        try:
            batch_id = self._backend.submit(requests)
        except (LlmRefused, LlmBusy, LlmAnswerInvalid) as exc:
            self._caller.failed(call_id, exc)
            self._store.llm.close_batch(note)
            raise self._on_hold(exc) from exc
        except LlmUnavailable as exc:  # it may have arrived: the note stays until somebody has looked
            self._caller.breaker.found_nobody(str(exc))
            raise self._on_hold(exc) from exc
        self._caller.breaker.went_well()
        self._store.llm.put_batch(batch_id, self._backend.name, call_id, keys)
        self._store.llm.close_batch(note)
        return True

    def _collect(self, batch_id: str, call_id: str, keys: Sequence[str], known: Collection[str]) -> Iterable[str]:
        """The keys of this batch that are still waited for."""
        if batch_id.startswith(_NOTE) and self._is_being_handed_in(batch_id):
            return keys
        try:
            results = self._results(batch_id, keys, known)
        except LlmAnswerInvalid:  # it is gone; what it cost stays booked
            self._store.llm.close_batch(batch_id)
            return ()
        except (LlmRefused, LlmBusy, LlmUnavailable) as exc:
            self._caller.tell_breaker(exc)
            raise self._on_hold(exc) from exc
        if results is None:
            return keys
        used = _total(result.used for result in results.values() if isinstance(result, Reply))
        for key, result in results.items():
            if isinstance(result, Reply):
                self._keep(key, result.text)
        self._store.llm.settle(call_id, used)
        self._store.llm.close_batch(batch_id)
        return ()

    def _results(self, batch_id: str, keys: Sequence[str], known: Collection[str]) -> Mapping[str, Reply | str] | None:
        """What became of a batch, or of the one that a note without an id is of; None while it is being worked on.

        :raises LlmAnswerInvalid: it is gone, or there is none.
        """
        self._caller.wait_for_turn()
        found = self._backend.find(keys, known) if batch_id.startswith(_NOTE) else batch_id
        if found is None:
            raise LlmAnswerInvalid(f"no batch holds what {batch_id} noted")
        results = self._backend.collect(found)
        self._caller.breaker.went_well()
        # one that ended meanwhile as somebody else's is passed over by the next look
        return results if results is None or results.keys() <= set(keys) else None

    def _is_being_handed_in(self, note: str) -> bool:
        since = float(note.removeprefix(_NOTE).partition(":")[0])
        return self._clock().timestamp() - since < LOOK_AGAIN.total_seconds()

    def _keep(self, key: str, text: str) -> None:
        try:
            self._check(text)
        except LlmAnswerInvalid:
            return
        self._store.llm.put_reply(key, text, self._backend.name, self._backend.model)

    def _on_hold(self, exc: Exception) -> OnHold:
        until = self._caller.breaker.state().until
        return OnHold(str(exc), until or self._clock() + LOOK_AGAIN)


def _total(uses: Iterable[LlmUse]) -> LlmUse:
    """All of them together."""
    total = LlmUse()
    for use in uses:
        total = LlmUse(
            total.calls + use.calls,
            total.input_tokens + use.input_tokens,
            total.output_tokens + use.output_tokens,
            total.dollars + use.dollars,
        )
    return total
