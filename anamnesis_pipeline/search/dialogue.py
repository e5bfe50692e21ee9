"""Turns of a conversation that a client posted: who speaks, and whether they ask. Pure."""

import re
from collections.abc import Collection

from anamnesis_pipeline.model import EpisodeHead
from anamnesis_pipeline.stop_words import STOP_WORDS

POSTED = "direct"
"""Source of what clients post. The chat's own turns and documents have no speaker before them."""
SPEAKER_FACTOR = 1.7
"""On the score of what somebody said whom the question names: who is asked about told it. By a conditional logit over
LoCoMo's development conversations, as ASKS_FACTOR (docs/decisions/0014).
"""
ASKS_FACTOR = 0.8
"""On the score of what somebody asked: the answer comes behind it."""
_LABEL = re.compile(
    r"^[ \t]*(?:[-*>][ \t]+)?(?:\[[^\]\n]{1,30}\][ \t]*)?\*{0,2}(\w[\w'’.-]*(?: \w[\w'’.-]*){0,2})\*{0,2}:\*{0,2}\s",
    re.MULTILINE,
)
"""`Ada: ...`, with a list's mark, a time in brackets, or in bold."""
_WORD = re.compile(r"\w+")
SHORTEST_NAME = 2
"""Letters; `A:` and `Q:` are no names."""
_ABOUT_QUESTIONS = frozenset({"ask", "asked", "asks", "question", "questions"})
"""Who uses one of these looks for a question."""


def words_of(text: str) -> frozenset[str]:
    """The words of a text, compared whatever their case."""
    return frozenset(word.casefold() for word in _WORD.findall(text))


def speakers_of(text: str) -> list[str]:
    """Who or what is named before the colons that lines of a text begin with: `Ada Lovelace: ...`, `Decision: ...`. A
    word that carries no meaning (`A:`, `Why:`) names nobody.
    """
    return [label for label in _LABEL.findall(text) if _is_name(label)]


def _is_name(label: str) -> bool:
    words = label.split()
    capital = all(word[0].isalpha() and not word[0].islower() for word in words)
    return capital and len(words[0]) >= SHORTEST_NAME and words[0].lower() not in STOP_WORDS


def speaks(text: str, asked: Collection[str]) -> bool:
    """Whether a speaker of the text is among the words of a question, by any of their names."""
    names = words_of(" ".join(speakers_of(text)))
    return any(name in asked for name in names if len(name) >= SHORTEST_NAME and name not in STOP_WORDS)


def dialogue_factors(head: EpisodeHead, text: str, asked: Collection[str]) -> dict[str, float]:
    """Name of a factor -> factor, for those that apply to a posted passage whose lines tell who speaks.

    :param asked: the words of the question, as `words_of` has them.
    """
    turns = len(speakers_of(text)) if head.source == POSTED else 0
    if not turns:
        return {}
    found = {}
    if speaks(text, asked):
        found["speaker"] = SPEAKER_FACTOR
    if turns == 1 and text.rstrip().endswith("?") and not _ABOUT_QUESTIONS & {*asked}:
        found["asks"] = ASKS_FACTOR
    return found
