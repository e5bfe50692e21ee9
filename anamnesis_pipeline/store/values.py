"""How values are stored, the same for every backend: texts, instants, lists, and cursors of pages. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from anamnesis_pipeline.errors import InvalidEpisode
from anamnesis_pipeline.model import Episode, EpisodeHead, Passage, StoredPassage, content_id, kind_of
from anamnesis_pipeline.parsing.text.file_names import composed

LAST_CHARACTER = "\U0010ffff"
"""Behind every text that begins with some others, and before what follows those."""


def clean(text: str) -> str:
    """`text` without lone surrogates, which no store can hold; each becomes U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def indexed(text: str) -> str:
    """`text` as words and names are stored and looked for: `clean`, in the composed form of Unicode."""
    return composed(clean(text))


def spellings(names: Iterable[str]) -> list[str]:
    """Names as they may be stored: as they are given, and in the composed form of Unicode."""
    return sorted({spelling for name in names for spelling in (name, composed(name))})


def sought(text: str) -> str:
    """`text` as it may be looked for. What has a lone surrogate is stored nowhere, so that this finds nothing."""
    known = clean(text)
    return text if known == text else f"{known}\0"


def instant(when: datetime) -> str:
    """ISO-8601 in UTC with microseconds, so that the order of texts is the order of times.

    :raises ValueError: `when` has no time zone.
    """
    if when.tzinfo is None:
        raise ValueError(f"{when.isoformat()} has no time zone; times in a store are UTC")
    return when.astimezone(UTC).isoformat(timespec="microseconds")


def moment(text: str) -> datetime:
    """The inverse of `instant`."""
    return datetime.fromisoformat(text)


as_json = json.JSONEncoder(separators=(",", ":")).encode
"""Compact JSON, ASCII only: it survives any text a log may hold."""


def json_list(values: Iterable[Any]) -> str:
    """A JSON array, e.g. the argument of `json_each`."""
    return as_json(list(values))


# --- where a page ends: a cursor -------------------------------------------------------------------------

CURSOR_PATTERN = r"^-?[0-9]{1,16}-([0-9a-f]{2}){0,800}$"
"""`<microseconds since 1970>-<id in hex>`: safe in a URL, and every text of this form is a place in the list."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cursor_at(when: datetime, name: str) -> str:
    """The cursor of what follows, in a list by (time, id), newest first."""
    return f"{(when - _EPOCH) // timedelta(microseconds=1)}-{name.encode().hex()}"


def read_cursor(cursor: str) -> tuple[datetime, str]:
    """(timestamp, episode id) that the page follows.

    :raises InvalidEpisode: it is not one of ours.
    """
    microseconds, _, episode_id = cursor.rpartition("-")
    try:
        when = _EPOCH + timedelta(microseconds=int(microseconds))
        return when, bytes.fromhex(episode_id).decode(errors="replace")
    except (ValueError, OverflowError) as exc:
        raise InvalidEpisode("cursor", f"{cursor[:80]!r} is none of ours; take it from `next_cursor`") from exc


# --- episodes and passages as both engines keep them -----------------------------------------------------

HEAD_FIELDS = (
    *("episode_id", "source", "timestamp", "instance", "project", "kind", "summary", "tags", "status"),
    *("superseded_by", "session_id", "metadata", "retrieval_count", "read_count", "superseded_at"),
)
"""Fields of `tables.EPISODES` that `head_of` reads."""
EPISODE_FIELDS = (
    *HEAD_FIELDS,
    *("raw_exchange", "machine", "path", "message_ids", "message_keys", "last_retrieved"),
)
"""Fields of `tables.EPISODES` that `episode_of` reads."""
_TEXTS = tuple("episode_id source instance kind summary raw_exchange machine path session_id".split())
_LISTS = ("tags", "message_ids", "message_keys")


def episode_of(row: Mapping[str, Any]) -> Episode:
    """Return the episode of a row with `EPISODE_FIELDS`."""
    retrieved = row["last_retrieved"]
    return Episode(
        **_head(row),
        raw_exchange=row["raw_exchange"],
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
    values["superseded_at"] = moment(row["superseded_at"]) if row["superseded_at"] else None
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
