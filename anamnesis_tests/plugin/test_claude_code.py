"""The real client against a Claude API of the tests' own: what its logs teach, its hooks tell it in later sessions."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.entities.linking import link
from anamnesis_pipeline.knowledge.dream import observe
from anamnesis_tests.sidecar.mcp.conftest import Sidecar, environment, run_sidecar
from anamnesis_tests.support.anthropic_server import AnthropicServer, calling, streamed
from anamnesis_tests.support.archived_logs import Home
from anamnesis_tests.support.loopback import Answer

__all__ = ["environment"]
CLAUDE = shutil.which("claude")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not CLAUDE, reason="no program `claude` (npm install -g @anthropic-ai/claude-code)"),
]
SCRIPT = '#!/bin/sh\n[ -n "$DB_PORT" ] || { echo "Error: DB_PORT must be set before a migration" >&2; exit 3; }\n'
WRONG, RIGHT = "./migrate.sh upgrade", "DB_PORT=5433 ./migrate.sh upgrade"


@pytest.fixture
def sidecar(tmp_path: Path, environment: None) -> Iterator[Sidecar]:
    yield from run_sidecar(tmp_path / "home")


class Claude:
    """Runs the client in a folder with one script and one file, with separate settings and logs."""

    def __init__(self, folder: Path, api: AnthropicServer) -> None:
        self.config, self.shop, self._api, self._calls = folder / "config", folder / "shop", api, 0
        (self.shop / "src").mkdir(parents=True)
        (self.shop / "src" / "prices.py").write_text("total = 1\n")
        (self.shop / "migrate.sh").write_text(SCRIPT)
        (self.shop / "migrate.sh").chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "CLAUDE"))}
        self.environment = {
            **kept,
            "HOME": str(folder),
            "CLAUDE_CONFIG_DIR": str(self.config),
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }

    def does(self, tool: str, **given: Any) -> Answer:
        self._calls += 1
        return calling(tool, self._calls, **given)

    def changes(self, tool: str, **given: str) -> tuple[Answer, Answer]:
        """The client changes only files that it has read."""
        path = str(self.shop / "src" / "prices.py")
        return self.does("Read", file_path=path), self.does(tool, file_path=path, **given)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            arguments, cwd=self.shop, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ask(self, prompt: str, *answers: Answer, more: tuple[str, ...] = ()) -> tuple[str, str]:
        """What the client wrote, and the conversation that it sent last."""
        self._api.respond(*answers, streamed("Done."))
        options = ("--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions")
        wrote = self.run(str(CLAUDE), "-p", prompt, *options, *more)
        return wrote, json.dumps(self._api.received[-1].json["messages"], ensure_ascii=False)


def test_client_is_told_what_its_own_logs_taught(sidecar: Sidecar, tmp_path: Path) -> None:
    with AnthropicServer().running() as api:
        claude, memory = Claude(tmp_path, api), Home(tmp_path / "config", sidecar.services.store)
        claude.ask("run the migrations", claude.does("Bash", command=WRONG), claude.does("Bash", command=RIGHT))
        rounds = {"old_string": "total = 1", "new_string": "total = round(1)"}
        claude.ask("round the prices", *claude.changes("Edit", **rounds))
        correction = "no, never round in prices.py, round where the invoice is printed"
        claude.ask(correction, *claude.changes("Write", content="total = 1\n"), more=("--continue",))
        prompts = [each.raw_exchange for each in memory.ingest()]
        assert sum("run the migrations" in each for each in prompts) == 1
        link(memory.store)
        observe(memory.store)

        claude.environment |= {"ANAMNESIS_HOME": str(tmp_path / "ours"), "ANAMNESIS_PORT": str(sidecar.port)}
        claude.run(sys.executable, "-m", "anamnesis_pipeline", "install", "--hooks", "--hook-actions")
        claude.run(
            str(CLAUDE), "mcp", "add", "--transport", "http", "anamnesis", f"{sidecar.base}/mcp?folder=${{PWD:-}}"
        )
        run = [claude.does("Bash", command=WRONG) for _ in range(2)]
        wrote, sent = claude.ask("do it all again", *run, *claude.changes("Edit", **rounds))
        assert wrote.count("mcp__anamnesis__") >= 6
        assert sent.count(f"Ended by: {RIGHT}") == sent.count(correction) == 1
        assert sent.index('"tool_result"') < sent.index("PreToolUse:Bash")  # it is told with the result
        assert "PreToolUse:Edit" in sent
        assert "PreToolUse:Read" not in sent
        _, sent = claude.ask("write it", *claude.changes("Write", content="total = round(2)\n"))
        assert f"{correction}”" in sent[sent.index("PreToolUse:Write") :]
