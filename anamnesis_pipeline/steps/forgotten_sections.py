"""What of a document is to be forgotten: in its archive, and in copies that are read later. Pure."""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from anamnesis_pipeline.document_model import Section
from anamnesis_pipeline.documents.sections import sections_of
from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.message_keys import SECTION_KEY, section_key
from anamnesis_pipeline.steps.tool_outputs import NO_LINE
from anamnesis_pipeline.store.base import Store


def has_forgotten_sections(store: Store) -> bool:
    """Whether some section of a document was ever deleted; cheap."""
    return store.forgetting.has_forgotten(SECTION_KEY)


def without_forgotten_sections(
    path: str, lines: Sequence[str], forgotten: Callable[[Sequence[str]], set[str]]
) -> list[str]:
    """The lines of a document without the text of sections that were forgotten; as many lines.

    :param forgotten: those of some keys that a tombstone forbids.
    :raises DocumentUnreadable: no sections can be made of it.
    """
    try:
        sections = sections_of(path, "\n".join(lines))
    except Exception as problem:  # parsers raise whatever fits the damage
        raise DocumentUnreadable(f"{path}: no sections could be made of it: {problem!r}") from problem
    gone = forgotten(sorted({key for section in sections for key in keys_of(section)}))
    return _without(lines, [s for s in sections if gone.issuperset(keys_of(s))])


def without_sections(path: str, lines: Sequence[str], keys: Collection[str]) -> list[str]:
    """The lines of a document without the text of sections all of whose pieces have some of `keys`; as many lines."""
    sections = sections_of(path, "\n".join(lines))
    return _without(lines, [s for s in sections if all(key in keys for key in keys_of(s))])


def keys_of(section: Section) -> list[str]:
    """Keys of its pieces, in order."""
    return [section_key(piece.text) for piece in section.pieces]


def _without(lines: Sequence[str], sections: Sequence[Section]) -> list[str]:
    """Lines keep their numbers. A chat's turn goes out of the JSON that it is in, anything else with its lines."""
    said = [piece.text for s in sections if s.kind == "exchange" for piece in s.pieces]
    left = _emptied(lines, (s for s in sections if s.kind != "exchange"))
    if not said:
        return left
    try:
        chat = json.loads("\n".join(left))
    except (ValueError, RecursionError):
        return _emptied(left, sections)
    kept = json.dumps(_unsaid(chat, said), ensure_ascii=False)
    return [kept, *[NO_LINE] * (len(lines) - 1)]


def _unsaid(value: Any, said: Sequence[str]) -> Any:
    """A JSON value without the texts that something of `said` is made of."""
    if isinstance(value, str):
        text = value.strip()
        return "" if text and any(text == each.strip() or (len(text) > 20 and text in each) for each in said) else value
    if isinstance(value, list):
        return [_unsaid(item, said) for item in value]
    return {name: _unsaid(item, said) for name, item in value.items()} if isinstance(value, dict) else value


def _emptied(lines: Sequence[str], sections: Iterable[Section]) -> list[str]:
    left = list(lines)
    for section in sections:
        left[section.first_line - 1 : section.last_line] = [NO_LINE] * (section.last_line - section.first_line + 1)
    return left
