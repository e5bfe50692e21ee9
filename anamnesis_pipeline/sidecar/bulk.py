"""Many episodes in one call: each is validated and written separately."""

import json
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from anamnesis_pipeline.errors import AnamnesisError, EpisodeConflict, InvalidEpisode, StoreFull
from anamnesis_pipeline.services.fields import FieldError, field_errors
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.schemas import BulkFailure, BulkIn, BulkOut, EpisodeIn
from anamnesis_pipeline.sidecar.admission import DiskSpace

EMBEDDED_TOGETHER = 100
"""Episodes whose passages are embedded in one model call."""
MAX_EPISODE_BYTES = 1024 * 1024


def parse_bulk(body: bytes) -> list[Any]:
    """Return the episodes of a bulk body, not validated. Slow for large bodies: call it in a thread.

    :raises HTTPException: 400, it is not JSON.
    :raises RequestValidationError: it is not an object with at most 1,000 episodes.
    """
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON") from None
    try:
        return BulkIn.model_validate(parsed).episodes
    except ValidationError as exc:
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in exc.errors()]) from None


def post_all(poster: EpisodeWriter, items: list[Any], room: DiskSpace) -> BulkOut:
    """Write every valid episode. Failures are listed by index, so that the client resends only those.

    :param room: is notified when the store is full.
    """
    report: BulkOut = {"created": 0, "unchanged": 0, "failed": []}
    created: list[str] = []
    for index, item in enumerate(items):
        outcome = _post_one(poster, item, room)
        if isinstance(outcome, list):
            report["failed"].append(BulkFailure(index=index, errors=outcome))
        elif outcome is None:
            report["unchanged"] += 1
        else:
            created.append(outcome)
    report["created"] = len(created)
    for first in range(0, len(created), EMBEDDED_TOGETHER):
        poster.embed(created[first : first + EMBEDDED_TOGETHER])
    return report


def _post_one(poster: EpisodeWriter, item: Any, room: DiskSpace) -> str | list[FieldError] | None:
    """Return the id of a new episode, None if it existed, or the errors of the item."""
    try:
        draft = EpisodeIn.model_validate(item).draft()
        if _json_bytes(item) > MAX_EPISODE_BYTES:
            return [{"path": "", "message": "is larger than 1 MiB"}]
        episode, created = poster.create(draft, embed=False)
    except ValidationError as exc:
        return field_errors(exc.errors())
    except InvalidEpisode as exc:
        return [{"path": exc.field, "message": exc.problem}]
    except EpisodeConflict as exc:
        return [{"path": "episode_id", "message": str(exc)}]
    except AnamnesisError as exc:
        if isinstance(exc, StoreFull):
            room.refused()
        return [{"path": "", "message": str(exc)}]
    return episode.episode_id if created else None


def _json_bytes(item: Any) -> int:
    return len(json.dumps(item, ensure_ascii=False).encode())
