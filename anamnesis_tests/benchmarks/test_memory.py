"""`make bench-memory`: scoring, intervals, arms and the page, on tiny data."""

import argparse
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

arms = importlib.import_module("memory_arms")
memory = importlib.import_module("memory")
page = importlib.import_module("memory_page")
scores = importlib.import_module("memory_scores")
sets = importlib.import_module("memory_sets")


def row(*ranks: int | None, **more: Any) -> dict[str, Any]:
    return {"id": "q", "kind": "k", "ranks": [*ranks], "results": 10, "tokens": 100, "ms": 1.0} | more


def text(number: int, words: str, scope: str = "a", episode: str = "") -> Any:
    return arms.Text(str(number), words, scope, episode or f"e{number}", (), "2025-01-01T00:00:00")


@pytest.mark.parametrize(
    ("ranks", "measures"),
    [
        ((1, None), {"hit@1": 1, "hit@5": 1, "recall@10": 0.5, "MRR": 1}),
        ((6,), {"hit@1": 0, "hit@5": 0, "recall@10": 1, "MRR": 1 / 6}),
        ((None,), {"hit@1": 0, "hit@5": 0, "recall@10": 0, "MRR": 0}),
    ],
)
def test_measures_of_a_row(ranks: tuple[int | None, ...], measures: dict[str, float]) -> None:
    assert {name: scores.MEASURES[name](row(*ranks)) for name in measures} == pytest.approx(measures)


@pytest.mark.parametrize(("new", "old", "right"), [(2, None, 1), (2, 3, 1), (3, 2, 0), (None, None, 0), (None, 4, 0)])
def test_newer_first_needs_the_newer_statement(new: int | None, old: int | None, right: int) -> None:
    assert scores.MEASURES["newer first"](row(new, older=old)) == right


def test_measured_leaves_out_questions_without_golds() -> None:
    assert scores.measured([row(1), row()], "hit@1").mean == 1
    assert scores.measured([row()], "hit@1") is None
    assert scores.measured([row(results=0), row()], "given").mean == 0.5


def test_interval_is_the_same_each_time_and_holds_the_mean() -> None:
    values = [0.0, 1.0] * 10
    low, high = scores.interval(values)
    assert (low, high) == scores.interval(values)
    assert 0.2 < low < 0.5 < high < 0.8
    assert scores.interval([1.0] * 5) == (1, 1)


def test_percentile_is_a_value_that_occurred() -> None:
    assert [scores.percentile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.5, 0.95)] == [1, 2, 4]


def test_hits_by_post_by_message_and_by_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"excerpt": "It said yes.", "source": {"message_ids": ["m1"]}, "episodes": ["e1", "e2"]}
    assert sets.hits(result, {"episode": "e2"})
    assert not sets.hits(result, {"episode": "e3"})
    assert sets.hits(result, {"message_ids": ["m1", "m2"]})
    assert not sets.hits(result, {"message_ids": ["m2"]})
    monkeypatch.setattr(sets, "shared_rule", lambda: lambda shown, gold: gold["quote"] in shown["excerpt"])
    assert sets.hits(result, {"quote": "said yes"})


def test_widened_golds_hold_the_whole_episode() -> None:
    asked = sets.Question("q", "?", "related", ({"message_ids": ["b"]},))
    assert sets.widened(asked, [["a", "b"], ["c"]]).golds == ({"message_ids": ["a", "b"]},)


def test_bm25_prefers_rare_words_and_answers_nothing_without_shared_ones() -> None:
    index = arms.Bm25Index([text(0, "the queue is slow"), text(1, "the queue is NATS"), text(2, "the cat")])
    assert index.best("is nats the queue?")[0]["episodes"] == ["e1"]
    assert index.best("zebra") == []


def test_grep_ranks_lines_by_distinct_words_within_scope(tmp_path: Path) -> None:
    log = {"uuid": "m1", "message": {"content": "The Queue was moved to NATS"}}
    (tmp_path / "s.jsonl").write_text(json.dumps(log) + "\nqueue queue, no JSON\n", encoding="utf-8")
    post = sets.Post("p1", "NATS", "2025-01-01T00:00:00Z", "shop")
    grep = arms.Grep(arms.Place("", None, None, [], tmp_path, [post], tmp_path), {None})
    found = grep.ask(sets.Question("q", "Why was the queue moved to NATS?", "k", ()), False)
    assert [hit["source"]["message_ids"] for hit in found] == [("m1",), (), ()]
    assert len(grep.ask(sets.Question("q", "nats", "k", (), scope="shop"), False)) == 1


def test_results_show_a_post_once() -> None:
    shown = arms.distinct(iter([text(0, "a", episode="e"), text(1, "b", episode="e"), text(2, "c", episode="f")]))
    assert [hit["episodes"] for hit in shown] == [["e"], ["f"]]


def test_every_gold_that_names_a_post_is_posted() -> None:
    for name in ("notes", "reversals", "reversals-held"):
        asked = sets.SETS[name].questions()
        posted = {post.id for post in sets.SETS[name].corpus.posts(asked)}
        assert asked
        assert {gold["episode"] for question in asked for gold in question.golds} <= posted


def test_both_halves_of_a_set_share_no_question() -> None:
    for name in ("conclusions", "temporal", "short"):
        halves = [{each.text for each in sets.SETS[half].questions()} for half in (name, f"{name}-held")]
        assert all(halves)
        assert not halves[0] & halves[1]


def test_only_reversals_can_be_asked_without_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = importlib.import_module("service")
    monkeypatch.setattr(service, "SHARED", tmp_path / "none")
    monkeypatch.setattr(memory, "measure", lambda *_: None)
    common = ["memory.py", "--results", str(tmp_path), "--page", str(tmp_path / "page.md"), "--sets"]
    monkeypatch.setattr(sys, "argv", [*common, "reversals", "reversals-held"])
    memory.main()
    assert (tmp_path / "page.md").exists()
    monkeypatch.setattr(sys, "argv", [*common, "reversals", "sessions"])
    with pytest.raises(SystemExit, match=f"No folder {tmp_path / 'none'}"):
        memory.main()


def meta(arm: str, **more: Any) -> dict[str, Any]:
    facts = {"date": "2026-11-28T20:00:00+00:00", "commit": "abc", "machine": "m", "python": "3", "load": 1.0}
    return {"meta": facts | {"command": "make", "arm": arm, "passages": 7, "versions": {}} | more}


def write(folder: Path, name: str, arm: str, head: dict[str, Any], *rows: dict[str, Any]) -> None:
    memory.write(folder / name / f"{arm}.jsonl", head["meta"], rows)


def test_page_marks_the_best_and_says_where_we_lose(tmp_path: Path) -> None:
    write(tmp_path, "sessions", "nothing", meta("nothing"), row(None), row(None))
    write(tmp_path, "sessions", "bm25", meta("bm25"), row(1), row(1))
    write(tmp_path, "sessions", "engram", meta("engram", reason="no wheel"))
    write(tmp_path, "sessions", "anamnesis", meta("anamnesis"), row(2, ms=9.0, tokens=9), row(None, kind="l", ms=9.0))
    shown = page.page_of(tmp_path)
    assert "2 questions over 7 passages" in shown
    assert "| BM25 | **1.000** (1.00–1.00) |" in shown
    assert "| **Anamnesis** | 0.000 (0.00–0.00) | 0.500 (0.00–1.00) |" in shown
    assert "engram could not be asked: no wheel" in shown
    assert "Not asked: grep, dense, MiniLM, MemPalace." in shown
    assert "| Questions over two code sessions | hit@1 | BM25 | 0.000 | 1.000 | apart |" in shown
    assert "Fewest tokens: Anamnesis in every set." in shown
    assert "Fastest, ms at the median: sessions BM25 1.0 (Anamnesis 9.0)." in shown


def test_page_takes_fewer_answers_to_unrelated_prompts_for_better(tmp_path: Path) -> None:
    for arm, given in (("dense", 10), ("anamnesis", 0)):
        rows = [row(1, kind="related"), row(kind="unrelated", results=given)]
        write(tmp_path, "silence", arm, meta(arm), *rows)
    shown = page.page_of(tmp_path)
    assert "given on unrelated prompts" in shown
    assert "| **Anamnesis** | **1.000** (1.00–1.00) | **0.000** (0.00–0.00) |" in shown
    assert "In no column" in shown


def test_readme_and_ranking_name_the_measured_tokens() -> None:
    (_, rows) = page.read(memory.RESULTS)["sessions"]["anamnesis"]
    measured = page.tokens_of(rows)
    for document in ("README.md", "docs/explanation/ranking.md"):
        text = (memory.ROOT / document).read_text(encoding="utf-8")
        (told,) = re.findall(r"Five results (?:cost|take) about ([\d,]+) tokens", text)
        assert int(told.replace(",", "")) == pytest.approx(measured, rel=0.1)


def test_page_is_made_of_the_result_files() -> None:
    assert page.page_of(memory.RESULTS) == memory.PAGE.read_text(encoding="utf-8"), "make bench-memory ARGS=--page-only"


def test_result_files_are_kept_unless_they_lack_a_question(tmp_path: Path) -> None:
    path = tmp_path / "sessions/bm25.jsonl"
    asked = [sets.Question("q", "?", "k", ()), sets.Question("r", "?", "k", ())]
    assert not memory.held(path, asked)
    write(tmp_path, "sessions", "bm25", meta("bm25"), row(1))
    assert memory.held(path, asked[:1])
    assert not memory.held(path, asked)
    write(tmp_path, "sessions", "bm25", meta("bm25", reason="pip failed"))
    assert not memory.held(path, asked[:1])


def test_an_index_of_other_code_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in memory.READING:
        (tmp_path / "anamnesis_pipeline" / package).mkdir(parents=True)
    code = tmp_path / "anamnesis_pipeline/parsing/cut.py"
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    found = []
    for text in ("SIZE = 1", "SIZE = 2", "SIZE = 1"):
        code.write_text(text, encoding="utf-8")
        memory.reading.cache_clear()
        found.append(memory.reading())
    memory.reading.cache_clear()
    assert found[0] == found[2] != found[1]


def test_page_says_when_arms_are_of_different_runs(tmp_path: Path) -> None:
    write(tmp_path, "sessions", "bm25", meta("bm25"), row(1))
    write(tmp_path, "sessions", "anamnesis", meta("anamnesis"), row(1))
    assert "not all asked in one run" not in page.page_of(tmp_path)
    write(tmp_path, "sessions", "bm25", meta("bm25", commit="def"), row(1))
    assert "not all asked in one run" in page.page_of(tmp_path)


def test_a_peer_that_has_ended_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = tmp_path / "memory_peer.py"
    peer.write_text("import sys\nprint('{}', flush=True)\nsys.stdin.readline()\nsys.exit('no memory left')\n")
    monkeypatch.setattr(arms, "HERE", tmp_path)
    monkeypatch.setattr(arms, "peers_python", lambda _: sys.executable)
    ended = arms.Peer(arms.Place("", None, None, [], None, [], tmp_path), set(), "mempalace")
    try:
        for _ in range(3):  # the last ones write to a closed pipe
            with pytest.raises(arms.UnavailableError, match="no memory left"):
                ended.ask(sets.Question("q", "?", "k", ()), False)
    finally:
        ended.close()


class Fake:
    """Finds the post that the question names."""

    versions: ClassVar[dict[str, str]] = {"fake": "1"}

    def ask(self, question: Any, gate: bool) -> list[dict[str, Any]]:
        return [{"excerpt": "x" * 400, "source": {"message_ids": []}, "episodes": [question.text]}] * 6


def test_asking_writes_a_row_for_each_question(tmp_path: Path) -> None:
    asked = [sets.Question("q1", "new", "dev", ({"episode": "new"},), older={"episode": "old"})]
    args = argparse.Namespace(results=tmp_path, limit=1)
    place = arms.Place("", None, None, [], None, [], tmp_path)
    out = arms.UnavailableError("no wheel")
    memory.ask_all(sets.SETS["reversals"], asked, {"bm25": Fake(), "engram": out}, place, args)
    head, found = map(json.loads, (tmp_path / "reversals/bm25.jsonl").read_text(encoding="utf-8").splitlines())
    assert found | {"ms": 0} == row(1, id="q1", kind="dev", results=6, tokens=500, older=None, ms=0)
    assert head["meta"]["versions"] == {"fake": "1"}
    assert "--limit 1" in head["meta"]["command"]
    missing = json.loads((tmp_path / "reversals/engram.jsonl").read_text(encoding="utf-8"))
    assert missing["meta"]["reason"] == "no wheel"
