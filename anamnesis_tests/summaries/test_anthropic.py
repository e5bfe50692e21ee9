"""The real `anthropic` library against a server on loopback that speaks the API's wire format."""

import logging
import traceback
from collections.abc import Iterator
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
from anamnesis_pipeline.summaries.anthropic import AnthropicBackend
from anamnesis_pipeline.summaries.base import Request
from anamnesis_pipeline.summaries.prices import Model, find_model
from anamnesis_pipeline.summaries.prompt import SCHEMA
from anamnesis_pipeline.summary_model import LlmUse
from anamnesis_tests.summaries.anthropic_server import (
    AnthropicServer,
    error,
    errored,
    event,
    left_out,
    stream_error,
    streamed,
    succeeded,
)
from anamnesis_tests.summaries.loopback import Answer, refuses_to_follow

ANSWER = '{"skip": false, "summary": "The key was missing.", "tags": [], "records": []}'
KEY = "sk-ant-SECRET-KEY"
EVENTS = "text/event-stream"


def find(name: str) -> Model:
    return find_model("anthropic", name, is_paid=True)


@pytest.fixture
def backend(anthropic_server: AnthropicServer) -> Iterator[AnthropicBackend]:
    made = AnthropicBackend(find("claude-haiku-5-5"), KEY, 5.0, anthropic_server.url, find=find)
    yield made
    made.close()


def requests(count: int) -> list[Request]:
    return [Request(f"{n:032x}", "Summarize.", f"text {n}", 1_500) for n in range(count)]


def test_an_answer_arrives_with_what_it_cost(
    anthropic_server: AnthropicServer, backend: AnthropicBackend, request_: Request
) -> None:
    anthropic_server.respond(streamed(ANSWER))
    reply = backend.ask(request_)
    assert reply.text == ANSWER
    assert (reply.used.calls, reply.used.input_tokens, reply.used.output_tokens) == (1, 1640, 80)
    assert reply.used.dollars == pytest.approx((40 * 0.10 + 600 * 0.125 + 1000 * 0.01 + 80 * 0.50) / 1e6)
    expected = backend.expected(request_)
    assert expected.dollars > 0
    assert expected.output_tokens == 1_500


def test_a_call_streams_asks_for_the_schema_and_marks_the_system_text_for_the_cache(
    anthropic_server: AnthropicServer, backend: AnthropicBackend, request_: Request
) -> None:
    anthropic_server.respond(streamed(ANSWER))
    backend.ask(request_)
    (received,) = anthropic_server.received
    assert received.path == "/v1/messages"
    assert KEY in received.headers.get("authorization", received.headers.get("x-api-key", ""))
    assert received.json["stream"] is True
    assert received.json["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert received.json["system"] == [{"type": "text", "text": "Summarize.", "cache_control": {"type": "ephemeral"}}]
    assert received.json["thinking"] == {"type": "disabled"}
    assert received.json["max_tokens"] == 1_500


def test_a_model_that_always_thinks_gets_little_effort_and_room_for_it(
    anthropic_server: AnthropicServer, request_: Request
) -> None:
    model = find_model("anthropic", "claude-opus-5-5", is_paid=True)
    backend = AnthropicBackend(model, KEY, 5.0, anthropic_server.url, find=find)
    anthropic_server.respond(streamed(ANSWER))
    backend.ask(request_)
    backend.close()
    sent = anthropic_server.received[0].json
    assert "thinking" not in sent
    assert sent["output_config"]["effort"] == "low"
    assert sent["max_tokens"] == backend.expected(request_).output_tokens == 5_500


@pytest.mark.parametrize(
    ("answer", "raised", "wait"),
    [
        (error(429, "rate_limit_error", retry_after="7"), LlmBusy, 7.0),
        (error(429, "rate_limit_error"), LlmBusy, None),
        (error(529, "overloaded_error"), LlmBusy, None),
        (stream_error("overloaded_error"), LlmBusy, None),
        (error(429, "rate_limit_error", {"error_code": "enforced_spend_limit_reached"}), LlmRefused, None),
        (error(401, "authentication_error"), LlmRefused, None),
        (error(402, "billing_error"), LlmRefused, None),
        (error(403, "permission_error"), LlmRefused, None),
        (error(404, "not_found_error"), LlmRefused, None),
        (error(400, "invalid_request_error"), LlmPromptRefused, None),
        (error(422, "invalid_request_error"), LlmPromptRefused, None),
        (stream_error("invalid_request_error"), LlmPromptRefused, None),
        (error(400, "invalid_request_error", message="Your credit balance is too low (SECRET)."), LlmRefused, None),
        (error(413, "request_too_large"), LlmAnswerInvalid, None),
        (error(500, "api_error"), LlmUnavailable, None),
        (error(504, "timeout_error"), LlmUnavailable, None),
        (stream_error("api_error"), LlmUnavailable, None),
        (streamed(ANSWER, "max_tokens"), LlmAnswerInvalid, None),
        (streamed(ANSWER, "refusal"), LlmAnswerInvalid, None),
        (streamed(ANSWER, pieces=4), LlmUnavailable, None),
        (streamed(ANSWER, pieces=4, after="break"), LlmUnavailable, None),
        (streamed(ANSWER, pieces=0), LlmUnavailable, None),
        (Answer(200, (b'event: message_start\ndata: {"type": "mes\n\n',), content_type=EVENTS), LlmUnavailable, None),
        (Answer(200, (b"event: message_start\ndata: [1]\n\n",), content_type=EVENTS), LlmUnavailable, None),
        (Answer(200, (streamed("").pieces[-1],), content_type=EVENTS), LlmUnavailable, None),
        (
            Answer(200, (streamed("").pieces[0], event("content_block_delta", index=7)), content_type=EVENTS),
            LlmUnavailable,
            None,
        ),
        (Answer(200, (b"<html>SECRET-PROMPT</html>",), content_type="text/html"), LlmUnavailable, None),
        (Answer(502, (b"<html>SECRET-PROMPT</html>",), content_type="text/html"), LlmUnavailable, None),
        (streamed(ANSWER, pieces=0, after="break"), LlmUnavailable, None),
    ],
)
def test_each_failure_is_told_apart_asked_once_and_quotes_nothing(
    anthropic_server: AnthropicServer,
    backend: AnthropicBackend,
    request_: Request,
    answer: object,
    raised: type[AnamnesisError],
    wait: float | None,
) -> None:
    anthropic_server.respond(answer)  # type: ignore[arg-type]
    with pytest.raises(raised) as caught:
        backend.ask(request_)
    assert getattr(caught.value, "retry_after_s", None) == wait
    assert len(anthropic_server.received) == 1
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("pieces", [0, 4])
def test_a_stall_ends_with_the_time_out(anthropic_server: AnthropicServer, request_: Request, pieces: int) -> None:
    model = find_model("anthropic", "claude-haiku-5-5", is_paid=True)
    backend = AnthropicBackend(model, KEY, 0.3, anthropic_server.url, find=find)
    anthropic_server.respond(streamed(ANSWER, after="stall", pieces=pieces))
    with pytest.raises(LlmUnavailable, match="silent"):
        backend.ask(request_)
    backend.close()


def test_nobody_listening_is_said_to_be_out_of_reach(request_: Request, free_port: int) -> None:
    model = find_model("anthropic", "claude-haiku-5-5", is_paid=True)
    backend = AnthropicBackend(model, KEY, 2.0, f"http://127.0.0.1:{free_port}", find=find)
    with pytest.raises(LlmUnavailable, match="cannot be reached"):
        backend.ask(request_)
    backend.close()


def test_text_that_is_no_json_comes_back_as_it_is(
    anthropic_server: AnthropicServer, backend: AnthropicBackend, request_: Request
) -> None:
    anthropic_server.respond(streamed("Sorry, here is the summary: none"))
    assert backend.ask(request_).text == "Sorry, here is the summary: none"


def test_no_log_holds_the_key_or_the_prompt(
    anthropic_server: AnthropicServer, backend: AnthropicBackend, request_: Request, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    anthropic_server.respond(streamed(ANSWER), error(401, "authentication_error"))
    backend.ask(request_)
    with pytest.raises(LlmRefused):
        backend.ask(request_)
    assert "SECRET" not in caplog.text


def test_a_batch_is_handed_in_awaited_and_collected_at_half_the_price(
    anthropic_server: AnthropicServer, backend: AnthropicBackend
) -> None:
    asked = requests(5)
    batch_id = backend.submit(asked)
    assert [entry["custom_id"] for entry in anthropic_server.batches[batch_id]] == [r.key for r in asked]
    assert anthropic_server.batches[batch_id][1]["params"]["messages"][0]["content"] == "text 1"
    assert backend.collect(batch_id, backend.model) is None

    keys = [r.key for r in asked]
    anthropic_server.finish(
        batch_id, errored(keys[3]), succeeded(keys[1], ANSWER), left_out(keys[2]), succeeded(keys[0], "", "refusal"),
        left_out(keys[4], "canceled"),
    )  # fmt: skip
    found = backend.collect(batch_id, backend.model)
    assert found is not None
    assert found.keys() == set(keys)
    good = found[keys[1]]
    assert (good.text, good.problem) == (ANSWER, "")
    assert good.used.dollars == pytest.approx((40 * 0.10 + 600 * 0.125 + 1000 * 0.01 + 80 * 0.50) / 2e6)
    refused = found[keys[0]]
    assert (refused.text, refused.used) == ("", good.used), "what it refused is paid for"
    assert "refused" in refused.problem
    assert [found[key].used for key in keys[2:]] == [LlmUse()] * 3
    assert "expired" in found[keys[2]].problem
    assert "invalid_request_error" in found[keys[3]].problem
    assert "canceled" in found[keys[4]].problem
    assert "SECRET" not in "".join(map(str, found.values()))


def test_a_batch_costs_what_the_model_costs_that_it_was_handed_in_with(
    anthropic_server: AnthropicServer, backend: AnthropicBackend
) -> None:
    (asked,) = requests(1)
    batch_id = backend.submit([asked])
    anthropic_server.finish(batch_id, succeeded(asked.key, ANSWER))
    found = backend.collect(batch_id, "claude-opus-5-5")
    assert found is not None
    assert found[asked.key].used.dollars == pytest.approx((40 * 4.0 + 600 * 5.0 + 1000 * 0.2 + 80 * 20.0) / 2e6)
    with pytest.raises(LlmRefused, match="llm_input_price"):
        backend.collect(batch_id, "claude-unheard-of")


def test_a_batch_whose_results_are_gone_is_given_up(
    anthropic_server: AnthropicServer, backend: AnthropicBackend
) -> None:
    batch_id = backend.submit(requests(2))
    anthropic_server.finish(batch_id)
    anthropic_server.archived.add(batch_id)
    with pytest.raises(LlmAnswerInvalid, match=batch_id):
        backend.collect(batch_id, backend.model)
    with pytest.raises(LlmAnswerInvalid, match="msgbatch_99"):
        backend.collect("msgbatch_99", backend.model)


def test_results_that_break_off_are_collected_later(
    anthropic_server: AnthropicServer, backend: AnthropicBackend
) -> None:
    (asked,) = requests(1)
    batch_id = backend.submit([asked])
    anthropic_server.finish(batch_id, succeeded(asked.key, ANSWER))
    anthropic_server.tail = b'{"custom_id": "torn", "resu'
    with pytest.raises(LlmUnavailable):
        backend.collect(batch_id, backend.model)
    anthropic_server.tail = b""
    assert backend.collect(batch_id, backend.model)


def test_a_batch_is_found_again_by_what_it_holds(anthropic_server: AnthropicServer, backend: AnthropicBackend) -> None:
    ours, others = requests(3), [Request("f" * 32, "s", "t", 10)] * 3
    keys = [r.key for r in ours]
    assert backend.find(keys, ()) is None
    first = backend.submit(ours)
    assert backend.find(keys, ()) == first
    assert backend.find(keys, {first}) is None, "what is known is not taken for another"
    assert backend.find(keys[:2], ()) is None
    second = backend.submit(others)
    anthropic_server.finish(second, *(succeeded(r.key, ANSWER) for r in others))
    anthropic_server.finish(first, *(succeeded(key, ANSWER) for key in keys))
    assert backend.find(keys, ()) == first
    anthropic_server.created_at -= timedelta(days=2)
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
    anthropic_server: AnthropicServer, backend: AnthropicBackend, answer: Answer, raised: type[AnamnesisError]
) -> None:
    asked = requests(2)
    batch_id = backend.submit(asked)
    anthropic_server.refusal = answer
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


def test_a_prompt_is_not_passed_on_to_another_host(
    anthropic_server: AnthropicServer, backend: AnthropicBackend, request_: Request
) -> None:
    other = AnthropicServer()
    other.respond(streamed(ANSWER))
    refuses_to_follow(anthropic_server, other, lambda: backend.ask(request_))
