"""Episodes: post, list, fetch, edit, delete."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query
from fastapi.exceptions import RequestValidationError
from starlette.background import BackgroundTask, BackgroundTasks
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import EpisodeNotFound, InvalidEpisode
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.pipeline import publish as episodes
from anamnesis_pipeline.services.editing import BulkEditIn, BulkEditOut, bulk_edit_body
from anamnesis_pipeline.services.fields import EpisodeId, Kind, Name, Tag, Time
from anamnesis_pipeline.services.posted import posted_body, preview_body
from anamnesis_pipeline.services.rendering import episode_body
from anamnesis_pipeline.services.schemas import (
    BulkOut,
    EpisodeChanges,
    EpisodeIn,
    EpisodeOut,
    Include,
    LayerName,
    PageOut,
    PostedOut,
    TypeName,
)
from anamnesis_pipeline.services.searching import count_opened, note_reading
from anamnesis_pipeline.services.session_reading import timeline_page
from anamnesis_pipeline.services.short_ids import find_episode, short_ids
from anamnesis_pipeline.sidecar.admission import DiskSpace
from anamnesis_pipeline.sidecar.bulk import parse_bulk, post_all
from anamnesis_pipeline.sidecar.documentation import BULK_BODY, PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.store.records.statuses import EDITED, Cause
from anamnesis_pipeline.store.values import CURSOR_PATTERN

MAX_SKIP = 1_000_000
REPEATABLE = frozenset({"include", "tag", "kind", "type", "layer", "include_private", "keyword"})
NO_NAMES: list[str] = []
NO_TYPES: list[TypeName] = []
NO_LAYERS: list[LayerName] = []


async def refuse_repeated(request: Request) -> None:
    """A parameter that has one value is given once: taking the last of several would hide a mistake."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    repeated = sorted(name for name, count in counts.items() if count > 1 and name not in REPEATABLE)
    if repeated:
        problem = ValueError("is given more than once")
        raise RequestValidationError(
            [{"type": "value_error", "loc": ("query", name), "ctx": {"error": problem}} for name in repeated]
        )


router = APIRouter(prefix="/api/episodes", tags=["episodes"], responses=PROBLEMS)


OfProject = Annotated[Name | None, Query(description="Only this project; `api` also matches `acme/api`")]
OfInstance = Annotated[Name | None, Query(description="Only this instance")]
Since = Annotated[Time | None, Query(description="Start time, inclusive")]
Until = Annotated[Time | None, Query(description="End time, exclusive")]
Limit = Annotated[int, Query(ge=1, le=100, description="Max items of a page")]


async def filter_of(
    *,
    project: OfProject = None,
    instance: OfInstance = None,
    tag: Annotated[list[Tag], Query(max_length=50, description="Only with all of these tags")] = NO_NAMES,
    kind: Annotated[list[Kind], Query(max_length=50, description="Only one of these kinds")] = NO_NAMES,
    type: Annotated[list[TypeName], Query(max_length=12, description="Only what states one of these")] = NO_TYPES,
    layer: Annotated[list[LayerName], Query(max_length=5, description="Only one of these layers")] = NO_LAYERS,
    session_id: Annotated[Name | None, Query(description="Only this session")] = None,
    since: Since = None,
    until: Until = None,
    include_superseded: Annotated[bool, Query(description="Include superseded episodes")] = False,
    only_superseded: Annotated[bool, Query(description="Only superseded episodes")] = False,
) -> EpisodeFilter:
    """The filter in the query string."""
    return EpisodeFilter(
        projects=(project,) if project else (),
        instance=instance,
        tags=tuple(tag),
        kinds=tuple(kind),
        types=tuple(type),
        layers=tuple(layer),
        layers_at=datetime.now(UTC) if layer else None,
        session_id=session_id,
        since=since,
        until=until,
        include_superseded=include_superseded,
        only_superseded=only_superseded,
    )


async def filter_of_time(
    *,
    project: OfProject = None,
    instance: OfInstance = None,
    since: Since = None,
    until: Until = None,
) -> EpisodeFilter:
    """The filter of a list of sessions."""
    return EpisodeFilter(projects=(project,) if project else (), instance=instance, since=since, until=until)


Order = Annotated[Literal["newest", "oldest"], Query(description="Sort order by time")]
Includes = Annotated[
    list[Include],
    Query(default_factory=list, max_length=10, description="`raw` adds raw_exchange, `short_id` a short id"),
]
PathId = Annotated[EpisodeId, Path(description="May contain `/` and `:`")]
Filter = Annotated[EpisodeFilter, Depends(filter_of)]
IncludePrivate = Annotated[
    list[Name],
    Query(
        max_length=50,
        description="Private projects and sources to include without `project`; `*`: all. Of a session only these",
    ),
]


def short_of(services: Services, include: Collection[Include], episodes: Iterable[Episode]) -> dict[str, str]:
    """Id -> its short form, if `include` asks for those."""
    return short_ids(services.store, (each.episode_id for each in episodes)) if "short_id" in include else {}


@router.post("", response_model=PostedOut, status_code=201, responses={200: {"model": PostedOut}})
def post_episode(
    episode: EpisodeIn,
    services: Uses,
    include: Includes,
    dry_run: Annotated[bool, Query(description="Only say what would be done; nothing is stored")] = False,
) -> Response:
    """Store an episode: 201 if new, 200 if the same id has the same content, 409 if it differs. The next search finds
    it. With a `subject` it takes the place of the former statement of that subject in its project, with `replaces` that
    of the named one; both stay stored. The answer says what was done, how new it is, and what says nearly the same.
    """
    if dry_run:
        return json_reply(
            preview_body(services.store, services.engine, services.poster.preview(episode.draft()), include)
        )
    stored, created = services.poster.create(episode.draft())
    body = posted_body(
        services.store,
        services.engine.private(),
        stored,
        include,
        short_of(services, include, [stored]),
        created=created,
    )
    location = {"Location": f"/api/episodes/{quote(stored.episode_id, safe='/:')}"}
    return json_reply(body, 201 if created else 200, location)


@router.post("/bulk", response_model=BulkOut, openapi_extra=BULK_BODY)
async def post_episodes(request: Request, services: Uses) -> Response:
    """Store up to 1,000 episodes; each succeeds or fails alone."""
    if "json" not in request.headers.get("content-type", ""):
        raise HTTPException(400, "a JSON body is required, with Content-Type: application/json")
    body = await request.body()
    room: DiskSpace = request.app.state.room
    return await run_in_threadpool(lambda: json_reply(post_all(services.poster, parse_bulk(body), room)))


@router.post("/bulk/edit", response_model=BulkEditOut)
def edit_episodes(wanted: BulkEditIn, services: Uses) -> Response:
    """Tag, pin, invalidate, restore or supersede up to 1,000 episodes: those named, the hits of a search, or those that
    pass filters. Each succeeds or fails alone. It only reports what would change unless `"dry_run": false`.
    """
    return json_reply(bulk_edit_body(services.store, services.engine, services.poster, wanted))


@router.get("", response_model=PageOut)
def list_episodes(
    *,
    services: Uses,
    where: Filter,
    include: Includes,
    limit: Limit = 20,
    cursor: Annotated[str | None, Query(pattern=CURSOR_PATTERN, description="`next_cursor` of the page before")] = None,
    skip: Annotated[int, Query(ge=0, le=MAX_SKIP, description="Episodes to skip; a cursor is faster")] = 0,
    order: Order = "newest",
    by_session: Annotated[bool, Query(description="One record per session in place of its exchanges")] = False,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """List episodes by time, newest first unless `order` says otherwise, with filters and a cursor."""
    filtered = services.engine.visible(where, include_private)
    if by_session:
        page = timeline_page(services.store, filtered, limit, cursor, skip, oldest_first=order == "oldest")
    else:
        page = services.store.episodes.page(filtered, limit, cursor, skip, oldest_first=order == "oldest")
    short = short_of(services, include, page.items)
    items = [episode_body(episode, include, short) for episode in page.items]
    return json_reply({"items": items, "next_cursor": page.next_cursor})


@router.api_route("/search", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
@router.api_route("/bulk", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
@router.api_route("/bulk/edit", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
@router.api_route("/upload", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
@router.api_route("/rolling/upsert", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
@router.api_route("/ingest-url", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
@router.api_route("/{episode_id:path}/exclude", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
async def refuse_method() -> None:
    """These are addresses, not ids."""
    raise HTTPException(405)


@router.get("/{episode_id:path}", response_model=EpisodeOut)
def get_episode(episode_id: PathId, services: Uses, include: Includes) -> Response:
    """Return one episode, by its id or a unique prefix of at least 4 characters (409 if several match). `include=raw`
    adds its whole text.
    """
    episode = find_episode(services.store, episode_id)
    reply = json_reply(episode_body(episode, include, short_of(services, include, [episode])))
    reply.background = BackgroundTasks([BackgroundTask(count_opened, services.store, [episode.episode_id])])
    if "raw" in include:
        reply.background.add_task(note_reading, services.store, episode.episode_id)
    return reply


@router.patch("/{episode_id:path}", response_model=EpisodeOut)
def patch_episode(episode_id: PathId, changes: EpisodeChanges, services: Uses, include: Includes) -> Response:
    """Change some fields; the next search finds the new words. An empty body is 400. `reason` and `by` go with a change
    of `status`.
    """
    told = {name: value for name, value in changes.items() if name in {"reason", "by"}}
    fields = {name: value for name, value in changes.items() if name not in told}
    if not fields:
        raise HTTPException(400, "name at least one field to change")
    if told and "status" not in fields:
        raise InvalidEpisode(sorted(told)[0], "is of a change of `status`, and none is named")
    cause = Cause(changes.get("by") or EDITED.by, changes.get("reason") or "")
    episode = services.poster.patch(episode_id, fields, cause=cause)
    return json_reply(episode_body(episode, include, short_of(services, include, [episode])))


@router.delete("/{episode_id:path}", status_code=204)
def delete_episode(
    episode_id: PathId,
    services: Uses,
    exclude: Annotated[bool, Query(description="Keep its text out of later ingests")] = True,
) -> Response:
    """Remove an episode for good, with everything derived from it, and keep later ingests from bringing it back."""
    if not episodes.delete_episode(services.store, episode_id, tombstone=exclude):
        raise EpisodeNotFound("no episode has this id")
    return Response(status_code=204)
