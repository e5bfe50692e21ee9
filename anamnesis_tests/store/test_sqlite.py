"""What is particular to the SQLite backend: its file, its errors, its migrations and its query plans."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from anamnesis_pipeline.errors import AnamnesisError, GiveUp, RetryLater, StoreBusy, StoreCorrupt, StoreFull
from anamnesis_pipeline.knowledge.dream import RULE, observe
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import EpisodeRecords
from anamnesis_pipeline.store.records.settings import SettingsRecords
from anamnesis_pipeline.store.sqlite import connection as connections
from anamnesis_pipeline.store.sqlite import schema
from anamnesis_pipeline.store.sqlite.connection import COPY, COPY_LIVES_S, Database
from anamnesis_pipeline.store.sqlite.engine import SqliteGateway
from anamnesis_pipeline.store.sqlite.filters import SqliteNative
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.store.sqlite.schema import FIRST, MIGRATIONS, migrate
from anamnesis_tests.sidecar.conftest import wait_for
from anamnesis_tests.support.samples import at_once, episode, passages, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sub" / "anamnesis.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    database = Database(path)
    migrate(database)
    yield database
    database.close()


def opened(path: Path) -> Store:
    return open_sqlite(path, path.parent / "index")


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(opened(path)) as store:
        yield store


OLDER_EPISODE = """INSERT INTO episodes (episode_id, source, timestamp, instance, project, own_project, kind, status,
    passages, content_hash, stored_hash, retrieval_count)
    VALUES (?, 'direct', '2026-01-01T00:00:00+00:00', 'mac', '', '', 'note', 'active', 1, '', '', 3)"""


def make_version_7(path: Path) -> None:
    """Make a file of version 7, as it was released."""
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(Path(__file__).with_name("version_7.sql").read_text())


def make_version_3(path: Path) -> None:
    """Take away what came after version 3."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER episodes_removed_from_queries")
        connection.execute("DROP TRIGGER episodes_removed_from_chat")
        tables = "consolidated unconsolidated query_log query_results events chat_sessions chat_messages"
        for name in tables.split():
            connection.execute(f"DROP TABLE {name}")
        connection.execute("DELETE FROM migrations WHERE number > 3")


NAMED_INDEXES = (
    *("pending_by_source", "vectors_by_seq", "vectors_by_passage", "token_vectors_by_passage"),
    "episodes_passages",
)
"""Those that statements name (`INDEXED BY`); others have other names in files of earlier versions."""


def shape_of(path: Path) -> dict[str, object]:
    """Name -> what a table, view or trigger is: columns, indexes and options of a table, the SQL of others."""
    shape: dict[str, object] = {}
    with closing(sqlite3.connect(path)) as connection:
        objects = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        sql_of = {name: " ".join((sql or "").split()) for _, name, sql in objects}
        options = {name: its for _, name, _, _, *its in connection.execute("PRAGMA table_list")}
        for name in [name for kind, name, _ in objects if kind in ("view", "trigger")]:
            shape[name] = sql_of[name].lower()
        for name in [name for kind, name, _ in objects if kind == "table" and "VIRTUAL" not in sql_of[name]]:
            columns = sorted(
                (column, kind, not_null and not key, default, key)
                for _, column, kind, not_null, default, key in connection.execute(f"PRAGMA table_info({name})")
            )
            indexes = [
                (
                    index if index in NAMED_INDEXES else bool(sql_of.get(index)),
                    unique,
                    sql_of.get(index, "").partition("WHERE")[2],
                    [row[2:5] for row in connection.execute(f"PRAGMA index_xinfo({index})") if row[5]],
                )
                for _, index, unique, *_ in connection.execute(f"PRAGMA index_list({name})").fetchall()
            ]
            shape[name] = (columns, options[name], "AUTOINCREMENT" in sql_of[name], sorted(indexes, key=repr))
        shape |= {name: sql_of[name] for kind, name, _ in objects if kind == "table" and "VIRTUAL" in sql_of[name]}
    return shape


# --- the file --------------------------------------------------------------------------------------------


def test_only_the_owner_can_read_the_file(database: Database, path: Path):
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_closed_store_says_so(path: Path):
    store = opened(path)
    store.close()
    store.close()
    with pytest.raises(GiveUp, match="closed"):
        store.settings.get("x")


def test_a_damaged_file_is_named_with_what_to_do(path: Path):
    opened(path).close()
    data = bytearray(path.read_bytes())
    data[100:60_000] = os.urandom(59_900)
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match=r"anamnesis\.db.*move it away"):
        put(opened(path), "e", "text")


def test_a_file_that_is_no_database_is_left_alone(path: Path):
    path.parent.mkdir()
    path.write_text("dear diary\n" * 1_000)
    with pytest.raises(StoreCorrupt, match="not a database"):
        opened(path)
    assert path.read_text().startswith("dear diary")


def test_the_database_of_another_program_is_left_alone(path: Path):
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(StoreCorrupt, match="another program"):
        opened(path)


def test_a_file_for_the_folder_or_a_folder_for_the_file_is_named(path: Path):
    path.parent.write_text("")
    with pytest.raises(GiveUp, match="is a file"):
        opened(path)
    path.parent.unlink()
    path.mkdir(parents=True)
    with pytest.raises(GiveUp, match="cannot be opened"):
        opened(path)


# --- errors ----------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_and_nothing_is_half_written(database: Database):
    records = EpisodeRecords(SqliteGateway(database), SqliteNative())
    records.put([(episode("before"), passages("text"))])
    with database.read() as held:
        (pages,) = held.execute("PRAGMA page_count").fetchone()
        held.execute(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(StoreFull, match=r"anamnesis\.db.*bytes are free.*free some"):
        records.put([(episode("huge"), passages(os.urandom(100_000).hex()))])
    assert set(records.get(["before", "huge"])) == {"before"}
    records.put([(episode("huge"), passages("small enough"))])
    assert records.passages_of("huge")[0].passage.text == "small enough"


def test_a_lock_held_for_too_long_is_busy(database: Database, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_S", 0.1)
    impatient = Database(path)
    with database.write(), pytest.raises(StoreBusy, match="locked"):
        SettingsRecords(SqliteGateway(impatient)).set("x", 1)
    SettingsRecords(SqliteGateway(impatient)).set("x", 1)
    impatient.close()


OF_THE_OUTSIDE = "AUTH BUSY CANTOPEN CORRUPT FORMAT FULL IOERR LOCKED NOTADB PERM READONLY TOOBIG"
"""Result codes that the file, the disk or another process causes; the others are mistakes in our own calls."""


@pytest.mark.parametrize("name", OF_THE_OUTSIDE.split())
def test_every_error_of_the_outside_becomes_one_of_ours(database: Database, name: str):
    raised = sqlite3.OperationalError("from below")
    raised.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}") | (3 << 8)
    with pytest.raises(AnamnesisError) as caught, database.read():
        raise raised
    assert str(database.path) in str(caught.value)
    assert caught.value.__cause__ is raised


def test_a_mistake_of_ours_is_not_dressed_up(database: Database):
    with pytest.raises(sqlite3.OperationalError, match="no such table"), database.read() as held:
        held.execute("SELECT * FROM missing_table")


def test_many_threads_share_one_store(store: Store):
    def work(i: int) -> None:
        put(store, f"e{i}", f"text {i}")
        store.text.matching(["text"], 5, EpisodeFilter())

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(64)))
    assert store.overview.counts().episodes == 64


def test_a_forked_child_leaves_its_parents_connections_alone(database: Database):
    settings = SettingsRecords(SqliteGateway(database))
    settings.set("parent", 1)
    child = os.fork()
    if child == 0:
        settings.set("child", 2)
        os._exit(0 if settings.get("parent") == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    settings.set("parent", 3)
    assert settings.all() == {"child": 2, "parent": 3}


# --- migrations ------------------------------------------------------------------------------------------


def test_migrations_run_once_and_are_recorded(database: Database):
    assert migrate(database) == 0
    with database.read() as held:
        names = [name for (name,) in held.execute("SELECT name FROM migrations ORDER BY number")]
    assert names == [*FIRST, *(name for name, _ in MIGRATIONS)]
    assert [name.split("_")[0] for name in names] == [f"m{i:03d}" for i in range(1, len(names) + 1)]


def test_migrations_started_at_once_run_once_each(path: Path):
    databases = [Database(path) for _ in range(6)]
    ran = at_once([partial(migrate, each) for each in databases])
    assert sum(ran) == len(FIRST) + len(MIGRATIONS)
    for database in databases:
        database.close()


def test_a_new_file_that_many_open_at_once_is_opened_by_all(path: Path):
    """SQLite waits for no lock where the log of a new file is made; one file in fourteen failed so."""

    def write(database: Database) -> None:
        with closing(database), database.write() as held:
            held.execute("CREATE TABLE IF NOT EXISTS t (x)")

    for number in range(60):
        at_once([partial(write, Database(path.with_name(f"{number}.db"))) for _ in range(8)])


def test_a_failing_migration_leaves_the_file_as_it_was(database: Database):
    broken = (*MIGRATIONS, ("m999_broken", ("CREATE TABLE half (x)", "CREATE TABLE half (x)")))
    with pytest.raises(sqlite3.OperationalError):
        migrate(database, broken)
    with database.read() as held:
        assert held.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    assert migrate(database) == 0


def test_sessions_of_an_older_file_are_noted(store: Store, database: Database):
    put(store, "e1", "said in a log", session_id="s1", source="box--logs")
    put(store, "e2", "said in a log", session_id="s1", source="box--logs")
    put(store, "e3", "posted", session_id="s2", source="direct")
    with database.write() as held:
        held.execute("DROP TABLE session_notes")
        held.execute("DROP TRIGGER episodes_update_is_seen")
        held.execute("ALTER TABLE episodes DROP COLUMN read_count")
        held.execute("CREATE TRIGGER episodes_update_is_seen AFTER UPDATE ON episodes BEGIN SELECT 1; END")
        held.execute("DELETE FROM migrations WHERE number >= 9")
    assert migrate(database) == 6
    assert store.sessions.changed("box--logs", "", 10) == ["s1"]
    assert store.sessions.states(["s2"]) == []


def test_what_an_older_file_had_to_observe_is_observed_with_all(store: Store, database: Database, path: Path) -> None:
    put(store, "e1", "said in a log", session_id="s1", source="box--logs", raw_exchange="We use bun.")
    store.settings.set(RULE, 10)
    with database.write() as held:
        held.execute("DROP TABLE unobserved")
        held.execute("CREATE TABLE unobserved (origin TEXT PRIMARY KEY, noted INTEGER NOT NULL) WITHOUT ROWID")
        held.execute("DELETE FROM migrations WHERE number >= 14")
    with closing(opened(path)) as newer:
        assert observe(newer, ["elsewhere"]).observed == 0
        assert [each.origin for each in newer.observations.unobserved(10, ["box--logs"])] == ["s1"]


def test_a_newer_file_is_refused(database: Database, path: Path):
    migrate(database, (*MIGRATIONS, ("m999_future", ("CREATE TABLE future (x)",))))
    with pytest.raises(StoreCorrupt, match=r"newer version \(m999_future\).*update"):
        opened(path)


@pytest.mark.parametrize("version", [3, 7])
def test_older_file_gets_the_tables_of_a_new_one(path: Path, version: int) -> None:
    make_version_7(path)
    if version == 3:
        make_version_3(path)
    opened(path).close()
    opened(path.with_name("new.db")).close()
    assert shape_of(path) == shape_of(path.with_name("new.db"))


def test_file_that_was_never_finished_is_refused(path: Path) -> None:
    make_version_7(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM migrations WHERE number > 2")
    with pytest.raises(StoreCorrupt, match=r"never finished \(m002_episodes\); move it away"):
        opened(path)


def test_what_an_older_file_counted_stays_counted(path: Path) -> None:
    make_version_7(path)
    with closing(Database(path)) as database, database.write() as connection:
        connection.execute(OLDER_EPISODE, ("e",))
    with closing(opened(path)) as store:
        assert store.overview.most_read(EpisodeFilter(), 5) == ["e"]
        assert store.overview.census().retrievals == 3


def test_full_text_of_an_older_file_goes_on_where_it_stopped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_ROWS_PER_WRITE", 2)
    make_version_7(path)
    with closing(Database(path)) as database:
        texts = ["登录超时改成三十秒", "forgotten", "plain words", "夜间重跑gen-itgc后", "เซสชันหมดเวลา", GERMAN]
        with database.write() as connection:
            for n, text in enumerate(texts):
                key = connection.execute(OLDER_EPISODE, (f"e{n}",)).lastrowid
                connection.execute(
                    "INSERT INTO episode_texts VALUES (?, '', '[]', '', '', '', '{}', '[]', '[]', '')", (key,)
                )
                passage = "INSERT INTO passages (episode_key, ordinal) VALUES (?, 0)"
                text_of = "INSERT INTO passage_texts VALUES (?, ?, '', '[]')"
                connection.execute(text_of, (connection.execute(passage, (key,)).lastrowid, text))
            for gone in ("passages", "passage_texts"):
                connection.execute(f"DELETE FROM {gone} WHERE passage_id = 2")
        migrate(database)
        with database.write() as connection:
            schema._index_some(connection)
        with database.read() as connection:
            assert connection.execute("SELECT count(*) FROM stem_index_docsize").fetchone() == (2,)
    with closing(opened(path)) as store:
        assert store.text.check() == []
        for n, words in enumerate([["登录", "三十"], ["forgotten"], ["plain"], ["itgc"], ["หม"], ["nicht"]]):
            for analyzer in ("stem", "exact"):
                hits = store.text.with_all(words, 9, EpisodeFilter(), analyzer=analyzer)
                assert [hit.episode_id for hit in hits] == ([] if n == 1 else [f"e{n}"])
        assert [hit.episode_id for hit in store.text.matching(["rechnung"], 9, EpisodeFilter())] == ["e5"]
        store.episodes.delete("e3")
        assert store.text.check() == []


def test_upgrade_indexes_stems_and_goes_on_where_it_stopped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_ROWS_PER_WRITE", 2)
    with closing(opened(path)) as store:
        for number, text in enumerate([GERMAN, "the invoices", SPANISH, "the end"]):
            put(store, f"e{number}", text)
    with closing(Database(path)) as database:
        with database.write() as connection:
            connection.execute("DELETE FROM migrations WHERE number >= 13")
            connection.execute("INSERT INTO reindexing VALUES (2, 4)")  # what an earlier upgrade had not done yet
        assert migrate(database) == 2
        with database.write() as connection:
            schema._index_some(connection)
        with database.read() as connection:
            assert connection.execute("SELECT count(*) FROM stem_index_docsize").fetchone() == (2,)
            assert connection.execute("SELECT done, last FROM reindexing").fetchall() == [(2, 4)]
    with closing(opened(path)) as store:
        assert store.text.check() == []
        found = {
            word: [hit.episode_id for hit in store.text.matching([word], 9, EpisodeFilter())]
            for word in ("rechnung", "invoice", "facturacion", "ending")
        }
        assert found == {"rechnung": ["e0"], "invoice": ["e1"], "facturacion": ["e2"], "ending": ["e3"]}
        assert [hit.episode_id for hit in store.text.matching(["gelöscht"], 9, EpisodeFilter(), analyzer="exact")] == [
            "e0"
        ]


# --- full text -------------------------------------------------------------------------------------------


GERMAN = "Die Rechnungen wurden nicht gelöscht, und der Akku zeigt einen hohen Verbrauch."
FRENCH = "Les paniers abandonnés ne sont pas facturés."
SPANISH = "La facturación no se repite en las sesiones."


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("rechnung", ["de"]),
        ("Rechnungen", ["de"]),
        ("abandonner", ["fr"]),
        ("abandonnes", ["fr"]),
        ("facturacion", ["es"]),
        ("sesión", ["es"]),
        ("sesiones", ["es"]),
        ("invoice", ["en"]),
        ("services", ["all", "en"]),
    ],
)
def test_words_are_found_in_other_forms_of_their_language(store: Store, word: str, expected: list[str]):
    put(store, "de", GERMAN)
    put(store, "fr", FRENCH)
    put(store, "es", SPANISH)
    put(store, "en", "the invoices of a service")
    put(store, "all", "Der Service und die API sind nicht da")
    hits = store.text.matching([word], 9, EpisodeFilter())
    assert sorted(hit.episode_id for hit in hits) == expected
    assert sorted(hit.episode_id for hit in store.text.with_all([word], 9, EpisodeFilter())) == expected
    assert store.text.unknown([word, "absent"]) == ["absent"]


def test_a_word_in_two_languages_counts_as_one(store: Store):
    put(store, "de", "Der Service und die API sind nicht da")
    put(store, "en", "the service and that API were not here")
    hits = store.text.matching(["service"], 9, EpisodeFilter())
    assert [hit.episode_id for hit in hits] == ["de", "en"]
    assert hits[0].score == pytest.approx(hits[1].score, rel=0.05)


def test_unknown_compound_is_looked_for_by_its_parts(store: Store):
    put(store, "de", GERMAN)
    put(store, "half", "Der Akku ist nicht geladen und das ist so.")

    def found(word: str) -> list[str]:
        return [hit.episode_id for hit in store.text.matching([word], 9, EpisodeFilter())]

    assert found("Akkuverbrauch") == ["de", "half"]
    assert found("Akkuladung") == found("batteryverbrauch") == []
    put(store, "whole", "Akkuverbrauch")
    assert found("Akkuverbrauch") == ["whole"]


def forget_in_index(path: Path, key: int) -> None:
    """Let the index of stems lack the passage `text`."""
    with closing(sqlite3.connect(path)) as tampering, tampering:
        for name in ("exact_terms", "stem_terms"):
            tampering.create_function(name, 1, lambda text: text)
        tampering.execute(
            "INSERT INTO stem_index (stem_index, rowid, text, context) VALUES ('delete', ?, 'text', '')", (key,)
        )


def test_check_tells_when_an_index_and_its_texts_differ(store: Store, path: Path):
    (key,) = put(store, "e", "text")
    forget_in_index(path, key)
    (problem,) = store.text.check()
    assert "stem_index" in problem.text
    assert problem.state == "damaged"


def test_a_large_store_is_checked_by_another_process(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "COMPARED_HERE", 0)
    (key,) = put(store, "e", "text")
    monkeypatch.setattr(Database, "copied", lambda _: pytest.fail("compared in this process"))
    assert store.text.check() == []
    forget_in_index(path, key)
    assert ["stem_index" in problem.text for problem in store.text.check()] == [True]


def test_check_apart_that_is_ended_says_so_and_leaves_no_copy(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "COMPARED_HERE", 0)
    monkeypatch.setattr(connections, "__name__", "anamnesis_tests.store.endless_check")
    opened(path).close()
    with ThreadPoolExecutor(1) as thread:
        checked = thread.submit(connections.problems_of, path, 1)
        wait_for(lambda: [told for told in path.parent.glob("*-check-*/copied") if told.read_text()])
        (copied,) = path.parent.glob("*-check-*/copied")
        os.kill(int(copied.read_text()), signal.SIGTERM)
        with pytest.raises(RetryLater, match="ended before it was done"):
            checked.result(60)
    assert list(path.parent.glob("*-check-*")) == []


def test_what_keeps_a_check_apart_from_its_end_is_told(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "COMPARED_HERE", 0)
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 1_000)
    with pytest.raises(StoreCorrupt, match="not a database"):
        connections.problems_of(path, 1)


def test_a_check_leaves_the_store_writable_and_no_copy_behind(store: Store, path: Path):
    put(store, "e", "text")
    with Database(path).copied() as copy:
        store.settings.set("x", 1)
        assert copy.execute("SELECT count(*) FROM settings").fetchone() == (0,)
        assert copy.execute("SELECT count(*) FROM passages").fetchone() == (1,)
    assert store.text.check() == []
    assert list(path.parent.glob("*-check-*")) == []


def test_copy_of_a_killed_check_is_removed_by_a_later_one(store: Store, path: Path):
    for name, age_s in ((f"{COPY}old", COPY_LIVES_S + 60), (f"{COPY}new", 60), ("check-ins", COPY_LIVES_S + 60)):
        (path.parent / name).mkdir()
        (path.parent / name / "anamnesis.db").write_bytes(b"texts")
        os.utime(path.parent / name, (time.time() - age_s,) * 2)
    assert store.text.check() == []
    assert sorted(left.name for left in path.parent.glob("*check-*")) == [f"{COPY}new", "check-ins"]


def test_a_comparison_that_is_interrupted_is_no_damage(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch):
    put(store, "e", "text")
    connect = Database._connect

    def interrupted(self: Database, place: Path) -> sqlite3.Connection:
        connection = connect(self, place)
        if place != path:
            connection.create_function("exact_terms", 1, lambda _: 1 / 0)
        return connection

    monkeypatch.setattr(Database, "_connect", interrupted)
    with pytest.raises(RetryLater, match="did not come to its end"):
        store.text.check()


def test_a_passage_cannot_be_changed_in_place(database: Database):
    EpisodeRecords(SqliteGateway(database), SqliteNative()).put([(episode("e"), passages("text"))])
    with pytest.raises(sqlite3.IntegrityError, match="never changes"), database.write() as held:
        held.execute("UPDATE passage_texts SET text = 'other'")
