"""Parts as rows."""

import sqlite3

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store import part_values
from anamnesis_pipeline.store.sqlite.summary_rows import read_summary
from anamnesis_pipeline.store.summary_values import publication_hash
from anamnesis_pipeline.store.values import clean, indexed, instant
from anamnesis_pipeline.summary_model import Summary

PART_COLUMNS = ", ".join(part_values.PART_COLUMNS)


def mark_published(connection: sqlite3.Connection, part: Part, summary: Summary | None) -> bool:
    """Note that the episode of a part is written; False when part or summary are others by now."""
    return (
        connection.execute(
            """UPDATE parts SET published_hash = wanted_hash
                WHERE part_id = ? AND wanted_hash = ? AND (source, path, project, cwd, prompt, lead, agent_type, origin,
                    section) = (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (part.part_id, publication_hash(part.content_hash, summary), part.source, part.path, indexed(part.project),
             clean(part.cwd), clean(part.prompt), clean(part.lead), clean(part.agent_type), clean(part.origin),
             part_values.pack_section(part.section)),
        ).rowcount
        == 1
    )  # fmt: skip


def write_part(connection: sqlite3.Connection, part: Part) -> None:
    """Insert or replace by id; what was published and summarized stays recorded."""
    started_at = min((instant(s.timestamp) for s in part.segments if s.timestamp), default="")
    content_hash = part.content_hash
    summary = read_summary(connection, part.part_id)
    is_current = summary is not None and summary.content_hash == content_hash
    connection.execute(
        """INSERT INTO parts (part_id, source, path, session_id, exchange_id, ordinal, kind, project, cwd, prompt,
                agent_id, agent_type, origin, lead, section, closed, started_at, ended_at, content_hash, wanted_hash,
                summarized_hash, segments)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (part_id) DO UPDATE SET source = excluded.source, path = excluded.path,
                session_id = excluded.session_id, exchange_id = excluded.exchange_id, ordinal = excluded.ordinal,
                kind = excluded.kind, project = excluded.project, cwd = excluded.cwd, prompt = excluded.prompt,
                agent_id = excluded.agent_id, agent_type = excluded.agent_type,
                origin = excluded.origin, lead = excluded.lead, section = excluded.section,
                closed = excluded.closed, started_at = excluded.started_at, ended_at = excluded.ended_at,
                content_hash = excluded.content_hash, wanted_hash = excluded.wanted_hash,
                summarized_hash = excluded.summarized_hash, segments = excluded.segments""",
        (part.part_id, part.source, part.path, part.session_id, part.exchange_id, part.ordinal, part.kind,
         indexed(part.project), clean(part.cwd), clean(part.prompt), part.agent_id, clean(part.agent_type),
         clean(part.origin), clean(part.lead), part_values.pack_section(part.section), part.closed, started_at,
         part_values.ended_at(part), content_hash,
         publication_hash(content_hash, summary if is_current else None),
         summary.content_hash if summary else None, part_values.pack(part.segments)),
    )  # fmt: skip
