"""Builds lines of Claude Code logs, and parses them in any number of calls."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from anamnesis_pipeline.model import Part, SegmentKind
from anamnesis_pipeline.parsing.claude_logs.parser import FileOrigin, FileState, advance, read_messages

ROOT = Path(__file__).parents[2]
REAL_LOGS = ROOT.parent / "shared/data/claude_logs/projects"
SESSION = "4f0c2b1e-0f3d-4a53-9a0e-6c1c3b7a9d10"
START = datetime(2026, 10, 5, 9, 0, tzinfo=UTC)


def real_logs() -> list[Path]:
    return sorted(REAL_LOGS.rglob("*.jsonl"))


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def stamp(minute: float) -> str:
    return (START + timedelta(minutes=minute)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Log:
    """A log under construction; every record comes half a minute after the one before."""

    def __init__(self, session: str = SESSION, cwd: str = "/home/dev/shop", **common: Any) -> None:
        self.lines: list[str] = []
        self.minute = 0.0
        self._common = {"sessionId": session, "cwd": cwd, "isSidechain": False, **common}
        self._count = 0

    def record(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._count += 1
        self.minute += 0.5
        envelope = {**self._common, "uuid": f"uuid-{self._count}", "timestamp": stamp(self.minute), "type": kind}
        record = {**envelope, **fields}
        self.lines.append(json.dumps(record))
        return record

    def user(self, content: Any, **fields: Any) -> dict[str, Any]:
        return self.record("user", message={"role": "user", "content": content}, **fields)

    def talk(self, *contents: Any) -> "Log":
        """What the user and Claude say in turn."""
        for number, content in enumerate(contents):
            (self.say if number % 2 else self.user)(content)
        return self

    def assistant(self, *blocks: dict[str, Any], message_id: str = "", **fields: Any) -> dict[str, Any]:
        message = {"id": message_id or f"msg-{self._count}", "role": "assistant", "content": list(blocks)}
        return self.record(
            "assistant", message={**message, "model": "claude-sonnet-5"} | fields.pop("reply", {}), **fields
        )

    def say(self, text: str) -> dict[str, Any]:
        return self.assistant({"type": "text", "text": text})

    def call(self, name: str, tool_id: str, **inputs: Any) -> dict[str, Any]:
        return self.assistant({"type": "tool_use", "id": tool_id, "name": name, "input": inputs})

    def result(self, tool_id: str, content: Any, **block: Any) -> dict[str, Any]:
        return self.user([{"type": "tool_result", "tool_use_id": tool_id, "content": content, **block}])

    def tool(self, name: str, tool_id: str, output: str, *, is_error: bool = False, **inputs: Any) -> None:
        self.call(name, tool_id, **inputs)
        self.result(tool_id, output, is_error=is_error)


def parse(
    lines: Sequence[str], path: str = f"{SESSION}.jsonl", ticks: Iterable[int] = (), known: Iterable[str] = ()
) -> list[Part]:
    """The parts of a file whose lines arrive in several calls, cut before the lines `ticks`."""
    owned, parts, state, open_part = set(known), {}, FileState(), None
    edges = [0, *sorted(ticks), len(lines)]
    for start, end in pairwise(edges):
        batch = read_messages(lines[start:end], start, fired=state.fired)
        step = advance(state, open_part, batch, owned, FileOrigin("test", path), label=lambda cwd: cwd, idle_minutes=30)
        restored = FileState.from_json(step.state.to_json())
        assert restored == step.state
        state, open_part = restored, step.open_part
        owned.update((*step.keys, *step.aliases))
        parts.update({part.part_id: part for part in step.parts})
    return list(parts.values())


def texts(parts: Iterable[Part], *kinds: SegmentKind) -> list[str]:
    """The messages in `parts` put together again, of some kinds or all, in order."""
    whole: dict[str, str] = {}
    for part in parts:
        for segment in part.segments:
            if not kinds or segment.kind in kinds:
                whole[segment.message_key] = whole.get(segment.message_key, "") + segment.text
    return list(whole.values())
