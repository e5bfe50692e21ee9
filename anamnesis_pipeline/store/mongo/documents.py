"""Sections of documents in MongoDB: where each of their texts was seen, and which is current."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial

from pymongo import DeleteOne, UpdateOne

from anamnesis_pipeline.model import FileCursor, Part, record_id
from anamnesis_pipeline.store.batching import batches, by_rows
from anamnesis_pipeline.store.document_base import ParsedDocument, Settled, Sighting, Unsettled, Verdict
from anamnesis_pipeline.store.mongo import unsettled
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.episode_docs import CHANGED_FIELDS, change, status_fields
from anamnesis_pipeline.store.records import events
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.files import File, vanished, versions_of, write_cursors
from anamnesis_pipeline.store.records.parts import write_parts
from anamnesis_pipeline.store.section_succession import successors
from anamnesis_pipeline.store.sighting_values import change_of, followed, rehomed
from anamnesis_pipeline.store.values import instant
from anamnesis_pipeline.summary_model import MAX_RECORDS

SECTIONS_AT_ONCE = 100
"""Sections that one query names: each is a branch of its plan."""
_FINAL = ("place", "anchor", "text", "body")
"""Of a sighting, what its part's id is made of."""

Section = tuple[str, str]


class MongoDocuments:
    """See `DocumentRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def commit(self, documents: Sequence[ParsedDocument]) -> list[int | None]:
        """See `DocumentRecords.commit`. A file is never divided."""
        done: list[int | None] = []
        for batch in by_rows(documents, lambda document: 1 + 2 * len(document.sections)):
            done += self._database.write(partial(_commit_all, documents=batch))
        return done

    def vanished(self, source: str) -> list[FileCursor]:
        """See `DocumentRecords.vanished`."""
        return self._database.snapshot(lambda tables: vanished(MongoTables(tables), source))

    def unsettled(self, source: str, limit: int) -> list[Unsettled]:
        """See `DocumentRecords.unsettled`."""
        fields, order = ("place", "anchor", "noted"), [("place", 1), ("anchor", 1)]
        rows = self._database.read(
            lambda tables: tables["unsettled"].find({"source": source}, fields, order=order, limit=limit)
        )
        return [Unsettled(**row) for row in rows]

    def sightings_at(self, sections: Sequence[Section]) -> list[Sighting]:
        """See `DocumentRecords.sightings_at`."""
        found: dict[Section, list[Sighting]] = {section: [] for section in sections}
        for sighting in sorted(self._database.snapshot(lambda tables: _at(tables, found)), key=_place):
            found[sighting.place, sighting.anchor].append(sighting)
        return [sighting for section in sections for sighting in found[section]]

    def settle(self, sections: Sequence[Unsettled], verdicts: Mapping[str, Verdict]) -> Settled:
        """See `DocumentRecords.settle`."""

        def work(tables: Tables) -> Settled:
            done = _settle(tables, verdicts)
            tables["unsettled"].write(
                [DeleteOne({"place": s.place, "anchor": s.anchor, "noted": s.noted}) for s in sections]
            )
            return done

        return self._database.write(work)

    def sightings_of(self, source: str, path: str) -> list[Sighting]:
        """See `DocumentRecords.sightings_of`."""
        found = self._database.read(lambda tables: _of_file(tables, source, path))
        return sorted(found, key=lambda s: (not s.present, s.ordinal, s.part_id))

    def files_of(self, part_ids: Sequence[str]) -> set[File]:
        """See `DocumentRecords.files_of`."""
        return self._database.read(
            lambda tables: {
                (s["source"], s["path"]) for s in tables["sightings"].among("part_id", part_ids, ("source", "path"))
            }
        )

    def seen_in(self, files: Sequence[File]) -> set[str]:
        """See `DocumentRecords.seen_in`."""
        return self._database.snapshot(
            lambda tables: {s["part_id"] for s in tables["sightings"].of_files(files, ("part_id",))}
        )

    def same_text(self, part_ids: Sequence[str]) -> set[str]:
        """See `DocumentRecords.same_text`."""

        def work(tables: Tables) -> set[str]:
            sightings = tables["sightings"]
            texts = {s["text"] for s in sightings.among("part_id", part_ids, ("text",))}
            return {s["part_id"] for s in sightings.among("text", texts, ("part_id",))}

        return self._database.snapshot(work)

    def remove(self, part_ids: Sequence[str]) -> int:
        """See `DocumentRecords.remove`."""
        return sum(self._database.write(partial(_remove, part_ids=batch)) for batch in batches(sorted(set(part_ids))))


def _at(tables: Tables, sections: Iterable[Section]) -> list[Sighting]:
    return [
        _read(row)
        for batch in batches(list(sections), SECTIONS_AT_ONCE)
        for row in tables["sightings"].find({"$or": [{"place": place, "anchor": anchor} for place, anchor in batch]})
    ]


def _settle(tables: Tables, verdicts: Mapping[str, Verdict]) -> Settled:
    """Write what is decided to the episodes of these parts that are otherwise, and to what an LLM drew from them."""
    ids = {part_id: [part_id, *(record_id(part_id, n) for n in range(MAX_RECORDS))] for part_id in verdicts}
    episodes = {
        e["_id"]: e for e in tables["episodes"].among("_id", (i for its in ids.values() for i in its), CHANGED_FIELDS)
    }
    counts, moved, changed = [0, 0, 0], list[str](), dict[str, Document]()
    now = instant(datetime.now(UTC))
    for part_id, (status, superseded_by) in _wanted(tables, verdicts).items():
        others = [
            episode
            for key in ids[part_id]
            if (episode := episodes.get(key))
            and (episode["status"], episode["superseded_by"]) != (status, superseded_by)
        ]
        if others and others[0]["_id"] == part_id:
            counts[2 if status == "active" else superseded_by is None] += 1
            moved.append(part_id)
            changed |= {each["_id"]: status_fields(each, status, superseded_by, now) for each in others}
    change(tables, [episodes[key] for key in changed], lambda episode: changed[episode["_id"]])
    events.note(MongoTables(tables), Happening.STATUS, moved)
    return Settled(*counts)


def _wanted(tables: Tables, verdicts: Mapping[str, Verdict]) -> dict[str, tuple[str, str | None]]:
    """Part -> status, and the episode that it gives way to, if there is such one: a rule may hold it back, or it was
    deleted.
    """
    named = {verdict.superseded_by for verdict in verdicts.values() if verdict.superseded_by}
    there = {e["_id"] for e in tables["episodes"].among("_id", named, ("_id",))}
    return {
        part_id: ("active" if v.is_current else "superseded", v.superseded_by if v.superseded_by in there else None)
        for part_id, v in verdicts.items()
    }


def _commit_all(tables: Tables, documents: Sequence[ParsedDocument]) -> list[int | None]:
    return [_commit(tables, document) for document in documents]


def _commit(tables: Tables, document: ParsedDocument) -> int | None:
    before = document.before
    file = before.source, before.path
    if versions_of(MongoTables(tables), [file]).get(file) != before.version:
        return None
    write_cursors(MongoTables(tables), [replace(document.after, version=before.version + 1)])
    held = {s.part_id: s for s in _of_file(tables, before.source, before.path)}
    changed = change_of(held, document.sections)
    now, went = changed.now, changed.went
    became = successors(held.values(), now.values()) if now else _renamed(tables, before.source, went)
    gone = [replace(s, present=False, became=became.get(s.part_id, "")) for s in went]
    _write_sightings(tables, [*gone, *(s for s in now.values() if s != held.get(s.part_id))])
    created = _write_parts(tables, before, [part for part, _ in document.sections])
    _rehome(tables, before, went)
    _note_changed(tables, before.source, changed.came, went)
    return created


def _renamed(tables: Tables, source: str, went: Sequence[Sighting]) -> dict[str, str]:
    """Part that went with its file -> a part of another file of the source that holds the same text now."""
    found: dict[str, list[tuple[str, str]]] = {}
    texts, fields = {s.text for s in went}, ("text", "path", "part_id")
    for row in tables["sightings"].among("text", texts, fields, source=source, present=1):
        found.setdefault(row["text"], []).append((row["path"], row["part_id"]))
    others = {s.part_id: [other for other in found.get(s.text, []) if other[1] != s.part_id] for s in went}
    return {part_id: min(its)[1] for part_id, its in others.items() if its}


def _write_sightings(tables: Tables, sightings: Sequence[Sighting]) -> None:
    writes = []
    for sighting in sightings:
        row = asdict(sighting) | {"present": int(sighting.present)}
        key = {name: row.pop(name) for name in ("source", "path", "part_id")}
        final = {name: row.pop(name) for name in _FINAL}
        writes.append(UpdateOne(key, {"$set": row, "$setOnInsert": final}, upsert=True))
    tables["sightings"].write(writes)


def _write_parts(tables: Tables, file: FileCursor, parts: Sequence[Part]) -> int:
    """Write the parts of a file that are new, and return how many are. Those that go by this file, or by none that
    holds them, follow what is known of them.
    """
    ids, fields = [part.part_id for part in parts], ("source", "path", "project", "cwd", "prompt", "ordinal", "section")
    known = {row["part_id"]: row for row in tables["parts"].among("part_id", ids, ("part_id", *fields))}
    new = [part for part in parts if part.part_id not in known]
    write_parts(MongoTables(tables), new)
    others = [key for key, row in known.items() if (row["source"], row["path"]) != (file.source, file.path)]
    seen = tables["sightings"].among("part_id", others, ("source", "path", "part_id"), present=1)
    held_elsewhere = {(s["source"], s["path"], s["part_id"]) for s in seen}
    changes = []
    for part in parts:
        row = known.get(part.part_id)
        if row is None or (row["source"], row["path"], part.part_id) in held_elsewhere:
            continue
        values = {"source": part.source, "path": part.path, **followed(part, row["section"])}
        if values != {name: row[name] for name in fields}:
            changes.append({"part_id": part.part_id, **values, "published_hash": None})
    MongoTables(tables)["parts"].put(changes)
    return len(new)


def _rehome(tables: Tables, file: FileCursor, went: Sequence[Sighting]) -> None:
    """Let parts whose file lost them go by other files that hold them."""
    place, fields = {"source": file.source, "path": file.path}, ("part_id", "section")
    lost = {
        row["part_id"]: row["section"]
        for row in tables["parts"].among("part_id", [s.part_id for s in went], fields, **place)
    }
    found = map(_read, tables["sightings"].among("part_id", lost, present=1))
    others: dict[str, Sighting] = {}
    for other in sorted(found, key=lambda s: (s.since_ns, s.source, s.path)):
        others.setdefault(other.part_id, other)
    sources = {file.source, *(other.source for other in others.values())} if others else set()
    specs = {row["key"]: row["spec"] for row in tables["sources"].among("key", sources, ("key", "spec"))}
    changes = [
        {"part_id": part_id, **rehomed(lost[part_id], file.source, other, specs), "published_hash": None}
        for part_id, other in others.items()
    ]
    MongoTables(tables)["parts"].put(changes)


def _note_changed(tables: Tables, source: str, came: Sequence[Sighting], went: Sequence[Sighting]) -> None:
    """Note sections in which a text came or went. A text that is the first of its section is settled as it is."""
    noted = {(s.place, s.anchor) for s in went}
    left = [s for s in came if (s.place, s.anchor) not in noted]
    known = {
        e["_id"] for e in tables["episodes"].among("_id", (s.part_id for s in left), ("_id",), status={"$ne": "active"})
    }
    texts = _texts_of(tables, left)
    for s in left:
        first, last, became = texts[s.place, s.anchor]
        if s.part_id in known or became or not first == last == s.part_id:
            noted.add((s.place, s.anchor))
    unsettled.note(tables, [(*section, source) for section in sorted(noted)])


def _texts_of(tables: Tables, came: Sequence[Sighting]) -> dict[Section, tuple[str, str, str]]:
    """Section of a text that came -> the first and last part in it, and one that took the place of some, or ''."""
    if not came:
        return {}
    places, anchors = {s.place for s in came}, {s.anchor for s in came}  # one file has one place, or a few
    rows = tables["sightings"].aggregate([
        {"$match": {"place": {"$in": sorted(places)}, "anchor": {"$in": sorted(anchors)}}},
        {"$group": {
            "_id": {"place": "$place", "anchor": "$anchor"},
            "first": {"$min": "$part_id"}, "last": {"$max": "$part_id"}, "became": {"$max": "$became"},
        }},
    ])  # fmt: skip
    return {(row["_id"]["place"], row["_id"]["anchor"]): (row["first"], row["last"], row["became"]) for row in rows}


def _remove(tables: Tables, part_ids: Sequence[str]) -> int:
    sightings, of_parts = tables["sightings"], {"$in": list(part_ids)}
    seen = sightings.find({"part_id": of_parts}, ("place", "anchor", "source"))
    unsettled.note(tables, sorted({(s["place"], s["anchor"], s["source"]) for s in seen}))
    sightings.update({"became": of_parts}, {"$set": {"became": ""}})
    return sightings.delete({"part_id": of_parts})


def _of_file(tables: Tables, source: str, path: str) -> list[Sighting]:
    return list(map(_read, tables["sightings"].find({"source": source, "path": path})))


def _place(sighting: Sighting) -> tuple[str, str, str]:
    return sighting.source, sighting.path, sighting.part_id


def _read(row: Document) -> Sighting:
    values = {name: value for name, value in row.items() if name != "_id"}
    return Sighting(**values | {"present": bool(row["present"])})
