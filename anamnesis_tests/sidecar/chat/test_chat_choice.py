"""Which model answers where nobody chose one."""

from collections.abc import Sequence

import pytest

from anamnesis_pipeline.chat.factory import METERED, Offer
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.chat_choice import Choice, default_choice, first_choice, offered_choice, wanted_choice

WANTED = Choice("ollama", "llama3.2")
CLAUDE = Offer("claude_cli", True, ("haiku", "sonnet"), "subscription")
PAID = Offer("anthropic", True, ("claude-haiku-5-5",), METERED)
AWAY = Offer("ollama", False, (), "local", "it is not there")


def ollama(*models: str) -> Offer:
    return Offer("ollama", True, models, "local")


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ([CLAUDE, ollama("qwen3:4b", "llama3.2:latest")], Choice("ollama", "llama3.2:latest")),
        ([CLAUDE, ollama("nomic-embed-text", "qwen3:4b")], Choice("ollama", "qwen3:4b")),
        ([PAID, CLAUDE, AWAY], Choice("claude_cli", "haiku")),
        ([PAID, AWAY], Choice("anthropic", "claude-haiku-5-5")),
        ([AWAY], None),
        ([], None),
    ],
)
def test_the_wanted_model_comes_first_then_its_backend_then_others_and_what_is_paid_last(
    found: Sequence[Offer], chosen: Choice | None
) -> None:
    assert first_choice(found, WANTED, lambda _: True) == chosen


def test_what_may_not_answer_is_passed_over() -> None:
    assert first_choice([CLAUDE, PAID], WANTED, lambda choice: choice.model != "haiku") == Choice(
        "claude_cli", "sonnet"
    )
    here_only = Settings(local_only=True)
    assert offered_choice(here_only, [CLAUDE, ollama("gpt-oss:120b-cloud", "qwen3:4b")]) == Choice("ollama", "qwen3:4b")
    assert offered_choice(here_only, [CLAUDE]) is None
    assert default_choice(here_only, [CLAUDE]) == WANTED


def test_what_writes_the_summaries_is_not_swapped() -> None:
    settings = Settings(summarizer="claude_cli", summary_model="opus")
    assert wanted_choice(settings) == Choice("claude_cli", "opus")
    assert default_choice(settings, [ollama("llama3.2")]) == Choice("claude_cli", "opus")
    assert offered_choice(settings, [ollama("llama3.2")]) == Choice("ollama", "llama3.2"), (
        "the page shows what is there"
    )
