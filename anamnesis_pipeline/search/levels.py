"""The null-query baseline of a space: measure and store it."""

from collections.abc import Callable
from typing import Any

from anamnesis_pipeline.embeddings.base import QueryVectors
from anamnesis_pipeline.model import Space, Where
from anamnesis_pipeline.search.background import QUESTIONS
from anamnesis_pipeline.search.floor import BUILT_IN, Evidence, Level, level_of
from anamnesis_pipeline.search.words import unknown_share
from anamnesis_pipeline.store.base import Store

LEVEL = "level."
"""Prefix of the stored setting, before the key of the space."""
GROWN = 1.5
"""A space that has grown or shrunk by this factor is measured again: more passages mean nearer ones."""


def stored_level(store: Store, space: Space) -> Level | None:
    """Return the last measured baseline of a space, else its model's built-in one; None: there is neither."""
    row = store.settings.get(LEVEL + space.key)
    if row is None:
        return BUILT_IN.get(space.model_id)
    return Level(row["means"], row["spreads"], row["unknown"])


def is_due(store: Store, space: Space) -> bool:
    """Return whether to measure a space: it was not measured yet, or its size has changed."""
    now = store.vectors.progress(space.key).passages_done
    row: dict[str, Any] = store.settings.get(LEVEL + space.key) or {"passages": 0}
    return now > 0 and not row["passages"] / GROWN < now < row["passages"] * GROWN


def measure_level(store: Store, space: Space, embed_query: Callable[[str, Space], QueryVectors]) -> Level:
    """Search for unrelated questions and store the results with the space, which has vectors. About 10 ms a question.

    :raises RetryLater: the model is still loading, or too many calls wait.
    """
    passages = store.vectors.progress(space.key).passages_done
    level = level_of([_found(store, space, question, embed_query) for question in QUESTIONS])
    row = {"passages": passages, "means": level.means, "spreads": level.spreads, "unknown": level.unknown}
    store.settings.set(LEVEL + space.key, row)
    return level


def _found(store: Store, space: Space, question: str, embed_query: Callable[[str, Space], QueryVectors]) -> Evidence:
    vector = embed_query(question, space).vector
    lists = {f"dense_{v}": store.vectors.nearest(space.key, v, vector, 1, Where()) for v in space.variants}
    nearest = {name: found[0].score for name, found in lists.items() if found}
    return Evidence(nearest, unknown_share(question, store.text.unknown))
