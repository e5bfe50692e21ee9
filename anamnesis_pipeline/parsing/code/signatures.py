"""A definition's signature and documentation, shortened to a tenth of its code."""

import re
from typing import TYPE_CHECKING

from anamnesis_pipeline.parsing.code.names import body_of, name_of, parameters_of, verbatim, words

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_SIGNATURE_CHARS = 120
MAX_DOC_CHARS = 72
MAX_COMMENTS = 50


def signature(node: "Node", outer: "Node") -> str:
    """Return name and parameters of a function, without types; of anything else the text up to its body. Add the first
    decorator with a text argument, such as a route, shortened to that argument.
    """
    decorators = [words(child) for child in outer.named_children if child.type == "decorator"]
    said = [f"{found.group()})" for text in decorators if (found := _ROUTE.match(text))][:1]
    parameters = parameters_of(node)
    if parameters is None or node.type.startswith(("class", "record")):
        return " ".join([*said, head(node)])
    return " ".join([*said, f"{name_of(node)}({_short(', '.join(parameters), MAX_SIGNATURE_CHARS)})"])


def head(node: "Node") -> str:
    """Return the text of a node up to its body, on one line, at most 120 characters."""
    data = node.text or b""
    body = body_of(node)
    if body is not None and node.start_byte < body.start_byte <= node.end_byte:
        data = data[: body.start_byte - node.start_byte]
    else:
        data = data[: 4 * MAX_SIGNATURE_CHARS].split(b"{")[0]
    text = " ".join(data.decode("utf-8", "replace").split()).rstrip(" {:=;")
    return _short(text.removesuffix("=>").rstrip(), MAX_SIGNATURE_CHARS)


def docstring(body: "Node") -> str:
    """Return the first sentence of a Python docstring."""
    first = next((child for child in body.named_children if "comment" not in child.type), None)
    if first is not None and first.type == "expression_statement" and first.named_child_count == 1:
        first = first.named_children[0]
    if first is None or first.type != "string":
        return ""
    return first_sentence(verbatim(first).lstrip("rRuUbB").strip("\"'"))


def comments_above(node: "Node") -> list["Node"]:
    """Return the comments that end on the line before `node`, without a blank line between."""
    found: list[Node] = []
    row = node.start_point.row
    before = node.prev_named_sibling
    while before is not None and "comment" in before.type and len(found) < MAX_COMMENTS:
        earlier = before.prev_named_sibling
        behind_something = earlier is not None and last_row(earlier) == before.start_point.row
        if not row - 1 <= last_row(before) <= row or behind_something:
            break
        found.insert(0, before)
        row = before.start_point.row
        before = earlier
    return found


def leading_comments(root: "Node") -> list["Node"]:
    """Return the comments that a file begins with, unless they belong to its first definition."""
    found: list[Node] = []
    for node in root.named_children:
        if "comment" not in node.type:
            of_definition = bool(found) and node.start_point.row <= last_row(found[-1]) + 1
            return [] if of_definition and "import" not in node.type else found
        found.append(node)
        if len(found) == MAX_COMMENTS:
            break
    return found


def last_row(node: "Node") -> int:
    """Return the last line of a node, from 0; a final line feed does not count as the next line."""
    end = node.end_point
    return end.row - 1 if end.column == 0 and end.row > node.start_point.row else end.row


_ROUTE = re.compile(r"@[\w.]{1,40}\(\s*([\"'])[^\"']{1,60}\1")
"""A decorator up to its first text, such as the path of a route."""
_MARK = re.compile(r"^\s*(?:/\*+!?|\*+/|\*|//[/!]*|#+!?|--+)?\s?")
_TAG = re.compile(r"</?\w+[^>]*>")
_NOTHING = ("/usr/bin", "/bin/", "SPDX", "-*-", "eslint", "noqa")


def said_in(comments: list["Node"]) -> str:
    """Return the first sentence of comments, without comment markers."""
    lines = [_MARK.sub("", line) for node in comments for line in verbatim(node).split("\n")]
    kept = [line.replace("*/", "").rstrip() for line in lines if not line.startswith(_NOTHING)]
    return first_sentence(_TAG.sub("", "\n".join(kept)))


def first_sentence(text: str) -> str:
    """Return the first sentence of the first paragraph, at most 72 characters."""
    paragraph = re.split(r"\n\s*(?:\n|[@:]\w|Args:|Parameters\n)", text.strip(), maxsplit=1)[0]
    sentence = re.split(r"(?<=[.:;!?])\s", " ".join(paragraph.split()), maxsplit=1)[0]
    return _short(sentence.rstrip(".:;"), MAX_DOC_CHARS)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0].rstrip(",") + "…"
