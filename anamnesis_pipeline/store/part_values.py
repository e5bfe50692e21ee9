"""Parts as every backend keeps them: segments are one zstd-compressed JSON array per part. Pure."""

import json
from collections.abc import Sequence
from typing import Any

import zstandard

from anamnesis_pipeline.model import Part, SectionFacts, Segment, SegmentKind
from anamnesis_pipeline.store.values import as_json, clean, instant, moment

PART_COLUMNS = (
    "part_id", "source", "path", "session_id", "exchange_id", "ordinal", "kind", "project", "cwd", "prompt", "agent_id",
    "agent_type", "origin", "lead", "closed", "section", "segments",
)  # fmt: skip


def pack(segments: Sequence[Segment]) -> bytes:
    """Segments as compressed JSON."""
    rows = [
        [s.message_key, s.uuid, s.kind, s.start, s.text, instant(s.timestamp) if s.timestamp else None]
        + [s.sender] * bool(s.sender)
        for s in segments
    ]
    return zstandard.compress(as_json(rows).encode("ascii"))


def unpack(data: bytes) -> tuple[Segment, ...]:
    """The inverse of `pack`."""
    return tuple(
        Segment(key, uuid, SegmentKind(kind), start, text, moment(when) if when else None, *sender)
        for key, uuid, kind, start, text, when, *sender in json.loads(zstandard.decompress(data))
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


def read_part(row: Sequence[Any]) -> Part:
    """The values of `PART_COLUMNS`."""
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
