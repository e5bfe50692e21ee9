"""Parts and their summaries as rows. Segments are one zstd-compressed JSON array per part."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

import zstandard

from anamnesis_pipeline.model import Part, Segment, SegmentKind, Summary, content_id
from anamnesis_pipeline.store.sqlite.columns import as_json, clean, instant, moment

PART_COLUMNS = """part_id, source, path, session_id, exchange_id, ordinal, kind, project, cwd, prompt, agent_id,
    agent_type, lead, closed, segments"""


def pack(segments: Sequence[Segment]) -> bytes:
    """Segments as compressed JSON."""
    rows = [
        [s.message_key, s.uuid, s.kind, s.start, s.text, instant(s.timestamp) if s.timestamp else None]
        for s in segments
    ]
    return zstandard.compress(as_json(rows).encode("ascii"))


def unpack(data: bytes) -> tuple[Segment, ...]:
    """The inverse of `pack`."""
    return tuple(
        Segment(key, uuid, SegmentKind(kind), start, text, moment(when) if when else None)
        for key, uuid, kind, start, text, when in json.loads(zstandard.decompress(data))
    )


def read_row(row: Sequence[Any]) -> Part:
    """A row of `PART_COLUMNS`."""
    (part_id, source, path, session_id, exchange_id, ordinal, kind, project, cwd, prompt, agent_id, agent_type, lead,
     closed, segments) = row  # fmt: skip
    return Part(
        part_id=part_id,
        source=source,
        path=path,
        session_id=session_id,
        exchange_id=exchange_id,
        ordinal=ordinal,
        kind=kind,
        project=project,
        cwd=cwd,
        prompt=prompt,
        segments=unpack(segments),
        closed=bool(closed),
        agent_id=agent_id,
        agent_type=agent_type,
        lead=lead,
    )


def publication_hash(content_hash: str, summary: Summary | None) -> str:
    """What an episode is made of: the text and the summary of that text."""
    return content_id(content_hash, *((summary.text, summary.model) if summary else ()))


def write_part(connection: sqlite3.Connection, part: Part) -> None:
    """Insert or replace by id; what was published and summarized stays recorded."""
    times = sorted(instant(s.timestamp) for s in part.segments if s.timestamp)
    content_hash = part.content_hash
    summary = read_summary(connection, part.part_id)
    is_current = summary is not None and summary.content_hash == content_hash
    connection.execute(
        """INSERT INTO parts (part_id, source, path, session_id, exchange_id, ordinal, kind, project, cwd, prompt,
                agent_id, agent_type, lead, closed, started_at, ended_at, content_hash, wanted_hash,
                summarized_hash, segments)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (part_id) DO UPDATE SET source = excluded.source, path = excluded.path,
                session_id = excluded.session_id, exchange_id = excluded.exchange_id, ordinal = excluded.ordinal,
                kind = excluded.kind, project = excluded.project, cwd = excluded.cwd, prompt = excluded.prompt,
                agent_id = excluded.agent_id, agent_type = excluded.agent_type, lead = excluded.lead,
                closed = excluded.closed, started_at = excluded.started_at, ended_at = excluded.ended_at,
                content_hash = excluded.content_hash, wanted_hash = excluded.wanted_hash,
                summarized_hash = excluded.summarized_hash, segments = excluded.segments""",
        (part.part_id, part.source, part.path, part.session_id, part.exchange_id, part.ordinal, part.kind,
         clean(part.project), clean(part.cwd), clean(part.prompt), part.agent_id, part.agent_type, clean(part.lead),
         part.closed, times[0] if times else "", times[-1] if times else "", content_hash,
         publication_hash(content_hash, summary if is_current else None),
         summary.content_hash if summary else None, pack(part.segments)),
    )  # fmt: skip


def read_summary(connection: sqlite3.Connection, part_id: str) -> Summary | None:
    """The summary of a part, of whatever version of it."""
    row = connection.execute(
        "SELECT part_id, content_hash, text, model FROM summaries WHERE part_id = ?", (part_id,)
    ).fetchone()
    return None if row is None else Summary(*row)


def write_summary(connection: sqlite3.Connection, summary: Summary) -> bool:
    """Insert or replace by part id; False when the same is there already."""
    if read_summary(connection, summary.part_id) == summary:
        return False
    connection.execute(
        """INSERT INTO summaries (part_id, content_hash, text, model) VALUES (?, ?, ?, ?)
            ON CONFLICT (part_id) DO UPDATE SET content_hash = excluded.content_hash, text = excluded.text,
                model = excluded.model""",
        (summary.part_id, summary.content_hash, summary.text, summary.model),
    )
    connection.execute(
        """UPDATE parts SET summarized_hash = ?2,
                wanted_hash = CASE WHEN content_hash = ?2 THEN ?3 ELSE wanted_hash END
            WHERE part_id = ?1""",
        (summary.part_id, summary.content_hash, publication_hash(summary.content_hash, summary)),
    )
    return True
