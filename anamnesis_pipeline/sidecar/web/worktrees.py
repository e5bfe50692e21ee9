"""Card of repositories whose worktrees are gone: offers, joins, and undoing a join."""

from typing import Annotated, Any

from fastapi import Form
from starlette.responses import Response

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.services import worktrees
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web.html import fragment, page_router

PATH = "/dashboard/sources/worktrees"
TEMPLATE = "sources_worktrees.html"
Target = Annotated[str, Form(max_length=4_000)]

router = page_router()


@router.get(PATH)
def card(services: Uses) -> Response:
    """Show the current offers and joins."""
    return fragment(TEMPLATE, **_shown(services))


@router.post(PATH + "/join")
def join(services: Uses, target: Target) -> Response:
    """Join, as `anamnesis projects join`."""
    try:
        offer, changed = worktrees.join(services.store, services.engine.private(), services.settings.machine, target)
    except BadSetting as exc:
        return fragment(TEMPLATE, **_shown(services, str(exc)))
    told = f"{counted(len(offer.projects), 'worktree')} joined to {target}: {counted(changed, 'episode')} changed."
    return fragment(TEMPLATE, toast=told, **_shown(services))


@router.post(PATH + "/part")
def part(services: Uses, target: Target) -> Response:
    """Undo a join, as `anamnesis projects join --undo`."""
    try:
        names, changed = worktrees.part(services.store, target)
    except BadSetting as exc:
        return fragment(TEMPLATE, **_shown(services, str(exc)))
    told = f"{counted(len(names), 'worktree')} parted from {target}: {counted(changed, 'episode')} changed."
    return fragment(TEMPLATE, toast=told, **_shown(services))


def _shown(services: Services, problem: str = "") -> dict[str, Any]:
    store, private = services.store, services.engine.private()
    joined = {target: names for target, names in worktrees.joined_now(store).items() if not private.is_of(target)}
    return {
        "offers": worktrees.offers(store, private, services.settings.machine),
        "joined": joined,
        "problem": problem,
    }
