"""Search page. Filters are in the URL, so that every answer can be bookmarked and shared.

Searches here do not count as retrievals, as those of sessions do. The query enters the prompt history, unless it is
explained.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.parsing.text.wording import NOTHING_GOOD
from anamnesis_pipeline.search.freshness import EMBEDDING
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.services.asking import (
    MAX_ITEMS,
    Asked,
    Asking,
    blocks_of,
    changed_since,
    nothing_of,
    question_of,
    resume_text,
)
from anamnesis_pipeline.services.ground import Grounds
from anamnesis_pipeline.services.rendering import answer_body
from anamnesis_pipeline.services.schemas import SearchIn
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.routes.query import keep_question
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.html import page, page_router
from anamnesis_pipeline.sidecar.web.markdown import marked
from anamnesis_pipeline.sidecar.web.undo import undo_of

PATH = "/dashboard/search"
CHOICES = {
    "mode": {
        Mode.HYBRID.value: "Words and meaning",
        Mode.SEMANTIC.value: "Meaning alone",
        Mode.EXACT.value: "Exactly these words",
    },
    "profile": {
        "default": "Best answer first",
        "facts": "What was written down first",
        "recent": "Recent first",
        "context": "As a session receives it",
        "plain": "Fused lists alone",
    },
    "top": {"10": "10", "25": "25", "50": "50"},
    "layer": asking.LAYERS,
}
BRIEFED = ("q", "project", "private")
"""Fields that a briefing takes over."""
MAX_SHOWN = max(map(int, CHOICES["top"]))
"""A larger explained page would have hundreds of kilobytes; scripts use the API."""
FIRST_SHOWN = 5
"""Proposals of each list shown in an explanation."""
BACKLOG_KEPT_S = 10.0
"""Cache TTL: counting the backlog takes longer than a search may."""

router = page_router()


@router.get(PATH)
async def search_page(request: Request, services: Uses) -> Response:
    """Show the form and the answer."""
    asked = asking.filled(request.query_params)
    shown: dict[str, Any] = {"asked": asked, "choices": CHOICES, "answer": None, "problem": None, "told": None}
    shown["names"] = await run_in_threadpool(asking.names_offered, services, asked)
    if "q" not in asked:
        return page(request, "search.html", "Search", **shown)
    try:
        question = asking.read_question(asked)
        if question.top_k > MAX_SHOWN:
            asked["top"] = str(MAX_SHOWN)
            question = asking.read_question(asked)
    except RequestValidationError as exc:
        return page(request, "search.html", "Search", status=422, **{**shown, "problem": asking.told(exc)})
    admission: Admission = request.app.state.admission
    if (named := question_of(question.query)) is not None:
        return await admission.run(lambda: _told(request, services, *named, question, shown))
    return await admission.run(lambda: _answered(request, services, question, shown))


def _told(
    request: Request, services: Services, kind: Asked, asked: str, question: SearchIn, shown: Mapping[str, Any]
) -> Response:
    """Show what is recorded of a thing, without episodes that wait to be deleted."""
    asking_it = Asking(services.store, services.engine.private(), services.settings.machine)
    where = asking_it.where(question.project, question.include_private)
    body = asking_it.answer(kind, asked, where, min(question.top_k, MAX_ITEMS))
    hidden = undo_of(request).waiting()
    items = [item for item in body["items"] if not hidden.intersection(item["episode_ids"])]
    nothing = body["nothing"] or (None if items else nothing_of(kind, where))
    ids = [item["episode_ids"][0] for item in items]
    blocks = zip_longest(blocks_of(kind, {**body, "items": items, "nothing": nothing}), ids)
    told = {"kind": kind, "asked": asked, "blocks": [(lines, name) for lines, name in blocks if lines]}
    return page(request, "search.html", "Search", **{**shown, "told": told})


def _answered(request: Request, services: Services, question: SearchIn, shown: Mapping[str, Any]) -> Response:
    found = services.engine.search(replace(question.question(), track=False))
    hidden = undo_of(request).waiting()
    grounds = Grounds(services.store, services.engine.private(), services.settings.machine)
    origins = grounds.of_episodes(hit.episode for hit in found.hits)
    body = answer_body(found, (), question.explain, origins=origins)
    if body["results"]:  # the backlog is shown separately
        body["degraded"] = [note for note in body["degraded"] if not note.startswith(EMBEDDING)]
    results = [
        {
            **hit,
            "excerpt": marked(hit["excerpt"], question.query),
            "also": [name for name in hit["also"] if name not in hidden],
            "resume": resume_text(hit["source"]),
            "changed": changed_since(hit["source"]["ground"]) if "ground" in hit["source"] else "",
        }
        for hit in body["results"]
        if hit["episode_id"] not in hidden
    ]
    answer: dict[str, Any] = {**body, "results": results}
    toggled = asking.address_with(PATH, shown["asked"], explain=None if question.explain else "1")
    to_come = _to_come(request, question) if found.hits else []
    lists = answer.get("explanation", {}).get("lists", {}).values()
    ids = {found["episode_id"] for each in lists for found in each["first"]} - hidden
    explained = {
        "first": FIRST_SHOWN,
        "summaries": (
            {name: head.summary for name, head in services.store.episodes.heads(sorted(ids)).items()} if ids else {}
        ),
    }
    is_empty = not answer["results"] and not services.store.projects.all()
    told = {
        **shown,
        **explained,
        "answer": answer,
        "toggled": toggled,
        "briefing": asking.address_with(
            "/dashboard/brief", {name: text for name, text in shown["asked"].items() if name in BRIEFED}
        ),
        "to_come": to_come,
        "is_empty": is_empty,
        "nothing_good": NOTHING_GOOD,
    }
    reply = page(request, "search.html", "Search", **told)
    if question.track:
        reply.background = BackgroundTask(keep_question, services, request.app.state.room, question, found)
    return reply


def _to_come(request: Request, question: SearchIn) -> list[str]:
    """Return what is not yet ingested and embedded; an answer without hits says so already."""
    with suppress(AnamnesisError):  # the answer is complete without it
        return request.app.state.backlog.get(question.mode)  # type: ignore[no-any-return]
    return []
