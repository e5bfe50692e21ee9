"""Copies in other project folders, which carry no mark: the oldest file owns the messages, whichever is read first."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.steps.posting import Poster
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.exchanges.ingested import OTHER, Ingested
from anamnesis_tests.exchanges.log_lines import SESSION, Log

COPY, ORIGINAL = f"{OTHER}.jsonl", f"{SESSION}.jsonl"
READ_FIRST, READ_LAST = "-a-folder", "-z-folder"
Change = Callable[[list[str]], list[str]]


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Ingested:
    return Ingested(store, tmp_path)


def said(texts: int = 3) -> Log:
    log = Log()
    for number in range(texts):
        log.user(f"question {number} about webhooks")
        log.tool("Grep", f"toolu_{number}", f"found {number}", pattern="charge")
        log.assistant({"type": "text", "text": f"answer {number}"}, message_id=f"msg_{number}")
    return log


def resumed(lines: list[str]) -> list[str]:
    return [json.dumps(json.loads(line) | {"sessionId": OTHER}) for line in lines]


def rewritten(lines: list[str]) -> list[str]:
    return [json.dumps(json.loads(line) | {"sessionId": OTHER, "uuid": f"new-{n}"}) for n, line in enumerate(lines)]


def owners(home: Ingested) -> set[str]:
    return {episode.path.rpartition("/")[2] for episode in home.episodes()}


@pytest.mark.parametrize("copy", [resumed, rewritten])
@pytest.mark.parametrize("in_one_run", [True, False])
def test_the_original_owns_its_messages_though_its_folder_is_read_after_that_of_a_copy(
    home: Ingested, copy: Change, in_one_run: bool
) -> None:
    lines = said().lines
    original = home.write(lines, ORIGINAL, folder=READ_LAST)
    hidden = original.rename(original.with_suffix(".away"))
    home.write(copy(lines), COPY, folder=READ_FIRST)
    if not in_one_run:
        home.ingest()
        assert owners(home) == {COPY}
    hidden.rename(original)
    home.ingest()
    home.publish()
    counts = home.store.overview.counts()
    assert (counts.messages, counts.occurrences, owners(home)) == (12, 12, {ORIGINAL})
    assert [home.texts().count(f"question {n}") for n in range(3)] == [1, 1, 1]
    assert home.ingest().messages == 0


def test_what_people_changed_of_an_episode_outlasts_that_it_passes_to_an_older_file(home: Ingested) -> None:
    lines = said().lines
    original = home.write(lines, ORIGINAL, folder=READ_LAST)
    hidden = original.rename(original.with_suffix(".away"))
    home.write(resumed(lines), COPY, folder=READ_FIRST)
    home.ingest()
    episode = home.episodes()[0]
    poster = Poster(home.store, lambda text: (text, Counter()), minilm_pieces(), None)
    poster.patch(episode.episode_id, {"summary": "What I know of it.", "tags": ("mine",)})
    hidden.rename(original)
    home.ingest()
    home.publish()
    (kept,) = [e for e in home.episodes() if e.episode_id == episode.episode_id]
    assert (kept.summary, kept.session_id, kept.path.endswith(ORIGINAL)) == ("What I know of it.", SESSION, True)
    assert "mine" in kept.tags


def test_what_only_the_copy_has_stays_with_it(home: Ingested) -> None:
    log = said()
    home.write(log.lines, ORIGINAL, folder=READ_LAST)
    copied = resumed(log.lines)
    log.minute += 100
    log.user("only the copy goes on")
    home.write([*copied, *log.lines[-1:]], COPY, folder=READ_FIRST)
    home.ingest()
    home.publish()
    assert owners(home) == {ORIGINAL, COPY}
    (own,) = [episode for episode in home.episodes() if episode.path.endswith(COPY)]
    assert own.raw_exchange.count("question") == 0
    assert "only the copy goes on" in own.raw_exchange


def test_a_copy_that_is_older_by_its_date_only_because_the_original_went_on_takes_nothing_once_both_are_known(
    home: Ingested,
) -> None:
    log = said()
    home.write(log.lines, ORIGINAL, folder=READ_LAST)
    home.ingest()
    home.write(resumed(log.lines), COPY, folder=READ_FIRST)
    log.user("the original goes on")
    home.append(log.lines[-1:], ORIGINAL, folder=READ_LAST)
    home.ingest()
    assert owners(home) == {ORIGINAL}


def test_a_fork_takes_nothing_though_its_date_is_before_that_of_the_original_which_went_on(home: Ingested) -> None:
    log = said()
    forked = [json.dumps(json.loads(line) | {"forkedFrom": {"sessionId": SESSION}}) for line in resumed(log.lines)]
    fork = home.write(forked, COPY, folder=READ_LAST)
    hidden = fork.rename(fork.with_suffix(".away"))
    log.user("the original goes on")
    home.write(log.lines, ORIGINAL, folder=READ_FIRST)
    home.ingest()
    hidden.rename(fork)
    home.ingest()
    counts = home.store.overview.counts()
    assert (counts.messages, counts.occurrences, owners(home)) == (13, 12, {ORIGINAL})


def test_the_history_takes_no_prompt_from_a_transcript_that_is_younger(home: Ingested) -> None:
    prompt = {"display": "question 0 about webhooks", "timestamp": 1_790_000_000_000, "project": "/home/dev/shop"}
    home.write([json.dumps(prompt | {"sessionId": SESSION})], "history.jsonl")
    home.ingest()
    home.write(said().lines, ORIGINAL, folder=READ_LAST)
    home.ingest()
    assert owners(home) >= {ORIGINAL}
    assert home.ingest().messages == 0


@pytest.mark.parametrize("mark", [{}, {"forkedFrom": {"sessionId": SESSION, "messageUuid": "uuid-1"}}])
def test_session_launched_elsewhere_is_of_its_own_folder(home: Ingested, mark: dict[str, object]) -> None:
    original = Log(cwd="/home/dev/shop")
    original.user("Which colour has the roof?")
    original.say("It is red.")
    home.write(original.lines)
    copied = [json.dumps(json.loads(line) | {"sessionId": OTHER} | mark) for line in original.lines]
    own = Log(OTHER, cwd="/home/dev/payroll")
    own._count, own.minute = 10, 10
    own.user("What does Ada earn?")
    own.say("55,555 a year.")
    home.write([*copied, *own.lines], f"{OTHER}.jsonl", "-home-dev-payroll")
    home.ingest()
    projects = {episode.project for episode in home.episodes() if "Ada" in episode.raw_exchange}
    assert projects == {"/home/dev/payroll"}
