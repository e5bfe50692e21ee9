"""Lines that could not be read, and logs that a later version reads again: only what reads otherwise changes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from anamnesis_pipeline.cli.ingest import render_letters, render_retried
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.parsing.claude_logs import chunking as cutting
from anamnesis_pipeline.parsing.claude_logs import parser as parsing
from anamnesis_pipeline.parsing.claude_logs.log_lines import Record, read_records
from anamnesis_pipeline.parsing.claude_logs.parser import FileState
from anamnesis_pipeline.pipeline import parse_again as module
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.dead_letters import RetryReport, retry_dead_letters
from anamnesis_pipeline.pipeline.parse import AgainReport, open_context
from anamnesis_pipeline.pipeline.parse_again import ask_again, is_asked_again, parse_again, sources_asked_again
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.crawled_documents import SameLabels
from anamnesis_tests.support.ingested import OTHER, Ingested
from anamnesis_tests.support.log_lines import SESSION, Log, texts

Reader = Callable[[str], tuple[list[Record], bool]]


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Ingested:
    return Ingested(store, tmp_path)


def retry(home: Ingested) -> RetryReport:
    report = retry_dead_letters(
        home.store, ArchivedLines(home.store, home.archive), labels=SameLabels(home.label), idle_minutes=30
    )
    home.publish()
    return report


def an_older_version(line: str) -> tuple[list[Record], bool]:
    """One that cannot read what speaks of zeppelins, and loses the first of two glued records."""
    if line.count('"type"') > 1:
        return read_records(line)[0][1:], True
    return ([], True) if "zeppelin" in line else read_records(line)


def conversation() -> Log:
    log = Log()
    for text in ("first", "about the zeppelin", "third", "fourth", "fifth"):
        log.user(text)
    log.lines[2:4] = [log.lines[2] + log.lines[3]]
    return log


def test_an_unreadable_line_is_kept_with_its_place_and_reason(home: Ingested) -> None:
    log = conversation()
    home.write([log.lines[0], "{" * 4_000, log.lines[1][:80], *log.lines[2:]])
    assert home.ingest().malformed == 2
    letters = home.store.messages.dead_letters()
    assert [(letter.path, letter.generation, letter.line) for letter in letters] == [
        (f"{SESSION}.jsonl", 0, 1),
        (f"{SESSION}.jsonl", 0, 2),
    ]
    assert home.store.overview.counts().dead_letters == 2
    assert letters[1].reason == "no JSON object in its 80 characters"
    assert home.archived()[1] == "{" * 4_000, "the text itself is in the archive"


def test_what_a_later_version_reads_is_published_exactly_once(home: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    log = conversation()
    monkeypatch.setattr(parsing, "read_records", an_older_version)
    home.write(log.lines)
    assert (home.ingest().malformed, home.store.overview.counts().messages) == (2, 3)
    assert retry(home).revived == 0, "the same version reads no more than before"
    assert home.store.overview.counts().dead_letters == 2
    monkeypatch.undo()
    report = retry(home)
    assert (report.letters, report.revived, report.messages) == (2, 2, 2)
    assert home.store.messages.dead_letters() == []
    assert retry(home) == RetryReport()
    for word in ("first", "zeppelin", "third", "fourth", "fifth"):
        assert home.texts().count(word) == 1
    assert (home.store.overview.counts().messages, home.store.overview.counts().occurrences) == (5, 0)


def test_the_file_goes_on_as_if_nothing_had_been_retried(home: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    log = conversation()
    monkeypatch.setattr(parsing, "read_records", an_older_version)
    home.write(log.lines)
    home.ingest()
    monkeypatch.undo()
    retry(home)
    log.say("an answer to the fifth")
    home.append(log.lines[-1:])
    home.ingest()
    (answered,) = (e for e in home.episodes() if "an answer" in e.raw_exchange)
    assert answered.raw_exchange.startswith("[User]\nfifth")
    parts = [home.store.parts.part(e.episode_id) for e in home.episodes()]
    assert len({part.ordinal for part in parts if part}) == len(parts)
    assert sorted(texts(part for part in parts if part))[0] == "about the zeppelin"


def test_a_letter_still_torn_gives_what_can_be_read_and_stays(home: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    log = conversation()
    monkeypatch.setattr(parsing, "read_records", lambda line: ([], True))
    home.write([log.lines[0][:70] + log.lines[1]])
    home.ingest()
    monkeypatch.undo()
    report = retry(home)
    assert (report.revived, report.messages) == (0, 1)
    assert "zeppelin" in home.texts()
    (letter,) = home.store.messages.dead_letters()
    assert letter.reason.startswith("torn: 1 whole record")
    assert retry(home).messages == 0


def test_the_list_names_places_and_never_the_text(home: Ingested) -> None:
    home.write(['{"type":"user","message":{"content":"hush'])
    home.append(b"\n")
    home.ingest()
    text = render_letters(home.store.messages.dead_letters(), 1)
    assert f"{SESSION}.jsonl, line 1: no JSON object" in text
    assert "hush" not in text
    assert render_letters([], 0) == "Every line of every log could be read."
    assert "1 line read again: 1 is whole now, 1 message is new" in render_retried(RetryReport(1, 1, 1))


# --- logs that are parsed again ---------------------------------------------------------------------------


def without_zeppelins(line: str) -> tuple[list[Record], bool]:
    """An older version, that leaves out what speaks of zeppelins."""
    return ([], True) if "zeppelin" in line else read_records(line)


def again(home: Ingested) -> AgainReport:
    """Parse the only source of logs again, and publish."""
    (source,) = home.sources()
    ask_again(home.store, source.key)
    lines = ArchivedLines(home.store, home.archive)
    report = parse_again(open_context(home.store, lines, source, 30, home.label))
    home.publish()
    return report


def long_conversation() -> Log:
    log = Log()
    for number in range(6):
        log.user(f"question {number} about the build")
        log.tool("Bash", f"tool-{number}", f"output {number}", command="make")
        log.say(f"answer {number}: " + "it works. " * 40)
    return log


def stored(home: Ingested) -> dict[str, Episode]:
    return {episode.episode_id: episode for episode in home.episodes()}


def test_parse_again_by_the_same_version_changes_nothing(home: Ingested) -> None:
    log = long_conversation()
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
    monkeypatch.setattr(parsing, "read_records", without_zeppelins)
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
    log = long_conversation()
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
    home.write(long_conversation().lines)
    home.ingest()
    gone, *kept = sorted(stored(home))
    home.store.episodes.delete(gone)
    again(home)
    home.ingest()
    assert sorted(stored(home)) == kept


def test_file_goes_on_after_parse_again(home: Ingested) -> None:
    log = long_conversation()
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
