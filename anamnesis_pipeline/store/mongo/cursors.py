"""How far files were read, as documents. Device and inode are texts: file systems hand out unsigned 64-bit numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo import UpdateOne

from anamnesis_pipeline.model import EXCLUDED, FileCursor
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.ingest_base import LINE_BREAK_BYTES
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.values import clean

File = tuple[str, str]
"""Source and path."""
CURSOR_FIELDS = (
    "source", "path", "device", "inode", "size", "mtime_ns", "head_hash", "head_bytes", "offset", "generation", "lines",
    "parsed_lines", "parser_state", "gone", "version", "first_mtime_ns", "unread",
)  # fmt: skip


def read_cursor(document: Document) -> FileCursor:
    """A document with `CURSOR_FIELDS`."""
    values = {name: document[name] for name in CURSOR_FIELDS}
    numbers = {"device": int(values["device"]), "inode": int(values["inode"])}
    return FileCursor(**values | numbers | {"gone": bool(values["gone"])})


def stored_version(tables: Tables, cursor: FileCursor) -> int | None:
    """The version of a file's cursor; None when there is none."""
    found = tables["files"].one({"source": cursor.source, "path": cursor.path}, ["version"])
    return None if found is None else int(found["version"])


def stored_versions(tables: Tables, files: Iterable[File]) -> dict[File, int]:
    """The versions of the cursors that these files have."""
    return {(found["source"], found["path"]): int(found["version"]) for found in _each(tables, files, "version")}


def first_seen(tables: Tables, files: Iterable[File]) -> dict[File, int]:
    """`FileCursor.first_mtime_ns` of those of these files that are known."""
    found = _each(tables, files, "first_mtime_ns")
    return {(file["source"], file["path"]): int(file["first_mtime_ns"]) for file in found}


def write_cursor(tables: Tables, cursor: FileCursor) -> None:
    """Insert or replace a file's cursor, but for when it was first seen."""
    write_cursors(tables, [cursor])


def write_cursors(tables: Tables, cursors: Sequence[FileCursor]) -> None:
    """`write_cursor` of many, in one call."""
    tables["files"].write([
        UpdateOne(
            {"source": cursor.source, "path": cursor.path},
            {"$set": _fields(cursor), "$setOnInsert": {"first_mtime_ns": cursor.first_mtime_ns}},
            upsert=True,
        )
        for cursor in cursors
    ])  # fmt: skip


def vanished(tables: Tables, source: str) -> list[FileCursor]:
    """Files that are gone and whose sections still count as present, by path."""
    gone = tables["files"].find({"source": source, "gone": 1}, CURSOR_FIELDS, order=[("path", 1)])
    present = _with_sections(tables, source, [document["path"] for document in gone])
    return [read_cursor(document) for document in gone if document["path"] in present]


def vanished_sources(tables: Tables) -> set[str]:
    """Sources with such files."""
    paths: dict[str, list[str]] = {}
    for file in tables["files"].among("source", tables["sightings"].values("source", {}), ["source", "path"], gone=1):
        paths.setdefault(file["source"], []).append(file["path"])
    return {source for source, its in paths.items() if _with_sections(tables, source, its)}


def _with_sections(tables: Tables, source: str, paths: Sequence[str]) -> set[str]:
    """Those of these files that have sections which count as present."""
    found: set[str] = set()
    for batch in batches(paths):
        found |= set(tables["sightings"].values("path", {"source": source, "path": {"$in": list(batch)}, "present": 1}))
    return found


def of_files(files: Iterable[File]) -> list[Filter]:
    """Conditions that any of these files meets one of, each of few enough for a query."""
    paths: dict[str, list[str]] = {}
    for source, path in sorted(set(files)):
        paths.setdefault(source, []).append(path)
    return [{"source": source, "path": {"$in": batch}} for source, its in paths.items() for batch in batches(its)]


def _each(tables: Tables, files: Iterable[File], field: str) -> Iterable[Document]:
    for batch in batches(of_files(files)):
        yield from tables["files"].each({"$or": batch}, ["source", "path", field])


def _fields(cursor: FileCursor) -> Document:
    """All of a cursor but its file, and when that was first seen."""
    fields = {
        "device": str(cursor.device),
        "inode": str(cursor.inode),
        "size": cursor.size,
        "mtime_ns": cursor.mtime_ns,
        "head_hash": cursor.head_hash,
        "head_bytes": cursor.head_bytes,
        "offset": cursor.offset,
        "generation": cursor.generation,
        "lines": cursor.lines,
        "parsed_lines": cursor.parsed_lines,
        "parser_state": cursor.parser_state,
        "gone": int(cursor.gone),
        "version": cursor.version,
        "unread": clean(cursor.unread),
    }
    return fields | flags_of(fields)


def flags_of(file: Mapping[str, Any]) -> Document:
    """What is left to do of a file, whose fields these are: see `IngestRecords.incomplete_files`. Pure."""
    if file["unread"]:
        is_incomplete = not file["unread"].startswith(EXCLUDED)
    else:
        is_incomplete = file["size"] - file["offset"] > LINE_BREAK_BYTES
    return {"incomplete": int(is_incomplete), "to_parse": int(file["parsed_lines"] < file["lines"])}
