"""The tables of a new file, made from `tables.py`, and the numbered migrations of older files.

A change of a released table is both a new migration and a change of what a new file gets; a test compares the two. A
table that is new in `tables.py` needs neither: a file that lacks it gets it when it is opened.
"""

# ruff: noqa: S608
# only names of ours enter the SQL

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.index_terms import EXACT_TOKENIZER, STEM_TOKENIZER
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import (
    EPISODE_TAGS,
    EPISODE_TEXTS,
    PASSAGE_TEXTS,
    SPACE_VARIANTS,
    column,
    compiled,
    ordered,
)
from anamnesis_pipeline.store.tables import BY_NAME, EPISODES, INCOMPLETE, PENDING, SPACES, Table, plain_tables, table
from anamnesis_pipeline.store.values import instant

log = logging.getLogger(__name__)

APPLICATION_ID = 0x414E414D  # "ANAM"; tells this file from any other SQLite database

# --- tables ----------------------------------------------------------------------------------------------

_OWN_TABLES = (
    replace(
        EPISODES,
        kinds={name: EPISODES.kinds[name] for name in EPISODES.fields if name not in EPISODE_TEXTS.kinds}
        | {"number": "int"},
    ),
    EPISODE_TEXTS,
    EPISODE_TAGS,
    table("passages", "passage_id int", "number int, ordinal int", serial="passage_id"),
    PASSAGE_TEXTS,
    SPACES,
    SPACE_VARIANTS,
    # vectors arrive in any order of passages, so what an index file covers is known by seq, which only grows
    table("vectors", "seq int", "space_id int, variant, passage_id int, vec bytes", serial="seq"),
    # one bit for each number, a token after the other. With rowids: without, 5 KB would take 8 KB of pages
    table("token_vectors", "token_key int", "space_id int, passage_id int, tokens int, data bytes", wide=True),
    PENDING,
    # removed counts the vectors taken out of a file since it was last built from nothing
    table("index_files", "space_id int, variant", "name, bytes int, covered_seq int, vectors int, removed int"),
)
"""Tables that differ from those of `tables.py`, or that only this engine has."""
_COLUMN_TYPES = {
    "text": "TEXT",
    "texts": "TEXT",
    "int": "INTEGER",
    "flag": "INTEGER",
    "real": "REAL",
    "bytes": "BLOB",
}
_UNIQUE = {"episodes": "episode_id", "spaces": "key"}
_WITH_DEFAULT = frozenset(
    """episodes.edited episodes.retrieval_count episodes.read_count messages.canonical parts.origin parts.section
    llm_asked.void tombstones.reason tombstones.went_with consolidated.undone session_notes.root session_notes.revision
    session_notes.until session_notes.branch chat_messages.records_at""".split()
)
"""Columns that are 0 or empty where a row is written without them."""
_INDEXES = {
    "files": f"incomplete (source, path) WHERE gone = 0 AND {INCOMPLETE.sql}",
    "frames": """by_mark (mark) WHERE mark <> '';
        by_base (base_source, base_path, base_generation) WHERE base_source IS NOT NULL""",
    "messages": "by_source (source) WHERE canonical = ''; by_canonical (canonical) WHERE canonical <> ''",
    "parts": """by_exchange (source, exchange_id); by_path (source, path);
        by_session (session_id, agent_id, started_at, project); summarized (source) WHERE summarized_hash IS NOT NULL;
        of_unlinked_agents (source) WHERE kind = 'subagent' AND origin = ''; open (source, ended_at) WHERE closed = 0;
        to_summarize (source, ended_at DESC, part_id DESC) WHERE closed = 1 AND summarized_hash IS NOT content_hash;
        to_summarize_again (source, summary_due) WHERE closed = 1 AND summary_due IS NOT NULL;
        to_publish (source, ended_at DESC, part_id DESC) WHERE published_hash IS NOT wanted_hash AND held_by IS NULL;
        held (held_by) WHERE held_by IS NOT NULL""",
    "sightings": """by_section (place, anchor, part_id, present); by_part (part_id, present); by_text (text);
        by_successor (became) WHERE became <> ''""",
    "summaries": "by_model (model, problem, skip)",
    "llm_batches": "",
    "episodes": """by_time (timestamp, episode_id); by_project (project, timestamp, episode_id);
        by_own_project (own_project, project); by_kind (project, kind, status, timestamp, episode_id);
        by_instance (instance, project, timestamp); by_source (source, timestamp, episode_id);
        passages (source, passages); by_successor (superseded_by, episode_id) WHERE superseded_by IS NOT NULL""",
    "episode_texts": "by_session (session_id); by_path (path)",
    "episode_tags": "by_episode (episode_key)",
    "tombstones": """by_time (deleted_at, episode_id) WHERE went_with = '';
        by_company (went_with) WHERE went_with <> ''""",
    "passages": "UNIQUE by_episode (episode_key, ordinal)",
    "spaces": "UNIQUE active (status) WHERE status = 'active'; UNIQUE building (status) WHERE status = 'building'",
    "vectors": "UNIQUE by_passage (space_id, variant, passage_id); by_seq (space_id, variant, seq)",
    "token_vectors": "UNIQUE by_passage (space_id, passage_id, tokens)",
    "pending": "by_source (space_id, source, timestamp, episode_key, missing); by_episode (episode_key)",
    "session_notes": """changed (source, session_id) WHERE noted > 0; by_session (session_id);
        by_root (root) WHERE root <> ''""",
    "events": "by_episode (episode_id, number)",
    "chat_messages": """UNIQUE in_order (session_id, number); by_episode (episode_id);
        rated (feedback, at) WHERE feedback <> 0; by_records (records_at) WHERE records_at <> ''""",
}
"""Table -> its indexes, where SQLite needs others than `tables.py` declares. Their names begin with that of the table.
The name of an index matters only where a statement says `INDEXED BY`: files of earlier versions have other names.
"""


def statements_of(table: Table) -> list[str]:
    """Return the SQL that makes a table and its indexes."""
    columns = []
    for name, kind in table.kinds.items():
        text = f"{column(table, name)} {_COLUMN_TYPES[kind.rstrip('?')]}"
        if name == table.serial:
            text += " PRIMARY KEY AUTOINCREMENT"
        elif not kind.endswith("?"):
            text += " NOT NULL"
        if f"{table.name}.{name}" in _WITH_DEFAULT:
            text += " DEFAULT ''" if kind == "text" else " DEFAULT 0"
        columns.append(text)
    key = ", ".join(column(table, name) for name in table.key)
    if table.key != (table.serial,):
        columns.append(f"{'UNIQUE' if table.serial else 'PRIMARY KEY'} ({key})")
    if table.name in _UNIQUE:
        columns.append(f"UNIQUE ({_UNIQUE[table.name]})")
    without = "" if table.wide or table.serial else " WITHOUT ROWID"
    return [f"CREATE TABLE {table.name} ({', '.join(columns)}){without}", *_indexes_of(table)]


def _indexes_of(table: Table) -> list[str]:
    made = []
    if table.name in _INDEXES:
        prefix = "episodes" if table is EPISODE_TEXTS else table.name
        for text in filter(None, map(str.strip, _INDEXES[table.name].split(";"))):
            unique = "UNIQUE " if text.startswith("UNIQUE ") else ""
            name, _, rest = text.removeprefix(unique).partition(" ")
            made.append(f"CREATE {unique}INDEX {prefix}_{name} ON {table.name} {rest}")
        return made
    for index in table.indexes:
        fields = ordered(table, index.fields)
        terms, values = compiled(table, index.where)
        if values:
            raise ValueError(f"an index of {table.name} compares with {values}; only 0, 1, '' and None may stand there")
        where = f" WHERE {terms}" if index.where else ""
        unique = "UNIQUE " if index.unique else ""
        name = "_".join((table.name, "by", *(each.removeprefix("-") for each in index.fields)))
        made.append(f"CREATE {unique}INDEX {name} ON {table.name} ({fields}){where}")
    return made


def make_missing_tables(database: Database) -> None:
    """Make the tables of `tables.py` that the file lacks, with their indexes."""
    with database.read() as connection:
        if not _missing(connection):
            return
    with database.write() as connection:
        for table in _missing(connection):
            for statement in statements_of(table):
                connection.execute(statement)


def _missing(connection: sqlite3.Connection) -> list[Table]:
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [table for table in plain_tables() if table.name not in found]


# --- what is derived of them -----------------------------------------------------------------------------

_STEM_TEXT = (
    """CREATE VIEW passage_words AS
        SELECT passage_id, stem_terms(text) AS text, stem_terms(context) AS context FROM passage_texts""",
    f"""CREATE VIRTUAL TABLE stem_index USING fts5 (
        text, context, content = 'passage_words', content_rowid = 'passage_id',
        tokenize = '{STEM_TOKENIZER}'
    )""",
    "CREATE VIRTUAL TABLE stem_words USING fts5vocab (stem_index, instance)",
    """CREATE TRIGGER passage_texts_added AFTER INSERT ON passage_texts BEGIN
        INSERT INTO stem_index (rowid, text, context)
            VALUES (new.passage_id, stem_terms(new.text), stem_terms(new.context));
        INSERT INTO exact_index (rowid, terms) VALUES (new.passage_id, exact_terms(new.text));
    END""",
    """CREATE TRIGGER passage_texts_removed AFTER DELETE ON passage_texts BEGIN
        INSERT INTO stem_index (stem_index, rowid, text, context)
            VALUES ('delete', old.passage_id, stem_terms(old.text), stem_terms(old.context));
        INSERT INTO exact_index (exact_index, rowid, terms)
            VALUES ('delete', old.passage_id, exact_terms(old.text));
    END""",
)
_REINDEXING = "CREATE TABLE reindexing (done INTEGER NOT NULL, last INTEGER NOT NULL)"
_EXACT_TEXT = (
    "CREATE VIEW passage_terms AS SELECT passage_id, exact_terms(text) AS terms FROM passage_texts",
    f"""CREATE VIRTUAL TABLE exact_index USING fts5 (
        terms, content = 'passage_terms', content_rowid = 'passage_id',
        tokenize = "{EXACT_TOKENIZER}"
    )""",
    "CREATE VIRTUAL TABLE exact_words USING fts5vocab (exact_index, instance)",
    """CREATE TRIGGER passage_texts_are_final BEFORE UPDATE ON passage_texts BEGIN
        SELECT RAISE(ABORT, 'a passage never changes; it is deleted and written under a new key');
    END""",
)


def _seen(table: str, event: str) -> str:
    """Return the trigger that counts the writes which a filter may see; what counts retrievals and reads is none."""
    is_seen = "WHEN new.retrieval_count = old.retrieval_count AND new.read_count = old.read_count"
    condition = is_seen if (table, event) == ("episodes", "update") else ""
    return f"""CREATE TRIGGER {table}_{event}_is_seen AFTER {event} ON {table} {condition} BEGIN
        UPDATE filter_version SET version = version + 1;
    END"""


def _statements_of_a_new_file() -> list[str]:
    return [
        *(statement for each in (*_OWN_TABLES, *plain_tables()) for statement in statements_of(each)),
        "CREATE TABLE store_secret (secret BLOB NOT NULL)",
        "INSERT INTO store_secret VALUES (randomblob(32))",
        "CREATE TABLE filter_version (version INTEGER NOT NULL)",
        "INSERT INTO filter_version VALUES (0)",
        *_EXACT_TEXT,
        *_STEM_TEXT,
        _REINDEXING,
        *(
            _seen(each, event)
            for each in ("episodes", "episode_tags", "passages")
            for event in ("insert", "delete", "update")
        ),
        *(f"INSERT INTO sources VALUES ('{key}', '', '', '', 'reserved', '')" for key in RESERVED_SOURCES),
    ]


# --- migrations ------------------------------------------------------------------------------------------

FIRST = ("m001_ingest", "m002_episodes", "m003_spaces")
"""Migrations that every file has: no released version made one with fewer."""

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # the tables of these are made like others that a file lacks
    ("m004_consolidation", ()),
    ("m005_queries", ()),
    ("m006_events", ()),
    ("m007_chat", ()),
    # full text of scripts without spaces: the index holds what stem_terms() and exact_terms() make of a text, and both
    # make something else of those scripts than before. Filled by index_texts(), from the passage after done to last
    (
        "m008_unspaced",
        (
            "DROP TRIGGER passage_texts_added",
            "DROP TRIGGER passage_texts_removed",
            "DROP TABLE stem_words",
            "DROP TABLE stem_index",
            *_STEM_TEXT,
            _REINDEXING,
            "INSERT INTO exact_index (exact_index) VALUES ('delete-all')",
            "INSERT INTO reindexing SELECT 0, seq FROM sqlite_sequence WHERE name = 'passages'",
        ),
    ),
    (
        "m009_sessions",
        (
            *statements_of(BY_NAME["session_notes"]),
            f"""INSERT INTO session_notes (source, session_id, noted)
                SELECT DISTINCT e.source, t.session_id, 1 FROM episode_texts t JOIN episodes e USING (episode_key)
                WHERE t.session_id <> '' AND e.source NOT IN ({", ".join(f"'{key}'" for key in RESERVED_SOURCES)})""",
        ),
    ),
    # how often an episode was read, opened or cited; what was counted before told the two not apart
    (
        "m010_reads",
        (
            "ALTER TABLE episodes ADD COLUMN read_count INTEGER NOT NULL DEFAULT 0",
            "DROP TRIGGER episodes_update_is_seen",
            "UPDATE episodes SET read_count = retrieval_count WHERE retrieval_count > 0",
            _seen("episodes", "update"),
        ),
    ),
    # the rules of records hold for both engines: what a removed episode leaves is removed by them, not by triggers
    (
        "m011_records",
        (
            "DROP TRIGGER IF EXISTS query_log_removed",
            "DROP TRIGGER IF EXISTS episodes_removed_from_queries",
            "DROP TRIGGER IF EXISTS episodes_removed_from_chat",
            "ALTER TABLE llm_batches RENAME TO llm_batches_before",
            *statements_of(BY_NAME["llm_batches"]),
            """INSERT INTO llm_batches (batch_id, number, backend, model, call_id, keys)
                SELECT batch_id, rowid, backend, model, call_id, keys FROM llm_batches_before""",
            "DROP TABLE llm_batches_before",
        ),
    ),
    # counting them by model reads this index alone
    (
        "m012_summaries",
        (
            "DROP INDEX summaries_by_model",
            "CREATE INDEX summaries_by_model ON summaries (model, problem, skip)",
        ),
    ),
    # stems of German, French and Spanish: stem_terms() is what paired() was, and makes something else of those texts.
    # A process of an earlier version lacks the function, so that it cannot write what this one would not find
    (
        "m013_languages",
        (
            "DROP TRIGGER passage_texts_added",
            "DROP TRIGGER passage_texts_removed",
            "DROP VIEW passage_words",
            "DROP TABLE stem_words",
            "DROP TABLE stem_index",
            *_STEM_TEXT,
            "INSERT INTO exact_index (exact_index) VALUES ('delete-all')",
            "DELETE FROM reindexing",
            "INSERT INTO reindexing SELECT 0, seq FROM sqlite_sequence WHERE name = 'passages'",
        ),
    ),
    # what is to be observed has its source; made like others that a file lacks, and filled as its rules are others
    ("m014_observed", ("DROP TABLE IF EXISTS unobserved",)),
)
"""Name -> statements. A migration is never edited once released; a change is a new one. Where a table of `tables.py`
changes, the migration that makes it gets the former SQL.
"""

Migrations = Sequence[tuple[str, Sequence[str]]]


def migrate(database: Database, migrations: Migrations = MIGRATIONS) -> int:
    """Make the tables of a new file, or bring an older one to this version, one transaction each. Return how many
    migrations the file got.

    Safe when several processes start at once: each looks again once it holds the write lock.

    :raises StoreCorrupt: the file is of a newer version, not finished, or another program's database.
    """
    names = [*FIRST, *(name for name, _ in migrations)]
    with database.read() as connection:
        applied = _applied(database, connection, names)
    ran = 0
    while applied < len(names):
        with database.write() as connection:
            applied = _applied(database, connection, names)
            if applied == len(names):
                break
            if applied == 0:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, applied_at TEXT)")
                done, statements = len(FIRST) + len(MIGRATIONS), _statements_of_a_new_file()
            else:
                done, statements = applied + 1, list(migrations[applied - len(FIRST)][1])
            for statement in statements:
                connection.execute(statement)
            now = instant(datetime.now(UTC))
            rows = [(number, names[number - 1], now) for number in range(applied + 1, done + 1)]
            connection.executemany("INSERT INTO migrations VALUES (?, ?, ?)", rows)
            ran += len(rows)
            applied = done
    return ran


def _applied(database: Database, connection: sqlite3.Connection, known: Sequence[str]) -> int:
    """Return how many migrations the file has."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id != APPLICATION_ID:
        if application_id or tables:
            raise StoreCorrupt(f"{database.path} is the database of another program; choose another file or home")
        return 0
    names = [name for (name,) in connection.execute("SELECT name FROM migrations ORDER BY number")]
    if len(names) > len(known):
        raise StoreCorrupt(
            f"{database.path} was written by a newer version ({names[-1]}), and this one knows {known[-1]}; "
            f"update anamnesis"
        )
    if len(names) < len(FIRST):
        raise StoreCorrupt(f"{database.path} was begun and never finished ({names[-1]}); move it away, then try again")
    return len(names)


def index_texts(database: Database) -> None:
    """Put passages that a migration took out of the full-text indexes back, some at a time. It goes on where another
    process was ended, and beside one that does the same.
    """
    with database.read() as connection:
        left = connection.execute("SELECT last - done FROM reindexing").fetchone()
    if left is not None:
        log.info("Full text of %d passages is indexed again; this takes some minutes per million", left[0])
    while left is not None:
        with database.write() as connection:
            left = _index_some(connection)


def _index_some(connection: sqlite3.Connection) -> tuple[int] | None:
    """None: nothing is left."""
    passages = f"""(SELECT passage_id, text, context FROM passage_texts, reindexing
        WHERE passage_id > done AND passage_id <= last ORDER BY passage_id LIMIT {MAX_ROWS_PER_WRITE})"""
    (reached,) = connection.execute(f"SELECT max(passage_id) FROM {passages}").fetchone()
    connection.execute(f"INSERT INTO exact_index (rowid, terms) SELECT passage_id, exact_terms(text) FROM {passages}")
    connection.execute(
        f"""INSERT INTO stem_index (rowid, text, context)
            SELECT passage_id, stem_terms(text), stem_terms(context) FROM {passages}"""
    )
    connection.execute("UPDATE reindexing SET done = coalesce(?, last)", (reached,))
    connection.execute("DELETE FROM reindexing WHERE done >= last")
    left: tuple[int] | None = connection.execute("SELECT last - done FROM reindexing").fetchone()
    return left
