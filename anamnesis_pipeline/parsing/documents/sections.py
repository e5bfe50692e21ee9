"""Split the text of a document into titled sections, by format. Pure."""

import re
from collections.abc import Mapping
from dataclasses import replace

from anamnesis_pipeline.model import Section, Trust
from anamnesis_pipeline.parsing.code.sections import code_sections
from anamnesis_pipeline.parsing.documents.chats import chat_sections, is_chat_export
from anamnesis_pipeline.parsing.documents.headings import intercom_headings, markdown_headings, rst_headings
from anamnesis_pipeline.parsing.documents.json_items import config_sections, item_sections
from anamnesis_pipeline.parsing.documents.languages import CODE_FORMATS, CONFIG_FORMATS, CONVERTED, format_of
from anamnesis_pipeline.parsing.documents.outlined import sections_under, untitled
from anamnesis_pipeline.parsing.documents.pdf import without_page_numbers
from anamnesis_pipeline.parsing.documents.trust import trust_of

MIN_CHARS = 30
"""A shorter document gets no section, unless it is a curated one."""

MAX_SECTIONS = 5_000
"""Limit per document; the rest is in the last section."""

_NOBODY: Mapping[str, str] = {}
_SAYS_SOMETHING = re.compile(r"\w")
_LIKE_MARKDOWN = (frozenset(CONVERTED) | {"markdown"}) - {"doc", "rtf"}


def sections_of(path: str, text: str, people: Mapping[str, str] = _NOBODY) -> list[Section]:
    """Return the sections of the document at `path`, in the order of the text.

    Together they hold all of its content. A section with unchanged text and titles keeps its anchor when others are
    added, changed, moved or removed. `text` is the result of `formats.to_text`.

    :param people: ID -> name of the authors in a chat of Slack.
    """
    fmt = format_of(path) or "text"
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    # the root may be `.claude` itself, so that the folder `memory` alone marks a memory file
    is_memory = trust_of(path) is Trust.CURATED or "memory" in path.split("/")[:-1]
    if len(text.strip()) < MIN_CHARS and not is_memory:
        return []
    found = [
        section
        for section in _sections(fmt, path, name, text, people)
        if any(_SAYS_SOMETHING.search(piece.text) for piece in section.pieces)
    ]
    if len(found) <= MAX_SECTIONS:
        return found
    kept, rest = found[: MAX_SECTIONS - 1], found[MAX_SECTIONS - 1 :]
    pieces = tuple(piece for section in rest for piece in section.pieces)
    return [*kept, replace(rest[0], pieces=pieces, last_line=max(section.last_line for section in rest))]


def says_too_little(text: str) -> str:
    """Return why no section is made of a text, as a sentence; empty: sections are made."""
    chars = len(text.strip())
    if chars < MIN_CHARS:
        return f"its text has {chars} characters, and at least {MIN_CHARS} are needed"
    return "" if _SAYS_SOMETHING.search(text) else "its text has no letter and no digit"


def _sections(fmt: str, path: str, name: str, text: str, people: Mapping[str, str]) -> list[Section]:
    found: list[Section] = []
    written = fmt in {"markdown", "text"}
    if written and "intercom" in name.lower() and (messages := intercom_headings(text)):
        found = sections_under(messages, name, text)
    elif fmt in _LIKE_MARKDOWN:
        found = sections_under(markdown_headings(text), name, text)
        found = without_page_numbers(found) if fmt == "pdf" else found
    elif fmt == "rst":
        found = sections_under(rst_headings(text), name, text)
    elif fmt == "json":
        turns = chat_sections(path, text, people) if is_chat_export(text) else []
        found = turns or item_sections(name, text)
    elif fmt in CODE_FORMATS:
        found = code_sections(path, fmt, text)
    elif fmt in CONFIG_FORMATS:
        found = config_sections(path, fmt, text)
    return found or untitled(name, text)
