"""What happened to the memory lately, how good it is, and how new what each source has is."""

from collections.abc import Collection, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.llm.extractive import is_extractive
from anamnesis_pipeline.services.embedding_control import coverage
from anamnesis_pipeline.services.fields import EpisodeId
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.event_feed import without_private
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.events import EVENTS_KEPT, Event, EventRecords, Happening
from anamnesis_pipeline.store.records.overview import SourceState

router = APIRouter(prefix="/api", tags=["service"], responses=PROBLEMS)

_NO_MODELS = {"problem", "skip"}
"""What `summary_counts` counts beside the models."""


class EventOut(TypedDict):
    """One operation on `episodes` of them, `episode_id` the first. `process`: the id of the process that did it.
    Of what is private, `project` is `private` and `episode_id` empty, unless that episode was asked for.
    """

    number: int
    at: str
    kind: str
    process: int
    episode_id: str
    episodes: int
    project: str


class EventsOut(TypedDict):
    """Events in their order; ask on with `since` as the number of the last."""

    events: list[EventOut]
    counts: dict[str, int]


class QualityOut(TypedDict):
    """How good the memory is. `storage_quality`: share of passages that are embedded in the active space;
    `curation_ratio`: of the active episodes, what a person wrote, edited or kept permanently;
    `enrichment_ratio`: of the parts of logs and documents, what an LLM summarized; all null where there is nothing.
    `evolution_count`: episodes that another one replaced; `confirmation_count`: those found by more than one search.
    """

    episodes: int
    active: int
    storage_quality: float | None
    curation_ratio: float | None
    enrichment_ratio: float | None
    evolution_count: int
    confirmation_count: int
    retrievals: int


class SourceIngestOut(TypedDict):
    """A source, how many episodes it has, and of when the newest is; null: it has none."""

    source: str
    machine: str
    folder: str
    kind: str
    episodes: int
    newest: str | None


class LastIngestOut(TypedDict):
    """All sources, by key."""

    sources: list[SourceIngestOut]


@router.get("/events", response_model=EventsOut)
def list_events(
    services: Uses,
    since: Annotated[int | None, Query(ge=0, description="Only entries after this number; default: the latest")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000, description="Max events")] = 100,
    kind: Annotated[list[Happening] | None, Query(description="Only these kinds")] = None,
    episode_id: Annotated[EpisodeId | None, Query(description="Only events of this episode")] = None,
) -> Response:
    """List recent events of episodes: one per write, read, edit, removal, consolidation or change of status, by any
    process. An event about several episodes names only the first.
    """
    records = services.store.events
    kinds = kind or ()
    if episode_id is not None:
        found: Sequence[Event] = _events_of(records, episode_id, since, limit, kinds)
    else:
        latest = records.latest(limit, kinds) if since is None else records.since(since, limit, kinds)
        found = without_private(services, latest)
    return json_reply({"events": [_event_body(event) for event in found], "counts": records.counts()})


@router.get("/quality", response_model=QualityOut)
def quality(services: Uses) -> Response:
    """Return how much of the memory is embedded, curated, summarized by an LLM, superseded, found more than once."""
    return json_reply(quality_body(services.store))


@router.get("/settings/sources/last-ingest", response_model=LastIngestOut)
def last_ingest(services: Uses) -> Response:
    """Return the timestamp of the newest episode per source."""
    held = services.store.overview.sources()
    rows = [
        {
            "source": source.key,
            "machine": source.machine,
            "folder": source.folder,
            "kind": source.kind,
            **_state_body(held.get(source.key)),
        }
        for source in services.store.files.sources()
    ]
    return json_reply({"sources": rows})


def quality_body(store: Store) -> QualityOut:
    """The figures as JSON."""
    tally, covered = store.overview.tally(), coverage(store)
    summaries = store.summaries.summary_counts()
    by_llm = sum(count for model, count in summaries.items() if not is_extractive(model) and model not in _NO_MODELS)
    return {
        "episodes": tally.episodes,
        "active": tally.active,
        "storage_quality": _share(covered["embedded"], covered["stored"]),
        "curation_ratio": _share(tally.curated, tally.active),
        "enrichment_ratio": _share(by_llm, store.overview.counts().parts),
        "evolution_count": tally.replaced,
        "confirmation_count": tally.confirmed,
        "retrievals": tally.retrievals,
    }


def _events_of(
    records: EventRecords, episode_id: str, since: int | None, limit: int, kinds: Collection[Happening]
) -> list[Event]:
    named = records.of(episode_id, EVENTS_KEPT)
    wanted = [e for e in named if e.number > (since or 0) and (not kinds or e.kind in kinds)]
    return wanted[-limit:] if since is None else wanted[:limit]


def _share(of: int, among: int) -> float | None:
    return round(of / among, 4) if among else None


def _event_body(event: Event) -> EventOut:
    return {
        "number": event.number,
        "at": utc_text(event.at),
        "kind": event.kind,
        "process": event.process,
        "episode_id": event.episode_id,
        "episodes": event.episodes,
        "project": event.project,
    }


def _state_body(state: SourceState | None) -> dict[str, int | str | None]:
    return {"episodes": state.episodes if state else 0, "newest": utc_text(state.newest) if state else None}
