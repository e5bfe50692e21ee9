"""Search results as people read them."""

from datetime import UTC, timedelta, timezone
from typing import Any

import pytest
from click import unstyle

from anamnesis_pipeline.cli import search
from anamnesis_pipeline.cli.search import converse, search_body
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.services.schemas import SearchIn

HIT: dict[str, Any] = {
    "episode_id": "0f3c",
    "score": 0.8333,
    "confidence": "strong",
    "timestamp": "2026-03-14T23:30:00Z",
    "project": "acme/api",
    "kind": "exchange",
    "summary": "Retries",
    "excerpt": "webhook retries " * 60,
    "also": ["aa", "bb"],
    "source": {"machine": "desk", "path": "/logs/a.jsonl", "session_id": "3e2ee77d", "message_ids": ["m"]},
}


def render(*given: Any, **named: Any) -> str:
    """What a file or a pipe gets."""
    return unstyle(search.render(*given, **named))


def answer(*hits: dict[str, Any], degraded: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"results": list(hits), "degraded": list(degraded)}


def test_a_hit_shows_rank_date_project_confidence_and_id() -> None:
    lines = render(answer(HIT), timezone(timedelta(hours=1)), width=60).splitlines()
    assert lines[0] == "1. 2026-03-15 00:30  acme/api  exchange  strong"
    assert len(lines) == 7
    assert all(len(line) <= 60 for line in lines)
    assert lines[-2] == "   0f3c  (and 2 alike)"
    for factor, end in ((1.0, "strong"), (1.2, "strong ★")):  # counts for more than its words
        assert render(answer(HIT | {"priority_multiplier": factor}), UTC).splitlines()[0].endswith(end)


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ({}, "   desk, session 3e2ee77d"),
        (
            {
                "machine": "nas",
                "path": "/code/shop/CLAUDE.md",
                "session_id": "",
                "lines": [7, 9],
                "title": ["Shop", "Deployment"],
            },
            "   nas:/code/shop/CLAUDE.md:7 (Shop > Deployment)",
        ),
        (
            {
                "machine": "",
                "path": "56b937525f30/b.pdf",
                "session_id": "",
                "lines": [1, 4],
                "title": ["b.pdf", "Page 1"],
            },
            "   upload b.pdf:1 (b.pdf > Page 1)",
        ),
        ({"path": "/notes/a.txt", "session_id": "", "lines": [1, 2], "title": []}, "   desk:/notes/a.txt"),
        ({"machine": "", "path": "", "session_id": ""}, "   0f3c  (and 2 alike)"),
    ],
)
def test_last_line_of_a_hit_says_where_it_is_from(source: dict[str, Any], where: str) -> None:
    hit = {**HIT, "source": {**HIT["source"], **source}}
    assert render(answer(hit), UTC).splitlines()[-1] == where


def test_what_an_answer_lacks_is_said() -> None:
    first, hit, *_ = render({**answer(HIT), "weak": True}).split("\n\n")
    assert first == "Nothing answers well; the nearest:"
    assert hit.startswith("1. ")
    assert render(answer(), UTC) == "Nothing found."
    assert render(answer(degraded=("dense: model is loading",)), UTC).endswith("Incomplete: dense: model is loading")


def test_explained_answer_says_why_each_hit_is_there() -> None:
    places = {
        "words_text": {"rank": 3, "score": 1.5, "weight": 1.0},
        "dense_text": {"rank": 1, "score": 0.7, "weight": 1.0},
    }
    stages = {"factors": {"trust": 1.06}, "late": {"rank": 2, "score": 9.1}, "company": 0.02, "nearness": 3.21}
    explained = answer({**HIT, "explanation": {**places, "stages": stages}}) | {
        "explanation": {
            "lists": {"words_text": {"weight": 1.0, "found": 12, "first": []}},
            "ranking": {"rrf_k": 40},
            "time": {"words": "last\x1b week", "relation": "during", "since": "2026-03-02", "until": None},
            "confidence": -1.234,
            "floor": -1.6,
            "candidates": 9,
            "below_floor": 4,
            "folded": 2,
        }
    }
    text = render(explained, UTC, width=60)
    assert "   ranks: words_text 3, dense_text 1, late interaction 2" in text
    assert "   then: trust x1.06, company +0.02, +3.2 deviations from what is unrelated" in text
    assert "Lists (passages): words_text 12\nRanking numbers changed: rrf_k 40\nTime: " in text
    assert "Confidence: -1.23, the floor is -1.60" in text
    assert text.endswith("Episodes: 9 candidates, 4 below the floor, 2 folded into others or further down")
    assert "\x1b" not in text


def test_escapes_of_stored_text_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in render(answer({**HIT, "excerpt": "\x1b[31mred\x1b[0m", "episode_id": "a\x1b]0;x\x07"}), UTC)


def test_a_file_name_that_would_break_its_line_is_quoted() -> None:
    source = {"machine": "nas", "path": "/n/a\n2. fake\x1b[2J.md", "session_id": "", "lines": [7, 9], "title": ["A"]}
    lines = render(answer({**HIT, "source": source}), UTC).splitlines()
    assert lines[-1] == r"   nas:'/n/a\n2. fake\x1b[2J.md':7 (A)"


def test_the_body_is_one_that_the_api_accepts() -> None:
    body = search_body(
        "q",
        top_k=3,
        mode=Mode.EXACT,
        project="api",
        instance=None,
        since="2026-01-01",
        until=None,
        kinds=["exchange"],
        tags=["x"],
        decay_weight=0.4,
        lists=["exact"],
    )
    question = SearchIn.model_validate(body).question()
    assert (question.text, question.top_k, question.mode) == ("q", 3, Mode.EXACT)
    assert question.where.projects == ("api",)
    assert question.where.kinds == ("exchange",)
    assert (question.profile.decay_weight, question.lists) == (0.4, ("exact",))


def test_superseded_hit_says_since_when_and_by_what() -> None:
    old = {**HIT, "status": "superseded", "superseded_at": "2026-03-15T08:05:00Z", "superseded_by": "0f3d"}
    assert render(answer(old), UTC).splitlines()[-1] == "   superseded since 2026-03-15 08:05 by 0f3d"
    gone = render(answer({**old, "superseded_by": None}), UTC)
    assert gone.endswith("superseded since 2026-03-15 08:05, with nothing in its place")
    assert "superseded" not in render(answer({**old, "status": "active"}), UTC)


def test_terminal_is_asked_until_an_empty_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, asked = iter(["first", " second ", "", "never"]), list[str]()

    def answered(words: str) -> None:
        asked.append(words)
        if words == "first":
            raise GiveUp("the sidecar is away")

    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    with pytest.raises(GiveUp, match="anamnesis search WORDS"):
        converse(answered)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    converse(answered)
    assert asked == ["first", "second"]
    assert "the sidecar is away" in capsys.readouterr().err
