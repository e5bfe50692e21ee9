r"""Java's regular expressions, as analyzers have them, by Python's.

What differs for the patterns of analyzers is what `\w`, `\d` and `\s` mean: ASCII alone unless the pattern begins with
`(?U)`; and with it a word has letters, digits, marks, connecting punctuation and the two joiners, while other numbers,
such as a half, are none (https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/regex/Pattern.html).
"""

import re
import unicodedata
from functools import lru_cache

_UNICODE = "(?U)"
_PLANES = 0x20000
"""Marks and numbers stand in the first two planes."""
_JOINERS = "\u200c\u200d"
_CLASS = re.compile(r"\\W|\[(?:\\.|[^\]\\])*\]")


@lru_cache(maxsize=64)
def java_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of Java's as one of Python's that finds the same."""
    if not pattern.startswith(_UNICODE):
        return re.compile(pattern, re.ASCII)
    return re.compile(_CLASS.sub(_exact, pattern.removeprefix(_UNICODE)))


def _exact(found: re.Match[str]) -> str:
    r"""A class that has `\W`, without what Python takes for no word and Java for one, and with the reverse."""
    part = found.group()
    inside = part[1:-1] if part.startswith("[") else part
    if r"\W" not in inside or inside.startswith("^"):
        return part
    words = _of("Mn", "Mc", "Me", "Pc").replace("_-_", "") + _JOINERS
    return f"(?:(?![{words}])[{inside}{_of('No')}])"


@lru_cache(maxsize=8)
def _of(*categories: str) -> str:
    """All characters of these categories, as ranges within a class."""
    ranges: list[list[int]] = []
    for code in range(_PLANES):
        if unicodedata.category(chr(code)) in categories:
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
