import numpy as np
import pytest

from anamnesis_pipeline.embeddings.cores import has_gpu
from anamnesis_pipeline.embeddings.precision import choose_device, count_invalid, invalid_vectors, lowest_cosine
from anamnesis_pipeline.errors import BadSetting

GOOD = np.array([[1, 0], [0.6, 0.8]], dtype=np.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_no_numbers_are_counted(value: float) -> None:
    wrong = GOOD.copy()
    wrong[1, 0] = value
    assert count_invalid(wrong) == 1


def test_zero_is_no_direction_and_sound_vectors_pass() -> None:
    assert count_invalid(np.zeros((3, 2), dtype=np.float32)) == 3
    assert count_invalid(GOOD) == 0


def test_the_error_says_what_to_do_and_advises_no_precision_that_runs_already() -> None:
    assert "acme/m in bf16 made 1 of 2 vectors" in str(invalid_vectors("acme/m", "bf16", 1, 2))
    assert "set ANAMNESIS_PRECISION to fp32, or choose another model" in str(invalid_vectors("acme/m", "bf16", 1, 2))
    assert "ANAMNESIS_PRECISION" not in str(invalid_vectors("acme/m", "fp32", 1, 2))


def test_the_worst_row_counts_and_no_number_is_the_worst() -> None:
    assert lowest_cosine(GOOD, GOOD[::-1]) == pytest.approx(0.6)
    assert lowest_cosine(GOOD, np.full_like(GOOD, np.nan)) == -1


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_a_bad_setting_and_auto_does_without() -> None:
    with pytest.raises(BadSetting, match="shows no NVIDIA GPU; set ANAMNESIS_DEVICE to auto or cpu"):
        choose_device("cuda")
    assert choose_device("auto") == choose_device("cpu") == "cpu"
