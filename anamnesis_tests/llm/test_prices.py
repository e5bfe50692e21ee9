"""What calls of LLMs cost, and what summaries will probably take before anybody is asked."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.errors import LlmRefused
from anamnesis_pipeline.llm.prices import (
    ANSWER_TOKENS,
    DEFAULT_MODELS,
    MODELS,
    THINKING_TOKENS,
    dollars,
    expected_use,
    find_model,
    most_input_tokens,
    most_use,
    price_list,
)
from anamnesis_pipeline.llm.prompts import MAX_OUTPUT_TOKENS, Request, build_prompt
from anamnesis_pipeline.model import LlmUse, Part, Segment, SegmentKind


def test_each_backend_but_openai_has_a_default_that_is_known() -> None:
    assert DEFAULT_MODELS == {"claude_cli": "haiku", "ollama": "llama3.2", "anthropic": "claude-haiku-5-5"}
    assert len({(m.backend, m.name) for m in MODELS}) == len(MODELS)
    for model in MODELS:
        prices = [model.input_price, model.output_price, model.cache_write_price, model.cache_read_price]
        assert all(prices) if model.backend == "anthropic" else not any(prices)
        assert model.context_tokens >= 40_000


def test_a_known_price_wins_over_the_settings() -> None:
    known = find_model("anthropic", "claude-haiku-5-5", is_paid=True, input_price=99, output_price=99)
    assert known.input_price == 0.10
    unknown = find_model("anthropic", "claude-next", is_paid=True, input_price=3.0, output_price=15.0)
    assert unknown.dollars(1_000_000, 0, 0, 0) == 3.0
    assert unknown.dollars(0, 1_000_000, 1_000_000, 1_000_000) == pytest.approx(3.75 + 3.0 + 15.0)
    assert known.dollars(100, 100, 100, 100, batch=True) == known.dollars(100, 100, 100, 100) / 2
    assert find_model("ollama", "anything:7b", is_paid=False).dollars(10**9, 0, 0, 10**9) == 0


@pytest.mark.parametrize("prices", [{}, {"input_price": 1.0}, {"output_price": 1.0}])
def test_an_unknown_model_that_costs_money_needs_both_prices(prices: dict[str, float]) -> None:
    with pytest.raises(LlmRefused, match=r"'claude-next'.*llm_input_price and llm_output_price"):
        find_model("anthropic", "claude-next", is_paid=True, **prices)


@given(st.text(max_size=500), st.text(max_size=500), st.sampled_from(MODELS))
def test_no_call_uses_more_than_was_expected(system: str, text: str, model: object) -> None:
    request = Request("k", system, text, 700)
    sent = len((system + text).encode("utf-8", "replace"))
    assert most_input_tokens(request) > sent
    most = most_use(model, request)  # type: ignore[arg-type]
    worst = max(model.dollars(*in_, most.output_tokens) for in_ in ((sent, 0, 0), (0, sent, 0), (0, 0, sent)))  # type: ignore[attr-defined]
    assert most.dollars >= worst


# --- estimates -------------------------------------------------------------------------------------------


def part(text: str) -> Part:
    said = (Segment("k", "u", SegmentKind.PROMPT, 0, text, datetime(2026, 3, 1, tzinfo=UTC)),)
    return Part("p", "s", "f.jsonl", "session", "x", 0, "exchange", "acme", "", text[:100], said, closed=True)


@pytest.mark.parametrize("chars", [10, 3_000, 11_000])
def test_an_estimate_is_below_what_is_booked_and_of_its_order(chars: int) -> None:
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
