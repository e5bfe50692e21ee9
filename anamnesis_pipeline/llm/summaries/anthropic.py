"""The Claude API, by the `anthropic` library: single calls, streamed, and batches at half the price."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2

from anamnesis_pipeline.errors import AnamnesisError, LlmAnswerInvalid, LlmUnavailable
from anamnesis_pipeline.llm.prices import Model, most_output_tokens, most_use
from anamnesis_pipeline.llm.refusals import code_words, error_of_status
from anamnesis_pipeline.llm.summaries.base import Reply, Request
from anamnesis_pipeline.llm.summaries.prompt import SCHEMA
from anamnesis_pipeline.model import LlmUse

if TYPE_CHECKING:
    from anthropic.types import Message
    from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse

URL = "https://api.anthropic.com"
CONNECT_TIMEOUT_S = 10.0
RECENT_BATCHES = 100
BATCH_LIFETIME = timedelta(hours=25)
"""Batches end within 24 hours; no request of ours waits for an older one."""

_SERVICE = "the Claude API"
_WHOLE = {"message_start", "message_stop"}
_FAILURES = (
    anthropic.AnthropicError,
    httpx2.HTTPError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
)
"""Exceptions of the library: its own, httpx2's in mid-stream, and the others on events that are not Claude's."""


class AnthropicBackend:
    """The Claude API with one model. A `BatchBackend`.

    A stream that is silent for `timeout_s` is given up; the service's pings count as activity.

    :param find: looks up a model of the service; raises LlmRefused if its price is unknown.
    """

    name = "anthropic"
    is_paid = True
    is_local = False
    concurrency = 4

    def __init__(
        self, model: Model, api_key: str, timeout_s: float, url: str = URL, *, find: Callable[[str], Model]
    ) -> None:
        self.model = model.name
        self.batch_factor = model.batch_factor
        self._known = model
        self._find = find
        timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        self._client = anthropic.Anthropic(
            api_key=api_key,
            base_url=url or URL,
            max_retries=0,
            timeout=timeout,
            http_client=anthropic.DefaultHttpxClient(timeout=timeout, follow_redirects=False),
        )
        # At level DEBUG the library logs whole requests, prompts included.
        logging.getLogger("anthropic").setLevel(logging.INFO)

    def expected(self, request: Request) -> LlmUse:
        """Return an upper bound of the use of `ask`."""
        return most_use(self._known, request)

    def ask(self, request: Request) -> Reply:
        """Make one streamed call. Raises as `SummaryBackend.ask` says."""
        try:
            with self._client.messages.stream(**self._params(request)) as stream:
                seen = {event.type for event in stream}
                message = stream.current_message_snapshot if seen >= _WHOLE else None
        except _FAILURES as exc:
            raise _translated(exc) from None  # the library's errors quote the service's reply
        if message is None:
            raise LlmUnavailable(f"{_SERVICE} broke off in mid-answer; try again later")
        if problem := _problem(message):
            raise LlmAnswerInvalid(problem)
        return Reply(_text(message), _used(self._known, message, batch=False))

    def probe(self, timeout_s: float) -> None:
        """Check that the service knows the model under this key. Raises as `SummaryBackend.probe` says."""
        try:
            self._client.models.retrieve(self.model, timeout=timeout_s)
        except _FAILURES as exc:
            raise _translated(exc) from None

    def submit(self, requests: Sequence[Request]) -> str:
        """Submit a batch; return its id."""
        entries: list[Any] = [{"custom_id": r.key, "params": self._params(r)} for r in requests]
        try:
            return self._client.messages.batches.create(requests=entries).id
        except _FAILURES as exc:
            raise _translated(exc) from None

    def collect(self, batch_id: str, model: str) -> Mapping[str, Reply] | None:
        """Return the answers of a batch by key; None while it is pending."""
        known = self._known if model == self.model else self._find(model)
        try:
            batch = self._client.messages.batches.retrieve(batch_id)
            if batch.processing_status != "ended":
                return None
            if not batch.results_url:
                raise LlmAnswerInvalid(f"the results of batch {batch_id} are gone; its parts are asked for again")
            results = self._client.messages.batches.results(batch_id)
            return {entry.custom_id: _result(known, entry) for entry in results}
        except anthropic.NotFoundError:
            raise LlmAnswerInvalid(f"there is no batch {batch_id} any more; its parts are asked for again") from None
        except _FAILURES as exc:
            raise _translated(exc) from None

    def find(self, keys: Sequence[str], known: Collection[str]) -> str | None:
        """Return a recent batch, none of `known`, that holds these requests.

        The service lists no requests of a pending batch; there an equal count must do.
        """
        try:
            for batch in self._client.messages.batches.list(limit=RECENT_BATCHES).data:
                is_recent = datetime.now(UTC) - batch.created_at <= BATCH_LIFETIME
                if is_recent and batch.id not in known and self._holds(batch, set(keys)):
                    return batch.id
        except _FAILURES as exc:
            raise _translated(exc) from None
        return None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _params(self, request: Request) -> dict[str, Any]:
        params: dict[str, Any] = {
            "model": self.model,
            "max_tokens": most_output_tokens(self._known, request),
            "system": [{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": request.text}],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        }
        if self._known.thinking == "optional":
            params["thinking"] = {"type": "disabled"}
        if self._known.thinking == "always":
            params["output_config"]["effort"] = "low"
        return params

    def _holds(self, batch: "MessageBatch", keys: set[str]) -> bool:
        counts = batch.request_counts
        total = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
        if total != len(keys):
            return False
        if batch.processing_status != "ended":
            return True
        if not batch.results_url:
            return False
        results = self._client.messages.batches.results(batch.id)
        try:
            return all(entry.custom_id in keys for entry in results)
        finally:
            results.close()


def _result(model: Model, entry: "MessageBatchIndividualResponse") -> Reply:
    """Return one answer of a batch. Refused and truncated answers have been paid for."""
    result = entry.result
    if result.type == "succeeded":
        used, problem = _used(model, result.message, batch=True), _problem(result.message)
        return Reply("" if problem else _text(result.message), used, problem)
    if result.type == "errored":
        said = ", ".join(code_words([result.error.error.type]))
        return Reply("", LlmUse(), f"the batch failed on it ({said}); it is asked for again")
    return Reply("", LlmUse(), f"the batch left it out ({result.type}); it is asked for again")


def _problem(message: "Message") -> str:
    """Return why a message is no answer; empty: it is one."""
    if message.stop_reason == "refusal":
        return f"{_SERVICE} refused to answer; the part keeps the summary it has"
    if message.stop_reason not in ("end_turn", "stop_sequence"):
        return f"{_SERVICE} stopped early ({message.stop_reason}); the answer is incomplete"
    return ""


def _text(message: "Message") -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def _used(model: Model, message: "Message", *, batch: bool) -> LlmUse:
    usage = message.usage
    written, read = usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0
    dollars = model.dollars(usage.input_tokens, written, read, usage.output_tokens, batch=batch)
    return LlmUse(1, usage.input_tokens + written + read, usage.output_tokens, dollars)


def _translated(exc: Exception) -> AnamnesisError:
    match exc:
        case anthropic.APIStatusError():
            return error_of_status(
                _SERVICE, exc.status_code, (exc.type, exc.error_code), exc.response.headers, exc.message
            )
        case anthropic.APITimeoutError() | httpx2.TimeoutException():
            return LlmUnavailable(f"{_SERVICE} was silent for too long; try again later")
        case anthropic.APIConnectionError():
            return LlmUnavailable(f"{_SERVICE} cannot be reached; try again later")
        case _:
            return LlmUnavailable(f"{_SERVICE} broke off in mid-answer ({type(exc).__name__}); try again later")
