"""Dates as people and models write them, as the bounds that the service takes. Pure."""

import re
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.errors import GiveUp

_YEAR, _MONTH, _DAY = re.compile(r"\d{4}"), re.compile(r"(\d{4})-(\d{2})"), re.compile(r"\d{4}-\d{2}-\d{2}")


def since_of(text: str | None) -> str | None:
    """The first moment of a year, month or day, or the moment itself, as ISO 8601 UTC."""
    return _utc(_first(text)) if text else None


def until_of(text: str | None) -> str | None:
    """The end of a year, month or day, which `text` itself belongs to; a moment is its own end."""
    if not text:
        return None
    first, text = _first(text), text.strip()
    if _YEAR.fullmatch(text):
        return _utc(first.replace(year=first.year + 1))
    if _MONTH.fullmatch(text):
        return _utc((first + timedelta(days=31)).replace(day=1))
    return _utc(first + timedelta(days=1)) if _DAY.fullmatch(text) else _utc(first)


def _first(text: str) -> datetime:
    text = text.strip()
    whole = f"{text}-01-01" if _YEAR.fullmatch(text) else f"{text}-01" if _MONTH.fullmatch(text) else text
    try:
        moment = datetime.fromisoformat(whole)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise GiveUp(f"{text[:40]!r} is no date; write 2026-03-14, 2026-03 or 2026-03-14T09:26Z (UTC)") from exc
    if not 1970 <= moment.year < 2200:
        raise GiveUp(f"{text[:40]!r} is not within the years 1970 to 2199")
    return moment


def _utc(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
