"""What holds: topics, lessons, pinned preferences and pointers."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.knowledge.what_holds import EVERYWHERE
from anamnesis_pipeline.services.fields import Name
from anamnesis_pipeline.services.pointers import Category, PointerIn, delete_pointers, put_pointer
from anamnesis_pipeline.services.topics import PointerOut, TopicsOut, held_of, pointer_body, topics_body
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.episodes import NO_NAMES
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(tags=["topics"], responses=PROBLEMS)

IncludePrivate = Annotated[
    list[Name],
    Query(max_length=50, description="Private projects and sources to include without `project`; `*`: all"),
]


class PointersOut(TypedDict):
    """Pointers, by category and keyword."""

    items: list[PointerOut]


class DeletedPointersOut(TypedDict):
    """The ids of the pointers that were deleted."""

    deleted: list[str]


@router.get("/api/topics", response_model=TopicsOut)
def get_topics(
    *,
    services: Uses,
    project: Annotated[Name | None, Query(description="Project, also without its owner; default: all")] = None,
    name: Annotated[Name | None, Query(description="Name of one topic, for its text and history")] = None,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Return what holds of a project, or of all: topics with purpose, sources and age, lessons, pinned preferences,
    pointers. With `name`, only the topics of this name, with text and history; with `project`, its index.
    """
    held = held_of(services.store, services.engine.private(), project or "", include_private)
    here, now = services.settings.machine, datetime.now(UTC)
    return json_reply(topics_body(services.store, held, here, now, project or "", name or ""))


@router.get("/api/pointers", response_model=PointersOut)
def get_pointers(
    *,
    services: Uses,
    project: Annotated[Name | None, Query(description="Project, and what holds in all; default: all")] = None,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """List pointers: keywords for what is on some machine, at some path."""
    held = held_of(services.store, services.engine.private(), project or "", include_private)
    return json_reply({"items": [pointer_body(each) for each in held.pointers]})


@router.post("/api/pointers", response_model=PointerOut)
def post_pointer(wanted: PointerIn, services: Uses) -> Response:
    """Store a pointer, or change the fields given of the one with its keyword and category."""
    pointer = put_pointer(services.store, services.poster, wanted, services.settings.machine)
    return json_reply(pointer_body(pointer))


@router.delete("/api/pointers", response_model=DeletedPointersOut)
def remove_pointers(
    services: Uses,
    keyword: Annotated[list[Name], Query(min_length=1, max_length=100, description="Keyword; repeatable")],
    category: Annotated[Category | None, Query(description="Only of this category; default: of all")] = None,
    project: Annotated[Name, Query(description="Their project")] = EVERYWHERE,
) -> Response:
    """Delete pointers by their keywords, with all former versions."""
    return json_reply({"deleted": delete_pointers(services.store, project, keyword, category)})
