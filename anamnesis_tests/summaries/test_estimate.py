"""What summaries will probably take, before anybody is asked."""

from datetime import UTC, datetime

import pytest

from anamnesis_pipeline.model import Part, Segment, SegmentKind
from anamnesis_pipeline.summaries.base import Request
from anamnesis_pipeline.summaries.estimate import ANSWER_TOKENS, dollars, expected_use, price_list
from anamnesis_pipeline.summaries.prices import THINKING_TOKENS, find_model, most_use
from anamnesis_pipeline.summaries.prompt import MAX_OUTPUT_TOKENS, build_prompt
from anamnesis_pipeline.summary_model import LlmUse


def part(text: str) -> Part:
    said = (Segment("k", "u", SegmentKind.PROMPT, 0, text, datetime(2026, 3, 1, tzinfo=UTC)),)
    return Part("p", "s", "f.jsonl", "session", "x", 0, "exchange", "acme", "", text[:100], said, closed=True)


@pytest.mark.parametrize("chars", [10, 3_000, 11_000])
def test_it_is_below_what_is_booked_and_of_its_order(chars: int) -> None:
    one = part("word " * (chars // 5))
    prompt = build_prompt(one)
    haiku = find_model("anthropic", "claude-haiku-5-5", is_paid=True)
    most = most_use(haiku, Request("k", prompt.system, prompt.text, MAX_OUTPUT_TOKENS))
    used = expected_use([one])
    assert most.input_tokens / 5 < used.input_tokens < most.input_tokens
    assert used.output_tokens < most.output_tokens
    assert 0 < dollars(haiku, used) < most.dollars


def test_parts_add_up_and_a_model_that_thinks_costs_its_thinking() -> None:
    used = expected_use([part("a"), part("a")])
    assert (used.calls, used.output_tokens) == (2, 2 * ANSWER_TOKENS)
    assert used.input_tokens == 2 * expected_use([part("a")]).input_tokens
    opus = find_model("anthropic", "claude-opus-5-5", is_paid=True)
    assert opus.thinking == "always"
    assert dollars(opus, LlmUse(1, 0, 0)) == pytest.approx(THINKING_TOKENS * opus.output_price / 1e6)


def test_the_cheapest_is_named_first() -> None:
    prices = price_list(LlmUse(10, 100_000, 3_000))
    assert prices[0] == ("claude-haiku-5-5", pytest.approx((100_000 * 0.10 + 3_000 * 0.50) / 1e6))
    assert [price for _, price in prices] == sorted(price for _, price in prices)
    assert len({name for name, _ in prices}) == len(prices)
