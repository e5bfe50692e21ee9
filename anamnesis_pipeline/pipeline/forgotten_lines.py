"""Find the lines to forget, in the archive and in logs that are read later. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.model import Part, content_id
from anamnesis_pipeline.parsing.claude_logs.history import read_history
from anamnesis_pipeline.parsing.claude_logs.log_lines import read_records
from anamnesis_pipeline.parsing.claude_logs.message_keys import RESULT_KEY
from anamnesis_pipeline.parsing.claude_logs.parser import read_messages
from anamnesis_pipeline.parsing.claude_logs.records import stands_for

EMPTY_LINE = "{}"
"""Replaces a forgotten line, so that the lines after it keep their numbers."""
TELLING_CHARS = 20
"""Minimum length of a text that identifies its origin."""
_ENVELOPE = frozenset(
    "cwd sessionId uuid parentUuid leafUuid messageId timestamp version gitBranch type slug requestId toolUseID".split()
)
"""Fields of every record; their values may well occur in a text without being a copy of it."""


@dataclass(frozen=True, slots=True)
class ForgottenText:
    """Text of chunks, by message key. Consecutive texts of one message are joined."""

    texts: tuple[str, ...]
    whole: str = field(init=False)

    def __post_init__(self) -> None:
        """Join the texts once: `holds` is called for every line."""
        object.__setattr__(self, "whole", "\n\0\n".join(self.texts))

    @property
    def text_keys(self) -> set[str]:
        """Return the keys of the texts long enough to identify."""
        return {text_key(text) for text in self.texts if len(text) >= TELLING_CHARS}

    def holds(self, text: str) -> bool:
        """Return whether `text`, a lead or a prompt's beginning, was taken from it."""
        return bool(text) and text in self.whole

    def is_quoted_in(self, text: str) -> bool:
        """Return whether `text` is a copy of some of it, or contains one."""
        if len(text) < TELLING_CHARS:
            return False
        return text in self.whole or any(t in text for t in self.texts if len(t) >= TELLING_CHARS)


def text_of(parts: Iterable[Part]) -> ForgottenText:
    """Return the text of these chunks."""
    said: dict[str, list[tuple[int, str]]] = {}
    for part in parts:
        for segment in part.segments:
            said.setdefault(segment.message_key, []).append((segment.start, segment.text))
    return ForgottenText(tuple("".join(text for _, text in sorted(pieces)) for pieces in said.values()))


@dataclass(frozen=True, slots=True)
class LineRule:
    """Rule for the lines of one file to remove.

    :param keys: forgotten message keys, aliases included.
    :param said: the text of their messages.
    :param emptied: no message of this file remains, so the lines around messages are removed too.
    :param known: returns the given keys that belong to stored messages.
    """

    keys: frozenset[str]
    said: ForgottenText
    known: Callable[[Sequence[str]], set[str]]
    is_history: bool = False
    emptied: bool = False

    def goes(self, line: str) -> bool:
        """Return whether the line holds forgotten content."""
        if line == EMPTY_LINE:
            return False
        names = names_on(line, is_history=self.is_history)
        if names & self.keys:
            return True
        if names and self.known(sorted(names)):
            return False
        if names and not any(name.startswith(RESULT_KEY) for name in names):
            return self.emptied
        # no message, or a result that was left out: answers of this memory quote its content
        return self.emptied or any(map(self.said.is_quoted_in, _texts_on(line)))

    def changed(self, lines: Sequence[str]) -> list[str]:
        """Return the lines, with `EMPTY_LINE` for each to remove."""
        return [EMPTY_LINE if self.goes(line) else line for line in lines]


def without_forgotten(
    lines: Sequence[str], file: str, forgotten: Callable[[Sequence[str]], set[str]], *, is_history: bool
) -> list[str]:
    """Return newly read lines of a log, with `EMPTY_LINE` for each forgotten before: logs return from backups or from
    other machines.

    :param file: `file_key` of the log.
    :param forgotten: returns the given keys that a tombstone forbids.
    """
    names = [names_on(line, is_history=is_history) for line in lines]
    texts = [set() if found else set(map(text_key, _texts_on(line))) for line, found in zip(lines, names, strict=True)]
    gone = forgotten(sorted({file}.union(*names, *texts)))
    if not gone:
        return list(lines)
    return [
        EMPTY_LINE if (its & gone or text & gone or (file in gone and not its)) else line
        for line, its, text in zip(lines, names, texts, strict=True)
    ]


def file_key(source: str, path: str) -> str:
    """Return the tombstone key of a log of which nothing remains."""
    return f"file:{content_id(source, path)}"


def text_key(text: str) -> str:
    """Return the tombstone key of a text, for any place in a log."""
    return f"text:{content_id(text.strip())}"


def names_on(line: str, *, is_history: bool) -> set[str]:
    """Return every key of the messages on this line."""
    batch = (read_history if is_history else read_messages)([line], 0)
    return {name for logged in batch.messages for name in (*logged.names, *stands_for(logged))}


def _texts_on(line: str) -> Iterator[str]:
    """Yield the texts of a line without messages: of its records, or of unreadable content."""
    records, damaged = read_records(line)
    for record in records:
        yield from _leaves(record)
    if damaged:
        yield line.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _ENVELOPE:
                yield from _leaves(item)
