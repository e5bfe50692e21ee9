"""Parts of exchanges and sections of documents: what they are made of, what is left to do of them, and of which project
they are.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import zstandard

from anamnesis_pipeline.model import (
    Part,
    RecordType,
    SectionFacts,
    Segment,
    SegmentKind,
    Summary,
    TypedRecord,
    content_id,
)
from anamnesis_pipeline.parsing.claude_logs.message_keys import RESULT_KEY, agent_key, call_of
from anamnesis_pipeline.store.gateway import (
    MAX_ROWS_PER_WRITE,
    Field,
    Gateway,
    Match,
    Row,
    Tables,
    batches,
    beyond,
    until_done,
    write_all,
)
from anamnesis_pipeline.store.records.session_notes import at_rest_sources
from anamnesis_pipeline.store.tables import NOT_EMPTY, NOT_NULL, TEXT
from anamnesis_pipeline.store.values import as_json, clean, indexed, instant, json_list, moment

PART_FIELDS = tuple(
    """part_id source path session_id exchange_id ordinal kind project cwd prompt agent_id agent_type origin lead
    closed section segments""".split()
)
NEWEST_FIRST = ("-ended_at", "-part_id")
"""The order in which parts are worked off: by the end of their last segment, then id."""
_AT_ONCE = 50
"""Parts decompressed at a time while looking for some that no tombstone forbids."""
_UNPUBLISHED = {"to_publish": 1}
_UNLINKED = {"kind": "subagent", "origin": ""}


class PartRecords:
    """Parts by what is left to do of them, and of which project they are."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def part(self, part_id: str) -> Part | None:
        """Return one part with its segments; None when there is none, or when its episode was deleted with a
        tombstone: what follows then begins a new part, so that nothing said later is lost with it.
        """
        with self._gateway.read() as tables:
            return None if buried(tables, [part_id]) else read_parts(tables, [part_id]).get(part_id)

    def name_agent(self, source: str, path: str, agent_type: str, origin: str) -> int:
        """Set the type and origin of every part of a subagent's file; their episodes are then written again. Return how
        many changed.
        """
        named = {"agent_type": clean(agent_type), "origin": clean(origin)}
        others = [{name: {"$ne": value}} for name, value in named.items()]
        return self._change({"source": source, "path": path, "$or": others}, {**named, "published_hash": None})

    def renew_session(self, session_id: str) -> int:
        """Let the episodes of a session, those of its subagents too, be written again. Return how many."""
        return self._change({"session_id": session_id, "published_hash": NOT_NULL}, {"published_hash": None})

    def renew_source(self, source: str) -> int:
        """Let all episodes of a source be written again. Return how many."""
        return self._change({"source": source, "published_hash": NOT_NULL}, {"published_hash": None})

    def link_agents(self, source: str) -> int:
        """Set the origin of subagents' parts that have none, where a tool's result names their agent (`agent_key`);
        their episodes are then written again. Return how many changed.
        """
        match = {"source": source, **_UNLINKED}
        with self._gateway.snapshot() as tables:
            rows = tables["parts"].find(match, ["part_id", "session_id", "agent_id"])
            key_of = {row["part_id"]: agent_key(row["session_id"], row["agent_id"]) for row in rows}
            named = tables["messages"].among("key", key_of.values(), ["key", "canonical"])
            calls = {row["key"]: row["canonical"] for row in named if row["canonical"].startswith(RESULT_KEY)}
        origins = [(part_id, call_of(calls[key])) for part_id, key in key_of.items() if key in calls]

        def link(tables: Tables, origins: Sequence[tuple[str, str]]) -> int:
            call_of_part = dict(origins)
            changed = [
                {"part_id": row["part_id"], "origin": call_of_part[row["part_id"]], "published_hash": None}
                for row in tables["parts"].among("part_id", call_of_part, ["part_id"], **_UNLINKED)
            ]
            tables["parts"].put(changed)
            return len(changed)

        return sum(write_all(self._gateway, origins, link))

    def close_idle_parts(self, source: str, ended_before: datetime) -> int:
        """Close open parts whose last segment is older. Return how many."""
        return self._change({"source": source, **_idle(ended_before)}, {"closed": 1})

    def unfinished_sources(self, ended_before: datetime) -> set[str]:
        """Return the sources with archived lines that are not parsed, parts that `parts_to_publish` lists, open parts
        that `close_idle_parts` would close, sessions at rest whose record is to be written, or sections of documents of
        which it is to be decided what is current: what an `ingest` that ended early left to do.
        """
        with self._gateway.read() as tables:
            found = _sources(tables, "files", {"to_parse": 1}) | _sources(tables, "unsettled", {})
            found |= _sources(tables, "parts", {"source": TEXT, **_idle(ended_before)})
            sources = tables["sources"].find({}, ["key", "kind"])
            paths: dict[str, list[str]] = {}  # of files that are gone and whose sections may still count as present
            others = [row["key"] for row in sources if not _is_log(row["kind"])]
            for row in tables["files"].among("source", others, ["source", "path"], gone=1):
                paths.setdefault(row["source"], []).append(row["path"])
            for source, its in paths.items():
                if any(tables["sightings"].among("path", its, ["path"], source=source, present=1)):
                    found.add(source)
            found |= at_rest_sources(tables, [row["key"] for row in sources if _is_log(row["kind"])])
            return found | _unpublished_sources(tables, found)

    def unread_sources(self) -> set[str]:
        """Return the sources of logs that are not read to their end: not looked at yet, with archived lines that are
        not parsed, or with parts that `parts_to_publish` lists.
        """
        with self._gateway.read() as tables:
            logs = {row["key"] for row in tables["sources"].each({}, ["key", "kind"]) if _is_log(row["kind"])}
            found = _sources(tables, "files", {"to_parse": 1}) | (logs - _sources(tables, "files", {}))
            return found | _unpublished_sources(tables, found)

    def parts_to_publish(self, source: str, limit: int) -> list[tuple[Part, Summary | None]]:
        """Return the parts whose episode is missing or older than the part or its summary, newest first. A summary of
        an earlier version of the part counts as none.

        A part whose message keys or id are tombstoned, or that is held (`ExclusionRecords.hold`), is never listed.
        """
        with self._gateway.read() as tables:
            parts = list(islice(_unpublished(tables, source), limit))
            summaries = read_summaries(tables, [part.part_id for part in parts])
        found: list[tuple[Part, Summary | None]] = []
        for part in parts:
            summary = summaries.get(part.part_id)
            found.append((part, summary if summary and summary.content_hash == part.content_hash else None))
        return found

    def _change(self, match: Match, change: Row) -> int:
        def some(tables: Tables) -> int:
            rows = tables["parts"].find(match, ["part_id"], limit=MAX_ROWS_PER_WRITE)
            ids = [row["part_id"] for row in rows]
            return tables["parts"].update({"part_id": {"$in": ids}}, change) if ids else 0

        return until_done(self._gateway, some)


# --- parts and their summaries as rows -------------------------------------------------------------------


def read_part(row: Row) -> Part:
    """Return the part of a row with `PART_FIELDS`."""
    rest = {"segments": unpack(row["segments"]), "closed": bool(row["closed"])}
    return Part(**{**row, **rest, "section": unpack_section(row["section"])})


def read_parts(tables: Tables, part_ids: Iterable[str]) -> dict[str, Part]:
    """Return those of these parts that are there, by id."""
    return {row["part_id"]: read_part(row) for row in tables["parts"].among("part_id", part_ids, PART_FIELDS)}


def write_parts(tables: Tables, parts: Sequence[Part]) -> None:
    """Insert or replace parts by id; what was published, summarized and held stays recorded. Of several with one id the
    last one stays.
    """
    for batch in batches(parts):
        summaries = read_summaries(tables, {part.part_id for part in batch})
        rows: list[Row] = []
        for part in batch:
            summary, content_hash = summaries.get(part.part_id), part.content_hash
            current = summary if summary and summary.content_hash == content_hash else None
            times = [instant(s.timestamp) for s in part.segments if s.timestamp]
            rows.append(
                {
                    "part_id": part.part_id,
                    **_published_fields(part),
                    "session_id": part.session_id,
                    "exchange_id": part.exchange_id,
                    "ordinal": part.ordinal,
                    "kind": str(part.kind),
                    "agent_id": part.agent_id,
                    "closed": int(part.closed),
                    "started_at": min(times, default=""),
                    "ended_at": max(times, default=""),
                    "content_hash": content_hash,
                    "wanted_hash": publication_hash(content_hash, current),
                    "published_hash": None,
                    "summarized_hash": summary.content_hash if summary else None,
                    "summary_due": None,
                    "held_by": None,
                    "segments": pack(part.segments),
                }
            )
        tables["parts"].put(rows, keep=("published_hash", "summary_due", "held_by"))


def mark_published(tables: Tables, made_of: Sequence[tuple[Part, Summary | None]]) -> set[str]:
    """Note that the episodes of these parts, each named once, are written. Return the ids of those of which part and
    summary are still these; nothing is noted of the others.
    """
    wanted = {
        part.part_id: {"wanted_hash": publication_hash(part.content_hash, summary), **_published_fields(part)}
        for part, summary in made_of
    }
    fields = ("part_id", "wanted_hash", *_PUBLISHED)
    current = {
        row["part_id"]
        for row in tables["parts"].among("part_id", wanted, fields)
        if all(row[name] == value for name, value in wanted[row["part_id"]].items())
    }
    if current:
        match = {"part_id": {"$in": sorted(current)}}
        tables["parts"].update(match, {"published_hash": Field("wanted_hash")})
    return current


_PUBLISHED = ("source", "path", "project", "cwd", "prompt", "lead", "agent_type", "origin", "section")
"""Fields that episodes are made of beside the text and its summary."""


def _published_fields(part: Part) -> Row:
    return {
        "source": part.source,
        "path": part.path,
        "project": indexed(part.project),
        "cwd": clean(part.cwd),
        "prompt": clean(part.prompt),
        "lead": clean(part.lead),
        "agent_type": clean(part.agent_type),
        "origin": clean(part.origin),
        "section": pack_section(part.section),
    }


def ended_at(part: Part) -> str:
    """Return when the last of its segments was said, as its row has it; empty: that is not known."""
    return max((instant(s.timestamp) for s in part.segments if s.timestamp), default="")


def pack(segments: Sequence[Segment]) -> bytes:
    """Return segments as one zstd-compressed JSON array."""
    rows = [
        [s.message_key, s.uuid, s.kind, s.start, s.text, instant(s.timestamp) if s.timestamp else None]
        + [s.sender] * bool(s.sender)
        for s in segments
    ]
    return zstandard.compress(as_json(rows).encode("ascii"))


def unpack(data: bytes) -> tuple[Segment, ...]:
    """Return the segments of what `pack` returned."""
    return tuple(
        Segment(key, uuid, SegmentKind(kind), start, text, moment(when) if when else None, *sender)
        for key, uuid, kind, start, text, when, *sender in json.loads(zstandard.decompress(data))
    )


def pack_section(facts: SectionFacts | None) -> str:
    """Return the facts of a section as JSON; empty for none."""
    if facts is None:
        return ""
    seen = instant(facts.seen) if facts.seen else None
    values = [
        [clean(each) for each in facts.title],
        facts.first_line,
        facts.last_line,
        facts.format,
        facts.language,
        facts.trust,
        [clean(each) for each in facts.tags],
        seen,
        clean(facts.instance),
    ]
    return as_json(values)


def unpack_section(text: str) -> SectionFacts | None:
    """Return the facts of what `pack_section` returned."""
    if not text:
        return None
    title, first_line, last_line, form, language, trust, tags, seen, instance = json.loads(text)
    when = moment(seen) if seen else None
    return SectionFacts(tuple(title), first_line, last_line, form, language, trust, tuple(tags), when, instance)


def publication_hash(content_hash: str, summary: Summary | None) -> str:
    """Return a hash of the content of an episode: its text, and the summary of it with its tags and records."""
    if summary is None:
        return content_id(content_hash)
    rest = as_json([summary.tags, _record_values(summary), summary.skip])
    return content_id(content_hash, summary.text, summary.model, rest)


def read_summaries(tables: Tables, part_ids: Iterable[str]) -> dict[str, Summary]:
    """Return the summaries of these parts, of any version, by part."""
    found: dict[str, Summary] = {}
    for row in tables["summaries"].among("part_id", part_ids):
        records = json.loads(row["records"])
        values = {
            "tags": tuple(json.loads(row["tags"])),
            "records": tuple(TypedRecord(RecordType(kind), said, why, tuple(ids)) for kind, said, why, ids in records),
            "skip": bool(row["skip"]),
            "retry_at": moment(row["retry_at"]) if row["retry_at"] else None,
        }
        found[row["part_id"]] = Summary(**{**row, **values})
    return found


def summary_row(summary: Summary) -> Row:
    """Return the row of a summary."""
    return {
        "part_id": summary.part_id,
        "content_hash": summary.content_hash,
        "text": summary.text,
        "model": summary.model,
        "tags": json_list(summary.tags),
        "records": as_json(_record_values(summary)),
        "skip": int(summary.skip),
        "problem": summary.problem,
        "retry_at": instant(summary.retry_at) if summary.retry_at else None,
        "attempts": summary.attempts,
        "reply_key": summary.reply_key,
    }


def _record_values(summary: Summary) -> list[list[Any]]:
    return [[record.type, record.text, record.why, record.message_ids] for record in summary.records]


# --- which parts -----------------------------------------------------------------------------------------


def buried(tables: Tables, part_ids: Iterable[str]) -> set[str]:
    """Return those of these parts whose episode was deleted with a tombstone."""
    return {row["episode_id"] for row in tables["tombstones"].among("episode_id", part_ids, ["episode_id"])}


def behind(ended_at: str, part_id: str) -> Match:
    """Return the match of the parts that follow this place in `NEWEST_FIRST`."""
    return {"ended_at": {"$lte": ended_at}, **beyond(NEWEST_FIRST, (ended_at, part_id))}


def _is_log(kind: str) -> bool:
    return kind.lower().startswith("claude")


def _idle(ended_before: datetime) -> Match:
    return {"closed": 0, "ended_at": {"$lt": instant(ended_before)}}


def _sources(tables: Tables, name: str, match: Match) -> set[str]:
    return {row["source"] for row in tables[name].sums(match, by=["source"])}


def _unpublished_sources(tables: Tables, known: Collection[str]) -> set[str]:
    """Return the sources but the `known` ones of which `parts_to_publish` lists something: those whose newest part is
    forbidden are looked at part by part.
    """
    match = {"source": TEXT, **_UNPUBLISHED}
    newest = tables["parts"].firsts(match, by=["source"], fields=["part_id"], order=NEWEST_FIRST)
    waiting = {row["source"]: row["part_id"] for row in newest if row["source"] not in known}
    allowed = set[str]()
    for batch in batches(sorted(waiting.values()), _AT_ONCE):
        parts = list(read_parts(tables, batch).values())
        allowed |= {part.part_id for part in parts} - _forbidden(tables, parts)
    found = {source for source, part_id in waiting.items() if part_id in allowed}
    return found | {source for source in waiting.keys() - found if any(_unpublished(tables, source))}


def _unpublished(tables: Tables, source: str) -> Iterator[Part]:
    """Yield the parts whose episode is missing or old and that no tombstone forbids, newest first, as asked for."""
    match: Match = {"source": source, **_UNPUBLISHED}
    while True:
        rows = tables["parts"].find(match, PART_FIELDS, order=NEWEST_FIRST, limit=_AT_ONCE)
        parts = [read_part(row) for row in rows]
        forbidden = _forbidden(tables, parts)
        yield from (part for part in parts if part.part_id not in forbidden)
        if len(parts) < _AT_ONCE:
            return
        match = {"source": source, **_UNPUBLISHED, **behind(ended_at(parts[-1]), parts[-1].part_id)}


def _forbidden(tables: Tables, parts: Sequence[Part]) -> set[str]:
    """Return those of these parts of which a tombstone holds the id, or tombstones every message."""
    keys = {segment.message_key for part in parts for segment in part.segments}
    gone = {row["message_key"] for row in tables["tombstone_keys"].among("message_key", keys, ["message_key"])}
    silent = {part.part_id for part in parts if part.segments and all(s.message_key in gone for s in part.segments)}
    return silent | buried(tables, [part.part_id for part in parts])


# --- changes ---------------------------------------------------------------------------------------------


def place_agents(tables: Tables, session_ids: Iterable[str]) -> None:
    """Give the parts of these sessions' subagents the project of their session, where that is known."""
    ids = sorted({session_id for session_id in session_ids if session_id})
    projects: dict[str, set[str]] = {}
    if ids:
        agents = {"session_id": {"$in": ids}, "agent_id": NOT_EMPTY}
        for row in tables["parts"].sums(agents, by=["session_id", "project"]):
            projects.setdefault(row["session_id"], set()).add(row["project"])
    if not projects:
        return
    starts = {"session_id": {"$in": sorted(projects)}, "agent_id": ""}
    order = ("started_at", "part_id")
    sessions_of: dict[str, list[str]] = {}
    for row in tables["parts"].firsts(starts, by=["session_id"], fields=["project"], order=order):
        if row["project"] and projects[row["session_id"]] != {row["project"]}:
            sessions_of.setdefault(row["project"], []).append(row["session_id"])
    for project, its in sessions_of.items():
        elsewhere = {"session_id": {"$in": its}, "agent_id": NOT_EMPTY, "project": {"$ne": project}}
        set_project(tables, elsewhere, project)


def set_project(tables: Tables, match: Match, project: str) -> None:
    """Give parts a project. Their episodes are then written again, and whether an LLM may summarize them is asked
    again.
    """
    change = {"project": project, "published_hash": None}
    tables["parts"].update({**match, "summarized_hash": NOT_NULL}, {**change, "summary_due": ""})
    tables["parts"].update({**match, "summarized_hash": None}, change)
