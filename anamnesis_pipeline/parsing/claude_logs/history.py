"""`history.jsonl`: the prompt history. Claude Code never deletes it, so it outlives the transcripts.

An entry is `{display, pastedContents, timestamp (ms), project (a directory), sessionId}`; all but `display` may be
missing. Each is a separate exchange. A prompt that is in a transcript is an occurrence here, see `identity`.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from anamnesis_pipeline.model import Message, Part, SegmentKind, said_at
from anamnesis_pipeline.parsing.claude_logs import identity
from anamnesis_pipeline.parsing.claude_logs.chunking import Cutter, exchange_of
from anamnesis_pipeline.parsing.claude_logs.log_lines import Record
from anamnesis_pipeline.parsing.claude_logs.message_keys import forgotten_typed, nearest_typed
from anamnesis_pipeline.parsing.claude_logs.own_text import is_own_request
from anamnesis_pipeline.parsing.claude_logs.parser import (
    Advance,
    Batch,
    FileOrigin,
    FileState,
    Found,
    read_messages,
    times_after,
)
from anamnesis_pipeline.parsing.claude_logs.records import LoggedMessage

_PASTED = re.compile(r"\[Pasted text #(\d+)[^\]\n]*\]")
_SLASH_COMMAND = re.compile(r"/[a-zA-Z][\w:.-]*(?:\s|$)")


def read_history(lines: Iterable[str], first_line: int) -> Batch:
    """Read entries of the history; `first_line` is the number of the first line in its archive."""
    return read_messages(lines, first_line, _read_entry)


def advance_history(
    state: FileState,
    batch: Batch,
    known: Collection[str],
    claims: Mapping[str, Mapping[str, str]],
    origin: FileOrigin,
    *,
    label: Callable[[str], str],
) -> Advance:
    """Return one closed chunk per new prompt, several if it is long; its ordinal is its line number.

    :param claims: see `MessageRecords.claims_near`; each of these messages takes one entry, the nearest in time.
    """
    found = Found(known)
    said = nearest_typed({entry: near for entry, near in claims.items() if entry not in known})
    parts: list[Part] = []
    spoken_at = state.last_timestamp
    for logged, later in zip(batch.messages, times_after(batch.messages), strict=True):
        when = logged.message.timestamp or spoken_at or later
        spoken_at = logged.message.timestamp or spoken_at
        if found.is_copy(logged):
            found.add_copy(logged, origin.path)
        elif logged.message.key in said:
            found.add_said(logged, said[logged.message.key], origin.path)
        else:
            found.add(logged)
            placed = replace(logged, message=replace(logged.message, timestamp=when))
            parts += _parts(placed, origin, label(logged.cwd))
    state = replace(state, line=state.line + batch.lines, last_timestamp=spoken_at)
    return found.advance(state, tuple(parts), None)


def _parts(logged: LoggedMessage, origin: FileOrigin, project: str) -> list[Part]:
    exchange = exchange_of(logged.message, None, in_subagent=False)
    template = Part(
        part_id="",
        source=origin.source,
        path=origin.path,
        session_id=logged.session_id,
        exchange_id=exchange.exchange_id,
        ordinal=logged.line,
        kind="exchange",
        project=project,
        cwd=logged.cwd,
        prompt=exchange.prompt,
        segments=(),
        closed=False,
    )
    cutter = Cutter(None, timedelta())
    cutter.add(logged.message, template, "")
    cutter.close()
    return cutter.finished


def _read_entry(entry: Record, line: int, skipped: Counter[str]) -> list[LoggedMessage]:
    display = entry.get("display")
    if not isinstance(display, str):
        skipped["history:no prompt"] += 1
        return []
    text = _with_pasted_texts(display, entry.get("pastedContents"))
    if is_own_request(text):
        skipped["own:summarizer"] += 1
        return []
    if not text or text.isspace():
        return []
    session, cwd = _text(entry.get("sessionId")), _text(entry.get("project"))
    when = _moment(entry.get("timestamp"))
    key = identity.typed_once(session, cwd, text, when)
    kind = SegmentKind.COMMAND if _SLASH_COMMAND.match(text) or text.startswith("!") else SegmentKind.PROMPT
    message = Message(key, "", kind, text, said_at(when))
    return [LoggedMessage(message, line, session, cwd, "", sidechain=False, seen_as=(forgotten_typed(key),))]


def _with_pasted_texts(display: str, contents: Any) -> str:
    """Return `display` with each `[Pasted text #n ...]` replaced by its text if the entry holds it."""
    pasted = contents if isinstance(contents, dict) else {}

    def text_of(placeholder: re.Match[str]) -> str:
        entry = pasted.get(placeholder[1])
        content = entry.get("content") if isinstance(entry, dict) else None
        return content if isinstance(content, str) else placeholder[0]

    return _PASTED.sub(text_of, display)


def _moment(milliseconds: Any) -> datetime | None:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
