"""Huge files and lines, through crawl, parse and publish in a process whose memory is measured."""

import base64
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.model import ArchiveFrame
from anamnesis_pipeline.parsing.claude_logs.log_lines import MAX_VALUES
from anamnesis_pipeline.parsing.claude_logs.parser import TOO_LONG
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.services.extract import extract, extractable
from anamnesis_pipeline.sources import lines as lines_module
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.ingested import Ingested
from anamnesis_tests.support.log_lines import ROOT, SESSION, Log

LIMIT_MB = 500
MARKERS = ("startmarker", "middlemarker", "endmarker")
SECRET = "password: hunter2Xk99"
CHILD = """
import json, re, sys
from pathlib import Path
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.ingested import Ingested

folder = Path(sys.argv[1])
store = open_sqlite(folder / "anamnesis.db", folder / "index")
seen = Ingested(store, folder).ingest()
counts = store.overview.counts()
found = [word for word in sys.argv[2:] if store.text.matching([word], 1, EpisodeFilter())]
store.close()
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps({
    "rss_mb": int(peak[1]) / 1000, "messages": seen.messages,
    "malformed": seen.malformed, "lines": counts.lines, "episodes": counts.episodes, "found": found,
}))
"""


def ingested_in_a_child(folder: Path, *words: str) -> dict[str, Any]:
    """What one ingest of everything below `folder` saw, its peak of memory, and which of the words are found.

    The peak is VmHWM: `ru_maxrss` of a child begins with what the process that started it had.
    """
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), *words],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    print(found)
    return found


def log_path(folder: Path) -> Path:
    path = folder / ".claude" / "projects" / "-home-dev-shop" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    return path


def marked(piece: str, times: int) -> str:
    """A text that is as long as so many pieces, with a word to find at its beginning, middle and end."""
    start, middle, end = MARKERS
    return f"{start} {piece * (times // 2)} {middle} {piece * (times // 2)} {end}"


def picture() -> list[dict[str, object]]:
    start, *others = MARKERS
    data = base64.b64encode(random.Random(1).randbytes(38_000_000)).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    texts = [{"type": "text", "text": start}, {"type": "text", "text": " ".join(others)}]
    return [texts[0], {"type": "image", "source": source}, texts[1]]


HUGE: dict[str, tuple[Callable[[], object], bool, int]] = {
    "a picture": (picture, False, 1),
    "plain text": (lambda: marked("some plain words of a text. ", 1_800_000), False, 12_000),
    "emoji": (lambda: marked("\U0001f600", 12_500_000), False, 3_000),
    "escaped emoji": (lambda: marked("\U0001f600", 4_170_000), True, 1_000),
    "short lines": (lambda: marked("a\n", 16_700_000), False, 8_000),
    "commas and quotes": (lambda: marked('1, "a", [2],{"x": 3}, ', 1_930_000), False, 8_000),
    # one character that widens the whole string in memory, and a mask, which makes a copy of the line
    "an emoji in plain text, and a secret": (
        lambda: marked("line of the output, wörter\n" * 1_000 + " \U0001f600", 1_800) + f" {SECRET}",
        False,
        12_000,
    ),
}
"""Name -> (a tool's output, whether its line is ASCII, least number of episodes)."""


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("what", HUGE)
def test_a_line_of_50_megabytes_is_read_whole_in_bounded_memory(tmp_path: Path, what: str) -> None:
    make, as_ascii, episodes = HUGE[what]
    log = Log().talk("Why?")
    log.call("Bash", "t1", command="make")
    record = log.result("t1", make())
    log.lines[-1] = json.dumps(record, ensure_ascii=as_ascii)
    path = log_path(tmp_path)
    path.write_text("".join(f"{line}\n" for line in log.lines), encoding="utf-8")
    assert path.stat().st_size > 49_900_000
    del log, record
    found = ingested_in_a_child(tmp_path, *MARKERS, SECRET.rpartition(" ")[2])
    assert (found["messages"], found["malformed"]) == (3, 0)
    assert found["found"] == list(MARKERS)
    assert found["episodes"] >= episodes
    assert found["rss_mb"] < LIMIT_MB


SHAPES = {
    "objects": ("[", '{{"a":1.5,"b":"some {}"}}', 3, "]"),
    "lists": ("[", "[1,22,{}]", 4, "]"),
    "short strings": ("[", '"{:06x}"', 1, "]"),
    "numbers": ("[", "{}.5", 1, "]"),
    "a flat object": ("{", '"{:06x}":1', 1, "}"),
}
"""Name -> how the values begin, one of them by its number, how many each counts for, and how they end."""


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("what", ["plain text", "short lines", "an emoji in plain text, and a secret"])
def test_an_output_of_50_megabytes_in_its_own_file_is_read_too(tmp_path: Path, what: str) -> None:
    path = log_path(tmp_path)
    output = path.parent / SESSION / "tool-results" / "t1.txt"
    output.parent.mkdir(parents=True)
    output.write_text(f"{HUGE[what][0]()}\n" + "\n" * 100_000, encoding="utf-8")
    log = Log().talk("Why?")
    log.call("Bash", "t1", command="make")
    log.result("t1", f"<persisted-output>\nOutput too large. Full output saved to: {output}\n</persisted-output>")
    path.write_text("".join(f"{line}\n" for line in log.lines), encoding="utf-8")
    found = ingested_in_a_child(tmp_path, *MARKERS, SECRET.rpartition(" ")[2])
    assert (found["messages"], found["malformed"]) == (3, 0)
    assert found["found"] == list(MARKERS)
    assert found["rss_mb"] < LIMIT_MB


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.9, 1.1, None])
def test_a_line_of_a_million_values_is_read_or_kept(tmp_path: Path, shape: str, share: float | None) -> None:
    log = Log().talk("Why?")
    begins, value, marks, ends = SHAPES[shape]
    count = int(share * MAX_VALUES / marks) if share else 47_000_000 // len(value.format(0) + ",")
    values = f"{begins}{','.join(map(value.format, range(count)))}{ends}"
    filler = "x" * (50_000_000 - len(values))
    line = f'{{"type":"user","filler":"{filler}","values":{values},"message":{{"content":"so"}}}}'
    log_path(tmp_path).write_text(f"{log.lines[0]}\n{line}\n", encoding="utf-8")
    found = ingested_in_a_child(tmp_path)
    assert found["malformed"] == (share is None or share > 1)
    assert found["rss_mb"] < LIMIT_MB


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("beginning", ["", '{"type":"user","message":"'])
def test_50_megabytes_that_are_no_json_are_kept(tmp_path: Path, beginning: str) -> None:
    log = Log().talk("Why?")
    damaged = beginning + marked("this is no json ", 3_130_000)
    log_path(tmp_path).write_text(f"{log.lines[0]}\n{damaged}\n{log.lines[0]}\n", encoding="utf-8")
    found = ingested_in_a_child(tmp_path)
    assert (found["messages"], found["malformed"], found["lines"]) == (1, 1, 3)
    assert found["rss_mb"] < LIMIT_MB
    with closing(open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")) as store:
        assert Ingested(store, tmp_path).archived()[1] == damaged


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("unit", ["a", "word and é, ", "\U0001f600"])
def test_a_line_of_a_gigabyte_is_archived_in_bounded_memory(tmp_path: Path, unit: str) -> None:
    log, kept = Log(), unit.encode() * 50_000
    log.user("Why?")
    digest = hashlib.sha256()
    with log_path(tmp_path).open("wb") as file:
        for part in (f"{log.lines[0]}\n".encode(), *repeat(kept, (1 << 30) // len(kept)), b"\n", b'{"type":"mode"}\n'):
            file.write(part)
            digest.update(part)
    found = ingested_in_a_child(tmp_path)
    assert (found["messages"], found["malformed"]) == (1, 1)
    assert found["rss_mb"] < LIMIT_MB
    with closing(open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")) as store:
        (letter,) = store.messages.dead_letters()
        assert (letter.line, letter.reason) == (1, TOO_LONG)
        extract(store, Archive(tmp_path / "archive"), extractable(store), tmp_path / "out", force=False)
    (written,) = (tmp_path / "out").rglob("*.jsonl")
    again = hashlib.sha256()
    with written.open("rb") as file:
        while block := file.read(1 << 20):
            again.update(block)
    assert again.digest() == digest.digest()


LONG = f"{'a b ' * 2_000}api_key = x8Jq2mVn4Lw7Tz5Rk9 {'é → ' * 2_000}sk-ant-api03-{'Qw7Er5Ty9' * 10} {'z' * 9_000}"


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of more than 8 KB are too long, and come in pieces of 1 KB, 4 in a frame."""
    small = {"MAX_LINE_BYTES": 8_000, "BLOCK_BYTES": 1_024, "BATCH_CHARS": 4_096, "_CUTS": (0, 60, 300)}
    for name, value in small.items():
        monkeypatch.setattr(lines_module, name, value)


@pytest.mark.usefixtures("short_lines")
def test_too_long_line_is_masked_told_and_extracted(store: Store, tmp_path: Path) -> None:
    home, log = Ingested(store, tmp_path), Log()
    log.user("before")
    log.lines.append(LONG)
    log.user("after")
    seen = home.take(log.lines)
    assert (seen.messages, seen.malformed) == (2, 1)
    (letter,) = store.messages.dead_letters()
    assert (letter.line, letter.reason) == (1, TOO_LONG)
    assert "before" in home.texts()
    assert "after" in home.texts()
    extract(store, home.archive, extractable(store), tmp_path / "out", force=False)
    (written,) = (tmp_path / "out").rglob("*.jsonl")
    lines = written.read_text().splitlines()
    assert lines == [log.lines[0], home.mask(LONG)[0], log.lines[2]]
    again = home.ingest()
    assert (again.bytes_read, again.replaced, again.malformed) == (0, 0, 0)
    assert home.take([*log.lines, *log.lines[2:]]).replaced == 0


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize("frames", [1, 3, 6])
def test_interrupted_crawl_goes_on_inside_a_long_line(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: int
) -> None:
    home, log = Ingested(store, tmp_path), Log()
    log.lines.append(LONG)
    log.user("after")
    home.write(log.lines)
    with monkeypatch.context() as patch:
        left = iter([home.archive.append] * frames)

        def append(*given: Any, **named: Any) -> ArchiveFrame:
            return next(left)(*given, **named)

        patch.setattr(home.archive, "append", append)
        with pytest.raises(StopIteration):
            home.crawl()
    home.parse()
    seen = home.ingest()
    assert (seen.messages, seen.malformed) == (1, 0)
    extract(store, home.archive, extractable(store), tmp_path / "out", force=False)
    (written,) = (tmp_path / "out").rglob("*.jsonl")
    assert written.read_text().splitlines() == [home.mask(LONG)[0], log.lines[1]]
    assert len(store.messages.dead_letters()) == 1


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
            log.result(f"t{size}-{n}", [{"type": "image", "source": source}])
        for line in log.lines:
            size += len(line) + 1
            yield line
        log.lines.clear()


@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_a_log_of_4_gigabytes_is_read_in_bounded_memory() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, prompts, results = log_path(Path(folder)), 0, 0
        with path.open("w") as file:
            for line in sparse_lines(4_000_000_000):
                prompts += '"prompt after' in line
                results += '"tool_use_id"' in line
                file.write(f"{line}\n")
        found = ingested_in_a_child(Path(folder))
        assert found["messages"] == 2 * prompts + results
        assert found["rss_mb"] < LIMIT_MB


def test_three_lines_appended_cost_less_than_64_kilobytes(store: Store, tmp_path: Path) -> None:
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
    seen = home.grow(log.lines[-3:])
    assert sum(reads) <= seen.bytes_read < 64_000, "what is looked at twice is read once"
    assert seen.messages == 3
    after = {e.episode_id: e.raw_exchange for e in home.episodes()}
    assert {text for key, text in after.items() if before.get(key) != text} == {
        "[User]\na new prompt\n\n[Claude]\nits answer",
        "[User]\nand another",
    }
