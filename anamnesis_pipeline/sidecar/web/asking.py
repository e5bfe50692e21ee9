"""Query parameters of pages. Empty form fields are ignored."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import QueryParams

from anamnesis_pipeline.model import CHAT_ANSWER, EpisodeFilter
from anamnesis_pipeline.search.project_labels import ALL, Private
from anamnesis_pipeline.services.exporting import Format
from anamnesis_pipeline.services.fields import Kind, Name, Tag, Time
from anamnesis_pipeline.services.schemas import SearchIn, TypeName
from anamnesis_pipeline.sidecar.problems import sentence_of
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.memory_layers import LASTING_KINDS, Layer
from anamnesis_pipeline.store.values import CURSOR_PATTERN

KINDS = tuple(
    sorted({"exchange", "subagent", "compact_summary", "code", "note", "procedure", CHAT_ANSWER, *LASTING_KINDS})
)
"""Suggested kinds; others can be typed."""
STATUSES = {"active": "Current", "all": "Also superseded", "superseded": "Superseded only"}
LAYERS = {layer.value: layer.value.capitalize() for layer in Layer}
NAMES_OFFERED = 300
TOP_K = 10


class Listed(BaseModel):
    """Filters of an episode list."""

    model_config = ConfigDict(extra="ignore")

    project: Name | None = None
    instance: Name | None = None
    kind: Kind | None = None
    type: TypeName | None = None
    tag: Tag | None = None
    layer: Layer | None = None
    session_id: Name | None = None
    since: Time | None = None
    until: Time | None = None
    status: Literal["active", "all", "superseded"] = "active"
    private: bool = False
    cursor: str | None = Field(default=None, pattern=CURSOR_PATTERN)

    def where(self) -> EpisodeFilter:
        """Return the filters for the store."""
        return EpisodeFilter(
            projects=(self.project,) if self.project else (),
            instance=self.instance,
            tags=(self.tag,) if self.tag else (),
            kinds=(self.kind,) if self.kind else (),
            types=(self.type,) if self.type else (),
            layers=(self.layer,) if self.layer else (),
            layers_at=datetime.now(UTC) if self.layer else None,
            session_id=self.session_id,
            since=self.since,
            until=self.until,
            include_superseded=self.status == "all",
            only_superseded=self.status == "superseded",
        )


class OfProject(BaseModel):
    """Filters of a page on what holds of a project."""

    model_config = ConfigDict(extra="ignore")

    project: Name = ""
    private: bool = False

    @property
    def included(self) -> list[str]:
        """Return the private projects and sources to include."""
        return [ALL] if self.private else []


_Fields = TypeVar("_Fields", bound=BaseModel)


def read_or_told(fields: type[_Fields], given: Mapping[str, str]) -> tuple[_Fields, str | None]:
    """Parse the filters of a page. With an invalid one return the defaults, and the problem to show."""
    try:
        return fields.model_validate(given), None
    except ValidationError as exc:
        return fields(), told(invalid(exc))


def filled(asked: QueryParams | Mapping[str, str]) -> dict[str, str]:
    """Return the fields with a value; the last of each name counts."""
    return {name: value.strip() for name, value in asked.items() if value.strip()}


def read_list(asked: QueryParams | Mapping[str, str]) -> Listed:
    """Parse the filters of a list.

    :raises RequestValidationError: a field is invalid.
    """
    try:
        return Listed.model_validate(filled(asked))
    except ValidationError as exc:
        raise invalid(exc) from None


def read_question(asked: Mapping[str, str]) -> SearchIn:
    """Parse the search form, with the rules of the JSON API.

    :raises RequestValidationError: a field is invalid.
    """
    given: dict[str, Any] = {
        name: asked[name] for name in ("mode", "project", "instance", "since", "until", "profile") if name in asked
    }
    given |= {
        "query": asked["q"],
        "top_k": asked.get("top", TOP_K),
        "tags": [tag.strip() for tag in asked.get("tags", "").split(",") if tag.strip()],
        "kind": [asked["kind"]] if "kind" in asked else [],
        "layer": [asked["layer"]] if "layer" in asked else [],
        "include_superseded": "superseded" in asked,
        "include_private": ["*"] if "private" in asked else [],
        "explain": "explain" in asked,
        "track": "explain" not in asked,
    }
    try:
        given["top_k"] = int(given["top_k"])
        return SearchIn.model_validate(given)
    except ValidationError as exc:
        raise invalid(exc) from None
    except ValueError:
        raise RequestValidationError(
            [{"type": "int_parsing", "loc": ("query", "top"), "msg": "should be a number of 1 to 100"}]
        ) from None


def export_address(listed: Listed, filters: Mapping[str, str], format: Format) -> str:
    """Return the address from which the listed episodes are downloaded, on all pages of the list.

    :param filters: those of the list's own address.
    """
    asked = {name: value for name, value in filters.items() if name not in ("status", "private")}
    asked |= {"include_superseded": "true"} if listed.status == "all" else {}
    asked |= {"only_superseded": "true"} if listed.status == "superseded" else {}
    asked |= {"include_private": ALL} if listed.private else {}
    return address_with("/api/export", {"format": format, **asked})


def invalid(exc: ValidationError) -> RequestValidationError:
    """Convert the error for the request handlers."""
    return RequestValidationError([{**error, "loc": ("query", *error["loc"])} for error in exc.errors()])


def told(exc: RequestValidationError) -> str:
    """Describe the error for the user of the form."""
    return f"Not understood: {sentence_of(exc)}"


def address_with(path: str, asked: Mapping[str, str], **changes: str | None) -> str:
    """Return the URL with some fields changed; None removes one."""
    fields = {**asked, **changes}
    query = urlencode({name: value for name, value in fields.items() if value is not None})
    return f"{path}?{query}" if query else path


def names_offered(services: Services, asked: Collection[str] = ()) -> dict[str, list[str] | tuple[str, ...]]:
    """Return suggestions for the filter fields: private names only if `private` is requested."""
    private = Private() if "private" in asked else services.engine.private()
    sources = (source for source in services.store.files.sources() if source.key not in private.keys)
    return {
        "projects": [name for name in private.open_projects(services.store) if name][:NAMES_OFFERED],
        "instances": sorted({source.machine for source in sources if source.machine})[:NAMES_OFFERED],
        "kinds": KINDS,
    }
