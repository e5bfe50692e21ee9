"""Episodes and passages as both engines keep them. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anamnesis_pipeline.errors import InvalidEpisode
from anamnesis_pipeline.model import Episode, EpisodeHead, Passage, StoredPassage, content_id, kind_of
from anamnesis_pipeline.store.values import as_json, clean, indexed, instant, json_list, moment

HEAD_FIELDS = (
    *("episode_id", "source", "timestamp", "instance", "project", "kind", "summary", "tags", "status"),
    *("superseded_by", "session_id", "metadata", "retrieval_count", "read_count"),
)
"""Fields of `tables.EPISODES` that `head_of` reads."""
EPISODE_FIELDS = (
    *HEAD_FIELDS,
    *("raw_exchange", "superseded_at", "machine", "path", "message_ids", "message_keys", "last_retrieved"),
)
"""Fields of `tables.EPISODES` that `episode_of` reads."""
_TEXTS = tuple("episode_id source instance kind summary raw_exchange machine path session_id".split())
_LISTS = ("tags", "message_ids", "message_keys")


def episode_of(row: Mapping[str, Any]) -> Episode:
    """Return the episode of a row with `EPISODE_FIELDS`."""
    superseded, retrieved = row["superseded_at"], row["last_retrieved"]
    return Episode(
        **_head(row),
        raw_exchange=row["raw_exchange"],
        superseded_at=moment(superseded) if superseded else None,
        machine=row["machine"],
        path=row["path"],
        message_ids=tuple(row["message_ids"]),
        message_keys=tuple(row["message_keys"]),
        last_retrieved=moment(retrieved) if retrieved else None,
    )


def head_of(row: Mapping[str, Any]) -> EpisodeHead:
    """Return the head of an episode, of a row with `HEAD_FIELDS`."""
    return EpisodeHead(**_head(row))


def _head(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: row[name] for name in HEAD_FIELDS}
    values["timestamp"] = moment(row["timestamp"])
    values["kind"] = kind_of(row["source"], row["kind"])
    values["tags"] = tuple(row["tags"])
    values["metadata"] = json.loads(row["metadata"])
    return values


def passage_of(row: Mapping[str, Any]) -> StoredPassage:
    """Return the passage of a row of `tables.PASSAGES`."""
    passage = Passage(row["ordinal"], row["text"], row["context"], tuple(row["message_ids"]))
    return StoredPassage(row["passage_id"], row["episode_id"], passage)


def storable(episode: Episode) -> Episode:
    """`episode` as it will be read back, so that its content hash is the same before and after.

    :raises InvalidEpisode: the time has no zone, or the metadata are not JSON.
    """
    if episode.timestamp.tzinfo is None:
        raise InvalidEpisode("timestamp", "has no time zone; send UTC, e.g. 2026-01-31T12:00:00Z")
    try:
        metadata = json.loads(as_json(dict(episode.metadata)))
    except (TypeError, ValueError) as exc:
        raise InvalidEpisode("metadata", f"not JSON: {exc}") from exc
    texts: dict[str, Any] = {name: clean(getattr(episode, name)) for name in _TEXTS}
    lists: dict[str, Any] = {name: tuple(map(clean, getattr(episode, name))) for name in _LISTS}
    timestamp, project = moment(instant(episode.timestamp)), indexed(episode.project)
    return replace(episode, **texts, **lists, timestamp=timestamp, project=project, metadata=metadata)


def stored_hash(episode: Episode, passages: Sequence[Passage]) -> str:
    """Hash of everything that `put` may change, so that an unchanged episode costs one look."""
    return content_id(
        episode.content_hash,
        episode.source,
        episode.machine,
        episode.path,
        episode.session_id,
        json_list(episode.message_ids),
        json_list(episode.message_keys),
        *(as_json([p.ordinal, p.text, p.context, p.message_ids]) for p in passages),
    )


def storable_passages(passages: Sequence[Passage]) -> list[Passage]:
    """`passages` as they will be read back, by ordinal.

    :raises InvalidEpisode: two have the same ordinal.
    """
    if len({p.ordinal for p in passages}) != len(passages):
        raise InvalidEpisode("passages", f"ordinals repeat: {sorted(p.ordinal for p in passages)}")
    return sorted(
        (
            replace(p, text=indexed(p.text), context=indexed(p.context), message_ids=tuple(map(clean, p.message_ids)))
            for p in passages
        ),
        key=lambda p: p.ordinal,
    )
