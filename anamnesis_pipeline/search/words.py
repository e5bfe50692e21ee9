"""The words of a question. Pure."""

import re

STOP_WORDS = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do does doing
    for from get got had has have having he her him his how i if in into is it its just let me my no not of on or our
    out over she should so some such than that the their them then there these they this those to too up us was we
    were what when where which while who whom whose why will with would you your""".split()
)
"""English function words: they match everywhere, cost time, and on the benchmarks cost recall."""

_WORD = re.compile(r"\w+")
_LITERAL = re.compile(
    r"""
    [\w$@]+(?:[./:_\-\\]+[\w$@]+)+      # foo_bar, src/billing.py:44, v1.2.3, --no-verify
    | --?[a-zA-Z][\w\-]*                # -x, --force
    | [a-z]+[A-Z]\w*                    # camelCase
    | \w*\d\w*[a-zA-Z]\w* | [A-Z]{2}\w*\d\w*   # a7f3b2, HTTP2
    """,
    re.VERBOSE,
)
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"")


def content_words(text: str) -> list[str]:
    """The words that carry meaning, in order, each once; all words where none is left."""
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))
    return [word for word in words if word not in STOP_WORDS] or words


def literal_tokens(text: str) -> list[str]:
    """Tokens that look like identifiers, paths, versions, options or quoted code: they mean exactly themselves."""
    quoted = [token for groups in _QUOTED.findall(text) for group in groups for token in group.split()]
    found = [token for token in text.split() if _LITERAL.search(token)]
    return list(dict.fromkeys([*quoted, *found]))
