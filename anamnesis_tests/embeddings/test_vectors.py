"""From texts to vectors: batches, windows, hashed words, and what is no vector."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.embeddings.batching import length_sorted_batches
from anamnesis_pipeline.embeddings.cores import has_gpu
from anamnesis_pipeline.embeddings.precision import choose_device, count_invalid, invalid_vectors, lowest_cosine
from anamnesis_pipeline.embeddings.transformer_model import average_windows, cut_windows
from anamnesis_pipeline.errors import BadSetting
from anamnesis_tests.support.hashing_embedder import HashingEmbedder

LEAD, TAIL = [101], [102, 103]
GOOD = np.array([[1, 0], [0.6, 0.8]], dtype=np.float32)


@given(st.lists(st.integers(0, 300), max_size=400), st.integers(1, 5_000), st.integers(1, 200))
def test_batches_hold_each_text_once_longest_first_in_bounds(found: list[int], tokens: int, most: int) -> None:
    batches = length_sorted_batches(found, tokens, most)
    order = [index for batch in batches for index in batch]
    assert sorted(order) == list(range(len(found)))
    assert [found[index] for index in order] == sorted(found, reverse=True)
    for batch in batches:
        assert len(batch) == 1 or found[batch[0]] * len(batch) <= tokens
        assert 1 <= len(batch) <= most


@given(st.lists(st.integers(0, 99), max_size=200), st.integers(4, 40))
def test_windows_hold_each_piece_once_and_none_is_too_long(body: list[int], window: int) -> None:
    windows = cut_windows([*LEAD, *body, *TAIL], LEAD, TAIL, window)
    assert [piece for found in windows for piece in found[1:-2]] == body
    assert all(len(found) <= window and found[:1] == LEAD and found[-2:] == TAIL for found in windows)
    assert len(windows) == max(1, -(-len(body) // (window - 3)))


def test_window_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="a window of 3 pieces has no room beside 3 special ones"):
        cut_windows([*LEAD, 1, 2, *TAIL], LEAD, TAIL, 3)


def test_long_text_has_the_mean_of_its_windows_by_pieces() -> None:
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
    joined = average_windows(vectors, [30, 10, 7], [2, 1])
    assert np.allclose(joined, [np.array([3, 1]) / np.sqrt(10), [0.6, 0.8]])
    cancelled = average_windows(np.array([[1, 0], [-1, 0]], dtype=np.float32), [5, 5], [2])
    assert not cancelled.any(), "a zero, which is noticed later"


@given(st.lists(st.text(max_size=60), max_size=5))
def test_hashed_vectors_are_unit_length_and_the_same_each_time(texts: list[str]) -> None:
    vectors = HashingEmbedder(32).embed(texts, "query")
    assert vectors.shape == (len(texts), 32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert np.array_equal(vectors, HashingEmbedder(32).embed(texts, "passage"))


def test_hashed_texts_that_share_words_are_nearer() -> None:
    near, base, far = HashingEmbedder(256).embed(
        ["webhook retries charged", "webhook retries failed", "zeppelin hangar doors"], "passage"
    )
    assert near @ base > far @ base + 0.3


@pytest.mark.parametrize(
    ("row", "invalid"), [([0, np.nan], 1), ([0, np.inf], 1), ([0, -np.inf], 1), ([0, 0], 1), ([0, 1], 0)]
)
def test_vectors_that_are_no_directions_are_counted(row: list[float], invalid: int) -> None:
    assert count_invalid(np.array([GOOD[0], row], dtype=np.float32)) == invalid


def test_error_of_invalid_vectors_says_what_to_set() -> None:
    told = str(invalid_vectors("acme/m", "bf16", 1, 2))
    assert "acme/m in bf16 made 1 of 2 vectors" in told
    assert "set ANAMNESIS_PRECISION to fp32, or choose another model" in told
    assert "ANAMNESIS_PRECISION" not in str(invalid_vectors("acme/m", "fp32", 1, 2)), "it runs in that already"


def test_worst_row_counts_and_no_number_is_the_worst() -> None:
    assert lowest_cosine(GOOD, GOOD[::-1]) == pytest.approx(0.6)
    assert lowest_cosine(GOOD, np.full_like(GOOD, np.nan)) == -1


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_missing_gpu_is_a_bad_setting_and_auto_does_without() -> None:
    with pytest.raises(BadSetting, match="shows no NVIDIA GPU; set ANAMNESIS_DEVICE to auto or cpu"):
        choose_device("cuda")
    assert choose_device("auto") == choose_device("cpu") == "cpu"
