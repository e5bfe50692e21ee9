"""Huge files and lines, through crawl, parse and publish in a process whose memory is measured."""

import base64
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.exchanges.ingested import Ingested
from anamnesis_tests.exchanges.log_lines import ROOT, SESSION, Log

LIMIT_MB = 500
WIDE = " \U0001f600"
CHILD = """
import json, resource, sys
from pathlib import Path
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.exchanges.ingested import Ingested

folder = Path(sys.argv[1])
store = open_sqlite(folder / "anamnesis.db", folder / "index")
seen = Ingested(store, folder).ingest()
counts = store.ingest.counts()
store.close()
print(json.dumps({
    "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "messages": seen.messages,
    "malformed": seen.malformed, "bytes_read": seen.bytes_read, "lines": counts.lines, "episodes": counts.episodes,
}))
"""


def ingested_in_a_child(folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)], cwd=ROOT, check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    return found


def log_path(folder: Path) -> Path:
    path = folder / ".claude" / "projects" / "-home-dev-shop" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    return path


def long_text() -> str:
    """50 MB of output; one line in a thousand holds a character that widens the whole string in memory."""
    return "".join(f"line {n} of the output{WIDE if n % 1_000 == 0 else ''}, wörter\n" for n in range(1_500_000))


def picture() -> list[dict[str, object]]:
    data = base64.b64encode(random.Random(1).randbytes(38_000_000)).decode()
    return [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(("content", "episodes"), [(picture, 1), (long_text, 10_000)])
def test_04_a_line_of_50_megabytes_goes_through_in_bounded_memory(
    tmp_path: Path, content: Callable[[], object], episodes: int
) -> None:
    log = Log()
    log.user("Why?")
    log.call("Bash", "t1", command="make")
    record = log.result("t1", content())
    log.lines[-1] = json.dumps(record, ensure_ascii=False)
    log_path(tmp_path).write_text("".join(f"{line}\n" for line in log.lines), encoding="utf-8")
    assert len(log.lines[-1]) > 50_000_000
    del log, record
    found = ingested_in_a_child(tmp_path)
    print(found)
    assert (found["messages"], found["malformed"]) == (3, 0)
    assert found["episodes"] >= episodes
    assert found["rss_mb"] < LIMIT_MB


def sparse_lines(wanted: int) -> Iterator[str]:
    """So many bytes of a session: mostly progress, a picture now and then, and a little talk."""
    log, size = Log(), 0
    data = base64.b64encode(bytes(range(256)) * 4_000).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    while size < wanted:
        log.user(f"prompt after {size} bytes", uuid=f"u{size}")
        log.say(f"answer after {size} bytes")
        for n in range(800):
            log.record("progress", data={"type": "bash_progress", "output": f"step {n} " * 200})
        for n in range(6):
            log.user(
                [
                    {
                        "type": "tool_result",
                        "tool_use_id": f"t{size}-{n}",
                        "content": [{"type": "image", "source": source}],
                    }
                ]
            )
        for line in log.lines:
            size += len(line) + 1
            yield line
        log.lines.clear()


@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_04_a_log_of_4_gigabytes_goes_through_in_bounded_memory() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, prompts, results = log_path(Path(folder)), 0, 0
        with path.open("w") as file:
            for line in sparse_lines(4_000_000_000):
                prompts += '"prompt after' in line
                results += '"tool_use_id"' in line
                file.write(f"{line}\n")
        found = ingested_in_a_child(Path(folder))
        print(found)
        assert found["messages"] == 2 * prompts + results
        assert found["rss_mb"] < LIMIT_MB


def test_three_lines_appended_to_a_log_of_10_megabytes_cost_less_than_64_kilobytes(
    store: Store, tmp_path: Path
) -> None:
    home = Ingested(store, tmp_path)
    log = Log()
    while sum(map(len, log.lines[-200:])) * len(log.lines) / 200 < 10_000_000:
        log.user(f"prompt {len(log.lines)}")
        log.record("progress", data={"output": "x" * 60_000})
    home.write(log.lines)
    assert home.path(f"{SESSION}.jsonl").stat().st_size > 10_000_000
    home.ingest()
    before = {e.episode_id: e.raw_exchange for e in home.episodes()}
    reads: list[int] = []

    class Counted(LocalHost):
        def read(self, path: str, offset: int, length: int) -> bytes:
            data = super().read(path, offset, length)
            reads.append(len(data))
            return data

    home.host = Counted("box")
    log.user("a new prompt")
    log.say("its answer")
    log.user("and another")
    home.append(log.lines[-3:])
    seen = home.ingest()
    assert sum(reads) == seen.bytes_read < 64_000
    assert seen.messages == 3
    after = {e.episode_id: e.raw_exchange for e in home.episodes()}
    assert {text for key, text in after.items() if before.get(key) != text} == {
        "[User]\na new prompt\n\n[Claude]\nits answer", "[User]\nand another",
    }  # fmt: skip
