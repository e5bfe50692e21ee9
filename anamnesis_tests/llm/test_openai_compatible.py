"""The backend for OpenAI-compatible services against a server on loopback that speaks their wire format."""

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
from anamnesis_pipeline.llm.openai_compatible import MAX_REPLY_BYTES, OpenAiCompatible
from anamnesis_pipeline.llm.prices import find_model
from anamnesis_pipeline.llm.prompts import SCHEMA
from anamnesis_tests.support.loopback import REQUEST, SUMMARY, Answer
from anamnesis_tests.support.openai_server import OpenAiServer, completion, error

Open = Callable[..., OpenAiCompatible]


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    with OpenAiServer().running() as server:
        yield server


@pytest.fixture
def opened(server: OpenAiServer) -> Iterator[Open]:
    model = find_model("openai", "qwen3", is_paid=True, input_price=1.0, output_price=2.0)
    with ExitStack() as stack:
        yield lambda key="sk-SECRET-KEY": stack.enter_context(
            closing(OpenAiCompatible(model, server.base_url, 30.0, key, is_paid=True))
        )


def test_an_answer_arrives_with_what_it_cost(server: OpenAiServer, opened: Open) -> None:
    server.respond(completion(SUMMARY))
    reply = opened().ask(REQUEST)
    assert reply.text == SUMMARY
    assert (reply.used.input_tokens, reply.used.output_tokens) == (900, 120)
    assert reply.used.dollars == pytest.approx((900 + 240) / 1e6)
    (received,) = server.received
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == "Bearer sk-SECRET-KEY"
    assert received.json["response_format"]["json_schema"]["schema"] == SCHEMA
    assert received.json["max_tokens"] == 1_500


def test_a_service_without_keys_gets_none(server: OpenAiServer, opened: Open) -> None:
    server.respond(completion(SUMMARY))
    opened(key=None).ask(REQUEST)
    assert "authorization" not in server.received[0].headers


def test_use_that_the_service_does_not_tell_is_counted_high(server: OpenAiServer, opened: Open) -> None:
    server.respond(completion(SUMMARY, usage=False))
    backend = opened()
    used = backend.ask(REQUEST).used
    assert used.input_tokens == backend.expected(REQUEST).input_tokens
    assert used.output_tokens == len(SUMMARY)


def test_a_server_that_refuses_the_schema_is_asked_for_any_json(server: OpenAiServer, opened: Open) -> None:
    server.respond(error(400, "invalid_request_error"), completion(SUMMARY), completion(SUMMARY))
    backend = opened()
    assert backend.ask(REQUEST).text == SUMMARY
    backend.ask(REQUEST)
    kinds = [received.json["response_format"]["type"] for received in server.received]
    assert kinds == ["json_schema", "json_object", "json_object"]


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (error(429, "requests", "rate_limit_exceeded", retry_after="3"), LlmBusy),
        (error(429, "insufficient_quota", "insufficient_quota"), LlmRefused),
        (error(401, "invalid_request_error", "invalid_api_key"), LlmRefused),
        (error(403, None), LlmRefused),
        (error(404, "invalid_request_error", "model_not_found"), LlmRefused),
        (error(400, "invalid_request_error", "context_length_exceeded"), LlmAnswerInvalid),
        (error(400, "invalid_request_error"), LlmPromptRefused),
        (error(400, "invalid_request_error", "content_filter"), LlmPromptRefused),
        (error(500, "server_error"), LlmUnavailable),
        (Answer(502, (b"<html>SECRET-PROMPT</html>",), content_type="text/html"), LlmUnavailable),
        (Answer(200, (b"<html>SECRET-PROMPT</html>",), content_type="text/html"), LlmAnswerInvalid),
        (Answer(200, (b'{"choices": [',)), LlmAnswerInvalid),
        (Answer(200, (b'{"choices": [',), after="break"), LlmUnavailable),
        (Answer(200, (b" " * (MAX_REPLY_BYTES + 1),)), LlmAnswerInvalid),
        (completion(SUMMARY[:20], "length"), LlmAnswerInvalid),
        (completion(None, "content_filter"), LlmAnswerInvalid),
        (completion(None, refusal="SECRET-PROMPT is not allowed"), LlmAnswerInvalid),
    ],
)
def test_each_failure_is_told_apart_and_quotes_nothing(
    server: OpenAiServer, opened: Open, answer: Answer, raised: type[AnamnesisError]
) -> None:
    server.respond(answer)
    with pytest.raises(raised) as caught:
        opened().ask(REQUEST)
    wait = float(answer.headers["retry-after"]) if "retry-after" in answer.headers else None
    assert getattr(caught.value, "retry_after_s", None) == wait
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))
