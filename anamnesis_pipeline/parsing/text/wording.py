"""Formatting of counts, names and dates for people. Pure."""

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

from anamnesis_pipeline.model import CHAT_ANSWER

NOTHING_GOOD = "Nothing answers well; the nearest:"
"""Heading of search results that are all weak."""


_KINDS = {CHAT_ANSWER: "answer of the chat"}


def kind_label(kind: str) -> str:
    """Return the label of a kind."""
    return _KINDS.get(kind, kind)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a count with its noun: `1 part`, `1,200 parts`.

    :param many: the plural, if it is not `one` with an s.
    """
    return f"{number:,} {noun(number, one, many)}"


def noun(number: int, one: str, many: str = "") -> str:
    """Return `part` for one, else `parts` or the given plural."""
    return one if number == 1 else many or one + "s"


def project_name(name: str) -> str:
    """Return a project's name for lists; a blank one becomes `(no project)`."""
    return name or "(no project)"


def shown_name(name: str) -> str:
    """Return a file name, quoted and escaped if it contains terminal control characters."""
    return name if name.isprintable() else repr(name)


def one_line(text: str) -> str:
    """Return a sentence with terminal control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable(text: str) -> str:
    """Return the text without control characters (terminal escapes), except line ends and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def session_text(source: Mapping[str, Any]) -> str:
    """Return an episode's session, the one that it goes on in, and whether its own log is missing."""
    later, is_missing = source.get("continued_in"), source.get("session_log") == "missing"
    goes_on = f", continued in session {later}" if later else ""
    return f"{source['session_id']}{goes_on}{', whose own log is missing' if is_missing else ''}"


def local_time(text: str | None, zone: tzinfo | None = None) -> str:
    """Return an ISO 8601 time to the minute, in the reader's zone by default; `never` for None."""
    return f"{datetime.fromisoformat(text).astimezone(zone):%Y-%m-%d %H:%M}" if text else "never"


def duration(seconds: float) -> str:
    """Return a duration: `8 s`, `3 min`, `2 h 5 min`."""
    whole = max(1, round(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def describe_problem(status: int, answer: Any) -> str:
    """Return an RFC 9457 problem in one line: its detail and the fields it names."""
    if not isinstance(answer, dict):
        return f"status {status}"
    text = str(answer.get("detail") or answer.get("title") or f"status {status}")
    fields = [
        f"{e.get('path', '?')}: {e.get('message', '')}" for e in answer.get("errors") or [] if isinstance(e, dict)
    ]
    return "; ".join([text, *(field for field in fields if field not in text)])
