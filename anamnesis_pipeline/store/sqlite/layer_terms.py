"""Layers of memory as SQL over `episodes e`."""

# ruff: noqa: S608
# only names of ours enter the SQL

from collections.abc import Iterable
from datetime import datetime

from anamnesis_pipeline.memory_layers import (
    CODE,
    LASTING_KINDS,
    LASTING_TAGS,
    PROCEDURE,
    PROVEN_READS,
    PROVEN_VALUE,
    WORKING_BELOW,
    WORKING_FOR,
    Layer,
)
from anamnesis_pipeline.model import RESERVED_SOURCES, Where
from anamnesis_pipeline.store.values import instant, json_list


def layer_terms(where: Where) -> list[tuple[str, str]]:
    """What an episode must meet to be in one of the layers asked for, with its parameter; nothing when none is.

    :raises ValueError: it is not said at what time.
    """
    if not where.layers:
        return []
    if where.layers_at is None:
        raise ValueError(f"an episode is in {' or '.join(where.layers)} at some time; give layers_at with layers")
    return [(f"{_layer_at(where.layers_at)} IN (SELECT value FROM json_each(?))", json_list(where.layers))]


def _layer_at(now: datetime) -> str:
    """`memory_layers.layer_of` in SQL; a contract test holds the two equal."""
    return f"""(SELECT CASE
        WHEN e.kind = '{CODE}' THEN '{Layer.CODEBASE}'
        WHEN e.kind = '{PROCEDURE}' OR e.kind = 'record' AND t.metadata ->> '$.type' = '{PROCEDURE}'
            THEN '{Layer.PROCEDURAL}'
        WHEN e.kind IN ({_texts(LASTING_KINDS)}) OR json_type(t.metadata, '$.trust') IS NOT NULL
            OR EXISTS (SELECT 1 FROM episode_tags g WHERE g.tag IN ({_texts(LASTING_TAGS)})
                AND g.episode_key = e.episode_key)
            OR e.read_count >= {PROVEN_READS} AND e.source NOT IN ({_texts(RESERVED_SOURCES)})
                AND json_type(t.metadata, '$.value') IN ('integer', 'real')
                AND t.metadata ->> '$.value' >= {PROVEN_VALUE}
            THEN '{Layer.SEMANTIC}'
        WHEN e.read_count < {WORKING_BELOW} AND e.timestamp > '{instant(now - WORKING_FOR)}'
            THEN '{Layer.WORKING}'
        ELSE '{Layer.EPISODIC}' END
        FROM episode_texts t WHERE t.episode_key = e.episode_key)"""


def _texts(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in sorted(values))
