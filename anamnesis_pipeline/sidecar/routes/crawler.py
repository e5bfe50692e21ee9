"""Configured sources, and how the crawler that reads them is doing."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.pipeline.source_specs import SpecFields, SpecModel
from anamnesis_pipeline.services.crawler_control import (
    CrawlerControl,
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
    check_regex,
    source_out,
)
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.embedding import refusing
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(prefix="/api", tags=["sources"], responses=PROBLEMS)


async def control_of(_: Request, services: Uses) -> CrawlerControl:
    """What crawls, over the services of the application that answers."""
    return CrawlerControl(services.store, effective_settings(services.store), services.dagster)


Control = Annotated[CrawlerControl, Depends(control_of)]
SourceName = Annotated[
    str, Path(max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of a source")
]


@router.get("/sources", response_model=SourcesOut)
def list_sources(control: Control) -> Response:
    """List all sources, built-in ones (of the setting `log_roots`) first."""
    return json_reply({"sources": control.sources(), "warnings": control.warnings()})


@router.put("/sources", response_model=PutSourcesOut)
def put_sources(wish: SourcesIn, control: Control) -> Response:
    """Replace all configured sources. New and changed ones are read at once; episodes of removed ones stay."""
    with refusing("sources"):
        changed = control.put_all([model.spec() for model in wish.sources])
    body = {"sources": control.sources(), "warnings": control.warnings()}
    return json_reply({**body, "first_look": control.first_look(changed)})


@router.post("/sources/test", response_model=TrialOut)
def try_source(wish: SourceTestIn, control: Control) -> Response:
    """Show what would be crawled of a source, configured (`name`) or not (`source`), and what is left out and why. Its
    machine is asked; nothing is stored.
    """
    spec = wish.source.spec() if wish.source else control.find(wish.name or "")
    if spec is None:
        with refusing("name"):
            raise BadSetting(f"give a whole `source`, or the `name` of one that there is; {wish.name!r} is none")
    with refusing("source"):
        return json_reply(control.trial_out(spec))


@router.put("/sources/{name}", response_model=PutSourceOut)
def put_source(name: SourceName, fields: SpecFields, control: Control) -> Response:
    """Add a source, or change the one of this name; it is read at once."""
    spec = SpecModel(name=name, **fields.model_dump()).spec()
    with refusing("root"):
        is_changed = control.put(spec)
    look = control.first_look([name] if is_changed else [])
    return json_reply({**source_out(control.find(name) or spec), "first_look": look})


@router.delete("/sources/{name}", status_code=204)
def delete_source(name: SourceName, control: Control) -> Response:
    """Stop crawling a source; its episodes stay. `POST /api/forget` removes them."""
    try:
        control.remove(name)
    except BadSetting as exc:
        raise HTTPException(404, str(exc)) from exc
    return Response(status_code=204)


@router.get("/crawler/status", response_model=CrawlerStatusOut)
def status(control: Control) -> Response:
    """Return current activity, every machine with its last answer, and every source with its lag (null: never seen),
    counts and errors.
    """
    return json_reply(control.status())


@router.post("/crawler/run", response_model=CrawlStartedOut, status_code=202)
def run(control: Control, wish: CrawlIn | None = None) -> Response:
    """Poll all machines now and read what is new, or everything of the sources in `sources`."""
    with refusing("sources"):
        return json_reply(control.run(wish.sources if wish else ()), 202)


@router.get("/crawler/available-mounts", response_model=LogFoldersOut)
def list_log_folders(control: Control) -> Response:
    """List folders of this machine that may hold logs, with the number of logs; mounted folders and other users'
    included.
    """
    return json_reply({"folders": control.log_folders()})


@router.post("/crawler/validate-regex", response_model=PatternOut)
def validate_regex(wish: PatternIn) -> Response:
    """Check whether a text is a valid regular expression of RE2 (linear time)."""
    return json_reply(check_regex(wish.pattern))
