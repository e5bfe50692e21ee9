"""Edits of one episode or many. Old and new values are kept, so that each can be taken back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from anamnesis_pipeline.errors import AnamnesisError, EpisodeConflict, EpisodeNotFound
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.parsing.text.titles import title_of
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.floor import Confidence
from anamnesis_pipeline.search.query import SearchQuery
from anamnesis_pipeline.services.fields import WHOLE, EpisodeId, Kind, Name, QueryText, Tag, Tags, Time, field_errors
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.schemas import EpisodeChanges, LayerName, TypeName
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import PINNED
from anamnesis_pipeline.store.records.statuses import Cause
from anamnesis_pipeline.store.values import CURSOR_PATTERN

MAX_EDITED = 1_000
"""Max episodes of one bulk edit; each is a transaction."""
MAX_FOUND = 100
"""Max episodes that a query selects, as of a search."""
PAGE = 200
SHOWN = 20
_CHANGES: TypeAdapter[EpisodeChanges] = TypeAdapter(EpisodeChanges)


@dataclass(frozen=True, slots=True)
class Edit:
    """Old and new values of some fields of an episode; both have the same names."""

    episode_id: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def edit(writer: EpisodeWriter, episode: Episode, changes: Mapping[str, Any], cause: Cause) -> Edit:
    """Write some fields, as `PATCH` does.

    :param episode: its state when the changes were made.
    :param cause: of a change of its status.
    :raises ValidationError: a value is invalid.
    :raises EpisodeConflict: it was edited meanwhile.
    """
    checked = _checked(changes)
    edited = writer.patch(episode.episode_id, checked, episode.content_hash, cause)
    return Edit(episode.episode_id, fields_of(episode, changes), fields_of(edited, changes))


def take_back(store: Store, writer: EpisodeWriter, done: Edit, cause: Cause) -> None:
    """Restore the old values; other fields keep their current ones.

    :raises EpisodeNotFound: it is gone.
    :raises EpisodeConflict: one of the fields was edited again meanwhile.
    """
    episode = store.episodes.get([done.episode_id]).get(done.episode_id)
    if episode is None:
        raise EpisodeNotFound("no episode has this id")
    if fields_of(episode, done.after) != done.after:
        raise EpisodeConflict(f"{done.episode_id} was edited again meanwhile, so that the edit before stays")
    writer.patch(done.episode_id, done.before, episode.content_hash, replace(cause, reason="undone"))


def _checked(changes: Mapping[str, Any]) -> EpisodeChanges:
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in changes.items()}
    return _CHANGES.validate_python(plain)


def fields_of(episode: Episode, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of some fields."""
    return {name: getattr(episode, name) for name in names}


# --- many ------------------------------------------------------------------------------------------------

_STRICT = ConfigDict(extra="forbid", strict=True)
Reason = Annotated[str, Field(max_length=1_000, description="Why; kept in the history of the status")]


class TagAction(BaseModel):
    """Add or remove tags."""

    model_config = _STRICT

    action: Literal["add_tags", "remove_tags"]
    tags: Annotated[list[Tag], Field(min_length=1, max_length=50)]


class PinAction(BaseModel):
    """Pin or unpin."""

    model_config = _STRICT

    action: Literal["pin", "unpin"]


class StatusAction(BaseModel):
    """Say that they do not hold, or that they hold again."""

    model_config = _STRICT

    action: Literal["invalidate", "restore"]
    reason: Annotated[Name, Field(description="Why; kept in the history of the status")]


class SupersedeAction(BaseModel):
    """Let another episode stand for them."""

    model_config = _STRICT

    action: Literal["supersede"]
    superseded_by: Annotated[EpisodeId, Field(description="Id of the episode that replaces them")]
    reason: Reason = ""


Action = TagAction | PinAction | StatusAction | SupersedeAction


class BulkEditIn(BaseModel):
    """Which episodes, and what to change. Either `ids`, or a `query` and filters, all of which must hold."""

    model_config = _STRICT

    change: Annotated[
        Action,
        Field(discriminator="action", description="`action`, with `tags`, `reason` or `superseded_by` as it needs"),
    ]
    ids: Annotated[list[EpisodeId], Field(max_length=MAX_EDITED, description="Ids of episodes")] = []
    query: Annotated[
        QueryText | None, Field(description=f"Only the hits of this search, at most {MAX_FOUND}; none that is weak")
    ] = None
    project: Annotated[Name | None, Field(description="Only this project; `api` also matches `acme/api`")] = None
    instance: Annotated[Name | None, Field(description="Only this instance")] = None
    tags: Annotated[Tags, Field(description="Only with all of these tags")] = []
    kind: Annotated[list[Kind], Field(max_length=50, description="Only one of these kinds")] = []
    type: Annotated[list[TypeName], Field(max_length=12, description="Only what states one of these")] = []
    layer: Annotated[list[LayerName], Field(max_length=5, description="Only one of these layers")] = []
    session_id: Annotated[Name | None, Field(description="Only this session")] = None
    since: Annotated[Time | None, Field(description="Start time, inclusive")] = None
    until: Annotated[Time | None, Field(description="End time, exclusive")] = None
    include_superseded: Annotated[
        bool, Field(description="Also what is superseded, merged or invalidated, as `restore` always does")
    ] = False
    include_private: Annotated[
        list[Name], Field(max_length=50, description="Private projects and sources to include; `*`: all")
    ] = []
    limit: Annotated[int, Field(ge=1, le=MAX_EDITED, description="Max episodes of this call, newest first"), WHOLE] = (
        100
    )
    cursor: Annotated[str | None, Field(pattern=CURSOR_PATTERN, description="`next_cursor` of the call before")] = None
    by: Annotated[Name, Field(description="Who edits; kept in the history of a status")] = "request"
    dry_run: Annotated[bool, Field(description="Only report what would be changed")] = True

    @model_validator(mode="after")
    def _something(self) -> Self:
        if bool(self.ids) == (self.query is not None or self.where().is_selective):
            raise ValueError("say which episodes: either ids, or a query or filters")
        return self

    def where(self) -> EpisodeFilter:
        """Return the filters for the store."""
        return EpisodeFilter(
            projects=(self.project,) if self.project else (),
            instance=self.instance,
            tags=tuple(self.tags),
            kinds=tuple(self.kind),
            types=tuple(self.type),
            layers=tuple(self.layer),
            layers_at=datetime.now(UTC) if self.layer else None,
            session_id=self.session_id,
            since=self.since,
            until=self.until,
            include_superseded=self.include_superseded or self.change.action == "restore",
        )


class EditedOut(TypedDict):
    """An episode that was changed, or in a dry run would be, with the new values."""

    episode_id: str
    title: str
    changes: dict[str, Any]


class BulkEditOut(TypedDict):
    """`matched`: how many episodes the query or the filters select; `selected`: those of this call. Of them some were
    `changed` (in a dry run: would be), `unchanged`, as they are so already, or `failed` (id -> why). `shown`: the first
    of the changed ones. `next_cursor`: where to go on with more; null at the end.
    """

    dry_run: bool
    matched: int
    selected: int
    changed: int
    unchanged: int
    failed: dict[str, str]
    shown: list[EditedOut]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Selected:
    """The ids that a request selects in one call, and how many it does in all."""

    ids: Sequence[str]
    matched: int
    next_cursor: str | None = None


def selected(store: Store, engine: Engine, wanted: BulkEditIn) -> Selected:
    """Return what a request selects; newest first by filters, best first by a query.

    :raises EmbeddingQueueFull: this machine is overloaded.
    """
    if wanted.ids:
        ids = list(dict.fromkeys(wanted.ids))
        return Selected(ids[: wanted.limit], len(ids))
    if wanted.query is not None:
        question = SearchQuery(
            wanted.query,
            top_k=min(wanted.limit, MAX_FOUND),
            where=wanted.where(),
            fold=False,
            track=False,
            include_private=tuple(wanted.include_private),
        )
        hits = [hit for hit in engine.search(question).hits if hit.confidence is not Confidence.WEAK]
        return Selected([hit.episode.episode_id for hit in hits], len(hits))
    where = engine.visible(wanted.where(), wanted.include_private)
    return newest_of(store, where, wanted.limit, wanted.cursor)


def newest_of(store: Store, where: EpisodeFilter, limit: int, cursor: str | None = None) -> Selected:
    """Return the newest episodes that pass a filter, or those behind a cursor."""
    ids = list[str]()
    while len(ids) < limit:
        page = store.episodes.page(where, min(PAGE, limit - len(ids)), cursor)
        ids += [episode.episode_id for episode in page.items]
        if (cursor := page.next_cursor) is None:
            break
    return Selected(ids, store.episodes.count(where), cursor)


def bulk_edit_body(store: Store, engine: Engine, writer: EpisodeWriter, wanted: BulkEditIn) -> BulkEditOut:
    """Do what a request asks for; the answer as JSON.

    :raises EpisodeNotFound: the episode that is to stand for them is not stored.
    """
    chosen = selected(store, engine, wanted)
    outcome = edit_many(store, writer, chosen.ids, wanted.change, wanted.by, dry_run=wanted.dry_run)
    first = store.episodes.get([each.episode_id for each in outcome.edits[:SHOWN]])
    return {
        "dry_run": wanted.dry_run,
        "matched": chosen.matched,
        "selected": len(chosen.ids),
        "changed": len(outcome.edits),
        "unchanged": len(outcome.unchanged),
        "failed": outcome.failed,
        "shown": [
            {
                "episode_id": each.episode_id,
                "title": title_of(first[each.episode_id]),
                "changes": to_jsonable_python(each.after),
            }
            for each in outcome.edits[:SHOWN]
            if each.episode_id in first
        ],
        "next_cursor": chosen.next_cursor,
    }


@dataclass(slots=True)
class Outcome:
    """The result of a bulk edit: what was written, or in a preview would be; ids of episodes that are so already; and
    id -> why it failed.
    """

    edits: list[Edit] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def edit_many(
    store: Store,
    writer: EpisodeWriter,
    episode_ids: Sequence[str],
    change: Action,
    by: str,
    *,
    dry_run: bool,
) -> Outcome:
    """Change episodes, each on its own: one that fails stops no other.

    :raises EpisodeNotFound: the episode that is to stand for them is not stored.
    """
    if isinstance(change, SupersedeAction) and not store.episodes.heads([change.superseded_by]):
        raise EpisodeNotFound(f"no episode {change.superseded_by!r} that could stand for them")
    outcome, episodes = Outcome(), store.episodes.get(episode_ids)
    cause = Cause(by, getattr(change, "reason", ""))
    for name in dict.fromkeys(episode_ids):
        if (episode := episodes.get(name)) is None:
            outcome.failed[name] = "it is gone"
            continue
        if isinstance(change, SupersedeAction) and change.superseded_by == name:
            outcome.failed[name] = "it cannot stand for itself"
            continue
        changes = changes_of(episode, change)
        if all(getattr(episode, field) == value for field, value in changes.items()):
            outcome.unchanged.append(name)
            continue
        try:
            if dry_run:
                _checked(changes)
                outcome.edits.append(Edit(name, fields_of(episode, changes), changes))
            else:
                outcome.edits.append(edit(writer, episode, changes, cause))
        except ValidationError as exc:
            outcome.failed[name] = "; ".join(error["message"] for error in field_errors(exc.errors()))
        except AnamnesisError as exc:
            outcome.failed[name] = str(exc)
    return outcome


def changes_of(episode: Episode, change: Action) -> dict[str, Any]:
    """Return the fields that a change sets in an episode. Pure."""
    if isinstance(change, StatusAction):
        return {"status": "invalidated" if change.action == "invalidate" else "active", "superseded_by": None}
    if isinstance(change, SupersedeAction):
        return {"status": "superseded", "superseded_by": change.superseded_by}
    named = change.tags if isinstance(change, TagAction) else [PINNED]
    if change.action in ("add_tags", "pin"):
        return {"tags": tuple(dict.fromkeys((*episode.tags, *named)))}
    return {"tags": tuple(tag for tag in episode.tags if tag not in named)}
