"""What is configured of the crawler: interval, folders as plain lists, and by which patterns documents get tags."""

from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.parsing.documents.trust import MAX_PATTERN_CHARS, MAX_TAG_CHARS, TagPattern
from anamnesis_pipeline.pipeline.source_specs import (
    MAX_SPECS,
    Host,
    Root,
    RootPath,
    specs_with_roots,
    stored_specs,
)
from anamnesis_pipeline.pipeline.tag_patterns import MAX_PATTERNS, put_patterns, stored_patterns
from anamnesis_pipeline.services.crawler_control import CrawlerControl
from anamnesis_pipeline.services.fields import WHOLE
from anamnesis_pipeline.services.wiring import stored_settings
from anamnesis_pipeline.settings import limits_of, origins, words_of
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.crawler import Control
from anamnesis_pipeline.sidecar.routes.embedding import refusing
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec

router = APIRouter(prefix="/api/crawler/config", tags=["sources"], responses=PROBLEMS)


class TagPatternModel(BaseModel):
    """Gives documents whose file name, or text, holds `match` the tag `tag`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    match: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_CHARS, description="Text to look for")]
    tag: Annotated[
        str, Field(min_length=1, max_length=MAX_TAG_CHARS, pattern=r"^[^\s\x00-\x1f\x7f]+$", description="Tag to add")
    ]
    field: Annotated[Literal["filename", "content"], Field(description="Where to look for it")] = "filename"
    regex: Annotated[bool, Field(description="`match` is a regular expression (RE2)")] = False
    ignorecase: Annotated[bool, Field(description="Ignore case")] = True


class TagPatterns(BaseModel):
    """All patterns; they count for documents that are parsed from then on."""

    model_config = ConfigDict(extra="forbid", strict=True)

    patterns: Annotated[list[TagPatternModel], Field(max_length=MAX_PATTERNS, description="All patterns")]


class RootModel(BaseModel):
    """A folder on a machine."""

    model_config = ConfigDict(extra="forbid", strict=True)

    root: Annotated[RootPath, Field(description="Absolute path of the folder, or one that begins with `~`")]
    host: Host = ""


class Roots(BaseModel):
    """All folders that are configured, without those of the setting `log_roots`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    roots: Annotated[list[RootModel], Field(max_length=MAX_SPECS, description="All configured folders")]


class RootsPut(Roots):
    """The same after a change. `removed`: the names of the sources that are crawled no longer; what was read of them
    stays.
    """

    removed: list[str]


class IntervalModel(BaseModel):
    """The default polling interval to store; null removes the stored value."""

    model_config = ConfigDict(extra="forbid", strict=True)

    interval_s: Annotated[Annotated[int, limits_of("crawl_interval_s"), WHOLE] | None, words_of("crawl_interval_s")]


class IntervalOut(TypedDict):
    """The interval that counts, and where it comes from. `reload`: what Dagster did, where this call changed it."""

    interval_s: int
    origin: str
    reload: NotRequired[str]


@router.get("/interval", response_model=IntervalOut)
def get_interval(services: Uses) -> Response:
    """Return the default polling interval of sources, in seconds, and its origin."""
    return _interval(services)


@router.put("/interval", response_model=IntervalOut)
def put_interval(wish: IntervalModel, services: Uses, control: Control) -> Response:
    """Store the default polling interval and reload Dagster's definitions; `reload` reports the result. Null removes
    the stored value.
    """
    with refusing("interval_s"):
        reload = control.set_interval(wish.interval_s)
    return _interval(services, reload)


def _interval(services: Services, reload: str = "") -> Response:
    row = next(row for row in origins(stored_settings(services.store)) if row.name == "crawl_interval_s")
    return json_reply({"interval_s": row.value, "origin": row.origin} | ({"reload": reload} if reload else {}))


@router.get("/jsonl-roots", response_model=Roots)
def get_log_roots(services: Uses) -> Response:
    """List the configured folders of logs on all machines. `/api/sources` lists the built-in ones too."""
    return _roots(services, LOGS)


@router.put("/jsonl-roots", response_model=RootsPut)
def put_log_roots(wish: Roots, services: Uses, control: Control) -> Response:
    """Replace the configured folders of logs. A source of such a folder keeps its name and patterns; `removed` lists
    the sources that are no longer crawled.
    """
    return _put_roots(wish, services, control, LOGS)


@router.get("/machine-roots", response_model=Roots)
def get_machine_roots(services: Uses) -> Response:
    """List the configured folders of documents on all machines."""
    return _roots(services, DOCUMENTS)


@router.put("/machine-roots", response_model=RootsPut)
def put_machine_roots(wish: Roots, services: Uses, control: Control) -> Response:
    """Replace the configured folders of documents. A source of such a folder keeps its name and patterns. Claude
    Code's own memory (`~/.claude`) stays; `DELETE /api/sources/{name}` removes it.
    """
    return _put_roots(wish, services, control, DOCUMENTS)


def _roots(services: Services, kind: str) -> Response:
    return json_reply({"roots": _roots_of(stored_specs(services.store.settings), kind)})


def _roots_of(specs: Sequence[SourceSpec], kind: str) -> list[dict[str, str]]:
    return [{"root": spec.root, "host": spec.host} for spec in specs if spec.kind == kind]


def _put_roots(wish: Roots, services: Services, control: CrawlerControl, kind: str) -> Response:
    roots = [Root(model.root, model.host) for model in wish.roots]
    before = stored_specs(services.store.settings)
    with refusing("roots"):
        control.put_all(specs_with_roots(before, kind, roots))
    after = stored_specs(services.store.settings)
    removed = sorted({spec.name for spec in before} - {spec.name for spec in after})
    return json_reply({"roots": _roots_of(after, kind), "removed": removed})


@router.get("/doc-tag-patterns", response_model=TagPatterns)
def get_tag_patterns(services: Uses) -> Response:
    """List the patterns that add tags to documents."""
    return _patterns(services)


@router.put("/doc-tag-patterns", response_model=TagPatterns)
def put_tag_patterns(wish: TagPatterns, services: Uses) -> Response:
    """Replace the patterns. They apply to documents parsed from now on; others keep their tags until they change."""
    with refusing("patterns"):
        put_patterns(services.store.settings, [TagPattern(**model.model_dump()) for model in wish.patterns])
    return _patterns(services)


def _patterns(services: Services) -> Response:
    stored = stored_patterns(services.store.settings)
    return json_reply(
        {"patterns": [TagPatternModel.model_validate(pattern, from_attributes=True).model_dump() for pattern in stored]}
    )
