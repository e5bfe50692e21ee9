"""Copies and forks of logs in the archive: they take little room there, and depend on nothing that goes."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.pipeline import crawl as crawl_step
from anamnesis_pipeline.pipeline.crawl import crawl_source
from anamnesis_pipeline.services.extract import extract, extractable, rewrite_generation
from anamnesis_tests.support.archived_logs import FOLDER, OTHER, SESSION, Home, record, unmasked

ORIGINAL, FORK = f"{SESSION}.jsonl", f"{OTHER}.jsonl"
WORDS = random.Random(7)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.close()


def conversation(lines: int = 300) -> list[str]:
    """Records of words that do not compress."""
    said = [" ".join(f"{WORDS.getrandbits(40):x}" for _ in range(20)) for _ in range(lines)]
    return [json.dumps(record(("user", "assistant")[n % 2], text, n)) for n, text in enumerate(said)]


def fork(lines: list[str]) -> list[str]:
    """As Claude Code forks a session: the records keep their uuids, and get the new session's id."""
    records = [json.loads(line) for line in lines]
    return [
        json.dumps({**r, "sessionId": OTHER, "forkedFrom": {"sessionId": SESSION, "messageUuid": r["uuid"]}})
        for r in records
    ]


def archive_bytes(home: Home, path: str, folder: str = FOLDER) -> int:
    source = home.source(folder).key
    return sum(
        frame.archive_bytes
        for generation in range(home.store.files.cursors(source)[path].generation + 1)
        for frame in home.store.archive.frames(source, path, generation)
    )


def test_a_fork_takes_a_tenth_of_its_original(home: Home) -> None:
    lines = conversation()
    home.write(lines)
    home.write([*fork(lines), *conversation(4)], f"{FOLDER}/{FORK}")
    home.ingest(unmasked)
    assert archive_bytes(home, FORK) < archive_bytes(home, ORIGINAL) / 10
    written = (home.logs / FOLDER / FORK).read_text()
    assert home.archived(FORK) == written.splitlines()
    extract(home.store, home.archive, extractable(home.store, session_id=OTHER), home.base / "out", force=False)
    assert (home.base / "out" / FOLDER / FORK).read_text() == written


def test_a_log_that_moved_to_another_folder_is_archived_once(home: Home) -> None:
    lines = conversation()
    file = home.write(lines)
    home.ingest(unmasked)
    moved = home.logs / "-code-elsewhere" / ORIGINAL
    moved.parent.mkdir()
    shutil.move(file, moved)
    home.ingest(unmasked)
    assert archive_bytes(home, ORIGINAL, "-code-elsewhere") < 400
    assert home.archived(ORIGINAL) == home.archived(ORIGINAL, folder="-code-elsewhere") == lines


def test_a_log_rewritten_without_a_line_takes_little_room(home: Home) -> None:
    lines = conversation()
    file = home.write(lines)
    home.ingest(unmasked)
    before = archive_bytes(home, ORIGINAL)
    file.write_text("\n".join(lines[:100] + lines[101:]) + "\n")
    home.ingest(unmasked)
    assert archive_bytes(home, ORIGINAL) < before * 1.1
    assert home.archived(ORIGINAL) == lines
    assert home.archived(ORIGINAL, 1) == lines[:100] + lines[101:]


@pytest.mark.parametrize("shape", ["a fork of a fork", "copies that grow in turns"])
def test_copies_of_copies_can_all_be_rewritten(home: Home, monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    monkeypatch.setattr(crawl_step, "FRAME_LINES", 200)
    lines, later, last = conversation(), conversation(), conversation(200)
    third = f"{OTHER[:-1]}6.jsonl"
    home.write(lines)
    home.ingest(unmasked)
    home.write([*fork(lines), *later], f"{FOLDER}/{FORK}")
    home.ingest(unmasked)
    if shape == "a fork of a fork":
        home.write([*fork(lines), *later, *last], f"{FOLDER}/{third}")
    else:
        home.write([*later, *last])
        home.ingest(unmasked)
        home.write(last, f"{FOLDER}/{FORK}")
    home.ingest(unmasked)
    files = [path for path in (ORIGINAL, FORK, third) if path in home.store.files.cursors(home.source().key)]
    before = {path: home.archived(path) for path in files}
    for path in files:

        def shout(lines: list[str]) -> list[str]:
            return [line.replace("assistant", "ASSISTANT") for line in lines]

        assert rewrite_generation(home.store, home.archive, home.source().key, path, 0, shout) > 0
    assert {path: home.archived(path) for path in files} == {path: shout(lines) for path, lines in before.items()}


def test_a_fork_keeps_its_lines_when_its_original_is_rewritten(home: Home) -> None:
    lines = conversation()
    home.write(lines)
    home.write(fork(lines), f"{FOLDER}/{FORK}")
    home.ingest(unmasked)
    source = home.source().key
    changed = rewrite_generation(home.store, home.archive, source, ORIGINAL, 0, lambda lines: ["{}" for _ in lines])
    assert changed == 300
    assert set(home.archived(ORIGINAL)) == {"{}"}
    assert home.archived(FORK) == fork(lines)
    assert len(list((home.settings.archive_dir / source).glob("*.zst"))) == 2
    assert home.store.archive.leaning(source, ORIGINAL, 0) == []


def test_what_is_forgotten_leaves_the_original_and_its_fork(home: Home) -> None:
    lines = conversation()
    secret = json.dumps(record("user", "the launch is in Novosibirsk", 900))
    home.write([*lines[:100], secret, *lines[100:]])
    home.write(fork([*lines[:100], secret, *lines[100:]]), f"{FOLDER}/{FORK}")
    home.ingest(unmasked)
    home.forget(ids=tuple(home.finds("novosibirsk")))
    everything = "\n".join([*home.archived(ORIGINAL), *home.archived(FORK)])
    assert "Novosibirsk" not in everything
    assert [len(home.archived(path)) for path in (ORIGINAL, FORK)] == [301, 301]
    assert home.archived(FORK)[200] == fork(lines)[199]


def test_forgetting_a_fork_tells_what_its_original_keeps(home: Home) -> None:
    lines = conversation(40)
    home.write(lines)
    own = json.dumps(record("user", "only the fork asks for Novosibirsk", 900))
    home.write([*fork(lines), json.dumps(json.loads(own) | {"sessionId": OTHER})], f"{FOLDER}/{FORK}")
    home.ingest(unmasked)
    report = home.forget(session_id=OTHER)
    assert (report.lines, report.remains[0].startswith(f"40 archived lines of {FORK}: ")) == (1, True)
    assert "Novosibirsk" not in "\n".join(home.archived(FORK))


def test_a_rescan_masks_the_original_and_its_fork(home: Home) -> None:
    lines = conversation()
    token = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    lines.insert(40, json.dumps(record("user", f"use {token} for now", 900)))
    home.write(lines)
    home.write(fork(lines), f"{FOLDER}/{FORK}")
    home.ingest(unmasked)
    assert archive_bytes(home, FORK) < archive_bytes(home, ORIGINAL) / 10
    home.rescan(Redactor(b"salt"))
    assert token.encode() not in home.bytes()
    assert token not in "\n".join([*home.archived(ORIGINAL), *home.archived(FORK)])
    assert len(home.archived(FORK)) == 301


def test_a_fork_whose_original_is_lost_is_archived_by_itself(home: Home) -> None:
    lines = conversation()
    home.write(lines)
    home.ingest(unmasked)
    home.archive.file_of(home.source().key, ORIGINAL, 0).write_bytes(b"lost")
    home.write(fork(lines), f"{FOLDER}/{FORK}")
    report = crawl_source(home.store, home.host, home.archive, home.source(), unmasked)
    assert report.problems == []
    assert home.archived(FORK) == fork(lines)


def test_a_fork_waits_while_its_original_is_rewritten(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = conversation()
    home.write(lines)
    home.ingest(unmasked)
    home.write(fork(lines), f"{FOLDER}/{FORK}")
    source, commit = home.source().key, home.store.files.commit_crawl

    def late(*args, **kwargs):  # type: ignore[no-untyped-def]
        frames = home.store.archive.frames(source, ORIGINAL, 0)
        new = home.archive.rewrite(source, ORIGINAL, frames, list)
        assert home.store.archive.replace_frames(source, ORIGINAL, 0, 0, new)
        monkeypatch.setattr(home.store.files, "commit_crawl", commit)
        return commit(*args, **kwargs)

    monkeypatch.setattr(home.store.files, "commit_crawl", late)
    crawl_source(home.store, home.host, home.archive, home.source(), unmasked)
    assert home.store.archive.frames(source, FORK, 0) == []
    crawl_source(home.store, home.host, home.archive, home.source(), unmasked)
    assert home.archived(FORK) == fork(lines)
    assert archive_bytes(home, FORK) < archive_bytes(home, ORIGINAL) / 10
