"""Megabytes of log per second on one core: parse, group and cut; then with masking before it.

    python benchmarks/parse_speed.py [LOGS] [--megabytes 60]

LOGS is a folder of Claude project folders (default: ../shared/data/claude_logs/projects). Its files are replicated
with fresh ids, so that no message is a duplicate.
"""

import argparse
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from anamnesis_pipeline.parsing.claude_logs.parser import FileOrigin, FileState, advance, read_messages
from anamnesis_pipeline.parsing.redaction.masking import Redactor

ROOT = Path(__file__).parents[1]
CHUNK_LINES = 200
_IDS = re.compile(r"\b(?:toolu|msg|req)_[A-Za-z0-9]+|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


def replicas(folder: Path, megabytes: float) -> Iterator[tuple[str, list[str]]]:
    """Name and lines of files, again and again with other ids, until there are enough bytes."""
    originals = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.jsonl"))]
    made, room = 0, megabytes * 1e6
    while originals and made < room:
        suffix = uuid.uuid4().hex[:8]
        for name, text in originals:
            made += len(text.encode())
            yield name, _IDS.sub(rf"\g<0>{suffix}", text).split("\n")[:-1]


def parse(name: str, lines: list[str]) -> tuple[int, int]:
    """Fold a file in chunks, as the pipeline does; returns how many messages and parts it has."""
    state, open_part, messages, parts = FileState(), None, 0, 0
    origin = FileOrigin("benchmark", name)
    for start in range(0, len(lines), CHUNK_LINES):
        batch = read_messages(lines[start : start + CHUNK_LINES], start)
        step = advance(state, open_part, batch, (), origin, label=lambda cwd: cwd, idle_minutes=30)
        state, open_part = FileState.from_json(step.state.to_json()) or state, step.open_part
        messages, parts = messages + len(step.keys), parts + len(step.parts)
    return messages, parts


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("logs", nargs="?", type=Path, default=ROOT.parent / "shared/data/claude_logs/projects")
    arguments.add_argument("--megabytes", type=float, default=60)
    given = arguments.parse_args()
    redactor, totals = Redactor(b"benchmark"), Counter[str]()
    parsing = masking = 0.0
    for name, lines in replicas(given.logs, given.megabytes):
        begun = time.process_time()
        masked = [redactor.mask_line(line)[0] for line in lines]
        middle = time.process_time()
        messages, parts = parse(name, masked)
        masking += middle - begun
        parsing += time.process_time() - middle
        size = sum(len(line.encode()) + 1 for line in lines)
        totals.update(files=1, lines=len(lines), bytes=size, messages=messages, parts=parts)
    if not totals:
        raise SystemExit(f"{given.logs} holds no .jsonl file; name a folder of Claude project folders")
    megabytes = totals["bytes"] / 1e6
    print(
        f"{megabytes:.0f} MB: "
        + ", ".join(f"{totals[what]} {what}" for what in ("files", "lines", "messages", "parts"))
    )
    print(f"parse, group, cut:             {megabytes / parsing:6.1f} MB/s")
    print(f"mask:                          {megabytes / masking:6.1f} MB/s")
    print(f"mask, parse, group, cut:       {megabytes / (parsing + masking):6.1f} MB/s")


if __name__ == "__main__":
    main()
