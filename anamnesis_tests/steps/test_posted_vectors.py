"""Vectors of posts are made behind the answer."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.errors import RetryLater
from anamnesis_pipeline.model import Space, StoredPassage, Variant, Where
from anamnesis_pipeline.steps import posted_vectors
from anamnesis_pipeline.steps.posted_vectors import PostedVectors
from anamnesis_pipeline.steps.posting import EpisodeDraft, Poster
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.wiring import open_pieces
from anamnesis_tests.store.samples import put, space, unit

WAIT_S = 60


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a model that is held."""
    monkeypatch.setattr(posted_vectors, "WAIT_S", 0.0)


class Model:
    """Embeds once it is let; notes how many texts came at once."""

    model_id, dim = "model of s", 4

    def __init__(self) -> None:
        self.may_go_on, self.calls = threading.Event(), list[int]()
        self.problems: list[Exception] = []

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        return self.embed_with_tokens(texts, role).vectors

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        assert self.may_go_on.wait(WAIT_S)
        self.calls.append(len(texts))
        if self.problems:
            raise self.problems.pop(0)
        return Embedded(np.stack([unit(1.0, len(text), 0.0, 0.0) for text in texts]), None)


@contextmanager
def working(store: Store, model: Model) -> Iterator[PostedVectors]:
    store.spaces.put(space("s"))
    store.spaces.activate("s")
    vectors = PostedVectors(store, lambda active: (active, model))
    try:
        yield vectors
    finally:
        model.may_go_on.set()
        vectors.close()


def searched(store: Store) -> Space:
    active = store.spaces.active()
    assert active is not None
    return active


def stored(store: Store, *texts: str) -> list[StoredPassage]:
    put(store, texts[0], *texts)
    return store.episodes.passages_of(texts[0])


def test_post_is_found_by_words_while_its_vector_is_made(store: Store) -> None:
    model = Model()
    with working(store, model) as vectors:
        poster = Poster(store, lambda text: (text, Counter()), open_pieces(), vectors.add)
        posted, created = poster.create(EpisodeDraft("the zeppelin landed", "main", "acme"))
        assert created
        assert [hit.episode_id for hit in store.text.matching(["zeppelin"], 5, Where())] == [posted.episode_id]
        assert store.vectors.pending_sources("s") == {"direct": 1}
        model.may_go_on.set()
        assert vectors.wait(WAIT_S)
        assert store.vectors.pending_sources("s") == {}


def test_post_is_answered_with_its_vector_where_that_comes_soon(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posted_vectors, "WAIT_S", WAIT_S)
    model = Model()
    model.may_go_on.set()
    with working(store, model) as vectors:
        vectors.add(stored(store, "text"), searched(store))
        assert store.vectors.pending_sources("s") == {}


def test_posts_that_wait_are_embedded_together(store: Store) -> None:
    model = Model()
    with working(store, model) as vectors:
        for number in range(40):
            vectors.add(stored(store, f"text {number} of many" + "." * number), searched(store))
        model.may_go_on.set()
        assert vectors.wait(WAIT_S)
        assert store.vectors.pending_sources("s") == {}
        assert len(model.calls) <= 4


def test_deleted_or_embedded_passage_is_not_embedded_again(store: Store) -> None:
    model = Model()
    with working(store, model) as vectors:
        first = stored(store, "holds the worker")
        gone, done = stored(store, "is deleted"), stored(store, "is embedded meanwhile")
        for passages in (first, gone, done):
            vectors.add(passages, searched(store))
        store.episodes.delete("is deleted")
        store.vectors.put("s", Variant.TEXT, [done[0].passage_id], unit(0.0, 0.0, 0.0, 1.0)[None])
        model.may_go_on.set()
        assert vectors.wait(WAIT_S)
        assert sum(model.calls) <= 3
        kept = store.vectors.get("s", Variant.TEXT, [done[0].passage_id, gone[0].passage_id])
        assert list(kept) == [done[0].passage_id]
        assert store.vectors.pending_sources("s") == {}


@pytest.mark.parametrize("problem", [RetryLater("the model is loading"), ValueError("a defect")])
def test_posts_after_one_that_fails_are_embedded(store: Store, problem: Exception) -> None:
    model = Model()
    model.problems.append(problem)
    model.may_go_on.set()
    with working(store, model) as vectors:
        vectors.add(stored(store, "fails"), searched(store))
        assert vectors.wait(WAIT_S)
        vectors.add(stored(store, "succeeds"), searched(store))
        assert vectors.wait(WAIT_S)
        assert store.vectors.pending_sources("s") == {"direct": 1}, "the pipeline finds it"


def test_what_is_too_much_is_left_to_the_pipeline(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posted_vectors, "MAX_WAITING", 3)
    model = Model()
    with working(store, model) as vectors:
        for number in range(9):
            vectors.add(stored(store, f"text {number}"), searched(store))
        model.may_go_on.set()
        assert vectors.wait(WAIT_S)
        assert 2 <= store.vectors.pending_sources("s")["direct"] <= 6
