"""`Where` as SQL over `episodes e`. The only place that knows both."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import CHAT, CHAT_ANSWER, CHAT_KINDS, FORMER_KIND, RESERVED_SOURCES, Where
from anamnesis_pipeline.store.memory_layers import (
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
from anamnesis_pipeline.store.values import instant, json_list, sought, spellings

_KIND_IS = f"""CASE WHEN e.source = '{CHAT}' AND e.kind = '{FORMER_KIND}' THEN '{CHAT_ANSWER}' ELSE e.kind END
    IN (SELECT value FROM json_each(?))"""
"""`model.kind_of` in SQL. No index has it, so it is asked where it makes a difference."""

Condition = tuple[str, list[str]]
"""SQL that stands after WHERE, and its parameters in order."""


def condition(where: Where) -> Condition:
    """What an episode must meet, as one expression; `1` when nothing is asked."""
    lists = (
        ("e.project IN (SELECT value FROM json_each(?))", spellings(where.projects)),
        ("e.project NOT IN (SELECT value FROM json_each(?))", where.hidden_projects),
        (_KIND_IS if CHAT_KINDS & set(where.kinds) else "e.kind IN (SELECT value FROM json_each(?))", where.kinds),
        ("e.kind NOT IN (SELECT value FROM json_each(?))", where.hidden_kinds),
    )
    terms = [(test, json_list(values)) for test, values in lists if values]
    of_session = "e.episode_key IN (SELECT episode_key FROM episode_texts WHERE session_id = ?)"
    values = (
        ("e.instance = ?", where.instance),
        ("e.source = ?", where.source),
        (of_session, where.session_id),
        ("e.timestamp >= ?", instant(where.since) if where.since else None),
        ("e.timestamp < ?", instant(where.until) if where.until else None),
    )
    terms += [(test, sought(value)) for test, value in values if value is not None]
    terms += [
        ("e.episode_key IN (SELECT episode_key FROM episode_tags WHERE tag = ?)", sought(tag)) for tag in where.tags
    ]
    terms += layer_terms(where)
    pieces, parameters = [sql for sql, _ in terms], [value for _, value in terms]
    if where.hidden_sources:
        pieces.append(
            "(e.source NOT IN (SELECT value FROM json_each(?)) OR e.project IN (SELECT value FROM json_each(?)))"
        )
        parameters += [json_list(where.hidden_sources), json_list(where.shown_projects)]
    if where.only_superseded:
        pieces.append("e.status = 'superseded'")
    elif not where.include_superseded:
        pieces.append("e.status = 'active'")
    return " AND ".join(pieces) or "1", parameters


# --- layers of memory ------------------------------------------------------------------------------------


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


# --- passages that pass a filter -------------------------------------------------------------------------

FEW_ROWS = 20_000
REMEMBERED_FILTERS = 32

Ids = NDArray[np.int64]


class PassingPassages:
    """The answers to the filters asked last. Safe to share between threads."""

    def __init__(self, few: int = FEW_ROWS) -> None:
        """:param few: most passages that count as few."""
        self._few = few
        self._lock = threading.Lock()
        self._version = -1
        self._known: OrderedDict[Where, Ids | None] = OrderedDict()

    def of(self, connection: sqlite3.Connection, where: Where) -> Ids | None:
        """The keys of all passages that pass, ascending; None when they are more than few."""
        (version,) = connection.execute("SELECT version FROM filter_version").fetchone()
        with self._lock:  # while one asks the others wait, most often for the same
            if version == self._version and where in self._known:
                self._known.move_to_end(where)
                return self._known[where]
            ids = _asked(connection, where, self._few)
            if version != self._version:
                self._version = version
                self._known.clear()
            self._known[where] = ids
            if len(self._known) > REMEMBERED_FILTERS:
                self._known.popitem(last=False)
            return ids


def _asked(connection: sqlite3.Connection, where: Where, few: int) -> Ids | None:
    terms, values = condition(where)
    rows = connection.execute(
        f"""SELECT p.passage_id FROM episodes e CROSS JOIN passages p ON p.episode_key = e.episode_key
            WHERE {terms} LIMIT ?""",
        (*values, few + 1),
    ).fetchall()
    return np.sort(np.array(rows, np.int64).ravel()) if len(rows) <= few else None
