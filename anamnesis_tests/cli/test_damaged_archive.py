"""Damage of the archive is told by every command that reads it, file by file, and keeps no sound file back."""

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from anamnesis_pipeline.pipeline.archived import damaged_files
from anamnesis_pipeline.services.forget import Forgetter, is_forgetting
from anamnesis_pipeline.services.store_checks import archive_in_full
from anamnesis_tests.cli.typed import said, typed
from anamnesis_tests.support.archived_logs import FOLDER, Home, record, unmasked

SESSIONS = [f"{number}0000000-2222-4333-8444-555555555555" for number in range(1, 5)]
TEXT = "ledger of the walrus module, said at length so that the frame has a body " * 20


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)


def huge(file: Path) -> None:
    """A header that names a frame of exabytes."""
    content = bytearray(file.read_bytes())
    content[4:14] = bytes([0xE4]) + (1 << 60).to_bytes(8, "little") + content[13:14]
    file.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": flipped,
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-3]),
    "empty": lambda file: file.write_bytes(b""),
    "gone": lambda file: file.unlink(),
    "zeros": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "huge": huge,
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    home = Home(tmp_path)
    for number, session in enumerate(SESSIONS):
        home.write([record("user", f"{number} {TEXT}", number, session)], f"{FOLDER}/{session}.jsonl")
    home.ingest(unmasked)
    for name, value in {"HOME": home.settings.home, "LOG_ROOTS": home.logs, "PORT": 1, "DAGSTER_PORT": 2}.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    yield home
    home.close()


def damage(home: Home, how: str) -> list[str]:
    """Damage the first two of the four; their names."""
    (source,) = [source.key for source in home.store.files.sources() if home.store.files.cursors(source.key)]
    names = [f"{session}.jsonl" for session in SESSIONS[:2]]
    for name in names:
        DAMAGES[how](home.archive.file_of(source, name, 0))
    return names


@pytest.mark.parametrize("how", DAMAGES)
def test_every_damaged_file_is_named_and_the_others_served(home: Home, tmp_path: Path, how: str) -> None:
    names = damage(home, how)
    assert [found.path for found in damaged_files(home.store, home.archive)] == names
    for command in ("redact --rescan --dry-run", "redact --rescan"):
        rescanned = said(*command.split(), status=1)
        assert "No secret was found in what could be read" in rescanned
        assert all(f"Not done: {name}" in rescanned for name in names)
    extracted = said("archive", "extract", "--all", "--to", str(tmp_path / "out"), status=1)
    assert all(f"Not written: {name}" in extracted for name in names)
    written = sorted(file.name for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert written == [f"{session}.jsonl" for session in SESSIONS[2:]]
    assert said("backup", str(tmp_path / "b.anamnesis"), status=1).count("Not whole: ") == 2
    told = archive_in_full(home.store)
    assert not told.ok
    assert told.detail.startswith("2 archived files cannot be read")
    assert all(name in told.detail for name in names)


@pytest.mark.parametrize("how", DAMAGES)
def test_forget_names_damaged_files_and_goes_on(home: Home, how: str) -> None:
    names = damage(home, how)
    for yes in ([], ["--yes"]):
        done = said("forget", "--path", str(home.logs), *yes, status=1)
        assert "4 episodes with 4 messages, 2 archived lines in 2 files" in done
        assert all(f"Not done: {name} of " in done for name in names)
    assert home.episodes() == []
    assert home.archived(f"{SESSIONS[2]}.jsonl") == home.archived(f"{SESSIONS[3]}.jsonl") == ["{}"]
    assert f"Not done: {names[0]} of " in said("forget", "--session", SESSIONS[0], "--yes", status=1)


def test_forgetting_that_meets_damage_when_resumed_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    names = damage(home, "flipped")
    with monkeypatch.context() as patch:
        patch.setattr(Forgetter, "_renew_neighbours", Mock(side_effect=KeyboardInterrupt))
        typed("forget", "--path", str(home.logs), "--yes")
    assert is_forgetting(home.store)
    done = said("forget", "--resume", status=1)
    assert "what was interrupted is finished" in done
    assert all(f"Not done: {name} of " in done for name in names)
    said("forget", "--resume")


def test_excluding_with_forget_tells_damage(home: Home) -> None:
    names = damage(home, "flipped")
    done = said("exclude", "add", "--path", str(home.logs), "--forget", status=1)
    assert all(f"Not done: {name} of " in done for name in names)


def test_sound_archive_is_told_as_such(home: Home, tmp_path: Path) -> None:
    assert damaged_files(home.store, home.archive) == []
    assert archive_in_full(home.store).ok
    assert "No secret was found in what is stored." in said("redact", "--rescan")
    said("archive", "extract", "--all", "--to", str(tmp_path / "out"))
    said("backup", str(tmp_path / "b"))
