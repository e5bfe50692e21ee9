"""Documents: which text of which section was seen where, and which is current."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import SequenceMatcher
from functools import partial
from operator import attrgetter

from anamnesis_pipeline.model import MAX_RECORDS, FileCursor, Part, Status, record_id, source_tag
from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Tables, batches, by_rows, write_all
from anamnesis_pipeline.store.records import events
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.files import File, of_files, read_cursor, write_cursors
from anamnesis_pipeline.store.records.parts import pack_section, unpack_section, write_parts
from anamnesis_pipeline.store.records.statuses import STATUS_FIELDS, Cause, Standing, set_status
from anamnesis_pipeline.store.tables import NOT_EMPTY
from anamnesis_pipeline.store.values import clean, indexed

BRANCHES = 100
"""Alternatives that one statement names: each is a branch of its plan."""
_FINAL = ("place", "anchor", "text", "body")
"""Of a sighting, what its part's id is made of."""
_FOLLOWING = ("source", "path", "project", "cwd", "prompt", "ordinal", "section")
"""Of a part, what follows the file that it goes by."""

_CAME_BACK = Cause("documents", "its text stands in a file again")
_REPLACED = Cause("documents", "another text took its place in its file")
_GONE = Cause("documents", "its text stands in no file any more")
_DECIDED = (Status.CHALLENGED, Status.INVALIDATED)
"""Statuses that no file causes: a text that stands in one keeps them."""

Section = tuple[str, str]
"""Place and anchor."""


@dataclass(frozen=True, slots=True)
class SectionOccurrence:
    """A text of a section in one file: of all its texts there, and in copies of the file elsewhere, one is current.

    `place` and `anchor`, both hashes, name the section (equal headings of a document share one), `part_id` this text of
    it. `since_ns` is the file's time when the text was first seen there, or came back; `skew_ns` how far that machine's
    clock may be off. `text` is a hash of the text, `body` of the text without its heading. `present`: it stood there
    when the file was last parsed. `became`: the part that took its place, or its body over, under another heading or in
    a file of another name.
    """

    source: str
    path: str
    part_id: str
    place: str
    anchor: str
    ordinal: int
    first_line: int
    last_line: int
    since_ns: int
    skew_ns: int
    text: str
    body: str
    cwd: str = ""
    present: bool = True
    became: str = ""


_SIGHTING = tuple(field.name for field in fields(SectionOccurrence))
_values_of = attrgetter(*_SIGHTING)


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What a file holds now, for one transaction: `sections` in its order, none where the file is gone.

    `after.version` is ignored; the store sets it.
    """

    before: FileCursor
    after: FileCursor
    sections: Sequence[tuple[Part, SectionOccurrence]]


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A section of which a text came or went since it was last decided which one is current. `noted` grows with each
    such change.
    """

    place: str
    anchor: str
    noted: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of one text of a section: current, or superseded, by another part or by none."""

    is_current: bool
    superseded_by: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """How many episodes changed: superseded by another one, retired without one, or active again."""

    superseded: int = 0
    retired: int = 0
    revived: int = 0


class DocumentRecords:
    """Sections of documents, where they were seen, and which of their texts is current."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def commit(self, documents: Sequence[ParsedDocument]) -> list[int | None]:
        """Write what each file holds now in place of what it held, each in one transaction with its cursor.

        Parts that exist are not written again: only where theirs is the file that a part goes by, its lines, title,
        project and tags follow. A part that stands no more in the file that it goes by goes by another one that holds
        it, if there is one. Sections with a text that came or went are noted as unsettled.

        :returns: for each, how many parts are new; None when another run was faster, and nothing was written.
        """
        done: list[int | None] = []
        for batch in by_rows(documents, lambda document: 1 + 2 * len(document.sections)):
            done += self._gateway.write(partial(_commit, documents=batch))
        return done

    def vanished(self, source: str) -> list[FileCursor]:
        """Return the files that are gone and whose sections still count as present, by path."""
        with self._gateway.snapshot() as tables:
            gone = tables["files"].find({"source": source, "gone": 1}, order=["path"])
            present: set[str] = set()
            for batch in batches([row["path"] for row in gone]):
                match = {"source": source, "path": {"$in": list(batch)}, "present": 1}
                present |= {row["path"] for row in tables["sightings"].sums(match, by=["path"])}
        return [read_cursor(row) for row in gone if row["path"] in present]

    def unsettled(self, source: str, limit: int) -> list[Unsettled]:
        """Return sections about which it is to be decided which text is current, of those last changed by this source,
        in their order.
        """
        with self._gateway.read() as tables:
            rows = tables["unsettled"].find(
                {"source": source}, ("place", "anchor", "noted"), order=["place", "anchor"], limit=limit
            )
        return [Unsettled(**row) for row in rows]

    def sightings_at(self, sections: Sequence[Section]) -> list[SectionOccurrence]:
        """Return every sighting of these sections."""
        found: dict[Section, list[SectionOccurrence]] = {section: [] for section in sections}
        with self._gateway.snapshot() as tables:
            rows = [row for match in _named(found) for row in tables["sightings"].find(match)]
        for sighting in sorted(map(_sighting, rows), key=lambda s: (s.source, s.path, s.part_id)):
            found[sighting.place, sighting.anchor].append(sighting)
        return [sighting for its in found.values() for sighting in its]

    def settle(self, sections: Sequence[Unsettled], verdicts: Mapping[str, Verdict]) -> Settled:
        """Give the episodes of these parts the status that is decided, and settle their sections, except those that
        changed meanwhile. Parts without an episode are settled when it is published, and what gives way to them gives
        way to none until then.
        """

        def work(tables: Tables) -> Settled:
            done = _write_verdicts(tables, verdicts)
            for batch in batches(sections, BRANCHES):
                these = [{"place": s.place, "anchor": s.anchor, "noted": s.noted} for s in batch]
                tables["unsettled"].delete({"$or": these})
            return done

        return self._gateway.write(work)

    def sightings_of(self, source: str, path: str) -> list[SectionOccurrence]:
        """Return every sighting in a file, the present ones first, in its order."""
        with self._gateway.read() as tables:
            rows = tables["sightings"].find({"source": source, "path": path})
        return sorted(map(_sighting, rows), key=lambda s: (not s.present, s.ordinal, s.part_id))

    def files_of(self, part_ids: Sequence[str]) -> set[File]:
        """Return source and path of every file in which some of these parts were seen."""
        with self._gateway.read() as tables:
            rows = tables["sightings"].among("part_id", part_ids, ("source", "path"))
            return {(row["source"], row["path"]) for row in rows}

    def seen_in(self, files: Sequence[File]) -> set[str]:
        """Return the ids of the parts that were seen in these files."""
        with self._gateway.snapshot() as tables:
            return {row["part_id"] for row in of_files(tables["sightings"], files, ["part_id"])}

    def same_text(self, part_ids: Sequence[str]) -> set[str]:
        """Return the ids of all parts that say the very same as one of these, these included as far as they are of
        documents.
        """
        with self._gateway.snapshot() as tables:
            texts = {row["text"] for row in tables["sightings"].among("part_id", part_ids, ["text"])}
            return {row["part_id"] for row in tables["sightings"].among("text", texts, ["part_id"])}

    def remove(self, part_ids: Sequence[str]) -> int:
        """Forget where these parts were seen; what is current of their sections is decided again. Return how many
        sightings there were.
        """

        def work(tables: Tables, part_ids: Sequence[str]) -> int:
            sightings, these = tables["sightings"], list(part_ids)
            seen = sightings.find({"part_id": {"$in": these}}, ("place", "anchor", "source"))
            _note(tables, ((row["place"], row["anchor"], row["source"]) for row in seen))
            sightings.update({"became": {"$in": these, **NOT_EMPTY}}, {"became": ""})
            return sightings.delete({"part_id": {"$in": these}})

        return sum(write_all(self._gateway, sorted(set(part_ids)), work))


def note_new_episodes(tables: Tables, part_ids: Sequence[str]) -> None:
    """Note that parts of documents have new episodes, which are active: where another text is current, or none, it is
    to be settled; and so is what gave way to them, under any heading.
    """
    sightings, names = tables["sightings"], ("place", "anchor", "source", "part_id", "present")
    seen = list(sightings.among("part_id", part_ids, names))
    texts = _texts_of(tables, {(row["place"], row["anchor"]) for row in seen if row["present"]})
    changed = [
        row
        for row in seen
        if not row["present"] or any(part_id != row["part_id"] for part_id, _ in texts[row["place"], row["anchor"]])
    ]
    changed += sightings.find({"became": {"$in": list(part_ids), **NOT_EMPTY}}, names) if part_ids else []
    _note(tables, ((row["place"], row["anchor"], row["source"]) for row in changed))


def successors(held: Collection[SectionOccurrence], now: Collection[SectionOccurrence]) -> dict[str, str]:
    """Return part that went -> part that came: the one with the same body, under any heading, else the one that
    stands under an equal heading between the same neighbours. Pure.

    Texts are matched first, so of equal headings only what is left over is compared by place; where that leaves more
    than one possibility, nothing is said.
    """
    before = sorted((s for s in held if s.present), key=lambda s: s.ordinal)
    after = sorted(now, key=lambda s: s.ordinal)
    stood, stands = {s.part_id for s in before}, {s.part_id for s in after}
    bodies = {s.body: s.part_id for s in reversed(after) if s.part_id not in stood}
    found = {s.part_id: bodies[s.body] for s in before if s.part_id not in stands and s.body in bodies}
    taken = set(found.values())
    old = _by_heading(s for s in before if s.part_id not in found)
    new = _by_heading(s for s in after if s.part_id not in taken)
    for heading in old.keys() & new.keys():
        moved = set(old[heading]) & set(new[heading])
        matcher = SequenceMatcher(None, old[heading], new[heading], autojunk=False)
        for what, i, j, k, m in matcher.get_opcodes():
            runs = old[heading][i:j], new[heading][k:m]
            went, came = ([part_id for part_id in run if part_id not in moved] for run in runs)
            if what == "replace" and len(went) == len(came):
                found |= zip(went, came, strict=True)
    return found


def _by_heading(sightings: Iterable[SectionOccurrence]) -> dict[Section, list[str]]:
    found: dict[Section, list[str]] = {}
    for s in sightings:
        found.setdefault((s.place, s.anchor), []).append(s.part_id)
    return found


def _commit(tables: Tables, documents: Sequence[ParsedDocument]) -> list[int | None]:
    done: list[int | None] = []
    for document in documents:
        before, file = document.before, {"source": document.before.source, "path": document.before.path}
        if not tables["files"].has({**file, "version": before.version}):
            done.append(None)
            continue
        write_cursors(tables, [replace(document.after, version=before.version + 1)])
        held = {s.part_id: s for s in map(_sighting, tables["sightings"].find(file))}
        now: dict[str, SectionOccurrence] = {}
        for _, seen in document.sections:
            known, stands = held.get(seen.part_id), replace(seen, cwd=clean(seen.cwd))
            if known is not None and known.present:  # it keeps the time since when it stands there
                stands = replace(stands, since_ns=known.since_ns, skew_ns=known.skew_ns)
            now[seen.part_id] = stands
        went = [s for s in held.values() if s.present and s.part_id not in now]
        came = [s for s in now.values() if s.part_id not in held or not held[s.part_id].present]
        became = successors(held.values(), now.values()) if now else _renamed(tables, before.source, went)
        changed = [replace(s, present=False, became=became.get(s.part_id, "")) for s in went]
        changed += [s for s in now.values() if s != held.get(s.part_id)]
        rows = [{**dict(zip(_SIGHTING, _values_of(s), strict=True)), "present": int(s.present)} for s in changed]
        tables["sightings"].put(rows, keep=_FINAL)
        done.append(_write_parts(tables, before, {part.part_id: part for part, _ in document.sections}))
        _rehome(tables, before, went)
        _note_changed(tables, before.source, came, went)
    return done


def _renamed(tables: Tables, source: str, went: Sequence[SectionOccurrence]) -> dict[str, str]:
    """Return part that went with its file -> a part of another file of the source that holds the same text now."""
    found: dict[str, list[tuple[str, str]]] = {}
    texts, names = [s.text for s in went], ("text", "source", "path", "part_id")
    # with the source in the match, SQLite would read all of it
    for row in tables["sightings"].among("text", texts, names, present=1):
        if row["source"] == source:
            found.setdefault(row["text"], []).append((row["path"], row["part_id"]))
    others = {s.part_id: [other for other in found.get(s.text, []) if other[1] != s.part_id] for s in went}
    return {part_id: min(its)[1] for part_id, its in others.items() if its}


def _write_parts(tables: Tables, file: FileCursor, parts: Mapping[str, Part]) -> int:
    """Write the parts of a file that are new, and return how many are. Those that go by this file, or by none that
    holds them, follow what is known of them.
    """
    known = {row["part_id"]: row for row in tables["parts"].among("part_id", parts, ("part_id", *_FOLLOWING))}
    new = [part for part_id, part in parts.items() if part_id not in known]
    write_parts(tables, new)
    others = [key for key, row in known.items() if (row["source"], row["path"]) != (file.source, file.path)]
    seen = tables["sightings"].among("part_id", others, ("source", "path", "part_id"), present=1)
    held_elsewhere = {(row["source"], row["path"], row["part_id"]) for row in seen}
    changed: list[Row] = []
    for part_id, row in known.items():
        if (row["source"], row["path"], part_id) in held_elsewhere:
            continue
        part, stored = parts[part_id], unpack_section(row["section"])
        facts = part.section
        if facts is not None and stored is not None:
            facts = replace(facts, seen=stored.seen)  # when its text was first seen
        wanted: Row = {
            "part_id": part_id,
            "source": part.source,
            "path": part.path,
            "project": indexed(part.project),
            "cwd": clean(part.cwd),
            "prompt": clean(part.prompt),
            "ordinal": part.ordinal,
            "section": pack_section(facts),
        }
        if wanted != row:
            changed.append({**wanted, "published_hash": None})
    tables["parts"].put(changed)
    return len(new)


def _rehome(tables: Tables, file: FileCursor, went: Sequence[SectionOccurrence]) -> None:
    """Let parts whose file lost them go by other files that hold them, with the lines of these and the tags of the
    configured sources that they come from.
    """
    ids, names = [s.part_id for s in went], ("part_id", "section")
    lost = {
        row["part_id"]: row["section"]
        for row in tables["parts"].among("part_id", ids, names, source=file.source, path=file.path)
    }
    found = map(_sighting, tables["sightings"].among("part_id", lost, present=1))
    others: dict[str, SectionOccurrence] = {}
    for other in sorted(found, key=lambda s: (s.since_ns, s.source, s.path)):
        others.setdefault(other.part_id, other)
    sources = {file.source, *(other.source for other in others.values())} if others else set()
    specs = {row["key"]: row["spec"] for row in tables["sources"].among("key", sources, ("key", "spec"))}
    changed: list[Row] = []
    for part_id, other in others.items():
        facts = unpack_section(lost[part_id])
        if facts is not None:
            kept = [tag for tag in facts.tags if tag != source_tag(specs.get(file.source, ""))]
            own = [source_tag(spec)] if (spec := specs.get(other.source)) else []
            tags = tuple(dict.fromkeys([*kept, *own]))
            facts = replace(facts, first_line=other.first_line, last_line=other.last_line, tags=tags)
        changed.append(
            {
                "part_id": part_id,
                "source": other.source,
                "path": other.path,
                "cwd": other.cwd,
                "ordinal": other.ordinal,
                "section": pack_section(facts),
                "published_hash": None,
            }
        )
    tables["parts"].put(changed)


def _note_changed(
    tables: Tables, source: str, came: Sequence[SectionOccurrence], went: Sequence[SectionOccurrence]
) -> None:
    """Note sections in which a text came or went. A text that is the first of its section is settled at once."""
    noted = {(s.place, s.anchor) for s in went}
    left = [s for s in came if (s.place, s.anchor) not in noted]
    ids = [s.part_id for s in left]
    hidden = {
        row["episode_id"]
        for row in tables["episodes"].among("episode_id", ids, ["episode_id"], status={"$ne": "active"})
    }
    texts = _texts_of(tables, {(s.place, s.anchor) for s in left})
    for s in left:
        if s.part_id in hidden or texts[s.place, s.anchor] != {(s.part_id, "")}:
            noted.add((s.place, s.anchor))
    _note(tables, ((*section, source) for section in noted))


def _texts_of(tables: Tables, sections: Iterable[Section]) -> dict[Section, set[tuple[str, str]]]:
    """Return, for each section that was seen anywhere, its parts, each with one that took its place, or ''."""
    found: dict[Section, set[tuple[str, str]]] = {}
    for match in _named(sections):
        for row in tables["sightings"].sums(match, by=("place", "anchor", "part_id", "became")):
            found.setdefault((row["place"], row["anchor"]), set()).add((row["part_id"], row["became"]))
    return found


def _note(tables: Tables, sections: Iterable[tuple[str, str, str]]) -> None:
    """Note that a text came or went in these sections (place, anchor, source)."""
    source_of = {(place, anchor): source for place, anchor, source in sorted(sections)}
    noted = {
        (row["place"], row["anchor"]): row["noted"]
        for match in _named(source_of)
        for row in tables["unsettled"].find(match, ("place", "anchor", "noted"))
    }
    tables["unsettled"].put(
        [
            {"place": section[0], "anchor": section[1], "source": source, "noted": noted.get(section, 0) + 1}
            for section, source in source_of.items()
        ]
    )


def _write_verdicts(tables: Tables, verdicts: Mapping[str, Verdict]) -> Settled:
    """Write what is decided to the episodes of these parts that are otherwise, and to what an LLM drew from them."""
    of_part = {part_id: [part_id, *(record_id(part_id, n) for n in range(MAX_RECORDS))] for part_id in verdicts}
    named = {verdict.superseded_by for verdict in verdicts.values() if verdict.superseded_by}
    ids = {*named, *(episode_id for its in of_part.values() for episode_id in its)}
    stored = {row["episode_id"]: row for row in tables["episodes"].among("episode_id", ids, STATUS_FIELDS)}
    superseded = retired = revived = 0
    moved: list[str] = []
    changed: dict[Cause, dict[str, Standing]] = {cause: {} for cause in (_CAME_BACK, _REPLACED, _GONE)}
    for part_id, verdict in verdicts.items():
        # a rule may hold the other part back, or its episode was deleted
        successor = verdict.superseded_by if verdict.superseded_by in stored else None
        status = Status.ACTIVE.value if verdict.is_current else Status.SUPERSEDED.value
        others = [
            row
            for key in of_part[part_id]
            if (row := stored.get(key))
            and (row["status"], row["superseded_by"]) != (status, successor)
            and not (verdict.is_current and row["status"] in _DECIDED)
        ]
        if not others or others[0]["episode_id"] != part_id:
            continue
        moved.append(part_id)
        revived += verdict.is_current
        retired += not verdict.is_current and successor is None
        superseded += not verdict.is_current and successor is not None
        cause = _CAME_BACK if verdict.is_current else _REPLACED if successor else _GONE
        changed[cause] |= {row["episode_id"]: (status, successor) for row in others}
    for cause, standings in changed.items():
        set_status(tables, [stored[episode_id] for episode_id in standings], standings, cause)
    events.note(tables, Happening.STATUS, moved)
    return Settled(superseded, retired, revived)


def _named(sections: Iterable[Section]) -> Iterable[Match]:
    """Yield matches of the rows of these sections, each of few enough places. A file has one place, or a few."""
    anchors: dict[str, list[str]] = {}
    for place, anchor in sections:
        anchors.setdefault(place, []).append(anchor)
    for batch in batches(list(anchors.items()), BRANCHES):
        yield {"$or": [{"place": place, "anchor": {"$in": its}} for place, its in batch]}


def _sighting(row: Row) -> SectionOccurrence:
    return SectionOccurrence(**{**row, "present": bool(row["present"])})
