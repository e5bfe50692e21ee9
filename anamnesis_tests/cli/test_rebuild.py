"""Indexes made again from the stored passages, and a lost store filled again from the archive."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from anamnesis_pipeline.cli import rebuild as rebuild_command
from anamnesis_pipeline.errors import GiveUp, StoreCorrupt
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.pipeline.archive_catalog import adopt_archive, read_catalog
from anamnesis_pipeline.pipeline.documents import UPLOADS
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.store.mongo.fulltext import MongoTextIndex
from anamnesis_tests.cli.typed import refused, said
from anamnesis_tests.support.archived_logs import FOLDER, OTHER, SESSION, Home

LOG = f"{FOLDER}/{SESSION}.jsonl"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    home = Home(tmp_path)
    for name, value in {"HOME": home.settings.home, "LOG_ROOTS": home.logs, "PORT": 1, "DAGSTER_PORT": 2}.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    monkeypatch.setenv("ANAMNESIS_MACHINE", "box")
    monkeypatch.setattr(rebuild_command, "run_ingest", lambda settings, say: None)  # embeds, which takes a model
    yield home
    home.close()


def lose_store(home: Home) -> None:
    """The database is gone, and so are the logs."""
    home.close()
    for file in home.settings.home.glob("anamnesis.db*"):
        file.unlink()
    shutil.rmtree(home.logs, ignore_errors=True)
    home.logs.mkdir()


def reopen(home: Home) -> None:
    home.store = wiring.open_store(home.settings)


def told(home: Home) -> dict[str, str]:
    """Id -> text, without records of sessions: one that went on has several."""
    return {e.episode_id: e.raw_exchange for e in home.episodes()}


def shown(home: Home) -> set[tuple[str, str, tuple[str, ...], str]]:
    page = home.store.episodes.page(EpisodeFilter(), 100).items
    return {(e.episode_id, e.project, e.tags, str(e.metadata.get("title"))) for e in page}


def test_indexes_are_made_again(home: Home) -> None:
    home.say("What broke the walrus?", "The walrus broke by itself.")
    home.ingest()
    assert "indexed again" in said("rebuild")
    assert home.finds("walrus")
    assert home.store.text.check() == []


def test_rebuild_says_what_it_needs(home: Home) -> None:
    home.close()
    for file in home.settings.home.glob("anamnesis.db*"):
        file.unlink()
    assert "nothing is stored" in refused("rebuild")
    assert "has no catalog of its files" in refused("rebuild", "--from-archive")


def test_mongodb_has_nothing_to_rebuild() -> None:
    with pytest.raises(GiveUp, match="nothing to rebuild"):
        MongoTextIndex(Mock(), Mock()).rebuild()


def test_lost_store_comes_back_from_the_archive(home: Home) -> None:
    home.say("What broke the walrus?", "The walrus broke by itself.")
    home.say("And the otter?", "The otter is fine.", session=OTHER)
    home.ingest()
    home.say("Is it mended?", "The walrus is mended.", at=5)
    home.ingest()
    file = home.logs / LOG
    file.write_text("")  # replaced: a second generation
    file.unlink()
    home.say("Who wrote the seal?", "The seal was written by Ada.", at=9)
    home.ingest()
    before, archived = told(home), [home.archived(generation=number) for number in (0, 1)]
    assert len(before) >= 4
    lose_store(home)
    output = said("rebuild", "--from-archive")
    assert "2 files, 8 lines taken over" in output.replace("  ", " ")
    assert "a backup has them" in output
    reopen(home)
    assert told(home) == before
    assert [home.archived(generation=number) for number in (0, 1)] == archived
    assert home.finds("walrus")
    assert "0 files, 0 lines taken over; 2 files known before" in said("rebuild", "--from-archive")
    assert told(home) == before


def test_store_with_content_keeps_it_and_gets_what_it_lacks(home: Home) -> None:
    home.say("What broke the walrus?", "The walrus broke by itself.")
    home.ingest()
    before = told(home)
    lose_store(home)
    reopen(home)
    home.say("And the otter?", "The otter is fine.", session=OTHER)
    home.ingest()  # `anamnesis up` ran before anyone noticed
    own = told(home)
    said("rebuild", "--from-archive")
    assert told(home) == own | before


def test_log_that_still_exists_is_read_on_after_a_rebuild(home: Home) -> None:
    home.say("What broke the walrus?", "The walrus broke by itself.")
    home.ingest()
    kept = (home.logs / LOG).read_bytes()
    lose_store(home)
    said("rebuild", "--from-archive")
    reopen(home)
    home.write([], LOG).write_bytes(kept)
    home.say("Is it mended?", "The walrus is mended.", at=5)
    home.ingest()
    assert len([e for e in home.episodes() if "walrus" in e.raw_exchange]) == 2


def test_forgotten_lines_stay_forgotten(home: Home) -> None:
    home.say("What broke the walrus?", "The walrus broke by itself.")
    home.say("Who wrote the seal?", "The seal was written by Ada.", at=9)
    home.ingest()
    home.forget("walrus")
    lose_store(home)
    said("rebuild", "--from-archive")
    reopen(home)
    assert [e for e in home.episodes() if "walrus" in e.raw_exchange] == []
    assert home.finds("seal")


def test_lines_rewritten_behind_the_catalog_are_found_under_their_revision(home: Home) -> None:
    home.say("What broke the walrus?", "The walrus broke by itself.")
    home.say("Who wrote the seal?", "The seal was written by Ada.", at=9)
    home.ingest()
    catalog = home.archive.catalog_of(home.source().key)
    former = catalog.read_bytes()
    home.forget("walrus")
    catalog.write_bytes(former)
    lose_store(home)
    said("rebuild", "--from-archive")
    reopen(home)
    assert home.finds("seal")
    assert not home.finds("walrus")
    frames = home.store.archive.frames(home.source().key, f"{SESSION}.jsonl", 0)
    assert [frame.revision for frame in frames] == [1]


def test_uploaded_document_comes_back_with_its_title_and_tags(home: Home) -> None:
    pipeline = wiring.open_pipeline(home.settings, home.store)
    pipeline.add_document(
        UPLOADS, "notes.md", b"# Walrus\n\nIt lives on ice.\n", project="zoo", title="Ice", tags=["cold"]
    )
    pipeline.add_document(UPLOADS, "other.md", b"# Otter\n\nIt swims.\n", project="zoo")
    before, fields = told(home), shown(home)
    lose_store(home)
    said("rebuild", "--from-archive")
    reopen(home)
    assert told(home) == before
    assert shown(home) == fields


def test_missing_file_and_damaged_catalog_are_problems_and_stop_nothing(home: Home) -> None:
    home.say("What broke the walrus?", "The walrus broke by itself.")
    home.say("And the otter?", "The otter is fine.", session=OTHER)
    home.ingest()
    source = home.source().key
    lose_store(home)
    home.archive.file_of(source, f"{SESSION}.jsonl", 0).unlink()
    assert "its archived lines are missing" in said("rebuild", "--from-archive")
    reopen(home)
    assert home.finds("otter")
    catalog = home.archive.catalog_of(source)
    catalog.write_bytes(catalog.read_bytes()[:-9])
    assert "is damaged" in "".join(adopt_archive(home.store, home.archive).problems)
    with pytest.raises(StoreCorrupt):
        read_catalog(catalog)


@pytest.mark.parametrize("at", [0, 40])
def test_damaged_file_is_named_and_stops_no_other(home: Home, at: int) -> None:
    home.say("What broke the walrus?", "The walrus broke by itself.")
    home.say("And the otter?", "The otter is fine.", session=OTHER)
    home.ingest()
    source, log, before = home.source().key, (home.logs / LOG).read_bytes(), told(home)
    damaged = home.archive.file_of(source, f"{SESSION}.jsonl", 0)
    lose_store(home)
    data = bytearray(damaged.read_bytes())
    data[at : at + 12] = bytes(12)
    damaged.write_bytes(data)
    problem = f"{SESSION}.jsonl of {source}: archive file {damaged}, frame at byte 0"
    assert problem in said("rebuild", "--from-archive")
    reopen(home)
    assert home.finds("otter")
    assert not home.finds("walrus")
    home.write([], LOG).write_bytes(log)  # that still exists
    home.ingest()
    assert told(home) == before


def test_damaged_store_is_refused_with_what_to_do(home: Home) -> None:
    home.say("What broke the walrus?", "The walrus broke by itself.")
    home.ingest()
    home.close()
    home.settings.database.write_bytes(b"no database " * 1_000)
    assert "move it away together with its -wal and -shm files" in refused("rebuild", "--from-archive")
    assert home.settings.database.read_bytes().startswith(b"no database")
