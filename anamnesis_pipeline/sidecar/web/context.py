"""Context page: what a session gets automatically and on request, with the cost.

Nothing counts as shown to a session or as a retrieval.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.parsing.text.sentences import beginning
from anamnesis_pipeline.parsing.text.wording import NOTHING_GOOD
from anamnesis_pipeline.search.best_sentences import excerpt_of
from anamnesis_pipeline.search.context_items import Item, SourceClass
from anamnesis_pipeline.search.query import Hit, SearchQuery
from anamnesis_pipeline.search.trust import tier_of
from anamnesis_pipeline.services.context import MIN_TOKENS, ContextPreview, ContextRequest, LeftOut
from anamnesis_pipeline.services.handoff import HANDOFF_TOKENS
from anamnesis_pipeline.services.rendering import EXCERPT_CHARS
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.routes.context import MAX_ITEM_CHARS, MAX_TOKENS, ContextIn, maker_of
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.html import page, page_router
from anamnesis_pipeline.sidecar.web.undo import undo_of
from anamnesis_pipeline.store.memory_layers import Layer, layer_of

PATH = "/dashboard/context"
FIELDS = ("project", "cwd", "query", "max_tokens")
DEFAULT_TOKENS = 800
SEARCH_TOP = 10
"""Default number of search results."""

WHY_LEFT_OUT = {
    LeftOut.FLOOR: "not telling enough to be said unasked",
    LeftOut.REPEATED: "another quote says the same",
    LeftOut.BUDGET: "no room within the tokens",
}
SAID_BY = {
    SourceClass.TOOL: "a tool, a command or a machine",
    SourceClass.PEER: "another session or agent",
    SourceClass.SYSTEM: "Claude Code itself",
    SourceClass.POSTED: "a client that posted it",
    SourceClass.SUMMARY: "a summary",
    SourceClass.FILE: "a file",
    SourceClass.CHANNEL: "a person, through a channel",
    SourceClass.ASSISTANT: "Claude",
    SourceClass.USER: "the user",
}

router = page_router()


@dataclass(frozen=True, slots=True)
class Quote:
    """An item as displayed. `about` is its speaker, or the confidence of a search hit."""

    episode: Episode
    text: str
    about: str
    trust: str
    layer: Layer


@dataclass(frozen=True, slots=True)
class Level:
    """What a session gets at one level. `name` is its short name; `how` says when, `call` is the equivalent API call.
    `waits_for` names missing input; empty: none.
    """

    name: str
    title: str
    how: str
    call: str
    text: str = ""
    tokens: int = 0
    quotes: tuple[Quote, ...] = ()
    left_out: tuple[tuple[str, Quote], ...] = ()
    waits_for: str = ""


@router.get(PATH)
async def context_page(request: Request, services: Uses) -> Response:
    """Show the form, and all levels for its input."""
    asked = {name: value for name in FIELDS if (value := request.query_params.get(name, "").strip())}
    shown: dict[str, Any] = {
        "asked": asked,
        "levels": (),
        "projects": (),
        "problem": None,
        "degraded": (),
        "default_tokens": DEFAULT_TOKENS,
        "most_tokens": MAX_TOKENS,
        "least_tokens": MIN_TOKENS,
        "machine": services.settings.machine,
    }
    shown["names"] = await run_in_threadpool(asking.names_offered, services)
    if not asked.keys() - {"max_tokens"}:
        return page(request, "context.html", "Context", **shown)
    try:
        wanted = read(asked)
    except RequestValidationError as exc:
        return page(request, "context.html", "Context", status=422, **{**shown, "problem": asking.told(exc)})
    admission: Admission = request.app.state.admission
    hidden = undo_of(request).waiting()
    return await admission.run(
        lambda: page(request, "context.html", "Context", **{**shown, **_answered(services, wanted, hidden)})
    )


def read(asked: Mapping[str, str]) -> ContextRequest:
    """Parse the form.

    :raises RequestValidationError: a field is invalid.
    """
    given: dict[str, Any] = {name: value for name, value in asked.items() if name != "max_tokens"}
    text = asked.get("max_tokens", str(DEFAULT_TOKENS))
    if not (text.isascii() and text.isdigit()):
        told = {
            "type": "int_parsing",
            "loc": ("query", "max_tokens"),
            "msg": f"should be a number of 0 to {MAX_TOKENS}",
        }
        raise RequestValidationError([told])
    given["max_tokens"] = int(text[:9])
    try:
        return ContextIn.model_validate(given).request()
    except ValidationError as exc:
        raise asking.invalid(exc) from None


def _answered(services: Services, wanted: ContextRequest, hidden: Set[str]) -> dict[str, Any]:
    """Return the levels, their projects, and the degraded components."""
    maker, now = maker_of(services, hidden), datetime.now(UTC)
    start = maker.preview(ContextRequest(project=wanted.project, cwd=wanted.cwd, max_tokens=wanted.max_tokens))
    prompt = maker.preview(wanted) if wanted.query else None
    asked = ContextRequest(project=wanted.project, cwd=wanted.cwd, max_tokens=HANDOFF_TOKENS)
    projects, _, block = maker.handoff(asked)
    start_level = Level(
        "L0",
        "At the start of a session",
        "Given unasked when a session begins, is resumed, or was compacted.",
        "POST /api/context without query",
        waits_for="" if start.projects else "a project, or a folder of one",
    )
    handoff_level = Level(
        "L1",
        "State of the project",
        f"The hand-off, up to {HANDOFF_TOKENS:,} tokens, for a session that asks.",
        "GET /api/handoff",
        block.text,
        block.tokens,
        _quotes(block.items, now),
        waits_for="" if projects else "a project, or a folder of one",
    )
    prompt_level = Level(
        "L2",
        "On the prompt",
        "Put before Claude with what the user typed, where it answers it surely enough."
        + (f" No lesson or procedure: {prompt.no_skills}." if prompt and prompt.no_skills else ""),
        "POST /api/context with query",
        waits_for="" if prompt else "a prompt",
    )
    levels = [
        _of_preview(start_level, start, now),
        handoff_level,
        _of_preview(prompt_level, prompt, now) if prompt else prompt_level,
    ]
    search, degraded = _search_level(services, wanted, start.projects, now, hidden)
    return {"levels": [*levels, search], "projects": start.projects, "degraded": degraded}


def _search_level(
    services: Services, wanted: ContextRequest, projects: Sequence[str], now: datetime, hidden: Set[str]
) -> tuple[Level, list[str]]:
    title, how, call = "On request", "What a search for the prompt answers.", "POST /api/episodes/search"
    if not wanted.query:
        return Level("L3", title, how, call, waits_for="a prompt"), []
    query = SearchQuery(wanted.query, SEARCH_TOP, where=EpisodeFilter(projects=tuple(projects)), track=False, weak=True)
    answer = services.engine.search(query)
    hits = [hit for hit in answer.hits if hit.episode.episode_id not in hidden]
    text = "\n\n".join(f"[{hit.episode.episode_id}] {_excerpt(hit)}" for hit in hits)
    quotes = tuple(
        Quote(hit.episode, _excerpt(hit), hit.confidence.value, tier_of(hit.episode), hit.layer) for hit in hits
    )
    text = f"{NOTHING_GOOD}\n{text}" if text and answer.weak else text
    return Level("L3", title, how, call, text, answer.total_tokens, quotes), answer.degraded


def _of_preview(level: Level, found: ContextPreview, now: datetime) -> Level:
    left = tuple((WHY_LEFT_OUT[why], _quote(item, now)) for why, item in found.left_out)
    return Level(
        level.name,
        level.title,
        level.how,
        level.call,
        found.block.text,
        found.block.tokens,
        _quotes(found.block.items, now),
        left,
        level.waits_for,
    )


def _quotes(items: Sequence[Item], now: datetime) -> tuple[Quote, ...]:
    return tuple(_quote(item, now) for item in items)


def _quote(item: Item, now: datetime) -> Quote:
    return Quote(
        item.episode,
        beginning(item.text, MAX_ITEM_CHARS),
        SAID_BY[item.said_by],
        tier_of(item.episode),
        layer_of(item.episode, now),
    )


def _excerpt(hit: Hit) -> str:
    return excerpt_of(hit.passages)[0][:EXCERPT_CHARS]
