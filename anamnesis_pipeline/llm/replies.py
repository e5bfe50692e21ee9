"""Parsing of LLM replies into summaries; tolerates prose and fences around the JSON, and bad records. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from anamnesis_pipeline.errors import LlmAnswerInvalid
from anamnesis_pipeline.model import MAX_RECORDS, RecordType, TypedRecord

FALLBACK_CHARS = 1_000
"""Characters kept of a reply without our JSON."""
MAX_SUMMARY_CHARS = 2_000
MAX_RECORD_CHARS = 1_000
MAX_WHY_CHARS = 300
MAX_TAGS = 8
MAX_TAG_CHARS = 40
MAX_MESSAGE_IDS = 12
MAX_READ_CHARS = 100_000
MAX_OPENINGS = 50
"""Max opening braces at which a JSON object is searched."""

_TAG_NOISE = re.compile(r"[^\w.+#/-]+")
_SKIP = re.compile(r"\W*SKIP\W*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A parsed reply. With `skip`, all else is empty."""

    text: str
    tags: tuple[str, ...] = ()
    records: tuple[TypedRecord, ...] = ()
    skip: bool = False


_Items = Annotated[list[Any], BeforeValidator(lambda value: value if isinstance(value, list) else [])]


class _Reply(BaseModel):
    skip: bool = False
    summary: str = ""
    tags: _Items = []
    records: _Items = []


class _Record(BaseModel):
    type: RecordType
    text: str = Field(min_length=1)
    why: str = ""
    messages: _Items = []


def parse_reply(reply: str, message_ids: Sequence[str], *, strict: bool = False) -> ParsedReply:
    """Parse a reply to a prompt whose message number n is the record `message_ids` [n - 1].

    Without our JSON, the reply's first 1,000 characters are the summary. Records of an unknown type, without text or
    without an existing message are dropped, and all after the third.
    :param strict: require our JSON.
    :raises LlmAnswerInvalid: the reply or its summary is blank, or `strict` is violated.
    """
    if not reply.strip():
        raise LlmAnswerInvalid("the LLM answered with nothing; it is asked again later")
    if _SKIP.fullmatch(reply):
        return ParsedReply("", skip=True)
    answer = _find_answer(reply[:MAX_READ_CHARS])
    if answer is None and strict:
        raise LlmAnswerInvalid("the LLM answered with something other than the JSON it was asked for")
    if answer is None:
        return ParsedReply(_line(reply, FALLBACK_CHARS))
    if answer.skip:
        return ParsedReply("", skip=True)
    if not answer.summary.strip():
        raise LlmAnswerInvalid("the LLM answered with an empty summary; it is asked again later")
    records = [record for item in answer.records if (record := _record(item, message_ids))]
    return ParsedReply(_line(answer.summary, MAX_SUMMARY_CHARS), _tags(answer.tags), tuple(records[:MAX_RECORDS]))


def _find_answer(text: str) -> _Reply | None:
    decoder = json.JSONDecoder()
    for opening in list(re.finditer(r"\{", text))[:MAX_OPENINGS]:
        try:
            found, _ = decoder.raw_decode(text, opening.start())
            if found.keys() & {"summary", "skip"}:
                return _Reply.model_validate(found)
        except (ValueError, RecursionError):  # ValidationError is a ValueError
            continue
    return None


def _record(item: Any, message_ids: Sequence[str]) -> TypedRecord | None:
    try:
        record = _Record.model_validate(item)
    except ValidationError:
        return None
    numbers = sorted({number for item in record.messages if (number := _number(item, len(message_ids)))})
    text = _line(record.text, MAX_RECORD_CHARS)
    if not numbers or not text:
        return None
    ids = dict.fromkeys(message_ids[number - 1] for number in numbers)
    sources = tuple(uuid for uuid in ids if uuid)[:MAX_MESSAGE_IDS]
    return TypedRecord(record.type, text, _line(record.why, MAX_WHY_CHARS), sources)


def _number(item: Any, most: int) -> int:
    """Return a message number written as 3, "3" or "[3]"; 0 if no message has it."""
    digits = str(item).strip("[] ") if isinstance(item, int | str) and not isinstance(item, bool) else ""
    number = int(digits) if re.fullmatch(r"[0-9]{1,6}", digits) else 0
    return number if number <= most else 0


def _tags(items: Sequence[Any]) -> tuple[str, ...]:
    tags = (_TAG_NOISE.sub("-", item.lower()).strip("-./")[:MAX_TAG_CHARS] for item in items if isinstance(item, str))
    return tuple(dict.fromkeys(tag for tag in tags if re.search(r"\w", tag)))[:MAX_TAGS]


def _line(text: str, most: int) -> str:
    """Return `text` on one line, without NULs and lone surrogates, cut at a word if too long."""
    flat = " ".join(text.replace("\0", "").encode("utf-8", "replace").decode("utf-8").split())
    return flat if len(flat) <= most else flat[: most - 1].rsplit(" ", 1)[0] + "…"
