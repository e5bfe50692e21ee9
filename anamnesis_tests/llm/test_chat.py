"""Models that chat: what they are sent, what comes of it, and what is told where it fails."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from anamnesis_pipeline.errors import AnamnesisError, BadSetting, LlmAnswerInvalid, LlmBusy, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm import commands, provider
from anamnesis_pipeline.llm.factory import PROVIDERS, offers, open_chat
from anamnesis_pipeline.llm.provider import ChatTurn, Delta, LlmOptions, Provider
from anamnesis_tests.llm.answers import ASKED, SYSTEM, answered, words_of
from anamnesis_tests.support.chat_services import KINDS, WORDS, ChatServer, ClaudeCommand
from anamnesis_tests.support.loopback import Answer, json_answer


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer().running() as server:
        yield server


@pytest.fixture
def claude(tmp_path: Path) -> ClaudeCommand:
    return ClaudeCommand(tmp_path)


@pytest.fixture
def options(server: ChatServer, claude: ClaudeCommand) -> LlmOptions:
    return LlmOptions(
        claude_command=str(claude.path),
        ollama_urls=(server.url,),
        openai_url=f"{server.url}/v1",
        anthropic_api_key="sk-ant-KEY",
        anthropic_url=server.url,
    )


def open_one(kind: str, options: LlmOptions) -> Provider:
    return open_chat(kind, "local-model" if kind == "openai" else "", options)


@pytest.mark.parametrize("kind", PROVIDERS)
def test_an_answer_comes_piece_by_piece_with_what_it_used(kind: str, options: LlmOptions) -> None:
    deltas = answered(open_one(kind, options))
    assert words_of(deltas) == list(WORDS)
    used = next(delta.used for delta in deltas if delta.used)
    assert (used.input_tokens, used.output_tokens) == (90, 12)
    assert (used.dollars > 0) == (kind in ("anthropic", "claude_cli"))


@pytest.mark.parametrize("kind", KINDS)
def test_search_is_a_call_whose_answer_goes_back(kind: str, options: LlmOptions, server: ChatServer) -> None:
    server.searches = ("harbour crane",)
    deltas = answered(open_one(kind, options))
    (call,) = [call for delta in deltas for call in delta.calls]
    assert (call.name, dict(call.arguments)) == ("search_memory", {"query": "harbour crane"})
    gone_back = [ChatTurn("assistant", "", (call,)), ChatTurn("tool", "quotes", call_id=call.call_id)]
    answered(open_one(kind, options), [*ASKED, *gone_back])
    told = str(server.prompts[1])
    assert "quotes" in told
    assert call.call_id in told or kind == "ollama"
    answered(open_one(kind, options), tools=False)
    assert not server.prompts[-1].get("tools")


@pytest.mark.parametrize("kind", KINDS)
def test_roles_are_sent_and_the_key_in_the_header(kind: str, options: LlmOptions, server: ChatServer) -> None:
    answered(open_one(kind, options))
    (request,) = server.received
    assert SYSTEM in str(request.json)
    roles = [each["role"] for each in request.json["messages"]]
    assert [role for role in roles if role != "system"] == ["user", "assistant", "user"]
    assert request.json["stream"] is True
    assert ("sk-ant-KEY" in str(request.headers)) == (kind == "anthropic")
    assert "KEY" not in str(request.json)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "error"), [(401, LlmRefused), (404, LlmRefused), (429, LlmBusy), (529, LlmBusy), (500, LlmUnavailable)]
)
def test_a_refusal_is_told_by_what_is_to_be_done_about_it(
    kind: str, status: int, error: type[AnamnesisError], options: LlmOptions, server: ChatServer
) -> None:
    server.respond(json_answer({"error": {"message": "no: sk-ant-KEY", "type": "x"}}, status))
    with pytest.raises(error) as told:
        answered(open_one(kind, options))
    assert "KEY" not in str(told.value)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_breaks_off_is_no_whole_one(kind: str, options: LlmOptions, server: ChatServer) -> None:
    for server.after in ("break", "end"):
        if server.after == "end":
            server.respond(json_answer({}))
        with pytest.raises((LlmUnavailable, LlmAnswerInvalid)):
            answered(open_one(kind, options))


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_that_stalls_is_given_up(
    kind: str, options: LlmOptions, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "STALL_S", 0.2)
    server.after = "stall"
    with pytest.raises(LlmUnavailable, match="sent nothing for"):
        answered(open_one(kind, options))


def test_a_service_that_is_not_there_is_named(options: LlmOptions) -> None:
    with pytest.raises(LlmUnavailable, match="cannot be reached; is it running"):
        answered(open_chat("ollama", "", LlmOptions(ollama_urls=("http://127.0.0.1:9",))))


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ({"is_error": "Invalid API key · Please run /login"}, LlmRefused, "is not logged in"),
        ({"is_error": "Claude AI usage limit reached|1795350000"}, LlmBusy, "has reached its limit"),
        ({"is_error": "API Error: 529 overloaded_error"}, LlmBusy, "asked to wait"),
        ({"ends": False, "stderr": "error: unknown option '--include-partial-messages'"}, LlmRefused, "too old"),
        ({"ends": False}, LlmAnswerInvalid, "is it Claude Code"),
    ],
)
def test_what_keeps_the_command_from_answering_is_told(
    options: LlmOptions, claude: ClaudeCommand, words: dict[str, Any], error: type[AnamnesisError], told: str
) -> None:
    claude.says((), **words)
    with pytest.raises(error, match=told):
        answered(open_one("claude_cli", options))


def test_command_that_is_absent_or_of_no_use_is_told(options: LlmOptions, claude: ClaudeCommand) -> None:
    with pytest.raises(LlmRefused, match="set claude_command"):
        answered(open_chat("claude_cli", "", LlmOptions(claude_command="/nowhere/claude")))
    claude.tell(["nonsense"])
    with pytest.raises(LlmAnswerInvalid):
        answered(open_one("claude_cli", options))
    with pytest.raises(BadSetting, match="claude_host"):
        open_chat("claude_cli", "", LlmOptions(claude_host="-oProxyCommand=x"))


def test_the_command_gets_no_key_no_tools_and_leaves_no_transcript(
    options: LlmOptions, claude: ClaudeCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "KEY")
    answered(open_one("claude_cli", options))
    call = claude.call
    assert "ANTHROPIC_API_KEY" not in call["environment"]
    assert {"--no-session-persistence", "--strict-mcp-config", "stream-json"} <= set(call["arguments"])
    assert call["stdin"].endswith("The harbour's")
    assert "Which one?" in call["stdin"]


@pytest.mark.parametrize("kind", PROVIDERS)
def test_who_stops_listening_ends_the_work(
    kind: str, options: LlmOptions, server: ChatServer, claude: ClaudeCommand
) -> None:
    server.after = "stall"
    claude.says(WORDS, sleeps=30, ends=False)

    async def listen_once() -> None:
        backend = open_one(kind, options)
        stream = cast(AsyncIterator[Delta], backend.stream(SYSTEM, ASKED, tools=False))
        assert (await anext(stream)).text == WORDS[0]
        await stream.aclose()  # type: ignore[attr-defined]
        await backend.close_chat()

    asyncio.run(asyncio.wait_for(listen_once(), 60))
    assert not claude.is_running


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("exec sleep 30", "did not read the message"),
        ("cat >/dev/null\nexec sleep 30 >&-", ""),  # closes its output, and stays
    ],
)
def test_command_that_reads_or_says_nothing_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, told: str
) -> None:
    monkeypatch.setattr(commands, "UNREAD_S", 0.5)
    monkeypatch.setattr(commands, "LAST_WORDS_S", 0.2)
    deaf = tmp_path / "deaf"
    deaf.write_text(f"#!/bin/sh\n{does}\n")
    deaf.chmod(0o755)
    with pytest.raises(AnamnesisError, match=told):
        answered(open_chat("claude_cli", "", LlmOptions(claude_command=str(deaf))), [ChatTurn("user", "x" * 1_000_000)])


def test_ollama_is_asked_for_a_window_that_holds_the_prompt(options: LlmOptions, server: ChatServer) -> None:
    sizes = {10: 16_384, 60_000: 32_768, 200_000: 131_072, 375_000: 131_072}
    for chars in sizes:
        answered(open_one("ollama", options), [ChatTurn("user", "x" * chars)])
    assert [prompt["options"]["num_ctx"] for prompt in server.prompts] == [*sizes.values()]
    with pytest.raises(LlmRefused, match="leave files out"):
        answered(open_one("ollama", options), [ChatTurn("user", "x" * 500_000)])
    assert len(server.prompts) == len(sizes), "it is not asked what it would cut"


@pytest.mark.parametrize("index", [0, None])
def test_calls_of_one_index_are_told_apart(index: int | None, options: LlmOptions, server: ChatServer) -> None:
    def piece(call_id: str | None, name: str, arguments: str) -> bytes:
        call = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
        return f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [call]}}]})}\n\n".encode()

    end = b'data: {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}\n\ndata: [DONE]\n\n'
    server.respond(
        Answer(
            200,
            (
                piece("a", "search_memory", '{"query": '),
                piece(None, "", '"crane"}'),
                piece("b", "search_memory", '{"query": "winch"}'),
                end,
            ),
            content_type="text/event-stream",
        )
    )
    calls = [call for delta in answered(open_one("openai", options)) for call in delta.calls]
    assert [(call.call_id, call.arguments) for call in calls] == [("a", {"query": "crane"}), ("b", {"query": "winch"})]


@pytest.mark.parametrize(
    ("reason", "told"),
    [("max_tokens", "ask it to go on"), ("length", "ask it to go on"), ("content_filter", "declined")],
)
def test_incomplete_answer_says_why(reason: str, told: str, options: LlmOptions, server: ChatServer) -> None:
    chunk = {"choices": [{"delta": {"content": "The"}, "finish_reason": reason}]}
    server.respond(Answer(200, (f"data: {json.dumps(chunk)}\n\n".encode(),), content_type="text/event-stream"))
    with pytest.raises(LlmAnswerInvalid, match=told):
        answered(open_one("openai", options))


def test_a_silent_command_is_ended(options: LlmOptions, claude: ClaudeCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "STALL_S", 0.5)
    claude.says(WORDS, sleeps=30, ends=False)
    with pytest.raises(LlmUnavailable, match="said nothing for"):
        answered(open_one("claude_cli", options))
    assert not claude.is_running


def test_all_backends_say_what_they_have_or_why_they_are_away(options: LlmOptions) -> None:
    found = {each.backend: each for each in asyncio.run(offers(options))}
    assert {name: each.reachable for name, each in found.items()} == dict.fromkeys(PROVIDERS, True)
    assert found["ollama"].models == ("qwen3:4b",)
    costs = [found[name].cost for name in ("ollama", "anthropic", "claude_cli")]
    assert costs == ["local", "by the token", "subscription"]
    away = {each.backend: each for each in asyncio.run(offers(LlmOptions(claude_command="/nowhere/claude")))}
    assert all(each.problem for each in away.values())
    assert "anthropic_api_key" in away["anthropic"].problem
    assert not any(each.any_model for each in away.values()), "nobody is named a model who has no address"


@pytest.mark.parametrize(
    ("listed", "models"),
    [
        (json_answer([{"id": "a/chat", "type": "chat"}, {"id": "a/drawing", "type": "image"}]), ("a/chat",)),
        (json_answer({"data": [{"id": "b"}]}), ("b",)),
        (json_answer({"error": "no such route"}, 404), ()),
        (json_answer({}), ()),
    ],
)
def test_a_service_lists_its_models_as_it_likes_or_not_at_all(
    options: LlmOptions, monkeypatch: pytest.MonkeyPatch, listed: Answer, models: tuple[str, ...]
) -> None:
    own = ChatServer.answer
    monkeypatch.setattr(
        ChatServer, "answer", lambda self, asked: listed if asked.path == "/v1/models" else own(self, asked)
    )
    found = {each.backend: each for each in asyncio.run(offers(options))}["openai"]
    assert (found.reachable, found.models, found.any_model) == (True, models, True)


@pytest.mark.parametrize(
    ("listed", "why"), [(json_answer("nonsense"), "something else"), (json_answer({}, 401), "key")]
)
def test_service_that_refuses_its_list_may_still_be_asked(
    options: LlmOptions, monkeypatch: pytest.MonkeyPatch, listed: Answer, why: str
) -> None:
    monkeypatch.setattr(ChatServer, "answer", lambda *_: listed)
    found = {each.backend: each for each in asyncio.run(offers(options))}["openai"]
    assert (found.reachable, found.any_model, why in found.problem) == (False, True, True), found.problem


def test_what_an_answer_uses_at_most_is_known_before(options: LlmOptions) -> None:
    for kind in PROVIDERS:
        expected = open_one(kind, options).expected_answer(SYSTEM, ASKED)
        assert expected.input_tokens >= sum(len(each.text) for each in ASKED)
        assert expected.output_tokens == provider.MAX_ANSWER_TOKENS
    assert provider.arguments_of("nonsense") == provider.arguments_of("[1]") == {}
