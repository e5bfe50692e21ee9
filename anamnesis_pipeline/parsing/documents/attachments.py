"""Convert mail attachments to Markdown: every supported document format, but no mailboxes inside mails."""

import csv
import io
from collections.abc import Iterator

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents.formats import format_of, to_text
from anamnesis_pipeline.parsing.documents.languages import CONVERTED
from anamnesis_pipeline.parsing.documents.plain import as_markdown, fenced, row, shortened

MOST_ATTACHMENTS = 100
"""Limit per mail with everything in it, or per mailbox; further ones are only listed by name."""
MOST_ATTACHED_BYTES = 32 << 20
MOST_ATTACHED_CHARS = 1_000_000
"""Limit of the text of one attachment."""
_NOT_HERE = frozenset({"eml", "mbox", "pages"})
"""Mails inside mails are read as mails; containers of other documents are read only as files."""


def is_read(name: str) -> bool:
    """Return whether an attachment with this name has a supported format."""
    return format_of(name) not in {None, *_NOT_HERE}


def attached_text(name: str, data: bytes) -> str:
    """Return the text of an attachment as Markdown, or the reason in brackets why there is none."""
    if len(data) > MOST_ATTACHED_BYTES:
        return f"[{len(data):,} bytes, more than is read of an attachment]"
    try:
        text = shortened(to_text(name, data), MOST_ATTACHED_CHARS)
    except DocumentUnreadable as problem:
        return as_markdown(f"[{problem}]")
    fmt = format_of(name)
    if fmt in {"csv", "tsv"}:
        return "\n".join(_lines(text, "\t" if fmt == "tsv" else ""))
    if fmt in CONVERTED or fmt == "markdown":
        return text
    return as_markdown(text) if fmt in {"text", "rst"} else fenced(text)


def _lines(text: str, sign: str) -> Iterator[str]:
    """Yield the rows of CSV in the form of all other tables."""
    sign = sign or max(",;\t", key=text[:2000].count)
    try:
        for cells in csv.reader(io.StringIO(text), delimiter=sign):
            yield as_markdown(row(cells))
    except csv.Error as problem:
        yield f"[the rest is no CSV: {problem}]"
