"""Patterns of a `.gitignore`, with git's meaning. Pure.

Each pattern is compared with one path at a time, never with the folders around it, as git does: whoever asks goes from
the outermost folder inwards. Libraries that match a path and its folders by one expression bring back files in folders
that git does not enter. RE2 takes time in proportion to the path, whatever a repository's patterns are.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import re2

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.sources.base import IGNORE_FILES

GITIGNORE, OWN_IGNORE = IGNORE_FILES

_CLASS = re.compile(r"\[(?P<negated>[!^]?)(?P<body>\]?(?:\\.|\[:[a-z]+:\]|[^\]\\])*)\]", re.DOTALL)
_MEMBER = re.compile(r"(?P<named>\[:[a-z]+:\])|(?P<low>\\.|.)(?:-(?P<high>\\.|[^\]]))?", re.DOTALL)
_NAMED = "alnum alpha blank cntrl digit graph lower print punct space upper xdigit"
_NAMES = frozenset(f"[:{name}:]" for name in _NAMED.split())


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line: what it matches, whether only folders, and whether it takes back what an earlier one said."""

    matches: Any
    folders_only: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class Expression:
    """`source` matches a whole path, relative to where the pattern stands, without the `/` at a folder's end."""

    source: str
    folders_only: bool
    negated: bool


class Patterns:
    """Patterns in the order of their lines; a later one wins."""

    def __init__(self, lines: Sequence[str]) -> None:
        """Lines that are no patterns count for nothing."""
        self._latest_first = tuple(pattern for line in reversed(lines) if (pattern := _pattern(line)) is not None)

    def decision(self, path: str) -> bool | None:
        """Whether the last pattern that matches this very path takes it (True) or takes it back; None: none matches.

        :param path: relative to where the patterns stand; a folder's ends in `/`.
        """
        is_folder, path = path.endswith("/"), path.rstrip("/")
        for pattern in self._latest_first:
            if (is_folder or not pattern.folders_only) and pattern.matches.fullmatch(path):
                return not pattern.negated
        return None

    def cover(self, path: str) -> bool:
        """Whether a file is taken, by itself or with a folder around it; the innermost one that is named decides."""
        end, taken = path.find("/"), False
        while end >= 0:
            decided = self.decision(path[: end + 1])
            taken, end = taken if decided is None else decided, path.find("/", end + 1)
        decided = self.decision(path)
        return taken if decided is None else decided


def check_patterns(patterns: Sequence[str]) -> None:
    """Whether these can be patterns of a source.

    :raises BadSetting: one is blank, a comment, or has a bracket that nothing closes.
    """
    for pattern in patterns:
        if _pattern(pattern) is None:
            raise BadSetting(f"{pattern!r} is no pattern as in a .gitignore, such as `docs/`, `*.md` or `!draft.md`")


class IgnoreFiles:
    """What the files `.gitignore` and `.anamnesisignore` of a tree leave out."""

    def __init__(self, texts: Mapping[str, str], repositories: Collection[str] = ()) -> None:
        """:param texts: of these files, by path relative to the root.
        :param repositories: the folders with a `.git`; `.` is the root.
        """
        self._git, self._own = _by_folder(texts, GITIGNORE), _by_folder(texts, OWN_IGNORE)
        self._repositories = frozenset("" if folder == "." else folder for folder in repositories)
        self._out = frozenset(
            path.rpartition("/")[0]
            for path, text in texts.items()
            if path.rpartition("/")[2] == OWN_IGNORE and not text.strip()
        )

    def why(self, path: str) -> str | None:
        """Why this very path is ignored, not minding whether a folder around it is; a folder's ends in `/`."""
        folders = list(_around(path))
        if self._out and any(folder in self._out for folder in folders):
            return f"opted out by an empty {OWN_IGNORE}"
        if (own := _decision(self._own, folders, path)) is not None:
            return f"ignored by {OWN_IGNORE}" if own else None
        return f"ignored by {GITIGNORE}" if _decision(self._git, self._in_repository(folders), path) else None

    def _in_repository(self, folders: Sequence[str]) -> Sequence[str]:
        """Of the folders around a path, innermost first, those of its own repository."""
        inner = next((n for n, folder in enumerate(folders) if folder in self._repositories), len(folders))
        return folders[: inner + 1]


def _around(path: str) -> Iterator[str]:
    """The folders around a path, the innermost first; the root is empty."""
    folder = path.rstrip("/")
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _decision(patterns: Mapping[str, Patterns], folders: Sequence[str], path: str) -> bool | None:
    """What the innermost file that has a pattern for the path says; None: none has."""
    for folder in folders:
        if folder in patterns:
            decided = patterns[folder].decision(path[len(folder) + 1 :] if folder else path)
            if decided is not None:
                return decided
    return None


def _by_folder(texts: Mapping[str, str], name: str) -> dict[str, Patterns]:
    found = {}
    for path, text in texts.items():
        folder, _, own = path.rpartition("/")
        if own == name:
            found[folder] = Patterns(text.removeprefix("\ufeff").split("\n"))
    return found


def expression_of(line: str) -> Expression | None:
    """What a line of a `.gitignore` matches; None for one that is no pattern."""
    text = _without_trailing_spaces(line.removesuffix("\r"))
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!") if negated else text
    folders_only = text.endswith("/")
    text = text.removesuffix("/") if folders_only else text
    if not text:
        return None
    is_anchored = "/" in text
    source = _expression(text.removeprefix("/"))
    if source is None:
        return None
    return Expression(source if is_anchored else f"(?:.*/)?{source}", folders_only, negated)


def compiled(source: str) -> Any:
    """An expression of `expression_of`, ready to be asked about names of any characters.

    :raises re2.error: a range whose end lies before its beginning, or too large for RE2.
    """
    options = re2.Options()
    options.log_errors = False
    return re2.compile(f"(?s:{source})", options)


def _pattern(line: str) -> Pattern | None:
    found = expression_of(line)
    try:
        return Pattern(compiled(found.source), found.folders_only, found.negated) if found else None
    except re2.error:
        return None


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    is_escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
    return f"{stripped} " if is_escaped and len(stripped) < len(line) else stripped


def _expression(text: str) -> str | None:
    """The regular expression of a pattern without its signs; None where a bracket is not closed."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        piece, at = _next_piece(text, at)
        if piece is None:
            return None
        pieces.append(piece)
    return "".join(pieces)


def _next_piece(text: str, at: int) -> tuple[str | None, int]:
    """The expression of what stands at `at`, and where it ends."""
    character = text[at]
    if character == "*":
        return _stars(text, at)
    if character == "?":
        return "[^/]", at + 1
    if character == "[":
        found = _CLASS.match(text, at)
        return (_class(found), found.end()) if found else (None, at)
    if character == "\\":
        return (re.escape(text[at + 1]), at + 2) if at + 1 < len(text) else (None, at)
    return re.escape(character), at + 1


def _stars(text: str, at: int) -> tuple[str, int]:
    end = at
    while text[end : end + 1] == "*":
        end += 1
    is_whole = end - at == 2 and (at == 0 or text[at - 1] == "/")
    if is_whole and text[end : end + 1] == "/":
        return "(?:.*/)?", end + 1
    if is_whole and end == len(text):
        return ".+" if at else ".*", end
    return "[^/]*", end


def _class(found: re.Match[str]) -> str:
    """A set of characters, none of which is `/`: a name never reaches over one."""
    members = "".join(_member(member) for member in _MEMBER.finditer(found["body"]))
    if found["negated"]:
        return f"[^/{members}]"
    return f"[{members}]" if members else r"[^\x00-\x{10FFFF}]"


def _member(found: re.Match[str]) -> str:
    if found["named"]:
        if found["named"] == "[:punct:]":
            return r"!-.:-@\[-`{-~"
        return found["named"] if found["named"] in _NAMES else ""
    low = found["low"][-1]
    high = found["high"][-1] if found["high"] else low
    ranges = [(low, min(high, ".")), (max(low, "0"), high)] if low <= "/" <= high else [(low, high)]
    return "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in ranges if first <= last or low > high)
