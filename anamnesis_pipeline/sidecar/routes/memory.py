"""A question and its answer, as a client reports them after each turn."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.model import Episode, RecordType
from anamnesis_pipeline.services.fields import WORDED_PATTERN, Name, Time
from anamnesis_pipeline.services.recording import Pair, Recorded, Recorder
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.wiring import effective_settings, open_recorder
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.extraction import Extraction
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services, Uses

router = APIRouter(tags=["memory"], responses=PROBLEMS)

Said = Annotated[str, Field(pattern=WORDED_PATTERN)]


class PairIn(BaseModel):
    """What the user said and what the assistant answered."""

    model_config = ConfigDict(extra="forbid", strict=True)

    user: Annotated[Said, Field(description="The question")]
    assistant: Annotated[Said, Field(description="The answer")]
    instance: Annotated[Name | None, Field(description="Default: the setting `machine`")] = None
    project: Annotated[Name | None, Field(description="Name of the project; default: none")] = None
    timestamp: Annotated[Time | None, Field(description="Default: now; part of the identity of the pair")] = None


class RecordOut(TypedDict):
    """One thing worth knowing later, and why; an episode of kind `record`."""

    episode_id: str
    type: RecordType
    text: str
    why: str
    tags: list[str]
    timestamp: str


class PairOut(TypedDict):
    """The pair's episode with its records. `problem` says why the LLM found none yet; null when it was asked."""

    episode_id: str
    created: bool
    summary: str
    tags: list[str]
    records: list[RecordOut]
    problem: str | None


@router.post("/memory/ingest", response_model=PairOut, status_code=201, responses={200: {"model": PairOut}})
async def ingest_pair(pair: PairIn, request: Request, services: Uses) -> Response:
    """Store one question with its answer, and 0 to 3 typed records that the LLM finds in them. 201 if new, 200 if
    stored before. The next search finds the pair.

    The pair is stored even if the LLM fails. `problem` says why there are no records. A slow LLM continues in the
    background: post the same pair again to get its records.
    """
    extraction: Extraction = request.app.state.extraction
    recorder, wanted = await run_in_threadpool(_open, services, pair)
    part, created = await run_in_threadpool(recorder.keep, wanted)
    found = await extraction.run(part.part_id, lambda: recorder.extract(part))
    recorded = found if isinstance(found, Recorded) else await run_in_threadpool(recorder.stored, part, found)
    return json_reply(_body(recorded, created), 201 if created else 200)


def _open(services: Services, pair: PairIn) -> tuple[Recorder, Pair]:
    """The settings are read again, so that another LLM applies from the next call."""
    settings = effective_settings(services.store)
    wanted = Pair(pair.user, pair.assistant, pair.instance or settings.machine, pair.project or "", pair.timestamp)
    return open_recorder(settings, services.store, services.poster), wanted


def _body(recorded: Recorded, created: bool) -> PairOut:
    return {
        "episode_id": recorded.episode.episode_id,
        "created": created,
        "summary": recorded.episode.summary,
        "tags": list(recorded.episode.tags),
        "records": [_record_body(record) for record in recorded.records],
        "problem": recorded.problem or None,
    }


def _record_body(record: Episode) -> RecordOut:
    return {
        "episode_id": record.episode_id,
        "type": RecordType(record.metadata["type"]),
        "text": record.summary,
        "why": record.metadata["why"],
        "tags": list(record.tags),
        "timestamp": utc_text(record.timestamp),
    }
