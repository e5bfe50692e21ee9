"""The backend for OpenAI-compatible services against a server on loopback that speaks their wire format."""

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
from anamnesis_pipeline.summaries.base import Request
from anamnesis_pipeline.summaries.openai_compatible import MAX_REPLY_BYTES, OpenAiBackend
from anamnesis_pipeline.summaries.prices import find_model
from anamnesis_pipeline.summaries.prompt import SCHEMA
from anamnesis_tests.summaries.loopback import Answer, refuses_to_follow
from anamnesis_tests.summaries.openai_server import OpenAiServer, completion, error

ANSWER = '{"skip": false, "summary": "The key was missing.", "tags": [], "records": []}'
Open = Callable[..., OpenAiBackend]


@pytest.fixture
def open_openai(openai_server: OpenAiServer) -> Iterator[Open]:
    made: list[OpenAiBackend] = []

    def open_one(timeout_s: float = 30.0, key: str | None = "sk-SECRET-KEY", price: float = 1.0) -> OpenAiBackend:
        model = find_model("openai", "qwen3", is_paid=True, input_price=price, output_price=price * 2)
        made.append(OpenAiBackend(model, openai_server.base_url, timeout_s, key, is_paid=bool(price)))
        return made[-1]

    yield open_one
    for backend in made:
        backend.close()


def test_an_answer_arrives_with_what_it_cost(openai_server: OpenAiServer, open_openai: Open, request_: Request) -> None:
    openai_server.respond(completion(ANSWER))
    reply = open_openai().ask(request_)
    assert reply.text == ANSWER
    assert (reply.used.input_tokens, reply.used.output_tokens) == (900, 120)
    assert reply.used.dollars == pytest.approx((900 + 240) / 1e6)
    (received,) = openai_server.received
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == "Bearer sk-SECRET-KEY"
    assert received.json["response_format"]["json_schema"]["schema"] == SCHEMA
    assert received.json["max_tokens"] == 1_500


def test_a_service_without_keys_gets_none(openai_server: OpenAiServer, open_openai: Open, request_: Request) -> None:
    openai_server.respond(completion(ANSWER))
    open_openai(key=None).ask(request_)
    assert "authorization" not in openai_server.received[0].headers


def test_use_that_the_service_does_not_tell_is_counted_high(
    openai_server: OpenAiServer, open_openai: Open, request_: Request
) -> None:
    openai_server.respond(completion(ANSWER, usage=False))
    backend = open_openai()
    used = backend.ask(request_).used
    assert used.input_tokens == backend.expected(request_).input_tokens
    assert used.output_tokens == len(ANSWER)


def test_a_server_that_refuses_the_schema_is_asked_for_any_json_from_then_on(
    openai_server: OpenAiServer, open_openai: Open, request_: Request
) -> None:
    openai_server.respond(error(400, "invalid_request_error"), completion(ANSWER), completion(ANSWER))
    backend = open_openai()
    assert backend.ask(request_).text == ANSWER
    backend.ask(request_)
    kinds = [received.json["response_format"]["type"] for received in openai_server.received]
    assert kinds == ["json_schema", "json_object", "json_object"]


@pytest.mark.parametrize(
    ("answer", "raised", "wait"),
    [
        (error(429, "requests", "rate_limit_exceeded", retry_after="3"), LlmBusy, 3.0),
        (error(429, "insufficient_quota", "insufficient_quota"), LlmRefused, None),
        (error(401, "invalid_request_error", "invalid_api_key"), LlmRefused, None),
        (error(403, None), LlmRefused, None),
        (error(404, "invalid_request_error", "model_not_found"), LlmRefused, None),
        (error(400, "invalid_request_error", "context_length_exceeded"), LlmAnswerInvalid, None),
        (error(400, "invalid_request_error"), LlmPromptRefused, None),
        (error(400, "invalid_request_error", "content_filter"), LlmPromptRefused, None),
        (error(500, "server_error"), LlmUnavailable, None),
        (Answer(502, (b"<html>SECRET-PROMPT</html>",), content_type="text/html"), LlmUnavailable, None),
        (Answer(200, (b"<html>SECRET-PROMPT</html>",), content_type="text/html"), LlmAnswerInvalid, None),
        (Answer(200, (b'{"choices": [',)), LlmAnswerInvalid, None),
        (Answer(200, (b'{"choices": [',), after="break"), LlmUnavailable, None),
        (Answer(200, (b" " * (MAX_REPLY_BYTES + 1),)), LlmAnswerInvalid, None),
        (completion(ANSWER[:20], "length"), LlmAnswerInvalid, None),
        (completion(None, "content_filter"), LlmAnswerInvalid, None),
        (completion(None, refusal="SECRET-PROMPT is not allowed"), LlmAnswerInvalid, None),
    ],
)
def test_each_failure_is_told_apart_and_quotes_nothing(
    openai_server: OpenAiServer,
    open_openai: Open,
    request_: Request,
    answer: Answer,
    raised: type[AnamnesisError],
    wait: float | None,
) -> None:
    openai_server.respond(answer)
    with pytest.raises(raised) as caught:
        open_openai().ask(request_)
    assert getattr(caught.value, "retry_after_s", None) == wait
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("pieces", [(), (b'{"choices": [',)])
def test_a_stall_ends_with_the_time_out(
    openai_server: OpenAiServer, open_openai: Open, request_: Request, pieces: tuple[bytes, ...]
) -> None:
    openai_server.respond(Answer(200, pieces, after="stall"))
    with pytest.raises(LlmUnavailable, match="too long"):
        open_openai(timeout_s=1.0).ask(request_)


def test_nobody_listening_is_said_to_be_out_of_reach(request_: Request, free_port: int) -> None:
    model = find_model("openai", "qwen3", is_paid=False)
    backend = OpenAiBackend(model, f"http://127.0.0.1:{free_port}/v1", 2.0, None, is_paid=False)
    with pytest.raises(LlmUnavailable, match="cannot be reached"):
        backend.ask(request_)
    backend.close()


def test_a_prompt_is_not_passed_on_to_another_host(
    openai_server: OpenAiServer, open_openai: Open, request_: Request
) -> None:
    other = OpenAiServer()
    other.respond(completion(ANSWER))
    refuses_to_follow(openai_server, other, lambda: open_openai().ask(request_), status=308)
