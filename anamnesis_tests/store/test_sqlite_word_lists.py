"""Ranking in memory: the embedded store's scores are those that FTS5 itself gives."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite import fulltext, word_lists
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.store.samples import episode, passages

WORDS = ("alder", "birches", "cedar", "dogwood", "elms")
STEMS = ("alder", "birch", "cedar", "dogwood", "elm")
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), min_size=1, max_size=20)
STEP = st.tuples(st.sampled_from(["put", "delete"]), st.integers(0, 24), st.lists(st.sampled_from(WORDS), max_size=9))


def by_fts5(path: Path, column: str, words: list[str]) -> list[tuple[int, float]]:
    """Passages and scores as FTS5 ranks them, best first."""
    with closing(sqlite3.connect(path)) as connection:
        match = column + "(" + " OR ".join(words) + ")"
        rows = connection.execute(
            "SELECT rowid, -rank FROM stem_index WHERE stem_index MATCH ? ORDER BY rank, rowid", (match,)
        )
        return rows.fetchall()


@pytest.mark.parametrize(("variant", "column"), [(Variant.TEXT, "{text} : "), (Variant.CONTEXT, "")])
@given(texts=TEXTS, steps=st.lists(STEP, max_size=6), asked=st.lists(st.sampled_from(STEMS), min_size=1, unique=True))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_scores_are_those_of_fts5_whatever_was_written_and_deleted_since(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], steps: list[tuple[str, int, list[str]]],
    asked: list[str], variant: Variant, column: str,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("store")
    store = open_sqlite(folder / "a.db", folder / "index")
    for n, words in enumerate(texts):
        put(store, n, words)
    store.text.matching(asked, 50, Where(), variant=variant)  # what is remembered now must not show below
    for action, n, words in steps:
        if action == "put":
            put(store, n, words)
        else:
            store.episodes.delete(f"e{n}", tombstone=False)
        hits = store.text.matching(asked, 50, Where(), variant=variant)
        expected = by_fts5(folder / "a.db", column, asked)
        assert {h.passage_id: pytest.approx(h.score, rel=1e-6) for h in hits} == dict(expected)
    store.close()


def put(store: Store, n: int, words: list[str]) -> None:
    """Write episode n: its words, and in the context the first of them again."""
    store.episodes.put([(episode(f"e{n}", n), passages(" ".join(words), context=" ".join(words[:1])))])


def test_a_phrase_and_a_word_in_many_passages_are_found_where_they_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fulltext, "COUNTED_ROWS", 3)
    for n in range(6):
        put(store, n, ["alder", "cedar"] if n % 2 else ["cedar", "alder"])
    hits = store.text.matching(["alder_cedar"], 10, Where())
    assert {h.episode_id for h in hits} == {"e1", "e3", "e5"}
    assert len(store.text.matching(["alder"], 10, Where())) == 6
    put(store, 7, ["alder", "cedar"])
    assert len(store.text.matching(["alder"], 10, Where())) == 7
    assert len(store.text.matching(["alder_cedar"], 10, Where())) == 4


@pytest.mark.parametrize(("bound", "most", "kept"), [("MAX_BYTES", 40, 1), ("MAX_LISTS", 2, 2)])
def test_what_is_remembered_has_a_bound(
    store: Store, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, kept: int
) -> None:
    monkeypatch.setattr(word_lists, bound, most)
    for n in range(8):
        put(store, n, list(WORDS))
    for _ in range(2):
        for word in STEMS:
            assert len(store.text.matching([word], 10, Where())) == 8
    lists = store.text._lists  # type: ignore[attr-defined]
    assert len(lists._entries) == kept
