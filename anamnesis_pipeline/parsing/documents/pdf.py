"""The text of PDF files."""

import ctypes
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.model import Section
from anamnesis_pipeline.parsing.documents.anchors import anchor_of, told_apart
from anamnesis_pipeline.parsing.documents.plain import as_markdown

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

MAX_PAGES = 2_000
MAX_CHARS = 4_000_000
MAX_ANNOTATIONS = 2_000
"""Limit per page."""
MAX_ANNOTATION_BYTES = 1 << 20

_one_at_a_time = threading.Lock()
"""PDFium is not thread-safe."""
_PAGE = re.compile(r"\A\s*## Page [0-9]+\s*")
_BROKEN_WORD = re.compile("[\ufffe\x02]\r?\n?")


def pdf_text(data: bytes) -> str:
    """Return a heading `## Page <n>` per page, and its text with its comments and filled-in fields.

    :raises DocumentUnreadable: it is no PDF, is encrypted, or holds no text, as a scan does.
    """
    import pypdfium2

    if b"%PDF" not in data[:1024]:
        raise DocumentUnreadable("it does not begin as a PDF does")
    with _one_at_a_time:
        try:
            document = pypdfium2.PdfDocument(data)
        except pypdfium2.PdfiumError as exc:
            locked = "password" in str(exc).lower()
            raise DocumentUnreadable("it is encrypted" if locked else f"it is damaged ({exc})") from exc
        try:
            pages = _pages(document)
        finally:
            document.close()
    if not any(pages):
        raise DocumentUnreadable("it holds no text; it may be a scan")
    return "\n\n".join(f"## Page {number}\n\n{text}" for number, text in enumerate(pages, 1) if text)


def without_page_numbers(found: Sequence[Section]) -> list[Section]:
    """Return the sections of `pdf_text` with the page number in the title only: text and anchor do not change when a
    page is inserted before.
    """
    anchors = told_apart(anchor_of(("Page", *section.title[2:])) for section in found)
    return [
        replace(
            section,
            anchor=anchor,
            pieces=tuple(replace(piece, text=_PAGE.sub("", piece.text, count=1)) for piece in section.pieces),
        )
        for section, anchor in zip(found, anchors, strict=True)
    ]


def _pages(document: "PdfDocument") -> list[str]:
    pages: list[str] = []
    room = MAX_CHARS
    for number in range(min(len(document), MAX_PAGES)):
        text = _page(document, number)
        pages.append(text)
        room -= len(text)
        if room < 0:
            break
    if len(pages) < len(document):
        pages.append(f"[{len(document) - len(pages)} more pages were left out]")
    return pages


def _page(document: "PdfDocument", number: int) -> str:
    """Return the text of one page, empty if that page is damaged."""
    from pypdfium2 import PdfiumError

    try:
        page = document[number]
        words = page.get_textpage()
        text = words.get_text_bounded()
    except PdfiumError:
        return ""
    noted = _annotations(page)
    words.close()
    page.close()
    return as_markdown("\n\n".join([_BROKEN_WORD.sub("", text), *noted]))


def _annotations(page: "PdfPage") -> list[str]:
    """Return the annotations of a page, and its filled-in fields: `name: value`."""
    from pypdfium2 import raw

    found = []
    for number in range(min(raw.FPDFPage_GetAnnotCount(page), MAX_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        if not annotation:
            continue
        is_field = raw.FPDFAnnot_GetSubtype(annotation) == raw.FPDF_ANNOT_WIDGET
        name = _string(annotation, b"T") if is_field else "comment"
        value = _string(annotation, b"V" if is_field else b"Contents")
        raw.FPDFPage_CloseAnnot(annotation)
        if value:
            found.append(f"{name}: {value}" if is_field else f"[{name}: {value}]")
    return list(dict.fromkeys(found))


def _string(annotation: Any, key: bytes) -> str:
    """Return a text of an annotation, on one line."""
    from pypdfium2 import raw

    size = raw.FPDFAnnot_GetStringValue(annotation, key, None, 0)
    if not 2 < size <= MAX_ANNOTATION_BYTES:
        return ""
    buffer = ctypes.create_string_buffer(size)
    raw.FPDFAnnot_GetStringValue(annotation, key, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), size)
    return " ".join(buffer.raw[:size].decode("utf-16-le", "replace").split("\0")[0].split())
