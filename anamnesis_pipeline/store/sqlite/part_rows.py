"""Parts as rows. Segments are one zstd-compressed JSON array per part."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

import zstandard

from anamnesis_pipeline.model import Part, SectionFacts, Segment, SegmentKind
from anamnesis_pipeline.store.sqlite.columns import as_json, clean, instant, moment
from anamnesis_pipeline.store.sqlite.summary_rows import publication_hash, read_summary
from anamnesis_pipeline.summary_model import Summary

PART_COLUMNS = """part_id, source, path, session_id, exchange_id, ordinal, kind, project, cwd, prompt, agent_id,
    agent_type, origin, lead, closed, section, segments"""


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


def pack_section(facts: SectionFacts | None) -> str:
    """Facts of a section as JSON; empty for none."""
    if facts is None:
        return ""
    seen = instant(facts.seen) if facts.seen else None
    title, tags = map(clean, facts.title), map(clean, facts.tags)
    return as_json([
        list(title), facts.first_line, facts.last_line, facts.format, facts.language, facts.trust, list(tags), seen,
        clean(facts.instance),
    ])  # fmt: skip


def unpack_section(text: str) -> SectionFacts | None:
    """The inverse of `pack_section`."""
    if not text:
        return None
    title, first_line, last_line, form, language, trust, tags, seen, instance = json.loads(text)
    when = moment(seen) if seen else None
    return SectionFacts(tuple(title), first_line, last_line, form, language, trust, tuple(tags), when, instance)


def read_row(row: Sequence[Any]) -> Part:
    """A row of `PART_COLUMNS`."""
    (part_id, source, path, session_id, exchange_id, ordinal, kind, project, cwd, prompt, agent_id, agent_type, origin,
     lead, closed, section, segments) = row  # fmt: skip
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
        origin=origin,
        section=unpack_section(section),
    )


def ended_at(part: Part) -> str:
    """When the last of its segments was said, as its row has it; empty: nobody knows."""
    return max((instant(s.timestamp) for s in part.segments if s.timestamp), default="")


def mark_published(connection: sqlite3.Connection, part: Part, summary: Summary | None) -> bool:
    """Note that the episode of a part is written; False when part or summary are others by now."""
    return (
        connection.execute(
            """UPDATE parts SET published_hash = wanted_hash
                WHERE part_id = ? AND wanted_hash = ? AND (source, path, project, cwd, prompt, lead, agent_type, origin,
                    section) = (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (part.part_id, publication_hash(part.content_hash, summary), part.source, part.path, clean(part.project),
             clean(part.cwd), clean(part.prompt), clean(part.lead), clean(part.agent_type), clean(part.origin),
             pack_section(part.section)),
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
         clean(part.project), clean(part.cwd), clean(part.prompt), part.agent_id, clean(part.agent_type),
         clean(part.origin), clean(part.lead), pack_section(part.section), part.closed, started_at, ended_at(part),
         content_hash,
         publication_hash(content_hash, summary if is_current else None),
         summary.content_hash if summary else None, pack(part.segments)),
    )  # fmt: skip
