"""Outputs that Claude Code moved out of a transcript are archived, found, masked, given back and forgotten like it."""

import base64
import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.model import FileCursor, Source
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.pipeline import crawl as crawl_module
from anamnesis_pipeline.pipeline import tool_outputs as outputs_module
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.dead_letters import retry_dead_letters
from anamnesis_pipeline.pipeline.survey import Hosts
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.extract import extract, extractable
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.sources import local as local_module
from anamnesis_pipeline.sources.base import Read, SourceHost
from anamnesis_tests.support.archived_logs import FOLDER, OTHER, SESSION, Home, record, unmasked
from anamnesis_tests.support.crawled_documents import SameLabels

Mask = Callable[[str], tuple[str, Counter[str]]]
REDACTOR = Redactor(b"salt")
BEGIN, END = (f"-----{mark} RSA " + "PRIVATE KEY-----" for mark in ("BEGIN", "END"))
KEY = "\n".join([BEGIN, *(f"{n:02}q7Zk" * 10 for n in range(25)), END])
AGENT = f"{FOLDER}/{SESSION}/subagents/agent-a1.jsonl"
WHOLE = "first line\n\n    indented\n" + "".join(f"line {n} of the output\n" for n in range(2_000)) + "the last okapi\n"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.close()


def path_of(name: str, session: str = SESSION) -> str:
    return f"{session}/tool-results/{name}"


def put_out(
    home: Home, text: str | bytes, name: str = "toolu_1.txt", session: str = SESSION, folder: str = FOLDER
) -> Path:
    file = home.logs / folder / path_of(name, session)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def preview(place: str, head: str = "first line") -> str:
    said = f"Output too large (48KB). Full output saved to: {place}\n\nPreview (first 2KB):\n{head}\n...\n"
    return f"<persisted-output>\n{said}</persisted-output>"


def result(
    place: str, number: int = 2, session: str = SESSION, head: str = "first line", call: str = "toolu_1", **fields: Any
) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": preview(place, head)}
    return record("user", "", number, session, message={"role": "user", "content": [block]}, **fields)


def recorded(place: Path | str, **fields: Any) -> list[dict[str, Any]]:
    prompt = record("user", "What did the walrus build print?", 1)
    return [prompt, result(str(place), **fields), record("assistant", "The narwhal says it is fine.", 3)]


def ingest_output(home: Home, text: str | bytes, mask: Mask | None = None, name: str = "toolu_1.txt") -> Path:
    """Ingest a log whose output was moved out, under `mask`."""
    file = put_out(home, text, name)
    home.write(recorded(file))
    home.ingest(mask)
    return file


def said(home: Home) -> str:
    """Everything that results say, put together again."""
    return "".join(
        segment.text
        for part in sorted(home.store.forgetting.parts_after("", 10_000), key=lambda part: part.ordinal)
        for segment in part.segments
        if segment.kind == "tool_result"
    )


def test_the_whole_output_is_the_text_of_its_result(home: Home) -> None:
    file = put_out(home, WHOLE)
    home.write(recorded(f"/somewhere/else/{path_of('toolu_1.txt')}"))
    home.ingest()
    assert said(home) == WHOLE.removesuffix("\n")
    assert home.finds("okapi")
    assert "persisted-output" not in said(home)
    before = home.store.overview.counts()
    file.unlink()
    home.ingest()
    after = home.store.overview.counts()
    assert (before.files, before.files_gone, after.files_gone, after.unparsed_lines) == (2, 0, 1, 0)
    assert (after.messages, after.occurrences, after.dead_letters) == (3, 0, 0)
    assert home.store.parts.unfinished_sources(home.episodes()[0].timestamp) == set()


def test_base64_in_a_moved_output_becomes_size_and_hash(home: Home) -> None:
    data = base64.b64encode(random.Random(8).randbytes(3_000)).decode()
    put_out(home, f"a chart\n{data}\nand an okapi")
    home.write(recorded(f"/somewhere/else/{path_of('toolu_1.txt')}"))
    home.ingest()
    digest = hashlib.sha256(base64.b64decode(data)).hexdigest()[:12]
    assert said(home) == f"a chart\n[base64, 3000 bytes, sha256 {digest}]\nand an okapi"


@pytest.mark.parametrize("content", ["Done, with much output.", preview("C:\\x\\y.txt")])
def test_the_structured_copy_of_a_result_names_the_file_too(home: Home, content: str) -> None:
    put_out(home, WHOLE, "b5.txt")
    lines = recorded("")
    lines[1]["message"]["content"][0]["content"] = content
    lines[1]["toolUseResult"] = {"persistedOutputPath": f"C:\\Users\\me\\projects\\p\\{SESSION}\\tool-results\\b5.txt"}
    home.write(lines)
    home.ingest()
    assert said(home) == (WHOLE.removesuffix("\n") if content.startswith("Done") else content)


def test_it_comes_back_with_its_session_line_by_line(home: Home, tmp_path: Path) -> None:
    text = "\ufefffirst\r\n\r\n\n\tindented  \nsecond \u2028 one\nlast without a newline"
    ingest_output(home, text)
    extract(home.store, home.archive, extractable(home.store, session_id=SESSION), tmp_path / "out", force=False)
    assert (tmp_path / "out" / FOLDER / path_of("toolu_1.txt")).read_bytes() == f"{text}\n".encode()
    assert said(home) == text


def test_an_output_of_content_blocks_becomes_their_text(home: Home) -> None:
    blocks = [{"type": "text", "text": "the okapi\nsleeps"}, {"type": "text", "text": "well"}]
    ingest_output(home, json.dumps(blocks, indent=2), name="mcp-1.json")
    assert said(home) == "the okapi\nsleeps\nwell"


def test_an_output_that_comes_late_makes_no_second_message(home: Home) -> None:
    home.write(recorded(home.logs / FOLDER / path_of("toolu_1.txt")))
    home.ingest()
    assert said(home).startswith("<persisted-output>")
    put_out(home, WHOLE)
    home.ingest()
    home.ingest()
    assert home.store.overview.counts().messages == 3
    assert said(home).startswith("<persisted-output>")
    assert home.archived(path_of("toolu_1.txt")) == WHOLE.split("\n")[:-1]


def test_a_record_is_never_read_before_its_output_was_listed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output and its record are written while the folder is walked, as late as it can see the record."""
    home.write(recorded("")[:1])
    log, walked = home.logs / FOLDER / f"{SESSION}.jsonl", local_module._file_stat

    def stat(path: str, status: os.stat_result) -> Any:
        if path == log.name:
            file = put_out(home, WHOLE)
            home.write(recorded(file)[1:])
            status = os.stat(log)
        return walked(path, status)

    put_out(home, "an earlier output", "earlier.txt")
    monkeypatch.setattr(local_module, "_file_stat", stat)
    home.ingest()
    assert said(home) == WHOLE.removesuffix("\n")


def test_a_file_that_was_caught_half_written_is_read_anew(home: Home) -> None:
    file = put_out(home, WHOLE[:-8])
    home.write(recorded("")[:1])
    home.ingest()
    file.write_text(WHOLE)
    home.write(recorded(file)[1:])
    home.ingest()
    assert said(home) == WHOLE.removesuffix("\n")
    assert home.archived(path_of("toolu_1.txt"), generation=1) == WHOLE.split("\n")[:-1]


def test_copies_of_the_record_are_one_message(home: Home) -> None:
    lines = recorded(put_out(home, WHOLE))
    home.write(lines)
    forked = [line | {"sessionId": OTHER, "forkedFrom": {"sessionId": SESSION}} for line in lines]
    home.write(forked, f"{FOLDER}/{OTHER}.jsonl")
    home.write([line | {"sessionId": OTHER} for line in lines], f"-elsewhere/{OTHER}.jsonl")
    home.ingest()
    assert home.store.overview.counts().messages == 3
    assert said(home) == WHOLE.removesuffix("\n")


def test_a_copy_finds_the_output_in_its_own_session_too(home: Home) -> None:
    put_out(home, WHOLE, session=OTHER)
    lines = recorded("/gone/tool-results/toolu_1.txt")
    home.write([line | {"sessionId": OTHER} for line in lines], f"{FOLDER}/{OTHER}.jsonl")
    home.ingest()
    assert said(home) == WHOLE.removesuffix("\n")


def test_a_too_long_output_is_archived_and_its_preview_stays(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs_module, "LONGEST_OUTPUT", len(WHOLE) - 1)
    ingest_output(home, WHOLE)
    assert said(home).startswith("<persisted-output>")
    assert len(home.archived(path_of("toolu_1.txt"))) == WHOLE.count("\n")


@pytest.mark.parametrize("most", [1_000, 7])
def test_a_private_key_is_masked_wherever_frames_end(home: Home, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(crawl_module, "OUTPUT_FRAME_LINES", most)
    text = f"before\n{KEY}\nafter\n" * 2
    ingest_output(home, text, REDACTOR.mask_line)
    lines = home.archived(path_of("toolu_1.txt"))
    assert [n for n, line in enumerate(lines) if line in {"before", "after"}] == [0, 28, 29, 57]
    assert b"q7Zkq7Zk" not in home.bytes()
    assert "[REDACTED:private-key:" in said(home)
    report = home.store.overview.counts()
    put_out(home, text).touch()
    home.ingest(REDACTOR.mask_line)
    assert home.store.files.cursors(home.source().key)[path_of("toolu_1.txt")].generation == 0
    assert home.store.overview.counts() == report


def test_a_secret_is_counted_once_wherever_frames_end(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_module, "OUTPUT_FRAME_LINES", 7)
    home.write([record("user", "What did the walrus build print?", 1)])
    home.ingest()
    put_out(home, f"before [REDACTED:private-key:0a1b2c3d]\n{KEY}\nafter\n" * 2)
    pipeline = replace(wiring.open_pipeline(home.settings, home.store), mask=REDACTOR.mask_line)
    report = pipeline.crawl(home.source())
    assert report.masked == {"private-key": 2}


def test_a_file_saved_anew_with_the_same_text_is_archived_once(home: Home) -> None:
    file = ingest_output(home, f"{WHOLE}{KEY}\n", REDACTOR.mask_line)
    draft = file.with_name("draft")
    draft.write_bytes(file.read_bytes())
    draft.replace(file)
    home.ingest(REDACTOR.mask_line)
    assert home.store.files.cursors(home.source().key)[path_of("toolu_1.txt")].generation == 0


def test_new_rules_mask_it_anew_across_its_lines(home: Home) -> None:
    ingest_output(home, f"before\n{KEY}\nafter\n", unmasked)
    assert home.rescan(REDACTOR).changed["archive lines"] == 27
    assert b"q7Zkq7Zk" not in home.bytes()
    lines = home.archived(path_of("toolu_1.txt"))
    assert (len(lines), lines[0], lines[-1]) == (29, "before", "after")


@pytest.mark.parametrize("how", ["id", "query", "session", "path"])
def test_what_is_forgotten_goes_from_its_output_too(home: Home, how: str) -> None:
    file = put_out(home, WHOLE)
    put_out(home, "the gecko sleeps\n", "other.txt", OTHER)
    home.write(recorded(file))
    other = [line | {"sessionId": OTHER} for line in [result(path_of("other.txt", OTHER), 90, OTHER, call="toolu_9")]]
    home.write(other, f"{FOLDER}/{OTHER}.jsonl")
    home.ingest(unmasked)
    found = tuple(e.episode_id for e in home.episodes() if "of the output" in e.raw_exchange)
    asked = {
        "id": {"ids": found},
        "query": {"query": "of the output"},
        "session": {"session_id": SESSION},
        "path": {"path": str(home.logs / FOLDER / SESSION)},
    }[how]
    if how == "path":  # of the folder alone: what is said of it stays
        assert home.forget(**asked).lines == WHOLE.count("\n") - 1
        assert set(home.archived(path_of("toolu_1.txt"))) == {""}
        return
    report = home.forget(**asked)
    assert any(str(file) in place for place in report.remains)
    copy = home.logs / "-back-from-a-backup" / path_of("toolu_1.txt")
    copy.parent.mkdir(parents=True)
    copy.write_bytes(file.read_bytes())
    file.write_text(f"{WHOLE}and more\n")
    home.write([record("user", "hello", 99, OTHER)], f"-back-from-a-backup/{OTHER}.jsonl")
    home.ingest(unmasked)
    assert b"the last okapi" not in home.bytes()
    assert b"indented" not in home.bytes()
    assert b"the gecko sleeps" in home.bytes()


def test_an_output_that_came_late_is_forgotten_with_its_record(home: Home) -> None:
    home.write(recorded(home.logs / FOLDER / path_of("toolu_1.txt")))
    home.ingest(unmasked)
    put_out(home, WHOLE)
    home.ingest(unmasked)
    home.forget(query="walrus")
    assert b"the last okapi" not in home.bytes()


def test_a_dead_letter_that_can_be_read_gets_its_output(home: Home) -> None:
    home.write([recorded(put_out(home, WHOLE))[0], '{"torn'])
    home.ingest(unmasked)
    (letter,) = home.store.messages.dead_letters()
    line = json.dumps(recorded(path_of("toolu_1.txt"))[1])
    stored = ArchivedLines(home.store, home.archive)

    class Mended:
        def read(self, cursor: FileCursor, first: int = 0) -> Iterator[str]:
            return iter([line]) if cursor.path == letter.path else stored.read(cursor, first)

    retry_dead_letters(
        home.store,
        Mended(),
        labels=SameLabels(str),
        idle_minutes=30,
    )
    assert said(home) == WHOLE.removesuffix("\n")


def test_an_output_that_cannot_be_read_hides_nothing_else(home: Home) -> None:
    file = put_out(home, WHOLE)
    home.write(recorded(file))
    real = home.host.read

    class Unreadable:
        machine, folders, list_files, file = home.host.machine, home.host.folders, home.host.list_files, home.host.file

        def read(self, path: str, offset: int, length: int) -> bytes:
            return real("/nowhere" if "tool-results" in path else path, offset, length)

        def fetching(self, files: object) -> AbstractContextManager[Read]:
            return nullcontext(self.read)

    class OneHost(Hosts):
        def of_source(self, source: Source) -> SourceHost:
            return Unreadable()

    pipeline = wiring.open_pipeline(home.settings, home.store)
    pipeline = replace(pipeline, hosts=OneHost(pipeline.hosts.specs, pipeline.hosts.local, pipeline.hosts.open_remote))
    sources = wiring.discover_sources(home.settings).sources
    (report,) = ingest_all(pipeline, sources)
    assert (len(report.crawl.problems), report.parse.messages) == (1, 3)
    home.ingest()
    assert home.store.overview.counts().messages == 3
    assert len(home.archived(path_of("toolu_1.txt"))) == WHOLE.count("\n")


def test_an_agents_answer_that_was_moved_out_is_there_once(home: Home) -> None:
    answer = WHOLE.removesuffix("\n")
    lines = recorded(put_out(home, f"{answer}\nagentId: a1\n"), toolUseResult={"agentId": "a1", "status": "completed"})
    agent = {"isSidechain": True, "agentId": "a1"}
    own = [record("user", "Look.", 2, uuid="a-1", **agent), record("assistant", answer, 3, uuid="a-2", **agent)]
    home.write(own, AGENT)
    home.ingest()
    assert home.store.overview.counts().messages == 2
    home.write(lines)
    home.ingest()
    assert home.store.overview.counts().messages == 4
    assert "\n".join(e.raw_exchange for e in home.episodes()).count("the last okapi") == 1


def test_a_forgotten_text_goes_from_answers_of_this_memory_too(home: Home) -> None:
    said = "Why is the ledger of the walrus module wrong by one cent?"
    call = {"type": "tool_use", "id": "toolu_7", "name": "Bash", "input": {"command": "anamnesis search ledger"}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_7", "content": f'{{"excerpt": "{said}"}}'}
    other = {"type": "tool_result", "tool_use_id": "toolu_8", "content": "The gecko sleeps."}
    home.write([record("user", said, 1), record("user", "And what did we say of it before?", 50)])
    home.write([record("assistant", "", 51, message={"role": "assistant", "id": "m2", "content": [call]})])
    for number, block in enumerate((answer, other), 52):
        home.write([record("user", "", number, message={"role": "user", "content": [block]})])
    home.ingest(unmasked)
    home.forget("walrus")
    assert b"walrus" not in home.bytes()
    assert [line == "{}" for line in home.archived()] == [True, False, False, True, False]
