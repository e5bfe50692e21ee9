"""Tool outputs that Claude Code moved out of a transcript: text files, each the result of one call.

A record keeps a preview, which determines the message's key. Whether the file exists when the record is read decides
only which text is stored, never whether there are two messages.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from anamnesis_pipeline.model import FileCursor, content_id
from anamnesis_pipeline.parsing.claude_logs import identity
from anamnesis_pipeline.parsing.claude_logs.blocks import result_text, without_runs
from anamnesis_pipeline.parsing.claude_logs.log_lines import has_too_many_values
from anamnesis_pipeline.parsing.claude_logs.own_text import without_memory
from anamnesis_pipeline.parsing.claude_logs.parser import read_messages
from anamnesis_pipeline.parsing.claude_logs.records import LoggedMessage
from anamnesis_pipeline.parsing.redaction.masking import masks_in
from anamnesis_pipeline.sources.base import TOOL_RESULTS, output_name

LONGEST_OUTPUT = 50 << 20
"""Max bytes of a file that becomes the text of a result. A longer one is archived, and the preview stays."""

NO_LINE = ""
"""Replacement of a forgotten line of an output."""

_RUN = 10_000
"""Lines joined at a time."""
_NAMED = re.compile(rf"{TOOL_RESULTS}[/\\]+([\w.-]+)")


def outputs_of(cursors: Iterable[FileCursor]) -> dict[str, FileCursor]:
    """Return `output_name` -> file, for archived outputs."""
    return {name: cursor for cursor in cursors if cursor.lines and (name := output_name(cursor.path))}


def names_of_output(logged: LoggedMessage) -> tuple[str, ...]:
    """Return the names of a result's output: in the session that had it first, and in its own session, as in a copy."""
    if not logged.moved_to:
        return ()
    file_name = re.split(r"[/\\]", logged.moved_to)[-1]
    places = (logged.moved_to, f"{logged.session_id}/{TOOL_RESULTS}/{file_name}")
    return tuple(filter(None, map(output_name, places)))


def names_on_line(line: str) -> set[str]:
    """Return the names of outputs of the results on a log line."""
    if TOOL_RESULTS not in line:
        return set()
    return {name for logged in read_messages([line], 0).messages for name in names_of_output(logged)}


def output_key(path: str) -> str:
    """Return the tombstone key of an output, independent of its session's location."""
    return f"output:{content_id(output_name(path) or path)}"


def characters_named(line: str, sizes: Mapping[str, int]) -> int:
    """Return the max characters that the results on a line may have in output files. `sizes`: file name -> bytes."""
    if not sizes or TOOL_RESULTS not in line:
        return 0
    return sum(sizes.get(name, 0) for name in set(_NAMED.findall(line)))


def with_whole_text(
    logged: LoggedMessage,
    outputs: Mapping[str, FileCursor],
    read: Callable[[FileCursor, int], Iterable[str]],
    skipped: Counter[str],
) -> LoggedMessage:
    """Return the message with the archived file's text in place of its preview; count what is left out in `skipped`."""
    cursor = next((outputs[name] for name in names_of_output(logged) if name in outputs), None)
    if cursor is None or cursor.offset > LONGEST_OUTPUT:
        return logged
    text, own = without_memory(without_runs(_text(cursor.path, read(cursor, 0))))
    skipped["own:memory"] += own
    if not text or text.isspace():
        return logged
    agent = logged.spawned  # its answer is identified by its text
    claims = (identity.answer_as_result(agent, text), identity.answer_as_said(agent, text)) if agent else ()
    return replace(logged, message=replace(logged.message, text=text), claims=claims)


def _text(path: str, lines: Iterable[str]) -> str:
    """Join lines in runs: a list of all of them may take ten times the memory of their text."""
    left = iter(lines)
    text = "\n".join("\n".join(run) for run in iter(lambda: list(islice(left, _RUN)), []))
    return _of_blocks(text) if path.endswith(".json") else text


def _of_blocks(text: str) -> str:
    """Return the text of JSON content blocks; any other text unchanged."""
    if has_too_many_values(text):
        return text
    try:
        blocks = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return result_text(blocks) if isinstance(blocks, list) else text


def masked_together(
    mask: Callable[[str], tuple[str, Counter[str]]],
    lines: Sequence[str],
    before: Sequence[str] = (),
    after: Sequence[str] = (),
) -> tuple[list[str], Counter[str]]:
    """Return the lines with their secrets masked, those across several lines included, always the same number of lines;
    and the number of secrets of each kind that begin in them.

    :param before, after: surrounding lines, so that a secret may begin or end there.
    """
    masked, found = mask("\n".join((*before, *lines, *after)))
    if not found:
        return list(lines), found
    every = masked.split("\n")
    every += [NO_LINE] * (len(before) + len(lines) + len(after) - len(every))
    inside = every[len(before) : len(before) + len(lines)]
    if before or after:
        found &= masks_in("\n".join(inside)) - masks_in("\n".join(lines))
    return inside, found
