"""`anamnesis migrate`, `backup` and `restore` as they are called, with both stores."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import TextIOWrapper
from pathlib import Path

import pytest
from pydantic import SecretStr
from rich.console import Console

from anamnesis_pipeline.cli.copies import (
    Backend,
    render_migrated,
    render_restored,
    run_backup,
    run_migrate,
    run_restore,
    shown,
)
from anamnesis_pipeline.cli.exporting import run_export, run_import
from anamnesis_pipeline.cli.status import gather_status
from anamnesis_pipeline.errors import GiveUp, StoreBusy
from anamnesis_pipeline.pipeline.archived import archived_lines
from anamnesis_pipeline.runtime.home_wiring import open_archive
from anamnesis_pipeline.runtime.up_lock import is_held
from anamnesis_pipeline.services import store_copies, wiring
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.mongo.vectors import MongoVectors
from anamnesis_tests.cli.typed import said
from anamnesis_tests.conftest import mongo_database
from anamnesis_tests.support.archived_logs import FOLDER, SESSION, record
from anamnesis_tests.support.mongo_server import shared
from anamnesis_tests.support.mongo_server.search_behaviour import EVERY
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.samples import put
from anamnesis_tests.support.whole_memory import answers, contents, fill, overlap

ROOT = Path(__file__).parents[2]


def quiet(step: str, done: int, of: int) -> None:
    """Nobody is told."""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Settings]:
    """A home and a database of MongoDB, without anything in them."""
    named = mongo_database(tmp_path)
    yield Settings(home=tmp_path / "home", mongo_uri=SecretStr(shared.uri()), mongo_database=named)
    shared.drop(named)


@pytest.fixture
def settings(empty: Settings) -> Settings:
    """The home has a whole memory in SQLite."""
    with closing(wiring.open_store(empty)) as store:
        fill(store)
    return empty


def contents_of(settings: Settings) -> dict[str, tuple[int, str]]:
    with closing(wiring.open_store(settings)) as store:
        return contents(store)


def in_mongo(settings: Settings) -> Settings:
    return settings.model_copy(update={"store": "mongo"})


def test_a_memory_moves_to_mongo_and_back_into_an_empty_home(settings: Settings, tmp_path: Path) -> None:
    before = contents_of(settings)
    there = run_migrate(settings, Backend.MONGO, quiet)
    assert contents_of(settings) == contents_of(in_mongo(settings)) == before
    assert f"ANAMNESIS_MONGO_DATABASE={settings.mongo_database}" in render_migrated(there)
    assert "Until then, to go back is to set what is set now" in render_migrated(there)
    assert f"they stay in {settings.home}" in render_migrated(there)
    with pytest.raises(GiveUp, match="holds a memory already"):
        run_migrate(in_mongo(settings), Backend.SQLITE, quiet)
    with pytest.raises(GiveUp, match="--uri and --database name a MongoDB"):
        run_migrate(in_mongo(settings), Backend.SQLITE, quiet, uri="/elsewhere/anamnesis.db")
    elsewhere = in_mongo(settings).model_copy(update={"home": tmp_path / "other"})
    run_migrate(elsewhere, Backend.SQLITE, quiet)
    assert contents_of(elsewhere.model_copy(update={"store": "sqlite"})) == before


def test_after_a_move_who_writes_first_keeps_the_archive(empty: Settings, log: Path) -> None:
    before = empty.model_copy(update={"log_roots": (log.parents[1],), "machine": "box"})
    read(before)
    run_migrate(before, Backend.MONGO, quiet)
    spoken(log, "Which harbour has the lighthouse?")
    read(in_mongo(before))
    lines = archived(in_mongo(before))
    assert "lighthouse" in lines
    spoken(log, "And what of the crane?")
    named = f"MongoDB {before.mongo_database}"
    with pytest.raises(GiveUp, match=rf"written by another memory, {named}, and this is SQLite"):
        read(before)
    assert archived(in_mongo(before)) == lines
    with closing(wiring.open_store(in_mongo(before))) as store:
        assert store.settings.get(store_copies.COPIED_FROM) == str(before.database)

    for file in before.home.glob("anamnesis.db*"):
        file.unlink()
    run_migrate(in_mongo(before), Backend.SQLITE, quiet)
    read(before)
    assert archived(before).startswith(lines)
    assert "crane" in archived(before)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that Claude Code wrote."""
    file = tmp_path / "projects" / FOLDER / f"{SESSION}.jsonl"
    file.parent.mkdir(parents=True)
    spoken(file, "Where is the harbour?")
    return file


def spoken(log: Path, text: str) -> None:
    """One more prompt in a log."""
    with log.open("a") as out:
        number = out.tell()
        out.write(json.dumps(record("user", text, number)) + "\n")


def read(settings: Settings) -> None:
    """Take in what is new in the logs, as a run does."""
    with closing(wiring.open_store(settings)) as store:
        ingest_all(wiring.open_pipeline(settings, store), wiring.discover_sources(settings).sources)


def archived(settings: Settings) -> str:
    """Every archived line."""
    with closing(wiring.open_store(settings)) as store:
        archive = open_archive(settings)
        return "\n".join(
            line
            for source in store.files.sources()
            for path in store.files.cursors(source.key)
            for line in archived_lines(store, archive, source.key, path, 0)
        )


@pytest.mark.parametrize("step", ["spaces", "passages", "vectors/hashing-64-aaaaaaaa/context", "numbers"])
@pytest.mark.kills
def test_a_migration_that_is_killed_is_finished_by_the_next_one(settings: Settings, step: str) -> None:
    before = contents_of(settings)
    code = f"""
import os, signal
from anamnesis_pipeline import settings
from anamnesis_pipeline.cli.copies import Backend, run_migrate
def tell(step, done, of):
    if step == {step!r}:
        os.kill(os.getpid(), signal.SIGKILL)
run_migrate(settings.load(), Backend.MONGO, tell)
"""
    given = {"HOME": str(settings.home), "MONGO_URI": shared.uri(), "MONGO_DATABASE": settings.mongo_database}
    environment = os.environ | {f"ANAMNESIS_{name}": value for name, value in given.items()}
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(GiveUp, match="not finished"):
        wiring.open_store(in_mongo(settings))
    done = run_migrate(settings, Backend.MONGO, quiet)
    assert done.report.resumed
    assert done.report.changes.written < done.report.changes.rows
    assert contents_of(in_mongo(settings)) == contents_of(settings) == before


def test_a_backup_of_one_store_is_restored_into_the_other(settings: Settings, tmp_path: Path) -> None:
    before = contents_of(settings)
    with closing(wiring.open_store(settings)) as store:
        wanted = answers(store)
    run_backup(settings, tmp_path / "of-sqlite", quiet, with_archive=False)
    moved = in_mongo(settings).model_copy(update={"home": tmp_path / "with-mongo"})
    run_restore(moved, tmp_path / "of-sqlite", quiet)
    assert contents_of(moved) == before
    with closing(wiring.open_store(moved)) as store:
        assert overlap(answers(store), wanted) > 0.9
    run_backup(moved, tmp_path / "of-mongo", quiet)
    back = settings.model_copy(update={"home": tmp_path / "back"})
    run_restore(back, tmp_path / "of-mongo", quiet)
    with closing(wiring.open_store(back)) as store:
        assert (contents(store), answers(store)) == (before, wanted)


def test_copy_without_a_search_index_is_whole(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object, **__: object) -> None:
        raise StoreBusy("search index vectors_x is FAILED")

    before = contents_of(settings)
    monkeypatch.setattr(MongoVectors, "build", build)
    done = run_migrate(settings, Backend.MONGO, quiet)
    assert "is whole all the same" in (told := render_migrated(done))
    assert "compared one by one" in told
    assert "FAILED" in told
    assert contents_of(in_mongo(settings)) == before
    run_backup(settings, tmp_path / "saved", quiet)
    elsewhere = in_mongo(settings).model_copy(update={"home": tmp_path / "else", "mongo_database": f"{tmp_path.name}2"})
    restored = run_restore(elsewhere, tmp_path / "saved", quiet)
    assert "FAILED" in render_restored(restored, "there", "there")
    shared.drop(elsewhere.mongo_database)


def test_copy_waits_a_bounded_time_for_an_index(
    settings: Settings, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copies, "INDEX_WITHIN_S", 0.3)
    run_backup(settings, tmp_path / "saved", quiet, with_archive=False)
    server.catalog.behaviour.never_ready = {EVERY}
    monkeypatch.setenv("ANAMNESIS_MONGO_URI", server.uri)
    for home, store, words in (
        (settings.home, "sqlite", ("migrate", "--to", "mongo", "--database", "moved")),
        (tmp_path / "restored", "mongo", ("restore", str(tmp_path / "saved"))),
    ):
        monkeypatch.setenv("ANAMNESIS_HOME", str(home))
        monkeypatch.setenv("ANAMNESIS_STORE", store)
        began = time.monotonic()
        told = said(*words)
        assert time.monotonic() - began < 150, "by itself it waits for five minutes"
        assert "could not be built in time" in told
        assert "BUILDING" in told or "PENDING" in told
        assert "is whole all the same" in told


def test_copy_into_itself_or_nowhere_is_refused(settings: Settings) -> None:
    with pytest.raises(GiveUp, match="is what this home opens itself"):
        run_migrate(settings, Backend.SQLITE, quiet)
    with pytest.raises(GiveUp, match="nothing is stored"):
        run_migrate(settings.model_copy(update={"home": settings.home / "none"}), Backend.MONGO, quiet)
    nowhere = SecretStr("mongodb://127.0.0.1:1/?directConnection=true")
    with pytest.raises(StoreBusy, match=r"127.0.0.1:1/.*--uri, or by ANAMNESIS_MONGO_URI"):
        run_migrate(settings.model_copy(update={"mongo_uri": nowhere, "mongo_wait_s": 1}), Backend.MONGO, quiet)


@contextmanager
def up(settings: Settings) -> Iterator[None]:
    """What a running `anamnesis up` holds."""
    with (settings.home / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("{}")
        lock.flush()
        yield


def test_what_is_written_meanwhile_is_copied_by_a_second_run(settings: Settings) -> None:
    with up(settings):
        first = run_migrate(settings, Backend.MONGO, quiet)
        assert "`anamnesis up` is running" in render_migrated(first)
        with closing(wiring.open_store(settings)) as store:
            put(store, "late", "a late note")
    assert gather_status(in_mongo(settings))["memory"], "who looks at it does not use it yet"
    second = run_migrate(settings, Backend.MONGO, quiet)
    assert "is running" not in render_migrated(second)
    assert "not noticed from here" in render_migrated(second)
    assert 0 < second.report.changes.written < 20
    assert contents_of(in_mongo(settings)) == contents_of(settings)


def test_nothing_is_restored_under_a_running_up(settings: Settings, tmp_path: Path) -> None:
    run_backup(settings, tmp_path / "b", quiet, with_archive=False)
    new = Settings(home=tmp_path / "new")
    new.home.mkdir()
    with up(new), pytest.raises(GiveUp, match="stop it first"):
        run_restore(new, tmp_path / "b", quiet)
    assert not is_held(new.home / "up.lock")
    run_restore(new, tmp_path / "b", quiet)


def test_moment_that_mongo_does_not_keep_is_told(settings: Settings) -> None:
    if (server := shared.server()) is None:
        pytest.skip("a real server cannot be made to fail")
    run_migrate(settings, Backend.MONGO, quiet)
    server.faults.add("find", skip=12, error=239)
    with pytest.raises(GiveUp, match="minSnapshotHistoryWindowInSeconds"):
        run_backup(in_mongo(settings), settings.home / "b", quiet)
    server.faults.clear()
    assert not (settings.home / "b").exists()
    run_backup(in_mongo(settings), settings.home / "b", quiet)


def test_the_commands_say_what_they_did(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(home: Path, *words: str) -> str:
        monkeypatch.setenv("ANAMNESIS_HOME", str(home))
        return said(*words)

    (settings.home / "config.toml").write_text('store = "mongo"\nmongo_database = "elsewhere"\n', encoding="utf-8")
    monkeypatch.setenv("ANAMNESIS_STORE", "sqlite")
    assert "rows and 1 file as of" in run(settings.home, "backup", str(tmp_path / "b"), "--no-archive")
    monkeypatch.delenv("ANAMNESIS_STORE")
    restored = run(tmp_path / "new", "restore", str(tmp_path / "b"))
    assert f"{tmp_path / 'new' / 'anamnesis.db'} holds the memory of the backup" in restored
    assert "The backup has no archive" in restored
    assert "names another store, MongoDB " in restored
    monkeypatch.setenv("ANAMNESIS_STORE", "sqlite")
    there = ("--uri", shared.uri(), "--database", settings.mongo_database)
    assert "compared one by one" in run(settings.home, "migrate", "--to", "mongo", *there)


def test_backup_and_export_are_told_apart(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup = tmp_path / "memory.backup"
    run_backup(settings, backup, quiet)
    with pytest.raises(GiveUp, match=r"is a backup, no export.*anamnesis restore"):
        run_import(settings, backup, print)
    with backup.open("rb") as piped, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", TextIOWrapper(piped))
        with pytest.raises(GiveUp, match=r"is a backup, no export.*anamnesis restore FILE"):
            run_import(settings, Path("-"), print)
    new = settings.model_copy(update={"home": tmp_path / "new"})
    for name in ("memory.jsonl", "memory.jsonl.zst", "memory.jsonl.gz"):
        export = tmp_path / name
        run_export(settings, export)
        with pytest.raises(GiveUp, match=r"is an export, no backup.*anamnesis import"):
            run_restore(new, export, quiet)
    assert not new.home.exists()


def test_ctrl_c_ends_a_copy_in_words() -> None:
    with pytest.raises(GiveUp, match="interrupted; all is well"), shown(Console(), "all is well"):
        raise KeyboardInterrupt
