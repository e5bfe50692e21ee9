"""One call of a service that embeds, in the service's own words. Private texts never come here: see `api_pool.py`.

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
from anamnesis_pipeline.summaries.endpoints import is_loopback
from anamnesis_pipeline.summaries.refusals import error_of_status

CONNECT_TIMEOUT_S = 5.0
TIMEOUT_S: Mapping[Role, float] = {"query": 5.0, "passage": 60.0}
"""Of each step, and of the whole answer once it is asked for. A search goes on with its words when the question's
vector takes longer."""
BYTES_PER_NUMBER = 40
OTHER_BYTES = 100_000
"""Bound of an answer: numbers are written with some 20 characters, an error in fewer than these."""
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
    """What Voyage and OpenAI answer."""

    data: list[_Item]
    usage: _Usage


class _Values(BaseModel):
    values: list[float]


class _Batch(BaseModel):
    """What Gemini answers; it tells no tokens."""

    embeddings: list[_Values]


class EmbeddingApi:
    """A model of a service, behind one key. Safe to share between threads."""

    def __init__(self, model: ApiModel, key: str, url: str = "") -> None:
        """:param url: instead of the service's own, up to where its paths begin."""
        base = url or URLS[model.service]
        self._model = model
        self.name = f"{model.service} at {urlsplit(base).hostname}"
        self._client = httpx.Client(
            base_url=base, headers=_key_header(model.service, key), trust_env=not is_loopback(base),
            follow_redirects=False,
        )  # fmt: skip

    def embed(self, texts: Sequence[str], role: Role) -> tuple[NDArray[np.float32], int | None]:
        """Vectors of unit length, shape (len(texts), dim), and how many tokens they cost, where the service says so.

        :raises LlmBusy, LlmUnavailable, LlmRefused, LlmPromptRefused, LlmAnswerInvalid: see `SummaryBackend.ask`.
        :raises InvalidVectors: the answer is none, of another width, or holds what is no number.
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
        """Status, headers and body of the answer, which is as long and as late as agreed and no more."""
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


def _key_header(service: Service, key: str) -> dict[str, str]:
    return {"x-goog-api-key": key} if service == "gemini" else {"Authorization": f"Bearer {key}"}


def _question(model: ApiModel, texts: Sequence[str], role: Role) -> tuple[str, dict[str, Any]]:
    """Path and body of a call."""
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
    """At unit length: services give shortened vectors as they are.

    :raises InvalidVectors: they are too few, of another width, or hold what is no number.
    """
    if len(rows) != count or any(len(row) != model.dim for row in rows):
        raise InvalidVectors(f"{model.model_id} answers with other vectors than {count} of {model.dim} numbers")
    vectors = np.asarray(rows, dtype=np.float32).reshape(count, model.dim)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise InvalidVectors(f"{model.model_id} answers with vectors that are no numbers")
    unit: NDArray[np.float32] = vectors / lengths
    return unit
