"""Embedding models of web services, by name. Data only.

Sources: https://docs.voyageai.com/docs/embeddings, https://platform.openai.com/docs/guides/embeddings,
https://ai.google.dev/gemini-api/docs/embeddings.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anamnesis_pipeline.embeddings.models import ModelFiles

Service = Literal["voyage", "openai", "gemini"]


@dataclass(frozen=True, slots=True)
class ApiModel:
    """A model of a service. `dollars`: per million tokens; `window_chars`: longer texts are sent in pieces of a length
    within the service's token limit in any script.
    """

    model_id: str
    service: Service
    dim: int
    dollars: float
    window_chars: int = 4_000

    def files(self) -> ModelFiles:
        """Return the model in the form from which a space is made. Its weights are not public: the space is named after
        the request, and each process checks at its start that the answers are unchanged.
        """
        identity = f"{self.service}/{self.model_id}/{self.dim}"
        return ModelFiles(
            model_id=self.model_id,
            path=Path(),
            dim=self.dim,
            pooling="api",
            window=self.window_chars,
            query_prefix="",
            passage_prefix="",
            fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:8],
        )


API_MODELS = (
    ApiModel("voyage-3.5", "voyage", 1024, 0.06),
    ApiModel("voyage-3.5-lite", "voyage", 1024, 0.02),
    ApiModel("voyage-code-3", "voyage", 1024, 0.18),
    ApiModel("text-embedding-3-small", "openai", 1536, 0.02),
    ApiModel("text-embedding-3-large", "openai", 3072, 0.13),
    ApiModel("gemini-embedding-001", "gemini", 768, 0.15, window_chars=1_500),
)


def api_model(model_id: str) -> ApiModel | None:
    """Return the entry of a name; None for local models."""
    return next((known for known in API_MODELS if known.model_id == model_id), None)
