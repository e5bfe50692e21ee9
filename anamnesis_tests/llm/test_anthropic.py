"""The real `anthropic` library against a server on loopback that speaks the API's wire format."""

import logging
import traceback
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from anamnesis_pipeline.errors import (
    AnamnesisError,
    LlmAnswerInvalid,
    LlmBusy,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
)
from anamnesis_pipeline.llm.anthropic import Anthropic
from anamnesis_pipeline.llm.prompts import SCHEMA, Request
from anamnesis_pipeline.llm.provider import LlmOptions
from anamnesis_pipeline.model import LlmUse
from anamnesis_tests.support.anthropic_server import (
    AnthropicServer,
    error,
    errored,
    event,
    left_out,
    stream_error,
    streamed,
    succeeded,
)
from anamnesis_tests.support.loopback import REQUEST, SUMMARY, Answer

KEY = "sk-ant-SECRET-KEY"
EVENTS = "text/event-stream"
FIRST = streamed("").pieces[0]


def opened(server: AnthropicServer, model: str = "") -> Anthropic:
    return Anthropic.opened(LlmOptions(model, 5.0, anthropic_api_key=KEY, anthropic_url=server.url))


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    with AnthropicServer().running() as server:
        yield server


@pytest.fixture
def backend(server: AnthropicServer) -> Iterator[Anthropic]:
    made = opened(server)
    yield made
    made.close()


def requests(count: int) -> list[Request]:
    return [Request(f"{n:032x}", "Summarize.", f"text {n}", 1_500) for n in range(count)]


def test_an_answer_arrives_with_what_it_cost(server: AnthropicServer, backend: Anthropic) -> None:
    server.respond(streamed(SUMMARY))
    reply = backend.ask(REQUEST)
    assert reply.text == SUMMARY
    assert (reply.used.calls, reply.used.input_tokens, reply.used.output_tokens) == (1, 1640, 80)
    assert reply.used.dollars == pytest.approx((40 * 0.10 + 600 * 0.125 + 1000 * 0.01 + 80 * 0.50) / 1e6)
    expected = backend.expected(REQUEST)
    assert expected.dollars > 0
    assert expected.output_tokens == 1_500
    (received,) = server.received
    assert received.path == "/v1/messages"
    assert KEY in received.headers.get("authorization", received.headers.get("x-api-key", ""))
    assert received.json["stream"] is True
    assert received.json["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert received.json["system"] == [{"type": "text", "text": "Summarize.", "cache_control": {"type": "ephemeral"}}]
    assert received.json["thinking"] == {"type": "disabled"}
    assert received.json["max_tokens"] == 1_500


def test_a_model_that_always_thinks_gets_room_for_it(server: AnthropicServer) -> None:
    server.respond(streamed(SUMMARY))
    with closing(opened(server, "claude-opus-5-5")) as backend:
        backend.ask(REQUEST)
        sent = server.received[0].json
        assert "thinking" not in sent
        assert sent["output_config"]["effort"] == "low"
        assert sent["max_tokens"] == backend.expected(REQUEST).output_tokens == 5_500


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (error(429, "rate_limit_error", retry_after="7"), LlmBusy),
        (error(429, "rate_limit_error"), LlmBusy),
        (error(529, "overloaded_error"), LlmBusy),
        (stream_error("overloaded_error"), LlmBusy),
        (error(429, "rate_limit_error", {"error_code": "enforced_spend_limit_reached"}), LlmRefused),
        (error(401, "authentication_error"), LlmRefused),
        (error(402, "billing_error"), LlmRefused),
        (error(403, "permission_error"), LlmRefused),
        (error(404, "not_found_error"), LlmRefused),
        (error(400, "invalid_request_error"), LlmPromptRefused),
        (error(422, "invalid_request_error"), LlmPromptRefused),
        (stream_error("invalid_request_error"), LlmPromptRefused),
        (error(400, "invalid_request_error", message="Your credit balance is too low (SECRET)."), LlmRefused),
        (error(413, "request_too_large"), LlmAnswerInvalid),
        (error(500, "api_error"), LlmUnavailable),
        (error(504, "timeout_error"), LlmUnavailable),
        (stream_error("api_error"), LlmUnavailable),
        (streamed(SUMMARY, "max_tokens"), LlmAnswerInvalid),
        (streamed(SUMMARY, "refusal"), LlmAnswerInvalid),
        (streamed(SUMMARY, pieces=4), LlmUnavailable),
        (streamed(SUMMARY, pieces=4, after="break"), LlmUnavailable),
        (streamed(SUMMARY, pieces=0), LlmUnavailable),
        (Answer(200, (b'event: message_start\ndata: {"type": "mes\n\n',), content_type=EVENTS), LlmUnavailable),
        (Answer(200, (b"event: message_start\ndata: [1]\n\n",), content_type=EVENTS), LlmUnavailable),
        (Answer(200, (streamed("").pieces[-1],), content_type=EVENTS), LlmUnavailable),
        (Answer(200, (FIRST, event("content_block_delta", index=7)), content_type=EVENTS), LlmUnavailable),
        (Answer(200, (b"<html>SECRET-PROMPT</html>",), content_type="text/html"), LlmUnavailable),
        (Answer(502, (b"<html>SECRET-PROMPT</html>",), content_type="text/html"), LlmUnavailable),
        (streamed(SUMMARY, pieces=0, after="break"), LlmUnavailable),
    ],
)
def test_each_failure_is_told_apart_and_quotes_nothing(
    server: AnthropicServer, backend: Anthropic, answer: Answer, raised: type[AnamnesisError]
) -> None:
    server.respond(answer)
    with pytest.raises(raised) as caught:
        backend.ask(REQUEST)
    wait = float(answer.headers["retry-after"]) if "retry-after" in answer.headers else None
    assert getattr(caught.value, "retry_after_s", None) == wait
    assert len(server.received) == 1
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_no_log_holds_the_key_or_the_prompt(
    server: AnthropicServer, backend: Anthropic, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.respond(streamed(SUMMARY), error(401, "authentication_error"))
    backend.ask(REQUEST)
    with pytest.raises(LlmRefused):
        backend.ask(REQUEST)
    assert "SECRET" not in caplog.text


def test_a_batch_is_collected_at_half_the_price(server: AnthropicServer, backend: Anthropic) -> None:
    asked = requests(5)
    batch_id = backend.submit(asked)
    assert [entry["custom_id"] for entry in server.batches[batch_id]] == [r.key for r in asked]
    assert server.batches[batch_id][1]["params"]["messages"][0]["content"] == "text 1"
    assert backend.collect(batch_id, backend.model) is None

    keys = [r.key for r in asked]
    server.finish(
        batch_id,
        errored(keys[3]),
        succeeded(keys[1], SUMMARY),
        left_out(keys[2]),
        succeeded(keys[0], "", "refusal"),
        left_out(keys[4], "canceled"),
    )
    found = backend.collect(batch_id, backend.model)
    assert found.keys() == set(keys)
    good = found[keys[1]]
    assert (good.text, good.problem) == (SUMMARY, "")
    assert good.used.dollars == pytest.approx((40 * 0.10 + 600 * 0.125 + 1000 * 0.01 + 80 * 0.50) / 2e6)
    refused = found[keys[0]]
    assert (refused.text, refused.used) == ("", good.used), "what it refused is paid for"
    assert "refused" in refused.problem
    assert [found[key].used for key in keys[2:]] == [LlmUse()] * 3
    assert "expired" in found[keys[2]].problem
    assert "invalid_request_error" in found[keys[3]].problem
    assert "canceled" in found[keys[4]].problem
    assert "SECRET" not in "".join(map(str, found.values()))


def test_a_batch_costs_what_its_own_model_costs(server: AnthropicServer, backend: Anthropic) -> None:
    (asked,) = requests(1)
    batch_id = backend.submit([asked])
    server.finish(batch_id, succeeded(asked.key, SUMMARY))
    found = backend.collect(batch_id, "claude-opus-5-5")
    assert found[asked.key].used.dollars == pytest.approx((40 * 4.0 + 600 * 5.0 + 1000 * 0.2 + 80 * 20.0) / 2e6)
    with pytest.raises(LlmRefused, match="llm_input_price"):
        backend.collect(batch_id, "claude-unheard-of")


def test_a_batch_whose_results_are_gone_is_given_up(server: AnthropicServer, backend: Anthropic) -> None:
    batch_id = backend.submit(requests(2))
    server.finish(batch_id)
    server.archived.add(batch_id)
    with pytest.raises(LlmAnswerInvalid, match=batch_id):
        backend.collect(batch_id, backend.model)
    with pytest.raises(LlmAnswerInvalid, match="msgbatch_99"):
        backend.collect("msgbatch_99", backend.model)


def test_results_that_break_off_are_collected_later(server: AnthropicServer, backend: Anthropic) -> None:
    (asked,) = requests(1)
    batch_id = backend.submit([asked])
    server.finish(batch_id, succeeded(asked.key, SUMMARY))
    server.tail = b'{"custom_id": "torn", "resu'
    with pytest.raises(LlmUnavailable):
        backend.collect(batch_id, backend.model)
    server.tail = b""
    assert backend.collect(batch_id, backend.model)


def test_a_batch_is_found_again_by_what_it_holds(server: AnthropicServer, backend: Anthropic) -> None:
    ours, others = requests(3), [Request("f" * 32, "s", "t", 10)] * 3
    keys = [r.key for r in ours]
    assert backend.find(keys, ()) is None
    first = backend.submit(ours)
    assert backend.find(keys, ()) == first
    assert backend.find(keys, {first}) is None, "what is known is not taken for another"
    assert backend.find(keys[:2], ()) is None
    second = backend.submit(others)
    server.finish(second, *(succeeded(r.key, SUMMARY) for r in others))
    server.finish(first, *(succeeded(key, SUMMARY) for key in keys))
    assert backend.find(keys, ()) == first
    server.created_at -= timedelta(days=2)
    assert backend.find(keys, ()) is None


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (error(429, "rate_limit_error", retry_after="7"), LlmBusy),
        (error(401, "authentication_error"), LlmRefused),
        (error(500, "api_error"), LlmUnavailable),
        (Answer(200, (b'{"id": "msg',), after="break"), LlmUnavailable),
    ],
)
def test_calls_about_batches_fail_as_single_calls_do(
    server: AnthropicServer, backend: Anthropic, answer: Answer, raised: type[AnamnesisError]
) -> None:
    asked = requests(2)
    batch_id = backend.submit(asked)
    server.refusal = answer
    keys = [r.key for r in asked]
    calls = (
        lambda: backend.submit(asked),
        lambda: backend.collect(batch_id, backend.model),
        lambda: backend.find(keys, ()),
    )
    for call in calls:
        with pytest.raises(raised) as caught:
            call()
        assert getattr(caught.value, "retry_after_s", None) == (7.0 if raised is LlmBusy else None)
        assert "SECRET" not in "".join(traceback.format_exception(caught.value))
