"""E-mails: .eml and .mbox."""

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage

from anamnesis_pipeline.documents.plain import as_markdown, heading, tidy
from anamnesis_pipeline.documents.web_pages import markdown_of
from anamnesis_pipeline.errors import DocumentUnreadable

HEADERS = ("From", "To", "Cc", "Date", "Reply-To")
MOST_DEPTH = 5
"""How deep a mail inside a mail is read."""
MOST_PARTS = 200

_BETWEEN = re.compile(rb"(?:\A|(?<=\n)\r?\n)From [^\r\n]{3,200}\r?\n")
_HEADING = re.compile(r"^(#{1,6}) ", re.MULTILINE)
_FIELD = re.compile(rb"^[A-Za-z][A-Za-z0-9-]{0,60}:", re.MULTILINE)


def eml_text(data: bytes) -> str:
    """A mail as a heading (its subject), its headers, its text, the names of its attachments, and mails inside it.

    :raises DocumentUnreadable: if no line of it is a header.
    """
    if not _FIELD.search(data[: 1 << 16]):
        raise DocumentUnreadable("it has no mail headers")
    return tidy("\n\n".join(_blocks(_parsed(data), 1)))


def mbox_text(data: bytes) -> str:
    """Every mail of a mailbox; one that cannot be read is named, and the others are read."""
    seams = [found.end() for found in _BETWEEN.finditer(data)]
    starts = [found.start() for found in _BETWEEN.finditer(data)]
    if not seams:
        raise DocumentUnreadable("no mail begins in it with a line 'From '")
    mails = [data[begin:end] for begin, end in zip(seams, [*starts[1:], len(data)], strict=True)]
    return tidy("\n\n".join(_readable(mail) for mail in mails))


def _readable(mail: bytes) -> str:
    try:
        return "\n\n".join(_blocks(_parsed(mail), 1))
    except Exception as exc:  # the parser raises whatever fits the damage
        return f"# Unreadable mail\n\n[this mail could not be read: {type(exc).__name__}]"


def _parsed(data: bytes) -> EmailMessage:
    return email.message_from_bytes(data, policy=email.policy.default)


def _blocks(mail: EmailMessage, level: int) -> Iterator[str]:
    yield heading(level, _header(mail, "Subject") or "(no subject)")
    yield "\n".join(f"{name}: {as_markdown(value)}" for name in HEADERS if (value := _header(mail, name)))
    yield _body(mail, level)
    names = []
    for number, part in enumerate(mail.walk()):
        if number > MOST_PARTS:
            break
        if part.get_filename():
            names.append(str(part.get_filename()))
    if names:
        yield "Attachments: " + as_markdown(", ".join(names))
    if level < MOST_DEPTH:
        for part in mail.iter_attachments() if mail.is_multipart() else ():
            if part.get_content_type() == "message/rfc822":
                yield from _blocks(part.get_content(), level + 1)


def _header(mail: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(mail.get(name, "")).split())
    except Exception:  # a header that breaks its grammar costs nothing but itself
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
    return _HEADING.sub(lambda found: "#" * min(6, len(found.group(1)) + level) + " ", markdown_of(text))
