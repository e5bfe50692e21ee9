"""A sentence-transformers cross-encoder in memory. Imports torch, which takes seconds: import it late."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from anamnesis_pipeline.embeddings.precision import Device
from anamnesis_pipeline.embeddings.transformer_model import use_one_thread
from anamnesis_pipeline.errors import UnknownModel

BATCH = 8
"""Pairs read at once, sorted by length."""


class CrossEncoderModel:
    """Reads question and passage together."""

    def __init__(self, model_id: str, folder: Path, device: Device) -> None:
        """Use one torch thread of the calling thread.

        :raises UnknownModel: the files do not load, or are no cross-encoder with one score.
        """
        use_one_thread()
        try:
            self._model = CrossEncoder(str(folder), device=device, local_files_only=True)
        except Exception as exc:
            raise UnknownModel(f"{model_id} at {folder} does not load as a cross-encoder: {exc}") from exc
        if self._model.num_labels != 1:
            raise UnknownModel(f"{model_id} has {self._model.num_labels} scores; a cross-encoder for ranking has one")

    def scores(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return how well each text answers, shape (len(texts),). What exceeds the model's window is not read.

        :raises ValueError: a score is infinite or no number.
        """
        pairs = [(question, text) for text in texts]
        scores = np.asarray(self._model.predict(pairs, batch_size=BATCH, show_progress_bar=False), dtype=np.float32)
        if not np.isfinite(scores).all():
            raise ValueError("scores that are infinite or no numbers")
        return scores
