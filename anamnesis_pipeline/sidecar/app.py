"""The HTTP service. `create_app` assembles routes, checks and error handlers around the given services."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache, partial

import anyio
from fastapi import APIRouter, Depends, FastAPI
from fastapi import Security as Requires
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.routing import BaseRoute, Route

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.search.freshness import backlog_notes
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.services.store_checks import store_integrity
from anamnesis_pipeline.services.wiring import open_pieces
from anamnesis_pipeline.sidecar import problems
from anamnesis_pipeline.sidecar.admission import Admission, DiskSpace
from anamnesis_pipeline.sidecar.background import Background, keep_measured, keep_trimmed
from anamnesis_pipeline.sidecar.cache import TtlCache
from anamnesis_pipeline.sidecar.chat_background import ChatRecorder, KnownAnswers
from anamnesis_pipeline.sidecar.chat_running import Chats
from anamnesis_pipeline.sidecar.connections import Wholeness
from anamnesis_pipeline.sidecar.documentation import DESCRIPTION, TAGS, DocumentedApp
from anamnesis_pipeline.sidecar.event_feed import EventFeed
from anamnesis_pipeline.sidecar.extraction import Extraction
from anamnesis_pipeline.sidecar.log_tail import LogTail, tailing
from anamnesis_pipeline.sidecar.map_view import MapView
from anamnesis_pipeline.sidecar.mcp.client import PATH as MCP_PATH
from anamnesis_pipeline.sidecar.mcp.endpoint import McpEndpoint
from anamnesis_pipeline.sidecar.mcp.handshake import package_version
from anamnesis_pipeline.sidecar.mcp.tools import LocalTools
from anamnesis_pipeline.sidecar.notifications import Nudges
from anamnesis_pipeline.sidecar.observation import Metrics, Observation
from anamnesis_pipeline.sidecar.overview_stats import Overview
from anamnesis_pipeline.sidecar.present_problems import Growth
from anamnesis_pipeline.sidecar.resources import Resources
from anamnesis_pipeline.sidecar.routes import asking as asking_routes
from anamnesis_pipeline.sidecar.routes import brief as brief_routes
from anamnesis_pipeline.sidecar.routes import chat as chat_routes
from anamnesis_pipeline.sidecar.routes import codebase as codebase_routes
from anamnesis_pipeline.sidecar.routes import consolidation as consolidation_routes
from anamnesis_pipeline.sidecar.routes import context as context_routes
from anamnesis_pipeline.sidecar.routes import crawler as crawler_routes
from anamnesis_pipeline.sidecar.routes import crawler_config as crawler_config_routes
from anamnesis_pipeline.sidecar.routes import dashboard as dashboard_routes
from anamnesis_pipeline.sidecar.routes import drift as drift_routes
from anamnesis_pipeline.sidecar.routes import embedding as embedding_routes
from anamnesis_pipeline.sidecar.routes import entities as entities_routes
from anamnesis_pipeline.sidecar.routes import episodes as episodes_routes
from anamnesis_pipeline.sidecar.routes import exclusion as exclusion_routes
from anamnesis_pipeline.sidecar.routes import export as export_routes
from anamnesis_pipeline.sidecar.routes import forget as forget_routes
from anamnesis_pipeline.sidecar.routes import history as history_routes
from anamnesis_pipeline.sidecar.routes import jsonl as jsonl_routes
from anamnesis_pipeline.sidecar.routes import log as log_routes
from anamnesis_pipeline.sidecar.routes import memory as memory_routes
from anamnesis_pipeline.sidecar.routes import overview as overview_routes
from anamnesis_pipeline.sidecar.routes import project as project_routes
from anamnesis_pipeline.sidecar.routes import proposals as proposals_routes
from anamnesis_pipeline.sidecar.routes import query as query_routes
from anamnesis_pipeline.sidecar.routes import reembed as reembed_routes
from anamnesis_pipeline.sidecar.routes import rolling as rolling_routes
from anamnesis_pipeline.sidecar.routes import search as search_routes
from anamnesis_pipeline.sidecar.routes import service as service_routes
from anamnesis_pipeline.sidecar.routes import session as session_routes
from anamnesis_pipeline.sidecar.routes import similar as similar_routes
from anamnesis_pipeline.sidecar.routes import topics as topics_routes
from anamnesis_pipeline.sidecar.routes import upload as upload_routes
from anamnesis_pipeline.sidecar.routes import value as value_routes
from anamnesis_pipeline.sidecar.routes.episodes import refuse_repeated
from anamnesis_pipeline.sidecar.security import LoginRateLimiter, Security
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.sidecar.web import health, review, search
from anamnesis_pipeline.sidecar.web import routes as pages
from anamnesis_pipeline.sidecar.web.undo import Undo
from anamnesis_pipeline.sources.web import fetch_page

log = logging.getLogger(__name__)

_ROUTERS = (
    service_routes.router,
    search_routes.router,
    asking_routes.router,
    brief_routes.router,
    query_routes.router,
    similar_routes.router,
    history_routes.router,
    value_routes.router,
    export_routes.router,
    session_routes.router,
    overview_routes.router,
    dashboard_routes.router,
    context_routes.router,
    memory_routes.router,
    project_routes.router,
    forget_routes.router,
    embedding_routes.router,
    jsonl_routes.router,
    log_routes.router,
    consolidation_routes.router,
    crawler_routes.router,
    crawler_config_routes.router,
    reembed_routes.router,  # before the episodes' routes, which match any path
    rolling_routes.router,
    proposals_routes.router,
    topics_routes.router,
    drift_routes.router,
    codebase_routes.router,
    entities_routes.router,
    upload_routes.router,
    episodes_routes.router,
    exclusion_routes.router,
    chat_routes.router,
)
"""Routers that require the token, if one is set."""


def create_app(services: Services) -> FastAPI:
    """Return the application. It loads the model in the background at startup and closes `services` at shutdown."""
    app = DocumentedApp(
        title="Anamnesis",
        version=package_version(),
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _keep(app.state, services)
    app.state.mcp = McpEndpoint(LocalTools(services, app.state.admission, app.state.room), app.version)
    app.router.routes.extend(_routes(wants_token=bool(services.settings.api_token)))
    app.router.routes.append(Route(MCP_PATH, app.state.mcp))
    problems.install(app)
    app.add_middleware(Security, settings=services.settings, guesses=app.state.guesses)
    app.add_middleware(Observation, metrics=app.state.metrics)
    app.add_middleware(Wholeness)  # added last: outermost
    return app


def _keep(state: State, services: Services) -> None:
    """Store the objects that routes share for the lifetime of the application."""
    state.services = services
    state.metrics = Metrics(services)
    state.background = Background(state.metrics.background_failures)
    state.admission = Admission()
    state.extraction = Extraction()
    state.chats = Chats()
    state.chat_records = ChatRecorder(services, state.extraction, state.chats, state.metrics.chat_records_failed)
    state.chat_known = KnownAnswers(services)
    state.room = DiskSpace()
    state.growth = Growth()
    state.guesses = LoginRateLimiter()
    state.overview = Overview(services)
    state.resources = Resources(services, state.room)
    state.status_summary = TtlCache(lambda _: dashboard_routes.summary_body(state), dashboard_routes.SUMMARY_KEPT_S)
    state.comparison = TtlCache(lambda _: store_integrity(services.store), health.COMPARED_FOR_S)
    state.examination = TtlCache(lambda _: health.examine(services, state.comparison), health.EXAMINED_FOR_S)
    state.backlog = TtlCache(lambda mode: backlog_notes(services.store, mode), search.BACKLOG_KEPT_S, len(Mode))
    state.waits = TtlCache(lambda _: review.waits_of(services), review.KEPT_S)
    state.nudges = Nudges(services)
    state.undo = Undo(services)
    state.event_feed = EventFeed(services)
    state.map_view = MapView(services)
    state.uploads = anyio.CapacityLimiter(upload_routes.UPLOADS_AT_ONCE)
    state.fetch_page = fetch_page


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services = app.state.services
    app.state.log_tail = await run_in_threadpool(_open_log_tail, services)
    with tailing(app.state.log_tail):
        async with _served(app.state):
            yield
    await run_in_threadpool(services.close)


@asynccontextmanager
async def _served(state: State) -> AsyncIterator[None]:
    """Load the tokenizer, start loading the model, and run the background tasks."""
    await run_in_threadpool(_start_model, state.services)
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "MCP": state.mcp.run,
        "reading what sessions tell of": state.nudges.run,
        "records of the chat": state.chat_records.run,
        "questions of the chat asked ahead": partial(state.chat_known.run, state.admission),
        "deleting what is no more to be undone": state.undo.run,
        "live events": state.event_feed.run,
        "measuring what is unrelated": partial(keep_measured, state.services),
        "giving memory back": keep_trimmed,
    }
    async with anyio.create_task_group() as tasks:
        for name, work in works.items():
            tasks.start_soon(state.background.keep, name, work)
        yield
        tasks.cancel_scope.cancel()


def _open_log_tail(services: Services) -> LogTail:
    redactor = open_redactor(services.settings)
    return LogTail(lambda text: redactor.mask_text(text)[0])


def _start_model(services: Services) -> None:
    """Load the tokenizer, which takes longer than a hook waits while a model loads, then start loading the model."""
    for load in (open_pieces, services.pool.load_in_background):
        try:
            load()
        except AnamnesisError as exc:  # keyword search still works, and /ready says what is missing
            log.error("no embedding model: %s", exc)  # noqa: TRY400 - expected, the text is enough


@cache
def _routes(*, wants_token: bool) -> list[BaseRoute]:
    """Return all routes, shared by every application: FastAPI analyses a route's parameters on first use."""
    # `security.Security` does the check; this only documents it.
    documented = [Requires(HTTPBearer(auto_error=False))] if wants_token else []
    together = APIRouter()
    together.include_router(service_routes.open_router)
    for router in _ROUTERS:
        together.include_router(router, dependencies=[*documented, Depends(refuse_repeated)])
    together.include_router(pages.router)
    return together.routes
