"""Claude's command line on another machine, over the system's own sshd; a stand-in plays Claude."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import paramiko
import pytest

from anamnesis_pipeline.errors import LlmBusy, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm import commands
from anamnesis_pipeline.llm.factory import offers, open_chat
from anamnesis_pipeline.llm.provider import ChatTurn, Delta, LlmOptions, Provider
from anamnesis_tests.llm.answers import ASKED, SYSTEM, answered, words_of
from anamnesis_tests.sidecar.conftest import wait_for
from anamnesis_tests.support.chat_services import WORDS, ClaudeCommand
from anamnesis_tests.support.ssh_servers import SSHD, SshServer, home_with_key, known_host, openssh_server

pytestmark = pytest.mark.skipif(SSHD is None, reason="sshd is not installed")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a key of its own, and no agent."""
    return home_with_key(tmp_path, monkeypatch)


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Iterator[SshServer]:
    key = paramiko.ECDSAKey.from_private_key_file(str(home / ".ssh" / "id_ecdsa"))
    with openssh_server(tmp_path / "sshd", key) as running:
        (home / ".ssh" / "known_hosts").write_text(running.known_host)
        yield running


@pytest.fixture
def claude(tmp_path: Path) -> ClaudeCommand:
    folder = tmp_path / "it's $HOME"
    folder.mkdir()
    return ClaudeCommand(folder)


def there(server: SshServer, claude: ClaudeCommand | str) -> LlmOptions:
    command = claude if isinstance(claude, str) else f'"{claude.path}"'
    return LlmOptions(claude_command=command, claude_host=server.place)


def open_one(server: SshServer, claude: ClaudeCommand | str) -> Provider:
    return open_chat("claude_cli", "", there(server, claude))


def test_an_answer_comes_piece_by_piece_and_nothing_is_quoted_wrongly(
    server: SshServer, claude: ClaudeCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "KEY")
    text = 'It\'s a "text" of `date`\nand $(id) lines, ' + "ü" * 300_000
    deltas = answered(open_one(server, claude), [ChatTurn("user", text)])
    assert words_of(deltas) == list(WORDS)
    used = deltas[-1].used
    assert used is not None
    assert (used.input_tokens, used.output_tokens) == (90, 12)
    call = claude.call
    assert call["stdin"] == text
    assert text not in call["arguments"]
    assert call["arguments"][call["arguments"].index("--system-prompt") + 1] == SYSTEM
    assert "" in call["arguments"], "an empty argument stays one"
    assert "ANTHROPIC_API_KEY" not in call["environment"]
    assert not claude.is_running


def test_who_stops_listening_ends_the_far_command(server: SshServer, claude: ClaudeCommand) -> None:
    claude.says(WORDS, sleeps=60, ends=False)

    async def listen_once() -> None:
        backend = open_one(server, claude)
        stream = cast(AsyncIterator[Delta], backend.stream(SYSTEM, ASKED, tools=False))
        assert (await anext(stream)).text == WORDS[0]
        assert claude.is_running
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(asyncio.wait_for(listen_once(), 60))
    wait_for(lambda: not claude.is_running, 60)


@pytest.mark.parametrize(
    ("limit", "seconds", "told"),
    [("provider.STALL_S", 1.5, "on {} said nothing for"), ("commands.MAX_S", 1, "failed with status 143")],
    ids=["here", "at the far end"],
)
def test_far_command_that_takes_too_long_is_ended(
    server: SshServer, claude: ClaudeCommand, monkeypatch: pytest.MonkeyPatch, limit: str, seconds: float, told: str
) -> None:
    monkeypatch.setattr(f"anamnesis_pipeline.llm.{limit}", seconds)
    claude.says(WORDS, sleeps=60, ends=False)
    with pytest.raises(LlmUnavailable, match=told.format(server.place)):
        answered(open_one(server, claude))
    wait_for(lambda: not claude.is_running, 60)


def test_command_that_reads_nothing_is_ended(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "UNREAD_S", 0.5)
    deaf = tmp_path / "deaf"
    deaf.write_text("#!/bin/sh\nexec sleep 60\n")
    deaf.chmod(0o755)
    with pytest.raises(LlmUnavailable, match="did not read the message"):
        answered(open_one(server, str(deaf)), [ChatTurn("user", "x" * 8_000_000)])


def test_what_keeps_the_far_command_from_answering_is_told(server: SshServer, claude: ClaudeCommand) -> None:
    claude.says((), is_error="API Error: 529 overloaded_error")
    with pytest.raises(LlmBusy, match=f"on {server.place}.* asked to wait"):
        answered(open_one(server, claude))
    with pytest.raises(LlmRefused, match=f"cannot run no-such-claude on {server.place}; set claude_command"):
        answered(open_one(server, "no-such-claude"))


def test_unknown_host_or_key_is_refused(server: SshServer, home: Path, claude: ClaudeCommand) -> None:
    known = home / ".ssh" / "known_hosts"
    known.write_text("")
    with pytest.raises(LlmRefused, match=f"ssh-keyscan -p {server.port}"):
        answered(open_one(server, claude))
    known.write_text(known_host(server.port, paramiko.ECDSAKey.generate()))
    with pytest.raises(LlmRefused, match="is not the one in"):
        answered(open_one(server, claude))
    assert not (claude.folder / "call.json").exists()


def test_the_models_are_offered_where_the_far_command_runs(server: SshServer, claude: ClaudeCommand) -> None:
    found = {each.backend: each for each in asyncio.run(offers(there(server, claude)))}["claude_cli"]
    assert (found.reachable, found.models) == (True, ("haiku", "sonnet", "opus"))
    away = LlmOptions(claude_host="127.0.0.1:9")
    gone = {each.backend: each for each in asyncio.run(offers(away))}["claude_cli"]
    assert not gone.reachable
    assert "no SSH connection with 127.0.0.1:9" in gone.problem


def test_what_misses_the_signal_of_the_commands_end_holds_nobody_up() -> None:
    script = commands._SCRIPT.format(unset="NOTHING", export=":", command="no-such-claude", size=1, seconds=600)
    late = script.replace("{ head -c", "{ trap '' TERM; sleep 2; trap - TERM; head -c")
    assert late != script
    with subprocess.Popen(["sh", "-c", late], stdin=subprocess.PIPE, start_new_session=True) as running:
        try:
            assert running.wait(60) == 127
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
