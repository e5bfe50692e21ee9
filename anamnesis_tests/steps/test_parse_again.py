"""What is archived is parsed again, as by a later version: only what reads otherwise changes."""

from pathlib import Path

import pytest

from anamnesis_pipeline.exchanges import cutting, parsing
from anamnesis_pipeline.exchanges.log_lines import Record, read_records
from anamnesis_pipeline.exchanges.parsing import FileState
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.steps import parse_again as module
from anamnesis_pipeline.steps.exchanges import AgainReport, open_context
from anamnesis_pipeline.steps.parse_again import ask_again, is_asked_again, parse_again, sources_asked_again
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.wiring import archive_lines
from anamnesis_tests.exchanges.ingested import OTHER, Ingested
from anamnesis_tests.exchanges.log_lines import SESSION, Log


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Ingested:
    return Ingested(store, tmp_path)


def again(home: Ingested) -> AgainReport:
    """Parse the only source of logs again, and publish."""
    (source,) = home.sources()
    ask_again(home.store, source.key)
    lines = archive_lines(home.store, home.archive)
    report = parse_again(open_context(home.store, lines, source, 30, home.label))
    home.publish()
    return report


def conversation() -> Log:
    log = Log()
    for number in range(6):
        log.user(f"question {number} about the build")
        log.tool("Bash", f"tool-{number}", f"output {number}", command="make")
        log.say(f"answer {number}: " + "it works. " * 40)
    return log


def stored(home: Ingested) -> dict[str, Episode]:
    return {episode.episode_id: episode for episode in home.episodes()}


def an_older_version(line: str) -> tuple[list[Record], bool]:
    """One that leaves out what speaks of zeppelins."""
    return ([], True) if "zeppelin" in line else read_records(line)


def test_parse_again_by_the_same_version_changes_nothing(home: Ingested) -> None:
    log = conversation()
    home.write(log.lines[:9])
    home.ingest()
    home.append(log.lines[9:])
    home.write([*log.lines[:6], *(line.replace("uuid-", "new-") for line in log.lines[6:9])], f"{OTHER}.jsonl")
    home.ingest()
    before, counts = stored(home), home.store.overview.counts()
    passages = {name: home.store.episodes.passages_of(name) for name in before}
    report = again(home)
    assert (report.files, report.changed, report.removed) == (2, 0, 0)
    assert report.unchanged == counts.parts
    assert (stored(home), home.store.overview.counts()) == (before, counts)
    assert {name: home.store.episodes.passages_of(name) for name in before} == passages


def test_parse_again_takes_in_what_an_older_version_left_out(home: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    for text in ("first", "about the zeppelin", "third"):
        log.user(text)
        log.say(f"answer to {text}")
    monkeypatch.setattr(parsing, "read_records", an_older_version)
    home.write(log.lines)
    home.ingest()
    before = stored(home)
    assert "zeppelin" not in home.texts()
    monkeypatch.undo()
    report = again(home)
    assert report.changed > 0
    assert home.texts().count("[User]\nabout the zeppelin") == 1
    assert home.store.messages.dead_letters() == []
    after = stored(home)
    same = [name for name in before if after.get(name) == before[name]]
    assert same, "the third question is read as before"
    assert again(home) == AgainReport(files=1, lines=len(log.lines), unchanged=home.store.overview.counts().parts)


def test_parse_again_removes_parts_that_are_none_now(home: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    log = conversation()
    monkeypatch.setattr(cutting, "HARD", 150)
    home.write(log.lines)
    home.ingest()
    small = stored(home)
    monkeypatch.undo()
    report = again(home)
    large = stored(home)
    assert report.removed > 0
    assert len(large) < len(small)
    for number in range(6):
        assert home.texts().count(f"question {number} about") == 1
        assert home.texts().count(f"answer {number}: ") == 1
    assert set(large) < set(small), "each begins with the message that it began with"


def test_parse_again_keeps_deleted_episodes_away(home: Ingested) -> None:
    home.write(conversation().lines)
    home.ingest()
    gone, *kept = sorted(stored(home))
    home.store.episodes.delete(gone)
    again(home)
    home.ingest()
    assert sorted(stored(home)) == kept


def test_file_goes_on_after_parse_again(home: Ingested) -> None:
    log = conversation()
    home.write(log.lines)
    home.ingest()
    again(home)
    log.say("one more answer to the last question")
    home.append(log.lines[-1:])
    home.ingest()
    (last,) = (episode for episode in home.episodes() if "one more answer" in episode.raw_exchange)
    assert "question 5" in last.raw_exchange


class KilledError(Exception):
    """Stands in for the end of a process."""


def test_interrupted_parse_again_goes_on_behind_the_last_file(home: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SESSION, OTHER):
        log = Log(session=name)
        for number in range(3):
            log.user(f"{name} asks {number}")
        home.write([line.replace('"uuid-', f'"{name}-') for line in log.lines], f"{name}.jsonl")
    home.ingest()
    before = stored(home)
    (source,) = home.sources()

    end, ended = module._File._end, []

    def dies(self: module._File, state: FileState) -> bool:
        if ended:
            raise KilledError
        ended.append(state)
        return end(self, state)

    with monkeypatch.context() as patched:
        patched.setattr(module._File, "_end", dies)
        with pytest.raises(KilledError):
            again(home)
    assert sources_asked_again(home.store) == {source.key}
    assert again(home).files == 1, "the first file was done with"
    assert not is_asked_again(home.store, source.key)
    assert stored(home) == before
