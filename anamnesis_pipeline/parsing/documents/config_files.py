"""Convert a configuration file to one section: its keys to search, and the text to read."""

import re

from anamnesis_pipeline.model import Section, SectionPiece, SegmentKind
from anamnesis_pipeline.parsing.documents.anchors import TOP

SHORT_CHARS = 1_500
"""A file up to this size is searched verbatim: its values are as useful as its keys."""
LONG_CHARS = 12_000
"""A longer file is split as text."""
MOST_KEYS_CHARS = 600

_ASSIGNED = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.-]*)[ \t]*[:+?]?=", re.MULTILINE)
_KEYS = {
    "yaml": re.compile(r"^(?:- )?(?: {2})?([\w./-]+|\"[^\"\n]+\"):(?=\s|$)", re.MULTILINE),
    "toml": re.compile(r"^(\[{1,2}[^\]\n]+\]{1,2}|[\w.-]+(?=\s*=))", re.MULTILINE),
    "ini": re.compile(r"^(\[[^\]\n]+\]|[\w.-]+(?=\s*[=:]))", re.MULTILINE),
    "dockerfile": re.compile(
        r"^((?:FROM|EXPOSE|ENTRYPOINT|CMD|WORKDIR|USER|VOLUME|ARG|ENV)[ \t].{1,80})", re.MULTILINE
    ),
    "makefile": re.compile(r"^([\w./-]+)\s*:(?!=)", re.MULTILINE),
    "terraform": re.compile(r"^(\w+(?:[ \t]+\"[^\"\n]+\"){0,2})\s*\{", re.MULTILINE),
    "cmake": re.compile(r"^\s*(\w+\s*\([^()\n]{1,60})", re.MULTILINE),
    "xml": re.compile(r"<([A-Za-z][\w.:-]*)[\s/>]"),
}


def config_sections(path: str, fmt: str, text: str) -> list[Section]:
    """Return the file as one section; none if it is too long for one."""
    if len(text) > LONG_CHARS:
        return []
    keys = dict.fromkeys(" ".join(found.split()) for found in _KEYS.get(fmt, _ASSIGNED).findall(text))
    listed = ", ".join(keys)
    shown = listed if len(listed) <= MOST_KEYS_CHARS else listed[:MOST_KEYS_CHARS].rsplit(", ", 1)[0] + ", …"
    outline = f"{path} ({fmt})\n{shown}".rstrip()
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    kind = SegmentKind.DOCUMENT if len(text) <= SHORT_CHARS else SegmentKind.CODE
    pieces = (SectionPiece(SegmentKind.OUTLINE, outline), SectionPiece(kind, text.strip("\n")))
    return [Section(TOP, (name,), pieces, 1, text.count("\n") + 1, "code", fmt)]
