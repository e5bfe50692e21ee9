"""The gateway over SQLite: each verb is one SQL statement."""

# ruff: noqa: S608
# only declared names enter the SQL

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, TypeVar

from typing_extensions import override

from anamnesis_pipeline.store.gateway import Field, Gateway, Match, Order, Row, Rows, Tables, can_be_stored, spelled_out
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.tables import BY_NAME, EPISODES, PASSAGES, PENDING, TEXT, Table, table
from anamnesis_pipeline.store.values import as_json, json_list

T = TypeVar("T")

EPISODE_TEXTS = table(
    "episode_texts",
    "number int",
    "summary, tags texts, machine, path, session_id, metadata, message_ids texts, message_keys texts, raw_exchange",
    wide=True,
)
"""Holds the long fields of `episodes`, so that a filter reads few pages. The longest are last, so that reading the
others leaves their pages alone.
"""
EPISODE_TAGS = table("episode_tags", "tag, number int")
"""Holds `episodes.tags` by tag."""
PASSAGE_TEXTS = table("passage_texts", "passage_id int", "text, context, message_ids texts", wide=True)
"""Holds the texts of `passages`."""
SPACE_VARIANTS = table("space_variants", "space_id int, variant")
"""Holds `spaces.variants` by variant."""
NUMBER_COLUMN = "episode_key"
"""The column of `episodes.number`."""
_COLUMNS = {
    **{
        name: {"number": NUMBER_COLUMN} for name in ("episodes", "episode_texts", "episode_tags", "passages", "pending")
    },
    "vectors": {"vector": "vec"},
    "numbers": {"last": "seq"},
}
"""Table -> field -> its column, where that has another name."""

_LONG = frozenset(EPISODE_TEXTS.fields[1:])
_TEXTS = frozenset(PASSAGE_TEXTS.fields[1:])
_NARROW = EPISODES.required - _LONG
"""Fields without which there is no row of `episodes` itself."""
_COMPARISONS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


class SqliteGateway(Gateway):
    """The engine over one SQLite file."""

    def __init__(self, database: Database, tables: type["SqliteTables"] | None = None) -> None:
        self._database = database
        self._tables = tables or SqliteTables

    @override
    @contextmanager
    def read(self) -> Iterator["SqliteTables"]:
        with self._database.read() as connection:
            yield self._tables(connection)

    snapshot = read

    @override
    def write(self, work: Callable[["SqliteTables"], T], *, within_s: float | None = None) -> T:
        """SQLite's own time-out applies, not `within_s`."""
        with self._database.write() as connection:
            return work(self._tables(connection))


class SqliteTables(Tables):
    """The tables of the file, on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    @override
    def __getitem__(self, name: str) -> "SqliteRows":
        return _SPREAD.get(name, SqliteRows)(self.connection, BY_NAME[name])


class SqliteRows(Rows):
    """The rows of one SQL table."""

    def __init__(self, connection: sqlite3.Connection, table: Table, name: str = "") -> None:
        """:param name: of the SQL table, where it has another one."""
        self._connection = connection
        self._table = table
        self._lists = table.lists
        self._name = name or table.name
        self._required = _NARROW if table is EPISODES else table.required

    @override
    def each(
        self, match: Match, fields: Sequence[str] = (), *, order: Order = (), limit: int | None = None, skip: int = 0
    ) -> Iterator[Row]:
        names = fields or self._table.fields
        terms, values = self._where(match)
        columns = ", ".join(column(self._table, name) for name in names)
        sql = f"SELECT {columns} FROM {self._origin(names, match, order)} WHERE {terms}"
        if order:
            sql += f" ORDER BY {ordered(self._table, order, is_of_list=_asks_for_list(match))}"
        if limit is not None or skip:
            sql += " LIMIT ? OFFSET ?"
            values += [-1 if limit is None else max(0, limit), skip]
        lists = self._lists.intersection(names)
        for found in self._connection.execute(sql, values):
            row = dict(zip(names, found, strict=True))
            for name in lists:
                row[name] = json.loads(row[name])
            yield row

    @override
    def among(self, field: str, values: Iterable[Any], fields: Sequence[str] = (), **match: Any) -> Iterator[Row]:
        wanted = list(filter(can_be_stored, dict.fromkeys(values)))
        return self.each({**match, field: {"$in": wanted}}, fields) if wanted else iter(())

    @override
    def has(self, match: Match) -> bool:
        terms, values = self._where(match)
        sql = f"SELECT 1 FROM {self._origin(match)} WHERE {terms} LIMIT 1"
        return self._connection.execute(sql, values).fetchone() is not None

    @override
    def count(self, match: Match, *, by: Sequence[str] = ()) -> int:
        if not by:
            return int(self.sums(match)[0]["rows"])
        terms, values = self._where(match)
        distinct = f"SELECT DISTINCT {self._listed(by)} FROM {self._origin(by, match)} WHERE {terms}"
        return int(self._connection.execute(f"SELECT count(*) FROM ({distinct})", values).fetchone()[0])

    @override
    def sums(self, match: Match, fields: Sequence[str] = (), *, by: Sequence[str] = ()) -> list[Row]:
        if not by:  # a term that every row meets keeps SQLite from counting a table without reading its rows
            match = {name: its for name, its in match.items() if its != TEXT or self._table.kinds.get(name) != "text"}
        terms, values = self._where(match)
        groups = [column(self._table, name) for name in by]
        sums = [f"coalesce(sum({column(self._table, name)}), 0)" for name in fields]
        found = self._connection.execute(
            f"SELECT {', '.join([*groups, 'count(*)', *sums])} FROM {self._origin(by, fields, match)} WHERE {terms}"
            + (f" GROUP BY {', '.join(groups)}" if groups else ""),
            values,
        )
        return [dict(zip((*by, "rows", *fields), each, strict=True)) for each in found]

    @override
    def firsts(self, match: Match, *, by: Sequence[str], fields: Sequence[str], order: Order) -> list[Row]:
        names = [*by, *fields]
        terms, values = compiled(self._table, match)
        columns = ", ".join(column(self._table, name) for name in names)
        groups = ", ".join(column(self._table, name) for name in by)
        window = f"PARTITION BY {groups} ORDER BY {ordered(self._table, order)}"
        rows = f"SELECT {columns}, row_number() OVER ({window}) AS place FROM {self._origin(names, match, order)}"
        sql = f"SELECT {self._listed(names)} FROM ({rows} WHERE {terms}) WHERE place = 1"
        found = self._connection.execute(sql, values)
        return [dict(zip(names, each, strict=True)) for each in found]

    @override
    def insert(self, rows: Sequence[Row]) -> int:
        first = 0
        for row in rows:
            number = self._connection.execute(self._insert(row), self._values(row)).lastrowid
            first = first or number or 0
        return first if self._table.serial else 0

    @override
    def add(self, rows: Sequence[Row]) -> int:
        key = self._listed(self._table.key)
        return sum(
            self._connection.execute(f"{self._insert(row)} ON CONFLICT ({key}) DO NOTHING", self._values(row)).rowcount
            for row in rows
        )

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        key = self._listed(self._table.key)
        for names, its in groupby(rows, key=tuple):
            changed = [name for name in names if name not in (*self._table.key, *keep)]
            if not self._required <= set(names):
                for row in its:
                    self.update({name: row[name] for name in self._table.key}, {name: row[name] for name in changed})
                continue
            sets = ", ".join(f"{each} = excluded.{each}" for each in (column(self._table, name) for name in changed))
            action = f"UPDATE SET {sets}" if sets else "NOTHING"
            sql = f"{self._insert(names)} ON CONFLICT ({key}) DO {action}"
            self._connection.executemany(sql, map(self._values, its))

    @override
    def update(self, match: Match, change: Row, *, add: Mapping[str, int] | None = None) -> int:
        fields = {name: value.name for name, value in change.items() if isinstance(value, Field)}
        given = {name: value for name, value in change.items() if name not in fields}
        sets = [f'"{name}" = "{other}"' for name, other in fields.items()]
        sets += [f'"{name}" = ?' for name in given] + [f'"{name}" = "{name}" + ?' for name in add or ()]
        terms, values = self._where(match)
        sql = f"UPDATE {self._name} SET {', '.join(sets)} WHERE {terms}"
        return self._connection.execute(sql, [*self._values(given), *(add or {}).values(), *values]).rowcount

    @override
    def delete(self, match: Match) -> int:
        terms, values = self._where(match)
        return self._connection.execute(f"DELETE FROM {self._name} WHERE {terms}", values).rowcount

    def _where(self, match: Match) -> tuple[str, list[Any]]:
        return compiled(self._table, match)

    def _insert(self, names: Iterable[str]) -> str:
        columns = self._listed(names)
        return f"INSERT INTO {self._name} ({columns}) VALUES ({', '.join('?' * (columns.count(',') + 1))})"

    def _values(self, row: Row) -> list[Any]:
        return [as_json(value) if name in self._lists else value for name, value in row.items()]

    def _listed(self, names: Iterable[str]) -> str:
        return ", ".join(column(self._table, name) for name in names)

    def _origin(self, *parts: Iterable[str]) -> str:
        """Return the tables that hold the fields which these parts of a statement name."""
        if self._table is not EPISODES and self._table is not PASSAGES:
            return self._name
        named = {name for part in parts for name in _named(part)}
        if self._table is EPISODES:
            return self._name + (f" JOIN {EPISODE_TEXTS.name} USING ({NUMBER_COLUMN})" if named & _LONG else "")
        texts = f" CROSS JOIN {PASSAGE_TEXTS.name} USING (passage_id)" if named & _TEXTS else ""
        if "episode_id" not in named:
            return f"{self._name}{texts}"
        # SQLite joins in this order, so what leaves few rows comes first
        if any("episode_id" in part for part in parts if isinstance(part, Mapping)):
            return f"episodes CROSS JOIN {self._name} USING ({NUMBER_COLUMN}){texts}"
        return f"{self._name}{texts} CROSS JOIN episodes USING ({NUMBER_COLUMN})"


class SqliteEpisodes(SqliteRows):
    """Episodes, spread over three tables."""

    @override
    def insert(self, rows: Sequence[Row]) -> int:
        first = super().insert([{name: row[name] for name in row if name not in _LONG} for row in rows])
        self._put_long([{**row, "number": number} for number, row in enumerate(rows, first)])
        return first

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        super().put([{name: row[name] for name in row if name not in _LONG} for row in rows], keep)
        self._put_long(rows)

    @override
    def delete(self, match: Match) -> int:
        """Delete them with all that belongs to them."""
        named = match["number"] if match.keys() == {"number"} else None
        if isinstance(named, Mapping) and named.keys() == {"$in"}:
            numbers = list(named["$in"])
        else:
            numbers = [row["number"] for row in self.find(match, ["number"])]
        if not numbers:
            return 0
        SqlitePassages(self._connection, PASSAGES).delete_of(numbers)
        for each in (EPISODE_TAGS, EPISODE_TEXTS, PENDING):
            SqliteRows(self._connection, each).delete({"number": {"$in": numbers}})
        return super().delete({"number": {"$in": numbers}})

    def _put_long(self, rows: Sequence[Row]) -> None:
        texts = [{name: row[name] for name in EPISODE_TEXTS.fields if name in row} for row in rows]
        SqliteRows(self._connection, EPISODE_TEXTS).put([row for row in texts if len(row) > 1])
        tagged = [row for row in rows if "tags" in row]
        tags = SqliteRows(self._connection, EPISODE_TAGS)
        tags.delete({"number": {"$in": [row["number"] for row in tagged]}})
        tags.insert([{"tag": tag, "number": row["number"]} for row in tagged for tag in dict.fromkeys(row["tags"])])


class SqlitePassages(SqliteRows):
    """Passages, whose texts are apart. One never changes: it is deleted with its vectors, and another is inserted."""

    @override
    def insert(self, rows: Sequence[Row]) -> int:
        sql = """INSERT INTO passages (passage_id, episode_key, ordinal)
            VALUES (?, (SELECT episode_key FROM episodes WHERE episode_id = ?), ?)"""
        texts: list[Row] = []
        for row in rows:
            values = (row.get("passage_id"), row["episode_id"], row["ordinal"])
            passage_id = self._connection.execute(sql, values).lastrowid
            texts.append({"passage_id": passage_id, **{name: row[name] for name in _TEXTS}})
        SqliteRows(self._connection, PASSAGE_TEXTS).insert(texts)
        return texts[0]["passage_id"] if texts else 0

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        self.delete({"passage_id": {"$in": [row["passage_id"] for row in rows]}})
        self.insert(rows)

    @override
    def delete(self, match: Match) -> int:
        """Delete them with their full text and the vectors of every space."""
        return self._delete([row["passage_id"] for row in self.find(match, ["passage_id"])])

    def delete_of(self, numbers: Sequence[int]) -> None:
        """Delete those of the episodes of these numbers."""
        sql = f"SELECT passage_id FROM passages WHERE {NUMBER_COLUMN} IN (SELECT value FROM json_each(?))"
        self._delete([key for (key,) in self._connection.execute(sql, (json_list(numbers),))])

    def _delete(self, passage_ids: Sequence[int]) -> int:
        if not passage_ids:
            return 0
        of_these, ids = "passage_id IN (SELECT value FROM json_each(?))", json_list(passage_ids)
        for name in ("passages", "passage_texts"):
            self._connection.execute(f"DELETE FROM {name} WHERE {of_these}", (ids,))
        variants = self._connection.execute("SELECT space_id, variant FROM space_variants").fetchall()
        self._connection.executemany(
            f"DELETE FROM vectors WHERE space_id = ? AND variant = ? AND {of_these}",
            [(*each, ids) for each in variants],
        )
        self._connection.executemany(
            f"DELETE FROM token_vectors WHERE space_id = ? AND {of_these}",
            [(space_id, ids) for space_id in sorted({space_id for space_id, _ in variants})],
        )
        return len(passage_ids)


_SPREAD: Mapping[str, type[SqliteRows]] = {EPISODES.name: SqliteEpisodes, PASSAGES.name: SqlitePassages}
"""Tables that SQLite keeps in several."""


def compiled(table: Table, match: Match) -> tuple[str, list[Any]]:
    """Return a match as an SQL expression, and its values. Flags and the empty text stand in the SQL itself, since
    SQLite uses a partial index only where the statement has the very terms of the index.
    """
    terms: list[str] = []
    values: list[Any] = []
    is_of_list = _asks_for_list(match)
    for name, wanted in match.items():
        if name in ("$or", "$and"):
            parts = [compiled(table, each) for each in wanted]
            terms.append("(" + f" {name[1:].upper()} ".join(f"({sql})" for sql, _ in parts) + ")")
            values += [value for _, its in parts for value in its]
            continue
        if name == "$beyond":
            if len({each.startswith("-") for each in wanted}) > 1:
                sql, bound = compiled(table, spelled_out(wanted))
            else:
                # of rows that are compared as one, SQLite begins at their place in an index; of terms that OR joins it
                # would read all
                columns = (_offered(table, each.removeprefix("-"), is_of_list=is_of_list) for each in wanted)
                sign = "<" if next(iter(wanted)).startswith("-") else ">"
                sql = f"({', '.join(columns)}) {sign} ({', '.join('?' * len(wanted))})"
                bound = list(wanted.values())
            terms.append(sql)
            values += bound
            continue
        if name in table.flags:
            sql = table.flags[name].sql
            terms.append(sql if wanted == 1 else f"NOT ({sql})")
            continue
        for operator, value in wanted.items() if isinstance(wanted, Mapping) else [("$eq", wanted)]:
            if operator == "$has":
                sql, bound = _has(table, name), [value]
            else:
                sql, bound = _term(_offered(table, name, is_of_list=is_of_list), operator, value)
            terms.append(sql)
            values += bound
    return " AND ".join(terms) or "1", values


def ordered(table: Table, order: Order, *, is_of_list: bool = False) -> str:
    """Return an order as an SQL expression. `is_of_list`: as in `_offered`."""
    return ", ".join(
        f"{_offered(table, name.removeprefix('-'), is_of_list=is_of_list)}{' DESC' if name.startswith('-') else ''}"
        for name in order
    )


def _asks_for_list(match: Match) -> bool:
    return any(isinstance(wanted, Mapping) and "$has" in wanted for wanted in match.values())


def _offered(table: Table, name: str, *, is_of_list: bool) -> str:
    """Return a column. Beside a term of a list, which leaves few rows, SQLite is offered no other index: a `+` hides a
    column from its planner.
    """
    return f"{'+' if is_of_list and name != table.serial else ''}{column(table, name)}"


def column(table: Table, name: str) -> str:
    """Return the column of a field, as SQL."""
    if name not in table.kinds:
        raise KeyError(f"{table.name} has no field {name}; its fields are {', '.join(table.fields)}")
    kept = _COLUMNS.get(table.name.partition("/")[0])
    return f'"{kept.get(name, name) if kept else name}"'


def _has(table: Table, name: str) -> str:
    """Return the comparison that finds a text in a list, as SQL."""
    if table is EPISODES and name == "tags":
        return f"{NUMBER_COLUMN} IN (SELECT {NUMBER_COLUMN} FROM {EPISODE_TAGS.name} WHERE tag = ?)"
    return f"? IN (SELECT value FROM json_each({column(table, name)}))"


def _term(column: str, operator: str, value: Any) -> tuple[str, list[Any]]:
    """Return one comparison as SQL, and its values."""
    literal = "''" if value == "" else str(value) if value in (0, 1) and isinstance(value, int) else ""
    shown, bound = (literal, []) if literal else ("?", [value])
    if operator == "$gt" and value == "":
        return f"{column} <> ''", []  # as the partial indexes have it
    if operator in _COMPARISONS:
        return f"{column} {_COMPARISONS[operator]} {shown}", bound
    match operator:
        case "$eq":
            return (f"{column} IS NULL", []) if value is None else (f"{column} = {shown}", bound)
        case "$ne":
            return (f"{column} IS NOT NULL", []) if value is None else (f"{column} IS NOT {shown}", bound)
        case "$in":
            return f"{column} IN (SELECT value FROM json_each(?))", [json_list(value)]
        case "$contains":
            return f"instr(casefold({column}), ?) > 0", [value.casefold()]
    raise ValueError(f"a match knows no operator {operator!r}; see `gateway.py` for those it knows")


def _named(part: Iterable[str]) -> Iterator[str]:
    """Yield the fields that a match, an order or a list of fields names."""
    for name in part:
        if name == "$beyond" and isinstance(part, Mapping):
            yield from _named(part[name])
        elif name.startswith("$") and isinstance(part, Mapping):
            for each in part[name]:
                yield from _named(each)
        else:
            yield name.removeprefix("-")
