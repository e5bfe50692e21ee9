"""Estimate of the tokens and cost of summaries, before any call. Pure."""

import json
from collections.abc import Iterable

from anamnesis_pipeline.llm.prices import MODELS, PER_CALL_TOKENS, THINKING_TOKENS, Model
from anamnesis_pipeline.llm.summaries.prompt import SCHEMA, build_prompt
from anamnesis_pipeline.model import LlmUse, Part

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
