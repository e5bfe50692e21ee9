"""The text of a document -> its titled sections, by format. Pure."""

from anamnesis_pipeline.document_model import Section
from anamnesis_pipeline.documents.code import code_sections
from anamnesis_pipeline.documents.config_files import config_section
from anamnesis_pipeline.documents.headings import intercom_headings, markdown_headings, rst_headings
from anamnesis_pipeline.documents.languages import CODE_FORMATS, CONFIG_FORMATS, CONVERTED, format_of
from anamnesis_pipeline.documents.outlined import sections_under, untitled

LEAST_CHARS = 30
"""Fewer characters of text say nothing, and make no section."""

_LIKE_MARKDOWN = (frozenset(CONVERTED) | {"markdown"}) - {"doc", "rtf"}


def sections_of(path: str, text: str) -> list[Section]:
    """The sections of the document at `path`, in the order of the text.

    Together they hold all of it that says something. A section whose text and titles did not change keeps its anchor
    when others are added, changed, moved or removed. `text` is what `formats.to_text` gave.
    """
    fmt = format_of(path) or "text"
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    if len(text.strip()) < LEAST_CHARS:
        return []
    found = _sections(fmt, path, name, text)
    return [section for section in found if section.kind == "code" or _size(section) >= LEAST_CHARS]


def _sections(fmt: str, path: str, name: str, text: str) -> list[Section]:
    if "intercom" in name.lower() and (messages := intercom_headings(text)):
        return sections_under(messages, name, text, merge=False)
    if fmt in _LIKE_MARKDOWN:
        return sections_under(markdown_headings(text), name, text)
    if fmt == "rst":
        return sections_under(rst_headings(text), name, text)
    if fmt in CODE_FORMATS and (found := code_sections(path, fmt, text)):
        return found
    if fmt in CONFIG_FORMATS and (config := config_section(path, fmt, text)):
        return [config]
    return untitled(name, text)


def _size(section: Section) -> int:
    return sum(len(piece.text.strip()) for piece in section.pieces)
