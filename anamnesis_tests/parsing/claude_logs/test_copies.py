"""Copies of sessions, with a mark or without, through crawl, parse and publish: the original owns the messages."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_tests.parsing.claude_logs.sessions import COPIES, TRUNK, changed, fork_of, session, with_new_uuids
from anamnesis_tests.support.ingested import OTHER, Ingested
from anamnesis_tests.support.log_lines import SESSION, Log

COPY, ELSEWHERE = f"{OTHER}.jsonl", "-another-folder"
READ_FIRST, READ_LAST = "-a-folder", "-z-folder"
FORKED = {"forkedFrom": {"sessionId": SESSION}}
MARKS = pytest.mark.parametrize("mark", [FORKED, {"sessionKind": "bg"}], ids=["fork", "background"])


def resumed(lines: list[str]) -> list[str]:
    return changed(lines, sessionId=OTHER)


def twice(lines: list[str]) -> list[str]:
    """Each line with its mark, and without."""
    bare = [{k: v for k, v in json.loads(line).items() if k not in {"forkedFrom", "sessionKind"}} for line in lines]
    return [twin for line, record in zip(lines, bare, strict=True) for twin in (line, json.dumps(record))]


@contextmanager
def away(path: Path) -> Iterator[None]:
    """A file that is not there yet."""
    hidden = path.rename(path.with_suffix(".away"))
    yield
    hidden.rename(path)


def settle(home: Ingested) -> None:
    home.ingest()
    home.publish()


# --- which bear a mark, or come after their original -----------------------------------------------------


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("same_run", [True, False])
def test_a_copy_adds_no_message_and_the_earliest_session_keeps_it(home: Ingested, how: str, same_run: bool) -> None:
    lines = session().lines
    home.write(lines)
    if not same_run:
        home.ingest()
    copied = COPIES[how](lines)
    home.take(copied, COPY, folder=ELSEWHERE if not same_run else "-home-dev-shop")
    assert home.counted() == (6, len(copied))
    assert home.owners() == {TRUNK}
    assert home.texts().count("Why do webhook retries double-charge?") == 1
    keys = [key for episode in home.episodes() for key in episode.message_keys]
    found = {(o.path, o.line): o.message_key for _, o in home.store.messages.occurrences_of(keys)}
    assert len(found) == len(copied), "each line is remembered under the key that its message has"
    assert {path for path, _ in found} == {COPY}


@MARKS
def test_an_original_that_went_on_after_its_fork_keeps_its_messages(home: Ingested, mark: dict[str, object]) -> None:
    log = session()
    home.write(changed(log.lines, sessionId=OTHER, **mark), COPY)
    log.say("The original goes on.")
    home.take(log.lines)
    assert (home.owners(), home.counted()) == ({TRUNK}, (7, 6))


@MARKS
@pytest.mark.parametrize("rewritten", [list, twice, with_new_uuids])
@pytest.mark.parametrize("ticks", [1, 2, 5])
def test_a_fork_gives_back_what_it_had_before_its_original(
    home: Ingested, mark: dict[str, object], ticks: int, rewritten: Callable[[list[str]], list[str]]
) -> None:
    lines = session().lines
    home.take(rewritten(fork_of(lines, "The fork goes on.", **mark)), COPY, folder=ELSEWHERE)
    for end in range(ticks, len(lines) + ticks, ticks):
        home.take(lines[:end])
    found = {(e.path.rpartition("/")[2], e.raw_exchange) for e in home.episodes()}
    assert (COPY, "[User]\nThe fork goes on.") in found
    assert {name for name, text in found if "The fork goes on." not in text} == {TRUNK}
    for text in ("double-charge?", "I look at the retry path.", "pay(order)", "Refunds are issued"):
        assert home.texts().count(text) == 1
    assert home.counted()[0] == 7
    assert home.ingest().messages == 0


@pytest.mark.parametrize("rewritten", [list, with_new_uuids])
def test_what_was_deleted_of_a_fork_stays_away(home: Ingested, rewritten: Callable[[list[str]], list[str]]) -> None:
    lines = session().lines
    home.take(fork_of(rewritten(lines), "The fork goes on.", sessionKind="bg"), COPY, folder=ELSEWHERE)
    (gone,) = [e.episode_id for e in home.episodes() if "double-charge" in e.raw_exchange]
    home.store.episodes.delete(gone)
    home.write(lines)
    for _ in range(2):
        home.ingest()
        assert "double-charge" not in home.texts()
        assert "Refunds are issued" in home.texts()


def test_sessions_whose_service_gives_calls_the_same_ids_keep_their_results(home: Ingested) -> None:
    for name, output in ((SESSION, "first answer"), (OTHER, "second answer")):
        log = Log(session=name)
        log.tool("Bash", "call_0", output, command=f"ask {name}")
        lines = [line.replace('"uuid-', f'"{name}-').replace('"msg-', f'"msg-{name}-') for line in log.lines]
        home.write(lines, f"{name}.jsonl")
    assert home.ingest().messages == 4
    assert "first answer" in home.texts()
    assert "second answer" in home.texts()


def test_a_result_that_is_written_again_with_another_text_is_no_second_one(home: Ingested) -> None:
    log = session()
    home.take(log.lines)
    assert home.take([*log.lines, *(line.replace("pay(order)", "[cleared]") for line in log.lines)]).messages == 0


def test_what_follows_a_rewritten_copy_is_in_the_exchange_that_it_goes_on_with(home: Ingested) -> None:
    log = session()
    home.take(log.lines)
    log.lines = with_new_uuids(log.lines)
    log.say("One more thing.")
    assert home.take(log.lines, COPY).messages == 1
    last, added = (e for e in home.episodes() if "Refunds are issued" in e.raw_exchange or "One more" in e.raw_exchange)
    assert last.metadata["exchange_id"] == added.metadata["exchange_id"]


def test_a_fork_takes_back_from_its_own_fork_what_it_said_itself(home: Ingested) -> None:
    first = fork_of(session().lines, "The fork goes on.", **FORKED)
    third = "0d0d0d0d-e5b5-4bac-b0b2-fab40b03792a"
    home.take(changed(first, sessionId=third, forkedFrom={"sessionId": OTHER}), f"{third}.jsonl", folder=ELSEWHERE)
    for end in (-1, None):
        home.take(first[:end], COPY)
    assert home.counted()[0] == 7
    assert home.owners("The fork goes on.") == {COPY}


def test_a_branch_whose_marked_lines_are_dropped_repeats_nothing(home: Ingested) -> None:
    home.take(changed(session().lines, sessionId=OTHER, **FORKED), COPY)
    assert home.take(resumed(session().lines), COPY).messages == 0


# --- without a mark, in other project folders: the oldest file owns the messages -------------------------


@pytest.mark.parametrize("copy", [resumed, lambda lines: with_new_uuids(resumed(lines))], ids=["resumed", "new uuids"])
@pytest.mark.parametrize("in_one_run", [True, False])
def test_an_original_read_last_owns_all(
    home: Ingested, copy: Callable[[list[str]], list[str]], in_one_run: bool
) -> None:
    lines = session().lines
    with away(home.write(lines, folder=READ_LAST)):
        home.write(copy(lines), COPY, folder=READ_FIRST)
        if not in_one_run:
            home.ingest()
            assert home.owners() == {COPY}
    settle(home)
    assert (home.counted(), home.owners()) == ((6, 6), {TRUNK})
    assert home.texts().count("double-charge?") == home.texts().count("and refunds?") == 1
    assert home.ingest().messages == 0


def test_what_people_changed_of_an_episode_stays_when_it_passes_to_an_older_file(home: Ingested) -> None:
    lines = session().lines
    with away(home.write(lines, folder=READ_LAST)):
        home.take(resumed(lines), COPY, folder=READ_FIRST)
        episode = home.episodes()[0]
        poster = EpisodeWriter(home.store, lambda text: (text, Counter()), minilm_pieces(), None)
        poster.patch(episode.episode_id, {"summary": "What I know of it.", "tags": ("mine",)})
    settle(home)
    (kept,) = [e for e in home.episodes() if e.episode_id == episode.episode_id]
    assert (kept.summary, kept.session_id, kept.path.endswith(TRUNK)) == ("What I know of it.", SESSION, True)
    assert "mine" in kept.tags


def test_what_only_the_copy_has_stays_with_it(home: Ingested) -> None:
    log = session()
    home.write(log.lines, folder=READ_LAST)
    copied = resumed(log.lines)
    log.minute += 100
    log.user("only the copy goes on")
    home.write([*copied, *log.lines[-1:]], COPY, folder=READ_FIRST)
    settle(home)
    assert home.owners() == {TRUNK, COPY}
    (own,) = [episode for episode in home.episodes() if episode.path.endswith(COPY)]
    assert own.raw_exchange == "[User]\nonly the copy goes on"


def test_a_copy_older_by_date_takes_nothing_once_both_are_known(home: Ingested) -> None:
    log = session()
    home.take(log.lines, folder=READ_LAST)
    home.write(resumed(log.lines), COPY, folder=READ_FIRST)
    log.user("the original goes on")
    home.grow(log.lines[-1:], folder=READ_LAST)
    assert home.owners() == {TRUNK}


def test_a_fork_older_by_date_than_its_original_takes_nothing(home: Ingested) -> None:
    log = session()
    with away(home.write(changed(log.lines, sessionId=OTHER, **FORKED), COPY, folder=READ_LAST)):
        log.user("the original goes on")
        home.take(log.lines, folder=READ_FIRST)
    home.ingest()
    assert (home.counted(), home.owners()) == ((7, 6), {TRUNK})


def test_the_history_takes_no_prompt_from_a_transcript_that_is_younger(home: Ingested) -> None:
    prompt = {"display": "Why do webhook retries double-charge?", "timestamp": 1_790_000_000_000, "sessionId": SESSION}
    home.take([json.dumps(prompt | {"project": "/home/dev/shop"})], "history.jsonl")
    home.take(session().lines, folder=READ_LAST)
    assert home.owners() >= {TRUNK}
    assert home.ingest().messages == 0


@pytest.mark.parametrize("mark", [{}, {"forkedFrom": {"sessionId": SESSION, "messageUuid": "uuid-1"}}])
def test_session_launched_elsewhere_is_of_its_own_folder(home: Ingested, mark: dict[str, object]) -> None:
    original = Log(cwd="/home/dev/shop").talk("Which colour has the roof?", "It is red.")
    home.write(original.lines)
    own = Log(OTHER, cwd="/home/dev/payroll")
    own._count, own.minute = 10, 10
    own.user("What does Ada earn?")
    own.say("55,555 a year.")
    home.take([*changed(original.lines, sessionId=OTHER, **mark), *own.lines], COPY, "-home-dev-payroll")
    projects = {episode.project for episode in home.episodes() if "Ada" in episode.raw_exchange}
    assert projects == {"/home/dev/payroll"}
