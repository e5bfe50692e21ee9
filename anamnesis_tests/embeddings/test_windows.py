import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.embeddings.windows import average_windows, cut_windows

LEAD, TAIL = [101], [102, 103]


@given(st.lists(st.integers(0, 99), max_size=200), st.integers(4, 40))
def test_windows_hold_every_piece_once_in_order_and_none_is_too_long(body: list[int], window: int) -> None:
    windows = cut_windows([*LEAD, *body, *TAIL], LEAD, TAIL, window)
    assert [piece for found in windows for piece in found[1:-2]] == body
    assert all(len(found) <= window and found[:1] == LEAD and found[-2:] == TAIL for found in windows)
    assert len(windows) == max(1, -(-len(body) // (window - 3)))


def test_a_window_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="a window of 3 pieces has no room beside 3 special ones"):
        cut_windows([*LEAD, 1, 2, *TAIL], LEAD, TAIL, 3)


def test_the_vector_of_a_long_text_is_the_mean_of_its_windows_by_pieces() -> None:
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
    joined = average_windows(vectors, [30, 10, 7], [2, 1])
    assert np.allclose(joined, [np.array([3, 1]) / np.sqrt(10), [0.6, 0.8]])


def test_windows_that_cancel_each_other_leave_a_zero_that_is_noticed_later() -> None:
    assert not average_windows(np.array([[1, 0], [-1, 0]], dtype=np.float32), [5, 5], [2]).any()
