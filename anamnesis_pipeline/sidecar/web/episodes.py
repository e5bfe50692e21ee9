"""Episode list, newest first, with filters and bulk actions."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args
from urllib.parse import parse_qsl

from fastapi import Form
from fastapi.exceptions import RequestValidationError
from pydantic import Field, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.services.editing import MAX_EDITED, Action, Outcome, edit_many, newest_of
from anamnesis_pipeline.services.fields import EpisodeId
from anamnesis_pipeline.services.folder_project import project_meant
from anamnesis_pipeline.services.posted import NO_PROJECT, note_of, posted_body, preview_body
from anamnesis_pipeline.services.schemas import TypeName
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.edits import BY_A_PERSON
from anamnesis_pipeline.sidecar.web.html import fragment, page, page_router, told
from anamnesis_pipeline.sidecar.web.undo import undo_of
from anamnesis_pipeline.store.memory_layers import layer_of

PATH = "/dashboard/episodes"
PER_PAGE = 25
MAX_AT_ONCE = 100

router = page_router()

ACTIONS = {
    "pin": "Pin",
    "unpin": "Unpin",
    "add_tags": "Add a tag",
    "remove_tags": "Remove a tag",
    "invalidate": "Invalidate",
}
PickedAction = Literal["delete", "pin", "unpin", "add_tags", "remove_tags", "invalidate"]
_ACTION: TypeAdapter[Action] = TypeAdapter(Annotated[Action, Field(discriminator="action")])


@router.get(PATH)
def list_page(request: Request, services: Uses) -> Response:
    """Show the list."""
    asked = asking.filled(request.query_params)
    offered: dict[str, Any] = {
        "names": asking.names_offered(services, asked),
        "statuses": asking.STATUSES,
        "layers": asking.LAYERS,
        "types": get_args(TypeName),
        "types_offered": {name: name.replace("_", " ").capitalize() for name in get_args(TypeName)},
        "actions": ACTIONS,
    }
    try:
        shown = _shown(request, services, asked)
    except RequestValidationError as exc:
        shown = {**_nothing(asked), "problem": asking.told(exc)}
        return page(request, "episodes.html", "Episodes", status=422, **offered, **shown)
    return page(request, "episodes.html", "Episodes", **offered, **shown)


@router.post(PATH)
def act_on_several(
    request: Request,
    services: Uses,
    action: Annotated[PickedAction, Form()],
    ids: Annotated[list[EpisodeId] | None, Form(max_length=MAX_AT_ONCE)] = None,
    tag: Annotated[str, Form(max_length=100)] = "",
    reason: Annotated[str, Form(max_length=200)] = "",
    exclude: Annotated[bool, Form()] = False,
    asked: Annotated[str, Form(max_length=4_000)] = "",
) -> Response:
    """Apply an action to the selected episodes; return the new list with the failures.

    :param asked: the query string of the current page.
    """
    chosen = list(dict.fromkeys(ids or ()))
    if not chosen:
        raise HTTPException(422, "Choose at least one episode first.")
    outcome, toast, undo = Outcome(), "", None
    if action == "delete":
        undo = undo_of(request).delete_later(chosen, exclude=exclude)
        toast = f"{counted(len(chosen), 'episode')} deleted."
    else:
        change = change_of(action, tag.strip(), reason.strip())
        outcome = edit_many(services.store, services.poster, chosen, change, BY_A_PERSON.by, dry_run=False)
        toast = _told(action, tag.strip(), len(outcome.edits), len(outcome.failed))
        undo = undo_of(request).keep(outcome.edits) if outcome.edits else None
    shown = _shown(request, services, asking.filled(dict(parse_qsl(asked))))
    return fragment(
        "episodes_list.html", toast=toast, undo=undo, **{**shown, "failed": outcome.failed, "chosen": chosen}
    )


@router.post(PATH + "/remember")
def remember(
    services: Uses,
    text: Annotated[str, Form(max_length=20_000)],
    type: Annotated[TypeName, Form()] = "note",
    why: Annotated[str, Form(max_length=5_000)] = "",
    subject: Annotated[str, Form(max_length=200)] = "",
    project: Annotated[str, Form(max_length=200)] = "",
    preview: Annotated[bool, Form()] = False,
) -> Response:
    """Keep one thing, or only say so, with what it replaces, how new it is, and what says nearly the same."""
    if not text.strip():
        raise HTTPException(422, "Write what to remember first.")
    note = note_of(
        text.strip(),
        project=project_meant(services.store, services.engine.private(), project.strip() or NO_PROJECT),
        instance=services.settings.machine,
        type=type,
        why=why.strip(),
        subject=subject.strip() or None,
    )
    if preview:
        done = preview_body(services.store, services.engine, services.poster.preview(note.draft()), ())
    else:
        stored, created = services.poster.create(note.draft())
        done = posted_body(services.store, services.engine.private(), stored, created=created)
    verb = "Kept already" if done["operation"] == "unchanged" else "Would be kept" if preview else "Kept"
    said = f"{verb} in {done['project']}"
    said += f", in place of {counted(len(done['replaced']), 'former one')}" if done["replaced"] else ""
    said += f", beside {counted(len(done['challenged']), 'pinned one')} on its subject" if done["challenged"] else ""
    said += f", novelty {done['novelty']:.2f}" if done["novelty"] is not None else ""
    said += f"; much like: {done['alike'][0]['summary'][:100]}" if done["alike"] else ""
    return told(said if preview else f"{said}: {done['episode_id']}")


@router.post(PATH + "/all")
def act_on_all(
    request: Request,
    services: Uses,
    action: Annotated[str, Form(max_length=20)],
    tag: Annotated[str, Form(max_length=100)] = "",
    reason: Annotated[str, Form(max_length=200)] = "",
    asked: Annotated[str, Form(max_length=4_000)] = "",
    sure: Annotated[bool, Form()] = False,
) -> Response:
    """Say what an action would change in all episodes that pass the filters; with `sure`, do it and offer to take it
    back.
    """
    if action not in ACTIONS:
        raise HTTPException(422, "Choose what to do first.")
    change = change_of(action, tag.strip(), reason.strip())
    listed = asking.read_list(asking.filled(dict(parse_qsl(asked))))
    where = services.engine.visible(listed.where(), ["*"] if listed.private else [])
    chosen = newest_of(services.store, where, MAX_EDITED)
    waiting = undo_of(request).waiting()
    ids = [name for name in chosen.ids if name not in waiting]
    outcome = edit_many(services.store, services.poster, ids, change, BY_A_PERSON.by, dry_run=not sure)
    done = sure and outcome.edits
    return fragment(
        "episodes_all.html",
        toast=_told(action, tag.strip(), len(outcome.edits), len(outcome.failed)) if sure else None,
        undo=undo_of(request).keep(outcome.edits) if done else None,
        sure=sure,
        action=action,
        words=_done(action, tag.strip()),
        outcome=outcome,
        left=chosen.matched - len(chosen.ids),
    )


@router.post("/dashboard/deletion-problems")
def dismiss_problems(request: Request, services: Uses, asked: Annotated[str, Form(max_length=4_000)] = "") -> Response:
    """Dismiss the list of failed deletions."""
    undo_of(request).forget_problems()
    return fragment("episodes_list.html", **_shown(request, services, asking.filled(dict(parse_qsl(asked)))))


def change_of(action: str, tag: str, reason: str) -> Action:
    """Return the change that a form asks for. Pure.

    :raises HTTPException: 422, a field that it needs is empty.
    """
    if action in ("add_tags", "remove_tags") and not tag:
        raise HTTPException(422, "Name the tag first.")
    if action == "invalidate" and not reason:
        raise HTTPException(422, "Say why first.")
    given: dict[str, dict[str, Any]] = {
        "add_tags": {"tags": [tag]},
        "remove_tags": {"tags": [tag]},
        "invalidate": {"reason": reason},
    }
    try:
        return _ACTION.validate_python({"action": action, **given.get(action, {})})
    except ValidationError as exc:
        raise RequestValidationError(exc.errors()) from None


def _done(action: str, tag: str) -> str:
    """Return what episodes are after an action. Pure."""
    words = {
        "pin": "pinned",
        "unpin": "unpinned",
        "add_tags": f"tagged {tag}",
        "remove_tags": f"without {tag}",
        "invalidate": "invalidated",
    }
    return words[action]


def _told(action: str, tag: str, done: int, failed: int) -> str:
    told = f"{counted(done, 'episode')} {_done(action, tag)}." if done else "Nothing to change."
    return f"{told} {failed} failed." if failed else told


def _shown(request: Request, services: Services, asked: dict[str, str]) -> dict[str, Any]:
    """Return the data of the list.

    :raises RequestValidationError: a filter is invalid.
    """
    listed = asking.read_list(asked)
    where = services.engine.visible(listed.where(), ["*"] if listed.private else [])
    found = services.store.episodes.page(where, PER_PAGE, listed.cursor)
    undo = undo_of(request)
    waiting, now = undo.waiting(), datetime.now(UTC)
    filters = {name: value for name, value in asked.items() if name in type(listed).model_fields and name != "cursor"}
    return {
        **_nothing(filters),
        "items": [(each, layer_of(each, now).value) for each in found.items if each.episode_id not in waiting],
        "here": asking.address_with("", filters, cursor=listed.cursor).removeprefix("?"),
        "newest": asking.address_with(PATH, filters) if listed.cursor else None,
        "older": asking.address_with(PATH, filters, cursor=found.next_cursor) if found.next_cursor else None,
        "problems": undo.problems(),
        "exports": {
            "JSON lines": asking.export_address(listed, filters, "jsonl"),
            "Markdown": asking.export_address(listed, filters, "markdown"),
        },
        "total": services.store.episodes.count(where),
        "waiting": len(waiting & {each.episode_id for each in found.items}),
        "undo_last": undo.address_of({each.episode_id for each in found.items}),
    }


def _nothing(asked: dict[str, str]) -> dict[str, Any]:
    return {
        "asked": asked,
        "items": [],
        "here": "",
        "newest": None,
        "older": None,
        "problems": [],
        "exports": {},
        "failed": {},
        "total": 0,
        "waiting": 0,
        "undo_last": None,
        "chosen": [],
        "problem": None,
    }
