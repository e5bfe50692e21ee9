"""The runners for LongMemEval and BEAM, on files of their form that are made up."""

import importlib
import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures/chats"

beam = importlib.import_module("beam")
chats = importlib.import_module("chats")
longmemeval = importlib.import_module("longmemeval")


META = {
    "benchmark": "beam",
    "data": "100K",
    "sha256": "aa",
    "commit": "c1",
    "model": "m",
    "rerank_model": "",
    "ranking": {},
    "date": "d",
    "python": "3",
}


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory that finds nothing."""
    monkeypatch.setattr(chats, "sidecar", lambda home: nullcontext("http://localhost"))
    monkeypatch.setattr(chats, "store", lambda client, messages: None)
    monkeypatch.setattr(chats, "wait_embedded", lambda base, timeout_s: 0)
    monkeypatch.setattr(chats, "search", lambda client, text, k: [])


def test_longmemeval_questions_have_their_sessions_and_messages() -> None:
    one, two = longmemeval.chats_of(FIXTURES / "longmemeval.json")
    assert one.questions[0].sessions == ("answer_7",)
    assert one.questions[0].messages == ("1/answer_7/0",)
    assert two.questions[0].messages == ("0/answer_a/0", "1/answer_b/0")
    bought = one.messages[2]
    assert bought.text == "user: I bought a tin of Darjeeling tea for my sister today."
    assert bought.timestamp == "2023-05-20T14:03:00Z"


def test_beam_golds_are_messages_whose_number_is_unique() -> None:
    (chat,) = beam.chats_of(FIXTURES / "beam")
    golds = {asked.id: (asked.messages, asked.sessions) for asked in chat.questions}
    assert golds == {
        "1-information_extraction-0": (("0",), ("1",)),
        "1-knowledge_update-0": (("2", "4"), ("1", "2")),
    }
    assert [each.timestamp[:10] for each in chat.messages] == ["2024-03-15"] * 4 + ["2024-04-20"] * 3


def test_beam_reads_plans_of_the_largest_chats() -> None:
    plans = [{"plan-0": [{"batch_number": 1, "turns": [[{"role": "user", "id": 0, "content": "a"}]]}]}]
    messages, by_number = beam.messages_of([*plans, {"plan-1": plans[0]["plan-0"]}])
    assert [each.session for each in messages] == ["plan-0/1", "plan-1/1"]
    assert by_number == {}


@pytest.mark.parametrize("runner", [beam, longmemeval])
def test_runner_says_where_the_data_is_from(runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["runner", str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="https://github"):
        runner.main()


def test_row_ranks_messages_and_distinct_sessions() -> None:
    (chat,) = beam.chats_of(FIXTURES / "beam")
    order = ["message-5", "message-4", "message-1", "message-0"]

    def find(text: str, k: int) -> list[dict[str, Any]]:
        also = {"message-0": ["message-2"]}
        return [{"episode_id": key, "also": also.get(key, []), "summary": "x" * 40} for key in order]

    row = chats.ask(find, chat, chat.questions[1])
    assert row["ranks"] == [4, 2]
    assert row["session_ranks"] == [2, 1]
    assert (row["sessions"], row["tokens"]) == (["2", "1"], 40)


def test_shares_tell_any_from_all() -> None:
    rows = [{"ranks": [1, None]}, {"ranks": [2, 7]}]
    assert chats.shares(rows, 5) == (1, 0)
    assert chats.shares(rows, 10) == (1, 0.5)


@pytest.mark.parametrize(
    ("runner", "data", "out"),
    [
        (beam, FIXTURES / "beam", "beam-beam.jsonl"),
        (longmemeval, FIXTURES / "longmemeval.json", "longmemeval-longmemeval.jsonl"),
    ],
)
@pytest.mark.usefixtures("no_service")
def test_result_file_is_named_after_its_data(
    runner: Any, data: Path, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["runner", str(data)])
    runner.main()
    head, *rows = lines_of(tmp_path / out)
    assert head["meta"]["data"] == data.stem
    assert len(rows) == 2


def test_facts_tell_other_content_of_the_same_name_apart(tmp_path: Path) -> None:
    for folder, content in (("a", "[]"), ("b", "{}"), ("c", "[]")):
        (tmp_path / folder / "100K/1").mkdir(parents=True)
        (tmp_path / folder / "100K/1/chat.json").write_text(content)
    one, other, same = (chats.facts("beam", tmp_path / folder / "100K") for folder in "abc")
    assert one["sha256"] == same["sha256"] != other["sha256"]
    assert one["data"] == other["data"] == "100K"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data", "500K"),
        ("sha256", "bb"),
        ("commit", "c2"),
        ("model", "n"),
        ("rerank_model", "r"),
        ("ranking", {"rrf_k": 40}),
    ],
)
@pytest.mark.usefixtures("no_service")
def test_run_refuses_rows_of_something_else(key: str, value: Any, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    before, told = chats.run(beam.chats_of(FIXTURES / "beam"), out, META), f"{key} {META[key]} (now {value})"
    with pytest.raises(SystemExit, match=rf"rows\.jsonl .*{re.escape(told)}: .*--out.*--fresh"):
        chats.run(beam.chats_of(FIXTURES / "beam"), out, META | {key: value})
    assert lines_of(out) == [{"meta": META}, *before]
    assert chats.run(beam.chats_of(FIXTURES / "beam"), out, META | {"date": "e", "python": "4"}) == before


def test_facts_name_the_settings_that_change_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_RANKING", "rrf_k=40")
    monkeypatch.setenv("ANAMNESIS_RERANK_MODEL", "r")
    meta = chats.facts("beam", tmp_path)
    assert (meta["rerank_model"], meta["ranking"]) == ("r", {"rrf_k": 40})


@pytest.mark.parametrize("limit", ["0", "-1", "x"])
def test_limit_has_to_be_a_number_of_questions(
    limit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["runner", str(FIXTURES / "beam"), "--limit", limit])
    with pytest.raises(SystemExit):
        beam.main()
    assert "argument --limit" in capsys.readouterr().err


def test_data_without_questions_ends_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data.json"
    data.write_text("[]")
    monkeypatch.setattr(sys, "argv", ["runner", str(data), "--out", str(tmp_path / "rows.jsonl")])
    with pytest.raises(SystemExit, match="No question was asked"):
        longmemeval.main()


@pytest.mark.usefixtures("no_service")
def test_fresh_run_asks_all_again(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    chats.run(beam.chats_of(FIXTURES / "beam"), out, META)
    other = META | {"commit": "c2"}
    rows = chats.run(beam.chats_of(FIXTURES / "beam"), out, other, limit=1, fresh=True)
    assert lines_of(out) == [{"meta": other}, *rows]
    assert len(rows) == 1


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.usefixtures("no_service")
def test_row_cut_by_a_kill_is_asked_again(kept: int, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    chats.run(beam.chats_of(FIXTURES / "beam"), out, META)
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[: 1 + kept]) + lines[1 + kept][:20])
    rows = chats.run(beam.chats_of(FIXTURES / "beam"), out, META)
    assert lines_of(out) == [{"meta": META}, *rows]
    assert len(rows) == 2


@pytest.mark.parametrize("content", ['{"id": "a row without facts before it"}\n', "[1, 2]", "no JSON\n"])
def test_file_without_facts_is_left_as_it_is(content: str, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    out.write_text(content)
    with pytest.raises(SystemExit, match=r"rows\.jsonl is not a result file"):
        chats.run([], out, META)
    assert out.read_text() == content


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", r"data\.json .*git lfs pull"),
        ('{"question_id": "q1"}', r"data\.json: it is not a list of questions"),
        ('[{"question_id": "q_abs"}, {"question_id": "q1"}]', r"question 2 of .*no 'haystack_session_ids' in it"),
        ("[7]", r"question 1 of .*data\.json"),
    ],
)
def test_longmemeval_says_what_is_wrong_with_a_file(content: str, told: str, tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    data.write_text(content)
    with pytest.raises(SystemExit, match=told):
        list(longmemeval.chats_of(data))


@pytest.mark.parametrize("date", ["", "2023/05/30", "2023/05/30 (Tue) 20.42"])
def test_longmemeval_names_the_question_of_a_bad_date(date: str, tmp_path: Path) -> None:
    items = json.loads((FIXTURES / "longmemeval.json").read_text(encoding="utf-8"))
    items[1]["haystack_dates"][0] = date
    data = tmp_path / "data.json"
    data.write_text(json.dumps(items))
    with pytest.raises(SystemExit, match=r"question 2 of .*time data '.*' does not match"):
        list(longmemeval.chats_of(data))


@pytest.mark.parametrize(
    ("chat", "told"),
    [
        (None, r"1/chat\.json \(.*No such file"),
        ("[{", r"1/chat\.json \(Expecting"),
        ('[{"batch_number": 1, "turns": [[{"id": 0}]]}]', r"1 \(no 'role' in it\)"),
    ],
)
def test_beam_says_what_is_wrong_with_a_chat(chat: str | None, told: str, tmp_path: Path) -> None:
    (tmp_path / "1/probing_questions").mkdir(parents=True)
    (tmp_path / "1/probing_questions/probing_questions.json").write_text("{}")
    if chat is not None:
        (tmp_path / "1/chat.json").write_text(chat)
    with pytest.raises(SystemExit, match=told):
        list(beam.chats_of(tmp_path))


@pytest.mark.e2e
def test_runner_asks_a_real_service_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    data = FIXTURES / "longmemeval.json"
    meta = chats.facts("longmemeval", data)
    assert len(chats.run(longmemeval.chats_of(data), out, meta, 1)) == 1
    rows = chats.run(longmemeval.chats_of(data), out, meta)
    assert lines_of(out) == [{"meta": meta}, *rows]
    assert [(row["id"], sorted(row["session_ranks"])) for row in rows] == [("q1", [1]), ("q2", [1, 2])]
    chats.report(rows)
    assert "any@5" in capsys.readouterr().out
