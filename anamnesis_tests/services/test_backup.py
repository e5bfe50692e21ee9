"""A backup holds one moment of everything, appears whole, and a memory made of it answers as before."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from anamnesis_pipeline.cli.copies import render_backup, run_backup, run_restore
from anamnesis_pipeline.errors import GiveUp, StoreFull
from anamnesis_pipeline.runtime import home_wiring
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.backup import OF_THE_HOME, SALT
from anamnesis_pipeline.services.extract import EVERY, extract, extractable
from anamnesis_pipeline.services.forget import ForgetRequest
from anamnesis_pipeline.services.whole_file import appearing
from anamnesis_pipeline.settings import Settings
from anamnesis_tests.sidecar.conftest import wait_for
from anamnesis_tests.support.archived_logs import OTHER, SESSION, Home, meets_a_lock, record
from anamnesis_tests.support.samples import put
from anamnesis_tests.support.whole_memory import answers, contents, fill

ROOT = Path(__file__).parents[2]


def quiet(step: str, done: int, of: int) -> None:
    """Nobody is told."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home with an ingested log, one that was rewritten, and a memory with something in every table."""
    home = Home(tmp_path / "old")
    home.write([record("user", f"why does zeppelin {n} sink?", n) for n in range(4)])
    home.ingest()
    home.say("what of the harbor?", at=0, session=OTHER)
    home.ingest()
    fill(home.store)
    (home.settings.home / "config.toml").write_text('machine = "box"\n', encoding="utf-8")
    yield home
    home.close()


@pytest.fixture
def new(tmp_path: Path) -> Settings:
    """An empty home."""
    return Settings(home=tmp_path / "new")


def extracted(settings: Settings, to: Path) -> dict[str, bytes]:
    with closing(wiring.open_store(settings)) as store:
        extract(store, home_wiring.open_archive(settings), extractable(store, generation=EVERY), to, force=False)
    return {str(file.relative_to(to)): file.read_bytes() for file in sorted(to.rglob("*")) if file.is_file()}


def test_a_restored_home_has_the_same_rows_files_and_answers(home: Home, new: Settings, tmp_path: Path) -> None:
    remove_synthetic_files(home)
    before, wanted = contents(home.store), answers(home.store)
    report = run_backup(home.settings, tmp_path / "b", quiet)
    assert (report.problems, report.files) == ([], 2 + 2)
    run_restore(new, tmp_path / "b", quiet)
    with closing(wiring.open_store(new)) as store:
        assert contents(store) == before
        assert answers(store) == wanted
        assert store.text.check() == []
    for name in OF_THE_HOME:
        assert (new.home / name).read_bytes() == (home.settings.home / name).read_bytes()
    assert extracted(new, tmp_path / "out") == extracted(home.settings, tmp_path / "of-old")
    assert len(list((tmp_path / "out").rglob("*.jsonl"))) == 2


def remove_synthetic_files(home: Home) -> None:
    """The rows that only fill tables name an archive file that was never there."""
    with home.store.copies.reading() as now:
        for table in now.tables():
            if table.name in {"frames", "files"}:
                gone = [table.key_of(row) for row in now.page(table, None) if row["path"].startswith("path")]
                home.store.copies.write(table, [], gone)


def test_a_backup_is_one_file_for_its_owner_alone(home: Home, tmp_path: Path) -> None:
    run_backup(home.settings, tmp_path / "b", quiet)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"old", "b"}
    with pytest.raises(GiveUp, match="there already"):
        run_backup(home.settings, tmp_path / "b", quiet)


def test_what_is_written_meanwhile_is_not_half_in_a_backup(home: Home, new: Settings, tmp_path: Path) -> None:
    before = contents(home.store)

    def write(step: str, done: int, of: int) -> None:
        if step == "passages":
            put(home.store, "meanwhile", "written meanwhile")
            home.say("and later?", at=9)
            home.ingest()

    run_backup(home.settings, tmp_path / "b", write)
    assert contents(home.store) != before
    run_restore(new, tmp_path / "b", quiet)
    with closing(wiring.open_store(new)) as store:
        assert contents(store) == before
    assert b"and later?" not in b"".join(extracted(new, tmp_path / "out").values())


def test_forgetting_waits_until_a_backup_has_the_archive(home: Home, tmp_path: Path) -> None:
    forgetter = wiring.open_forgetter(home.settings, home.store)
    code = f"""
from contextlib import closing
from anamnesis_pipeline import settings
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.forget import ForgetRequest
found = settings.load()
with closing(wiring.open_store(found)) as store:
    print("forgets now", flush=True)
    wiring.open_forgetter(found, store).forget(ForgetRequest(session_id={SESSION!r}))
"""
    environment = {**os.environ, "ANAMNESIS_HOME": str(home.settings.home)}
    other: list[subprocess.Popen[bytes]] = []

    def forget(step: str, done: int, of: int) -> None:
        if step == "passages":
            command = [sys.executable, "-c", code]
            other.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE))
            assert other[0].stdout is not None
            assert other[0].stdout.readline() == b"forgets now\n"
            wait_for(lambda: meets_a_lock(other[0].pid))

    report = run_backup(home.settings, tmp_path / "b", forget)
    other[0].communicate(timeout=60)
    assert other[0].returncode == 0
    assert [problem for problem in report.problems if "source" not in problem] == []
    assert forgetter.preview(ForgetRequest(session_id=SESSION)).episodes == 0


def test_an_archive_file_that_is_cut_is_told(home: Home, tmp_path: Path) -> None:
    remove_synthetic_files(home)
    file = max(home.settings.archive_dir.rglob("*.zst"), key=lambda path: path.stat().st_size)
    os.truncate(file, 10)
    report = run_backup(home.settings, tmp_path / "b", quiet)
    assert [problem.partition(" has 10 of ")[0] for problem in report.problems] == [
        f"archive/{file.parent.name}/{file.name}"
    ]
    assert "Not whole: " in render_backup(report, tmp_path / "b")


@pytest.mark.parametrize("damage", ["cut", "flipped", "without end", "other file", "empty"])
def test_a_damaged_backup_is_refused_before_any_write(home: Home, new: Settings, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "b"
    run_backup(home.settings, file, quiet)
    data = bytearray(file.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "flipped":
        data[len(data) // 2] ^= 255
    elif damage == "without end":
        tar = zstandard.ZstdDecompressor().stream_reader(bytes(data)).read()
        data = bytearray(zstandard.compress(tar[: tar.index(b"manifest.json")]))
    else:
        data = bytearray(b"no backup at all" if damage == "other file" else b"")
    file.write_bytes(data)
    with pytest.raises(GiveUp, match=r"damaged|ends too early|no backup"):
        run_restore(new, file, quiet)
    with closing(wiring.open_store(new)) as store:
        assert store.overview.counts().episodes == 0
    assert not list(new.archive_dir.rglob("*.zst"))


def test_a_restore_into_a_home_that_is_in_use_is_refused(home: Home, new: Settings, tmp_path: Path) -> None:
    run_backup(home.settings, tmp_path / "b", quiet)
    with pytest.raises(GiveUp, match=r"holds (a memory already|an archive already)"):
        run_restore(home.settings, tmp_path / "b", quiet)
    (new.archive_dir / "box--x").mkdir(parents=True)
    (new.archive_dir / "box--x" / "a.0.zst").write_bytes(b"of another memory")
    with pytest.raises(GiveUp, match="holds an archive already"):
        run_restore(new, tmp_path / "b", quiet)


def test_a_config_that_is_there_stays(home: Home, new: Settings, tmp_path: Path) -> None:
    run_backup(home.settings, tmp_path / "b", quiet)
    new.home.mkdir()
    (new.home / "config.toml").write_text('machine = "other"\n', encoding="utf-8")
    assert run_restore(new, tmp_path / "b", quiet).kept == [str(new.home / "config.toml")]
    assert "other" in (new.home / "config.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("step", ["episodes", "vectors/hashing-64-aaaaaaaa/text", "numbers", "checking passages"])
@pytest.mark.kills
def test_a_killed_restore_is_finished_by_the_next_one(home: Home, new: Settings, tmp_path: Path, step: str) -> None:
    remove_synthetic_files(home)
    before, wanted = contents(home.store), answers(home.store)
    run_backup(home.settings, tmp_path / "b", quiet)
    killed_at(new, f"run_restore(found, Path({str(tmp_path / 'b')!r}), tell)", step)
    with pytest.raises(GiveUp, match="not finished"):
        wiring.open_store(new)
    assert run_restore(new, tmp_path / "b", quiet).resumed
    with closing(wiring.open_store(new)) as store:
        assert (contents(store), answers(store)) == (before, wanted)
    assert not list(new.home.rglob("*.unfinished"))


def killed_at(settings: Settings, call: str, step: str) -> None:
    """A process that copies, killed when it is at a step, behind the check of the whole file."""
    code = f"""
import os, signal
from pathlib import Path
from anamnesis_pipeline import settings
from anamnesis_pipeline.cli.copies import run_backup, run_restore
from anamnesis_pipeline.cli.copies import run_migrate
found, seen = settings.load(), []
def tell(step, done, of):
    seen.append(step)
    if step == {step!r} and (not step.startswith("checking") or "numbers" in seen):
        os.kill(os.getpid(), signal.SIGKILL)
{call}
"""
    environment = {**os.environ, "ANAMNESIS_HOME": str(settings.home)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_backup_that_is_killed_leaves_no_file_of_its_name(home: Home, new: Settings, tmp_path: Path) -> None:
    killed_at(home.settings, f"run_backup(found, Path({str(tmp_path / 'b')!r}), tell)", "passages")
    assert not (tmp_path / "b").exists()
    assert len(list(tmp_path.glob("b.*.unfinished"))) == 1
    run_backup(home.settings, tmp_path / "b", quiet)
    assert not list(tmp_path.glob("b.*.unfinished"))
    run_restore(new, tmp_path / "b", quiet)


def test_an_archive_with_masks_of_another_salt_keeps_its_salt(home: Home, new: Settings, tmp_path: Path) -> None:
    run_backup(home.settings, tmp_path / "b", quiet, with_archive=False)
    shutil.copytree(home.settings.archive_dir, new.archive_dir)
    salt = new.home / SALT
    salt.write_bytes(b"another salt")
    with pytest.raises(GiveUp, match="masked with another salt"):
        run_restore(new, tmp_path / "b", quiet)
    assert salt.read_bytes() == b"another salt"
    salt.write_bytes((home.settings.home / SALT).read_bytes())
    run_restore(new, tmp_path / "b", quiet)


def test_a_backup_without_the_archive_takes_the_saved_one(home: Home, new: Settings, tmp_path: Path) -> None:
    remove_synthetic_files(home)
    report = run_backup(home.settings, tmp_path / "b", quiet, with_archive=False)
    assert (report.files, report.problems) == (2, [])
    shutil.copytree(home.settings.archive_dir, new.archive_dir)
    assert not run_restore(new, tmp_path / "b", quiet).header.with_archive
    assert extracted(new, tmp_path / "out") == extracted(home.settings, tmp_path / "of-old")


# --- files that appear whole ------------------------------------------------------------------------------


def test_a_file_appears_when_it_is_whole_and_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with appearing(tmp_path / "a") as file:
        file.write(b"all of it")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"all of it"
    assert synced == [9]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_two_that_write_one_name_do_not_spoil_each_other(tmp_path: Path) -> None:
    first, second = appearing(tmp_path / "a"), appearing(tmp_path / "a")
    one, two = first.__enter__(), second.__enter__()
    one.write(b"of the first")
    two.write(b"of the second, unfinished")
    first.__exit__(None, None, None)
    with pytest.raises(GiveUp, match=r"a is there already, and is not written over; choose another name"):
        second.__exit__(None, None, None)
    assert (tmp_path / "a").read_bytes() == b"of the first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_without_links_a_file_appears_too_and_not_over_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with appearing(tmp_path / "a") as file:
        file.write(b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    with pytest.raises(GiveUp, match="there already"), appearing(tmp_path / "b") as file:
        (tmp_path / "b").write_bytes(b"appeared meanwhile")
    assert (tmp_path / "b").read_bytes() == b"appeared meanwhile"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, StoreFull), (errno.EACCES, GiveUp)])
def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path, number: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=os.strerror(number)), appearing(tmp_path / "a"):
        raise OSError(number, os.strerror(number))
    assert list(tmp_path.iterdir()) == []
