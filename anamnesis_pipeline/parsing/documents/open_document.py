"""OpenDocument texts and spreadsheets (.odt, .ods), and Apple's .pages."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents import packed
from anamnesis_pipeline.parsing.documents.pdf import pdf_text
from anamnesis_pipeline.parsing.documents.plain import as_markdown, heading, row, tidy

if TYPE_CHECKING:
    from lxml.etree import _Element

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_CREATOR = "{http://purl.org/dc/elements/1.1/}creator"
_SKIPPED = frozenset({f"{_TEXT}tracked-changes", f"{_OFFICE}forms", f"{_TEXT}sequence-decls"})
"""For tracked changes, the deleted text: insertions are in the document."""
_APART = frozenset({f"{_DRAW}text-box", f"{_TABLE}table"})
"""Blocks inside a paragraph or cell that are output behind it."""
AT_THE_EDGE = "Headers and footers"
"""The heading of headers and footers."""
_BLANKS = {f"{_TEXT}tab": "\t", f"{_TEXT}line-break": "\n"}
MAX_CELLS = 500_000
MAX_REPEATS = 64
"""Limit of copies of a repeated cell with content."""


def odt_text(data: bytes) -> str:
    """Return the paragraphs, headings, lists, tables and text boxes of an .odt, in order, as Markdown, then its headers
    and footers. Notes and comments are at their place.
    """
    body = _body(data)
    return tidy("\n\n".join([*_blocks(body), *_around_pages(data)]))


def ods_text(data: bytes) -> str:
    """Return a heading per sheet and a line per row."""
    blocks: list[str] = []
    room = MAX_CELLS
    for table in _body(data).iter(f"{_TABLE}table"):
        lines = [line for line in _rows(table, room) if line]
        room -= sum(line.count(" | ") + 1 for line in lines)
        blocks += [heading(1, table.get(f"{_TABLE}name", "Sheet")), "\n".join(lines)]
    return tidy("\n\n".join(blocks))


def pages_text(data: bytes) -> str:
    """Return the text of a .pages: of its saved preview, or of the XML of older versions."""
    archive = packed.opened(data)
    names = archive.namelist()
    preview = next((name for name in names if name.lower().endswith("preview.pdf")), None)
    if preview:
        return pdf_text(packed.member(archive, preview))
    if "index.xml" in names:
        return as_markdown("\n".join(_parsed(packed.member(archive, "index.xml")).itertext()))
    raise DocumentUnreadable("it holds no preview; save it in Pages with one, or export it as PDF")


def _body(data: bytes) -> "_Element":
    archive = packed.opened(data)
    if b"manifest:encryption-data" in packed.member(archive, "META-INF/manifest.xml"):
        raise DocumentUnreadable("it is protected by a password")
    body = _parsed(packed.member(archive, "content.xml")).find(f"{_OFFICE}body")
    if body is None:
        raise DocumentUnreadable("its content.xml has no body")
    return body


def _parsed(xml: bytes) -> "_Element":
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    return etree.fromstring(xml, parser)


def _blocks(parent: "Iterable[_Element]") -> Iterator[str]:
    for node in parent:
        if node.tag == f"{_TEXT}h":
            yield heading(int(node.get(f"{_TEXT}outline-level", "1")), _inline(node))
            yield from _inside(node)
        elif node.tag == f"{_TEXT}p":
            yield as_markdown(_inline(node))
            yield from _inside(node)
        elif node.tag == f"{_TEXT}list-item":
            yield "\n".join(f"- {block}" for block in _blocks(node) if block)
        elif node.tag == f"{_TABLE}table":
            yield "\n".join(line for line in _rows(node, MAX_CELLS) if line)
            yield from (block for inner in _rows_of(node) for cell in inner for block in _inside(cell))
        elif isinstance(node.tag, str) and node.tag not in _SKIPPED:
            yield from _blocks(node)


def _inside(node: "_Element") -> Iterator[str]:
    """Yield the text boxes and tables inside a paragraph or cell."""
    for child in node:
        if child.tag == f"{_TABLE}table":
            yield from _blocks([child])
        elif child.tag == f"{_DRAW}text-box":
            yield from _blocks(child)
        elif isinstance(child.tag, str) and child.tag not in _SKIPPED:
            yield from _inside(child)


def _around_pages(data: bytes) -> Iterator[str]:
    archive = packed.opened(data)
    if "styles.xml" not in archive.namelist():
        return
    styles = _parsed(packed.member(archive, "styles.xml"))
    parts = [part for page in styles.iter(f"{_STYLE}master-page") for part in page if isinstance(part.tag, str)]
    edges = [part for part in parts if part.tag.startswith((f"{_STYLE}header", f"{_STYLE}footer"))]
    blocks = dict.fromkeys(block for part in edges for block in _blocks(part))
    said = [block for block in blocks if any(character.isalpha() for character in block)]
    yield from [heading(1, AT_THE_EDGE), *said] if said else ()


def _note(node: "_Element") -> str:
    """Return a footnote or comment, at its place."""
    author = node.findtext(_CREATOR, "") if node.tag == f"{_OFFICE}annotation" else ""
    body = node.find(f"{_TEXT}note-body")
    text = " ".join(" ".join(_blocks(node if body is None else body)).split())
    name = (
        str(node.get(f"{_TEXT}note-class", "note")) if body is not None else f"comment by {author}".removesuffix(" by ")
    )
    return f" [{name}: {text}]" if text else ""


def _inline(node: "_Element") -> str:
    """Yield the text of a paragraph, without that of its boxes."""
    text = node.text or ""
    for child in node:
        if child.tag == f"{_TEXT}s":
            text += " " * min(int(child.get(f"{_TEXT}c", "1")), 100)
        elif child.tag in _BLANKS:
            text += _BLANKS[child.tag]
        elif child.tag in {f"{_TEXT}note", f"{_OFFICE}annotation"}:
            text += _note(child)
        elif isinstance(child.tag, str) and child.tag not in _SKIPPED | _APART:
            text += _inline(child)
        text += child.tail or ""
    return text


def _rows(table: "_Element", room: int) -> Iterator[str]:
    for table_row in _rows_of(table):
        line = as_markdown(row(_cells(table_row)))
        room -= line.count(" | ") + 1
        if room < 0:
            yield "[the rest of this table was left out]"
            return
        yield line


def _rows_of(parent: "_Element") -> "Iterator[_Element]":
    """Yield the rows of a table, including those in groups and in its head, but not of nested tables."""
    for node in parent:
        if node.tag == f"{_TABLE}table-row":
            yield node
        elif isinstance(node.tag, str) and node.tag.startswith((f"{_TABLE}table-row", f"{_TABLE}table-header-rows")):
            yield from _rows_of(node)


def _paragraphs(parent: "_Element") -> "Iterator[_Element]":
    for node in parent:
        if node.tag in {f"{_TEXT}p", f"{_TEXT}h"}:
            yield node
        elif isinstance(node.tag, str) and node.tag not in _SKIPPED | _APART | {f"{_OFFICE}annotation"}:
            yield from _paragraphs(node)


def _cells(table_row: "_Element") -> list[str]:
    """Return the cells of a row; a repeated one is copied at most MAX_REPEATS times."""
    cells: list[str] = []
    for cell in table_row:
        text = "\n".join(_inline(part) for part in _paragraphs(cell))
        text += "".join(_note(comment) for comment in cell.findall(f"{_OFFICE}annotation"))
        times = int(cell.get(f"{_TABLE}number-columns-repeated", "1"))
        cells += [text] * min(times, MAX_REPEATS)
    return cells
