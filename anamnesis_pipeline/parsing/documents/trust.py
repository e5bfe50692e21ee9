"""The trust in a file, and its tags: by its name and the configured patterns."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import Source, Trust
from anamnesis_pipeline.parsing.documents.languages import CODE_FORMATS, CONFIG_FORMATS

if TYPE_CHECKING:
    from re2 import _Regexp

_CURATED = re.compile(
    r"""
    (?:.*/)? (?:
        (?:CLAUDE(?:\.local)?|AGENTS)\.md
      | README_(?:handoff|project_history_)[^/]*
      | [^/]*_handoff[^/]*
      | \.claude/ (?:.*/)? (?:memory|agent-memory(?:-local)?)/ (?!sessions/) (?:.*/)? [^/]*\.md
    )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


_TOPIC = re.compile(r"(?:.*/)?\.claude/(?:.*/)?memory/topics/(?:.*/)?[^/]*\.md", re.IGNORECASE | re.DOTALL)


def trust_of(path: str) -> Trust:
    """Return CURATED for files written to be remembered, at any place; FILE for every other file. Summaries of sessions
    below `memory/sessions` were true then, and show where to look.
    """
    return Trust.CURATED if _CURATED.fullmatch(path.replace("\\", "/")) else Trust.FILE


def has_authority(source: Source, path: str) -> bool:
    """Return whether a file of a source may say what holds: Claude Code's own memory, here or on a machine that a
    person named, and what stands right in a folder that a person named. A name alone gives none: a repository that was
    cloned into such a folder brings its own files.

    :param path: relative to the source.
    """
    if source.kind == "reserved":  # uploads
        return False
    is_of_claude = not source.spec or ".claude" in source.root.split("/") or path.startswith(".claude/")
    return is_of_claude or "/" not in path


@dataclass(frozen=True, slots=True)
class TagPattern:
    """Gives documents the tag `tag`: those whose file name, or text, holds `match`."""

    match: str
    tag: str
    field: Literal["filename", "content"] = "filename"
    regex: bool = False
    ignorecase: bool = True


MAX_PATTERN_CHARS = 1_000
MAX_TAG_CHARS = 100


def checked_pattern(pattern: TagPattern) -> TagPattern:
    """Return the pattern if it is valid.

    :raises BadSetting: its text or tag is empty or too long, its field is unknown, or its expression is no RE2.
    """
    if not pattern.match or len(pattern.match) > MAX_PATTERN_CHARS:
        raise BadSetting(f"a tag pattern's match has {len(pattern.match)} characters; 1 to {MAX_PATTERN_CHARS} may be")
    if not pattern.tag.strip() or len(pattern.tag) > MAX_TAG_CHARS:
        raise BadSetting(f"the tag of pattern {pattern.match!r} is empty or over {MAX_TAG_CHARS} characters")
    if pattern.field not in {"filename", "content"}:
        raise BadSetting(f"pattern {pattern.match!r} asks for {pattern.field!r}; allowed: filename, content")
    _expression(pattern)
    return pattern


def tags_of(
    path: str,
    fmt: str,
    patterns: Iterable[TagPattern] = (),
    text: str = "",
    *,
    is_named: bool = True,
    is_topic: bool = False,
) -> tuple[str, ...]:
    """Return the distinct tags of a document: `document`, its format (for code: the language), `code` or `config`,
    `curated`, `topic` for files below `memory/topics`, and those of the patterns that match its file name or `text`.

    :param is_named: it has authority (`has_authority`), without which it is neither curated nor a topic.
    :param is_topic: it is one, wherever it is.
    :raises BadSetting: as `checked_pattern`.
    """
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    tags = ["document", fmt]
    if fmt in CODE_FORMATS:
        tags.append("code")
    if fmt in CONFIG_FORMATS:
        tags.append("config")
    if is_topic or (is_named and trust_of(path) is Trust.CURATED):
        tags.append("curated")
    if is_topic or (is_named and _TOPIC.fullmatch(path.replace("\\", "/"))):
        tags.append("topic")
    for pattern in patterns:
        searched = name if pattern.field == "filename" else text
        readable = searched.encode("utf-8", "replace").decode()  # a name may hold bytes that are no UTF-8
        if _expression(pattern).search(readable):
            tags.append(pattern.tag)
    return tuple(dict.fromkeys(tags))


@lru_cache(maxsize=256)
def _expression(pattern: TagPattern) -> "_Regexp[str]":
    """Compile with RE2: its run time is linear in the text for any expression."""
    import re2

    options = re2.Options()
    options.case_sensitive = not pattern.ignorecase
    options.log_errors = False
    options.max_mem = 1 << 21
    try:
        return re2.compile(pattern.match if pattern.regex else re2.escape(pattern.match), options)
    except re2.error as exc:
        reason = exc.args[0].decode(errors="replace") if isinstance(exc.args[0], bytes) else exc
        raise BadSetting(f"tag pattern {pattern.match!r} is no regular expression of RE2: {reason}") from None
