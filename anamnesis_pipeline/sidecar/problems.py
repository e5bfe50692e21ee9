"""Errors as RFC 9457 problem+json: the fault and the remedy; never a stack trace or the caller's values."""

import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import (
    AnamnesisError,
    DimensionMismatch,
    DocumentUnreadable,
    DocumentUnsupported,
    EmbeddingQueueFull,
    EntityConflict,
    EntityNotFound,
    EpisodeConflict,
    EpisodeNotFound,
    Excluded,
    IdAmbiguous,
    InvalidEpisode,
    InvalidVectors,
    PageRefused,
    PageUnreachable,
    ProposalConflict,
    ProposalNotFound,
    RetryLater,
    RuleRefused,
    SpaceConflict,
    SpaceNotFound,
    StoreCorrupt,
    StoreFull,
    StoreRefused,
    TooLarge,
    TopicChanged,
    TopicRefused,
    UnknownModel,
)
from anamnesis_pipeline.services.fields import FieldError, field_errors

if TYPE_CHECKING:  # it imports the pipeline, which the guard of Dagster's webserver does not need
    from anamnesis_pipeline.sidecar.admission import DiskSpace

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
SAFE_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Headers of every response: no MIME sniffing, no caching."""

# The first match counts, so subclasses come before their bases; the two branches of the tree include all.
_STATUS: tuple[tuple[type[AnamnesisError], int], ...] = (
    (EpisodeNotFound, 404),
    (EpisodeConflict, 409),
    (ProposalConflict, 409),
    (ProposalNotFound, 404),
    (EntityConflict, 409),
    (EntityNotFound, 404),
    (TopicChanged, 409),
    (TopicRefused, 422),
    (IdAmbiguous, 409),
    (SpaceNotFound, 404),
    (SpaceConflict, 409),
    (InvalidEpisode, 422),
    (Excluded, 409),
    (RuleRefused, 422),
    (TooLarge, 413),
    (DocumentUnsupported, 415),
    (DocumentUnreadable, 422),
    (PageRefused, 422),
    (PageUnreachable, 502),
    (EmbeddingQueueFull, 429),
    (RetryLater, 503),
    (StoreFull, 503),
    (StoreCorrupt, 503),
    (DimensionMismatch, 503),
    (UnknownModel, 503),
    (InvalidVectors, 503),
    (StoreRefused, 503),
)
_RETRY_AFTER_S = {429: "1", 503: "2"}


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """Return a problem+json response; 429 and 503 say when to retry."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    retry = {"Retry-After": _RETRY_AFTER_S[status]} if status in _RETRY_AFTER_S else {}
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status, {**SAFE_HEADERS, **retry, **(headers or {})}, media_type=MEDIA_TYPE)


def sentence_of(exc: RequestValidationError) -> str:
    """Describe the first wrong field, and count the others."""
    return sentence(_fields_of(exc))


def status_of(kind: type[AnamnesisError]) -> int:
    """Return the HTTP status of an error; 500 if no route expects it, and its text then stays in the log."""
    return next((status for listed, status in _STATUS if issubclass(kind, listed)), 500)


def install(app: FastAPI) -> None:
    """Turn every expected error of `app` into a problem; `observation` handles the others."""
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    for kind, _ in _STATUS:
        app.add_exception_handler(kind, _on_our_error)


async def _on_http_exception(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    headers = dict(exc.headers or {})
    if exc.status_code == 405:
        headers = {"Allow": _allowed_methods(request) or headers.get("Allow", "")}
    return problem(exc.status_code, _detail(exc), headers)


async def _on_invalid_request(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    errors = exc.errors()
    if any(error["type"] == "json_invalid" for error in errors):
        return problem(400, "the body is not JSON")
    if any(error["type"] == "missing" and tuple(error["loc"]) == ("body",) for error in errors):
        return problem(400, "a JSON body is required, with Content-Type: application/json")
    fields = _fields_of(exc)
    return problem(422, sentence(fields), errors=fields)


async def _on_our_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, AnamnesisError)
    status = noted(exc, request.app.state.room)
    if isinstance(exc, InvalidEpisode):
        return problem(status, str(exc), errors=[{"path": exc.field, "message": exc.problem}])
    return problem(status, str(exc))


def noted(exc: AnamnesisError, room: "DiskSpace") -> int:
    """Return the status of an error, after logging what a person has to mend, and recording a full store."""
    if isinstance(exc, StoreFull):
        room.refused()
    if (status := status_of(type(exc))) == 503:
        log.warning("%s: %s", type(exc).__name__, exc)
    return status


def _detail(exc: HTTPException) -> str:
    if exc.status_code == 404 and exc.detail == HTTPStatus.NOT_FOUND.phrase:
        return "no such address; /docs lists them"
    if exc.status_code == 405 and exc.detail == HTTPStatus.METHOD_NOT_ALLOWED.phrase:
        return "this address knows other methods only; see Allow"
    return str(exc.detail)


def _allowed_methods(request: Request) -> str:
    # Each method is a separate route, so the framework's own Allow would name only the first.
    template = getattr(request.scope.get("route"), "path_format", request.url.path)
    return ", ".join(sorted(method.upper() for method in request.app.openapi()["paths"].get(template, {})))


def _fields_of(exc: RequestValidationError) -> list[FieldError]:
    return field_errors({**error, "loc": error["loc"][1:]} for error in exc.errors())


def sentence(fields: Sequence[FieldError]) -> str:
    """Describe the first wrong field, and count the others."""
    first = fields[0]
    more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
    return f"{first['path'] or 'body'}: {first['message']}{more}"


def json_reply(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response. Encode in the calling thread: a long page would block the event loop."""
    content = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, status, headers, media_type="application/json")
