"""The real `ollama` library against servers on loopback that speak Ollama's wire format."""

import json
import traceback
from collections.abc import Callable, Iterator

import pytest

from anamnesis_pipeline.errors import (
    AnamnesisError,
    LlmAnswerInvalid,
    LlmBusy,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
)
from anamnesis_pipeline.summaries import ollama as ollama_module
from anamnesis_pipeline.summaries.base import Request
from anamnesis_pipeline.summaries.ollama import OllamaBackend
from anamnesis_pipeline.summaries.prices import find_model
from anamnesis_pipeline.summaries.prompt import SCHEMA
from anamnesis_tests.summaries.loopback import Answer, json_answer, refuses_to_follow
from anamnesis_tests.summaries.ollama_server import MODEL, OllamaServer, error, stream_error, streamed

ANSWER = json.dumps({"skip": False, "summary": "The key was missing.", "tags": [], "records": []})
Open = Callable[..., OllamaBackend]


@pytest.fixture
def open_ollama() -> Iterator[Open]:
    made: list[OllamaBackend] = []

    def open_one(*urls: str, timeout_s: float = 30.0, threads: int | None = None) -> OllamaBackend:
        made.append(OllamaBackend(find_model("ollama", MODEL, is_paid=False), urls, timeout_s, threads))
        return made[-1]

    yield open_one
    for backend in made:
        backend.close()


def test_an_answer_arrives_with_its_tokens(ollama_server: OllamaServer, open_ollama: Open, request_: Request) -> None:
    ollama_server.respond(streamed(ANSWER))
    reply = open_ollama(ollama_server.url).ask(request_)
    assert reply.text == ANSWER
    assert (reply.used.input_tokens, reply.used.output_tokens, reply.used.dollars) == (900, 120, 0.0)


def test_a_call_asks_for_the_schema_without_thinking_in_a_window_that_holds_the_prompt(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request
) -> None:
    ollama_server.respond(streamed(ANSWER))
    backend = open_ollama(ollama_server.url, threads=3)
    backend.ask(request_)
    backend.ask(Request("k", "system", "ü" * 12_000, 1_500))
    small, large = (received.json for received in ollama_server.received)
    assert ollama_server.received[0].path == "/api/chat"
    assert (small["model"], small["stream"], small["think"], small["format"]) == (MODEL, True, False, SCHEMA)
    assert small["options"] == {"temperature": 0, "num_ctx": 8192, "num_predict": 1500, "num_thread": 3}
    assert large["options"]["num_ctx"] == 16_384
    assert [message["role"] for message in small["messages"]] == ["system", "user"]


def test_the_server_chooses_the_threads_unless_told_and_always_on_another_machine(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request
) -> None:
    ollama_server.respond(streamed(ANSWER))
    open_ollama(ollama_server.url).ask(request_)
    no_loopback_by_its_name = ollama_server.url.replace("127.0.0.1", "127.1")
    open_ollama(no_loopback_by_its_name, threads=3).ask(request_)
    assert ["num_thread" in received.json["options"] for received in ollama_server.received] == [False, False]


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (error(404), LlmRefused),
        (error(401), LlmRefused),
        (error(400), LlmPromptRefused),
        (error(503), LlmBusy),
        (error(500), LlmUnavailable),
        (stream_error(), LlmUnavailable),
        (streamed(ANSWER, pieces=2), LlmUnavailable),
        (streamed(ANSWER, pieces=2, after="break"), LlmUnavailable),
        (streamed(ANSWER, pieces=0), LlmUnavailable),
        (Answer(200, (b'{"message": {"role": "assi',)), LlmUnavailable),
        (Answer(200, (b"[1, 2]\n",)), LlmUnavailable),
        (streamed(ANSWER, "length"), LlmAnswerInvalid),
    ],
)
def test_each_failure_is_told_apart_and_quotes_nothing(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request, answer: Answer, raised: type[AnamnesisError]
) -> None:
    ollama_server.respond(answer)
    with pytest.raises(raised) as caught:
        open_ollama(ollama_server.url).ask(request_)
    assert len(ollama_server.received) == 1
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_a_missing_model_names_the_command_that_gets_it(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request
) -> None:
    ollama_server.respond(error(404))
    with pytest.raises(LlmRefused, match=r"ollama pull llama3\.2"):
        open_ollama(ollama_server.url).ask(request_)


def test_a_stall_ends_with_the_time_out(ollama_server: OllamaServer, open_ollama: Open, request_: Request) -> None:
    ollama_server.respond(streamed(ANSWER, pieces=1, after="stall"))
    with pytest.raises(LlmUnavailable, match="silent"):
        open_ollama(ollama_server.url, timeout_s=1.0).ask(request_)


def test_dead_servers_are_passed_over_and_tried_again_later(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OllamaServer().running() as dying, OllamaServer().running() as broken:
        dying.respond(streamed(ANSWER, pieces=0, after="break"))
        broken.respond(error(500))
        ollama_server.respond(streamed(ANSWER))
        backend = open_ollama(dying.url, broken.url, ollama_server.url)
        asked = [dying, broken, ollama_server]
        backend.ask(request_)
        assert [len(server.received) for server in asked] == [1, 1, 1]
        backend.ask(request_)
        assert [len(server.received) for server in asked] == [1, 1, 2]
        monkeypatch.setattr(ollama_module, "DEAD_FOR_S", -1.0)
        backend._dead_until.clear()
        dying.respond(streamed(ANSWER))
        backend.ask(request_)
        assert [len(server.received) for server in asked] == [2, 1, 2]


def test_when_all_are_dead_all_are_named_and_all_are_tried_the_next_time(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request, free_port: int
) -> None:
    dead = f"http://127.0.0.1:{free_port}"
    backend = open_ollama(dead, ollama_server.url)
    ollama_server.respond(error(500), streamed(ANSWER))
    with pytest.raises(LlmUnavailable) as caught:
        backend.ask(request_)
    assert dead in str(caught.value)
    assert ollama_server.url in str(caught.value)
    assert backend.ask(request_).text == ANSWER


def test_a_model_that_only_a_dead_server_may_have_is_not_refused_for_good(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request, free_port: int
) -> None:
    ollama_server.respond(error(404))
    with pytest.raises(LlmUnavailable, match="ollama pull"):
        open_ollama(f"http://127.0.0.1:{free_port}", ollama_server.url).ask(request_)


@pytest.mark.parametrize(
    ("model", "urls", "is_local"),
    [
        ("llama3.2", ["http://127.0.0.1:11434", "http://localhost:11435"], True),
        ("llama3.2", ["http://127.0.0.1:11434", "http://192.168.0.9:11434"], False),
        ("gpt-oss:120b-cloud", ["http://127.0.0.1:11434"], False),
    ],
)
def test_text_stays_here_only_with_servers_on_this_machine_that_run_the_model_themselves(
    model: str, urls: list[str], is_local: bool
) -> None:
    backend = OllamaBackend(find_model("ollama", model, is_paid=False), urls, 5.0)
    assert backend.is_local is is_local
    backend.close()


def test_a_prompt_is_not_passed_on_to_another_host(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request
) -> None:
    other = OllamaServer()
    other.respond(streamed(ANSWER))
    refuses_to_follow(ollama_server, other, lambda: open_ollama(ollama_server.url).ask(request_))


def test_a_probe_is_not_passed_on_to_another_host_either(ollama_server: OllamaServer, open_ollama: Open) -> None:
    with OllamaServer().running() as other:
        other.respond(json_answer({"models": [{"model": MODEL}]}))
        ollama_server.respond(Answer(307, headers={"location": f"{other.url}/api/tags"}))
        with pytest.raises(LlmRefused, match="not followed"):
            open_ollama(ollama_server.url).probe(5.0)
    assert other.received == []
    assert [received.path for received in ollama_server.received] == ["/api/tags"]


@pytest.mark.parametrize("refusal", [400, 404])
def test_a_refusal_counts_for_nothing_while_another_server_is_down(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request, free_port: int, refusal: int
) -> None:
    dead = f"http://127.0.0.1:{free_port}"
    ollama_server.respond(error(refusal))
    backend = open_ollama(dead, ollama_server.url)
    for _ in range(2):  # the second time the dead one is not asked
        with pytest.raises(LlmUnavailable, match=dead):
            backend.ask(request_)
    assert len(ollama_server.received) == 2


def test_a_prompt_is_refused_when_every_server_is_there_and_one_refuses_it(
    ollama_server: OllamaServer, open_ollama: Open, request_: Request
) -> None:
    with OllamaServer().running() as without_model:
        without_model.respond(error(404))
        ollama_server.respond(error(400))
        with pytest.raises(LlmPromptRefused, match="ollama pull"):
            open_ollama(ollama_server.url, without_model.url).ask(request_)
