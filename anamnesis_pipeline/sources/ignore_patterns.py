"""Patterns of a `.gitignore`, with git's meaning. Pure.

Each pattern is compared with one path at a time, never with the folders around it, as in git: the caller goes from the
outermost folder inwards. Libraries that match a path and its folders by one expression bring back files in folders that
git does not enter. RE2 takes time linear in the path for any repository's patterns.
"""

import re
from collections.abc import Collection, Mapping, Sequence
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
    """One line: its expression, whether it matches only folders, and whether it negates earlier lines."""

    matches: Any
    folders_only: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class Expression:
    """`source` matches a whole path relative to the pattern's folder, without the `/` at a folder's end."""

    source: str
    folders_only: bool
    negated: bool


class Patterns:
    """Patterns in line order; a later one wins."""

    def __init__(self, lines: Sequence[str]) -> None:
        """Parse the lines; lines that are no patterns are skipped."""
        self._latest_first = tuple(pattern for line in reversed(lines) if (pattern := _pattern(line)) is not None)

    def decision(self, path: str) -> bool | None:
        """Return True if the last pattern that matches this exact path ignores it, False if it negates; None: no match.

        :param path: relative to the patterns' folder; a folder's path ends in `/`.
        """
        is_folder, path = path.endswith("/"), path.rstrip("/")
        for pattern in self._latest_first:
            if (is_folder or not pattern.folders_only) and pattern.matches.fullmatch(path):
                return not pattern.negated
        return None

    def cover(self, path: str) -> bool:
        """Return whether a file or a folder around it is matched; the innermost path with a match decides."""
        end, taken = path.find("/"), False
        while end >= 0:
            decided = self.decision(path[: end + 1])
            taken, end = taken if decided is None else decided, path.find("/", end + 1)
        decided = self.decision(path)
        return taken if decided is None else decided


def check_patterns(patterns: Sequence[str]) -> None:
    """Check patterns of a source.

    :raises BadSetting: one is blank, a comment, or has an unclosed bracket.
    """
    for pattern in patterns:
        if _pattern(pattern) is None:
            raise BadSetting(f"{pattern!r} is no pattern as in a .gitignore, such as `docs/`, `*.md` or `!draft.md`")


class IgnoreFiles:
    """The `.gitignore` and `.anamnesisignore` files of a tree."""

    def __init__(self, texts: Mapping[str, str], repositories: Collection[str] = ()) -> None:
        """:param texts: path of each ignore file relative to the root -> its text.
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
        """Return why this exact path is ignored, regardless of the folders around it; a folder's path ends in `/`."""
        folders, folder = [], path.rstrip("/")
        while folder:  # around the path, innermost first; the root is empty
            folder = folder.rpartition("/")[0]
            folders.append(folder)
        if self._out and any(folder in self._out for folder in folders):
            return f"opted out by an empty {OWN_IGNORE}"
        if (own := _decision(self._own, folders, path)) is not None:
            return f"ignored by {OWN_IGNORE}" if own else None
        repository = next((n for n, folder in enumerate(folders) if folder in self._repositories), len(folders))
        return f"ignored by {GITIGNORE}" if _decision(self._git, folders[: repository + 1], path) else None


def _decision(patterns: Mapping[str, Patterns], folders: Sequence[str], path: str) -> bool | None:
    """Return the decision of the innermost ignore file with a matching pattern; None: none matches."""
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
    """Return the expression of a `.gitignore` line; None if it is no pattern."""
    line = line.removesuffix("\r")
    text = line.rstrip(" ")
    if len(text) < len(line) and (len(text) - len(text.rstrip("\\"))) % 2 == 1:
        text += " "  # it is escaped
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
    """Compile the source of an `expression_of`; it matches names with any characters.

    :raises re2.error: a reversed range, or an expression too large for RE2.
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


def _expression(text: str) -> str | None:
    """Return the regular expression of a pattern without `!` and outer slashes; None if it breaks off."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        match text[at]:
            case "*":
                piece, at = _stars(text, at)
            case "?":
                piece, at = "[^/]", at + 1
            case "[":
                found = _CLASS.match(text, at)
                if found is None:
                    return None
                piece, at = _class(found), found.end()
            case "\\":
                if at + 1 == len(text):
                    return None
                piece, at = re.escape(text[at + 1]), at + 2
            case character:
                piece, at = re.escape(character), at + 1
        pieces.append(piece)
    return "".join(pieces)


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
    """Return a character class that never matches `/`."""
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
