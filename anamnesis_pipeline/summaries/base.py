"""The contract of an LLM that summarizes. Adapters translate their library's exceptions at this border."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from anamnesis_pipeline.summary_model import LlmUse


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `key` (32 hex characters) names it in cache and batches; the answer is to be JSON of `SCHEMA`."""

    key: str
    system: str
    text: str
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The text that came back, and what it cost. `used.dollars` is 0 for a free backend."""

    text: str
    used: LlmUse
    problem: str = ""
    """Why there is no text; only in a batch, where what failed may have cost something all the same."""


class SummaryBackend(Protocol):
    """One service with one model. Safe to share between threads."""

    name: str
    """As the setting `summarizer` says it."""
    model: str
    is_paid: bool
    """Whether each call costs money."""
    is_local: bool
    """Whether the text stays on this machine."""
    concurrency: int
    """Calls that make sense at once."""

    def expected(self, request: Request) -> LlmUse:
        """What a call will use at most; an upper bound, without asking anybody."""

    def ask(self, request: Request) -> Reply:
        """One call, without retries of its own: whoever calls it waits and tries again.

        :raises LlmBusy: 429, 529, with the time to wait where it is said.
        :raises LlmUnavailable: no connection, a stall longer than the time-out, a broken stream, 5xx.
        :raises LlmRefused: 401, 403, used-up quota or credit, unknown model, command not found.
        :raises LlmPromptRefused: the service does not take this prompt; another may pass.
        :raises LlmAnswerInvalid: it refused to answer, or was cut off by its output limit.
        """

    def probe(self, timeout_s: float) -> None:
        """Find out whether somebody is there to be asked, by what costs nothing. Raises as `ask`.

        :param timeout_s: of each step.
        """

    def close(self) -> None:
        """Free connections."""


class BatchBackend(SummaryBackend, Protocol):
    """A backend that also takes many requests at once, more cheaply, to be answered within a day."""

    @property
    def batch_factor(self) -> float:
        """What a batch costs of the price of single calls."""

    def submit(self, requests: Sequence[Request]) -> str:
        """Hand them in; the batch's id. Raises as `ask`."""

    def collect(self, batch_id: str, model: str) -> Mapping[str, Reply] | None:
        """Key -> reply, with a `problem` where it is none; None while it is being worked on. Raises as `ask`.

        :param model: the one that the batch was handed in with, whose prices count.
        :raises LlmAnswerInvalid: the batch is gone, or its results are.
        """

    def find(self, keys: Sequence[str], known: Collection[str]) -> str | None:
        """A recent batch, none of `known`, that holds these requests: after a crash between handing it in and noting
        its id. While it is being worked on it may turn out to hold others.
        """
