"""Hooks as Claude Code runs them: commands of hooks.json for a shell, the event as JSON on stdin, a process each."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLUGIN = Path(__file__).parents[2] / "plugin"
HOOKS: dict[str, Any] = {
    event: groups
    for name in ("hooks.json", "actions.json")
    for event, groups in json.loads((PLUGIN / "hooks" / name).read_text(encoding="utf-8"))["hooks"].items()
}
SESSION = {"session_id": "5e551011", "transcript_path": "/home/ann/.claude/projects/-x/5e551011.jsonl", "cwd": "/x"}
EVENTS: dict[str, dict[str, Any]] = {
    "SessionStart": {"source": "startup"},
    "UserPromptSubmit": {"prompt": "why did webhook retries double-charge"},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "Done."},
    "SubagentStop": {"agent_id": "a1", "agent_transcript_path": "/x.jsonl"},
    "PreCompact": {"trigger": "auto", "custom_instructions": ""},
    "SessionEnd": {"reason": "other"},
}
ACTION: dict[str, dict[str, Any]] = {"PreToolUse": {"tool_name": "Bash", "tool_input": {"command": "make test"}}}
"""Of the hook that is installed on request only."""
GIVEN_UP_S = 20
"""Below what each server that is not well takes to answer: a hook that waited for it would not have ended by then."""


@dataclass(frozen=True)
class Done:
    status: int
    output: str
    errors: str

    @property
    def context(self) -> str:
        found: str = json.loads(self.output)["hookSpecificOutput"]["additionalContext"]
        return found


def command(event: str) -> list[str]:
    (group,) = HOOKS[event]
    (hook,) = group["hooks"]
    assert hook["type"] == "command"
    assert hook["timeout"] <= 5
    return ["/bin/sh", "-c", hook["command"].replace("${CLAUDE_PLUGIN_ROOT}", str(PLUGIN))]


def environment(url: str | None = None, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANAMNESIS_", "CLAUDE_"))}
    given = {"CLAUDE_PLUGIN_OPTION_API_ENDPOINT": url} if url else {}
    return {**kept, "CLAUDE_PLUGIN_ROOT": str(PLUGIN), **given, **more}


def fire(
    event: str, url: str | None = None, *, stdin: bytes | None = None, env: dict[str, str] | None = None, **fields: Any
) -> Done:
    given = {**SESSION, "hook_event_name": event, **{**EVENTS, **ACTION}[event], **fields}
    done = subprocess.run(
        command(event),
        input=json.dumps(given).encode() if stdin is None else stdin,
        capture_output=True,
        env=environment(url, **(env or {})),
        timeout=GIVEN_UP_S,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def harmless(event: str, url: str | None = None, **how: Any) -> Done:
    """Fires: it ends, says nothing and fails never."""
    done = fire(event, url, **how)
    assert (done.status, done.output, done.errors) == (0, "", "")
    return done
