"""Claude's command line as a real process, here and over SSH; a stand-in plays Claude."""

import json
import time
import traceback
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import paramiko
import pytest

from anamnesis_pipeline.errors import (
    AnamnesisError,
    LlmAnswerInvalid,
    LlmBusy,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
)
from anamnesis_pipeline.llm.claude_cli import ClaudeCli
from anamnesis_pipeline.llm.commands import MAX_OUTPUT_BYTES
from anamnesis_pipeline.llm.prices import find_model
from anamnesis_pipeline.llm.prompts import SCHEMA, Request
from anamnesis_tests.support.loopback import REQUEST
from anamnesis_tests.support.ssh_servers import (
    SSHD,
    SshServer,
    home_with_key,
    known_host,
    openssh_server,
    paramiko_server,
)
from anamnesis_tests.support.stand_in import StandIn, is_gone, make_stand_in, result

ANSWER = {"skip": False, "summary": "The key was missing.", "tags": [], "records": []}


@pytest.fixture
def claude(tmp_path: Path) -> StandIn:
    return make_stand_in(tmp_path / "it's claude")


def backend_of(claude: StandIn | str, host: str = "", timeout_s: float = 20.0) -> ClaudeCli:
    path = claude if isinstance(claude, str) else f'"{claude.path}"'
    return ClaudeCli(find_model("claude_cli", "haiku", is_paid=False), path, host, timeout_s)


# --- on this machine -------------------------------------------------------------------------------------


def test_a_structured_answer_arrives_and_costs_nothing(claude: StandIn) -> None:
    claude.tell(result("done", structured_output=ANSWER))
    reply = backend_of(claude).ask(REQUEST)
    assert json.loads(reply.text) == ANSWER
    assert (reply.used.input_tokens, reply.used.output_tokens, reply.used.dollars) == (2_512, 90, 0.0)


@pytest.mark.parametrize("wrap", ["{}", '[{{"type": "system", "subtype": "init"}}, {}]'])
def test_an_answer_in_text_is_taken_as_it_is(claude: StandIn, wrap: str) -> None:
    claude.tell(wrap.format(result("Sorry, no JSON")))
    assert backend_of(claude).ask(REQUEST).text == "Sorry, no JSON"


def test_claude_runs_bare_with_the_prompt_on_its_input(claude: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDECODE", "ANAMNESIS_API_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "of the subscription")
    backend_of(claude).ask(REQUEST)
    call = claude.call
    assert call["stdin"] == REQUEST.text
    assert REQUEST.text not in " ".join(call["arguments"])
    assert "secret" not in call["environment"].values()
    assert call["environment"]["CLAUDE_CODE_OAUTH_TOKEN"] == "of the subscription"
    assert call["environment"]["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1500"
    assert call["files"] == []
    assert not Path(call["folder"]).exists()
    arguments = call["arguments"]
    following = dict(pairwise(arguments))
    assert following["--output-format"] == "json"
    assert following["--model"] == "haiku"
    assert following["--system-prompt"] == REQUEST.system
    assert json.loads(following["--json-schema"]) == SCHEMA
    assert following["--tools"] == following["--setting-sources"] == ""
    assert {"--print", "--no-session-persistence", "--strict-mcp-config", "--disable-slash-commands"} < set(arguments)


LIMIT_AT = int(time.time()) + 7_200
FAILURES = [
    ({"stdout": result("You've hit your session limit · resets 3pm", is_error=True), "status": 1}, LlmRefused, "limit"),
    ({"stdout": result(f"Claude AI usage limit reached|{LIMIT_AT}", is_error=True), "status": 1}, LlmBusy, "limit"),
    ({"stdout": result("Not logged in · Please run /login", is_error=True), "status": 1}, LlmRefused, "log in"),
    ({"stderr": "Invalid API key · Fix external API key", "status": 1}, LlmRefused, "log in"),
    ({"stdout": result("Credit balance is too low", is_error=True), "status": 1}, LlmRefused, "credit"),
    ({"stdout": result("API Error: 403 Insufficient balance", is_error=True), "status": 1}, LlmRefused, "billing"),
    ({"stdout": result("This organization has been disabled", is_error=True), "status": 1}, LlmRefused, "organization"),
    ({"stdout": result("There's an issue with the selected model (x)", is_error=True)}, LlmRefused, "summary_model"),
    ({"stdout": result("API Error: Repeated 529 Overloaded errors", is_error=True), "status": 1}, LlmBusy, "wait"),
    ({"stdout": result("Server is temporarily limiting requests", is_error=True), "status": 1}, LlmBusy, "wait"),
    ({"stdout": result("Request rejected (429)", is_error=True), "status": 1}, LlmBusy, "429"),
    ({"stdout": result("Prompt is too long", is_error=True), "status": 1}, LlmAnswerInvalid, "too long"),
    ({"stdout": result("API Error: 400 SECRET-PROMPT", is_error=True), "status": 1}, LlmPromptRefused, "400"),
    ({"stdout": result("API Error: 500 SECRET-PROMPT", is_error=True), "status": 1}, LlmUnavailable, "500"),
    ({"stdout": result("oops", is_error=True, api_error_status=429), "status": 1}, LlmBusy, "429"),
    ({"stdout": result("", subtype="error_max_structured_output_retries", is_error=True)}, LlmAnswerInvalid, "gave up"),
    ({"stdout": result("", subtype="error_during_execution", is_error=True)}, LlmUnavailable, "failed"),
    ({"stderr": "error: unknown option '--json-schema' SECRET-PROMPT", "status": 1}, LlmRefused, "claude update"),
    ({"stderr": "SECRET-PROMPT", "status": 3}, LlmUnavailable, "status 3"),
    ({"stdout": "SECRET-PROMPT"}, LlmAnswerInvalid, "no JSON"),
    ({"stdout": '{"type": "result", "usage": 3}'}, LlmAnswerInvalid, "no JSON"),
    ({"stdout": "[" * 100_000}, LlmAnswerInvalid, "no JSON"),
    ({"stdout": "x" * (MAX_OUTPUT_BYTES + 1), "sleeps": 30.0}, LlmAnswerInvalid, "more than"),
]


@pytest.mark.parametrize(("told", "raised", "says"), FAILURES)
def test_each_failure_says_what_to_do_and_quotes_nothing(
    claude: StandIn, told: dict[str, str], raised: type[AnamnesisError], says: str
) -> None:
    claude.tell(**told)  # type: ignore[arg-type]
    with pytest.raises(raised, match=says) as caught:
        backend_of(claude).ask(REQUEST)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))
    if f"|{LIMIT_AT}" in told.get("stdout", ""):
        assert caught.value.retry_after_s == pytest.approx(LIMIT_AT - time.time(), abs=30)  # type: ignore[attr-defined]


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(LlmRefused, match=r"no-such-claude.*claude_command"):
        backend_of("no-such-claude --fast").ask(REQUEST)


def test_the_time_out_ends_claude_and_its_children(claude: StandIn) -> None:
    claude.tell(sleeps=60, spawns=True)
    with pytest.raises(LlmUnavailable, match="in time"):
        backend_of(claude, timeout_s=4).ask(REQUEST)
    assert is_gone(claude.call["pid"])
    assert is_gone(claude.call["child"])


def test_a_child_left_behind_neither_delays_nor_lives_on(claude: StandIn) -> None:
    claude.tell(result("done", structured_output=ANSWER), spawns=True)
    began = time.monotonic()
    assert backend_of(claude).ask(REQUEST).text
    assert time.monotonic() - began < 50
    assert is_gone(claude.call["child"])


def test_a_prompt_larger_than_a_pipe_arrives_whole(claude: StandIn) -> None:
    text = "ü" * 300_000
    backend_of(claude).ask(Request("k", "s", text, 100))
    assert claude.call["stdin"] == text


# --- over SSH --------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a key of its own, and no agent."""
    return home_with_key(tmp_path, monkeypatch)


@pytest.fixture(
    params=[pytest.param("openssh", marks=pytest.mark.skipif(SSHD is None, reason="sshd is not installed")), "paramiko"]
)
def server(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> Iterator[SshServer]:
    """A server that knows the home's key and is known there."""
    key = paramiko.ECDSAKey.from_private_key_file(str(home / ".ssh" / "id_ecdsa"))
    start = {"openssh": openssh_server, "paramiko": paramiko_server}[request.param]
    with start(tmp_path / "sshd", key) as running:
        (home / ".ssh" / "known_hosts").write_text(running.known_host)
        yield running


def test_claude_answers_over_ssh(server: SshServer, claude: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    request = Request("k", 'It\'s a "system" text\nof $HOME lines', "ü" * 300_000, 1_500)
    claude.tell(result("done", structured_output=ANSWER))
    assert json.loads(backend_of(claude, server.place).ask(request).text) == ANSWER
    call = claude.call
    assert call["stdin"] == request.text
    assert request.system in call["arguments"]
    assert "" in call["arguments"]
    assert "ANTHROPIC_API_KEY" not in call["environment"]
    assert call["environment"]["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1500"
    assert call["folder"] == "/"


def test_a_failure_over_ssh_is_told_apart_too(server: SshServer, claude: StandIn) -> None:
    claude.tell(stderr="error: unknown option '--json-schema'", status=1)
    with pytest.raises(LlmRefused, match="claude update"):
        backend_of(claude, server.place).ask(REQUEST)
    with pytest.raises(LlmRefused, match="cannot run no-such-claude on"):
        backend_of("no-such-claude", server.place).ask(REQUEST)


def test_an_unknown_host_is_refused_with_what_adds_it(server: SshServer, home: Path, claude: StandIn) -> None:
    (home / ".ssh" / "known_hosts").write_text("")
    with pytest.raises(LlmRefused, match=f"SHA256:.*ssh-keyscan -p {server.port} 127.0.0.1 >> ~/.ssh/known_hosts"):
        backend_of(claude, server.place).ask(REQUEST)
    (home / ".ssh" / "known_hosts").unlink()
    with pytest.raises(LlmRefused, match="ssh-keyscan"):
        backend_of(claude, server.place).ask(REQUEST)


def test_a_host_with_another_key_than_before_is_refused(server: SshServer, home: Path, claude: StandIn) -> None:
    (home / ".ssh" / "known_hosts").write_text(known_host(server.port, paramiko.ECDSAKey.generate()))
    with pytest.raises(LlmRefused, match="is not the one in"):
        backend_of(claude, server.place).ask(REQUEST)


def test_a_key_that_the_host_does_not_know_is_refused(server: SshServer, home: Path, claude: StandIn) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(home / ".ssh" / "id_ecdsa"))
    with pytest.raises(LlmRefused, match=f"`ssh {server.place}` works"):
        backend_of(claude, server.place).ask(REQUEST)


def test_the_far_end_ends_claude_when_time_is_up(server: SshServer, claude: StandIn) -> None:
    claude.tell(sleeps=60, spawns=True)
    with pytest.raises(LlmUnavailable):
        backend_of(claude, server.place, timeout_s=5).ask(REQUEST)
    assert is_gone(claude.call["pid"])
    assert is_gone(claude.call["child"])


def test_too_much_output_over_ssh_is_cut_off(server: SshServer, claude: StandIn) -> None:
    claude.tell("x" * (MAX_OUTPUT_BYTES + 1))
    with pytest.raises(LlmAnswerInvalid, match="more than"):
        backend_of(claude, server.place).ask(REQUEST)


def test_the_ssh_configuration_names_the_way_there(server: SshServer, home: Path, claude: StandIn) -> None:
    (home / ".ssh" / "id_ecdsa").rename(home / "key")
    (home / ".ssh" / "config").write_text(
        f"Host *\n  IdentityFile {home}/key\n  Port {server.port}\n  HostName 127.0.0.1\n"
        "Host far\n  ProxyJump middle,near\n"
    )
    user = server.place.partition("@")[0]
    claude.tell(result("done", structured_output=ANSWER))
    assert backend_of(claude, f"{user}@far").ask(REQUEST).text


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("known_hosts", "far ssh-ed25519 AAAA!torn\n", "no host key"),
        ("config", "Host far\n  nonsense\n", "config"),
        ("config", "Host far\n  ProxyCommand nc %h %p\n", "ProxyJump"),
        ("config", "Host far\n  ProxyJump b\nHost b\n  ProxyJump far\n", "too many hosts"),
    ],
)
def test_ssh_files_that_lead_nowhere_are_named(home: Path, claude: StandIn, file: str, text: str, says: str) -> None:
    (home / ".ssh" / file).write_text(text)
    with pytest.raises(LlmRefused, match=says):
        backend_of(claude, "far").ask(REQUEST)


def test_a_host_that_is_down_is_tried_later(home: Path, claude: StandIn, free_port: int) -> None:
    with pytest.raises(LlmUnavailable, match="no SSH connection"):
        backend_of(claude, f"u@127.0.0.1:{free_port}").ask(REQUEST)
