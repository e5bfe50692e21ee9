"""Word's documents: .docx, .doc and .rtf.

A .docx is read block by block, including text boxes, content controls, nested tables, notes, comments, headers and
footers, with tracked changes accepted.
"""

import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents import packed
from anamnesis_pipeline.parsing.documents.plain import as_markdown, heading, heading_level, row, tidy

if TYPE_CHECKING:
    from docx.opc.part import Part

ANTIWORD_S = 30
"""Timeout of antiword for one document."""
MAX_RTF_BYTES = 16 << 20
AT_THE_EDGE = "Headers and footers"
"""The heading of headers and footers."""

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_MATH_TEXT = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
_GONE = frozenset({f"{_W}del", f"{_W}moveFrom", f"{_MC}Fallback", f"{_W}sdtPr", f"{_W}pPr", f"{_W}rPr", f"{_W}sectPr"})
_BLANKS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_NOTES = {
    f"{_W}footnoteReference": "footnotes",
    f"{_W}endnoteReference": "endnotes",
    f"{_W}commentReference": "comments",
}


def docx_text(data: bytes) -> str:
    """Return the content of a .docx as Markdown."""
    packed.opened(data).close()
    return tidy("\n\n".join(_docx_blocks(data)))


def doc_text(data: bytes) -> str:
    """Return the text of a .doc, read by antiword; a file of another format with that name is read as what it is."""
    if data.lstrip().startswith(b"{\\rtf"):
        return rtf_text(data)
    if data.startswith(b"PK"):
        return docx_text(data)
    antiword = shutil.which("antiword")
    if not antiword:
        raise DocumentUnreadable("the command antiword, which reads .doc, is not installed")
    with tempfile.NamedTemporaryFile(suffix=".doc") as copy:
        copy.write(data)
        copy.flush()
        command = [antiword, "-m", "UTF-8.txt", "-w", "0", copy.name]
        try:
            done = subprocess.run(command, capture_output=True, timeout=ANTIWORD_S, check=False)
        except subprocess.TimeoutExpired as exc:
            raise DocumentUnreadable(f"antiword did not read it within {ANTIWORD_S} s") from exc
    if done.returncode or not done.stdout.strip():
        problem = (done.stderr or done.stdout).decode("utf-8", "replace").replace(copy.name, "it").strip()
        raise DocumentUnreadable(f"antiword cannot read it: {problem[:200]}")
    return tidy(done.stdout.decode("utf-8", "replace"))


def rtf_text(data: bytes) -> str:
    """Return the text of an .rtf, without its pictures."""
    if not data.lstrip().startswith(b"{\\rtf"):
        raise DocumentUnreadable("it does not begin as RTF does")
    from striprtf.striprtf import rtf_to_text

    data = re.sub(rb"[0-9a-fA-F\r\n]{2000,}", b"", data)  # pictures
    if len(data) > MAX_RTF_BYTES:
        raise DocumentUnreadable(f"it has {len(data)} bytes without its pictures; at most {MAX_RTF_BYTES} are read")
    text: str = rtf_to_text(data.decode("latin-1"), errors="ignore")  # type: ignore[no-untyped-call]
    return tidy(text)


# --- the blocks of a .docx -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Word:
    """Style names by ID, and the texts of notes and comments by kind and ID."""

    styles: dict[str, str] = field(default_factory=dict)
    notes: dict[tuple[str, str], str] = field(default_factory=dict)


def _docx_blocks(data: bytes) -> Iterator[str]:
    """Yield paragraphs, headings and tables as Markdown, in order; notes and comments are at their place."""
    import docx

    document = docx.Document(io.BytesIO(data))
    word = _Word({style.style_id: style.name or "" for style in document.styles})
    parts = [
        (rel.reltype.rsplit("/", 1)[-1], rel.target_part) for rel in document.part.rels.values() if not rel.is_external
    ]
    for kind, part in parts:
        if kind in _NOTES.values():
            word.notes.update(_notes(kind, part))
    yield from _blocks(document.element.body, word)
    edges = [block for kind, part in parts if kind in {"header", "footer"} for block in _blocks(_root(part), word)]
    said = [block for block in dict.fromkeys(edges) if any(character.isalpha() for character in block)]
    if said:
        yield heading(1, AT_THE_EDGE)
        yield from said


def _root(part: "Part") -> Any:
    from docx.oxml import parse_xml

    return parse_xml(part.blob)


def _notes(kind: str, part: "Part") -> Iterator[tuple[tuple[str, str], str]]:
    for note in _root(part):
        text = " ".join(" ".join(_blocks(note, _Word())).split())
        author = note.get(f"{_W}author", "")
        if text and note.get(f"{_W}type", "normal") == "normal":
            name = f"comment by {author}" if author else kind.removesuffix("s")
            yield (kind, note.get(f"{_W}id", "")), f" [{name}: {text}]"


def _blocks(parent: Any, word: _Word) -> Iterator[str]:
    for node in parent:
        if node.tag == f"{_W}p":
            yield _paragraph(node, word)
            for box in _boxes(node):
                yield from _blocks(box, word)
        elif node.tag == f"{_W}tbl":
            yield from _table(node, word)
        elif isinstance(node.tag, str) and node.tag not in _GONE:  # content controls, insertions
            yield from _blocks(node, word)


def _paragraph(node: Any, word: _Word) -> str:
    style = node.find(f"{_W}pPr/{_W}pStyle")
    name = word.styles.get(style.get(f"{_W}val", ""), "") if style is not None else ""
    text = "".join(_inline(node, word))
    level = heading_level(name)
    if level and text.strip():
        return heading(level, text)
    return f"- {as_markdown(text)}" if name.startswith("List") and text.strip() else as_markdown(text)


def _inline(parent: Any, word: _Word) -> Iterator[str]:
    """Yield the text of a paragraph, without that of its boxes."""
    for node in parent:
        if node.tag in (f"{_W}t", _MATH_TEXT):
            yield node.text or ""
        elif node.tag in _BLANKS:
            yield _BLANKS[node.tag]
        elif node.tag in _NOTES:
            yield word.notes.get((_NOTES[node.tag], node.get(f"{_W}id", "")), "")
        elif isinstance(node.tag, str) and node.tag not in _GONE and node.tag != f"{_W}txbxContent":
            yield from _inline(node, word)


def _boxes(parent: Any) -> Iterator[Any]:
    """Yield the text boxes in a paragraph; of a box in two forms, for newer and older programs, the first."""
    for node in parent:
        if node.tag == f"{_W}txbxContent":
            yield node
        elif isinstance(node.tag, str) and node.tag not in _GONE:
            yield from _boxes(node)


def _table(table: Any, word: _Word) -> Iterator[str]:
    """Yield a table, then the tables and boxes inside its cells."""
    lines: list[str] = []
    inside: list[str] = []
    for table_row in _inner(table, "tr"):
        cells: list[str] = []
        for cell in _inner(table_row, "tc"):
            span = cell.find(f"{_W}tcPr/{_W}gridSpan")
            wide = int(span.get(f"{_W}val", "1")) if span is not None else 1
            paragraphs = list(_inner(cell, "p"))
            text = "\n".join("".join(_inline(paragraph, word)) for paragraph in paragraphs)
            cells += [text, *[""] * min(wide - 1, 63)]
            inside += [block for nested in _inner(cell, "tbl") for block in _table(nested, word)]
            inside += [block for paragraph in paragraphs for box in _boxes(paragraph) for block in _blocks(box, word)]
        lines.append(as_markdown(row(cells)))
    yield "\n".join(line for line in lines if line)
    yield from inside


def _inner(parent: Any, name: str) -> Iterator[Any]:
    """Yield the rows of a table, cells of a row or paragraphs of a cell, also in content controls and insertions."""
    for node in parent:
        if node.tag == _W + name:
            yield node
        elif isinstance(node.tag, str) and node.tag not in _GONE and node.tag not in {f"{_W}p", f"{_W}tbl"}:
            yield from _inner(node, name)
