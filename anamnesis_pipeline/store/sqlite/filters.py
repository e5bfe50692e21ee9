"""`EpisodeFilter` as SQL over `episodes e`, and pages and counts by it. The only place that knows both."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import date, datetime

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from anamnesis_pipeline.model import (
    CHAT,
    CHAT_ANSWER,
    CHAT_KINDS,
    FORMER_KIND,
    HOLDING,
    RECORD_KIND,
    RESERVED_SOURCES,
    EpisodeFilter,
)
from anamnesis_pipeline.store.contracts import Lacking, Native
from anamnesis_pipeline.store.gateway import Row
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
from anamnesis_pipeline.store.records.overview import (
    EVERYTHING,
    RECORD_TYPES,
    Census,
    Grouping,
    OverviewRecords,
    SourceState,
    Tally,
)
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SqliteGateway, SqliteTables
from anamnesis_pipeline.store.sqlite.spaces import count_lacking
from anamnesis_pipeline.store.values import EPISODE_FIELDS, instant, json_list, moment, sought, spellings

_KIND = f"CASE WHEN e.source = '{CHAT}' AND e.kind = '{FORMER_KIND}' THEN '{CHAT_ANSWER}' ELSE e.kind END"
_KIND_IS = f"{_KIND} IN (SELECT value FROM json_each(?))"
"""`model.kind_of` in SQL. No index has it, so it is asked where it makes a difference."""

_HOLDING = ", ".join(f"'{status}'" for status in HOLDING)

_TYPE_IS = f"""EXISTS (SELECT 1 FROM json_each(?) WHERE value = e.kind OR e.kind = '{RECORD_KIND}' AND EXISTS
    (SELECT 1 FROM episode_tags g WHERE g.episode_key = e.episode_key AND g.tag = value))"""

Condition = tuple[str, list[str]]
"""SQL that stands after WHERE, and its parameters in order."""


def condition(where: EpisodeFilter) -> Condition:
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
    if where.types:
        terms.append((_TYPE_IS, json_list(where.types)))
    if where.layers:
        if where.layers_at is None:
            raise ValueError(f"an episode is in {' or '.join(where.layers)} at some time; give layers_at with layers")
        terms.append((f"{_layer_at(where.layers_at)} IN (SELECT value FROM json_each(?))", json_list(where.layers)))
    pieces, parameters = [sql for sql, _ in terms], [value for _, value in terms]
    if where.hidden_sources:
        pieces.append(
            "(e.source NOT IN (SELECT value FROM json_each(?)) OR e.project IN (SELECT value FROM json_each(?)))"
        )
        parameters += [json_list(where.hidden_sources), json_list(where.shown_projects)]
    if where.only_superseded:
        pieces.append(f"e.status NOT IN ({_HOLDING})")
    elif not where.include_superseded:
        pieces.append(f"e.status IN ({_HOLDING})")
    return " AND ".join(pieces) or "1", parameters


# --- layers of memory ------------------------------------------------------------------------------------


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
        self._known: OrderedDict[EpisodeFilter, Ids | None] = OrderedDict()

    def of(self, connection: sqlite3.Connection, where: EpisodeFilter) -> Ids | None:
        """The keys of all passages that pass, ascending; None when they are more than few."""
        (version,) = connection.execute("SELECT version FROM filter_version").fetchone()
        with self._lock:  # while one asks the others wait, most often for the same
            if version == self._version and where in self._known:
                self._known.move_to_end(where)
                return self._known[where]
            terms, values = condition(where)
            rows = connection.execute(
                f"""SELECT p.passage_id FROM episodes e CROSS JOIN passages p ON p.episode_key = e.episode_key
                    WHERE {terms} LIMIT ?""",
                (*values, self._few + 1),
            ).fetchall()
            ids = np.sort(np.array(rows, np.int64).ravel()) if len(rows) <= self._few else None
            if version != self._version:
                self._version = version
                self._known.clear()
            self._known[where] = ids
            if len(self._known) > REMEMBERED_FILTERS:
                self._known.popitem(last=False)
            return ids


# --- pages and counts by a filter ------------------------------------------------------------------------


class SqliteNative(Native):
    """What SQLite does in its own form."""

    @override
    def page(
        self,
        tables: SqliteTables,
        where: EpisodeFilter,
        limit: int,
        after: tuple[str, str] | None = None,
        skip: int = 0,
        *,
        oldest_first: bool = False,
    ) -> list[Row]:
        terms, values = condition(where)
        way, beyond = ("", ">") if oldest_first else (" DESC", "<")
        if after is not None:
            terms, values = f"{terms} AND (e.timestamp, e.episode_id) {beyond} (?, ?)", [*values, *after]
        # which ones first, and their texts then: a sort of all that pass would carry every text along
        numbers = tables.connection.execute(
            f"""SELECT e.episode_key FROM episodes e WHERE {terms}
                ORDER BY e.timestamp{way}, e.episode_id{way} LIMIT ? OFFSET ?""",
            (*values, limit, skip),
        ).fetchall()
        rows = tables["episodes"].among("number", [number for (number,) in numbers], EPISODE_FIELDS)
        return sorted(rows, key=lambda row: (row["timestamp"], row["episode_id"]), reverse=not oldest_first)

    @override
    def count(self, tables: SqliteTables, where: EpisodeFilter) -> int:
        terms, values = condition(where)
        return int(tables.connection.execute(f"SELECT count(*) FROM episodes e WHERE {terms}", values).fetchone()[0])

    @override
    def projects(self, tables: SqliteTables) -> list[str]:
        """One seek in the index for each name: DISTINCT walks all of it."""
        rows = tables.connection.execute(
            """WITH RECURSIVE names (project) AS (
                    SELECT min(project) FROM episodes
                    UNION ALL
                    SELECT (SELECT min(project) FROM episodes WHERE project > names.project) FROM names
                        WHERE project IS NOT NULL)
                SELECT project FROM names WHERE project IS NOT NULL ORDER BY project"""
        )
        return [name for (name,) in rows]

    @override
    def note_lacking(self, tables: SqliteTables, written: Sequence[Lacking]) -> None:
        count_lacking(tables.connection, [each.number for each in written])

    @override
    def prepare(self, texts: Iterable[str]) -> None:
        """Do nothing: SQLite indexes the texts as it writes them."""


_TALLY = f"""SELECT count(*), coalesce(sum(status IN ({_HOLDING})), 0),
        coalesce(sum(status IN ({_HOLDING}) AND (edited > 0 OR kind IN (SELECT value FROM json_each(:kinds))
            OR episode_key IN (SELECT episode_key FROM episode_tags
                WHERE tag IN (SELECT value FROM json_each(:tags))))), 0),
        coalesce(sum(superseded_by IS NOT NULL), 0), coalesce(sum(read_count >= :confirmed), 0),
        coalesce(sum(retrieval_count), 0)
    FROM episodes"""


_KEPT_AWAY = """SELECT count(*) FROM (
        SELECT part_id FROM parts WHERE held_by IS NOT NULL
        UNION SELECT p.part_id FROM tombstones t JOIN parts p ON p.part_id = t.episode_id
    ) JOIN parts USING (part_id)
    WHERE NOT EXISTS (SELECT 1 FROM episodes e WHERE e.episode_id = part_id) AND (?1 IS NULL OR source = ?1)"""


_GROUPED = {
    "kind": _KIND,
    "month": "substr(e.timestamp, 1, 7)",
    "day": "substr(e.timestamp, 1, 10)",
    "hour": "substr(e.timestamp, 1, 13)",
    "project": "e.project",
    "source": "e.source",
    "instance": "e.instance",
    "type": f"""CASE WHEN e.kind = '{RECORD_KIND}' THEN coalesce((SELECT min(g.tag) FROM episode_tags g
        WHERE g.episode_key = e.episode_key AND g.tag IN ({_texts(RECORD_TYPES)})), '') ELSE {_KIND} END""",
}
"""`Grouping` in SQL, but for the layer, which depends on the time."""


class SqliteOverview(OverviewRecords):
    """Counts over all episodes in SQLite."""

    def __init__(self, database: Database) -> None:
        super().__init__(SqliteGateway(database))
        self._database = database

    @override
    def sources(self) -> dict[str, SourceState]:
        with self._database.read() as connection:
            rows = connection.execute("SELECT source, count(*), max(timestamp) FROM episodes GROUP BY source")
            return {source: SourceState(count, moment(newest)) for source, count, newest in rows}

    @override
    def tally(self) -> Tally:
        given = {
            "kinds": json_list(sorted(LASTING_KINDS)),
            "tags": json_list(sorted(LASTING_TAGS)),
            "confirmed": WORKING_BELOW,
        }
        with self._database.read() as connection:
            return Tally(*connection.execute(_TALLY, given).fetchone())

    @override
    def census(self, where: EpisodeFilter = EVERYTHING) -> Census:
        terms, values = condition(where)
        of = f"FROM episodes e WHERE {terms}"
        with self._database.read() as connection:
            episodes, retrievals = connection.execute(
                f"SELECT count(*), coalesce(sum(e.retrieval_count), 0) {of}", values
            ).fetchone()
            projects, instances = (
                dict(connection.execute(f"SELECT e.{name}, count(*) {of} GROUP BY 1 ORDER BY 2 DESC, 1", values))
                for name in ("project", "instance")
            )
        return Census(episodes, retrievals, projects, instances)

    @override
    def kept_away(self, tables: SqliteTables, source: str | None) -> int:
        return int(tables.connection.execute(_KEPT_AWAY, (source,)).fetchone()[0])

    @override
    def days(self, where: EpisodeFilter) -> dict[date, int]:
        terms, values = condition(where)
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT substr(e.timestamp, 1, 10), count(*) FROM episodes e WHERE {terms}
                    GROUP BY 1 ORDER BY 1""",
                values,
            )
            return {date.fromisoformat(day): count for day, count in rows}

    @override
    def groups(self, by: Grouping, where: EpisodeFilter, now: datetime) -> dict[str, int]:
        terms, values = condition(where)
        value = _layer_at(now) if by == "layer" else _GROUPED[by]
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {value}, count(*) FROM episodes e WHERE {terms} GROUP BY 1 ORDER BY 2 DESC, 1", values
            )
            return dict(rows.fetchall())

    @override
    def most_read(self, where: EpisodeFilter, limit: int) -> list[str]:
        terms, values = condition(where)
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT e.episode_id FROM episodes e WHERE e.read_count > 0 AND {terms}
                    ORDER BY e.read_count DESC, e.last_retrieved DESC, e.episode_id LIMIT ?""",
                (*values, limit),
            )
            return [name for (name,) in rows]
