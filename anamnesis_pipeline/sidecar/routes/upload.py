"""Uploaded documents: files, texts and web pages."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import anyio
from fastapi import APIRouter, Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.errors import PageRefused
from anamnesis_pipeline.search.project_labels import PRIVATE
from anamnesis_pipeline.services.fields import TEXT_PATTERN, WORDED_PATTERN, Name, Tags, Time
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.uploads import Handed, Upload, Uploads
from anamnesis_pipeline.services.wiring import effective_settings, open_forgetter, open_uploads
from anamnesis_pipeline.sidecar.background import trim
from anamnesis_pipeline.sidecar.documentation import PROBLEMS, UPLOAD_PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.episodes import NO_NAMES, Limit
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.upload_body import read_form
from anamnesis_pipeline.sources.web import Page

router = APIRouter(tags=["uploads"], responses=PROBLEMS | UPLOAD_PROBLEMS)

UPLOADS_AT_ONCE = 2
"""Each may hold 50 MiB, and what is made of it."""
MAX_SECONDS = 300.0
"""In which the body is to arrive."""
_STRICT = ConfigDict(extra="forbid", strict=True)
Model = TypeVar("Model", bound=BaseModel)
UploadId = Annotated[str, Path(max_length=200, pattern=TEXT_PATTERN)]


class UploadFields(BaseModel):
    """What may be said of a document. `title` stands instead of its name."""

    model_config = _STRICT

    project: Annotated[Name | None, Field(description="Project of the document; default: none")] = None
    instance: Annotated[Name | None, Field(description="Instance of the document; default: none")] = None
    tags: Annotated[Tags, Field(description="Tags to filter by")] = []
    title: Annotated[Name | None, Field(description="Title; default: the file name")] = None
    timestamp: Annotated[Time | None, Field(description="Default: now")] = None


class FileFields(UploadFields):
    """Of a file of the machine that sends it also where it lies there: rules by path are asked about it."""

    path: Annotated[
        str | None,
        Field(
            max_length=4_096,
            pattern=WORDED_PATTERN,
            description="Absolute path on `instance`, which rules by path apply to; not stored",
        ),
    ] = None


class TextIn(FileFields):
    """A text as a document; the ending of `filename` says how it is read."""

    text: Annotated[str, Field(pattern=TEXT_PATTERN, description="Text of the document")]
    filename: Annotated[
        str, Field(max_length=200, pattern=WORDED_PATTERN, description="File name; its ending is the format")
    ] = "text.md"


class UrlIn(UploadFields):
    """A page of the public web: HTML, PDF or text."""

    url: Annotated[str, Field(max_length=2_000, pattern=WORDED_PATTERN, description="Address of the page")]


class UploadOut(TypedDict):
    """An upload. `duplicate`: the very same bytes were there, and only got the project, instance, tags and title
    named now; of a private project that was not named, nothing else is reported. `note`: why nothing of it can be
    found, or not all of it.
    """

    upload_id: str
    episode_ids: list[str]
    sections: int
    duplicate: bool
    filename: str
    bytes: int
    project: str
    instance: str
    tags: list[str]
    title: str
    url: str
    note: str
    uploaded_at: str


class UploadsOut(TypedDict):
    """The newest first; `next_skip` is null on the last page."""

    items: list[UploadOut]
    next_skip: int | None


UPLOAD_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": TextIn.model_json_schema()},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "The document"},
                        **FileFields.model_json_schema()["properties"],
                    },
                }
            },
        },
    }
}
"""The routes read this body themselves, piece by piece."""

_REPLIES: dict[str, Any] = {
    "response_model": UploadOut,
    "status_code": 201,
    "responses": {200: {"model": UploadOut, "description": "The very same was there"}},
}


@router.post("/api/uploads", **_REPLIES, openapi_extra=UPLOAD_BODY)
@router.post("/api/episodes/upload", **_REPLIES, openapi_extra=UPLOAD_BODY)
async def upload(request: Request, services: Uses) -> Response:
    """Store the text of one document of at most 50 MiB, sent as a form with a `file` or as JSON with a `text`; secrets
    are masked. 201 if new. 200 if the same bytes were stored: project, instance, tags and title are updated. 409 if a
    rule keeps it out. The next search finds it by its words; `note` says why nothing of it can be found.
    """
    with _place(request):
        handed = await _read(request)
        return await run_in_threadpool(_take, services, handed)


@router.post("/api/episodes/ingest-url", **_REPLIES)
async def ingest_url(body: UrlIn, request: Request, services: Uses) -> Response:
    """Fetch a public web page (HTML, PDF, text) of at most 10 MiB, in 30 seconds and 5 redirects, and store it as an
    upload. Addresses of this machine and its networks are refused, also those that a name or a redirect leads to.
    """
    if effective_settings(services.store).local_only:
        raise PageRefused("ANAMNESIS_LOCAL_ONLY is set: no page is fetched")
    with _place(request):
        page: Page = await request.app.state.fetch_page(body.url)
        name = PurePosixPath(urlsplit(page.url).path).stem or urlsplit(page.url).hostname or "page"
        handed = _handed(body, name.replace(".", "-") + page.suffix, page.data, url=page.url)
        return await run_in_threadpool(_take, services, handed)


@router.get("/api/uploads", response_model=UploadsOut)
def list_uploads(
    services: Uses,
    limit: Limit = 20,
    skip: Annotated[int, Query(ge=0, le=1_000_000, description="Uploads to skip")] = 0,
    include_private: Annotated[
        list[Name], Query(max_length=50, description="Private projects to include; `*`: all")
    ] = NO_NAMES,
) -> Response:
    """List uploads, newest first; of private projects only with `include_private`."""
    private = services.engine.private()
    found = [each for each in uploads_of(services).listed() if not private.withholds(each.project, include_private)]
    following = skip + limit if len(found) > skip + limit else None
    return json_reply({"items": [_body(each) for each in found[skip : skip + limit]], "next_skip": following})


@router.delete("/api/uploads/{upload_id}", status_code=204)
def delete_upload(upload_id: UploadId, services: Uses) -> Response:
    """Remove an upload for good, with everything made of it; it can be uploaded again."""
    if not forget_upload(services, upload_id):
        raise HTTPException(404, "no upload has this id")
    return Response(status_code=204)


def forget_upload(services: Services, upload_id: str) -> bool:
    """Forget an upload for good, with everything made of it; False when there is none of that id."""
    settings = effective_settings(services.store)
    return uploads_of(services).forget(upload_id, open_forgetter(settings, services.store))


@contextmanager
def _place(request: Request) -> Iterator[None]:
    """One of the few places for documents under way."""
    limiter: anyio.CapacityLimiter = request.app.state.uploads
    who = object()
    try:
        limiter.acquire_on_behalf_of_nowait(who)
    except anyio.WouldBlock:
        raise HTTPException(429, "too many documents at once; try again in a second") from None
    try:
        yield
    finally:
        limiter.release_on_behalf_of(who)


async def _read(request: Request) -> Handed:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    try:
        async with asyncio.timeout(MAX_SECONDS):
            if kind == b"multipart/form-data" and options.get(b"boundary"):
                return await _read_form(request, options[b"boundary"])
            if kind == b"application/json":
                body = await request.body()
                return await run_in_threadpool(_read_json, body)
    except TimeoutError:
        raise HTTPException(408, f"the body was not there within {MAX_SECONDS:.0f} seconds") from None
    raise HTTPException(400, "send a form (multipart/form-data) with a file, or JSON with a text")


async def _read_form(request: Request, boundary: bytes) -> Handed:
    form = await read_form(request, boundary)
    if form.file is None:
        raise HTTPException(400, "the form has no file")
    name, media_type, data = form.file
    filename = form.fields.pop("filename", "") or name
    return _handed(_valid(FileFields, form.fields), filename, data, media_type=media_type)


def _read_json(body: bytes) -> Handed:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON") from None
    given = _valid(TextIn, parsed)
    return _handed(given, given.filename, given.text.encode("utf-8", "replace"), media_type="text/markdown")


def _valid(model: type[Model], fields: Any) -> Model:
    try:
        return model.model_validate(fields)
    except ValidationError as exc:
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in exc.errors()]) from None


def _handed(fields: UploadFields, filename: str, data: bytes, *, media_type: str = "", url: str = "") -> Handed:
    return Handed(
        filename,
        data,
        media_type,
        fields.project or "",
        tuple(fields.tags),
        fields.title or "",
        fields.timestamp,
        url,
        fields.instance or "",
        path=(fields.path or "") if isinstance(fields, FileFields) else "",
        machine=fields.instance or "",
    )


def _take(services: Services, handed: Handed) -> Response:
    uploads = uploads_of(services)
    try:
        taken = uploads.take(handed)
    finally:
        trim()  # gigabytes after a hostile document
    if taken.duplicate and not handed.project and services.engine.private().is_of(taken.project):
        taken = replace(
            taken,
            filename=handed.filename,
            project=PRIVATE,
            instance=handed.instance,
            tags=handed.tags,
            title=handed.title,
            url=handed.url,
            note="",
        )
    return json_reply(_body(taken), 200 if taken.duplicate else 201)


def uploads_of(services: Services) -> Uploads:
    """What takes uploads in, lists and forgets them."""
    return open_uploads(effective_settings(services.store), services.store, services.poster.embed)


def _body(upload: Upload) -> UploadOut:
    fields: Callable[..., UploadOut] = UploadOut
    return fields(
        **asdict(upload)
        | {
            "episode_ids": list(upload.episode_ids),
            "sections": len(upload.episode_ids),
            "tags": list(upload.tags),
            "uploaded_at": utc_text(upload.uploaded_at),
        }
    )
