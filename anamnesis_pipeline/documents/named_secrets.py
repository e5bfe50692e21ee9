"""Secrets whose name stands in a field of its own: `name: DB_PASSWORD`, then `value: ...`. Pure.

What is a secret is not decided here: each value is shown to the masking rules beside its name, as an assignment.
"""

import re
from collections import Counter
from collections.abc import Iterator

import re2

from anamnesis_pipeline.documents.table_secrets import (
    MOST_NAME_CHARS,
    Mask,
    NamedValue,
    masked_values,
    names_of_secrets,
    with_values,
)

_NAME = r"(?P<name>[\w .\-/]{0,60}(?i:pass|kennwort|pwd|secret|token|key|cred|auth)[\w .\-/]{0,60})"
_VALUE = r"(?P<value>[^\s\"'`,<>\[\]{}]{8,256})"
_OPEN, _CLOSE = r"\\?[\"'`]?", r"\\?[\"'`]?"
_IS = r"\\?[\"'`]?[ \t]{0,8}[:=][ \t]{0,8}"
_PATTERNS = (
    # Kubernetes and compose (`- name: A`, next line `value: B`), exports of consoles, attributes of XML
    re2.compile(
        rf"\b(?i:name|key|id|parameter|variable){_IS}{_OPEN}{_NAME}{_CLOSE},?\s{{1,200}}{_OPEN}"
        rf"\b(?i:value|default|content|secret_?string){_IS}{_OPEN}{_VALUE}"
    ),
    re2.compile(
        rf"\b(?i:value|content){_IS}{_OPEN}{_VALUE}{_CLOSE},?\s{{1,200}}{_OPEN}\b(?i:name|key|id){_IS}{_OPEN}{_NAME}"
    ),
    re2.compile(
        rf'\bvariable[ \t]+"{_NAME}"\s{{0,20}}\{{[^{{}}]{{0,400}}?\bdefault[ \t]{{0,20}}=[ \t]{{0,8}}"{_VALUE}"'
    ),
)
# a line of a form, of a list of terms: the name, and below it nothing but the value
_NAME_ENDS_LINE = re2.compile(r"(?i:pass|kennwort|pwd|secret|token|key|cred|auth)[\w .\-/]{0,60}:?[ \t*]{0,8}\n")
_NAME_LINE = re.compile(rf"[ \t>*#\-|]{{0,20}}{_NAME}:?[ \t*]{{0,8}}\n\s{{0,20}}{_VALUE}[ \t]{{0,8}}(?:\n|\Z)")
_DIGIT = re.compile(r"\d")


def named_masked(text: str, mask: Mask) -> tuple[str, Counter[str]]:
    """The text with the secrets masked that only the field before or behind them tells, on the same or the next line.

    How many of each kind there were comes with it. The text has as many lines as before.
    """
    named = sorted({*_named(text), *_named_above(text)}, key=lambda value: (value.start, value.end))
    if not named:
        return text, Counter()
    secret = names_of_secrets({value.name for value in named}, mask)
    found: Counter[str] = Counter()
    apart = _apart(value for value in named if value.name in secret)
    return with_values(text, masked_values(apart, mask, found)), found


def _named(text: str) -> Iterator[NamedValue]:
    for pattern in _PATTERNS:
        of_value = pattern.groupindex["value"]
        for match in pattern.finditer(text):
            yield from _told(match["name"], match["value"], match.start(of_value))


def _named_above(text: str) -> Iterator[NamedValue]:
    for end in _NAME_ENDS_LINE.finditer(text):
        begin = text.rfind("\n", 0, end.start()) + 1
        if end.start() - begin <= MOST_NAME_CHARS and (match := _NAME_LINE.match(text, begin)):
            yield from _told(match["name"], match["value"], match.start("value"))


def _told(name: str, value: str, start: int) -> Iterator[NamedValue]:
    if _DIGIT.search(value):  # a word below a heading is none
        yield NamedValue(0, start, start + len(value), re.sub(r"[ .\-/]+", "_", name.strip(" .-/")), value)


def _apart(values: Iterator[NamedValue]) -> Iterator[NamedValue]:
    """Those that begin after the end of the one before."""
    end = -1
    for value in values:
        if value.start >= end:
            end = value.end
            yield value
