"""Speakers of a conversation and their weight: in posted turns and in transcripts. Pure."""

import re
from collections.abc import Collection, Mapping

from anamnesis_pipeline.model import EpisodeHead
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS
from anamnesis_pipeline.parsing.text.transcripts import Voice

POSTED = "direct"
"""Source of posted episodes. The chat's own turns and documents have no speaker labels."""
ASKS_FACTOR = 0.8
"""On the score of a question: the answer comes behind it. By a conditional logit over LoCoMo's development
conversations (benchmarks/ranking.md).
"""
_LABEL = re.compile(
    r"^[ \t]*(?:[-*>][ \t]+)?(?:\[[^\]\n]{1,30}\][ \t]*)?\*{0,2}(\w[\w'’.-]*(?: \w[\w'’.-]*){0,2})\*{0,2}:\*{0,2}\s",
    re.MULTILINE,
)
"""`Ada: ...`, optionally with a list mark, a time in brackets, or in bold."""
_WORD = re.compile(r"\w+")
SHORTEST_NAME = 2
"""Letters; `A:` and `Q:` are no names."""
_ABOUT_QUESTIONS = frozenset({"ask", "asked", "asks", "question", "questions"})
"""A question with one of these words looks for a question."""


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, case-insensitively."""
    return frozenset(word.casefold() for word in _WORD.findall(text))


def speakers_of(text: str) -> list[str]:
    """Return the speaker labels at the beginning of lines: `Ada Lovelace: ...`, `Decision: ...`. A stop word (`A:`,
    `Why:`) is no speaker.
    """
    return [label for label in _LABEL.findall(text) if _is_name(label)]


def _is_name(label: str) -> bool:
    words = label.split()
    capital = all(word[0].isalpha() and not word[0].islower() for word in words)
    return capital and len(words[0]) >= SHORTEST_NAME and words[0].lower() not in STOP_WORDS


def speaks(text: str, asked: Collection[str]) -> bool:
    """Return whether a speaker of the text is among the words of a question, by any of their names."""
    names = words_of(" ".join(speakers_of(text)))
    return any(name in asked for name in names if len(name) >= SHORTEST_NAME and name not in STOP_WORDS)


def dialogue_factors(head: EpisodeHead, text: str, asked: Collection[str], named: float) -> dict[str, float]:
    """Return name of a factor -> factor, for those that apply to a posted passage with speaker labels.

    :param asked: the words of the question, as returned by `words_of`.
    :param named: the factor for turns whose speaker the question names.
    """
    turns = len(speakers_of(text)) if head.source == POSTED else 0
    if not turns:
        return {}
    found = {}
    if speaks(text, asked):
        found["speaker"] = named
    if turns == 1 and text.rstrip().endswith("?") and not _ABOUT_QUESTIONS & {*asked}:
        found["asks"] = ASKS_FACTOR
    return found


SAID = frozenset({Voice.PERSON, Voice.CONCLUSION, Voice.STATEMENT})
CONCLUDED = frozenset({Voice.PERSON, Voice.CONCLUSION})
VOICE_FACTORS = {Voice.PERSON: 1.58, Voice.CONCLUSION: 1.58, Voice.STATEMENT: 1.5}
"""On the score of a passage of a transcript, by whose words it holds; thinking, tool calls and output have 1
(benchmarks/ranking.md).
"""
TOLD_FACTORS = {Voice.PERSON: 2.1, Voice.CONCLUSION: 2.1, Voice.STATEMENT: 2.0}
"""The same for questions about a reason, a wish or an outcome: people and reports state it, tools do not."""
_REASON = re.compile(r"\b(?:why|reasons?|how come|caused?|because)\b", re.IGNORECASE)
_WISH = re.compile(r"\b(?:(?:do|did|would|should|shall|am) i|my|prefer\w*|rather|want(?:ed)?|wish\w*)\b", re.IGNORECASE)
_OUTCOME = re.compile(
    r"\b(?:finally|in the end|at last|at the (?:very )?end|eventually|ultimately|all told|turn(?:s|ed)? out|"
    r"(?:ca|co|beca|beco)me of|outcomes?|conclu\w+|decid\w+|decisions?|settled?|agreed?|chose|chosen|really|"
    r"(?:key|right|real|final|last|actual) (?:fix|cause|reason|problem|solution|mistake|result)|root cause)\b",
    re.IGNORECASE,
)


def asks_for_outcome(question: str) -> bool:
    """Return whether a question is about an outcome: of several statements the last one counts."""
    return bool(_OUTCOME.search(question))


def voice_factors(question: str) -> Mapping[Voice, float]:
    """Return the factor of each voice for a question."""
    told = any(pattern.search(question) for pattern in (_REASON, _WISH, _OUTCOME))
    return TOLD_FACTORS if told else VOICE_FACTORS


def voice_factor(shares: Mapping[Voice, float], factors: Mapping[Voice, float]) -> float:
    """Return the factor of a passage in which each voice has a share."""
    return sum(share * factors.get(voice, 1.0) for voice, share in shares.items()) if shares else 1.0


def mostly(shares: Mapping[Voice, float], voices: Collection[Voice]) -> bool:
    """Return whether at least half of a passage is in these voices."""
    return sum(share for voice, share in shares.items() if voice in voices) >= 0.5
