"""Find the text of a document to forget, in its archive and in copies that are read later. Pure."""

import json
from collections.abc import Callable, Collection, Sequence
from functools import partial

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.model import Part, Section, SectionPiece, SegmentKind
from anamnesis_pipeline.parsing.claude_logs.message_keys import chat_message_key, section_body_key, section_key
from anamnesis_pipeline.parsing.documents.blocks import GAP
from anamnesis_pipeline.parsing.documents.chats import without_messages
from anamnesis_pipeline.parsing.documents.sections import sections_of
from anamnesis_pipeline.pipeline.tool_outputs import NO_LINE

DOCUMENT = "document"
"""Kind of a text section, as opposed to code and chats."""


def without_forgotten_sections(
    path: str, lines: Sequence[str], going: Callable[[Sequence[Section], str], Sequence[Section]]
) -> list[str]:
    """Return the lines of a document without the text of forgotten sections; their number stays the same.

    :param going: returns the given sections that tombstones forbid; its second argument is the document's text.
    :raises DocumentUnreadable: it cannot be split into sections.
    """
    return _without(lines, going(_sections(path, lines), "\n".join(lines)))


def without_sections(path: str, lines: Sequence[str], keys: Collection[str]) -> list[str]:
    """Return the lines of a document without sections whose whole text has keys in `keys`; their number stays the same.

    :raises DocumentUnreadable: it cannot be split into sections.
    """
    return _without(lines, [s for s in _sections(path, lines) if goes(s, keys)])


def _sections(path: str, lines: Sequence[str]) -> list[Section]:
    try:
        return sections_of(path, "\n".join(lines))
    except Exception as problem:  # parsers raise many kinds of errors
        raise DocumentUnreadable(f"{path}: no sections could be made of it: {problem!r}") from problem


def keys_of(section: Section) -> list[str]:
    """Return keys of its pieces, in order, of messages rejected in favour of one of them, and of its body."""
    return [*(key_of(section, piece) for piece in section.pieces), *_keys_turned_away(section), *_body_keys(section)]


def body_keys_of(part: Part) -> list[str]:
    """Return the key of a document section's body, if that is long enough to identify it."""
    is_text = part.section is not None and part.kind == DOCUMENT
    key = section_body_key(segment.text for segment in part.segments) if is_text else None
    return [key] if key else []


def _body_keys(section: Section) -> list[str]:
    key = section_body_key(piece.text for piece in section.pieces) if section.kind == DOCUMENT else None
    return [key] if key else []


def key_of(section: Section, piece: SectionPiece) -> str:
    """Return the key of a piece: of a chat message its id in the export, else of its text."""
    return chat_message_key(section.session, piece.message_id) if piece.message_id else section_key(piece.text)


def _keys_turned_away(section: Section) -> list[str]:
    return [chat_message_key(section.session, name) for name in section.turned_away]


def goes(section: Section, gone: Collection[str]) -> bool:
    """Return whether all of its text is forgotten. Outlines do not count: they depend on other sections. In a chat one
    message is enough, since later messages refer to it; a rejected one counts too. In a text the body is enough, under
    any heading.
    """
    named = [key_of(section, piece) for piece in section.pieces if piece.message_id]
    if any(key in gone for key in (*named, *_keys_turned_away(section), *_body_keys(section))):
        return True
    written = [key_of(section, piece) for piece in section.pieces if piece.kind is not SegmentKind.OUTLINE]
    return all(key in gone for key in written or map(partial(key_of, section), section.pieces))


def _without(lines: Sequence[str], sections: Sequence[Section]) -> list[str]:
    """Remove sections; lines keep their numbers. Chat turns are removed from their JSON, others by characters."""
    if not sections:
        return list(lines)
    messages = [way for section in sections for way in section.values]
    if messages:
        kept = json.dumps(without_messages(json.loads("\n".join(lines)), messages), ensure_ascii=False)
        return [kept, *[NO_LINE] * (len(lines) - 1)]
    spans: list[tuple[int, int, str]] = []
    for section in sections:
        # a gap for a piece of a longer text leaves the other pieces unchanged
        mark = GAP if section.spans and section.kind == DOCUMENT else NO_LINE
        spans += [(start, end, mark) for start, end in spans_of(section, lines)]
    text, left, at = "\n".join(lines), list[str](), 0
    for start, end, mark in sorted(spans):
        left += [text[at:start], mark, "\n" * text.count("\n", max(at, start), end)]
        at = max(at, end)
    return "".join([*left, text[at:]]).split("\n")


def spans_of(section: Section, lines: Sequence[str]) -> Sequence[tuple[int, int]]:
    """Return the character spans [start, end) of a section in a document's text."""
    if section.spans:
        return section.spans
    start = sum(len(line) + 1 for line in lines[: section.first_line - 1])
    return [(start, start + len("\n".join(lines[section.first_line - 1 : section.last_line])))]
