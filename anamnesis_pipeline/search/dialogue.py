"""Turns of a conversation that a client posted: who speaks, and whether it asks. Pure."""

import re

from anamnesis_pipeline.model import EpisodeHead

SPEAKER_FACTOR = 1.7
"""Of a turn whose speaker the question names: who is asked about told it. By a conditional logit over LoCoMo's
development conversations, as ASKS_FACTOR (docs/decisions/0014)."""
ASKS_FACTOR = 0.8
"""Of a turn that ends with a question: it is what the answer follows, and not the answer."""
_LABEL = re.compile(r"\s*((?:\w[\w'’.-]*)(?: \w[\w'’.-]*){0,2}):\s")
_WORD = re.compile(r"\w+")


def speaker_of(text: str) -> str | None:
    """Who or what is named before the colon that a text begins with: `Ada Lovelace: ...`, `Decision: ...`."""
    match = _LABEL.match(text)
    if match is None or not all(word[0].isupper() for word in match[1].split()):
        return None
    return match[1]


def dialogue_factors(head: EpisodeHead, text: str, question: str) -> dict[str, float]:
    """Name of a factor -> factor, for those that apply to what was posted. A transcript of Claude Code has no names
    before its turns, and what it asks is answered within the same episode.

    :param text: the passage that is found.
    """
    if head.source != "direct":
        return {}
    found = {}
    speaker = speaker_of(text)
    if speaker is not None and _words(speaker) <= _words(question):
        found["speaker"] = SPEAKER_FACTOR
    if text.rstrip().endswith("?"):
        found["asks"] = ASKS_FACTOR
    return found


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}
