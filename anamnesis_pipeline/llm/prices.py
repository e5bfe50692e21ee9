"""Known models of each backend: context window, prices, and how to limit their thinking. Pure."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from anamnesis_pipeline.errors import LlmRefused
from anamnesis_pipeline.llm.prompts import SCHEMA, Request, build_prompt
from anamnesis_pipeline.model import LlmUse, Part

Thinking = Literal["none", "optional", "always"]
"""`optional`: thinks unless disabled. `always`: cannot be disabled, only limited."""
THINKING_TOKENS = 4_000
"""Output tokens that a model which always thinks may use beside its answer."""
PER_CALL_TOKENS = 1_000
"""Input tokens that a service adds: roles, and its structured output instructions."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model of one backend. Prices are US dollars per million tokens; all 0: free.

    `cache_write` and `cache_read` are for tokens written to and read from the service's prompt cache.
    """

    backend: str
    name: str
    context_tokens: int
    input_price: float = 0.0
    output_price: float = 0.0
    cache_write_price: float = 0.0
    cache_read_price: float = 0.0
    batch_factor: float = 1.0
    """Price of a batch as a share of the price of single calls."""
    thinking: Thinking = "none"

    def dollars(self, plain: int, written: int, read: int, output: int, *, batch: bool = False) -> float:
        """Return the price of tokens: plain input, input written to the cache, input read from it, output."""
        total = (
            plain * self.input_price
            + written * self.cache_write_price
            + read * self.cache_read_price
            + output * self.output_price
        )
        return total * (self.batch_factor if batch else 1.0) / 1e6


def _claude(name: str, context: int, price: tuple[float, float, float, float], thinking: Thinking) -> Model:
    return Model("anthropic", name, context, *price, batch_factor=0.5, thinking=thinking)


MODELS = (
    # https://platform.claude.com/docs/en/about-claude/pricing, November 2026. Haiku 5.5 costs more from 100,000 input
    # tokens on, which our prompts never reach.
    _claude("claude-haiku-5-5", 1_000_000, (0.10, 0.50, 0.125, 0.01), "optional"),
    _claude("claude-sonnet-5-5", 1_000_000, (2.0, 10.0, 2.5, 0.2), "always"),
    _claude("claude-opus-5-5", 1_000_000, (4.0, 20.0, 5.0, 0.2), "always"),
    _claude("claude-sonnet-5", 1_000_000, (2.0, 10.0, 2.5, 0.2), "optional"),
    _claude("claude-opus-5", 1_000_000, (5.0, 25.0, 6.25, 0.5), "optional"),
    _claude("claude-haiku-4-5", 200_000, (1.0, 5.0, 1.25, 0.1), "none"),
    _claude("claude-haiku-4-5-20251001", 200_000, (1.0, 5.0, 1.25, 0.1), "none"),
    Model("claude_cli", "haiku", 200_000),
    Model("claude_cli", "sonnet", 200_000),
    Model("claude_cli", "opus", 200_000),
    Model("ollama", "llama3.2", 131_072),
    Model("ollama", "llama3.1:8b", 131_072),
    Model("ollama", "qwen3:4b", 262_144),
    Model("ollama", "qwen3:8b", 40_960),
    Model("ollama", "gemma3:4b", 131_072),
    Model("ollama", "gemma3:12b", 131_072),
    Model("ollama", "mistral-nemo", 131_072),
    Model("ollama", "gpt-oss:20b", 131_072),
)
"""Known models, each backend's default first; any other name works too."""

DEFAULT_MODELS = {model.backend: model.name for model in reversed(MODELS)}
"""Backend -> its default model."""


def find_model(
    backend: str,
    name: str,
    *,
    is_paid: bool,
    input_price: float | None = None,
    output_price: float | None = None,
) -> Model:
    """Return a known model, or one with the given prices; these do not change a known model.

    :param is_paid: whether calls of an unknown model of this backend may cost money.
    :raises LlmRefused: an unknown paid model has no price, so no budget could be kept.
    """
    for model in MODELS:
        if (model.backend, model.name) == (backend, name):
            return model
    if input_price is not None and output_price is not None:
        # Cache prices vary by service: assume no discount for reads, and a surcharge for writes.
        return Model(backend, name, 0, input_price, output_price, input_price * 1.25, input_price)
    if is_paid:
        raise LlmRefused(
            f"the price of model {name!r} of {backend} is not known; set llm_input_price and llm_output_price, in "
            "dollars per million tokens (0 if it is free)"
        )
    return Model(backend, name, 0)


def most_input_tokens(request: Request) -> int:
    """Return an upper bound of a request's input tokens: byte-level tokenizers make at most one per byte of UTF-8."""
    text = request.system + request.text + json.dumps(SCHEMA)
    return len(text.encode("utf-8", "replace")) + PER_CALL_TOKENS


def most_output_tokens(model: Model, request: Request) -> int:
    """Return the output token limit to request, including thinking that cannot be disabled."""
    return request.max_output_tokens + (THINKING_TOKENS if model.thinking == "always" else 0)


def most_use(model: Model, request: Request) -> LlmUse:
    """Return the max use of one call, by its model's prices."""
    tokens_in, tokens_out = most_input_tokens(request), most_output_tokens(model, request)
    dearest = max(model.input_price, model.cache_write_price)
    return LlmUse(1, tokens_in, tokens_out, (tokens_in * dearest + tokens_out * model.output_price) / 1e6)


# --- estimate --------------------------------------------------------------------------------------------

# Estimate of the tokens and cost of summaries, before any call. Pure.

BYTES_A_TOKEN = 3.5
"""Average over instructions, conversation and code; code has fewer, plain English more."""
ANSWER_TOKENS = 300
"""Two to four sentences, some tags and a record or two, with the JSON around them. The maximum, which is booked, is
five times that."""


def expected_use(parts: Iterable[Part]) -> LlmUse:
    """Return the calls and tokens for these chunks, one call each, by a model that does not think; no dollars."""
    used = LlmUse()
    for part in parts:
        prompt = build_prompt(part)
        text = prompt.system + prompt.text + json.dumps(SCHEMA)
        tokens_in = int(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN) + PER_CALL_TOKENS
        used += LlmUse(1, tokens_in, ANSWER_TOKENS)
    return used


def dollars(model: Model, used: LlmUse) -> float:
    """Return the cost by single calls; a model that always thinks counts with its max thinking tokens."""
    thought = used.calls * THINKING_TOKENS if model.thinking == "always" else 0
    return model.dollars(used.input_tokens, 0, 0, used.output_tokens + thought)


def price_list(used: LlmUse) -> list[tuple[str, float]]:
    """Return name and dollars of each known model of the Claude API, without dated names; the cheapest first."""
    models = [model for model in MODELS if model.backend == "anthropic" and not model.name[-8:].isdigit()]
    found = [(model.name, dollars(model, used)) for model in models]
    return sorted(found, key=lambda each: each[1])
