"""Parse `since` and `until` as people and models write them. Pure.

One rule for the command line, HTTP and MCP: from `since` on and before `until`, where a year, month, day or phrase
stands for its first moment. So `--since 2026-02 --until 2026-03` is February.
"""

import re
from datetime import UTC, datetime, tzinfo

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.search.time_expressions import Relation, times_in

_YEAR, _MONTH = re.compile(r"\d{4}"), re.compile(r"\d{4}-\d{2}")


def bounds_of(
    since: str | None, until: str | None, now: datetime, zone: tzinfo | None = None
) -> tuple[datetime | None, datetime | None]:
    """Return both in UTC; None: open.

    :param now: aware; the reference time of `yesterday`.
    :param zone: of times without one; None: the local one.
    :raises GiveUp: one is no time, or the range is empty.
    """
    first, end = (_moment(text, now, zone) if text else None for text in (since, until))
    if first and end and first >= end:
        raise GiveUp(
            f"nothing lies from {since} on and before {until}: until is exclusive; all of March is 2026-03 to 2026-04"
        )
    return first, end


def bound_texts(
    since: str | None, until: str | None, now: datetime, zone: tzinfo | None = None
) -> dict[str, str | None]:
    """Return the same for the HTTP API, under the names `since` and `until`."""
    named = zip(("since", "until"), bounds_of(since, until, now, zone), strict=True)
    return {name: at.isoformat().replace("+00:00", "Z") if at else None for name, at in named}


def _moment(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    text = text.strip()
    whole = f"{text}-01-01" if _YEAR.fullmatch(text) else f"{text}-01" if _MONTH.fullmatch(text) else text
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError as exc:
        local = now.astimezone(zone).replace(tzinfo=UTC)  # so that a phrase uses the clock of its zone
        named = times_in(text, local, UTC)
        if named is None or named.words != text or named.relation is not Relation.DURING or named.since is None:
            raise GiveUp(
                f"{text[:40]!r} is not a time; write e.g. 2026-03-14, 2026-03, 2026-03-14T09:26, 2026-03-14T09:26Z, "
                "yesterday or last week"
            ) from exc
        moment = named.since.replace(tzinfo=None)
    try:
        moment = (moment.replace(tzinfo=zone) if moment.tzinfo is None and zone else moment).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise GiveUp(f"{text[:40]!r} is not within the years 1970 to 2199") from exc
    if not 1970 <= moment.year < 2200:
        raise GiveUp(f"{text[:40]!r} is not within the years 1970 to 2199")
    return moment
