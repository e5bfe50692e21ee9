"""Sources page: folders and machines to crawl, their state, crawling now, and what was ingested."""

from typing import Any

from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError, BadSetting
from anamnesis_pipeline.parsing.text.wording import counted, duration
from anamnesis_pipeline.runtime.dagster_home import dagster_link
from anamnesis_pipeline.services.crawler_control import CrawlerControl, CrawlerStatusOut, CrawlStartedOut
from anamnesis_pipeline.services.dagster.api import POSTED_ASSETS
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.sidecar.routes.crawler import Control, SourceName
from anamnesis_pipeline.sidecar.routes.crawler_config import IntervalModel
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web import source_form, tag_patterns, uploaded, worktrees
from anamnesis_pipeline.sidecar.web.html import fragment, live, page, page_router, told
from anamnesis_pipeline.sidecar.web.settings_form import changes_of, field_of, problems_of, rows_of, sent_form
from anamnesis_pipeline.store.records.overview import SourceState

PATH = source_form.PATH
SHOWN = 100
"""Max configured sources; the API lists all."""
FOLDERS_SHOWN = 200
INTERVAL = field_of("crawl_interval_s", unit="seconds")
_INTERVAL: TypeAdapter[IntervalModel] = TypeAdapter(IntervalModel)

router = page_router()
for each in (source_form, tag_patterns, uploaded, worktrees):
    router.include_router(each.router)


@router.get(PATH)
def sources_page(request: Request, services: Uses, edit: str = "", folder: str = "") -> Response:
    """Show the page, without Dagster's state."""
    control = CrawlerControl(services.store, effective_settings(services.store))
    held = services.store.overview.sources()
    return page(
        request,
        "sources.html",
        "Sources",
        **_state(services, control, held, asks=False),
        **_folders(services, control, held, folder),
        **_interval(services),
        **source_form.filled_from(control, edit),
        **tag_patterns.shown(services.store),
        **uploaded.shown(services),
    )


@router.get(PATH + "/state")
def state(services: Uses, control: Control, seen: str = "") -> Response:
    """Show the current state of machines and sources."""
    return live("sources_state.html", seen, **_state(services, control, services.store.overview.sources()))


@router.post(PATH + "/run")
def run_all(control: Control) -> Response:
    """Scan all machines now and ingest changes, as `POST /api/crawler/run`."""
    return _run(control, ())


@router.post(PATH + "/source/{name}/run")
def run_one(name: SourceName, control: Control) -> Response:
    """Ingest everything of one source."""
    return _run(control, (name,))


@router.post(PATH + "/source/{name}/remove")
def remove(name: SourceName, control: Control) -> Response:
    """Remove a source, as `DELETE /api/sources/{name}`."""
    try:
        control.remove(name)
    except BadSetting as exc:
        return told(str(exc), bad=True)
    return told(f"{name} is no longer crawled; its episodes stay.")


@router.post(PATH + "/interval")
async def set_interval(request: Request, services: Uses, control: Control) -> Response:
    """Store the interval, as `PUT /api/crawler/config/interval`."""
    return await run_in_threadpool(_set_interval, services, control, await sent_form(request))


@router.post(PATH + "/interval/revert/crawl_interval_s")
def revert_interval(services: Uses, control: Control) -> Response:
    """Remove the stored interval."""
    return _stored_interval(services, control, None, {})


@router.get(PATH + "/log-folders")
def log_folders(control: Control) -> Response:
    """Show folders of this machine that may hold logs, as `GET /api/crawler/available-mounts`."""
    return fragment("sources_log_folders.html", log_folders=control.log_folders())


def _run(control: CrawlerControl, names: tuple[str, ...]) -> Response:
    try:
        started = control.run(names)
    except AnamnesisError as exc:
        return told(f"Not started: {exc}", bad=True)
    problems = f" {'; '.join(started['problems'])}" if started["problems"] else ""
    return told(_started(started) + problems, bad=bool(problems) and not started["run_id"], link=started["link"])


def _started(started: CrawlStartedOut) -> str:
    """Describe the outcome of a scan. Pure."""
    if started["run_id"]:
        return f"Reading {counted(len(started['sources']), 'folder')}."
    if started["running_already"]:
        return "New data is being read already."
    return "Polled: nothing new."


def _set_interval(services: Services, control: CrawlerControl, sent: dict[str, str]) -> Response:
    changes = changes_of((INTERVAL,), sent)
    if not changes:
        return fragment("sources_interval.html", toast="Nothing changed.", **_interval(services))
    interval_s = changes[INTERVAL.name]
    if problems := problems_of(_INTERVAL, {"interval_s": interval_s}):
        problem = {INTERVAL.name: problems["interval_s"]}
        return fragment("sources_interval.html", **_interval(services, sent, problem))
    return _stored_interval(services, control, interval_s, sent)


def _stored_interval(
    services: Services, control: CrawlerControl, interval_s: int | None, sent: dict[str, str]
) -> Response:
    try:
        control.set_interval(interval_s)
    except BadSetting as exc:
        return fragment("sources_interval.html", **_interval(services, sent, {INTERVAL.name: str(exc)}))
    shown = _interval(services) | {"focus": INTERVAL.name}
    return fragment("sources_interval.html", toast=f"Sources are polled every {shown['row'].text} s.", **shown)


def _interval(
    services: Services, typed: dict[str, str] | None = None, problems: dict[str, str] | None = None
) -> dict[str, Any]:
    (row,) = rows_of(services.store, (INTERVAL,), typed, problems)
    return {"row": row, "focus": INTERVAL.name if problems else ""}


def _state(
    services: Services, control: CrawlerControl, held: dict[str, SourceState], *, asks: bool = True
) -> dict[str, Any]:
    status = control.status()
    specs = {spec["name"]: spec for spec in control.sources()}
    hosts = {host["machine"]: host for host in status["hosts"]}
    rows = []
    for crawled in status["sources"][:SHOWN]:
        mine = [held[key] for key in crawled["partitions"] if key in held]
        rows.append(
            {
                **crawled,
                "spec": specs[crawled["name"]],
                "machine_state": hosts[crawled["machine"]]["state"] if crawled["machine"] in hosts else "new",
                "episodes": sum(each.episodes for each in mine),
                "newest": max((each.newest for each in mine), default=None),
                "lag": duration(crawled["lag_s"]) if crawled["lag_s"] else None,
                "interval": duration(crawled["interval_s"]),
            }
        )
    return {
        "crawler": status,
        "state": _word(status, asks=asks),
        "rows": rows,
        "more": len(status["sources"]) - len(rows),
        "warnings": control.warnings(),
        "link": dagster_link(services.settings),
    }


def _word(status: CrawlerStatusOut, *, asks: bool) -> str:
    """Return one of `asking`, `away`, `reading`, `idle`. Pure."""
    if status["running"] is None or not asks:
        return "away" if asks else "asking"
    return "reading" if status["running"] else "idle"


def _folders(services: Services, control: CrawlerControl, held: dict[str, SourceState], wanted: str) -> dict[str, Any]:
    """Return the ingested folders, newest episode first."""
    retired = set(control.state().retired)
    rows: list[dict[str, Any]] = []
    for source in services.store.files.sources():
        of, folder = held.get(source.key), f"{source.root}/{source.folder}".removesuffix("/.")
        if source.kind == "reserved" and of is None:
            continue
        if wanted.strip().casefold() not in f"{source.key} {source.machine} {folder}".casefold():
            continue
        rows.append(
            {
                "key": source.key,
                "machine": source.machine,
                "folder": folder,
                "kind": source.kind,
                "episodes": of.episodes if of else 0,
                "newest": of.newest if of else None,
                "retired": source.key in retired,
                "posted": POSTED_ASSETS.get(source.key),
            }
        )
    rows.sort(key=lambda row: row["newest"].timestamp() if row["newest"] else 0.0, reverse=True)
    return {"folders": rows[:FOLDERS_SHOWN], "folders_all": len(rows), "folder_wanted": wanted}
