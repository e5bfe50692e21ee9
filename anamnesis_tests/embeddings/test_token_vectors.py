"""Token vectors: made small, made by the pool, and made by real networks in the pass that makes the text's vector."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.embeddings.token_sample import SAMPLE
from anamnesis_pipeline.embeddings.token_vectors import (
    QUIET,
    Projection,
    Rows,
    learn_projection,
    of_passage,
    of_query,
    project,
    unit_rows,
)
from anamnesis_pipeline.errors import InvalidVectors, UnknownModel
from anamnesis_pipeline.services.posting import EpisodeDraft
from anamnesis_pipeline.services.wiring import open_services
from anamnesis_pipeline.settings import load
from anamnesis_tests.support.fake_models import Gate, HashedWords, OpenPool, wait_for
from anamnesis_tests.support.hashing_embedder import HashingEmbedder, word_directions
from anamnesis_tests.support.tiny_models import as_published, loaded, saved

IDENTITY = np.eye(32, dtype=np.float32)


def random_rows(count: int, dims: int, seed: int = 0) -> Rows:
    return unit_rows(np.random.default_rng(seed).standard_normal((count, dims)).astype(np.float32))


@pytest.mark.parametrize("count", [0, 1, 9])
def test_passage_has_the_signs_of_each_token_in_a_row_at_least(count: int) -> None:
    rows = random_rows(count, 8)
    signs = of_passage(rows)
    assert (signs.dtype, signs.shape) == (np.int8, (max(1, count), 8))
    assert np.array_equal(signs[:count], np.sign(rows))


def test_passage_keeps_what_says_something_unless_nothing_does() -> None:
    rows = random_rows(4, 8)
    assert np.array_equal(of_passage(rows * np.array([[QUIET], [1], [QUIET], [1]])), np.sign(rows[[1, 3]]))
    assert np.array_equal(of_passage(rows * QUIET), np.sign(rows))


def test_tokens_of_a_query_are_as_long_as_their_shares_of_it() -> None:
    rows = of_query(random_rows(3, 8) * np.array([[1], [QUIET], [1]], np.float32))
    assert np.allclose(np.linalg.norm(rows, axis=1), np.array([1, QUIET, 1]) / (2 + QUIET), atol=1e-6)


def test_projection_keeps_the_angles_that_it_learned() -> None:
    flat = np.zeros((200, 32), np.float32)
    flat[:, 5:13] = random_rows(200, 8)
    projection = learn_projection([flat[:50], flat[50:]], 8)
    assert projection.shape == (32, 8)
    assert np.allclose(projection.T @ projection, np.eye(8), atol=1e-6)
    assert np.allclose(project(flat, projection) @ project(flat, projection).T, flat @ flat.T, atol=1e-5)
    assert np.array_equal(projection, learn_projection([flat], 8)), "the same every time"


def test_the_sample_is_varied_and_short() -> None:
    assert 200 <= len(SAMPLE) == len(set(SAMPLE))
    assert max(map(len, SAMPLE)) < 400


def test_hashed_words_have_token_vectors() -> None:
    embedder = HashingEmbedder(64, token_dims=16)
    (query,) = embedder.embed_with_tokens(["zeppelin hangar doors"], "query").tokens or []
    (passage,) = embedder.embed_with_tokens(["zeppelin hangar doors"], "passage").tokens or []
    assert (query.dtype, query.shape, passage.dtype, passage.shape) == (np.float32, (3, 16), np.int8, (3, 16))
    assert HashingEmbedder(64).embed_with_tokens(["a"], "query").tokens is None


# --- the pool ----------------------------------------------------------------------------------------------


PROJECTED: dict[str, Any] = {"projection": lambda model: IDENTITY}


@pytest.fixture
def pool(open_pool: OpenPool) -> PinnedPool:
    return open_pool(model=PROJECTED)


def test_pool_returns_both_kinds_of_vectors_in_order(pool: PinnedPool) -> None:
    texts = [f"word{n} " * (n % 7 + 1) for n in range(100)]
    made = pool.embed_with_tokens(texts, "passage")
    assert np.array_equal(made.vectors, pool.embed(texts, "passage"))
    assert made.tokens is not None
    assert [tokens.shape for tokens in made.tokens] == [(n % 7 + 1, 32) for n in range(100)]
    for n in (0, 33, 99):
        alone = pool.embed_with_tokens([texts[n]], "passage").tokens
        assert alone is not None
        assert np.array_equal(alone[0], made.tokens[n])
    assert pool.embed_with_tokens([], "passage").tokens == []


def test_query_keeps_every_token_but_those_of_the_prefix(pool: PinnedPool) -> None:
    (found,) = pool.embed_with_tokens(["zeppelin hangar doors"], "query").tokens or []
    (of_nothing,) = pool.embed_with_tokens([""], "query").tokens or []
    ids = HashedWords().token_ids(["zeppelin hangar doors"])[0]
    assert np.allclose(found, word_directions(" ".join(map(str, ids)), 32) / 3, atol=1e-6)
    assert np.array_equal(of_nothing, np.zeros((1, 32)))


def test_queries_that_wait_together_get_their_own_tokens(open_pool: OpenPool) -> None:
    gate = Gate()
    pool = open_pool(gate, model=PROJECTED)
    with ThreadPoolExecutor(4) as callers:
        first = callers.submit(pool.embed, ["hold"], "query")
        assert gate.reached.wait(60)
        plain = callers.submit(pool.embed, ["a b c"], "query")
        with_tokens = [callers.submit(pool.embed_with_tokens, ["w " * n], "query") for n in (2, 5)]
        wait_for(lambda: pool.depth == 3)
        gate.opened.set()
        # the prefix of a query has no token vectors
        counts = [len((answer.result(60).tokens or [])[0]) for answer in with_tokens]
    assert (first.result(60).shape, plain.result(60).shape, counts) == ((1, 16), (1, 16), [2, 5])


@pytest.mark.parametrize("role", ["query", "passage"])
def test_token_vectors_that_are_no_numbers_are_not_returned(open_pool: OpenPool, role: Role) -> None:
    class Broken(HashedWords):
        def forward_with_tokens(
            self, batch: Sequence[Sequence[int]], projection: Projection | None
        ) -> tuple[NDArray[np.float32], list[Rows]]:
            vectors, rows = super().forward_with_tokens(batch, projection)
            rows[-1][0, 0] = np.nan
            return vectors, rows

    with pytest.raises(InvalidVectors, match="hashed in fp32 made 1 of"):
        open_pool(load=Broken, model=PROJECTED).embed_with_tokens(["a", "b c"], role)


# --- networks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "nearest"), [("fp32", 0.9999), ("bf16", 0.99)])
def test_pieces_have_the_vectors_of_the_last_hidden_state(tmp_path: Path, precision: str, nearest: float) -> None:
    files = saved(tmp_path)
    model, published = loaded(files, precision), as_published(files.path)
    texts = ["ok", "why did webhook retries double-charge", "", "a longer text " * 9]
    vectors, rows = model.forward_with_tokens(model.token_ids(texts), None)
    assert np.array_equal(vectors, model.embed(texts))
    assert [len(found) for found in rows] == [len(ids) - 2 for ids in model.token_ids(texts)]
    for text, found in zip(texts, rows, strict=True):
        if text:
            states = published.encode(text, output_value="token_embeddings").float().cpu().numpy()
            assert float(np.sum(unit_rows(found) * unit_rows(states[1:-1]), axis=1).min()) > nearest
    assert np.allclose(np.linalg.norm(rows[3][:4], axis=1), [QUIET, 1, 1, QUIET], atol=1e-3), "a longer text a"


def test_text_of_several_windows_has_all_their_pieces_once(tmp_path: Path) -> None:
    files = saved(tmp_path)
    model = loaded(files)
    ids = model.token_ids([f"word{'x' * (n % 3)} {n} " * 300 for n in range(4)] + ["short"])
    projection = learn_projection([random_rows(90, 32)], 8)
    vectors, rows = model.forward_with_tokens(ids, projection)
    assert max(map(len, ids)) > 2 * files.window
    assert [found.shape for found in rows] == [(len(text) - 2, 8) for text in ids]
    assert np.array_equal(vectors, model.forward(ids))
    first = ids[0][: files.window - 1] + ids[0][-1:]
    assert np.allclose(rows[0][: files.window - 2], model.forward_with_tokens([first], projection)[1][0], atol=1e-4)


def test_a_model_without_vectors_of_pieces_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(saved(tmp_path))
    network = model._model.__call__
    monkeypatch.setattr(
        model, "_model", lambda features: {"sentence_embedding": network(features)["sentence_embedding"]}
    )
    with pytest.raises(UnknownModel, match="ANAMNESIS_TOKEN_VECTORS"):
        model.forward_with_tokens(model.token_ids(["a"]), None)


def test_running_system_keeps_one_projection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_MODEL", str(saved(tmp_path).path))
    projections = []
    for start in ("first", "second"):
        with closing(open_services(load())) as services:
            services.pool.load_in_background()
            wait_for(lambda pool=services.pool: pool.ready, seconds=30)
            posted, _ = services.poster.create(EpisodeDraft(f"{start} webhook retries", "mac", "acme"))
            space = services.store.spaces.active()
            assert space is not None
            ids = [held.passage_id for held in services.store.episodes.passages_of(posted.episode_id)]
            wait_for(lambda store=services.store, key=space.key: store.vectors.pending_sources(key) == {}, seconds=30)
            assert services.store.vectors.tokens(space.key, ids).numbers().shape[1] == 32
            query = services.pool.embed_query("why did webhook retries charge twice", space)
            assert query.tokens is not None
            assert query.tokens.shape[1] == 32
            projections.append(services.store.spaces.projection(space.key))
    assert np.array_equal(projections[0], projections[1])
