from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anamnesis_pipeline.model import FileCursor, Part, Source
from anamnesis_pipeline.parsing.claude_logs.chunking import HARD
from anamnesis_pipeline.pipeline import parse as step
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.parse import ParseReport, parse_source
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.messages import ParsedChunk
from anamnesis_tests.support.log_lines import REAL_LOGS, SESSION, START, Log, lines_of, parse, real_logs, texts

SOURCE = Source("box--shop--00000000", "box", "/logs", "shop")
PATH = f"{SESSION}.jsonl"
LATER = START + timedelta(days=1)


class Deployment:
    """A real store and a real archive; `crawl` does what the crawler does with new lines."""

    def __init__(self, store: Store, home: Path) -> None:
        self.store = store
        self.archive = Archive(home / "archive")
        self.store.files.put_sources([SOURCE])

    def cursor(self, path: str = PATH) -> FileCursor:
        return self.store.files.cursors(SOURCE.key)[path]

    def crawl(self, lines: list[str], path: str = PATH, *, mtime_ns: int = 0, replaced: bool = False) -> None:
        before = self.store.files.cursors(SOURCE.key).get(path)
        base = before or FileCursor(SOURCE.key, path)
        if replaced:
            base = replace(base, generation=base.generation + 1, lines=0, parsed_lines=0)
        frames = self.store.archive.frames(SOURCE.key, path, base.generation)
        end = frames[-1].archive_offset + frames[-1].archive_bytes if frames else 0
        frame = self.archive.append(SOURCE.key, path, base.generation, base.lines, lines, at=end)
        after = replace(base, lines=base.lines + len(lines), mtime_ns=mtime_ns)
        assert self.store.files.commit_crawl(before, after, frame)

    def lines(self, cursor: FileCursor, from_line: int) -> Iterator[str]:
        frames = self.store.archive.frames(cursor.source, cursor.path, cursor.generation, from_line)
        return self.archive.lines(cursor.source, cursor.path, frames, from_line)

    def parse(self, now: datetime = START, **instead: Any) -> ParseReport:
        given = {"store": self.store, "lines_of": self.lines} | instead
        lines = SimpleNamespace(read=given["lines_of"])
        return parse_source(given["store"], lines, SOURCE, now=now, idle_minutes=30, label=lambda cwd: cwd)

    def parts(self) -> list[Part]:
        waiting = self.store.parts.parts_to_publish(SOURCE.key, 10_000)
        return sorted((part for part, _ in waiting), key=lambda part: (part.path, part.ordinal))


@pytest.fixture
def deployment(store: Store, tmp_path: Path) -> Deployment:
    return Deployment(store, tmp_path)


def conversation(length: int = 12) -> list[str]:
    log = Log()
    for number in range(length):
        log.user(f"prompt {number}")
        log.tool("Bash", f"t{number}", f"output {number}\n" * 100, command="make")
        log.say(f"statement {number}")
    return log.lines


def as_parsed_at_once(lines: list[str], path: str = PATH) -> list[Part]:
    return [replace(part, source=SOURCE.key) for part in parse(lines, path)]


def test_lines_become_parts_and_a_second_run_adds_nothing(deployment: Deployment) -> None:
    lines = conversation()
    deployment.crawl([*lines, "torn {"])
    report = deployment.parse()
    assert (report.files, report.lines, report.messages, report.duplicates) == (1, 49, 48, 0)
    assert (report.parts, report.exchanges, report.malformed) == (12, 12, 1)
    assert deployment.parts() == as_parsed_at_once(lines)
    again = deployment.parse()
    assert (again.files, again.lines, again.parts) == (0, 0, 0)
    assert deployment.parts() == as_parsed_at_once(lines)


def test_lines_one_by_one_give_the_same_parts_as_at_once(deployment: Deployment) -> None:
    lines = conversation(3)
    for line in lines:
        deployment.crawl([line])
        deployment.parse()
    assert deployment.parts() == as_parsed_at_once(lines)


def test_an_idle_part_is_closed_and_grows_with_a_late_line(deployment: Deployment) -> None:
    lines = conversation(2)
    deployment.crawl(lines[:-1])
    assert deployment.parse(now=LATER).closed == 1
    assert all(part.closed for part in deployment.parts())
    deployment.crawl(lines[-1:])
    deployment.parse()
    assert deployment.parts() == as_parsed_at_once(lines)


def test_chunks_end_at_a_number_of_lines_or_characters(monkeypatch: pytest.MonkeyPatch, deployment: Deployment) -> None:
    monkeypatch.setattr(step, "CHUNK_LINES", 5)
    monkeypatch.setattr(step, "CHUNK_CHARACTERS", 1_000)
    lines = conversation()
    deployment.crawl(lines)
    deployment.parse()
    assert deployment.parts() == as_parsed_at_once(lines)
    assert deployment.cursor().version > len(lines) // 5


def test_one_huge_line_is_written_in_several_transactions(deployment: Deployment) -> None:
    log = Log()
    log.user("prompt")
    log.tool("Bash", "t1", "".join(f"line {number}\n" for number in range(300_000)), command="make")
    log.say("done")
    deployment.crawl(log.lines)
    report = deployment.parse()
    assert report.parts > 800
    assert deployment.parts() == as_parsed_at_once(log.lines)


def test_a_huge_line_that_was_cut_off_is_written_once(deployment: Deployment) -> None:
    log = Log()
    log.user("prompt")
    deployment.crawl(log.lines)
    deployment.parse()
    log.tool("Bash", "t1", "word " * 500_000, command="make")
    deployment.crawl(log.lines[1:])
    real_commit, calls = deployment.store.messages.commit_parsed, []

    class DiesBeforeTheLast:
        def __getattr__(self, name: str) -> object:
            return getattr(deployment.store.messages, name)

        def commit_parsed(self, chunk: ParsedChunk) -> bool:
            calls.append(chunk)
            if any(key.startswith("r:t1:") for key in chunk.keys):
                raise KeyboardInterrupt
            return real_commit(chunk)

    with pytest.raises(KeyboardInterrupt):
        deployment.parse(store=replace(deployment.store, messages=DiesBeforeTheLast()))
    assert len(calls) > 2
    deployment.parse()
    assert deployment.parts() == as_parsed_at_once(log.lines)


def test_the_oldest_file_owns_a_message_with_its_copies(deployment: Deployment) -> None:
    lines = conversation(3)
    added = Log(session="resumed")
    added.minute = 60
    added.assistant({"type": "text", "text": "new in the copy"}, message_id="msg-new")
    deployment.crawl([*lines, *added.lines], "00000000-resumed.jsonl", mtime_ns=2)
    deployment.crawl(lines, PATH, mtime_ns=1)
    report = deployment.parse()
    assert (report.messages, report.duplicates) == (13, 12)
    assert [part.path for part in deployment.parts()] == ["00000000-resumed.jsonl", PATH, PATH, PATH]
    counts = deployment.store.overview.counts(SOURCE.key)
    assert (counts.messages, counts.occurrences) == (13, 12)


def test_a_replaced_file_closes_its_former_last_part(deployment: Deployment) -> None:
    lines = conversation(3)
    deployment.crawl(lines)
    deployment.parse()
    before = deployment.parts()
    log = Log()
    log.minute = 30
    log.user("after the rewrite", uuid="uuid-new")
    deployment.crawl([*lines[:5], *log.lines], replaced=True)
    report = deployment.parse()
    after = deployment.parts()
    assert (report.messages, report.duplicates) == (1, 5)
    assert after[:3] == [replace(part, closed=True) for part in before]
    assert (texts(after[3:]), after[3].ordinal) == (["after the rewrite"], 3)


def test_a_file_replaced_before_it_was_parsed_loses_nothing(deployment: Deployment) -> None:
    lines = conversation(4)
    deployment.crawl(lines[:8])
    deployment.crawl(lines[8:], replaced=True)
    deployment.parse()
    assert sorted(texts(deployment.parts())) == sorted(texts(as_parsed_at_once(lines)))
    assert deployment.cursor().parsed_lines == deployment.cursor().lines == 8


def test_a_file_whose_cursor_moved_is_left_to_the_other_run(deployment: Deployment) -> None:
    lines = conversation(3)
    deployment.crawl(lines[:6])

    def lines_while_the_crawler_writes(cursor: FileCursor, from_line: int) -> Iterator[str]:
        found = list(deployment.lines(cursor, from_line))
        deployment.crawl(lines[6:])
        return iter(found)

    report = deployment.parse(lines_of=lines_while_the_crawler_writes)
    assert (report.overtaken, report.messages, deployment.parts()) == (1, 0, [])
    assert deployment.parse().messages == 12
    assert deployment.parts() == as_parsed_at_once(lines)


def test_a_parser_state_of_another_version_stops_no_file(deployment: Deployment) -> None:
    lines = conversation(2)
    deployment.crawl(lines[:4])
    deployment.parse()
    cursor = deployment.cursor()
    assert deployment.store.files.commit_crawl(cursor, replace(cursor, parser_state='{"version":0}'), None)
    deployment.crawl(lines[4:])
    assert deployment.parse().messages == 4
    assert sorted(texts(deployment.parts())) == sorted(texts(as_parsed_at_once(lines)))


@pytest.mark.skipif(not REAL_LOGS.is_dir(), reason=f"no logs at {REAL_LOGS}")
def test_real_logs_come_out_of_the_store_as_they_were_cut(deployment: Deployment) -> None:
    paths = [path for path in real_logs() if path.stat().st_size < 300_000]
    for number, path in enumerate(paths):
        deployment.crawl(lines_of(path), path.name, mtime_ns=number)
    deployment.parse(now=datetime.now(UTC))
    parts = deployment.parts()
    expected = [part for path in paths for part in as_parsed_at_once(lines_of(path), path.name)]
    assert {part.part_id: part.segments for part in parts} == {part.part_id: part.segments for part in expected}
    assert all(part.closed for part in parts)
    assert all(sum(len(segment.text) for segment in part.segments) <= HARD for part in parts)
