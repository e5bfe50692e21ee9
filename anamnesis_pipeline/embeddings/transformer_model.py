"""A sentence-transformers model in memory. The only file that imports torch; import it late: it takes seconds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from anamnesis_pipeline.embeddings.models import ModelFiles, model_choices
from anamnesis_pipeline.errors import UnknownModel


class TransformerModel:
    """Token ids in, unit vectors out. Stateless after loading, so threads may share it."""

    def __init__(self, files: ModelFiles, precision: str) -> None:
        """:param precision: `bf16` or `fp32` (see models.choose_precision).
        :raises UnknownModel: the files do not load.
        """
        self.files = files
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            model = SentenceTransformer(str(files.path), device=self._device, local_files_only=True)
        except Exception as exc:
            raise UnknownModel(f"{files.model_id} at {files.path} does not load: {exc}. {model_choices()}") from exc
        self._model = model.to(torch.bfloat16 if precision == "bf16" else torch.float32).eval()
        self._tokenizer = model.tokenizer

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Word piece ids with special ones, cut to the model's window (passages are made to fit it)."""
        encoded = self._tokenizer(list(texts), truncation=True, max_length=self.files.window)
        return [list(ids) for ids in encoded["input_ids"]]

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Vectors of one batch, shape (len(batch), dim), unit length. Runs on the calling thread."""
        padded = self._tokenizer.pad({"input_ids": [list(ids) for ids in batch]}, return_tensors="pt")
        features: dict[str, Any] = {name: tensor.to(self._device) for name, tensor in padded.items()}
        with torch.inference_mode():
            output = self._model(features)["sentence_embedding"].float()
            unit = torch.nn.functional.normalize(output, dim=1)
        return np.ascontiguousarray(unit.cpu().numpy(), dtype=np.float32)


def use_one_thread() -> None:
    """Let the calling worker thread compute alone: N workers then use N cores, not N x N."""
    torch.set_num_threads(1)
