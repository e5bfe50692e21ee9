from collections.abc import Callable
from pathlib import Path

import pytest

from anamnesis_pipeline.commands.dead_letters import render, render_retried
from anamnesis_pipeline.exchanges import parsing
from anamnesis_pipeline.exchanges.log_lines import Record, read_records
from anamnesis_pipeline.steps.dead_letters import RetryReport, retry_dead_letters
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.wiring import archive_lines
from anamnesis_tests.exchanges.ingested import Ingested
from anamnesis_tests.exchanges.log_lines import SESSION, Log, texts

Reader = Callable[[str], tuple[list[Record], bool]]


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Ingested:
    return Ingested(store, tmp_path)


def retry(home: Ingested) -> RetryReport:
    report = retry_dead_letters(
        home.store, archive_lines(home.store, home.archive), label_of=lambda source: home.label, idle_minutes=30
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
        (f"{SESSION}.jsonl", 0, 1), (f"{SESSION}.jsonl", 0, 2),
    ]  # fmt: skip
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
    text = render(home.store.messages.dead_letters(), 1)
    assert f"{SESSION}.jsonl, line 1: no JSON object" in text
    assert "hush" not in text
    assert render([], 0) == "Every line of every log could be read."
    assert "1 line read again: 1 is whole now, 1 message is new" in render_retried(RetryReport(1, 1, 1))
