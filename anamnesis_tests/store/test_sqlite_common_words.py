"""Common words in the embedded store's text search, with limits so small that a few passages reach them."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite import filters, fulltext
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.store.sqlite.word_lists import CommonWords, Corpus
from anamnesis_tests.store.samples import episode, passages

WORDS = ("alder", "birch", "cedar", "dogwood", "elm")
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=1, max_size=24)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fulltext, "RARE_ROWS", 2)
    monkeypatch.setattr(fulltext, "COUNTED_ROWS", 1)
    monkeypatch.setattr(fulltext, "ROWS_READ_PER_LIST", 4)
    monkeypatch.setattr(filters.PassingPassages.__init__, "__defaults__", (10,))


def filled(store: Store, texts: list[list[str]]) -> Store:
    """One episode per text; every third in project `few`."""
    store.episodes.put(
        [
            (episode(f"e{n}", n, project="few" if n % 3 == 0 else "many"), passages(" ".join(words)))
            for n, words in enumerate(texts)
        ]
    )
    return store


@given(texts=TEXTS, asked=st.lists(st.sampled_from(WORDS), min_size=1, max_size=5, unique=True), k=st.integers(1, 30))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("project", [None, "few"])
@pytest.mark.parametrize(
    ("analyzer", "variant"), [("stem", Variant.TEXT), ("stem", Variant.CONTEXT), ("exact", Variant.TEXT)]
)
def test_no_passage_with_an_asked_word_is_missing_while_there_is_room(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], asked: list[str], k: int, project: str | None,
    analyzer: str, variant: Variant,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("store")
    store = filled(open_sqlite(folder / "a.db", folder / "index"), texts)
    where = Where(projects=(project,)) if project else Where()
    hits = store.text.matching(asked, k, where, analyzer=analyzer, variant=variant)
    store.close()
    matching = {f"e{n}" for n, words in enumerate(texts) if set(words) & set(asked) and (project is None or n % 3 == 0)}
    assert len({hit.episode_id for hit in hits}) == len(hits) == min(k, len(matching))
    assert {hit.episode_id for hit in hits} <= matching
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_passage_with_the_rare_word_comes_before_those_with_common_ones_only(store: Store) -> None:
    filled(store, [["alder", "birch"]] * 9 + [["alder", "cedar"]])
    hits = store.text.matching(["alder", "cedar"], 3, Where(projects=("few",)))
    assert hits[0].episode_id == "e9"
    assert len(hits) == 3


def test_a_common_word_is_read_in_parts_by_the_searches_that_ask_for_it(store: Store) -> None:
    filled(store, [["alder", "birch"]] * 9 + [["elm"]] * 30 + [["cedar"], ["cedar", "alder"]])

    def scores() -> list[float]:
        return [hit.score for hit in store.text.matching(["cedar", "alder"], 2, Where())]

    first, second, third, fourth = scores(), scores(), scores(), scores()
    assert first == second  # four of the ten passages with "alder" are read by each
    assert third[0] > second[0]
    assert third == fourth
    store.episodes.put([(episode("new"), passages("cedar alder"))])
    assert len(store.text.matching(["cedar", "alder"], 3, Where())) == 3


def test_a_search_that_sees_less_than_the_one_before_it_reads_no_further(store: Store, tmp_path: Path) -> None:
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
