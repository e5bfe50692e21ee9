"""Episodes, their passages and tombstones in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from anamnesis_pipeline.errors import EpisodeConflict, EpisodeNotFound
from anamnesis_pipeline.model import Episode, EpisodeHead, Passage, StoredPassage, Where
from anamnesis_pipeline.store import episode_values
from anamnesis_pipeline.store.base import EpisodePage, Publication, PutReport
from anamnesis_pipeline.store.batching import batches, by_rows
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.paging import cursor_after, read_cursor
from anamnesis_pipeline.store.records import chat, documents, events, forgetting, llm, queries
from anamnesis_pipeline.store.records.events import Happening, kind_of_edit
from anamnesis_pipeline.store.records.parts import mark_published
from anamnesis_pipeline.store.session_base import is_of_log, is_told
from anamnesis_pipeline.store.sqlite import (
    consolidation_rows,
    episode_rows,
    passage_rows,
    pending,
    session_notes,
)
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SqliteTables
from anamnesis_pipeline.store.sqlite.episode_rows import SELECT_EPISODES, SELECT_HEADS, SET_STATUS
from anamnesis_pipeline.store.sqlite.filters import condition
from anamnesis_pipeline.store.sqlite.passage_rows import SELECT_PASSAGES
from anamnesis_pipeline.store.values import LAST_CHARACTER, instant, json_list, sought

Written = tuple[Episode, Sequence[Passage]]

_EDITED, _REWRITTEN = 1, 2
"""A client edited fields of the episode; a client edited its raw text, too."""


class SqliteEpisodes:
    """See `EpisodeRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, episodes: Sequence[Written], *, only_new: bool = False) -> PutReport:
        """See `EpisodeRecords.put`."""
        outcomes: Counter[str] = Counter()
        for batch in by_rows(_storable(episodes), _rows):
            with self._database.write() as connection:
                done = [put_episode(connection, episode, passages, only_new=only_new) for episode, passages in batch]
                _note_written(connection, [e.episode_id for e, _ in batch], done)
            outcomes.update(done)
        return PutReport(**outcomes)

    def publish(self, publications: Sequence[Publication]) -> PutReport:
        """See `EpisodeRecords.publish`."""
        outcomes: Counter[str] = Counter()
        ready = [replace(each, episodes=_storable(each.episodes)) for each in publications]
        for batch in by_rows(ready, lambda each: sum(map(_rows, each.episodes))):
            with self._database.write() as connection:
                written = [_publish(connection, each) for each in batch]
                done = [outcome for each in written for outcome in each]
                ids = [e.episode_id for each, its in zip(batch, written, strict=True) if its for e, _ in each.episodes]
                _note_written(connection, ids, done)
            outcomes.update(done)
        return PutReport(**outcomes)

    def create(self, episode: Episode, passages: Sequence[Passage]) -> bool:
        """See `EpisodeRecords.create`."""
        episode, passages = episode_values.storable(episode), episode_values.storable_passages(passages)
        with self._database.write() as connection:
            if (stored := _stored(connection, episode.episode_id)) is not None:
                if stored[1] == episode.content_hash:
                    return False
                raise EpisodeConflict(
                    f"episode {episode.episode_id} exists with other content; edit it, or choose another id"
                )
            forgetting.lift(SqliteTables(connection), episode.episode_id)
            _write(connection, episode, passages)
            events.note(SqliteTables(connection), Happening.WRITE, [episode.episode_id])
        return True

    def replace(self, episode: Episode, passages: Sequence[Passage], expected_hash: str) -> None:
        """See `EpisodeRecords.replace`."""
        episode, passages = episode_values.storable(episode), episode_values.storable_passages(passages)
        with self._database.write() as connection:
            stored = _stored(connection, episode.episode_id)
            if stored is None:
                raise EpisodeNotFound(f"no episode {episode.episode_id}; it may have been deleted meanwhile")
            held = _read(connection, episode.episode_id)
            if held.content_hash != expected_hash:
                raise EpisodeConflict(f"episode {episode.episode_id} changed meanwhile; read it again, then edit")
            edited = _EDITED if held.raw_exchange == episode.raw_exchange else _REWRITTEN
            episode_key = _write(connection, episode, passages)
            if edited == _REWRITTEN and is_told(held.kind):
                drop_session_records(connection, held.source, held.session_id)
            values = (episode.status, episode.superseded_by, episode_key, instant(datetime.now(UTC)))
            connection.execute(f"{SET_STATUS} WHERE episode_key = ?3", values)
            if (held.status, episode.status) == ("superseded", "active"):
                consolidation_rows.undo(connection, [episode.episode_id])
            connection.execute(
                "UPDATE episodes SET edited = ? WHERE episode_key = ?", (max(edited, stored[3]), episode_key)
            )
            events.note(SqliteTables(connection), kind_of_edit(held, episode), [episode.episode_id])

    def get(self, episode_ids: Sequence[str]) -> dict[str, Episode]:
        """See `EpisodeRecords.get`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{SELECT_EPISODES} WHERE e.episode_id IN (SELECT value FROM json_each(?))", (json_list(episode_ids),)
            ).fetchall()
        return {episode.episode_id: episode for episode in map(episode_rows.read_row, rows)}

    def heads(self, episode_ids: Sequence[str]) -> dict[str, EpisodeHead]:
        """See `EpisodeRecords.heads`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{SELECT_HEADS} WHERE e.episode_id IN (SELECT value FROM json_each(?))", (json_list(episode_ids),)
            ).fetchall()
        return {head.episode_id: head for head in map(episode_rows.read_head, rows)}

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        """See `EpisodeRecords.beginning_with`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT episode_id FROM episodes WHERE episode_id >= ? AND episode_id < ? ORDER BY episode_id LIMIT ?",
                (sought(prefix), sought(prefix) + LAST_CHARACTER, max(0, limit)),
            )
            return [name for (name,) in rows]

    def superseded_by(self, episode_id: str, limit: int) -> list[str]:
        """See `EpisodeRecords.superseded_by`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT episode_id FROM episodes WHERE superseded_by = ? ORDER BY episode_id LIMIT ?",
                (sought(episode_id), max(0, limit)),
            )
            return [name for (name,) in rows]

    def delete(self, episode_id: str, *, tombstone: bool = True) -> bool:
        """See `EpisodeRecords.delete`."""
        with self._database.write() as connection:
            if _stored(connection, sought(episode_id)) is None:
                return False
            events.note(SqliteTables(connection), Happening.FORGET, [episode_id])
            if tombstone:
                forgetting.bury_episode(SqliteTables(connection), episode_id)
            else:  # the next ingest publishes it again
                connection.execute("UPDATE parts SET published_hash = NULL WHERE part_id = ?", (episode_id,))
            remove_episode(connection, episode_id)
        return True

    def page(
        self, where: Where, limit: int, cursor: str | None = None, skip: int = 0, *, oldest_first: bool = False
    ) -> EpisodePage:
        """See `EpisodeRecords.page`."""
        terms, values = condition(where)
        order, beyond = ("ASC", ">") if oldest_first else ("DESC", "<")
        after: list[str] = []
        if cursor is not None:
            when, episode_id = read_cursor(cursor)
            terms, after = f"{terms} AND (e.timestamp, e.episode_id) {beyond} (?, ?)", [instant(when), episode_id]
        with self._database.read() as connection:
            # which ones first, and their texts then: a sort of all that pass would carry every text along
            rows = connection.execute(
                f"""{SELECT_EPISODES} WHERE e.episode_key IN (SELECT e.episode_key FROM episodes e WHERE {terms}
                        ORDER BY e.timestamp {order}, e.episode_id {order} LIMIT ? OFFSET ?)
                    ORDER BY e.timestamp {order}, e.episode_id {order}""",
                (*values, *after, limit + 1, skip),
            ).fetchall()
        items = [episode_rows.read_row(row) for row in rows[:limit]]
        return EpisodePage(items, cursor_after(items[-1]) if len(rows) > limit and items else None)

    def sessions_beginning(self, prefix: str, limit: int) -> list[str]:
        """See `EpisodeRecords.sessions_beginning`."""
        first = sought(prefix)
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT DISTINCT session_id FROM episode_texts WHERE session_id >= ? AND session_id < ?
                    ORDER BY session_id LIMIT ?""",
                (first, first + LAST_CHARACTER, limit),
            )
            return [name for (name,) in rows]

    def count(self, where: Where) -> int:
        """See `EpisodeRecords.count`."""
        terms, values = condition(where)
        with self._database.read() as connection:
            return int(connection.execute(f"SELECT count(*) FROM episodes e WHERE {terms}", values).fetchone()[0])

    def projects(self) -> list[str]:
        """See `EpisodeRecords.projects`."""
        with self._database.read() as connection:
            # one seek in the index for each name: DISTINCT walks all of it, at every search
            rows = connection.execute(
                """WITH RECURSIVE names (project) AS (
                        SELECT min(project) FROM episodes
                        UNION ALL
                        SELECT (SELECT min(project) FROM episodes WHERE project > names.project) FROM names
                            WHERE project IS NOT NULL)
                    SELECT project FROM names WHERE project IS NOT NULL ORDER BY project"""
            )
            return [name for (name,) in rows]

    def project_names(self) -> list[tuple[str, str, int]]:
        """See `EpisodeRecords.project_names`."""
        with self._database.read() as connection:
            return connection.execute(
                "SELECT own_project, project, count(*) FROM episodes GROUP BY own_project, project ORDER BY 1, 2"
            ).fetchall()

    def call_project(self, own: str, name: str) -> int:
        """See `EpisodeRecords.call_project`."""
        return self._set_project("project", own, name)

    def rename_project(self, own: str, name: str) -> int:
        """See `EpisodeRecords.rename_project`."""
        return self._set_project("own_project", own, name)

    def _set_project(self, column: str, own: str, name: str) -> int:
        changed, last = 0, MAX_ROWS_PER_WRITE
        while last == MAX_ROWS_PER_WRITE:
            with self._database.write() as connection:
                last = connection.execute(
                    f"""UPDATE episodes SET {column} = ?2 WHERE episode_key IN (
                        SELECT episode_key FROM episodes WHERE own_project = ?1 AND {column} <> ?2
                        LIMIT {MAX_ROWS_PER_WRITE})""",
                    (own, name),
                ).rowcount
            changed += last
        return changed

    def preceding(self, instance: str, project: str, before: datetime, since: datetime, limit: int) -> list[Episode]:
        """See `EpisodeRecords.preceding`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"""{SELECT_EPISODES} WHERE e.instance = ? AND e.project = ? AND e.timestamp >= ? AND e.timestamp < ?
                    AND e.source = 'direct' AND e.status = 'active' AND e.kind <> 'record'
                    ORDER BY e.timestamp DESC, e.episode_key DESC LIMIT ?""",
                (instance, project, instant(since), instant(before), limit),
            ).fetchall()
        return [episode_rows.read_row(row) for row in reversed(rows)]

    def passages(self, passage_ids: Sequence[int]) -> dict[int, StoredPassage]:
        """See `EpisodeRecords.passages`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{SELECT_PASSAGES} WHERE p.passage_id IN (SELECT value FROM json_each(?))", (json_list(passage_ids),)
            ).fetchall()
        return {row[0]: passage_rows.read_row(row) for row in rows}

    def passages_of(self, episode_id: str) -> list[StoredPassage]:
        """See `EpisodeRecords.passages_of`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"{SELECT_PASSAGES} WHERE e.episode_id = ? ORDER BY p.ordinal", (sought(episode_id),)
            )
            return [passage_rows.read_row(row) for row in rows]

    def track(self, episode_ids: Sequence[str], when: datetime, *, read: bool = False) -> None:
        """See `EpisodeRecords.track`."""
        counter = "read_count" if read else "retrieval_count"
        for batch in batches(sorted(set(episode_ids))):
            with self._database.write() as connection:
                rows = connection.execute(
                    f"""UPDATE episodes SET {counter} = {counter} + 1, last_retrieved = ?
                        WHERE episode_id IN (SELECT value FROM json_each(?)) RETURNING episode_id""",
                    (instant(when), json_list(batch)),
                ).fetchall()
                events.note(SqliteTables(connection), Happening.READ, [episode_id for (episode_id,) in rows])


def _storable(episodes: Sequence[Written]) -> list[Written]:
    return [
        (episode_values.storable(episode), episode_values.storable_passages(passages)) for episode, passages in episodes
    ]


def _note_written(connection: sqlite3.Connection, episode_ids: Sequence[str], outcomes: Sequence[str]) -> None:
    """One event about those that were created or updated."""
    pairs = zip(episode_ids, outcomes, strict=True)
    events.note(
        SqliteTables(connection), Happening.WRITE, [name for name, done in pairs if done in ("created", "updated")]
    )


def _rows(written: Written) -> int:
    """Rows of an episode."""
    return 1 + len(written[1])


def _publish(connection: sqlite3.Connection, publication: Publication) -> list[str]:
    """Write the episodes of one part, if it is still the one they were made of; returns their fields in the report."""
    if not mark_published(SqliteTables(connection), [(publication.part, publication.summary)]):
        return []
    for episode_id in publication.surplus:
        remove_episode(connection, episode_id)
    outcomes = [put_episode(connection, episode, passages) for episode, passages in publication.episodes]
    if publication.part.section is not None and "created" in outcomes:
        documents.note_published(SqliteTables(connection), publication.part.part_id)
    return outcomes


def put_episode(
    connection: sqlite3.Connection, episode: Episode, passages: Sequence[Passage], *, only_new: bool = False
) -> str:
    """Write one episode of a `put`; returns its field in the report."""
    if forgetting.tombstoned(SqliteTables(connection), [episode]):
        return "tombstoned"
    stored = _stored(connection, episode.episode_id)
    if stored is not None and (only_new or stored[3] == _REWRITTEN):
        return "unchanged"
    if stored is not None and stored[3] == _EDITED:
        episode, passages = _with_edits(connection, episode, passages)
    if stored is not None and stored[2] == episode_values.stored_hash(episode, passages):
        return "unchanged"
    _write(connection, episode, passages)
    return "created" if stored is None else "updated"


def _with_edits(
    connection: sqlite3.Connection, episode: Episode, passages: Sequence[Passage]
) -> tuple[Episode, list[Passage]]:
    """What a log says now, with what a client edited: the fields, and the passages that no message has."""
    held = _read(connection, episode.episode_id)
    rows = connection.execute(f"{SELECT_PASSAGES} WHERE e.episode_id = ? ORDER BY p.ordinal", (episode.episode_id,))
    texts = {passage.text for passage in passages}
    said = [s.passage for s in map(passage_rows.read_row, rows) if not s.passage.message_ids]
    both = [*passages, *(passage for passage in said if passage.text not in texts)]
    kept = replace(
        episode, summary=held.summary, tags=held.tags, project=held.project, instance=held.instance, kind=held.kind,
        timestamp=held.timestamp, metadata=held.metadata,
    )  # fmt: skip
    return kept, [replace(passage, ordinal=n) for n, passage in enumerate(both)]


def _read(connection: sqlite3.Connection, episode_id: str) -> Episode:
    """An episode that is there."""
    return episode_rows.read_row(
        connection.execute(f"{SELECT_EPISODES} WHERE e.episode_id = ?", (episode_id,)).fetchone()
    )


def _write(connection: sqlite3.Connection, episode: Episode, passages: Sequence[Passage]) -> int:
    drop_merge(connection, episode.episode_id, unless=episode.raw_exchange)
    episode_key = episode_rows.write_episode(connection, episode, passages)
    passage_rows.write_passages(connection, episode_key, passages)
    pending.refresh(connection, [episode_key])
    consolidation_rows.note_session(connection, episode)
    consolidation_rows.hide_again(connection, episode.episode_id)
    if is_told(episode.kind):
        session_notes.note(connection, episode.source, episode.session_id)
    return episode_key


def drop_merge(connection: sqlite3.Connection, episode_id: str, unless: str | None = None) -> None:
    """Remove the merged episode that quotes this one, if there is one: what it quotes changes, or goes.

    :param unless: the text that the episode will have; where it has that already, the merge stays.
    """
    if (merged := consolidation_rows.merged_of(connection, episode_id)) is None:
        return
    if unless is None or _read(connection, episode_id).raw_exchange != unless:
        remove_episode(connection, merged)
        connection.execute("DELETE FROM consolidated WHERE canonical = ?", (merged,))


def drop_session_records(connection: sqlite3.Connection, source: str, session_id: str) -> None:
    """Remove every revision of the record that a session is in, with what an LLM said of it, and note all sessions that
    are in it: some of what the record tells is to be found no longer. Records that were imported go, too.
    """
    if not is_of_log(source, session_id):
        for episode_id in session_notes.imported_ids(connection, source, session_id):
            remove_episode(connection, episode_id)
        return
    together = session_notes.in_record_with(connection, source, session_id)
    for key in together:
        session_notes.note(connection, *key)
    llm.withdraw(SqliteTables(connection), session_notes.record_ids(connection, source, together, further=1))
    for episode_id in session_notes.record_ids(connection, source, together):
        remove_episode(connection, episode_id)


def _stored(connection: sqlite3.Connection, episode_id: str) -> tuple[int, str, str, int] | None:
    """Key, content hash, stored hash and edit state of an episode."""
    row: tuple[int, str, str, int] | None = connection.execute(
        "SELECT episode_key, content_hash, stored_hash, edited FROM episodes WHERE episode_id = ?", (episode_id,)
    ).fetchone()
    return row


def remove_episode(connection: sqlite3.Connection, episode_id: str) -> None:
    """Remove an episode, if it is there, with its passages, full-text rows and vectors; no tombstone stays."""
    if (stored := _stored(connection, episode_id)) is None:
        return
    drop_merge(connection, episode_id)
    removed = _read(connection, episode_id)
    consolidation_rows.note_session(connection, removed)
    if is_told(removed.kind):
        drop_session_records(connection, removed.source, removed.session_id)
    episode_key = stored[0]
    rows = connection.execute("SELECT passage_id FROM passages WHERE episode_key = ?", (episode_key,))
    passage_rows.delete_passages(connection, [passage_id for (passage_id,) in rows.fetchall()])
    for table in ("episode_tags", "episode_texts", "pending", "episodes"):
        connection.execute(f"DELETE FROM {table} WHERE episode_key = ?", (episode_key,))
    queries.remove_queries_of(SqliteTables(connection), [episode_id])
    chat.forget_messages_of(SqliteTables(connection), [episode_id])
    consolidation_rows.release(connection, episode_id)
