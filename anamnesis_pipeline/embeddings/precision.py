"""Check that a model's vectors are sound and near those of fp32, and choose its device. Never imports torch."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.cores import has_gpu
from anamnesis_pipeline.errors import BadSetting, InvalidVectors

Device = Literal["cpu", "cuda"]

MIN_FIDELITY = 0.998
"""Lowest cosine to fp32 allowed for another precision on any of SAMPLES."""
SAMPLES = (
    "ok",
    "Why did the webhook retries charge customers twice?",
    "We moved the job queue to Postgres because Redis lost jobs on restart; see docs/decisions/0003-queue.md.",
    "def pay(order: Order) -> Receipt:\n    if order.paid:\n        raise AlreadyPaid(order)\n    return charge(order)",
    'Traceback (most recent call last):\n  File "app.py", line 7, in <module>\nOperationalError: database is locked',
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; 日本語のテキスト, еще немного текста 👩‍💻",
    '{"level": "error", "ts": "2026-03-14T09:26:53Z", "code": 0, "path": ["a", "b"], "retry_after_ms": 1500}',
    "0123456789abcdef" * 12,
    "The deploy failed again. " * 30,
    "Plan: first measure, then change one thing, then measure again and write down both figures. " * 6,
)
"""Short and long, prose, code, logs, other scripts and noise: an inadequate precision fails on some of these."""


def choose_device(wanted: str) -> Device:
    """Return the device of a model. `auto` uses a GPU if there is one.

    :raises BadSetting: `cuda` is set and there is none.
    """
    if wanted == "cuda" and not has_gpu():
        raise BadSetting("device = 'cuda', but this machine shows no NVIDIA GPU; set ANAMNESIS_DEVICE to auto or cpu")
    return "cpu" if wanted == "cpu" or not has_gpu() else "cuda"


def lowest_cosine(vectors: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return the lowest cosine of the rows of two matrices of unit vectors; -1 if some are NaN."""
    cosines = np.einsum("ij,ij->i", vectors, reference)
    return float(cosines.min()) if np.isfinite(cosines).all() else -1.0


def count_invalid(vectors: NDArray[np.float32]) -> int:
    """Return the number of rows without a direction: not finite, or zero."""
    norms = np.linalg.norm(vectors, axis=1)
    return int(np.count_nonzero(~np.isfinite(norms) | (norms == 0)))


def invalid_vectors(model_id: str, precision: str, wrong: int, count: int) -> InvalidVectors:
    """Return the error of a batch of `count` vectors with `wrong` invalid ones, with advice."""
    other = "set ANAMNESIS_PRECISION to fp32, or " if precision != "fp32" else ""
    return InvalidVectors(
        f"{model_id} in {precision} made {wrong} of {count} vectors that are infinite, no numbers or zero, and none "
        f"was kept; {other}choose another model with: anamnesis model use"
    )


def measure_fidelity(
    embed: Callable[[Sequence[str]], NDArray[np.float32]], reference: Callable[[Sequence[str]], NDArray[np.float32]]
) -> float:
    """Return the lowest cosine between the vectors of two forms of a model for SAMPLES, each as one batch."""
    return lowest_cosine(embed(SAMPLES), reference(SAMPLES))
