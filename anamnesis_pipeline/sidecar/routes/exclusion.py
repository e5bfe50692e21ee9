"""What is kept away: listed, added to, lifted from."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.services.blocklist import (
    STAYS,
    Entry,
    add_rule,
    blocklist,
    entry_of,
    exclude_episode,
    lift,
    what_comes_back,
)
from anamnesis_pipeline.services.fields import TEXT_PATTERN, WORDED_PATTERN, EpisodeId, Name
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.episodes import Limit
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.sources.exclusion import MAX_CHARS, Rule, RuleKind
from anamnesis_pipeline.store.values import CURSOR_PATTERN, cursor_at, read_cursor

router = APIRouter(tags=["blocklist"], responses=PROBLEMS)

Reason = Annotated[str, Field(max_length=1_000, pattern=TEXT_PATTERN, description="Reason, shown in the list")]


class ReasonIn(BaseModel):
    """Why it is to stay away."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Reason = ""


class RuleIn(BaseModel):
    """What is never to come in again. `machine` narrows rules of paths; without it they count for every one."""

    model_config = ConfigDict(extra="forbid")

    kind: RuleKind
    value: Annotated[
        str,
        Field(max_length=MAX_CHARS, pattern=WORDED_PATTERN, description="Path, id, name, pattern or hash to keep out"),
    ]
    machine: Annotated[Name | None, Field(description="Only on this machine, for rules of paths; default: on all")] = (
        None
    )
    reason: Reason = ""


class EntryOut(TypedDict):
    """A rule, or the tombstone of a deleted episode (`kind`: `episode`, or `file` and `output` of what was forgotten).

    `held`: chunks that are read but hidden from searches until the rule is removed. `label`: the
    name of the file that a rule by content was made of, or the file in which what a tombstone is of stood, if known.
    """

    id: str
    kind: str
    value: str
    machine: str
    reason: str
    added_at: str
    episode_id: str
    held: int
    label: str


class BlocklistOut(TypedDict):
    """The newest first; `next_cursor` is null on the last page."""

    items: list[EntryOut]
    next_cursor: str | None


class AddedOut(TypedDict):
    """A rule, and what it does not do."""

    rule: EntryOut
    note: str


class LiftedOut(TypedDict):
    """What was lifted, and what comes back by itself."""

    id: str
    parts: int
    files: int
    note: str


@router.get("/api/blocklist", response_model=BlocklistOut)
def list_blocklist(
    services: Uses,
    limit: Limit = 20,
    cursor: Annotated[str | None, Query(pattern=CURSOR_PATTERN, description="`next_cursor` of the page before")] = None,
) -> Response:
    """List rules and deleted episodes, newest first, with reason and time."""
    before = read_cursor(cursor) if cursor is not None else None
    entries = blocklist(services.store, limit + 1, before, services.engine.private())
    shown = entries[:limit]
    following = cursor_at(shown[-1].added_at, shown[-1].id) if len(entries) > limit else None
    return json_reply({"items": [_body(entry) for entry in shown], "next_cursor": following})


@router.post("/api/blocklist", response_model=AddedOut, status_code=201, responses={200: {"model": AddedOut}})
def add_to_blocklist(rule: RuleIn, services: Uses) -> Response:
    """Keep something out from now on: 201 if the rule is new, 200 if it existed. Stored texts stay."""
    added, is_new = add_rule(services.store, Rule(rule.kind, rule.value, rule.machine or "", rule.reason))
    return json_reply({"rule": _body(entry_of(added)), "note": STAYS}, 201 if is_new else 200)


@router.delete("/api/blocklist/{entry_id:path}", response_model=LiftedOut)
def lift_from_blocklist(
    entry_id: Annotated[EpisodeId, Path(description="`id` of an entry")], services: Uses
) -> Response:
    """Lift a rule, and report what comes back. The entry of an excluded episode and the rule by its text are lifted
    together.
    """
    lifted = lift(services.store, entry_id)
    if lifted is None:
        raise HTTPException(404, "nothing of this id is on the blocklist")
    return json_reply(
        {"id": entry_id, "parts": lifted.parts, "files": lifted.files, "note": what_comes_back(entry_id, lifted)}
    )


@router.post("/api/episodes/{episode_id:path}/exclude", response_model=AddedOut)
def exclude(
    episode_id: Annotated[EpisodeId, Path(description="May contain `/` and `:`")], body: ReasonIn, services: Uses
) -> Response:
    """Remove an episode for good, and keep its messages and its text out, wherever they come from."""
    rule = exclude_episode(services.store, episode_id, body.reason)
    if rule is None:
        raise HTTPException(404, "no episode has this id")
    return json_reply({"rule": _body(entry_of(rule)), "note": f"DELETE /api/blocklist/{rule.rule_id} lifts it"})


def _body(entry: Entry) -> EntryOut:
    return {
        "id": entry.id,
        "kind": entry.kind,
        "value": entry.value,
        "machine": entry.machine,
        "reason": entry.reason,
        "added_at": utc_text(entry.added_at),
        "episode_id": entry.episode_id,
        "held": entry.held,
        "label": entry.label,
    }
