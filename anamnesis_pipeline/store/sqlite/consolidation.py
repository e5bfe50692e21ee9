"""What is kept of consolidation, in SQLite."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.model import Episode, Passage
from anamnesis_pipeline.store import episode_values
from anamnesis_pipeline.store.consolidation_base import ChangedSession, Link, Regime, Settlement, Unsuperseded
from anamnesis_pipeline.store.records import events
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.sqlite import consolidation_rows, episode_rows, passage_rows, pending
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SqliteTables
from anamnesis_pipeline.store.sqlite.episode_rows import SET_STATUS
from anamnesis_pipeline.store.values import instant, json_list

_LINK = """INSERT INTO consolidated (episode_id, canonical, regime) VALUES (?, ?, ?)
    ON CONFLICT (episode_id) DO UPDATE SET canonical = excluded.canonical, regime = excluded.regime"""


class SqliteConsolidation:
    """See `ConsolidationRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def changed(self, limit: int) -> list[ChangedSession]:
        """See `ConsolidationRecords.changed`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT session_id, noted FROM unconsolidated u WHERE NOT EXISTS (
                        SELECT 1 FROM episode_texts t JOIN pending p USING (episode_key)
                        JOIN spaces s ON s.space_id = p.space_id AND s.status = 'active'
                        WHERE t.session_id = u.session_id)
                    ORDER BY session_id LIMIT ?""",
                (limit,),
            )
            return [ChangedSession(*row) for row in rows]

    def changed_count(self) -> int:
        """See `ConsolidationRecords.changed_count`."""
        with self._database.read() as connection:
            return int(connection.execute("SELECT count(*) FROM unconsolidated").fetchone()[0])

    def note_all(self) -> None:
        """See `ConsolidationRecords.note_all`."""
        with self._database.write() as connection:
            connection.execute(
                """INSERT INTO unconsolidated SELECT DISTINCT session_id, 1 FROM episode_texts WHERE session_id <> ''
                    ON CONFLICT (session_id) DO UPDATE SET noted = noted + 1"""
            )

    def links(self, episode_ids: Sequence[str]) -> dict[str, Link]:
        """See `ConsolidationRecords.links`."""
        with self._database.read() as connection:
            return consolidation_rows.links_of(connection, episode_ids)

    def settle(self, session: ChangedSession, canonical_of: Mapping[str, str | None]) -> Settlement:
        """See `ConsolidationRecords.settle`."""
        superseded = revived = 0
        moved = []
        with self._database.write() as connection:
            links = consolidation_rows.links_of(connection, list(canonical_of))
            for episode_id, canonical in canonical_of.items():
                link = links.get(episode_id)
                if link is not None and (link.undone or link.regime is Regime.MERGE):
                    continue
                before = link.canonical if link else None
                changes = superseded + revived
                if canonical is not None and canonical != before:
                    superseded += _link(connection, episode_id, canonical, before)
                elif canonical is None and before is not None:
                    revived += consolidation_rows.revive(connection, episode_id, before)
                    connection.execute("DELETE FROM consolidated WHERE episode_id = ?", (episode_id,))
                moved += [episode_id] * (superseded + revived - changes)
            events.note(SqliteTables(connection), Happening.CONSOLIDATION, moved)
            connection.execute(
                "DELETE FROM unconsolidated WHERE session_id = ? AND noted = ?", (session.session_id, session.noted)
            )
        return Settlement(superseded, revived)

    def merge(self, merged: Episode, passages: Sequence[Passage], members: Sequence[Episode]) -> bool:
        """See `ConsolidationRecords.merge`."""
        merged, passages = episode_values.storable(merged), episode_values.storable_passages(passages)
        with self._database.write() as connection:
            if not _are_as_they_were(connection, members) or _exists(connection, merged.episode_id):
                return False
            episode_key = episode_rows.write_episode(connection, merged, passages)
            passage_rows.write_passages(connection, episode_key, passages)
            pending.refresh(connection, [episode_key])
            for member in members:
                consolidation_rows.hide(connection, member.episode_id, merged.episode_id)
                connection.execute(_LINK, (member.episode_id, merged.episode_id, Regime.MERGE))
            events.note(
                SqliteTables(connection), Happening.CONSOLIDATION, [merged.episode_id, *(m.episode_id for m in members)]
            )
        return True

    def unsupersede(self, episode_id: str) -> Unsuperseded:
        """See `ConsolidationRecords.unsupersede`."""
        with self._database.write() as connection:
            link = consolidation_rows.links_of(connection, [episode_id]).get(episode_id)
            if link is not None and link.regime is Regime.SESSION and not link.undone:
                consolidation_rows.revive(connection, episode_id, link.canonical)
                consolidation_rows.undo(connection, [episode_id])
                events.note(SqliteTables(connection), Happening.CONSOLIDATION, [episode_id])
                return Unsuperseded((episode_id,))
            merged = consolidation_rows.merged_of(connection, episode_id) or episode_id
            members = _merged_members(connection, merged)
            if not members:
                raise EpisodeNotFound(f"nothing was superseded by consolidation of an episode {episode_id!r}")
            for member in members:
                consolidation_rows.revive(connection, member, merged)
            consolidation_rows.undo(connection, members)
            now = instant(datetime.now(UTC))
            connection.execute(f"{SET_STATUS} WHERE episode_id = ?3", ("superseded", None, merged, now))
            events.note(SqliteTables(connection), Happening.CONSOLIDATION, [merged, *members])
        return Unsuperseded(tuple(members), merged)

    def counts(self) -> dict[str, int]:
        """See `ConsolidationRecords.counts`."""
        with self._database.read() as connection:
            rows = dict(
                connection.execute(
                    """SELECT CASE undone WHEN 1 THEN 'undone' ELSE regime END, count(*) FROM consolidated
                        GROUP BY 1"""
                ).fetchall()
            )
        return {name: rows.get(name, 0) for name in (*Regime, "undone")}


def _link(connection: sqlite3.Connection, episode_id: str, canonical: str, before: str | None) -> int:
    """Hide an episode of a session behind another that is there; 1, or 0 where it may not be."""
    if not _exists(connection, canonical) or not consolidation_rows.hide(connection, episode_id, canonical, before):
        return 0
    connection.execute(_LINK, (episode_id, canonical, Regime.SESSION))
    return 1


def _exists(connection: sqlite3.Connection, episode_id: str) -> bool:
    return connection.execute("SELECT 1 FROM episodes WHERE episode_id = ?", (episode_id,)).fetchone() is not None


def _merged_members(connection: sqlite3.Connection, merged: str) -> list[str]:
    rows = connection.execute(
        "SELECT episode_id FROM consolidated WHERE canonical = ? AND regime = ? AND NOT undone ORDER BY episode_id",
        (merged, Regime.MERGE),
    )
    return [episode_id for (episode_id,) in rows]


def _are_as_they_were(connection: sqlite3.Connection, members: Sequence[Episode]) -> bool:
    """Whether each is active, has the text that it had, and nobody wants it as it is."""
    rows = connection.execute(
        """SELECT episode_id, raw_exchange FROM episodes e JOIN episode_texts USING (episode_key)
            WHERE episode_id IN (SELECT value FROM json_each(?)) AND status = 'active'
            AND NOT EXISTS (SELECT 1 FROM consolidated c WHERE c.episode_id = e.episode_id)""",
        (json_list(member.episode_id for member in members),),
    )
    return dict(rows.fetchall()) == {member.episode_id: member.raw_exchange for member in members}
