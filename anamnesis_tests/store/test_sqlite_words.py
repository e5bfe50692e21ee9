"""Ranking in memory: the scores that FTS5 itself gives, and common words, with limits that a few passages reach."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite import filters, fulltext, word_lists
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.store.sqlite.word_lists import CommonWords, Corpus
from anamnesis_tests.support.samples import episode, passages

WORDS = ("alder", "birches", "cedar", "dogwood", "elms")
STEMS = ("alder", "birch", "cedar", "dogwood", "elm")
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), min_size=1, max_size=20)
FEW_TEXTS = st.lists(st.lists(st.sampled_from(STEMS), min_size=1, max_size=4), min_size=1, max_size=24)
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
def test_scores_are_those_of_fts5_whatever_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[list[str]],
    steps: list[tuple[str, int, list[str]]],
    asked: list[str],
    variant: Variant,
    column: str,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = open_sqlite(folder / "a.db", folder / "index")
    for n, words in enumerate(texts):
        put(store, n, words)
    store.text.matching(asked, 50, EpisodeFilter(), variant=variant)  # what is remembered now must not show below
    for action, n, words in steps:
        if action == "put":
            put(store, n, words)
        else:
            store.episodes.delete(f"e{n}", tombstone=False)
        hits = store.text.matching(asked, 50, EpisodeFilter(), variant=variant)
        expected = by_fts5(folder / "a.db", column, asked)
        assert {h.passage_id: pytest.approx(h.score, rel=1e-6) for h in hits} == dict(expected)
    store.close()


def put(store: Store, n: int, words: list[str]) -> None:
    """Write episode n: its words, and in the context the first of them again."""
    store.episodes.put([(episode(f"e{n}", n), passages(" ".join(words), context=" ".join(words[:1])))])


def test_phrase_and_word_in_many_passages_are_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fulltext, "COUNTED_ROWS", 3)
    for n in range(6):
        put(store, n, ["alder", "cedar"] if n % 2 else ["cedar", "alder"])
    hits = store.text.matching(["alder_cedar"], 10, EpisodeFilter())
    assert {h.episode_id for h in hits} == {"e1", "e3", "e5"}
    assert len(store.text.matching(["alder"], 10, EpisodeFilter())) == 6
    put(store, 7, ["alder", "cedar"])
    assert len(store.text.matching(["alder"], 10, EpisodeFilter())) == 7
    assert len(store.text.matching(["alder_cedar"], 10, EpisodeFilter())) == 4


@pytest.mark.parametrize(("bound", "most", "kept"), [("MAX_BYTES", 40, 1), ("MAX_LISTS", 2, 2)])
def test_what_is_remembered_has_a_bound(
    store: Store, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, kept: int
) -> None:
    monkeypatch.setattr(word_lists, bound, most)
    for n in range(8):
        put(store, n, list(WORDS))
    for _ in range(2):
        for word in STEMS:
            assert len(store.text.matching([word], 10, EpisodeFilter())) == 8
    lists = store.text._lists  # type: ignore[attr-defined]
    assert len(lists._entries) == kept


# --- common words ---------------------------------------------------------------------------------------


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fulltext, "RARE_ROWS", 2)
    monkeypatch.setattr(fulltext, "COUNTED_ROWS", 1)
    monkeypatch.setattr(fulltext, "ROWS_READ_PER_LIST", 4)
    monkeypatch.setattr(filters.PassingPassages.__init__, "__defaults__", (10,))


def filled(store: Store, texts: list[list[str]]) -> Store:
    """One episode per text; every third in project `few`."""
    projects = ["few" if n % 3 == 0 else "many" for n in range(len(texts))]
    given = enumerate(zip(texts, projects, strict=True))
    store.episodes.put([(episode(f"e{n}", n, project=its), passages(" ".join(words))) for n, (words, its) in given])
    return store


@pytest.mark.usefixtures("small_limits")
@given(texts=FEW_TEXTS, asked=st.lists(st.sampled_from(STEMS), min_size=1, unique=True), k=st.integers(1, 30))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("project", [None, "few"])
@pytest.mark.parametrize(
    ("analyzer", "variant"), [("stem", Variant.TEXT), ("stem", Variant.CONTEXT), ("exact", Variant.TEXT)]
)
def test_no_passage_is_missing_while_there_is_room(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[list[str]],
    asked: list[str],
    k: int,
    project: str | None,
    analyzer: str,
    variant: Variant,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = filled(open_sqlite(folder / "a.db", folder / "index"), texts)
    where = EpisodeFilter(projects=(project,)) if project else EpisodeFilter()
    hits = store.text.matching(asked, k, where, analyzer=analyzer, variant=variant)
    store.close()
    matching = {f"e{n}" for n, words in enumerate(texts) if set(words) & set(asked) and (project is None or n % 3 == 0)}
    assert len({hit.episode_id for hit in hits}) == len(hits) == min(k, len(matching))
    assert {hit.episode_id for hit in hits} <= matching
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@pytest.mark.usefixtures("small_limits")
def test_passage_with_the_rare_word_comes_first(store: Store) -> None:
    filled(store, [["alder", "birch"]] * 9 + [["alder", "cedar"]])
    hits = store.text.matching(["alder", "cedar"], 3, EpisodeFilter(projects=("few",)))
    assert hits[0].episode_id == "e9"
    assert len(hits) == 3


@pytest.mark.usefixtures("small_limits")
def test_common_word_is_read_in_parts_by_those_who_ask(store: Store) -> None:
    filled(store, [["alder", "birch"]] * 9 + [["elm"]] * 30 + [["cedar"], ["cedar", "alder"]])

    def scores() -> list[float]:
        return [hit.score for hit in store.text.matching(["cedar", "alder"], 2, EpisodeFilter())]

    first, second, third, fourth = scores(), scores(), scores(), scores()
    assert first == second  # four of the ten passages with "alder" are read by each
    assert third[0] > second[0]
    assert third == fourth
    store.episodes.put([(episode("new"), passages("cedar alder"))])
    assert len(store.text.matching(["cedar", "alder"], 3, EpisodeFilter())) == 3


@pytest.mark.usefixtures("small_limits")
def test_search_that_sees_less_than_before_reads_no_further(store: Store, tmp_path: Path) -> None:
    filled(store, [["alder"]] * 6)
    (database,) = tmp_path.rglob("*.db")
    words, length = CommonWords(), np.ones(100, np.uint16)
    with closing(sqlite3.connect(database)) as connection:
        later, earlier = Corpus(6, 6, 1.0, length), Corpus(2, 2, 1.0, length)
        assert words.read_on(connection, "stem_index", '"alder"', later, 3) == 3
        assert words.read_on(connection, "stem_index", '"alder"', earlier, 3) == 0
        assert not words.is_known("stem_index", '"alder"')
        assert words.read_on(connection, "stem_index", '"alder"', later, 9) == 3
        assert words.is_known("stem_index", '"alder"')
