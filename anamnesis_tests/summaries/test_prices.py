import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.errors import LlmRefused
from anamnesis_pipeline.summaries.base import Request
from anamnesis_pipeline.summaries.prices import DEFAULT_MODELS, MODELS, find_model, most_input_tokens, most_use


def test_each_backend_but_openai_has_a_default_that_is_known() -> None:
    assert DEFAULT_MODELS == {
        "claude_cli": "haiku", "ollama": "llama3.2", "anthropic": "claude-haiku-5-5",
    }  # fmt: skip
    assert len({(m.backend, m.name) for m in MODELS}) == len(MODELS)


def test_paid_models_have_all_prices_and_free_ones_none() -> None:
    for model in MODELS:
        prices = [model.input_price, model.output_price, model.cache_write_price, model.cache_read_price]
        assert all(prices) if model.backend == "anthropic" else not any(prices)
        assert model.context_tokens >= 40_000


def test_a_known_price_wins_over_the_settings_and_an_unknown_model_takes_them() -> None:
    known = find_model("anthropic", "claude-haiku-5-5", is_paid=True, input_price=99, output_price=99)
    assert known.input_price == 0.10
    unknown = find_model("anthropic", "claude-next", is_paid=True, input_price=3.0, output_price=15.0)
    assert unknown.dollars(1_000_000, 0, 0, 0) == 3.0
    assert unknown.dollars(0, 1_000_000, 1_000_000, 1_000_000) == pytest.approx(3.75 + 3.0 + 15.0)


@pytest.mark.parametrize("prices", [{}, {"input_price": 1.0}, {"output_price": 1.0}])
def test_an_unknown_model_that_costs_money_needs_both_prices(prices: dict[str, float]) -> None:
    with pytest.raises(LlmRefused, match=r"'claude-next'.*llm_input_price and llm_output_price"):
        find_model("anthropic", "claude-next", is_paid=True, **prices)


def test_an_unknown_model_of_a_free_backend_is_free() -> None:
    assert find_model("ollama", "anything:7b", is_paid=False).dollars(10**9, 0, 0, 10**9) == 0


def test_a_batch_of_claude_costs_half() -> None:
    model = find_model("anthropic", "claude-opus-5-5", is_paid=True)
    assert model.dollars(100, 100, 100, 100, batch=True) == model.dollars(100, 100, 100, 100) / 2


@given(st.text(max_size=500), st.text(max_size=500), st.sampled_from(MODELS))
def test_no_call_uses_more_than_was_expected(system: str, text: str, model: object) -> None:
    request = Request("k", system, text, 700)
    sent = len((system + text).encode("utf-8", "replace"))
    assert most_input_tokens(request) > sent
    most = most_use(model, request)  # type: ignore[arg-type]
    worst = max(model.dollars(*in_, most.output_tokens) for in_ in ((sent, 0, 0), (0, sent, 0), (0, 0, sent)))  # type: ignore[attr-defined]
    assert most.dollars >= worst
