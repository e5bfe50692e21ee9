"""Which archive frames count, who owns a message and where its copies are, in MongoDB."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

from anamnesis_pipeline.archive_model import ArchiveBase, ArchiveFrame
from anamnesis_pipeline.model import Occurrence
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.frame_values import hold_the_lines_of
from anamnesis_pipeline.store.mongo import messages
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document

Generation = tuple[str, str, int]
"""Source, path and generation."""
_BASE = ("base_source", "base_path", "base_generation", "base_revision", "base_offset", "base_bytes")
_FRAME = ("generation", "first_line", "lines", "archive_offset", "archive_bytes", "revision", "mark")
_GENERATION = {"source": "$source", "path": "$path", "generation": "$generation"}
_LEANS = {"base_source": {"$type": "string"}}
"""As the index of bases says it."""
_IS_LEANING = {"$cond": [{"$eq": ["$base_source", None]}, 0, 1]}


class MongoArchive:
    """The part of `IngestRecords` that is about the archive and what its lines hold."""

    _database: Database

    def frames(self, source: str, path: str, generation: int, from_line: int = 0) -> list[ArchiveFrame]:
        """See `IngestRecords.frames`."""
        return self._database.read(lambda tables: _frames(tables, (source, path, generation), from_line))

    def replace_frames(
        self, source: str, path: str, generation: int, revision: int, frames: Sequence[ArchiveFrame]
    ) -> bool:
        """See `IngestRecords.replace_frames`."""
        return self._database.write(lambda tables: _replace(tables, (source, path, generation), revision, frames))

    def archive_base(
        self, source: str, path: str, generation: int, mark: str, first_line: int, lines: int
    ) -> ArchiveBase | None:
        """See `IngestRecords.archive_base`."""
        return self._database.snapshot(
            lambda tables: _archive_base(tables, (source, path, generation), mark, first_line, lines)
        )

    def leaning(self, source: str, path: str, generation: int) -> list[tuple[str, str, int]]:
        """See `IngestRecords.leaning`."""
        return self._database.read(lambda tables: _leaning(tables, (source, path, generation)))

    def occurrences_of(self, keys: Sequence[str]) -> list[tuple[str, Occurrence]]:
        """See `IngestRecords.occurrences_of`."""
        fields = ("source", "path", "line", "message_key")
        rows = self._database.read(
            lambda tables: sorted(
                tuple(found[name] for name in fields)
                for found in tables["occurrences"].among("message_key", keys, fields)
            )
        )
        return [(source, Occurrence(key, path, line)) for source, path, line, key in rows]

    def owners(self, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        """See `IngestRecords.owners`."""
        return self._database.read(lambda tables: messages.read_owners(tables, keys))


class Leaning:
    """Which of many new frames may count, and what was written of them. A frame may lean on one before it."""

    def __init__(self, tables: Tables, frames: Iterable[tuple[str, str, ArchiveFrame]]) -> None:
        """:param frames: (source, path, frame) of all that will be asked about."""
        self._tables = tables
        self._accepted: list[Document] = []
        bases, own = set(), set()
        for source, path, frame in frames:
            if frame.base is not None:
                bases.add(_of_base(frame.base))
                own.add((source, path, frame.generation))
        self._revisions, self._leaning = _read_bases(tables, bases)
        self._leaned_on = _read_leaned_on(tables, own)

    def accept(self, source: str, path: str, frame: ArchiveFrame) -> bool:
        """Let a frame count, with `write`, unless its base, if it has one, is no more of the revision that was read, or
        leans on something itself, or something leans on the frame's own generation: neither could ever be rewritten.
        """
        generation = (source, path, frame.generation)
        if frame.base is not None:
            base = _of_base(frame.base)
            is_base_still = self._revisions.get(base) == {frame.base.revision} and base not in self._leaning
            if not is_base_still or generation in self._leaned_on:
                return False
            self._leaning.add(generation)
            self._leaned_on.add(base)
        self._revisions.setdefault(generation, set()).add(frame.revision)
        self._accepted.append(_document(source, path, frame))
        return True

    def write(self) -> None:
        """Let the accepted ones count."""
        self._tables["frames"].insert(self._accepted)
        self._accepted = []


def _read_bases(
    tables: Tables, generations: Iterable[Generation]
) -> tuple[dict[Generation, set[int]], set[Generation]]:
    """The revisions of these generations' frames, and those of them with frames that lean on another one."""
    revisions: dict[Generation, set[int]] = {}
    leaning: set[Generation] = set()
    for batch in batches(sorted(generations)):
        for group in tables["frames"].aggregate([
            {"$match": {"$or": [_where(generation) for generation in batch]}},
            {"$group": {"_id": _GENERATION, "revisions": {"$addToSet": "$revision"}, "leans": {"$max": _IS_LEANING}}},
        ]):  # fmt: skip
            generation = _generation(group["_id"])
            revisions[generation] = set(group["revisions"])
            if group["leans"]:
                leaning.add(generation)
    return revisions, leaning


def _read_leaned_on(tables: Tables, generations: Iterable[Generation]) -> set[Generation]:
    """Those of these generations that others lean on."""
    found: set[Generation] = set()
    fields = ("base_source", "base_path", "base_generation")
    for batch in batches(sorted(generations)):
        names = [dict(zip(fields, generation, strict=True)) for generation in batch]
        for frame in tables["frames"].each({**_LEANS, "$or": names}, fields):
            found.add((frame["base_source"], frame["base_path"], frame["base_generation"]))
    return found


def _replace(tables: Tables, generation: Generation, revision: int, frames: Sequence[ArchiveFrame]) -> bool:
    if not hold_the_lines_of(frames, _frames(tables, generation), revision) or _leaning(tables, generation):
        return False
    tables["frames"].delete(_where(generation))
    tables["frames"].insert([_document(generation[0], generation[1], frame) for frame in frames])
    return True


def _archive_base(tables: Tables, generation: Generation, mark: str, first_line: int, lines: int) -> ArchiveBase | None:
    if _leaning(tables, generation):
        return None
    if not mark:
        first = tables["frames"].one({**_where(generation), "first_line": 0}, ["mark"])
        mark = first["mark"] if first else ""
    alike = tables["frames"].find({"mark": {"$eq": mark, "$gt": ""}}, ["source", "path", "generation"])
    generations = {_generation(frame) for frame in alike} - {generation}
    found = [base for batch in batches(sorted(generations)) for base in _bases(tables, batch, first_line, lines)]
    best = min(found, key=lambda base: (-base["lines"], _generation(base["_id"])), default=None)
    if best is None:
        return None
    return ArchiveBase(*_generation(best["_id"]), best["revision"], best["offset"], best["bytes"])


def _bases(tables: Tables, generations: Sequence[Generation], first_line: int, lines: int) -> list[Document]:
    """Of those of these generations that lean on none and have some of the lines: how many lines the frames with those
    have, and where they lie.
    """
    has_some = {
        "$and": [
            {"$lt": ["$first_line", first_line + lines]},
            {"$gt": [{"$add": ["$first_line", "$lines"]}, first_line]},
        ]
    }
    return tables["frames"].aggregate([
        {"$match": {"$or": [_where(generation) for generation in generations]}},
        {"$group": {
            "_id": _GENERATION,
            "leans": {"$max": _IS_LEANING},
            "frames": {"$sum": {"$cond": [has_some, 1, 0]}},
            "lines": {"$sum": {"$cond": [has_some, "$lines", 0]}},
            "revision": {"$max": {"$cond": [has_some, "$revision", None]}},
            "offset": {"$min": {"$cond": [has_some, "$archive_offset", None]}},
            "bytes": {"$sum": {"$cond": [has_some, "$archive_bytes", 0]}},
        }},
        {"$match": {"leans": 0, "frames": {"$gt": 0}}},
    ])  # fmt: skip


def _leaning(tables: Tables, generation: Generation) -> list[Generation]:
    source, path, number = generation
    # the index holds only frames with a base, and says so by the type
    base = {"base_source": {"$eq": source, "$type": "string"}, "base_path": path, "base_generation": number}
    return sorted({_generation(frame) for frame in tables["frames"].each(base, ["source", "path", "generation"])})


def _frames(tables: Tables, generation: Generation, from_line: int = 0) -> list[ArchiveFrame]:
    reaches = {"$expr": {"$gt": [{"$add": ["$first_line", "$lines"]}, from_line]}}
    found = tables["frames"].find({**_where(generation), **reaches}, (*_FRAME, *_BASE), order=[("first_line", 1)])
    return [_frame(document) for document in found]


def _where(generation: Generation) -> Document:
    source, path, number = generation
    return {"source": source, "path": path, "generation": number}


def _generation(document: Document) -> Generation:
    return document["source"], document["path"], document["generation"]


def _of_base(base: ArchiveBase) -> Generation:
    return base.source, base.path, base.generation


def _document(source: str, path: str, frame: ArchiveFrame) -> Document:
    base: tuple[Any, ...] = astuple(frame.base) if frame.base else (None,) * len(_BASE)
    own = {name: getattr(frame, name) for name in _FRAME}
    return {"source": source, "path": path, **own, **dict(zip(_BASE, base, strict=True))}


def _frame(document: Document) -> ArchiveFrame:
    base = None if document["base_source"] is None else ArchiveBase(*(document[name] for name in _BASE))
    return ArchiveFrame(**{name: document[name] for name in _FRAME}, base=base)
