"""Split code into sections by function and class: an outline to search, and the code itself to read."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from anamnesis_pipeline.model import Section, SectionPiece, SegmentKind
from anamnesis_pipeline.parsing.code.definitions import CodeFile, Definition, read_code
from anamnesis_pipeline.parsing.documents.anchors import TOP, told_apart

LONG_CLASS_LINES = 150
"""In a longer class, long methods get separate sections."""
LONG_METHOD_LINES = 15
MIN_CHARS = 30
"""A shorter definition stays in the head of its file."""
MAX_LISTED_CHARS = 100
"""Limit for each of imports, constants and names in the outline of a file."""
_DEFINES = "defines "
_BETWEEN_NAMES = ", "


def code_sections(path: str, language: str, text: str) -> list[Section]:
    """Return the head of a file of code, then each function and class; empty if no grammar can parse it.

    The head also holds everything between the definitions, so that nothing is lost.
    """
    lines = text.split("\n")
    code = read_code(language, text)
    if code is None or not code.definitions:
        return []
    large = [
        definition
        for definition in code.definitions
        if sum(len(line) + 1 for line in lines[definition.start : definition.end + 1]) >= MIN_CHARS
    ]
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    found = [_head(path, name, language, code, large, lines)]
    for definition in large:
        found += _of_definition(definition, name, language, lines)
    anchors = told_apart(section.anchor for section in found)
    return [replace(section, anchor=anchor) for section, anchor in zip(found, anchors, strict=True)]


def _head(path: str, name: str, language: str, code: CodeFile, large: list[Definition], lines: list[str]) -> Section:
    outline = [path, code.doc]
    told = [name for name in code.imports if name not in sys.stdlib_module_names and name not in path.split("/")]
    for word, names in (("imports", told), ("constants", code.constants)):
        if names:
            outline.append(f"{word} {_listed(names)}")
    # Separate sections are named after large definitions; in an undocumented file, these names are its description.
    elsewhere = set(large) if code.doc else frozenset()
    named = [found.names[-1] for found in code.definitions if not found.private and found not in elsewhere]
    if named:
        outline.append(f"{_DEFINES}{_listed(named)}")
    taken = {line for definition in large for line in range(definition.start, definition.end + 1)}
    rest = [line for line in range(len(lines)) if line not in taken]
    last = max(1, min(definition.start for definition in code.definitions))
    found = _section(TOP, (name,), language, "\n".join(part for part in outline if part), rest, lines)
    return replace(found, first_line=1, last_line=last)


def _of_definition(definition: Definition, name: str, language: str, lines: list[str]) -> Iterator[Section]:
    is_long = definition.end - definition.start >= LONG_CLASS_LINES
    own = [member for member in definition.members if is_long and member.end - member.start >= LONG_METHOD_LINES]
    taken = {line for member in own for line in range(member.start, member.end + 1)}
    rest = [line for line in range(definition.start, definition.end + 1) if line not in taken]
    title = (name, *definition.names)
    found = _section(".".join(definition.names), title, language, _outline(definition, own), rest, lines)
    yield replace(found, first_line=definition.start + 1, last_line=definition.end + 1)
    for member in own:
        yield from _of_definition(member, name, language, lines)


def _outline(definition: Definition, own: list[Definition]) -> str:
    outer = ".".join(definition.names[:-1])
    said = f"{definition.signature}: {definition.doc}" if definition.doc else definition.signature
    said = definition.names[-1] if definition.private else said
    lines = [f"{outer}.{said}" if outer else said]
    for member in definition.members:
        if not member.private:
            lines.append(member.names[-1] if member in own else _in_short(member))
            lines += [f"  {inner.names[-1]}" for inner in member.members if member not in own and not inner.private]
    return "\n".join(lines)


def outline_without(outline: str, title: Sequence[str], gone: Set[tuple[str, ...]]) -> str:
    """Return the outline of a remaining section without the names of removed definitions: those in its list, and its
    outer ones. Names in its own text stay.

    :param title: of the section, the name of the file first.
    :param gone: paths of the definitions, without the name of the file.
    """
    way, lines = tuple(title[1:]), outline.split("\n")
    if not way:
        return "\n".join([*lines[:-1], *_defines_without(lines[-1], {names[-1] for names in gone if names})])
    left = [name for n, name in enumerate(way[:-1], 1) if way[:n] not in gone]
    first, own = lines[0].removeprefix(f"{'.'.join(way[:-1])}."), {names[-1] for names in gone if names[:-1] == way}
    return "\n".join([".".join([*left, first]), *(line for line in lines[1:] if line not in own)])


def _defines_without(line: str, gone: Set[str]) -> list[str]:
    """Return the line that lists the definitions of a file; empty if none is left."""
    if not line.startswith(_DEFINES):
        return [line]
    left = [name for name in line.removeprefix(_DEFINES).split(_BETWEEN_NAMES) if name not in gone]
    return [f"{_DEFINES}{_BETWEEN_NAMES.join(left)}"] if left else []


def _in_short(definition: Definition) -> str:
    """Return a definition's documentation, or its parameters if it has none."""
    return f"{definition.names[-1]}: {definition.doc}" if definition.doc else definition.signature


def _text_of(numbers: Sequence[int], lines: list[str]) -> str:
    """Return the lines `numbers`. Each gap becomes one blank line, regardless of the blank lines around it, so that the
    text stays the same when another definition is inserted.
    """
    kept: list[str] = []
    is_behind_gap = False
    for place, number in enumerate(numbers):
        is_behind_gap |= place > 0 and number != numbers[place - 1] + 1
        is_blank = not lines[number].strip()
        if is_behind_gap and kept and is_blank == (not kept[-1].strip()):
            if is_blank:
                continue
            kept.append("")
        is_behind_gap = False
        kept.append(lines[number])
    return "\n".join(kept).strip("\n")


def _spans(numbers: Iterable[int], lines: list[str]) -> tuple[tuple[int, int], ...]:
    """Return a character span for each run of the lines `numbers`, without its last line feed."""
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return tuple((starts[first], starts[end] - 1) for first, end in runs)


def _section(
    anchor: str, title: tuple[str, ...], language: str, outline: str, numbers: Sequence[int], lines: list[str]
) -> Section:
    """Return the section of the lines `numbers`; the caller selects the lines to show."""
    pieces = [SectionPiece(SegmentKind.OUTLINE, outline)]
    code = _text_of(numbers, lines)
    if code.strip():
        pieces.append(SectionPiece(SegmentKind.CODE, code))
    return Section(anchor, title, tuple(pieces), 1, len(lines), "code", language, _spans(numbers, lines))


def _listed(names: Sequence[str]) -> str:
    text = _BETWEEN_NAMES.join(names)
    return text if len(text) <= MAX_LISTED_CHARS else text[:MAX_LISTED_CHARS].rsplit(_BETWEEN_NAMES, 1)[0] + ", …"
