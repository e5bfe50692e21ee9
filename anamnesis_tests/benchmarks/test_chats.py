"""The runners for LongMemEval and BEAM, on files of their form that are made up."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures/chats"

beam = importlib.import_module("beam")
chats = importlib.import_module("chats")
longmemeval = importlib.import_module("longmemeval")


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


@pytest.mark.e2e
def test_runner_asks_a_real_service_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    data = FIXTURES / "longmemeval.json"
    assert len(chats.run(longmemeval.chats_of(data), out, 1)) == 1
    rows = chats.run(longmemeval.chats_of(data), out, None)
    assert [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] == rows
    assert [(row["id"], sorted(row["session_ranks"])) for row in rows] == [("q1", [1]), ("q2", [1, 2])]
    chats.report(rows)
    assert "any@5" in capsys.readouterr().out
