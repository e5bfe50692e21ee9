"""What every backend promises about token vectors and the projection that made them."""

import numpy as np
import pytest

from anamnesis_pipeline.errors import DimensionMismatch, SpaceConflict, SpaceNotFound
from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import TokenRows, sign_value
from anamnesis_tests.support.samples import put, random_units, space

TEXT, CONTEXT = Variant.TEXT, Variant.CONTEXT


def some_tokens(count: int, dims: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice([-1, 1], (count, dims)).astype(np.int8)


def of_passage(rows: TokenRows, key: int) -> np.ndarray:
    place = rows.passage_ids.index(key)
    ends = [*rows.starts[1:], len(rows.bits)]
    return rows.numbers(rows.starts[place], ends[place])


@pytest.mark.parametrize("dims", [4, 256, 257])
def test_the_signs_of_token_vectors_read_back(store: Store, dims: int):
    store.spaces.put(space("s", token_dims=dims))
    keys = put(store, "e", "a", "b", "c")
    written = [some_tokens(5, dims, 1), some_tokens(1, dims, 2), some_tokens(160, dims, 3)]
    assert store.vectors.put_all("s", keys, {TEXT: random_units(3, 4)}, written) == 3
    found = store.vectors.tokens("s", [*keys, 10**9])
    assert sorted(found.passage_ids) == keys
    assert (found.numbers().dtype, found.numbers().shape) == (np.int8, (166, dims))
    for key, tokens in zip(keys, written, strict=True):
        np.testing.assert_array_equal(of_passage(found, key), tokens * sign_value(dims))
    assert store.vectors.tokens("s", []).numbers().shape == (0, dims)
    assert store.vectors.token_bytes("s") == 166 * -(-dims // 8)


def test_products_with_what_is_read_come_to_the_cosine(store: Store):
    store.spaces.put(space("s", token_dims=256))
    (key,) = put(store, "e", "a")
    rows, query = random_units(400, 256), random_units(1, 256, seed=1)[0]
    near = (rows + query) / np.linalg.norm(rows + query, axis=1, keepdims=True)
    store.vectors.put_all("s", [key], {TEXT: random_units(1, 4)}, [np.sign(near).astype(np.int8)])
    found = store.vectors.tokens("s", [key]).numbers() @ query / 127
    assert np.mean(found - near @ query) == pytest.approx(0, abs=0.03)
    assert np.std(found - near @ query) < 0.05


def test_token_vectors_written_again_replace_the_old_ones(store: Store):
    store.spaces.put(space("s", token_dims=4))
    (key,) = put(store, "e", "a")
    for count in (9, 2):
        store.vectors.put_all("s", [key], {TEXT: random_units(1, 4)}, [some_tokens(count, seed=count)])
    expected = some_tokens(2, seed=2) * sign_value(4)
    np.testing.assert_array_equal(store.vectors.tokens("s", [key]).numbers(), expected)
    assert store.vectors.token_bytes("s") == 2


def test_passage_without_tokens_is_pending_where_there_are_some(store: Store):
    store.spaces.put(space("with", token_dims=4))
    store.spaces.put(space("without"))
    (key,) = put(store, "e", "a")
    for name in ("with", "without"):
        store.vectors.put(name, TEXT, [key], random_units(1, 4))
    assert store.vectors.pending_sources("with") == {"direct": 1}
    assert store.vectors.pending_sources("without") == {}
    assert store.vectors.progress("with").passages_done == 0
    assert [len(found.passages) for found in store.vectors.pending("with", ["direct"], 5)] == [1]
    store.vectors.put_all("with", [key], {}, [some_tokens(3)])
    assert store.vectors.pending_sources("with") == {}
    assert store.vectors.count("with") == 1


def test_tokens_of_another_width_are_refused_with_their_vectors(store: Store):
    store.spaces.put(space("s", token_dims=4))
    store.spaces.put(space("without"))
    (key,) = put(store, "e", "a")
    with pytest.raises(DimensionMismatch, match="4-d token vectors"):
        store.vectors.put_all("s", [key], {TEXT: random_units(1, 4)}, [some_tokens(2, dims=5)])
    with pytest.raises(DimensionMismatch, match="0-d token vectors"):
        store.vectors.put_all("without", [key], {TEXT: random_units(1, 4)}, [some_tokens(2)])
    with pytest.raises(ValueError, match="at least one"):
        store.vectors.put_all("s", [key], {TEXT: random_units(1, 4)}, [some_tokens(0)])
    assert store.vectors.get("s", TEXT, [key]) == {}
    assert store.vectors.get("without", TEXT, [key]) == {}


def test_token_vectors_of_passages_deleted_meanwhile_are_skipped(store: Store):
    store.spaces.put(space("s", token_dims=4))
    (alive,), (dead,) = put(store, "a", "text"), put(store, "b", "text")
    store.episodes.delete("b")
    store.vectors.put_all("s", [alive, dead], {TEXT: random_units(2, 4)}, [some_tokens(2), some_tokens(3)])
    assert store.vectors.tokens("s", [alive, dead]).passage_ids == (alive,)


def test_token_vectors_go_with_their_passage_and_space(store: Store):
    for name in ("s", "t"):
        store.spaces.put(space(name, token_dims=4))
    keys = [put(store, episode, "text")[0] for episode in ("a", "b")]
    for name in ("s", "t"):
        store.vectors.put_all(name, keys, {TEXT: random_units(2, 4)}, [some_tokens(2), some_tokens(2)])
    store.episodes.delete("a")
    assert store.vectors.tokens("s", keys).passage_ids == (keys[1],)
    put(store, "b", "other text")
    assert store.vectors.tokens("s", keys).passage_ids == ()
    store.spaces.drop("t")
    assert store.spaces.put(space("t", token_dims=4))
    assert store.vectors.tokens("t", keys).passage_ids == ()
    assert store.vectors.token_bytes("t") == 0


def test_a_space_without_all_token_vectors_is_not_switched_to(store: Store):
    store.spaces.put(space("old"))
    store.spaces.activate("old")
    store.spaces.put(space("new", token_dims=4))
    (key,) = put(store, "e", "a")
    store.vectors.put("new", TEXT, [key], random_units(1, 4))
    assert store.spaces.activate("new") is False
    store.vectors.put_all("new", [key], {}, [some_tokens(1)])
    assert store.spaces.activate("new") is True
    with pytest.raises(SpaceConflict):
        store.spaces.drop("new")


def test_the_first_projection_of_a_space_stays(store: Store):
    store.spaces.put(space("s", token_dims=4))
    assert store.spaces.projection("s") is None
    first, second = random_units(9, 4, seed=1), random_units(9, 4, seed=2)
    np.testing.assert_array_equal(store.spaces.keep_projection("s", first), first)
    np.testing.assert_array_equal(store.spaces.keep_projection("s", second), first)
    kept = store.spaces.projection("s")
    assert kept is not None
    assert kept.dtype == np.float32
    np.testing.assert_array_equal(kept, first)
    with pytest.raises(DimensionMismatch, match="projection"):
        store.spaces.keep_projection("s", random_units(9, 5))
    with pytest.raises(SpaceNotFound):
        store.spaces.projection("nowhere")
