from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.errors import RerankerSlow
from anamnesis_pipeline.search import engine
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.profiles import PROFILES
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_tests.support.searched_memory import Memory, embed_query

QUESTION = "zeppelin hangar door"


class Shortest:
    """Shorter texts answer better. `asked`: the number of texts in each call."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        assert question == QUESTION
        self.asked.append(len(texts))
        return -np.array([len(text) for text in texts], dtype=np.float32)


@pytest.fixture
def filled(memory: Memory) -> Memory:
    memory.add("zeppelin hangar door")
    memory.add("zeppelin door", timestamp=memory.store.episodes.heads(["e001"])["e001"].timestamp)
    memory.add("zeppelin")
    return memory


def _ids(made: Engine, **more: object) -> list[str]:
    query = SearchQuery(QUESTION, min_score=0, fold=False, **more)  # type: ignore[arg-type]
    return [hit.episode.episode_id for hit in made.search(query).hits]


def test_first_hits_are_in_the_order_of_the_cross_encoder(filled: Memory) -> None:
    shortest = Shortest()
    made = Engine(filled.store, embed_query, rerank=shortest)
    plain = filled.engine.search(SearchQuery(QUESTION, min_score=0, fold=False))
    assert plain.hits[0].episode.episode_id == "e001"
    answer = made.search(SearchQuery(QUESTION, min_score=0, fold=False, explain=True))
    assert [hit.episode.episode_id for hit in answer.hits] == ["e003", "e002", "e001"]
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    assert answer.hits[0].explanation is not None
    assert answer.hits[0].explanation["stages"]["rerank"] == -len("zeppelin")
    assert answer.degraded == []


def test_only_the_first_are_read_and_each_once(filled: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RERANK_DEPTH", 2)
    shortest = Shortest()
    made = Engine(filled.store, embed_query, rerank=shortest)
    assert _ids(made)[-1] == _ids(filled.engine)[-1]
    assert shortest.asked == [2]


@pytest.mark.parametrize("profile", ["context", "plain"])
def test_context_and_the_plain_lists_are_not_reranked(filled: Memory, profile: str) -> None:
    shortest = Shortest()
    made = Engine(filled.store, embed_query, rerank=shortest)
    _ids(made, profile=PROFILES[profile])
    _ids(made, mode=Mode.EXACT)
    assert shortest.asked == []


def test_without_the_cross_encoder_the_search_answers_and_says_so(filled: Memory) -> None:
    def slow(question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        raise RerankerSlow("made takes longer than 2 s")

    answer = Engine(filled.store, embed_query, rerank=slow).search(SearchQuery(QUESTION, min_score=0, fold=False))
    assert [hit.episode.episode_id for hit in answer.hits] == _ids(filled.engine)
    assert answer.degraded == ["rerank: made takes longer than 2 s"]
