"""Parts that a rule holds back, and tombstones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from anamnesis_pipeline.model import Episode, Part
from anamnesis_pipeline.parsing.claude_logs.message_keys import borrowed_key
from anamnesis_pipeline.store.gateway import Gateway, Row, Tables, batches, beyond, write_all
from anamnesis_pipeline.store.records.parts import PART_FIELDS, read_part
from anamnesis_pipeline.store.tables import NOT_EMPTY, TEXT
from anamnesis_pipeline.store.values import clean, instant, moment

File = tuple[str, str]
"""Source and path."""
_BORROWED = borrowed_key("")
_NEWEST_FIRST = ("-deleted_at", "-episode_id")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What keeps a deleted episode away. `reason` is a person's, or empty."""

    episode_id: str
    deleted_at: datetime
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lifted:
    """What comes back of something that was lifted: `parts` that are stored and will be published again, or, where
    these were forgotten, what is still in `files`, which are read again from their beginning.
    """

    tombstones: int = 0
    parts: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class BuriedSection:
    """What a tombstone keeps of a section that stood in a file (`source`, `path`): the `place` of the document, and in
    `kept` the fingerprint of edited copies (`likeness.kept_of`), empty if there is none.
    """

    episode_id: str
    source: str
    path: str
    place: str
    kept: bytes


class ExclusionRecords:
    """Parts that a rule holds back, and tombstones."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def waiting(self, source: str, after: str, limit: int) -> list[Part]:
        """Return parts of a source that are to be published and that no rule holds, by id, behind `after`."""
        match = {"source": source, "to_publish": 1, "part_id": {"$gt": after}}
        with self._gateway.read() as tables:
            rows = tables["parts"].find(match, PART_FIELDS, order=["part_id"], limit=limit)
        return [read_part(row) for row in rows]

    def hold(self, rule_of: Mapping[str, str]) -> int:
        """Let these parts (part -> rule) not be summarized nor published. What is published of them stays. Return how
        many were not held before.
        """

        def work(tables: Tables, rule_of: Sequence[tuple[str, str]]) -> int:
            parts_of: dict[str, list[str]] = {}
            for part_id, rule_id in rule_of:
                parts_of.setdefault(rule_id, []).append(part_id)
            return sum(
                tables["parts"].update({"part_id": {"$in": ids}, "held_by": None}, {"held_by": rule_id})
                for rule_id, ids in parts_of.items()
            )

        return sum(write_all(self._gateway, sorted(rule_of.items()), work))

    def release(self, rule_id: str) -> int:
        """Let the parts that a rule held be summarized and published. Return how many there are."""
        with self._gateway.read() as tables:
            ids = [row["part_id"] for row in tables["parts"].find({"held_by": {"$eq": rule_id, **TEXT}}, ["part_id"])]
        write_all(
            self._gateway,
            ids,
            lambda tables, ids: tables["parts"].update({"part_id": {"$in": list(ids)}}, {"held_by": None}),
        )
        return len(ids)

    def held(self) -> dict[str, int]:
        """Return rule -> number of parts that it holds."""
        with self._gateway.read() as tables:
            return {row["held_by"]: row["rows"] for row in tables["parts"].sums({"held_by": TEXT}, by=["held_by"])}

    def explain(self, reason: str, episode_ids: Iterable[str], went_with: Mapping[str, str]) -> None:
        """Note with these tombstones why they are there.

        :param went_with: tombstone -> the episode, or the rule, with which it went and is lifted; such a tombstone is
            not listed on its own.
        """
        rows = [
            {"episode_id": key, "reason": clean(reason), "went_with": went_with.get(key, "")}
            for key in sorted({*episode_ids, *went_with})
        ]
        write_all(self._gateway, rows, lambda tables, rows: tables["tombstones"].put(rows))

    def tombstones(self, limit: int, before: tuple[datetime, str] | None = None) -> list[Tombstone]:
        """Return tombstones, the newest first, by (time, id), but those that went with something else. `before`: only
        those that follow that one.
        """
        behind = beyond(_NEWEST_FIRST, (instant(before[0]), before[1])) if before else {}
        with self._gateway.read() as tables:
            rows = tables["tombstones"].find({"went_with": "", **behind}, order=_NEWEST_FIRST, limit=limit)
        return [Tombstone(row["episode_id"], moment(row["deleted_at"]), row["reason"]) for row in rows]

    def entries_of(self, ids: Sequence[str]) -> dict[str, str]:
        """Return tombstone, or part that is held -> what keeps it away and can be lifted: a rule, or the tombstone that
        is listed, which is its own or the one with which it went.
        """
        with self._gateway.snapshot() as tables:
            held = tables["parts"].among("part_id", ids, ("part_id", "held_by"))
            rules = {row["part_id"]: row["held_by"] for row in held if row["held_by"] is not None}
            went_with: dict[str, str] = {}
            asked, level = set[str](), set(ids)
            while level:  # the tombstones of these and of all with which they went, however far up
                asked |= level
                rows = tables["tombstones"].among("episode_id", level, ("episode_id", "went_with"))
                found = {row["episode_id"]: row["went_with"] for row in rows}
                went_with |= found
                level = {entry for entry in found.values() if entry} - asked
        return rules | {key: entry for key in ids if (entry := _entry(went_with, key))}

    def stood_in(self, episode_ids: Sequence[str]) -> dict[str, list[File]]:
        """Return tombstone -> the files (source, path), sorted, that held its text, as far as they are known."""
        with self._gateway.snapshot() as tables:
            sections = tables["buried_sections"].among("episode_id", episode_ids, ("episode_id", "source", "path"))
            found = {(row["episode_id"], row["source"], row["path"]) for row in sections}
            parts = tables["parts"].among("part_id", episode_ids, ("part_id", "source", "path"))
            found |= {(row["part_id"], row["source"], row["path"]) for row in parts}
            keys = list(tables["tombstone_keys"].among("episode_id", episode_ids, ("message_key", "episode_id")))
            messages = tables["messages"].among("key", (row["message_key"] for row in keys), ("key", "source", "path"))
            file_of = {message["key"]: (message["source"], message["path"]) for message in messages}
            found |= {(r["episode_id"], *file_of[r["message_key"]]) for r in keys if r["message_key"] in file_of}
        files: dict[str, list[File]] = {}
        for episode_id, source, path in sorted(found):
            files.setdefault(episode_id, []).append((source, path))
        return files

    def lift(self, episode_ids: Sequence[str]) -> Lifted:
        """Remove the tombstones of these ids and of what went with them; the next ingest brings back what there is."""
        with self._gateway.snapshot() as tables:
            ids, level = set[str](), {key for key in episode_ids if key}  # '' is what went with nothing has
            while level:  # what went with these, however far down
                ids |= level
                rows = tables["tombstones"].among("went_with", level, ["episode_id"])
                level = {row["episode_id"] for row in rows} - ids
        done = write_all(self._gateway, sorted(ids), _lift)
        return Lifted(sum(d.tombstones for d in done), sum(d.parts for d in done), sum(d.files for d in done))

    def lift_keys(self, keys: Sequence[str]) -> None:
        """Let messages of these keys come in again, even if they were deleted; its ids stay deleted."""
        write_all(
            self._gateway,
            keys,
            lambda tables, keys: tables["tombstone_keys"].delete({"message_key": {"$in": list(keys)}}),
        )

    def secret(self) -> bytes:
        """Return 32 bytes that only this store has, for the digests that its tombstones keep."""
        with self._gateway.read() as tables:
            (row,) = tables["store_secret"].find({})
        return bytes(row["secret"])

    def bury_sections(self, sections: Iterable[BuriedSection]) -> None:
        """Keep these sections; what is kept already of the same section in the same file stays."""
        write_all(
            self._gateway,
            [asdict(section) for section in sorted(set(sections), key=_place)],
            lambda tables, rows: tables["buried_sections"].add(rows),
        )

    def has_buried(self) -> bool:
        """Tell whether there is any buried section; cheap."""
        with self._gateway.read() as tables:
            return tables["buried_sections"].has({})

    def buried_at(self, source: str, place: str, texts: Iterable[str]) -> list[BuriedSection]:
        """Return the sections buried in this document, or in a file of the source in which one of these texts was seen
        (`SectionOccurrence.text`); each section once.
        """
        with self._gateway.snapshot() as tables:
            buried = tables["buried_sections"]
            found = buried.find({"place": place})
            if buried.has({"source": source}):
                # with the source in the match, SQLite would read all of it
                seen = tables["sightings"].among("text", texts, ["source", "path"])
                paths = [row["path"] for row in seen if row["source"] == source]
                found += buried.among("path", paths, source=source)
        sections = sorted((BuriedSection(**row) for row in found), key=_place)
        return list({each.episode_id: each for each in sections}.values())


def _entry(went_with: Mapping[str, str], episode_id: str) -> str:
    """Return the listed tombstone that one stands for; empty: there is none."""
    passed: set[str] = set()
    entry = episode_id if episode_id in went_with else ""
    while went_with.get(entry) and entry not in passed:
        passed.add(entry)
        entry = went_with[entry]
    return "" if entry in passed else entry


def _lift(tables: Tables, ids: Sequence[str]) -> Lifted:
    """Lift at most as many ids as one transaction may change."""
    of_these = {"episode_id": {"$in": list(ids)}}
    keys = [row["message_key"] for row in tables["tombstone_keys"].find(of_these, ["message_key"])]
    files = {(row["source"], row["path"]) for row in tables["buried_sections"].find(of_these, ["source", "path"])}
    lifted = tables["tombstones"].delete(of_these)
    for name in ("tombstone_keys", "buried_sections"):
        tables[name].delete(of_these)
    parts = tables["parts"].update({"part_id": {"$in": list(ids)}}, {"published_hash": None})
    # the next crawl reads the files from their beginning. What is archived of them may lack something: no file has such
    # a fingerprint, so it is taken for another file, which is a new generation
    change: Row = {"mtime_ns": 0}
    if not parts:
        change |= {"head_hash": "lifted"}
        still = {row["message_key"] for row in tables["tombstone_keys"].among("message_key", keys, ["message_key"])}
        rows = list(tables["messages"].among("key", set(keys) - still, ("key", "source", "path")))
        for batch in batches([row["key"] for row in rows]):
            tables["messages"].delete({"key": {"$in": list(batch)}})
        files |= {(row["source"], row["path"]) for row in rows}
    reserved = {row["key"] for row in tables["sources"].find({"kind": "reserved"}, ["key"])}  # cannot be read again
    read_again = sum(
        tables["files"].update({"source": source, "path": path}, change, add={"version": 1})
        for source, path in sorted(files)
        if source not in reserved
    )
    return Lifted(lifted, parts, read_again)


def _place(section: BuriedSection) -> tuple[str, str, str]:
    return section.episode_id, section.source, section.path


def tombstoned(tables: Tables, episodes: Sequence[Episode]) -> set[str]:
    """Return the ids of those of these episodes that have a tombstone, by their id or by every single message."""
    ids = [episode.episode_id for episode in episodes]
    gone = {row["episode_id"] for row in tables["tombstones"].among("episode_id", ids, ["episode_id"])}
    first = _with_tombstones(tables, (episode.message_keys[0] for episode in episodes if episode.message_keys))
    suspects = [episode for episode in episodes if episode.message_keys and episode.message_keys[0] in first]
    buried = _with_tombstones(tables, (key for episode in suspects for key in episode.message_keys))
    return gone | {episode.episode_id for episode in suspects if buried.issuperset(episode.message_keys)}


def bury_episode(tables: Tables, episode_id: str, message_keys: Iterable[str]) -> None:
    """Keep an episode, and its messages, away from later ingests."""
    bury(tables, [(episode_id, key) for key in ("", *message_keys)])
    held = [row["message_key"] for row in tables["tombstone_keys"].find({"episode_id": episode_id}, ["message_key"])]
    borrowed = [key for key in held if key.startswith(_BORROWED)]
    if borrowed:  # the original of what only a fork had may go by these alone
        originals = tables["messages"].find({"canonical": {"$in": borrowed, **NOT_EMPTY}}, ["key"])
        bury(tables, [(episode_id, row["key"]) for row in originals if row["key"].startswith(_BORROWED)])


def lift_episode(tables: Tables, episode_id: str) -> None:
    """Let an episode and its messages come again."""
    for name in ("tombstones", "tombstone_keys"):
        tables[name].delete({"episode_id": episode_id})


def bury(tables: Tables, graves: Iterable[tuple[str, str]]) -> None:
    """Leave tombstones where there are none, of (episode id, message key or empty)."""
    rows = [{"message_key": key, "episode_id": episode_id} for episode_id, key in dict.fromkeys(graves)]
    now = instant(datetime.now(UTC))
    tables["tombstones"].add(
        [
            {"episode_id": episode_id, "deleted_at": now, "reason": "", "went_with": ""}
            for episode_id in dict.fromkeys(row["episode_id"] for row in rows)
        ]
    )
    tables["tombstone_keys"].add([row for row in rows if row["message_key"]])


def _with_tombstones(tables: Tables, keys: Iterable[str]) -> set[str]:
    """Return those of these message keys that have a tombstone."""
    return {row["message_key"] for row in tables["tombstone_keys"].among("message_key", keys, ["message_key"])}
