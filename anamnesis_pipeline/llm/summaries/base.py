"""The interface of LLM backends for summaries. Adapters translate their library's exceptions here."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from anamnesis_pipeline.model import LlmUse


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `key` (32 hex characters) names it in cache and batches; the answer must be JSON of `SCHEMA`."""

    key: str
    system: str
    text: str
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The text of a reply and its cost. `used.dollars` is 0 for a free backend."""

    text: str
    used: LlmUse
    problem: str = ""
    """Why there is no text; only in a batch, where a failed request may still have cost something."""


class SummaryBackend(Protocol):
    """One service with one model. Safe to share between threads."""

    name: str
    """Value of the setting `summarizer`."""
    model: str
    is_paid: bool
    """Whether each call costs money."""
    is_local: bool
    """Whether the text stays on this machine."""
    concurrency: int
    """Useful number of concurrent calls."""

    def expected(self, request: Request) -> LlmUse:
        """Return an upper bound of a call's use, without calling the service."""

    def ask(self, request: Request) -> Reply:
        """Make one call without retries; the caller waits and retries.

        :raises LlmBusy: 429, 529, with the time to wait if given.
        :raises LlmUnavailable: no connection, a stall longer than the timeout, a broken stream, 5xx.
        :raises LlmRefused: 401, 403, exhausted quota or credit, unknown model, command not found.
        :raises LlmPromptRefused: the service refuses this prompt; another may pass.
        :raises LlmAnswerInvalid: it refused to answer, or hit its output limit.
        """

    def probe(self, timeout_s: float) -> None:
        """Check that the service is reachable, without cost. Raises as `ask`.

        :param timeout_s: of each step.
        """

    def close(self) -> None:
        """Close the connections."""


class BatchBackend(SummaryBackend, Protocol):
    """A backend that also takes batches: cheaper, and answered within a day."""

    @property
    def batch_factor(self) -> float:
        """Price of a batch as a share of the price of single calls."""

    def submit(self, requests: Sequence[Request]) -> str:
        """Submit a batch; return its id. Raises as `ask`."""

    def collect(self, batch_id: str, model: str) -> Mapping[str, Reply] | None:
        """Return key -> reply, with a `problem` for failed requests; None while pending. Raises as `ask`.

        :param model: the batch's model, whose prices apply.
        :raises LlmAnswerInvalid: the batch or its results no longer exist.
        """

    def find(self, keys: Sequence[str], known: Collection[str]) -> str | None:
        """Return a recent batch, none of `known`, that holds these requests, after a crash between submitting it and
        storing its id. While pending it may turn out to hold others.
        """
