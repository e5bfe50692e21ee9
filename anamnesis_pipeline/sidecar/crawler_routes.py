"""Configured sources, and how the crawler that reads them is doing."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.sidecar.crawler_control import CrawlerControl, check_regex, source_out
from anamnesis_pipeline.sidecar.crawler_schemas import (
    CrawlerStatusOut,
    CrawlIn,
    CrawlStartedOut,
    LogFoldersOut,
    PatternIn,
    PatternOut,
    PutSourceOut,
    PutSourcesOut,
    SourcesIn,
    SourcesOut,
    SourceTestIn,
    TrialOut,
)
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.embedding_routes import refusing
from anamnesis_pipeline.sidecar.episodes_routes import refuse_repeated
from anamnesis_pipeline.sidecar.rendering import json_reply
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.steps.source_specs import SpecFields, SpecModel
from anamnesis_pipeline.wiring import effective_settings

router = APIRouter(prefix="/api", tags=["sources"], responses=PROBLEMS, dependencies=[Depends(refuse_repeated)])


async def control_of(_: Request, services: Uses) -> CrawlerControl:
    """What crawls, over the services of the application that answers."""
    return CrawlerControl(services.store, effective_settings(services.store), services.dagster)


Control = Annotated[CrawlerControl, Depends(control_of)]
SourceName = Annotated[
    str, Path(max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="As `/api/sources` lists it")
]


@router.get("/sources", response_model=SourcesOut)
def list_sources(control: Control) -> Response:
    """All sources that are crawled; the built-in ones come from the setting `log_roots`."""
    return json_reply({"sources": control.sources()})


@router.put("/sources", response_model=PutSourcesOut)
def put_sources(wish: SourcesIn, control: Control) -> Response:
    """Let these be all configured sources beside the built-in ones; what is new or changed is looked at and read at
    once. What was read of others stays.
    """
    with refusing("sources"):
        changed = control.put_all([model.spec() for model in wish.sources])
    return json_reply({"sources": control.sources(), "first_look": control.first_look(changed)})


@router.post("/sources/test", response_model=TrialOut)
def try_source(wish: SourceTestIn, control: Control) -> Response:
    """What would be crawled of a source, configured (`name`) or not (`source`): its machine is asked, no more."""
    spec = wish.source.spec() if wish.source else control.find(wish.name or "")
    if spec is None:
        with refusing("name"):
            raise BadSetting(f"give a whole `source`, or the `name` of one that there is; {wish.name!r} is none")
    with refusing("source"):
        return json_reply(control.trial_out(spec))


@router.put("/sources/{name}", response_model=PutSourceOut)
def put_source(name: SourceName, fields: SpecFields, control: Control) -> Response:
    """Add a source, or change the one of this name; it is looked at and read at once."""
    spec = SpecModel(name=name, **fields.model_dump()).spec()
    with refusing("root"):
        is_changed = control.put(spec)
    look = control.first_look([name] if is_changed else [])
    return json_reply({**source_out(control.find(name) or spec), "first_look": look})


@router.delete("/sources/{name}", status_code=204)
def delete_source(name: SourceName, control: Control) -> Response:
    """Crawl a source no longer; its episodes stay. To remove these as well: `POST /api/forget`."""
    try:
        control.remove(name)
    except BadSetting as exc:
        raise HTTPException(404, str(exc)) from exc
    return Response(status_code=204)


@router.get("/crawler/status", response_model=CrawlerStatusOut)
def status(control: Control) -> Response:
    """What is being read, every machine with its last answer, and every source with its lag, counts and errors."""
    return json_reply(control.status())


@router.post("/crawler/run", response_model=CrawlStartedOut, status_code=202)
def run(control: Control, wish: CrawlIn | None = None) -> Response:
    """Look at the machines now and have what is new read: of all, or everything of these sources."""
    with refusing("sources"):
        return json_reply(control.run(wish.sources if wish else ()), 202)


@router.get("/crawler/available-mounts", response_model=LogFoldersOut)
def list_log_folders(control: Control) -> Response:
    """Folders of this machine that may hold logs, mounted ones and those of other users included."""
    return json_reply({"folders": control.log_folders()})


@router.post("/crawler/validate-regex", response_model=PatternOut)
def validate_regex(wish: PatternIn) -> Response:
    """Whether a text is a regular expression, of those that take linear time (RE2)."""
    return json_reply(check_regex(wish.pattern))
