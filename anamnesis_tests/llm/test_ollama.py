"""The real `ollama` library against servers on loopback that speak Ollama's wire format."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from anamnesis_pipeline.errors import (
    AnamnesisError,
    LlmAnswerInvalid,
    LlmBusy,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
)
from anamnesis_pipeline.llm import ollama as ollama_module
from anamnesis_pipeline.llm.ollama import Ollama
from anamnesis_pipeline.llm.prices import find_model
from anamnesis_pipeline.llm.prompts import SCHEMA, Request
from anamnesis_tests.support.loopback import REQUEST, SUMMARY, Answer, json_answer
from anamnesis_tests.support.ollama_server import MODEL, OllamaServer, error, stream_error, streamed

Open = Callable[..., Ollama]


@pytest.fixture
def server() -> Iterator[OllamaServer]:
    with OllamaServer().running() as server:
        yield server


@pytest.fixture
def opened() -> Iterator[Open]:
    with ExitStack() as stack:
        model = find_model("ollama", MODEL, is_paid=False)
        yield lambda *urls, threads=None: stack.enter_context(closing(Ollama(model, urls, 30.0, threads)))


def test_an_answer_arrives_and_its_window_holds_the_prompt(server: OllamaServer, opened: Open) -> None:
    server.respond(streamed(SUMMARY))
    backend = opened(server.url, threads=3)
    reply = backend.ask(REQUEST)
    assert reply.text == SUMMARY
    assert (reply.used.input_tokens, reply.used.output_tokens, reply.used.dollars) == (900, 120, 0.0)
    backend.ask(Request("k", "system", "ü" * 12_000, 1_500))
    small, large = (received.json for received in server.received)
    assert server.received[0].path == "/api/chat"
    assert (small["model"], small["stream"], small["think"], small["format"]) == (MODEL, True, False, SCHEMA)
    assert small["options"] == {"temperature": 0, "num_ctx": 8192, "num_predict": 1500, "num_thread": 3}
    assert large["options"]["num_ctx"] == 16_384
    assert [message["role"] for message in small["messages"]] == ["system", "user"]


def test_a_server_chooses_the_threads_unless_told_and_far_away(server: OllamaServer, opened: Open) -> None:
    server.respond(streamed(SUMMARY))
    opened(server.url).ask(REQUEST)
    no_loopback_by_its_name = server.url.replace("127.0.0.1", "127.1")
    opened(no_loopback_by_its_name, threads=3).ask(REQUEST)
    assert ["num_thread" in received.json["options"] for received in server.received] == [False, False]


@pytest.mark.parametrize(
    ("answer", "raised", "told"),
    [
        (error(404), LlmRefused, r"ollama pull llama3\.2"),
        (error(401), LlmRefused, ""),
        (error(400), LlmPromptRefused, ""),
        (error(503), LlmBusy, ""),
        (error(500), LlmUnavailable, ""),
        (stream_error(), LlmUnavailable, ""),
        (streamed(SUMMARY, pieces=2), LlmUnavailable, ""),
        (streamed(SUMMARY, pieces=2, after="break"), LlmUnavailable, ""),
        (streamed(SUMMARY, pieces=0), LlmUnavailable, ""),
        (Answer(200, (b'{"message": {"role": "assi',)), LlmUnavailable, ""),
        (Answer(200, (b"[1, 2]\n",)), LlmUnavailable, ""),
        (streamed(SUMMARY, "length"), LlmAnswerInvalid, ""),
    ],
)
def test_each_failure_is_told_apart_and_quotes_nothing(
    server: OllamaServer, opened: Open, answer: Answer, raised: type[AnamnesisError], told: str
) -> None:
    server.respond(answer)
    with pytest.raises(raised, match=told or None) as caught:
        opened(server.url).ask(REQUEST)
    assert len(server.received) == 1
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_dead_servers_are_passed_over_for_a_while(
    server: OllamaServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OllamaServer().running() as dying, OllamaServer().running() as broken:
        dying.respond(streamed(SUMMARY, pieces=0, after="break"))
        broken.respond(error(500))
        server.respond(streamed(SUMMARY))
        backend = opened(dying.url, broken.url, server.url)
        asked = [dying, broken, server]
        backend.ask(REQUEST)
        assert [len(server.received) for server in asked] == [1, 1, 1]
        backend.ask(REQUEST)
        assert [len(server.received) for server in asked] == [1, 1, 2]
        monkeypatch.setattr(ollama_module, "DEAD_FOR_S", -1.0)
        backend._dead_until.clear()
        dying.respond(streamed(SUMMARY))
        backend.ask(REQUEST)
        assert [len(server.received) for server in asked] == [2, 1, 2]


def test_dead_servers_are_all_named_and_all_tried_again(server: OllamaServer, opened: Open, free_port: int) -> None:
    dead = f"http://127.0.0.1:{free_port}"
    backend = opened(dead, server.url)
    server.respond(error(500), streamed(SUMMARY))
    with pytest.raises(LlmUnavailable, match=dead) as caught:
        backend.ask(REQUEST)
    assert server.url in str(caught.value)
    assert backend.ask(REQUEST).text == SUMMARY


def test_a_probe_is_not_passed_on_to_another_host_either(server: OllamaServer, opened: Open) -> None:
    with OllamaServer().running() as other:
        other.respond(json_answer({"models": [{"model": MODEL}]}))
        server.respond(Answer(307, headers={"location": f"{other.url}/api/tags"}))
        with pytest.raises(LlmRefused, match="not followed"):
            opened(server.url).probe(5.0)
    assert other.received == []
    assert [received.path for received in server.received] == ["/api/tags"]


@pytest.mark.parametrize(("refusal", "told"), [(400, ""), (404, "ollama pull")])
def test_a_refusal_counts_for_nothing_while_one_is_down(
    server: OllamaServer, opened: Open, free_port: int, refusal: int, told: str
) -> None:
    dead = f"http://127.0.0.1:{free_port}"
    server.respond(error(refusal))
    backend = opened(dead, server.url)
    for _ in range(2):  # the second time the dead one is not asked
        with pytest.raises(LlmUnavailable, match=dead) as caught:
            backend.ask(REQUEST)
        assert told in str(caught.value)
    assert len(server.received) == 2


def test_a_prompt_is_refused_when_all_are_there_and_one_refuses(server: OllamaServer, opened: Open) -> None:
    with OllamaServer().running() as without_model:
        without_model.respond(error(404))
        server.respond(error(400))
        with pytest.raises(LlmPromptRefused, match="ollama pull"):
            opened(server.url, without_model.url).ask(REQUEST)
