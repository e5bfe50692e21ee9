"""Episode page: its data, similar episodes, and actions."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Form, Path, Query
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError, EpisodeConflict
from anamnesis_pipeline.model import Episode, EpisodeHead
from anamnesis_pipeline.parsing.text.titles import title_of
from anamnesis_pipeline.search.query import Hit, SearchQuery
from anamnesis_pipeline.services.entities import backlinks, things_of
from anamnesis_pipeline.services.entity_bodies import thing_body
from anamnesis_pipeline.services.fields import EpisodeId
from anamnesis_pipeline.services.importance import value_body
from anamnesis_pipeline.services.searching import note_reading
from anamnesis_pipeline.services.short_ids import whole_id
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.routes.similar import find_similar
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web import episode_changes
from anamnesis_pipeline.sidecar.web.edits import BY_A_PERSON, edit, read_episode
from anamnesis_pipeline.sidecar.web.episode_view import view_of
from anamnesis_pipeline.sidecar.web.html import fragment, page, page_router
from anamnesis_pipeline.sidecar.web.undo import undo_of
from anamnesis_pipeline.store.records.statuses import Cause

SIMILAR = 6
RELATED = 6
CANDIDATES = 6
MAX_CHAIN = 100

router = page_router()

FormId = Annotated[EpisodeId, Form()]
AskedId = Annotated[EpisodeId, Query()]


@router.get("/dashboard/episodes/{episode_id:path}")
def episode_page(episode_id: Annotated[EpisodeId, Path()], request: Request, services: Uses) -> Response:
    """Show the page and record the reading, as for any client that requests the text. A prefix of the id is enough."""
    undo, episode_id = undo_of(request), whole_id(services.store, episode_id)
    if episode_id in undo.waiting():
        return page(
            request, "episode_waits.html", "Being deleted", episode_id=episode_id, address=undo.address_of({episode_id})
        )
    if "HX-Request" in request.headers and not services.store.episodes.get([episode_id]):
        return fragment("episode_gone.html", episode_id=episode_id)  # requested by a page that waits for the deletion
    episode = read_episode(services, episode_id)
    reply = page(request, "episode.html", title_of(episode), view=view_of(services, episode, undo.waiting()))
    reply.background = BackgroundTask(note_reading, services.store, episode_id)
    return reply


@router.get("/dashboard/episode/text")
def whole_text(episode_id: AskedId, services: Uses) -> Response:
    """Show the full text of an episode that is too long for its page."""
    return fragment("episode_text.html", text=read_episode(services, episode_id).raw_exchange)


@router.get("/dashboard/episode/similar")
async def similar(episode_id: AskedId, request: Request, services: Uses) -> Response:
    """Show similar episodes."""
    admission: Admission = request.app.state.admission
    hidden = undo_of(request).waiting()

    def found() -> Response:
        try:
            items, problem = find_similar(services, episode_id, SIMILAR), None
        except AnamnesisError as exc:
            items, problem = None, str(exc)
        shown = [each for each in items or () if each.episode.episode_id not in hidden]
        return fragment("episode_similar.html", items=shown, embedded=items is not None, problem=problem)

    return await admission.run(found)


@router.get("/dashboard/episode/related")
def related(episode_id: AskedId, request: Request, services: Uses) -> Response:
    """Show the files, commands and other things that an episode has, and the episodes that share them."""
    hidden = undo_of(request).waiting()
    items = backlinks(services.store, services.engine.private(), episode_id, RELATED + len(hidden))
    return fragment(
        "episode_related.html",
        things=[thing_body(each) for each in things_of(services.store, episode_id)],
        project=read_episode(services, episode_id).project,
        items=[each for each in items if each.head.episode_id not in hidden][:RELATED],
    )


@router.get("/dashboard/episode/importance")
async def importance(episode_id: AskedId, request: Request, services: Uses) -> Response:
    """Show how important an episode is, factor by factor."""
    admission: Admission = request.app.state.admission

    def found() -> Response:
        try:
            value, problem = value_body(services.store, services.engine.private(), episode_id), None
        except AnamnesisError as exc:
            value, problem = None, str(exc)
        return fragment("episode_importance.html", value=value, problem=problem)

    return await admission.run(found)


@router.get("/dashboard/episode/successors")
async def successors(
    episode_id: AskedId, request: Request, services: Uses, q: Annotated[str, Query(max_length=2_000)] = ""
) -> Response:
    """Show candidates to supersede an episode: search hits, or the episode with this id."""
    admission: Admission = request.app.state.admission
    hidden = undo_of(request).waiting() | {episode_id}
    return await admission.run(lambda: _successors(services, episode_id, q.strip(), hidden))


@router.post("/dashboard/episode/edit")
def edit_fields(
    request: Request,
    services: Uses,
    episode_id: FormId,
    read_hash: Annotated[str, Form(max_length=64)],
    summary: Annotated[str, Form()],
    project: Annotated[str, Form()],
    kind: Annotated[str, Form()],
    instance: Annotated[str, Form()],
    tags: Annotated[str, Form()] = "",
) -> Response:
    """Store the fields that differ from the displayed ones."""
    episode = _unchanged(services, episode_id, read_hash)
    given = {"summary": summary, "project": project, "kind": kind, "instance": instance}
    changes = episode_changes.differing(episode, given, tags)
    if not changes:
        return _body(request, services, episode_id, "Nothing changed.")
    return _edited(request, services, episode, changes, "Saved.")


@router.post("/dashboard/episode/pin")
def pin(request: Request, services: Uses, episode_id: FormId) -> Response:
    """Pin the episode so that it lasts, or unpin it."""
    episode = read_episode(services, episode_id)
    tags, is_pinned = episode_changes.pinned_or_not(episode)
    return _edited(request, services, episode, {"tags": tags}, "Pinned: it lasts." if is_pinned else "Unpinned.")


@router.post("/dashboard/episode/note")
def add_note(
    request: Request, services: Uses, episode_id: FormId, note: Annotated[str, Form(max_length=4_000)]
) -> Response:
    """Add a note."""
    if not note.strip():
        raise HTTPException(422, "Write the note first.")
    episode = read_episode(services, episode_id)
    return _edited(request, services, episode, episode_changes.with_note(episode, note.strip()), "Note added.")


@router.post("/dashboard/episode/note/remove")
def remove_note(
    request: Request,
    services: Uses,
    episode_id: FormId,
    read_hash: Annotated[str, Form(max_length=64)],
    number: Annotated[int, Form(ge=0)],
) -> Response:
    """Remove a note."""
    episode = _unchanged(services, episode_id, read_hash)
    return _edited(request, services, episode, episode_changes.without_note(episode, number), "Note removed.")


@router.post("/dashboard/episode/supersede")
def supersede(request: Request, services: Uses, episode_id: FormId, by: Annotated[EpisodeId, Form()]) -> Response:
    """Mark it as superseded by another."""
    episode = read_episode(services, episode_id)
    read_episode(services, by)
    if episode_id in _successors_of(services, by):
        raise EpisodeConflict("The other one is this one, or is itself superseded by it.")
    changes = {"status": "superseded", "superseded_by": by}
    return _edited(request, services, episode, changes, "Superseded.")


@router.post("/dashboard/episode/doubt")
def doubt(
    request: Request,
    services: Uses,
    episode_id: FormId,
    status: Annotated[Literal["challenged", "invalidated"], Form()],
    reason: Annotated[str, Form(max_length=1_000)] = "",
) -> Response:
    """Mark it as challenged, or as holding no more."""
    episode = read_episode(services, episode_id)
    cause = replace(BY_A_PERSON, reason=reason.strip())
    return _edited(request, services, episode, {"status": status, "superseded_by": None}, f"{status.title()}.", cause)


@router.post("/dashboard/episode/restore")
def restore(request: Request, services: Uses, episode_id: FormId) -> Response:
    """Make it current again."""
    episode = read_episode(services, episode_id)
    return _edited(request, services, episode, {"status": "active", "superseded_by": None}, "Current again.")


@router.post("/dashboard/episode/delete")
def delete(request: Request, services: Uses, episode_id: FormId, exclude: Annotated[bool, Form()] = False) -> Response:
    """Schedule its deletion, which can be undone."""
    read_episode(services, episode_id)
    address = undo_of(request).delete_later([episode_id], exclude=exclude)
    return fragment("episode_waiting.html", toast="Deleted.", undo=address, episode_id=episode_id, address=address)


def _unchanged(services: Services, episode_id: str, read_hash: str) -> Episode:
    """Return the episode if the page showed its current version.

    :raises EpisodeConflict: it has changed.
    """
    episode = read_episode(services, episode_id)
    if episode.content_hash != read_hash:
        raise EpisodeConflict("It was edited meanwhile; open it again, then edit.")
    return episode


def _edited(
    request: Request,
    services: Services,
    episode: Episode,
    changes: dict[str, Any],
    toast: str,
    cause: Cause = BY_A_PERSON,
) -> Response:
    done = edit(services, episode, changes, cause)
    return _body(request, services, episode.episode_id, toast, undo_of(request).keep([done]))


def _body(request: Request, services: Services, episode_id: str, toast: str, undo: str | None = None) -> Response:
    view = view_of(services, read_episode(services, episode_id), undo_of(request).waiting())
    return fragment("episode_body.html", toast=toast, undo=undo, view=view)


def _successors(services: Services, episode_id: str, question: str, hidden: frozenset[str]) -> Response:
    hits: list[Hit] = []
    named = None
    if question:
        named = services.store.episodes.heads([question]).get(question)
        hits = services.engine.search(SearchQuery(question, top_k=CANDIDATES + 1, track=False, weak=True)).hits
    heads: list[EpisodeHead | Episode] = [*([named] if named else []), *(hit.episode for hit in hits)]
    found = {head.episode_id: head for head in heads if head.episode_id not in hidden}
    shown = list(found.values())[:CANDIDATES]
    return fragment("episode_successors.html", episode_id=episode_id, question=question, found=shown)


def _successors_of(services: Services, episode_id: str) -> set[str]:
    """Return the episode and the chain that supersedes it."""
    seen: set[str] = set()
    following: str | None = episode_id
    while following and following not in seen and len(seen) < MAX_CHAIN:
        seen.add(following)
        head = services.store.episodes.heads([following]).get(following)
        following = head.superseded_by if head else None
    return seen
