"""Code -> sections by function and class: an outline, which is searched, and the code itself, which is read."""

import sys
from collections.abc import Iterator, Sequence

from anamnesis_pipeline.document_model import Section, SectionPiece
from anamnesis_pipeline.documents.anchors import TOP, told_apart
from anamnesis_pipeline.documents.definitions_in_code import CodeFile, Definition, read_code
from anamnesis_pipeline.model import SegmentKind

LONG_CLASS_LINES = 150
"""Of a longer class, the long methods are sections of their own."""
LONG_METHOD_LINES = 15
LEAST_CHARS = 30
"""A definition with fewer characters stays in the head of its file."""
MOST_LISTED_CHARS = 120
"""Of imports, constants and names of a file in its outline, each."""


def code_sections(path: str, language: str, text: str) -> list[Section]:
    """The head of a file of code, then each function and class; empty if no grammar reads it.

    The head holds also what is between the definitions, so that nothing is lost.
    """
    lines = text.split("\n")
    code = read_code(language, text)
    if code is None or not code.definitions:
        return []
    large = [definition for definition in code.definitions if _span_chars(definition, lines) >= LEAST_CHARS]
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    found = [_head(path, name, language, code, large, lines)]
    for definition in large:
        found += _of_definition(definition, name, language, lines)
    anchors = told_apart(section.anchor for section in found)
    return [_named(section, anchor) for section, anchor in zip(found, anchors, strict=True)]


def _named(section: Section, anchor: str) -> Section:
    return Section(
        anchor, section.title, section.pieces, section.first_line, section.last_line, section.kind, section.language
    )


def _span_chars(definition: Definition, lines: list[str]) -> int:
    return sum(len(line) + 1 for line in lines[definition.start : definition.end + 1])


def _head(path: str, name: str, language: str, code: CodeFile, large: list[Definition], lines: list[str]) -> Section:
    outline = [f"{path} ({language})", code.doc]
    told = [name for name in code.imports if name not in sys.stdlib_module_names and name not in path.split("/")]
    for word, names in (("imports", told), ("constants", code.constants)):
        if names:
            outline.append(f"{word} {_listed(names)}")
    public = [definition.names[-1] for definition in code.definitions if not definition.private]
    if public:
        outline.append(f"defines {_listed(public)}")
    taken = {line for definition in large for line in range(definition.start, definition.end + 1)}
    rest = _without(range(len(lines)), taken, lines)
    first = min(definition.start for definition in code.definitions)
    return _section(TOP, (name,), language, "\n".join(part for part in outline if part), rest, 1, max(1, first))


def _of_definition(definition: Definition, name: str, language: str, lines: list[str]) -> Iterator[Section]:
    own = _sections_of_their_own(definition)
    taken = {line for member in own for line in range(member.start, member.end + 1)}
    text = _without(range(definition.start, definition.end + 1), taken, lines)
    yield _section(
        ".".join(definition.names), (name, *definition.names), language, _outline(definition, own), text,
        definition.start + 1, definition.end + 1,
    )  # fmt: skip
    for member in own:
        yield from _of_definition(member, name, language, lines)


def _sections_of_their_own(definition: Definition) -> list[Definition]:
    if definition.end - definition.start < LONG_CLASS_LINES:
        return []
    return [member for member in definition.members if member.end - member.start >= LONG_METHOD_LINES]


def _outline(definition: Definition, own: list[Definition]) -> str:
    outer = ".".join(definition.names[:-1])
    said = _in_short(definition) if definition.private else _said(definition)
    lines = [f"{outer}.{said}" if outer else said]
    for member in definition.members:
        lines.append(member.names[-1] if member in own or member.private else _in_short(member))
        lines += [f"  {inner.names[-1]}" for inner in member.members if member not in own]
    return "\n".join(lines)


def _said(definition: Definition) -> str:
    return f"{definition.signature}: {definition.doc}" if definition.doc else definition.signature


def _in_short(definition: Definition) -> str:
    """What a definition is for; only if nobody wrote it down, and others may call it, what it takes."""
    if definition.doc:
        return f"{definition.names[-1]}: {definition.doc}"
    return definition.names[-1] if definition.private else definition.signature


def _without(numbers: range, taken: set[int], lines: list[str]) -> str:
    """The lines `numbers` that are not taken by sections of their own; one blank line where some are."""
    kept: list[str] = []
    gap = False
    for number in numbers:
        if number in taken:
            gap = True
            continue
        if gap and kept and kept[-1].strip() and lines[number].strip():
            kept.append("")
        gap = False
        kept.append(lines[number])
    return "\n".join(kept).strip("\n")


def _section(
    anchor: str, title: tuple[str, ...], language: str, outline: str, code: str, first: int, last: int
) -> Section:
    pieces = [SectionPiece(SegmentKind.OUTLINE, outline)]
    if code.strip():
        pieces.append(SectionPiece(SegmentKind.CODE, code))
    return Section(anchor, title, tuple(pieces), first, last, "code", language)


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= MOST_LISTED_CHARS else text[:MOST_LISTED_CHARS].rsplit(", ", 1)[0] + ", …"
