"""Convert the bytes of a document to text, by format. Formats other than text become Markdown whose headings show the
document's structure. No external resource is fetched, and every size is bounded.
"""

import importlib
from collections.abc import Callable

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents.charset import decoded
from anamnesis_pipeline.parsing.documents.languages import format_of

__all__ = ["MAX_JSON_CHARS", "MAX_TEXT_CHARS", "format_of", "to_text"]

MAX_TEXT_CHARS = 4_000_000
"""The rest of a longer text is left out, with a note at the end."""
MAX_JSON_CHARS = 64_000_000
"""JSON is read whole or not at all, since a part is not JSON; an export of all chats is one file."""


def to_text(path: str, data: bytes) -> str:
    """Return the text of the document at `path` with the bytes `data`; lines end in line feeds.

    :raises DocumentUnreadable: the bytes do not have the format of the name, are encrypted, damaged, binary or empty,
        or the parser is not installed.
    """
    fmt = format_of(path)
    if fmt is None:
        raise DocumentUnreadable(f"{path}: no document of a format that is read")
    if not data.strip():
        raise DocumentUnreadable(f"{path}: the file is empty")
    try:
        text = _converted(fmt, data)
    except DocumentUnreadable as exc:
        raise DocumentUnreadable(f"{path}: {exc}") from exc
    except ImportError as exc:
        raise DocumentUnreadable(f"{path}: the library that reads .{fmt} is not installed ({exc.name})") from exc
    except Exception as exc:  # parsers raise any exception on damaged files
        raise DocumentUnreadable(f"{path}: it is damaged, or not of this format ({type(exc).__name__})") from exc
    if fmt == "json":
        if len(text) > MAX_JSON_CHARS:
            raise DocumentUnreadable(f"{path}: {len(text)} characters of JSON, more than {MAX_JSON_CHARS}; split it")
        return text
    if len(text) <= MAX_TEXT_CHARS:
        return text
    left = len(text) - MAX_TEXT_CHARS
    return f"{text[:MAX_TEXT_CHARS]}\n\n[{left} more characters of this document were left out]\n"


def _converted(fmt: str, data: bytes) -> str:
    if fmt not in _CONVERTERS:
        return decoded(data)
    module, function = _CONVERTERS[fmt]
    convert: Callable[[bytes], str] = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    return convert(data)


_CONVERTERS = {
    "doc": ("word_files", "doc_text"),
    "docx": ("word_files", "docx_text"),
    "eml": ("mail", "eml_text"),
    "html": ("web_pages", "html_text"),
    "mbox": ("mail", "mbox_text"),
    "notebook": ("plain", "notebook_text"),
    "ods": ("open_document", "ods_text"),
    "odt": ("open_document", "odt_text"),
    "pages": ("open_document", "pages_text"),
    "pdf": ("pdf", "pdf_text"),
    "rtf": ("word_files", "rtf_text"),
    "xls": ("spreadsheets", "xls_text"),
    "xlsx": ("spreadsheets", "xlsx_text"),
}
"""Format -> module and function, imported for the first such document: its library is large."""
