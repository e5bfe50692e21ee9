"""Find the functions and classes of a file of code, with their signatures and documentation."""

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from anamnesis_pipeline.parsing.code.grammars import GRAMMARS, Grammar
from anamnesis_pipeline.parsing.code.names import body_of, constant_names, function_value, imported, name_of
from anamnesis_pipeline.parsing.code.signatures import (
    comments_above,
    docstring,
    head,
    last_row,
    leading_comments,
    said_in,
    signature,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

MAX_CODE_BYTES = 1 << 20
"""Longer files are generated; they are read as text."""
MAX_ERRORS = 0.2
"""A file with a larger share of syntax errors is read as text."""
MAX_PARSE_S = 3.0
_MAX_DEPTH = 24
_AROUND = frozenset({"decorated_definition", "export_statement", "template_declaration", "ambient_declaration"})
"""Nodes that belong to the definition inside them."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class: lines [start, end] counted from 0, inclusive, with the comment and decorators above it.

    `names` is the path to it, outermost first. `members` of a class are its methods and nested classes.
    """

    names: tuple[str, ...]
    signature: str
    doc: str
    start: int
    end: int
    members: tuple["Definition", ...] = ()

    @property
    def private(self) -> bool:
        """Return whether its name marks it as private to its file."""
        return self.names[-1].rsplit(".", 1)[-1].startswith(("_", "#"))


@dataclass(frozen=True, slots=True)
class CodeFile:
    """The definitions of a file, in order, and the content of its head."""

    doc: str = ""
    definitions: tuple[Definition, ...] = ()
    imports: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()


def read_code(language: str, text: str) -> CodeFile | None:
    """Return the definitions of the file `text`; None if no grammar can parse it."""
    grammar = GRAMMARS.get(language)
    data = text.encode("utf-8", "replace")
    if grammar is None or len(data) > MAX_CODE_BYTES:
        return None
    tree = _parsed(language, data)
    if tree is None:
        return None
    root = tree.root_node
    errors = sum(node.end_byte - node.start_byte for node in root.children if node.is_error)
    if root.is_error or errors > MAX_ERRORS * len(data):
        return None
    found = _Found()
    _look(root, _types(grammar), (), found, 0)
    doc = docstring(root) or said_in(leading_comments(root))
    return CodeFile(doc, tuple(found.definitions), _once(found.imports), _once(found.constants))


def _parsed(language: str, data: bytes) -> "Tree | None":
    """Return the syntax tree; None if the parser needs more than 3 s, where code of 1 MB takes 0.1 s.

    Text that is not code of the language can take quadratic time. Only a parser that reads its text by callback can be
    stopped, and only a tree parsed from the whole text has node texts: parse the first way, then the second.
    """
    parser = _parser(language)
    ends = time.monotonic() + MAX_PARSE_S

    def too_late(_offset: int, _has_error: bool) -> bool:
        return time.monotonic() > ends

    try:
        parser.parse(lambda offset, _point: data[offset : offset + (1 << 16)], progress_callback=too_late)
    except ValueError:
        parser.reset()
        return None
    return parser.parse(data)


@lru_cache(maxsize=32)
def _parser(name: str) -> "Parser":
    from tree_sitter_language_pack import get_parser

    return get_parser(name)  # type: ignore[arg-type]


@dataclass(slots=True)
class _Found:
    definitions: list[Definition] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Types:
    """The words of a grammar's table as sets. Nodes with syntax errors are searched, too."""

    definitions: frozenset[str]
    classes: frozenset[str]
    through: frozenset[str]
    scopes: frozenset[str]
    imports: frozenset[str]
    constants: frozenset[str]
    values: frozenset[str]
    members: frozenset[str]


@lru_cache(maxsize=32)
def _types(grammar: Grammar) -> _Types:
    return _Types(
        frozenset((grammar.functions + " " + grammar.classes).split()),
        frozenset(grammar.classes.split()),
        frozenset({*grammar.through.split(), "ERROR"}),
        frozenset(grammar.scopes.split()),
        frozenset(grammar.imports.split()),
        frozenset(grammar.constants.split()),
        frozenset(grammar.values.split()),
        frozenset(grammar.members.split()),
    )


def _look(
    parent: "Node", types: _Types, above: tuple[str, ...], found: _Found, depth: int, outer: "Node | None" = None
) -> None:
    """Collect the definitions among the children of `parent`; `outer` is the node around it, if part of one."""
    for node in parent.named_children:
        kind = node.type
        if kind in types.definitions:
            found.definitions.append(_definition(node, outer or node, types, above, depth))
        elif kind in types.values and (value := function_value(node)):
            found.definitions.append(_named_value(value, outer or node, above))
        elif kind in types.imports:
            found.imports += imported(node)
        elif kind in types.constants:
            found.constants += constant_names(node)
        elif depth < _MAX_DEPTH and kind in types.scopes:
            _look(body_of(node) or node, types, (*above, name_of(node)), found, depth + 1)
        elif depth < _MAX_DEPTH and kind in types.through:
            _look(node, types, above, found, depth + 1, (outer or node) if kind in _AROUND else None)


def _definition(node: "Node", outer: "Node", types: _Types, above: tuple[str, ...], depth: int) -> Definition:
    names = (*above, name_of(node) or "(unnamed)")
    body = body_of(node)
    comments = comments_above(outer)
    doc = (docstring(body) if body is not None else "") or said_in(comments)
    inside = node.type in types.classes and body is not None and depth < _MAX_DEPTH
    members = _members(body, types, names, depth) if inside and body is not None else ()
    start = comments[0].start_point.row if comments else outer.start_point.row
    return Definition(names, signature(node, outer), doc, start, last_row(outer), members)


def _named_value(value: "tuple[str, Node]", outer: "Node", above: tuple[str, ...]) -> Definition:
    comments = comments_above(outer)
    start = comments[0].start_point.row if comments else outer.start_point.row
    name, node = value
    shown = signature(node, node).removeprefix("(unnamed)")
    shown = f"{name}{shown}" if shown.startswith("(") else f"{name} = {shown}"
    return Definition((*above, name), shown, said_in(comments), start, last_row(outer))


def _members(body: "Node", types: _Types, names: tuple[str, ...], depth: int) -> tuple[Definition, ...]:
    found = _Found()
    _look(body, types, names, found, depth + 1)
    fields = [
        Definition((*names, name_of(node) or "(unnamed)"), head(node), "", node.start_point.row, last_row(node))
        for node in body.named_children
        if node.type in types.members
    ]
    return tuple(sorted([*found.definitions, *fields], key=lambda member: member.start))


def _once(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
