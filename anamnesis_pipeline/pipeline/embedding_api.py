"""Call an embedding service with its own request format. Private texts never reach this module: see `api_pool.py`.

https://docs.voyageai.com/reference/embeddings-api, https://platform.openai.com/docs/api-reference/embeddings,
https://ai.google.dev/api/embeddings (`batchEmbedContents`).
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from anamnesis_pipeline.embeddings.api_models import ApiModel, Service
from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.errors import AnamnesisError, InvalidVectors, LlmUnavailable
from anamnesis_pipeline.llm.endpoints import is_loopback
from anamnesis_pipeline.llm.refusals import error_of_status

CONNECT_TIMEOUT_S = 5.0
TIMEOUT_S: Mapping[Role, float] = {"query": 5.0, "passage": 60.0}
"""Limit of each step, and of the whole answer. A search continues with words only when the query's vector is late."""
BYTES_PER_NUMBER = 40
OTHER_BYTES = 100_000
"""Size limit of an answer: numbers take about 20 characters each, an error fewer than these."""
URLS: Mapping[Service, str] = {
    "voyage": "https://api.voyageai.com/v1",
    "openai": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
}
_VOYAGE_TYPES: Mapping[Role, str] = {"query": "query", "passage": "document"}
_GEMINI_TYPES: Mapping[Role, str] = {"query": "RETRIEVAL_QUERY", "passage": "RETRIEVAL_DOCUMENT"}


class _Item(BaseModel):
    index: int
    embedding: list[float]


class _Usage(BaseModel):
    total_tokens: int


class _Listed(BaseModel):
    """Response of Voyage and OpenAI."""

    data: list[_Item]
    usage: _Usage


class _Values(BaseModel):
    values: list[float]


class _Batch(BaseModel):
    """Response of Gemini; it does not count tokens."""

    embeddings: list[_Values]


class EmbeddingApi:
    """A service's model, used with one key. Safe to share between threads."""

    def __init__(self, model: ApiModel, key: str, url: str = "") -> None:
        """:param url: replaces the service's base URL."""
        base = url or URLS[model.service]
        self._model = model
        self.name = f"{model.service} at {urlsplit(base).hostname}"
        self._client = httpx.Client(
            base_url=base,
            headers={"x-goog-api-key": key} if model.service == "gemini" else {"Authorization": f"Bearer {key}"},
            trust_env=not is_loopback(base),
            follow_redirects=False,
        )

    def embed(self, texts: Sequence[str], role: Role) -> tuple[NDArray[np.float32], int | None]:
        """Return vectors of unit length, shape (len(texts), dim), and the tokens used, if the service reports them.

        :raises LlmBusy, LlmUnavailable, LlmRefused, LlmPromptRefused, LlmAnswerInvalid: see `Provider.ask`.
        :raises InvalidVectors: the answer has no vectors, another width, or values that are no numbers.
        """
        path, body = _question(self._model, texts, role)
        most = len(texts) * self._model.dim * BYTES_PER_NUMBER + OTHER_BYTES
        status, headers, content = self._post(path, body, TIMEOUT_S[role], most)
        if status != 200:
            raise self._refused(status, headers, content)
        rows, tokens = self._read(content)
        return _unit(rows, len(texts), self._model), tokens

    def _post(
        self, path: str, body: dict[str, Any], timeout_s: float, most_bytes: int
    ) -> tuple[int, httpx.Headers, bytes]:
        """Return status, headers and body of the answer, within the limits of time and size."""
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        deadline = time.monotonic() + timeout_s
        content = bytearray()
        try:
            with self._client.stream("POST", path, json=body, timeout=timeout) as reply:
                for piece in reply.iter_bytes():
                    content += piece
                    if len(content) > most_bytes:
                        raise InvalidVectors(f"{self.name} sent more than {most_bytes:,} bytes; check its URL")
                    if time.monotonic() > deadline:
                        raise LlmUnavailable(f"{self.name} took longer than {timeout_s:.0f} s; try again later")
        except httpx.HTTPError as exc:
            raise LlmUnavailable(f"{self.name} does not answer ({type(exc).__name__}); try again later") from None
        return reply.status_code, reply.headers, bytes(content)

    def close(self) -> None:
        """Free connections."""
        self._client.close()

    def _refused(self, status: int, headers: httpx.Headers, content: bytes) -> AnamnesisError:
        try:
            error = json.loads(content).get("error")
        except (ValueError, AttributeError):
            error = None
        said = error if isinstance(error, dict) else {}
        codes = (said.get("type"), said.get("code"), said.get("status"))
        return error_of_status(self.name, status, codes, headers, str(said.get("message", "")))

    def _read(self, content: bytes) -> tuple[list[list[float]], int | None]:
        try:
            if self._model.service == "gemini":
                return [each.values for each in _Batch.model_validate_json(content).embeddings], None
            listed = _Listed.model_validate_json(content)
        except ValidationError:
            raise InvalidVectors(f"{self.name} answers with something else than embeddings; check its URL") from None
        ordered = sorted(listed.data, key=lambda item: item.index)
        return [item.embedding for item in ordered], listed.usage.total_tokens


def _question(model: ApiModel, texts: Sequence[str], role: Role) -> tuple[str, dict[str, Any]]:
    """Return path and body of a call."""
    match model.service:
        case "voyage":
            kind = {"input_type": _VOYAGE_TYPES[role], "output_dimension": model.dim}
            return "embeddings", {"model": model.model_id, "input": list(texts), **kind}
        case "openai":
            asked = {"dimensions": model.dim, "encoding_format": "float"}
            return "embeddings", {"model": model.model_id, "input": list(texts), **asked}
        case "gemini":
            name = f"models/{model.model_id}"
            each = {"model": name, "taskType": _GEMINI_TYPES[role], "outputDimensionality": model.dim}
            requests = [{**each, "content": {"parts": [{"text": text}]}} for text in texts]
            return f"{name}:batchEmbedContents", {"requests": requests}


def _unit(rows: Sequence[Sequence[float]], count: int, model: ApiModel) -> NDArray[np.float32]:
    """Scale vectors to unit length: services return shortened vectors unscaled.

    :raises InvalidVectors: their number or width is wrong, or they hold values that are no numbers.
    """
    if len(rows) != count or any(len(row) != model.dim for row in rows):
        raise InvalidVectors(f"{model.model_id} answers with other vectors than {count} of {model.dim} numbers")
    vectors = np.asarray(rows, dtype=np.float32).reshape(count, model.dim)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise InvalidVectors(f"{model.model_id} answers with vectors that are no numbers")
    unit: NDArray[np.float32] = vectors / lengths
    return unit
