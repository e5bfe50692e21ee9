"""Sections of documents about which it is to be decided which text is current, as rows."""

import sqlite3
from collections.abc import Iterable


def note(connection: sqlite3.Connection, sections: Iterable[tuple[str, str, str]]) -> None:
    """(place, anchor, source) of sections in which something came or went."""
    connection.executemany(
        """INSERT INTO unsettled (place, anchor, source, noted) VALUES (?, ?, ?, 1)
            ON CONFLICT (place, anchor) DO UPDATE SET source = excluded.source, noted = noted + 1""",
        list(sections),
    )


def note_published(connection: sqlite3.Connection, part_id: str) -> None:
    """A part of a document has a new episode, which is active: where another text is current, or none, it is to be
    settled; and so is what gave way to it, under whatever heading.
    """
    rows = connection.execute(
        """SELECT place, anchor, source FROM sightings s WHERE part_id = ?1 AND (NOT present OR EXISTS (
            SELECT 1 FROM sightings o WHERE o.place = s.place AND o.anchor = s.anchor AND o.part_id <> s.part_id))
            UNION SELECT place, anchor, source FROM sightings WHERE became = ?1 AND became <> ''""",
        (part_id,),
    )
    note(connection, rows.fetchall())
