"""A program that stands in for Claude's command line: it writes down how it was called and does as it is told."""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROGRAM = """\
#!{python}
import json, os, re, subprocess, sys, time, uuid
from datetime import datetime, timezone
from pathlib import Path

folder = Path({folder!r})
calls = folder / "calls.jsonl"
script = json.loads((folder / "told.json").read_text())
told = script[min(len(calls.read_text().splitlines()), len(script) - 1)]
call = {{
    "arguments": sys.argv[1:], "stdin": sys.stdin.read(), "environment": dict(os.environ), "pid": os.getpid(),
    "files": os.listdir() if os.getcwd() != "/" else [], "folder": os.getcwd(),
}}
if told["spawns"]:
    call["child"] = subprocess.Popen(["sleep", "60"], start_new_session=False).pid
with calls.open("a") as notes:
    notes.write(json.dumps(call) + "\\n")
if told["log_root"]:
    session = str(uuid.uuid4())
    common = {{
        "isSidechain": False, "userType": "external", "entrypoint": "sdk-cli", "cwd": os.getcwd(), "version": "2.1.240",
        "sessionId": session, "timestamp": datetime.now(timezone.utc).isoformat(), "gitBranch": "",
    }}
    asked, said = (dict(common, uuid=str(uuid.uuid4())) for _ in range(2))
    asked.update(type="user", parentUuid=None, message={{"role": "user", "content": call["stdin"]}})
    text = json.loads(told["stdout"])["result"]
    message = {{"id": "msg_" + session, "role": "assistant", "content": [{{"type": "text", "text": text}}]}}
    said.update(type="assistant", parentUuid=asked["uuid"], message=message)
    place = Path(told["log_root"]) / re.sub("[^A-Za-z0-9]", "-", os.getcwd())
    place.mkdir()
    (place / (session + ".jsonl")).write_text("".join(json.dumps(record) + "\\n" for record in (asked, said)))
sys.stdout.write(told["stdout"])
sys.stderr.write(told["stderr"])
sys.stdout.flush()
time.sleep(told["sleeps"])
sys.exit(told["status"])
"""


@dataclass(frozen=True)
class StandIn:
    """`path` runs as Claude would."""

    folder: Path

    @property
    def path(self) -> str:
        return str(self.folder / "claude")

    def tell(
        self, stdout: str = "", stderr: str = "", status: int = 0, sleeps: float = 0.0, *, spawns: bool = False
    ) -> None:
        """What it does when it is called next; `spawns`: it leaves a child that holds its output open."""
        self.tell_in_turn({"stdout": stdout, "stderr": stderr, "status": status, "sleeps": sleeps, "spawns": spawns})

    def tell_in_turn(self, *told: dict[str, Any]) -> None:
        """What it does from now on, call by call; the last for ever. Each as the arguments of `tell`, or with a
        `log_root` below which it leaves a transcript, as Claude Code does.
        """
        (self.folder / "calls.jsonl").write_text("")
        usual = {"stdout": "", "stderr": "", "status": 0, "sleeps": 0.0, "spawns": False, "log_root": ""}
        (self.folder / "told.json").write_text(json.dumps([usual | each for each in told]))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """How it was called since it was told what to do."""
        return [json.loads(line) for line in (self.folder / "calls.jsonl").read_text().splitlines()]

    @property
    def call(self) -> dict[str, Any]:
        """How it was called last."""
        return self.calls[-1]


def make_stand_in(folder: Path) -> StandIn:
    """A stand-in that keeps its notes in `folder`."""
    folder.mkdir()
    made = StandIn(folder)
    Path(made.path).write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
    Path(made.path).chmod(0o755)
    made.tell(result("{}"))
    return made


def result(text: str, **fields: Any) -> str:
    """What `--output-format json` prints."""
    usage = {
        "input_tokens": 12,
        "cache_creation_input_tokens": 2_000,
        "cache_read_input_tokens": 500,
        "output_tokens": 90,
        "server_tool_use": {"web_search_requests": 0},
        "service_tier": "standard",
    }
    body = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 2100,
        "num_turns": 2,
        "result": text,
        "session_id": "4d1a88f3",
        "total_cost_usd": 0.0123,
        "usage": usage,
        "permission_denials": [],
    }
    return json.dumps(body | fields) + "\n"


def is_gone(pid: int, within_s: float = 30.0) -> bool:
    """Whether a process ends in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False
