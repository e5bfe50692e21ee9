"""Several Ollama servers: each offers its models, the first that has the model answers, a chosen one alone."""

import asyncio
from collections.abc import Iterator

import pytest

from anamnesis_pipeline.errors import AnamnesisError, BadSetting, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm import ollama
from anamnesis_pipeline.llm.factory import Offer, offers, open_chat
from anamnesis_pipeline.llm.ollama import PATIENCE_S
from anamnesis_pipeline.llm.provider import LlmOptions
from anamnesis_tests.llm.answers import ASKED, answered, words_of
from anamnesis_tests.support.chat_services import WORDS, ChatServer
from anamnesis_tests.support.loopback import Answer, Received, json_answer

DEAD = "http://127.0.0.1:9"


class With(ChatServer):
    """Has these models."""

    stalls = False

    def __init__(self, *models: str) -> None:
        super().__init__()
        self.models = models

    def answer(self, request: Received) -> Answer:
        if request.path == "/api/tags" and self.stalls:
            return Answer(200, (b" ",), after="stall")
        if request.path == "/api/tags":
            return json_answer({"models": [{"name": name, "model": name} for name in self.models]})
        return super().answer(request)


@pytest.fixture
def first() -> Iterator[With]:
    with With("qwen3:4b", "llama3.2:latest").running() as server:
        yield server


@pytest.fixture
def second() -> Iterator[With]:
    with With("gemma3:4b", "qwen3:4b").running() as server:
        yield server


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next server is not asked instead of one that a busy machine only makes late."""
    monkeypatch.setattr(ollama, "PATIENCE_S", 30.0)


def options(*urls: str) -> LlmOptions:
    return LlmOptions(ollama_urls=urls, claude_command="/nowhere/claude")


def offered(*urls: str) -> list[Offer]:
    return [each for each in asyncio.run(offers(options(*urls))) if each.backend == "ollama"]


def test_the_models_of_all_are_offered_and_a_dead_one_is_told(first: With, second: With) -> None:
    found = offered(first.url, DEAD, second.url)
    assert [(each.worker_url, each.reachable, each.models) for each in found] == [
        (first.url, True, first.models),
        (DEAD, False, ()),
        (second.url, True, second.models),
    ]
    assert found[1].problem == f"ollama at {DEAD} cannot be reached; is it running?"
    assert [each.worker_url for each in offered(first.url)] == [""], "one alone need not be told apart"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("model", "wanted"), [("gemma3:4b", "second"), ("qwen3:4b", "first"), ("llama3.2", "first")])
def test_the_first_that_has_the_model_answers(model: str, wanted: str, first: With, second: With) -> None:
    backend = open_chat("ollama", model, options(DEAD, first.url, second.url))
    assert words_of(answered(backend)) == list(WORDS)
    assert (len(first.prompts), len(second.prompts)) == ((1, 0) if wanted == "first" else (0, 1))
    assert (first.prompts + second.prompts)[0]["model"] == model


def test_one_that_is_a_little_late_answers_before_one_that_hangs(second: With, monkeypatch: pytest.MonkeyPatch) -> None:
    look = ollama._look

    async def looking(url: str, model: str) -> AnamnesisError | None:
        await asyncio.sleep(3 * PATIENCE_S if url == second.url else 10_000)
        return await look(url, model)

    monkeypatch.setattr(ollama, "_look", looking)
    backend = open_chat("ollama", "gemma3:4b", options(DEAD, second.url))
    assert words_of(answered(backend)) == list(WORDS)


def test_where_none_has_the_model_each_says_why(first: With) -> None:
    with pytest.raises(LlmUnavailable) as told:
        answered(open_chat("ollama", "gemma3:4b", options(DEAD, first.url)))
    assert str(told.value) == (
        f"ollama at {DEAD} cannot be reached; is it running?; ollama at {first.url} has no model 'gemma3:4b'; run "
        "`ollama pull gemma3:4b` there"
    )
    with pytest.raises(LlmRefused, match="has no model"):
        answered(open_chat("ollama", "x", options(first.url, f"{first.url}/")))
    assert first.prompts == []


@pytest.mark.parametrize("status", [404, 500])
def test_a_chosen_one_answers_alone_even_where_another_could(status: int, first: With, second: With) -> None:
    backend = open_chat("ollama", "qwen3:4b", options(first.url, second.url), worker_url=second.url)
    assert words_of(answered(backend)) == list(WORDS)
    second.respond(json_answer({"error": "no"}, status))
    with pytest.raises(AnamnesisError, match=second.url):
        answered(open_chat("ollama", "qwen3:4b", options(first.url, second.url), worker_url=second.url))
    dead = open_chat("ollama", "qwen3:4b", options(first.url, DEAD), worker_url=DEAD)
    with pytest.raises(LlmUnavailable, match=f"ollama at {DEAD} cannot be reached"):
        answered(dead)
    assert first.received == []


def test_only_servers_of_the_settings_can_be_chosen(first: With) -> None:
    with pytest.raises(BadSetting, match="not one of ollama_urls"):
        open_chat("ollama", "qwen3:4b", options(first.url), worker_url="http://127.0.0.1:22")


def test_one_that_says_nothing_is_passed_over(first: With, second: With, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ollama, "PROBE_S", 600.0)
    first.stalls = True
    assert words_of(answered(open_chat("ollama", "qwen3:4b", options(first.url, second.url)))) == list(WORDS)
    assert len(second.prompts) == 1


def test_slow_one_that_alone_has_it_is_waited_for(first: With, second: With, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ollama, "PATIENCE_S", 0.0)
    assert words_of(answered(open_chat("ollama", "llama3.2", options(second.url, first.url)))) == list(WORDS)
    first.stalls, second.models = True, ()
    monkeypatch.setattr(ollama, "PROBE_S", 3.0)
    with pytest.raises(LlmUnavailable, match=f"{first.url} did not answer within 3 s; ollama at {second.url} has no"):
        answered(open_chat("ollama", "qwen3:4b", options(first.url, second.url)))


@pytest.mark.usefixtures("patient")
def test_the_one_that_was_found_answers_the_rounds_of_a_turn(first: With, second: With) -> None:
    backend = open_chat("ollama", "gemma3:4b", options(first.url, second.url))

    async def rounds() -> None:
        for _ in range(2):
            async for _ in backend.stream("", ASKED, tools=True):
                pass
        await backend.close_chat()

    asyncio.run(rounds())
    assert [each.path for each in first.received] == ["/api/tags"]
    assert [each.path for each in second.received] == ["/api/tags", "/api/chat", "/api/chat"]


def test_what_is_said_stays_here_only_where_all_servers_are(first: With) -> None:
    both = options(first.url, "http://198.51.100.7:11434")
    assert not open_chat("ollama", "qwen3:4b", both).is_local
    assert open_chat("ollama", "qwen3:4b", both, worker_url=first.url).is_local
