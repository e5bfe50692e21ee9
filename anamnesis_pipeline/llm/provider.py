"""The contract of LLM providers: one class per service serves summaries and chat. Each translates the exceptions of its
library.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from anamnesis_pipeline.errors import BadSetting, LlmAnswerInvalid
from anamnesis_pipeline.llm.prices import DEFAULT_MODELS, Model, find_model, most_use
from anamnesis_pipeline.llm.prompts import Request
from anamnesis_pipeline.model import LlmUse

MAX_ANSWER_TOKENS = 4_096
"""Of a chat answer."""
STALL_S = 180.0
"""Seconds of silence after which a chat answer is given up. The service may have to load a large model and read a long
prompt first; the user sees the wait and can stop it."""
PROBE_S = 4.0
"""Timeout in seconds for listing a service's models."""
METERED = "by the token"

_CUT = frozenset({"max_tokens", "length", "model_context_window_exceeded"})
_REFUSED = frozenset({"refusal", "content_filter"})


@dataclass(frozen=True, slots=True)
class LlmOptions:
    """Options of all providers, named after the settings.

    :param model: empty: the provider's default.
    :param timeout_s: seconds after which a silent LLM is given up in a summary.
    :param ollama_threads: CPU threads per summary of an Ollama server on this machine; None leaves it to the server.
    """

    model: str = ""
    timeout_s: float = 180.0
    claude_command: str = "claude"
    claude_host: str = ""
    ollama_urls: tuple[str, ...] = ()
    ollama_threads: int | None = None
    openai_url: str = ""
    openai_api_key: str | None = field(default=None, repr=False)
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_url: str = ""
    input_price: float | None = None
    output_price: float | None = None

    def model_of(self, provider: str, *, is_paid: bool, name: str = "") -> Model:
        """Return the model to use, with its prices.

        :param name: another one than the option `model`.
        :raises BadSetting: none is named, and the provider has no default.
        :raises LlmRefused: it may cost money, and its price is unknown.
        """
        name = name or self.model or DEFAULT_MODELS.get(provider, "")
        if not name:
            raise BadSetting(f"name a model, or set summary_model: {provider} has no default")
        prices = {"input_price": self.input_price, "output_price": self.output_price} if is_paid else {}
        return find_model(provider, name, is_paid=is_paid, **prices)


@dataclass(frozen=True, slots=True)
class Reply:
    """The text of a reply to a `Request`, and its cost. `used.dollars` is 0 for a free provider."""

    text: str
    used: LlmUse
    problem: str = ""
    """Why there is no text; only in a batch, where a failed request may still have cost something."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call by the model."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One turn of a conversation. `calls`: of an assistant; `call_id`: which call a `tool`'s text answers."""

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a chat answer: text, complete tool calls, or at the end its cost."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    used: LlmUse | None = None


class Provider(ABC):
    """One service with one model. `ask` and `probe` are safe to share between threads; `stream` needs an event loop.

    :param known: the model, with its prices.
    :param who: the service's name for errors.
    """

    name: ClassVar[str]
    """Value of the setting `summarizer`."""
    is_paid: bool = False
    """Whether each call costs money."""
    is_local: bool = False
    """Whether the text stays on this machine."""
    has_tools: ClassVar[bool] = True
    concurrency: ClassVar[int] = 1
    """Useful number of concurrent calls for summaries."""

    def __init__(self, known: Model, who: str) -> None:
        self.model = known.name
        self._known, self._who = known, who

    @classmethod
    @abstractmethod
    def opened(cls, options: LlmOptions) -> Self:
        """Return the provider, without any call.

        :raises BadSetting: a required key, URL or model is missing or invalid.
        :raises LlmRefused: its model costs money and its price is unknown.
        """

    @classmethod
    @abstractmethod
    async def models(cls, options: LlmOptions) -> tuple[str, ...]:
        """Return the models that can chat now. Raises as `opened` and `ask`."""

    @classmethod
    def cost(cls, options: LlmOptions) -> str:
        """Return how calls are paid: `subscription`, `local` or `METERED`."""
        del options
        return METERED

    def expected(self, request: Request) -> LlmUse:
        """Return an upper bound of the use of `ask`, without calling the service."""
        return most_use(self._known, request)

    def expected_answer(self, system: str, turns: Sequence[ChatTurn]) -> LlmUse:
        """Return an upper bound of the use of `stream`, without calling the service."""
        return self._used(max_tokens(system, turns), MAX_ANSWER_TOKENS)

    @abstractmethod
    def ask(self, request: Request) -> Reply:
        """Make one call without retries, whose answer is JSON of `SCHEMA`; the caller waits and retries.

        :raises LlmBusy: 429, 529, with the time to wait if given.
        :raises LlmUnavailable: no connection, a stall longer than the timeout, a broken stream, 5xx.
        :raises LlmRefused: 401, 403, exhausted quota or credit, unknown model, command not found.
        :raises LlmPromptRefused: the service refuses this prompt; another may pass.
        :raises LlmAnswerInvalid: it refused to answer, or hit its output limit.
        """

    @abstractmethod
    def probe(self, timeout_s: float) -> None:
        """Check that the service is reachable, without cost. Raises as `ask`.

        :param timeout_s: of each step.
        """

    @abstractmethod
    def stream(self, system: str, turns: Sequence[ChatTurn], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream a chat answer. Closing the iterator also ends the work at the service. Raises as `ask`.

        :param tools: whether `search_memory` may be called.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections of `ask`."""

    @abstractmethod
    async def close_chat(self) -> None:
        """Close the connections of `stream`."""

    def _used(self, tokens_in: int, tokens_out: int) -> LlmUse:
        return LlmUse(1, tokens_in, tokens_out, self._known.dollars(tokens_in, 0, 0, tokens_out))

    def _check_whole(self, reason: object) -> None:
        """:param reason: the service's reason for ending a chat answer.
        :raises LlmAnswerInvalid: the answer was cut off or refused.
        """
        if reason in _CUT:
            raise LlmAnswerInvalid(f"{self._who} stopped after {MAX_ANSWER_TOKENS:,} tokens; ask it to go on")
        if reason in _REFUSED:
            raise LlmAnswerInvalid(f"{self._who} declined to answer this; rephrase it, or choose another model")


class BatchProvider(Provider):
    """A provider that also takes batches: cheaper, and answered within a day."""

    batch_factor: float
    """Price of a batch as a share of the price of single calls."""

    @abstractmethod
    def submit(self, requests: Sequence[Request]) -> str:
        """Submit a batch; return its id. Raises as `ask`."""

    @abstractmethod
    def collect(self, batch_id: str, model: str) -> Mapping[str, Reply] | None:
        """Return key -> reply, with a `problem` for failed requests; None while pending. Raises as `ask`.

        :param model: the batch's model, whose prices apply.
        :raises LlmAnswerInvalid: the batch or its results no longer exist.
        """

    @abstractmethod
    def find(self, keys: Sequence[str], known: Collection[str]) -> str | None:
        """Return a recent batch, none of `known`, that holds these requests, after a crash between submitting it and
        storing its id. While pending it may turn out to hold others.
        """


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments of a tool call; empty if the model wrote no JSON object."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def max_tokens(system: str, turns: Sequence[ChatTurn]) -> int:
    """Return an upper bound of a conversation's input tokens: a token has at least one byte."""
    return sum(len(text.encode("utf-8", "replace")) for text in (system, *(turn.text for turn in turns))) + 500
