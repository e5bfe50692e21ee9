"""Which lines hold what is to be forgotten: of the archive, and of logs that are read later. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.exchanges.history import read_history
from anamnesis_pipeline.exchanges.log_lines import read_records
from anamnesis_pipeline.exchanges.parsing import read_messages
from anamnesis_pipeline.exchanges.records import stands_for
from anamnesis_pipeline.message_keys import RESULT_KEY
from anamnesis_pipeline.model import Part, content_id

EMPTY_LINE = "{}"
"""What stays of a forgotten line, so that the lines behind it keep their numbers."""
TELLING_CHARS = 20
"""A shorter text says nothing of where it comes from."""
_ENVELOPE = frozenset(
    "cwd sessionId uuid parentUuid leafUuid messageId timestamp version gitBranch type slug requestId toolUseID".split()
)
"""Fields of every record: what they hold may well occur in a text, and is no copy of it."""


@dataclass(frozen=True, slots=True)
class ForgottenText:
    """What parts say, by message key. Texts of one message are joined, as far as they are consecutive."""

    texts: tuple[str, ...]
    whole: str = field(init=False)

    def __post_init__(self) -> None:
        """Join the texts once: whoever asks `holds` does so for every line."""
        object.__setattr__(self, "whole", "\n\0\n".join(self.texts))

    @property
    def text_keys(self) -> set[str]:
        """Of the texts that are long enough to be told by."""
        return {text_key(text) for text in self.texts if len(text) >= TELLING_CHARS}

    def holds(self, text: str) -> bool:
        """Whether `text`, a lead or a prompt's head, was taken from it."""
        return bool(text) and text in self.whole

    def is_quoted_in(self, text: str) -> bool:
        """Whether `text` is a copy of something of it, or holds one."""
        if len(text) < TELLING_CHARS:
            return False
        return text in self.whole or any(t in text for t in self.texts if len(t) >= TELLING_CHARS)


def text_of(parts: Iterable[Part]) -> ForgottenText:
    """Everything that these parts say."""
    said: dict[str, list[tuple[int, str]]] = {}
    for part in parts:
        for segment in part.segments:
            said.setdefault(segment.message_key, []).append((segment.start, segment.text))
    return ForgottenText(tuple("".join(text for _, text in sorted(pieces)) for pieces in said.values()))


@dataclass(frozen=True, slots=True)
class LineRule:
    """Which lines of one file go.

    :param keys: message keys, aliases included, that are forgotten.
    :param said: what their messages say.
    :param emptied: nothing that was said in this file stays, so neither does what surrounds it.
    :param known: those of some keys that belong to messages that are stored.
    """

    keys: frozenset[str]
    said: ForgottenText
    known: Callable[[Sequence[str]], set[str]]
    is_history: bool = False
    emptied: bool = False

    def goes(self, line: str) -> bool:
        """Whether the line holds something to forget."""
        if line == EMPTY_LINE:
            return False
        names = names_on(line, is_history=self.is_history)
        if names & self.keys:
            return True
        if names and self.known(sorted(names)):
            return False
        if names and not any(name.startswith(RESULT_KEY) for name in names):
            return self.emptied
        # no message, or a result that was left out: what this memory answered quotes what it was asked for
        return self.emptied or any(map(self.said.is_quoted_in, _texts_on(line)))

    def changed(self, lines: Sequence[str]) -> list[str]:
        """The lines, with `EMPTY_LINE` for each that goes."""
        return [EMPTY_LINE if self.goes(line) else line for line in lines]


def without_forgotten(
    lines: Sequence[str], file: str, forgotten: Callable[[Sequence[str]], set[str]], *, is_history: bool
) -> list[str]:
    """Lines of a log that is read now, with `EMPTY_LINE` for each that was forgotten before: logs come back, from
    backups or from other machines.

    :param file: `file_key` of the log.
    :param forgotten: those of some keys that a tombstone forbids.
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
    """What a tombstone names a log by of which nothing stays."""
    return f"file:{content_id(source, path)}"


def text_key(text: str) -> str:
    """What a tombstone names a text by, wherever it stands in a log."""
    return f"text:{content_id(text.strip())}"


def names_on(line: str, *, is_history: bool) -> set[str]:
    """Every key by which a message on this line is known."""
    batch = (read_history if is_history else read_messages)([line], 0)
    return {name for logged in batch.messages for name in (*logged.names, *stands_for(logged))}


def _texts_on(line: str) -> Iterator[str]:
    """The texts of a line that holds no message: of its records, or of what cannot be read."""
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
