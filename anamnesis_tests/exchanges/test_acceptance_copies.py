"""Point 6 of the acceptance list, copies: through crawl, parse and publish on a real store."""

import json

import pytest

from anamnesis_tests.exchanges.ingested import OTHER, Ingested
from anamnesis_tests.exchanges.log_lines import SESSION, Log
from anamnesis_tests.exchanges.sessions import TRUNK, changed, fork_of, session, with_new_uuids

COPIES = {
    "resumed into a new file": lambda lines: changed(lines, sessionId=OTHER),
    "fork": lambda lines: changed(lines, sessionId=OTHER, forkedFrom={"sessionId": SESSION}),
    "branch that writes every message twice": lambda lines: [
        twin for line in changed(lines, sessionId=OTHER) for twin in (line, *changed([line], forkedFrom={"x": 1}))
    ],
    "moved to the background": lambda lines: changed(lines, sessionId=OTHER, sessionKind="bg"),
    "rewritten by an upgrade": lambda lines: changed(lines, version="2.1.299", gitBranch="x", slug="quiet-otter"),
    "rewritten with new uuids": with_new_uuids,
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("same_run", [True, False])
def test_06_a_copy_adds_no_message_and_the_earliest_session_keeps_it(home: Ingested, how: str, same_run: bool) -> None:
    lines = session().lines
    home.write(lines)
    if not same_run:
        home.ingest()
    copied = COPIES[how](lines)
    home.write(copied, f"{OTHER}.jsonl", folder="-another-folder" if not same_run else "-home-dev-shop")
    home.ingest()
    counts = home.store.overview.counts()
    assert (counts.messages, counts.occurrences) == (6, len(copied))
    assert {episode.path.rpartition("/")[2] for episode in home.episodes()} == {TRUNK}
    assert home.texts().count("Why do webhook retries double-charge?") == 1
    keys = [key for episode in home.episodes() for key in episode.message_keys]
    found = {(o.path, o.line): o.message_key for _, o in home.store.messages.occurrences_of(keys)}
    assert len(found) == len(copied), "each line is remembered under the key that its message has"
    assert {path for path, _ in found} == {f"{OTHER}.jsonl"}


@pytest.mark.parametrize("mark", [{"forkedFrom": {"sessionId": SESSION}}, {"sessionKind": "bg"}])
def test_06_an_original_that_went_on_after_its_fork_keeps_its_messages(home: Ingested, mark: dict[str, object]) -> None:
    log = session()
    home.write(changed(log.lines, sessionId=OTHER, **mark), f"{OTHER}.jsonl")
    log.say("The original goes on.")
    home.write(log.lines)
    home.ingest()
    assert {episode.path.rpartition("/")[2] for episode in home.episodes()} == {TRUNK}
    assert home.store.overview.counts().occurrences == 6


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("mark", [{"forkedFrom": {"sessionId": SESSION}}, {"sessionKind": "bg"}])
@pytest.mark.parametrize("ticks", [1, 2, 5])
def test_06_a_fork_in_another_folder_gives_back_what_it_had_before_its_original(
    home: Ingested, mark: dict[str, object], ticks: int, twice: bool
) -> None:
    lines = session().lines
    copies = fork_of(lines, "The fork goes on.", **mark)
    if twice:
        copies = [twin for copy in copies for twin in (copy, json.dumps({**json.loads(copy), **dict.fromkeys(mark)}))]
        copies = [line.replace('"forkedFrom": null, ', "").replace('"sessionKind": null, ', "") for line in copies]
    home.write(copies, f"{OTHER}.jsonl", folder="-another-folder")
    home.ingest()
    for end in range(ticks, len(lines) + ticks, ticks):
        home.write(lines[:end])
        home.ingest()
    found = {(e.path.rpartition("/")[2], e.raw_exchange) for e in home.episodes()}
    assert (f"{OTHER}.jsonl", "[User]\nThe fork goes on.") in found
    assert {name for name, text in found if "The fork goes on." not in text} == {TRUNK}
    for text in ("double-charge?", "I look at the retry path.", "pay(order)", "Refunds are issued"):
        assert home.texts().count(text) == 1
    assert home.ingest().messages == 0


def test_06_what_was_deleted_of_a_fork_stays_away_when_its_original_comes(home: Ingested) -> None:
    lines = session().lines
    home.write(fork_of(lines, "The fork goes on.", sessionKind="bg"), f"{OTHER}.jsonl", folder="-another-folder")
    home.ingest()
    (gone,) = [e.episode_id for e in home.episodes() if "double-charge" in e.raw_exchange]
    home.store.episodes.delete(gone)
    home.write(lines)
    for _ in range(2):
        home.ingest()
        assert "double-charge" not in home.texts()
        assert "Refunds are issued" in home.texts()


def test_06_two_sessions_whose_service_gives_calls_the_same_ids_keep_their_own_results(home: Ingested) -> None:
    for name, output in ((SESSION, "first answer"), (OTHER, "second answer")):
        log = Log(session=name)
        log.tool("Bash", "call_0", output, command=f"ask {name}")
        lines = [line.replace('"uuid-', f'"{name}-').replace('"msg-', f'"msg-{name}-') for line in log.lines]
        home.write(lines, f"{name}.jsonl")
    assert home.ingest().messages == 4
    assert "first answer" in home.texts()
    assert "second answer" in home.texts()


def test_06_a_result_that_is_written_again_with_another_text_is_no_second_one(home: Ingested) -> None:
    log = session()
    home.write(log.lines)
    home.ingest()
    home.write([*log.lines, *(line.replace("pay(order)", "[cleared]") for line in log.lines)])
    assert home.ingest().messages == 0


def test_06_what_follows_a_rewritten_copy_is_kept_in_the_exchange_that_it_goes_on_with(home: Ingested) -> None:
    log = session()
    home.write(log.lines)
    home.ingest()
    log.lines = with_new_uuids(log.lines)
    log.say("One more thing.")
    home.write(log.lines, f"{OTHER}.jsonl")
    assert home.ingest().messages == 1
    last, added = (e for e in home.episodes() if "Refunds are issued" in e.raw_exchange or "One more" in e.raw_exchange)
    assert last.metadata["exchange_id"] == added.metadata["exchange_id"]


@pytest.mark.parametrize("mark", [{"forkedFrom": {"sessionId": SESSION}}, {"sessionKind": "bg"}])
def test_06_a_fork_with_new_uuids_gives_back_what_it_had_before_its_original(
    home: Ingested, mark: dict[str, object]
) -> None:
    lines = session().lines
    forks = fork_of(with_new_uuids(lines), "The fork goes on.", **mark)
    home.write(forks, f"{OTHER}.jsonl", folder="-another-folder")
    home.ingest()
    home.write(lines)
    home.ingest()
    assert home.store.overview.counts().messages == 7
    assert {e.path.rpartition("/")[2] for e in home.episodes() if "The fork" not in e.raw_exchange} == {TRUNK}


def test_06_what_was_deleted_of_a_fork_with_new_uuids_stays_away_when_its_original_comes(home: Ingested) -> None:
    lines = session().lines
    forks = fork_of(with_new_uuids(lines), "The fork goes on.", sessionKind="bg")
    home.write(forks, f"{OTHER}.jsonl", folder="-another-folder")
    home.ingest()
    (gone,) = [e.episode_id for e in home.episodes() if "double-charge" in e.raw_exchange]
    home.store.episodes.delete(gone)
    home.write(lines)
    home.ingest()
    assert "double-charge" not in home.texts()
    assert "Refunds are issued" in home.texts()


def test_06_a_fork_takes_back_from_its_own_fork_what_it_said_itself(home: Ingested) -> None:
    first = fork_of(session().lines, "The fork goes on.", forkedFrom={"sessionId": SESSION})
    second = changed(first, sessionId="0d0d0d0d-e5b5-4bac-b0b2-fab40b03792a", forkedFrom={"sessionId": OTHER})
    home.write(second, "0d0d0d0d-e5b5-4bac-b0b2-fab40b03792a.jsonl", folder="-another-folder")
    home.ingest()
    for end in (-1, None):
        home.write(first[:end], f"{OTHER}.jsonl")
        home.ingest()
    assert home.store.overview.counts().messages == 7
    (own,) = [e for e in home.episodes() if "The fork goes on." in e.raw_exchange]
    assert own.path.rpartition("/")[2] == f"{OTHER}.jsonl"


def test_06_a_branch_whose_marked_lines_are_dropped_repeats_nothing(home: Ingested) -> None:
    marked = changed(session().lines, sessionId=OTHER, forkedFrom={"sessionId": SESSION})
    home.write(marked, f"{OTHER}.jsonl")
    home.ingest()
    home.write(changed(session().lines, sessionId=OTHER), f"{OTHER}.jsonl")
    assert home.ingest().messages == 0
