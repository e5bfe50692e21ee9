"""The excerpt of a hit: the passages of the episode that answer. Pure."""

import itertools
from collections.abc import Mapping, Sequence

from anamnesis_pipeline.model import StoredPassage

SECOND_WITHIN = 15
"""The second best passage of an episode is shown, too, if its rank among all passages is at most this: it is needed for
3% of the questions, and lengthens an answer by a quarter."""
CUT = "[…]"
"""Marks omitted text between two passages."""


def excerpt_of(passages: Sequence[StoredPassage]) -> tuple[str, tuple[str, ...]]:
    """Return the text of one or two passages of an episode in its order, and the IDs of their messages."""
    ordered = sorted(passages, key=lambda stored: stored.passage.ordinal)
    text = ordered[0].passage.text
    for before, after in itertools.pairwise(ordered):
        apart = after.passage.ordinal - before.passage.ordinal > 1
        text += f"\n{CUT}\n" if apart else "\n"
        text += after.passage.text
    ids = dict.fromkeys(id_ for stored in passages for id_ in stored.passage.message_ids)
    return text, tuple(ids)


def second_passages(scores: Mapping[int, float], episode_of: Mapping[int, str]) -> dict[str, int]:
    """Return episode ID -> its second best passage, if that is among the first of all."""
    seen: set[str] = set()
    seconds: dict[str, int] = {}
    for key in sorted(scores, key=lambda key: (-scores[key], -key))[:SECOND_WITHIN]:
        if episode_of[key] in seen:
            seconds.setdefault(episode_of[key], key)
        seen.add(episode_of[key])
    return seconds
