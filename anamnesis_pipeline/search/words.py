"""The words of a question. Pure."""

import re
from collections.abc import Callable, Collection, Sequence

from anamnesis_pipeline.parsing.text.languages import language_of
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS, STOP_WORDS_OF
from anamnesis_pipeline.parsing.text.unspaced_scripts import is_unspaced, parted, words_in

_LITERAL = re.compile(
    r"""
    [\w$@]+(?:[./:_\-\\]+[\w$@]+)+      # foo_bar, src/billing.py:44, v1.2.3, --no-verify
    | --?[a-zA-Z][\w\-]*                # -x, --force
    | [a-z]+[A-Z]\w*                    # camelCase
    | \d\w*[a-zA-Z] | [A-Z]{2}\w*\d       # a7f3b2, HTTP2
    """,
    re.VERBOSE,
)
MAX_TOKEN_CHARS = 200
"""A longer run without a space is no identifier; the expression takes time quadratic in it."""
_NAME = re.compile(r"(?<=[\w,;:)'\"] )[A-Z]\w{2,}")
FEW_WORDS = 2
"""A question with at most this number of content words is a keyword list."""
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"")


def content_words(text: str) -> list[str]:
    """Return the content words, in order, each once; all words if there are none."""
    words = list(dict.fromkeys(word.lower() for word, _, _ in words_in(text)))
    stop_words = STOP_WORDS_OF.get(language_of(text) or "", STOP_WORDS)
    return [word for word in words if word not in stop_words] or words


def literal_tokens(text: str) -> list[str]:
    """Return tokens that look like identifiers, paths, versions, options or quoted code: they are matched literally."""
    quoted = [token for groups in _QUOTED.findall(text) for group in groups for token in group.split()]
    found = [token for token in parted(text).split() if len(token) <= MAX_TOKEN_CHARS and _LITERAL.search(token)]
    return list(dict.fromkeys([*quoted, *found]))


def literal_words(text: str) -> list[str]:
    """Return words to match literally if few passages have them: literal tokens, names (capitalized inside a sentence),
    and all words of a keyword list.
    """
    meaning = content_words(text)
    names = [word for word in _NAME.findall(text) if word.lower() in meaning]
    return list(dict.fromkeys([*literal_tokens(text), *names, *(meaning if len(meaning) <= FEW_WORDS else ())]))


def unknown_share(
    text: str, unknown: Callable[[Sequence[str]], Sequence[str]], understood: Collection[str] = ()
) -> float:
    """Return the unknown share of the content words, in [0, 1]. Pairs of characters never count: most of those that no
    text has are no words.

    :param unknown: returns the unknown ones of some words.
    :param understood: words that need not be stored, such as those that name a time.
    """
    words = content_words(text)
    asked = [word for word in words if not is_unspaced(word)]
    return len([word for word in unknown(asked) if word not in understood]) / len(words) if asked else 0.0
