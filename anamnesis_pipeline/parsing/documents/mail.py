"""E-mails: .eml and .mbox."""

import csv
import email
import email.policy
import io
import re
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents.formats import format_of, to_text
from anamnesis_pipeline.parsing.documents.languages import CONVERTED
from anamnesis_pipeline.parsing.documents.plain import as_markdown, fenced, heading, row, shortened, tidy
from anamnesis_pipeline.parsing.documents.web_pages import markdown_of

HEADERS = ("From", "To", "Cc", "Date", "Reply-To")
MAX_DEPTH = 5
"""Maximum nesting of mails."""
MAX_PARTS = 200
MAX_NAME_CHARS = 200
MAX_HEADER_CHARS = 4_000
"""The library takes quadratic time in a header's length."""
MAX_CHARS = 4_000_000
"""Limit per mailbox; the mails behind it are left out, and a note gives their number."""

_BETWEEN = re.compile(rb"(?:\A|(?<=\n)\r?\n)From [^\r\n]{3,200}\r?\n")
_HEADING = re.compile(r"^(#{1,6}) ", re.MULTILINE)
_FIELD = re.compile(rb"^[A-Za-z][A-Za-z0-9-]{0,60}:", re.MULTILINE)


def eml_text(data: bytes) -> str:
    """Return a mail as a heading (its subject), its headers, text, attachments and nested mails.

    :raises DocumentUnreadable: no line of it is a header.
    """
    if not _FIELD.search(data[: 1 << 16]):
        raise DocumentUnreadable("it has no mail headers")
    return tidy("\n\n".join(_blocks(_parsed(data), 1, iter(range(MAX_ATTACHMENTS)))))


def mbox_text(data: bytes) -> str:
    """Return every mail of a mailbox; an unreadable one is named and skipped."""
    seams = [found.end() for found in _BETWEEN.finditer(data)]
    starts = [found.start() for found in _BETWEEN.finditer(data)]
    if not seams:
        raise DocumentUnreadable("no mail begins in it with a line 'From '")
    mails = [data[begin:end] for begin, end in zip(seams, [*starts[1:], len(data)], strict=True)]
    texts: list[str] = []
    room = MAX_CHARS
    turns = iter(range(MAX_ATTACHMENTS))
    for number, mail in enumerate(mails):
        texts.append(_readable(mail, turns))
        room -= len(texts[-1])
        if room < 0:
            texts.append(f"[{len(mails) - number - 1} more mails were left out]")
            break
    return tidy("\n\n".join(texts))


def _readable(mail: bytes, turns: Iterator[int]) -> str:
    try:
        return "\n\n".join(_blocks(_parsed(mail), 1, turns))
    except Exception as exc:  # the parser raises any exception on damaged mails
        return f"# Unreadable mail\n\n[this mail could not be read: {type(exc).__name__}]"


class _BoundedHeaders(email.policy.EmailPolicy):
    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value if len(value) <= MAX_HEADER_CHARS else value[:MAX_HEADER_CHARS])


_POLICY: Any = _BoundedHeaders()


def _parsed(data: bytes) -> EmailMessage:
    parsed: EmailMessage = email.message_from_bytes(data, policy=_POLICY)
    return parsed


def _blocks(mail: EmailMessage, level: int, turns: Iterator[int]) -> Iterator[str]:
    """:param turns: one for each attachment that may still be read."""
    yield heading(level, _header(mail, "Subject") or "(no subject)")
    yield "\n".join(f"{name}: {as_markdown(value)}" for name in HEADERS if (value := _header(mail, name)))
    yield _body(mail, level)
    files = _files(mail)
    if files:
        yield "Attachments: " + as_markdown(", ".join(name for name, _ in files))
    if level < MAX_DEPTH:
        for name, part in files:
            if not is_read(name) or next(turns, None) is None:
                continue
            yield heading(level + 1, name)
            data = part.get_payload(decode=True)
            yield _below(level + 1, attached_text(name, data if isinstance(data, bytes) else b""))
        for part in mail.iter_attachments() if mail.is_multipart() else ():
            if part.get_content_type() == "message/rfc822":
                yield from _blocks(part.get_content(), level + 1, turns)


def _files(mail: EmailMessage) -> list[tuple[str, EmailMessage]]:
    """Return the named files in a mail, without those of nested mails."""
    found: list[tuple[str, EmailMessage]] = []
    waiting: list[EmailMessage] = [mail]
    for _ in range(MAX_PARTS):
        if not waiting:
            break
        part = waiting.pop(0)
        if name := _file_name(part):
            found.append((name, part))
        if part.is_multipart() and part.get_content_type() != "message/rfc822":
            waiting += [inner for inner in part.iter_parts() if isinstance(inner, EmailMessage)]
    return found


def _file_name(part: EmailMessage) -> str:
    try:
        return " ".join(str(part.get_filename() or "").replace("/", "_").replace("\\", "_").split())[:MAX_NAME_CHARS]
    except Exception:  # as with every header
        return ""


def _header(mail: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(mail.get(name, "")).split())
    except Exception:  # an invalid header affects nothing else
        return ""


def _body(mail: EmailMessage, level: int) -> str:
    part = mail.get_body(preferencelist=("plain", "html"))
    if part is None:
        return ""
    try:
        text = str(part.get_content())
    except (LookupError, ValueError):  # an unknown charset
        text = (part.get_payload(decode=True) or b"").decode("utf-8", "replace")  # type: ignore[union-attr]
    if part.get_content_type() != "text/html":
        return as_markdown(text)
    return _below(level, markdown_of(text))


def _below(level: int, markdown: str) -> str:
    """Return Markdown with its headings nested below this level."""
    return _HEADING.sub(lambda found: "#" * min(6, len(found.group(1)) + level) + " ", markdown)


# --- attachments -----------------------------------------------------------------------------------------

# Convert mail attachments to Markdown: every supported document format, but no mailboxes inside mails.

MAX_ATTACHMENTS = 100
"""Limit per mail with everything in it, or per mailbox; further ones are only listed by name."""
MAX_ATTACHED_BYTES = 32 << 20
MAX_ATTACHED_CHARS = 1_000_000
"""Limit of the text of one attachment."""
_NOT_HERE = frozenset({"eml", "mbox", "pages"})
"""Mails inside mails are read as mails; containers of other documents are read only as files."""


def is_read(name: str) -> bool:
    """Return whether an attachment with this name has a supported format."""
    return format_of(name) not in {None, *_NOT_HERE}


def attached_text(name: str, data: bytes) -> str:
    """Return the text of an attachment as Markdown, or the reason in brackets why there is none."""
    if len(data) > MAX_ATTACHED_BYTES:
        return f"[{len(data):,} bytes, more than is read of an attachment]"
    try:
        text = shortened(to_text(name, data), MAX_ATTACHED_CHARS)
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
