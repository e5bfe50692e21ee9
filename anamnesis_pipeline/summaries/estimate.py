"""What summaries will probably use and cost, before any is asked for. Pure."""

import json
from collections.abc import Iterable

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.summaries.prices import MODELS, PER_CALL_TOKENS, THINKING_TOKENS, Model
from anamnesis_pipeline.summaries.prompt import SCHEMA, build_prompt
from anamnesis_pipeline.summary_model import LlmUse

BYTES_A_TOKEN = 3.5
"""Of instructions, talk and code together; a tokenizer makes fewer of code, more of plain English."""
ANSWER_TOKENS = 300
"""Two to four sentences, some tags and a record or two, with the JSON around them. What a call may use at most, which
is what is booked, is five times that.
"""


def expected_use(parts: Iterable[Part]) -> LlmUse:
    """Calls and tokens of one call for each of these parts, of a model that does not think; no dollars."""
    used = LlmUse()
    for part in parts:
        prompt = build_prompt(part)
        text = prompt.system + prompt.text + json.dumps(SCHEMA)
        tokens_in = int(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN) + PER_CALL_TOKENS
        used += LlmUse(1, tokens_in, ANSWER_TOKENS)
    return used


def dollars(model: Model, used: LlmUse) -> float:
    """What that costs by single calls; of a model that always thinks with as much thinking as it may do."""
    thought = used.calls * THINKING_TOKENS if model.thinking == "always" else 0
    return model.dollars(used.input_tokens, 0, 0, used.output_tokens + thought)


def price_list(used: LlmUse) -> list[tuple[str, float]]:
    """Name and dollars of each model of the Claude API that is known, without names that say its day, too; the cheapest
    first.
    """
    models = [model for model in MODELS if model.backend == "anthropic" and not model.name[-8:].isdigit()]
    found = [(model.name, dollars(model, used)) for model in models]
    return sorted(found, key=lambda each: each[1])
