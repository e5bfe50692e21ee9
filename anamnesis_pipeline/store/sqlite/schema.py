"""The tables, as numbered migrations. A migration is never edited once released; a change is a new one."""

# ruff: noqa: S608
# only names of ours enter the SQL

import logging
import sqlite3
from datetime import UTC, datetime

from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.index_terms import EXACT_TOKENIZER, STEM_TOKENIZER
from anamnesis_pipeline.store.sqlite.chat_schema import M007_CHAT
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import compiled, ordered
from anamnesis_pipeline.store.tables import INCOMPLETE, Table, plain_tables
from anamnesis_pipeline.store.values import instant

log = logging.getLogger(__name__)

_COLUMN_TYPES = {
    "text": "TEXT",
    "texts": "TEXT",
    "int": "INTEGER",
    "flag": "INTEGER",
    "real": "REAL",
    "bytes": "BLOB",
}
APPLICATION_ID = 0x414E414D  # "ANAM"; tells this file from any other SQLite database

M001_INGEST = (
    """CREATE TABLE sources (
        key TEXT PRIMARY KEY, machine TEXT NOT NULL, root TEXT NOT NULL, folder TEXT NOT NULL, kind TEXT NOT NULL,
        spec TEXT NOT NULL
    ) WITHOUT ROWID""",
    # device and inode are texts: file systems hand out unsigned 64-bit numbers, which SQLite's integers cannot hold
    """CREATE TABLE files (
        source TEXT NOT NULL, path TEXT NOT NULL, device TEXT NOT NULL, inode TEXT NOT NULL, size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL, head_hash TEXT NOT NULL, head_bytes INTEGER NOT NULL, "offset" INTEGER NOT NULL,
        generation INTEGER NOT NULL, lines INTEGER NOT NULL, parsed_lines INTEGER NOT NULL,
        parser_state TEXT NOT NULL, gone INTEGER NOT NULL, version INTEGER NOT NULL, first_mtime_ns INTEGER NOT NULL,
        unread TEXT NOT NULL, PRIMARY KEY (source, path)
    )""",
    f"CREATE INDEX files_incomplete ON files (source, path) WHERE gone = 0 AND {INCOMPLETE.sql}",
    """CREATE TABLE frames (
        source TEXT NOT NULL, path TEXT NOT NULL, generation INTEGER NOT NULL, first_line INTEGER NOT NULL,
        lines INTEGER NOT NULL, archive_offset INTEGER NOT NULL, archive_bytes INTEGER NOT NULL,
        revision INTEGER NOT NULL, mark TEXT NOT NULL, base_source TEXT, base_path TEXT, base_generation INTEGER,
        base_revision INTEGER, base_offset INTEGER, base_bytes INTEGER,
        PRIMARY KEY (source, path, generation, first_line)
    ) WITHOUT ROWID""",
    "CREATE INDEX frames_by_mark ON frames (mark) WHERE mark <> ''",
    """CREATE INDEX frames_by_base ON frames (base_source, base_path, base_generation)
        WHERE base_source IS NOT NULL""",
    # canonical is the message's own key where this is a further one by which it is known, else empty
    """CREATE TABLE messages (
        key TEXT PRIMARY KEY, source TEXT NOT NULL, path TEXT NOT NULL, canonical TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID""",
    "CREATE INDEX messages_by_source ON messages (source) WHERE canonical = ''",
    "CREATE INDEX messages_by_canonical ON messages (canonical) WHERE canonical <> ''",
    """CREATE TABLE dead_letters (
        source TEXT NOT NULL, path TEXT NOT NULL, generation INTEGER NOT NULL, line INTEGER NOT NULL,
        reason TEXT NOT NULL, PRIMARY KEY (source, path, generation, line)
    ) WITHOUT ROWID""",
    """CREATE TABLE occurrences (
        source TEXT NOT NULL, path TEXT NOT NULL, line INTEGER NOT NULL, message_key TEXT NOT NULL,
        PRIMARY KEY (source, path, line, message_key)
    ) WITHOUT ROWID""",
    "CREATE INDEX occurrences_by_key ON occurrences (message_key)",
    # wanted_hash is what an up-to-date episode is made of (text and summary), published_hash what it was made of,
    # summarized_hash the text that the summary is of, summary_due when to make another one ('': asked for; null: it
    # will do): the work left is what the partial indexes hold; held_by is the rule that keeps a part from being
    # summarized and published
    """CREATE TABLE parts (
        part_id TEXT PRIMARY KEY, source TEXT NOT NULL, path TEXT NOT NULL, session_id TEXT NOT NULL,
        exchange_id TEXT NOT NULL, ordinal INTEGER NOT NULL, kind TEXT NOT NULL, project TEXT NOT NULL,
        cwd TEXT NOT NULL, prompt TEXT NOT NULL, agent_id TEXT NOT NULL, agent_type TEXT NOT NULL,
        origin TEXT NOT NULL DEFAULT '', lead TEXT NOT NULL, section TEXT NOT NULL DEFAULT '',
        closed INTEGER NOT NULL, started_at TEXT NOT NULL, ended_at TEXT NOT NULL, content_hash TEXT NOT NULL,
        wanted_hash TEXT NOT NULL, published_hash TEXT, summarized_hash TEXT, summary_due TEXT,
        held_by TEXT, segments BLOB NOT NULL
    )""",
    "CREATE INDEX parts_by_exchange ON parts (source, exchange_id)",
    "CREATE INDEX parts_by_path ON parts (source, path)",
    "CREATE INDEX parts_by_session ON parts (session_id, agent_id, started_at, project)",
    "CREATE INDEX parts_of_unlinked_agents ON parts (source) WHERE kind = 'subagent' AND origin = ''",
    "CREATE INDEX parts_open ON parts (source, ended_at) WHERE closed = 0",
    "CREATE INDEX parts_summarized ON parts (source) WHERE summarized_hash IS NOT NULL",
    """CREATE INDEX parts_to_summarize ON parts (source, ended_at DESC, part_id DESC)
        WHERE closed = 1 AND summarized_hash IS NOT content_hash""",
    """CREATE INDEX parts_to_summarize_again ON parts (source, summary_due)
        WHERE closed = 1 AND summary_due IS NOT NULL""",
    """CREATE INDEX parts_to_publish ON parts (source, ended_at DESC, part_id DESC)
        WHERE published_hash IS NOT wanted_hash AND held_by IS NULL""",
    "CREATE INDEX parts_held ON parts (held_by) WHERE held_by IS NOT NULL",
    # which text of which section was seen where; rows of texts that went stay, with present = 0
    """CREATE TABLE sightings (
        source TEXT NOT NULL, path TEXT NOT NULL, part_id TEXT NOT NULL, place TEXT NOT NULL, anchor TEXT NOT NULL,
        ordinal INTEGER NOT NULL, first_line INTEGER NOT NULL, last_line INTEGER NOT NULL, since_ns INTEGER NOT NULL,
        skew_ns INTEGER NOT NULL, text TEXT NOT NULL, body TEXT NOT NULL, cwd TEXT NOT NULL, present INTEGER NOT NULL,
        became TEXT NOT NULL, PRIMARY KEY (source, path, part_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX sightings_by_section ON sightings (place, anchor, part_id, present)",
    "CREATE INDEX sightings_by_part ON sightings (part_id, present)",
    "CREATE INDEX sightings_by_text ON sightings (text)",
    "CREATE INDEX sightings_by_successor ON sightings (became) WHERE became <> ''",
    """CREATE TABLE unsettled (
        place TEXT NOT NULL, anchor TEXT NOT NULL, source TEXT NOT NULL, noted INTEGER NOT NULL,
        PRIMARY KEY (place, anchor)
    ) WITHOUT ROWID""",
    "CREATE INDEX unsettled_by_source ON unsettled (source, place, anchor)",
    """CREATE TABLE summaries (
        part_id TEXT PRIMARY KEY, content_hash TEXT NOT NULL, text TEXT NOT NULL, model TEXT NOT NULL,
        tags TEXT NOT NULL, records TEXT NOT NULL, skip INTEGER NOT NULL, problem TEXT NOT NULL, retry_at TEXT,
        attempts INTEGER NOT NULL, reply_key TEXT NOT NULL
    )""",
    "CREATE INDEX summaries_by_model ON summaries (model, problem <> '', skip)",
    "CREATE TABLE llm_replies (key TEXT PRIMARY KEY, backend TEXT NOT NULL, model TEXT NOT NULL, reply TEXT NOT NULL)",
    # which parts a key asked about, whatever became of them; void: its reply is not kept, should it still come
    """CREATE TABLE llm_asked (
        key TEXT NOT NULL, part_id TEXT NOT NULL, void INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (key, part_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX llm_asked_by_part ON llm_asked (part_id)",
    # a call that is not settled counts as it was booked: it may have been made
    """CREATE TABLE llm_calls (
        call_id TEXT PRIMARY KEY, day TEXT NOT NULL, backend TEXT NOT NULL, model TEXT NOT NULL,
        settled INTEGER NOT NULL, calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL, dollars REAL NOT NULL
    )""",
    "CREATE INDEX llm_calls_by_day ON llm_calls (day)",
    "CREATE TABLE llm_leases (key TEXT PRIMARY KEY, call_id TEXT NOT NULL, until TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX llm_leases_by_call ON llm_leases (call_id)",
    "CREATE TABLE llm_failures (key TEXT PRIMARY KEY, problem TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE llm_batches (
        batch_id TEXT PRIMARY KEY, backend TEXT NOT NULL, model TEXT NOT NULL, call_id TEXT NOT NULL,
        keys TEXT NOT NULL
    )""",
    "CREATE TABLE llm_turns (backend TEXT PRIMARY KEY, next_at REAL NOT NULL)",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # which episodes sessions were shown, in the order of number; restarted_at: when a session last forgot them
    """CREATE TABLE context_sessions (
        session_id TEXT PRIMARY KEY, seen_at TEXT NOT NULL, restarted_at TEXT
    ) WITHOUT ROWID""",
    "CREATE INDEX context_sessions_by_time ON context_sessions (seen_at)",
    """CREATE TABLE context_shown (
        session_id TEXT NOT NULL, episode_id TEXT NOT NULL, number INTEGER NOT NULL, passage_id INTEGER,
        PRIMARY KEY (session_id, episode_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX context_shown_by_number ON context_shown (session_id, number)",
    *(f"INSERT INTO sources VALUES ('{key}', '', '', '', 'reserved', '')" for key in RESERVED_SOURCES),
)

M002_EPISODES = (
    # what filters and orders look at is apart from the texts, so that a filter reads few pages
    """CREATE TABLE episodes (
        episode_key INTEGER PRIMARY KEY AUTOINCREMENT, episode_id TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
        timestamp TEXT NOT NULL, instance TEXT NOT NULL, project TEXT NOT NULL, own_project TEXT NOT NULL,
        kind TEXT NOT NULL, status TEXT NOT NULL, superseded_by TEXT, superseded_at TEXT,
        passages INTEGER NOT NULL, content_hash TEXT NOT NULL, edited INTEGER NOT NULL DEFAULT 0,
        stored_hash TEXT NOT NULL, retrieval_count INTEGER NOT NULL DEFAULT 0, last_retrieved TEXT
    )""",
    "CREATE INDEX episodes_by_time ON episodes (timestamp, episode_id)",
    "CREATE INDEX episodes_by_project ON episodes (project, timestamp, episode_id)",
    "CREATE INDEX episodes_by_own_project ON episodes (own_project, project)",
    "CREATE INDEX episodes_by_kind ON episodes (project, kind, status, timestamp, episode_id)",
    "CREATE INDEX episodes_by_instance ON episodes (instance, project, timestamp)",
    "CREATE INDEX episodes_by_source ON episodes (source, timestamp, episode_id)",
    "CREATE INDEX episodes_passages ON episodes (source, passages)",
    "CREATE INDEX episodes_by_successor ON episodes (superseded_by, episode_id) WHERE superseded_by IS NOT NULL",
    # the long columns are the last ones: reading those before them leaves their pages alone
    """CREATE TABLE episode_texts (
        episode_key INTEGER PRIMARY KEY, summary TEXT NOT NULL, tags TEXT NOT NULL, machine TEXT NOT NULL,
        path TEXT NOT NULL, session_id TEXT NOT NULL, metadata TEXT NOT NULL, message_ids TEXT NOT NULL,
        message_keys TEXT NOT NULL, raw_exchange TEXT NOT NULL
    )""",
    "CREATE INDEX episodes_by_session ON episode_texts (session_id)",
    "CREATE INDEX episodes_by_path ON episode_texts (path)",
    """CREATE TABLE episode_tags (
        tag TEXT NOT NULL, episode_key INTEGER NOT NULL, PRIMARY KEY (tag, episode_key)
    ) WITHOUT ROWID""",
    "CREATE INDEX episode_tags_by_episode ON episode_tags (episode_key)",
    # went_with: the episode of which this is a record, or the rule with which it was forgotten
    """CREATE TABLE tombstones (
        episode_id TEXT PRIMARY KEY, deleted_at TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
        went_with TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID""",
    "CREATE INDEX tombstones_by_time ON tombstones (deleted_at, episode_id) WHERE went_with = ''",
    "CREATE INDEX tombstones_by_company ON tombstones (went_with) WHERE went_with <> ''",
    """CREATE TABLE tombstone_keys (
        message_key TEXT NOT NULL, episode_id TEXT NOT NULL, PRIMARY KEY (message_key, episode_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX tombstone_keys_by_episode ON tombstone_keys (episode_id)",
    # kept: keyed digests of runs of words of the section that stood in this file
    """CREATE TABLE buried_sections (
        episode_id TEXT NOT NULL, source TEXT NOT NULL, path TEXT NOT NULL, place TEXT NOT NULL, kept BLOB NOT NULL,
        PRIMARY KEY (episode_id, source, path)
    ) WITHOUT ROWID""",
    "CREATE INDEX buried_sections_by_place ON buried_sections (place)",
    "CREATE INDEX buried_sections_by_file ON buried_sections (source, path)",
    "CREATE TABLE store_secret (secret BLOB NOT NULL)",
    "INSERT INTO store_secret VALUES (randomblob(32))",
    """CREATE TABLE passages (
        passage_id INTEGER PRIMARY KEY AUTOINCREMENT, episode_key INTEGER NOT NULL, ordinal INTEGER NOT NULL
    )""",
    "CREATE UNIQUE INDEX passages_by_episode ON passages (episode_key, ordinal)",
    """CREATE TABLE passage_texts (
        passage_id INTEGER PRIMARY KEY, text TEXT NOT NULL, context TEXT NOT NULL, message_ids TEXT NOT NULL
    )""",
    "CREATE VIEW passage_terms AS SELECT passage_id, exact_terms(text) AS terms FROM passage_texts",
    f"""CREATE VIRTUAL TABLE stem_index USING fts5 (
        text, context, content = 'passage_texts', content_rowid = 'passage_id',
        tokenize = '{STEM_TOKENIZER}'
    )""",
    f"""CREATE VIRTUAL TABLE exact_index USING fts5 (
        terms, content = 'passage_terms', content_rowid = 'passage_id',
        tokenize = "{EXACT_TOKENIZER}"
    )""",
    "CREATE VIRTUAL TABLE stem_words USING fts5vocab (stem_index, instance)",
    "CREATE VIRTUAL TABLE exact_words USING fts5vocab (exact_index, instance)",
    # grows with every write that a filter may see; what counts retrievals is none
    "CREATE TABLE filter_version (version INTEGER NOT NULL)",
    "INSERT INTO filter_version VALUES (0)",
    *(
        f"""CREATE TRIGGER {table}_{event}_is_seen AFTER {event} ON {table} {condition} BEGIN
            UPDATE filter_version SET version = version + 1;
        END"""
        for table in ("episodes", "episode_tags", "passages")
        for event, condition in (
            ("insert", ""),
            ("delete", ""),
            ("update", "WHEN new.retrieval_count = old.retrieval_count" if table == "episodes" else ""),
        )
    ),
    """CREATE TRIGGER passage_texts_added AFTER INSERT ON passage_texts BEGIN
        INSERT INTO stem_index (rowid, text, context) VALUES (new.passage_id, new.text, new.context);
        INSERT INTO exact_index (rowid, terms) VALUES (new.passage_id, exact_terms(new.text));
    END""",
    """CREATE TRIGGER passage_texts_removed AFTER DELETE ON passage_texts BEGIN
        INSERT INTO stem_index (stem_index, rowid, text, context)
            VALUES ('delete', old.passage_id, old.text, old.context);
        INSERT INTO exact_index (exact_index, rowid, terms)
            VALUES ('delete', old.passage_id, exact_terms(old.text));
    END""",
    """CREATE TRIGGER passage_texts_are_final BEFORE UPDATE ON passage_texts BEGIN
        SELECT RAISE(ABORT, 'a passage never changes; it is deleted and written under a new key');
    END""",
)

M003_SPACES = (
    # keys of dropped spaces are never used again, so vectors left over by a crash belong to nobody;
    # last_episode and written_at are of the newest vectors, and written in their transaction
    """CREATE TABLE spaces (
        space_id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, model_id TEXT NOT NULL,
        dim INTEGER NOT NULL, generation INTEGER NOT NULL, query_prefix TEXT NOT NULL, passage_prefix TEXT NOT NULL,
        pooling TEXT NOT NULL, "precision" TEXT NOT NULL, fidelity REAL, variants TEXT NOT NULL,
        token_dims INTEGER NOT NULL, token_variant TEXT NOT NULL, status TEXT NOT NULL, projection BLOB,
        last_episode TEXT, written_at TEXT
    )""",
    "CREATE UNIQUE INDEX spaces_active ON spaces (status) WHERE status = 'active'",
    "CREATE UNIQUE INDEX spaces_building ON spaces (status) WHERE status = 'building'",
    """CREATE TABLE space_variants (
        space_id INTEGER NOT NULL, variant TEXT NOT NULL, PRIMARY KEY (space_id, variant)
    ) WITHOUT ROWID""",
    # vectors arrive in any order of passages, so what an index file covers is told by seq, which only grows
    """CREATE TABLE vectors (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, space_id INTEGER NOT NULL, variant TEXT NOT NULL,
        passage_id INTEGER NOT NULL, vec BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX vectors_by_passage ON vectors (space_id, variant, passage_id)",
    "CREATE INDEX vectors_by_seq ON vectors (space_id, variant, seq)",
    # one bit for each number, a token after the other. With rowids: without, 5 KB would take 8 KB of pages
    """CREATE TABLE token_vectors (
        token_key INTEGER PRIMARY KEY, space_id INTEGER NOT NULL, passage_id INTEGER NOT NULL,
        tokens INTEGER NOT NULL, data BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX token_vectors_by_passage ON token_vectors (space_id, passage_id, tokens)",
    # how many passages of an episode lack a vector; no row when none: ticks cost what is left to do
    """CREATE TABLE pending (
        space_id INTEGER NOT NULL, episode_key INTEGER NOT NULL, source TEXT NOT NULL, timestamp TEXT NOT NULL,
        missing INTEGER NOT NULL, PRIMARY KEY (space_id, episode_key)
    ) WITHOUT ROWID""",
    "CREATE INDEX pending_by_source ON pending (space_id, source, timestamp, episode_key, missing)",
    "CREATE INDEX pending_by_episode ON pending (episode_key)",
    # removed counts the vectors taken out of a file since it was last built from nothing
    """CREATE TABLE index_files (
        space_id INTEGER NOT NULL, variant TEXT NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL,
        covered_seq INTEGER NOT NULL, vectors INTEGER NOT NULL, removed INTEGER NOT NULL,
        PRIMARY KEY (space_id, variant)
    ) WITHOUT ROWID""",
)

M004_CONSOLIDATION = (
    # which episode stands for which, whether or not their rows are there just now
    """CREATE TABLE consolidated (
        episode_id TEXT PRIMARY KEY, canonical TEXT NOT NULL, regime TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    "CREATE INDEX consolidated_by_canonical ON consolidated (canonical)",
    "CREATE INDEX consolidated_by_regime ON consolidated (regime, undone)",
    # sessions in which something came, changed or went since they were settled
    "CREATE TABLE unconsolidated (session_id TEXT PRIMARY KEY, noted INTEGER NOT NULL) WITHOUT ROWID",
)

M005_QUERIES = (
    # asked: what else was said in the question, as JSON; found: how many episodes it found
    """CREATE TABLE query_log (
        number INTEGER PRIMARY KEY AUTOINCREMENT, asked_at TEXT NOT NULL, query TEXT NOT NULL, asked TEXT NOT NULL,
        found INTEGER NOT NULL, used_at TEXT
    )""",
    "CREATE INDEX query_log_by_time ON query_log (asked_at)",
    """CREATE TABLE query_results (
        episode_id TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (episode_id, number)
    ) WITHOUT ROWID""",
    "CREATE INDEX query_results_by_query ON query_results (number)",
    """CREATE TRIGGER query_log_removed AFTER DELETE ON query_log BEGIN
        DELETE FROM query_results WHERE number = old.number;
    END""",
    # whatever removes an episode, the questions that found it may say what it said
    """CREATE TRIGGER episodes_removed_from_queries AFTER DELETE ON episodes BEGIN
        DELETE FROM query_log WHERE number IN (SELECT number FROM query_results WHERE episode_id = old.episode_id);
    END""",
)

M006_EVENTS = (
    """CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, kind TEXT NOT NULL, process INTEGER NOT NULL,
        episode_id TEXT NOT NULL, episodes INTEGER NOT NULL, project TEXT NOT NULL
    )""",
    "CREATE INDEX events_by_episode ON events (episode_id, number)",
)

M008_UNSPACED = (
    # full text of scripts without spaces: the index holds what paired() and exact_terms() make of a text, and both
    # make something else of those scripts than before. Filled by index_texts(), from the passage after done to last
    *(f"DROP TRIGGER passage_texts_{event}" for event in ("added", "removed")),
    "DROP TABLE stem_words",
    "DROP TABLE stem_index",
    """CREATE VIEW passage_words AS
        SELECT passage_id, paired(text) AS text, paired(context) AS context FROM passage_texts""",
    f"""CREATE VIRTUAL TABLE stem_index USING fts5 (
        text, context, content = 'passage_words', content_rowid = 'passage_id',
        tokenize = '{STEM_TOKENIZER}'
    )""",
    "CREATE VIRTUAL TABLE stem_words USING fts5vocab (stem_index, instance)",
    "INSERT INTO exact_index (exact_index) VALUES ('delete-all')",
    "CREATE TABLE reindexing (done INTEGER NOT NULL, last INTEGER NOT NULL)",
    "INSERT INTO reindexing SELECT 0, seq FROM sqlite_sequence WHERE name = 'passages'",
    """CREATE TRIGGER passage_texts_added AFTER INSERT ON passage_texts BEGIN
        INSERT INTO stem_index (rowid, text, context)
            VALUES (new.passage_id, paired(new.text), paired(new.context));
        INSERT INTO exact_index (rowid, terms) VALUES (new.passage_id, exact_terms(new.text));
    END""",
    """CREATE TRIGGER passage_texts_removed AFTER DELETE ON passage_texts BEGIN
        INSERT INTO stem_index (stem_index, rowid, text, context)
            VALUES ('delete', old.passage_id, paired(old.text), paired(old.context));
        INSERT INTO exact_index (exact_index, rowid, terms)
            VALUES ('delete', old.passage_id, exact_terms(old.text));
    END""",
)

M009_SESSIONS = (
    # noted counts what happened to a session since its record was written; root names the session in which the record
    # begins that it is in, revision and until the last record that began in this one
    """CREATE TABLE session_notes (
        source TEXT NOT NULL, session_id TEXT NOT NULL, noted INTEGER NOT NULL, root TEXT NOT NULL DEFAULT '',
        revision INTEGER NOT NULL DEFAULT 0, until TEXT NOT NULL DEFAULT '', branch TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (source, session_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX session_notes_changed ON session_notes (source, session_id) WHERE noted > 0",
    "CREATE INDEX session_notes_by_session ON session_notes (session_id)",
    "CREATE INDEX session_notes_by_root ON session_notes (root) WHERE root <> ''",
    f"""INSERT INTO session_notes (source, session_id, noted)
        SELECT DISTINCT e.source, t.session_id, 1 FROM episode_texts t JOIN episodes e USING (episode_key)
        WHERE t.session_id <> '' AND e.source NOT IN ({", ".join(f"'{key}'" for key in RESERVED_SOURCES)})""",
)

M010_READS = (
    # how often an episode was read, opened or cited; what was counted before told the two not apart
    "ALTER TABLE episodes ADD COLUMN read_count INTEGER NOT NULL DEFAULT 0",
    "DROP TRIGGER episodes_update_is_seen",
    "UPDATE episodes SET read_count = retrieval_count WHERE retrieval_count > 0",
    """CREATE TRIGGER episodes_update_is_seen AFTER UPDATE ON episodes
        WHEN new.retrieval_count = old.retrieval_count AND new.read_count = old.read_count BEGIN
            UPDATE filter_version SET version = version + 1;
        END""",
)

M011_RECORDS = (
    # the rules of records hold for both engines: what a removed episode leaves is removed by them, not by triggers
    "DROP TRIGGER IF EXISTS query_log_removed",
    "DROP TRIGGER IF EXISTS episodes_removed_from_queries",
    "DROP TRIGGER IF EXISTS episodes_removed_from_chat",
    "ALTER TABLE llm_batches RENAME TO llm_batches_before",
    """CREATE TABLE llm_batches (
        batch_id TEXT NOT NULL UNIQUE, number INTEGER PRIMARY KEY AUTOINCREMENT, backend TEXT NOT NULL,
        model TEXT NOT NULL, call_id TEXT NOT NULL, keys TEXT NOT NULL
    )""",
    """INSERT INTO llm_batches (batch_id, number, backend, model, call_id, keys)
        SELECT batch_id, rowid, backend, model, call_id, keys FROM llm_batches_before""",
    "DROP TABLE llm_batches_before",
)

M012_SUMMARIES = (
    # counting them by model reads this index alone
    "DROP INDEX summaries_by_model",
    "CREATE INDEX summaries_by_model ON summaries (model, problem, skip)",
)

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("m001_ingest", M001_INGEST),
    ("m002_episodes", M002_EPISODES),
    ("m003_spaces", M003_SPACES),
    ("m004_consolidation", M004_CONSOLIDATION),
    ("m005_queries", M005_QUERIES),
    ("m006_events", M006_EVENTS),
    ("m007_chat", M007_CHAT),
    ("m008_unspaced", M008_UNSPACED),
    ("m009_sessions", M009_SESSIONS),
    ("m010_reads", M010_READS),
    ("m011_records", M011_RECORDS),
    ("m012_summaries", M012_SUMMARIES),
)


def migrate(database: Database, migrations: tuple[tuple[str, tuple[str, ...]], ...] = MIGRATIONS) -> int:
    """Bring the file to this version, one transaction each; returns how many migrations ran.

    Safe when several processes start at once: each looks again once it holds the write lock.

    :raises StoreCorrupt: the file is of a newer version, or some other program's database.
    """
    with database.read() as connection:
        if _applied(database, connection, migrations) == len(migrations):
            return 0
    ran = 0
    for number in range(len(migrations)):
        with database.write() as connection:
            ran += _apply(database, connection, migrations, number)
    return ran


def make_missing_tables(database: Database) -> None:
    """Make the tables of `tables.py` that the file lacks, with their indexes."""
    with database.read() as connection:
        if not _missing(connection):
            return
    with database.write() as connection:
        for table in _missing(connection):
            for statement in statements_of(table):
                connection.execute(statement)


def statements_of(table: Table) -> list[str]:
    """Return the SQL that makes a table and its indexes."""
    columns = [
        f'"{name}" {_COLUMN_TYPES[kind.rstrip("?")]}{"" if kind.endswith("?") else " NOT NULL"}'
        for name, kind in table.kinds.items()
        if name != table.serial
    ]
    key = ", ".join(f'"{name}"' for name in table.key)
    if table.serial:
        columns.append(f'"{table.serial}" INTEGER PRIMARY KEY AUTOINCREMENT')
    if table.key != (table.serial,):
        columns.append(f"{'UNIQUE' if table.serial else 'PRIMARY KEY'} ({key})")
    without = "" if table.wide or table.serial else " WITHOUT ROWID"
    made = [f"CREATE TABLE {table.name} ({', '.join(columns)}){without}"]
    for number, index in enumerate(table.indexes):
        fields = ordered(table, index.fields)
        terms, values = compiled(table, index.where)
        if values:
            raise ValueError(f"an index of {table.name} compares with {values}; only 0, 1, '' and None may stand there")
        where = f" WHERE {terms}" if index.where else ""
        unique = "UNIQUE " if index.unique else ""
        made.append(f"CREATE {unique}INDEX {table.name}_{number} ON {table.name} ({fields}){where}")
    return made


def _missing(connection: sqlite3.Connection) -> list[Table]:
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [table for table in plain_tables() if table.name not in found]


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
            SELECT passage_id, paired(text), paired(context) FROM {passages}"""
    )
    connection.execute("UPDATE reindexing SET done = coalesce(?, last)", (reached,))
    connection.execute("DELETE FROM reindexing WHERE done >= last")
    left: tuple[int] | None = connection.execute("SELECT last - done FROM reindexing").fetchone()
    return left


def _apply(
    database: Database,
    connection: sqlite3.Connection,
    migrations: tuple[tuple[str, tuple[str, ...]], ...],
    number: int,
) -> int:
    if _applied(database, connection, migrations) > number:
        return 0
    name, statements = migrations[number]
    if number == 0:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, applied_at TEXT)")
    for statement in statements:
        connection.execute(statement)
    connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number + 1, name, instant(datetime.now(UTC))))
    return 1


def _applied(
    database: Database, connection: sqlite3.Connection, migrations: tuple[tuple[str, tuple[str, ...]], ...]
) -> int:
    """How many migrations the file has."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id != APPLICATION_ID:
        if application_id or tables:
            raise StoreCorrupt(f"{database.path} is the database of another program; choose another file or home")
        return 0
    names = [name for (name,) in connection.execute("SELECT name FROM migrations ORDER BY number")]
    if len(names) > len(migrations):
        raise StoreCorrupt(
            f"{database.path} was written by a newer version ({names[-1]}), and this one knows {migrations[-1][0]}; "
            f"update anamnesis"
        )
    return len(names)
