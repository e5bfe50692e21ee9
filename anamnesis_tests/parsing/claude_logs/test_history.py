"""`history.jsonl`, through crawl, parse and publish on a real store."""

import json
from datetime import timedelta
from typing import Any

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import SUMMARIZER_MARK, SegmentKind
from anamnesis_pipeline.parsing.claude_logs.history import read_history
from anamnesis_pipeline.services.forget import Forgetter
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_tests.support.ingested import OTHER, Ingested
from anamnesis_tests.support.log_lines import SESSION, START, Log

NOW_MS = int(START.timestamp() * 1000)


def entry(display: str, minute: float = 0.5, *, session: str = SESSION, **fields: Any) -> str:
    values = {
        "display": display,
        "pastedContents": {},
        "timestamp": NOW_MS + int(minute * 60_000) + 37,
        "project": "/home/dev/shop",
        "sessionId": session,
    }
    return json.dumps({name: value for name, value in (values | fields).items() if value is not None})


def transcript() -> Log:
    log = Log().talk("Why do webhook retries double-charge?", "I look.")
    log.user("<command-name>/model</command-name>\n<command-args>sonnet</command-args>")
    log.user([{"type": "text", "text": "and [Image #1] this?"}, {"type": "image", "source": {"data": "aWk="}}])
    return log


HISTORY = [
    entry("Why do webhook retries double-charge?"),
    entry("/model sonnet", 1.5),
    entry("and [Image #1] this?", 2),
]


def everything(home: Ingested) -> list[tuple[str, str]]:
    return sorted((e.path.rpartition("/")[2], e.raw_exchange) for e in home.episodes())


def test_prompts_of_swept_sessions_are_recovered(home: Ingested) -> None:
    pasted = {"1": {"id": 1, "type": "text", "content": "line1\nline2"}, "2": {"id": 2, "contentHash": "ab"}}
    home.write(
        [
            entry("Where is the zeppelin?", session=OTHER),
            entry("[Pasted text #1 +1 lines] review this, not [Pasted text #2]", 1, pastedContents=pasted),
            entry("/clear", 2, project="/home/dev/acme.web"),
        ],
        "history.jsonl",
    )
    assert home.ingest().messages == 3
    first, second, third = home.episodes()
    assert (first.raw_exchange, first.project, first.session_id) == (
        "[User]\nWhere is the zeppelin?",
        "/home/dev/shop",
        OTHER,
    )
    assert (first.timestamp - START).total_seconds() == pytest.approx(30.037)
    assert second.raw_exchange == "[User]\nline1\nline2 review this, not [Pasted text #2]"
    assert (third.raw_exchange, third.project) == ("[Command]\n/clear", "/home/dev/acme.web")
    assert first.path == str(home.path("history.jsonl"))
    assert home.ingest().parts == 0


@pytest.mark.parametrize("first", ["history", "transcript", "together"])
@pytest.mark.parametrize("with_session", [True, False])
def test_a_prompt_is_there_once_whichever_file_comes_first(home: Ingested, first: str, with_session: bool) -> None:
    swept = entry("Only the history has this.", 3, session=OTHER)
    history = [*HISTORY, HISTORY[0], swept]
    if not with_session:
        history = [json.dumps(json.loads(line) | {"sessionId": None}) for line in history]
    if first == "history":
        assert home.take(history, "history.jsonl").messages == 4
    home.write(transcript().lines)
    if first == "transcript":
        home.ingest()
    home.take(history, "history.jsonl")
    assert "Only the history has this." in home.texts()
    for once in ("Why do webhook retries", "/model", "and [Image #1] this?"):
        assert home.texts().count(once) == 1
    assert {name for name, text in everything(home) if "Only the history" not in text} == {f"{SESSION}.jsonl"}
    counts = home.store.overview.counts()
    assert (counts.messages, counts.occurrences, counts.open_parts) == (5, 4, 0)
    keys = [key for e in home.episodes() for key in e.message_keys]
    assert {o.line for _, o in home.store.messages.occurrences_of(keys)} == {0, 1, 2, 3}
    before = everything(home)
    home.ingest()
    assert everything(home) == before


def test_a_growing_history_leaves_prompts_to_the_transcript(home: Ingested) -> None:
    log = transcript()
    for number, line in enumerate(HISTORY):
        home.grow([line], "history.jsonl")
        home.take(log.lines[: number + 2])
    home.take(log.lines)
    assert {name for name, _ in everything(home)} == {f"{SESSION}.jsonl"}


def test_the_same_words_in_another_session_are_another_prompt(home: Ingested) -> None:
    home.write(transcript().lines)
    home.take([entry("Why do webhook retries double-charge?", session=OTHER)], "history.jsonl")
    assert home.texts().count("Why do webhook retries double-charge?") == 2


def test_the_same_words_typed_again_later_are_another_prompt(home: Ingested) -> None:
    home.take([entry("continue", minute) for minute in (0, 60, 61, 120)], "history.jsonl")
    assert home.texts().split("\n").count("continue") == 4
    log = Log()
    for minute in (0, 60, 120):
        log.minute = minute - 0.5
        log.user("continue")
    home.take(log.lines)
    last = ("history.jsonl", "[User]\ncontinue")
    assert everything(home) == [*[(f"{SESSION}.jsonl", "[User]\ncontinue")] * 3, last]


@pytest.mark.parametrize("first", ["history", "transcript", "together"])
@pytest.mark.parametrize("session", [SESSION, None])
@pytest.mark.parametrize("spoken", [(0, 3, 5), (0, 3), (3,), (5,), ()])
def test_the_same_words_within_minutes_are_counted_each(
    home: Ingested, first: str, session: str | None, spoken: tuple[float, ...]
) -> None:
    typed = [entry("continue", minute, session=session) for minute in (0, 3, 5)]  # type: ignore[arg-type]
    log = said_at(*spoken)
    if first != "transcript":
        home.write(typed, "history.jsonl")
    if first != "history":
        home.write(log.lines)
    home.ingest()
    home.write(typed, "history.jsonl")
    home.write(log.lines)
    for _ in range(2):
        home.ingest()
        assert home.texts().split("\n").count("continue") == 3
        own = [e for e in home.episodes() if e.path.endswith("history.jsonl")]
        assert [round((e.timestamp - START).total_seconds() / 60) for e in own] == sorted({0, 3, 5} - {*spoken})


def said_at(*minutes: float) -> Log:
    log = Log()
    for minute in minutes:
        log.minute = minute - 0.5
        log.user("continue")
    return log


def test_a_deleted_entry_takes_no_prompt_of_its_words_with_it(home: Ingested) -> None:
    home.take([entry("continue", minute) for minute in (0, 3)], "history.jsonl")
    deleted, kept = sorted(home.episodes(), key=lambda e: e.timestamp)
    assert home.store.episodes.delete(deleted.episode_id)
    for minutes in ((0,), (0, 3), (0, 3)):
        home.take(said_at(*minutes).lines)
        (left,) = home.episodes()
        assert left.timestamp - kept.timestamp < timedelta(seconds=1)
    assert left.path.endswith(f"{SESSION}.jsonl")


@pytest.mark.parametrize("history_first", [True, False])
def test_a_forgotten_prompt_takes_no_later_one_of_its_words(home: Ingested, history_first: bool) -> None:
    typed = [entry("continue", minute) for minute in (0, 3, 5)]
    if history_first:
        home.write(typed, "history.jsonl")
    home.take(said_at(0, 3).lines)
    gone = min(home.episodes(), key=lambda e: e.timestamp)
    publish = Forgetter(home.store, home.archive, minilm_pieces(), lambda source: home.publish())
    publish.forget(ForgetRequest(ids=(gone.episode_id,)))
    home.write(typed, "history.jsonl")
    home.take([*said_at(0, 3).lines, entry("unrelated")])
    assert sorted(round((e.timestamp - START).total_seconds() / 60) for e in home.episodes()) == [3, 5]
    assert [json.loads(line).get("timestamp") for line in home.archived("history.jsonl")[:1]] == [None]


@pytest.mark.parametrize("is_in_history", [True, False])
def test_a_deleted_prompt_takes_no_later_one_of_the_same_words_with_it(home: Ingested, is_in_history: bool) -> None:
    log = Log().talk("continue")
    if is_in_history:
        home.write([entry("continue", 0)], "history.jsonl")
    else:
        home.write(log.lines)
    home.ingest()
    assert home.store.episodes.delete(home.episodes()[0].episode_id)
    log.minute = 600
    log.user("continue")
    log.say("Quite other work.")
    home.take(log.lines)
    assert home.texts() == "[User]\ncontinue\n\n[Claude]\nQuite other work."


def test_a_long_prompt_of_the_history_goes_whole_when_its_transcript_comes(home: Ingested) -> None:
    text = "\n".join(f"line {number} of a long prompt" for number in range(1_000))
    home.take([entry(text)], "history.jsonl")
    assert len(home.episodes()) > 3
    log = Log().talk(text)
    home.take(log.lines)
    assert {name for name, _ in everything(home)} == {f"{SESSION}.jsonl"}
    assert home.texts().count("line 999 of a long prompt") == 1


@pytest.mark.parametrize("crawled", ["after it was deleted", "before it was deleted"])
@pytest.mark.parametrize("with_session", [True, False])
def test_a_deleted_prompt_stays_away_when_its_log_comes(home: Ingested, with_session: bool, crawled: str) -> None:
    fields = {} if with_session else {"session": None}
    home.take([entry("Why do webhook retries double-charge?", **fields)], "history.jsonl")
    (recovered,) = home.episodes()
    if crawled == "before it was deleted":
        home.write(transcript().lines)
        home.crawl()
    assert home.store.episodes.delete(recovered.episode_id)
    home.write(transcript().lines)
    for _ in range(2):
        home.ingest()
        assert "double-charge" not in home.texts()
        assert {"I look.", "and [Image #1] this?"} <= set(home.texts().split("\n"))
        assert not any("double-charge" in json.dumps(dict(e.metadata)) for e in home.episodes())


def test_only_the_history_beside_projects_is_read_and_nothing_else_there(home: Ingested) -> None:
    home.write(HISTORY[:1], "history.jsonl")
    for name in ("settings.json", f"{SESSION}.jsonl", "todos.jsonl"):
        (home.projects.parent / name).write_text("{}\n")
    (source,) = home.sources()
    assert (source.kind, source.folder, source.root) == ("claude_history", ".", str(home.projects.parent))
    home.ingest()
    assert list(home.store.files.cursors(source.key)) == ["history.jsonl"]


@pytest.mark.parametrize(
    "line",
    ['{"display":7}', '{"display":"  "}', "{}", entry(f"{SUMMARIZER_MARK} summarize this")],
)
def test_what_is_no_prompt_of_a_user_is_left_out(line: str) -> None:
    batch = read_history([line], 0)
    assert (batch.messages, batch.malformed) == ((), 0)


def test_entries_whose_fields_are_missing_or_odd_are_kept_all_the_same() -> None:
    odd = {"timestamp": 10**30, "project": 3, "sessionId": None, "pastedContents": [1]}
    batch = read_history([json.dumps({"display": f"{n}"} | extra) for n, extra in enumerate(({}, odd))], 0)
    assert [m.message.text for m in batch.messages] == ["0", "1"]
    assert {m.message.timestamp for m in batch.messages} == {None}
    assert {m.message.kind for m in batch.messages} == {SegmentKind.PROMPT}
