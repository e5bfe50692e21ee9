"""Where a page of episodes ends, as text: the same for every backend. Pure."""

from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.errors import InvalidEpisode
from anamnesis_pipeline.model import Episode

CURSOR_PATTERN = r"^-?[0-9]{1,16}-([0-9a-f]{2}){0,800}$"
"""`<microseconds since 1970>-<id in hex>`: safe in a URL, and every text of this form is a place in the list."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cursor_after(last: Episode) -> str:
    """The cursor of the page that follows `last`, newest first."""
    return cursor_at(last.timestamp, last.episode_id)


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
