"""`anamnesis exclude` and `anamnesis forget`, as they are typed."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_tests.cli.typed import refused, said, typed
from anamnesis_tests.support.archived_logs import FOLDER, SESSION, Home, record, unmasked


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """With a log of one prompt, which is not read yet."""
    with closing(Home(tmp_path)) as home:
        for name, value in {"HOME": home.settings.home, "LOG_ROOTS": home.logs, "MACHINE": "box"}.items():
            monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
        home.write([record("user", "Why is the ledger of the walrus module wrong?", 1)])
        yield home


def rules() -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(said("exclude", "list", "--json"))
    return found


# --- exclude


def test_excluded_path_is_listed_and_comes_in_once_removed(home: Home) -> None:
    assert "Nothing is excluded" in said("exclude", "list")
    added = said("exclude", "add", "--path", str(home.logs / FOLDER) + "/", "--reason", "not ours")
    assert "stays" in added
    assert home.ingest(unmasked) == []
    (entry,) = rules()
    assert (entry["kind"], entry["reason"]) == ("path", "not ours")
    assert "not ours" in said("exclude", "list")
    assert "next crawl" in said("exclude", "remove", entry["id"])
    assert len(home.ingest(unmasked)) == 1


@pytest.mark.parametrize(
    "words",
    [["--project", "/code/shop"], ["--session", SESSION], ["--content-pattern", "wal.us"], ["--pattern", "*.jsonl"]],
)
def test_with_forget_nothing_of_what_is_stored_is_left(home: Home, words: list[str]) -> None:
    home.ingest(unmasked)
    assert "1 episode" in said("exclude", "add", *words, "--forget")
    assert home.ingest(unmasked) == []
    assert b"walrus" not in home.bytes()
    (entry,) = rules()
    assert "read again" in said("exclude", "remove", entry["id"])
    assert len(home.ingest(unmasked)) == 1


def test_episode_and_file_can_be_excluded(home: Home, tmp_path: Path) -> None:
    (episode,) = home.ingest(unmasked)
    file = tmp_path / "notes.md"
    file.write_text("plan")
    said("exclude", "add", "--episode", episode.episode_id, "--file", str(file))
    assert home.ingest(unmasked) == []
    assert {entry["kind"] for entry in rules()} == {"episode", "content"}
    shown = said("exclude", "list")
    assert "(notes.md)" in shown, "a hash says nothing"
    assert f"(text of the episode {episode.episode_id}, lifted with it)" in shown


PEARS = "# Pears\n\nThe quagga pears ripen in the cellar behind the tall clock, not before November.\n"
MEDLARS = "# Medlars\n\nThe walrus medlars have to rot a little on straw before anybody can eat them.\n"


@pytest.fixture
def notes(home: Home, tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "pears.md").write_text(PEARS)
    (folder / "medlars.md").write_text(MEDLARS)
    said("sources", "add", str(folder), "--no-test")
    said("ingest")
    return folder


def documents(home: Home) -> set[str]:
    return {episode.path.rpartition("/")[2] for episode in home.episodes() if episode.kind == "document"}


def test_excluded_file_goes_with_its_copies_and_uploads(home: Home, notes: Path) -> None:
    (notes / "in").mkdir()
    (notes / "in/copy.md").write_text(MEDLARS)
    elsewhere = home.base / "medlars.md"
    elsewhere.write_text(MEDLARS)
    said("ingest")
    typed("upload", str(elsewhere))
    (notes / "in/copy.md").write_text(MEDLARS + "\n## Since then\n\nThere is no straw any more in the whole village.\n")
    said("ingest")
    assert documents(home) == {"pears.md", "medlars.md", "copy.md"}
    assert "(medlars.md) is excluded" in said("exclude", "add", "--file", str(elsewhere), "--forget")
    assert "medlars" not in home.bytes().decode("utf-8", "replace").replace("medlars.md", "")
    assert documents(home) == {"pears.md"}
    again = typed("exclude", "add", "--file", str(elsewhere), "--forget").output
    assert "nothing that is stored is of the content medlars.md, so nothing is forgotten" in again


def test_file_that_changed_since_is_forgotten_by_its_path(home: Home, notes: Path) -> None:
    file = notes / "pears.md"
    file.write_text("# Pears\n\nAll of them were eaten by the ibex of the neighbours, in one single night.\n")
    assert "1 episode" in said("exclude", "add", "--file", str(file), "--forget")
    said("ingest")
    assert documents(home) == {"medlars.md"}
    assert b"quagga" not in home.bytes()


def test_list_names_the_files_of_forgotten_episodes(home: Home, notes: Path) -> None:
    found = {episode.path.rpartition("/")[2]: episode.episode_id for episode in home.episodes()}
    said("exclude", "add", "--episode", found["pears.md"])
    for name in ("medlars.md", f"{SESSION}.jsonl"):
        said("forget", "--id", found[name], "--yes")
    labels = {entry["id"]: entry["label"] for entry in rules()}
    log = f"box:{home.logs}/{FOLDER}/{SESSION}.jsonl"
    assert labels[found["pears.md"]] == f"box:{notes}/pears.md › Pears"
    assert labels[found["medlars.md"]] == f"box:{notes}/medlars.md", "its heading was forgotten"
    assert labels[found[f"{SESSION}.jsonl"]] == log
    assert [label for key, label in labels.items() if key.startswith("file:")] == [log]


@pytest.mark.parametrize("words", [["add"], ["add", "--pattern", "!x"], ["add", "--file", "/none"], ["remove", "none"]])
def test_exclusion_that_means_nothing_is_refused_with_why(home: Home, words: list[str]) -> None:
    assert refused("exclude", *words)


# --- forget: which files a path means


@pytest.fixture
def log(home: Home) -> Path:
    """The log, which is read."""
    home.ingest(unmasked)
    return home.logs / FOLDER / f"{SESSION}.jsonl"


def test_path_to_forget_is_given_as_a_hit_names_it(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (str(log), f"box:{log}", f"box:{log}:3", f"box:{log.parent}"):
        assert "1 episode with 1 message" in said("forget", "--path", path)
    assert refused("forget", "--path", f"desk:{log}"), "nothing was read there"
    told = refused("forget", "--path", log.name)
    assert "machine:/folder/file" in told
    assert f"so called are box:{log}" in told
    assert f"so called are box:{log}" in refused("forget", "--path", f"{FOLDER}/{SESSION}.jsonl")
    assert "so called" not in refused("forget", "--path", "none.md")
    monkeypatch.chdir(log.parent)
    assert "1 episode" in said("forget", "--path", log.name), "a relative one is meant from here"


def test_unique_beginning_of_a_session_is_enough_to_forget(log: Path) -> None:
    assert "1 episode with 1 message" in said("forget", "--session", SESSION[:8])
    assert "nothing that is stored matches" in refused("forget", "--session", SESSION[:3])
