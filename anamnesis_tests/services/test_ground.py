"""What became of the files of a session: on this disk, else as crawled; what was not looked at is not counted."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.entities.linking import link
from anamnesis_pipeline.model import EpisodeFilter, FileCursor, Source
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services.ground import Grounds, Origin, Seen, asked_of, crawl_says, disk_says, on_disk
from anamnesis_pipeline.services.session_reading import find_session, session_to_resume
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.archived_logs import DAY, FOLDER, OTHER, SESSION, Home, record
from anamnesis_tests.support.worked_sessions import edit

BEFORE, AFTER = DAY + timedelta(minutes=5), DAY + timedelta(days=1)
ENDED = DAY + timedelta(minutes=9)
EDITED = {"a.py": BEFORE, "b.py": BEFORE}


@pytest.fixture
def home(tmp_path: Path, store: Store) -> Iterator[Home]:
    home = Home(tmp_path, store)
    yield home
    home.close()


def worked(home: Home, root: str) -> None:
    """A session that edits two files of a folder."""
    said = [record("user", "round the prices", 1, cwd=root)]
    said += [*edit(f"{root}/src/a.py", 2, root), *edit(f"{root}/src/b.py", 3, root)]
    home.write([*said, record("assistant", "Both round now.", 9, cwd=root)])
    home.ingest()
    link(home.store)


def origin(home: Home, here: str = "box", private: Private = NOTHING_PRIVATE) -> Origin:
    return Grounds(home.store, private, here).of_episodes(home.episodes())[SESSION]


def test_disk_counts_files_changed_after_the_session() -> None:
    seen = {"a.py": Seen(BEFORE), "b.py": Seen(AFTER)}
    assert disk_says(EDITED, ENDED, seen) == (1, 2)


def test_gone_file_counts_if_its_folder_changed_later() -> None:
    assert disk_says(EDITED, ENDED, {"a.py": Seen(BEFORE), "b.py": Seen(AFTER, is_gone=True)}) == (1, 2)
    assert disk_says(EDITED, ENDED, {"a.py": Seen(BEFORE), "b.py": Seen(BEFORE, is_gone=True)}) == (0, 1)
    assert disk_says(EDITED, ENDED, {"a.py": Seen(AFTER, is_gone=True)}) == (0, 0)


def test_file_crawled_before_its_edit_is_not_counted() -> None:
    stale = Seen(BEFORE - timedelta(hours=1))
    assert crawl_says(EDITED, ENDED, {"a.py": stale, "b.py": Seen(AFTER)}) == (1, 1)
    assert crawl_says(EDITED, ENDED, {"a.py": Seen(BEFORE), "b.py": Seen(BEFORE, is_gone=True)}) == (1, 2)


def test_no_link_is_followed_outside_of_the_folder(tmp_path: Path) -> None:
    root, other = tmp_path / "shop", tmp_path / "other"
    for folder in (root, other):
        folder.mkdir()
        (folder / "a.py").touch()
    (root / "away").symlink_to(other)
    assert set(on_disk(str(root), ["a.py", "away/a.py"])) == {"a.py"}


def test_session_of_this_machine_is_compared_with_its_disk(home: Home, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    (root / "src").mkdir(parents=True)
    for name, at in (("a.py", BEFORE), ("b.py", AFTER)):
        (root / "src" / name).touch()
        os.utime(root / "src" / name, (at.timestamp(), at.timestamp()))
    worked(home, str(root))
    found = origin(home)
    assert (found.folder, found.command) == (str(root), f"claude --resume {SESSION}")
    assert found.ground == {"changed": 1, "looked_at": 2, "edited": 2, "by": "disk"}


def test_session_whose_log_was_deleted_is_not_resumed_until_it_is_back(home: Home) -> None:
    worked(home, "/code/shop")
    log = home.logs / FOLDER / f"{SESSION}.jsonl"
    kept = log.read_bytes()
    log.unlink()
    home.say("another session keeps the folder", "yes", session=OTHER)
    home.ingest()
    assert (origin(home).command, origin(home).folder) == ("", "/code/shop")
    assert session_to_resume(home.store, find_session(home.store, SESSION, EpisodeFilter())) == ""
    log.write_bytes(kept)
    home.ingest()
    assert origin(home).command == f"claude --resume {SESSION}"


def test_log_that_was_set_aside_is_not_resumed(home: Home) -> None:
    worked(home, "/code/shop")
    log = home.logs / FOLDER / f"{SESSION}.jsonl"
    log.rename(log.with_name(f"{SESSION}.jsonl.superseded-1772000000000"))
    home.ingest()
    assert origin(home).command == ""


def test_session_known_by_its_typed_prompts_alone_is_not_resumed(home: Home) -> None:
    at = int(DAY.timestamp() * 1000)
    typed = {"display": "round the prices", "timestamp": at, "project": "/code/shop", "sessionId": SESSION}
    home.write([typed], "../history.jsonl")
    home.say("another session keeps the folder", "yes", session=OTHER)
    home.ingest()
    found = Grounds(home.store, NOTHING_PRIVATE, "box").of_episodes(home.episodes())
    assert {session: each.command for session, each in found.items()} == {
        SESSION: "",
        OTHER: f"claude --resume {OTHER}",
    }


def test_session_of_other_machine_is_compared_with_its_crawl(home: Home) -> None:
    worked(home, "/code/shop")
    assert origin(home, here="elsewhere").ground is None
    home.store.files.put_sources([Source("docs", "box", "/code", "shop", "documents")])
    seen = FileCursor("docs", "src/a.py", mtime_ns=int(AFTER.timestamp() * 1e9))
    assert home.store.files.commit_crawl(None, seen, None)
    assert origin(home, here="elsewhere").ground == {"changed": 1, "looked_at": 1, "edited": 2, "by": "crawl"}
    private = Private((Source("docs", "box", "/code", "shop", "documents"),))
    assert origin(home, here="elsewhere", private=private).ground is None


def test_folder_of_private_project_is_not_named(home: Home) -> None:
    worked(home, "/code/shop")
    (first,) = {each.project for each in home.episodes()}
    asked = asked_of(home.episodes()[0])
    assert asked is not None
    other = type(asked)(asked.session_id, "another", asked.machine, asked.resumed)
    grounds = Grounds(home.store, Private((), (first,)), "box")
    assert grounds.of([other])[SESSION].folder == ""
    assert grounds.of([asked])[SESSION].folder == "/code/shop"


def test_posted_episode_has_no_session_to_resume(home: Home) -> None:
    home.say("hello", "hi")
    episode = home.ingest()[0]
    assert asked_of(episode) is not None
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    posted = type(episode)("x", "direct", moment, "mac", "shop", "note", "s", "r", session_id="s")
    assert asked_of(posted) is None
