"""Forgetting: text that is removed for good or masked again, and the tombstones that keep it away."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from anamnesis_pipeline.model import Episode, Part, Passage, Summary
from anamnesis_pipeline.store.contracts import Native
from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Rows, Tables, write_all
from anamnesis_pipeline.store.records import llm
from anamnesis_pipeline.store.records.episodes import drop_session_records, rewrite_episode
from anamnesis_pipeline.store.records.exclusion import bury
from anamnesis_pipeline.store.records.files import File, of_files
from anamnesis_pipeline.store.records.messages import forbidden, further_keys
from anamnesis_pipeline.store.records.parts import PART_FIELDS, read_part, read_parts, write_parts
from anamnesis_pipeline.store.records.summaries import rewrite_summary
from anamnesis_pipeline.store.values import LAST_CHARACTER, instant, storable, storable_passages

PARTS_PER_WRITE = 50
"""A part is at most some 4,000 characters, so a write stays short."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What to forget. Empty fields do not filter; filled ones are all required.

    `path` is a log file as episodes name it, or a folder above some. `since` is inclusive, `until` exclusive. An
    episode or part is of the time at which it begins. `sources` are keys of sources; None: all of them.
    """

    ids: tuple[str, ...] | None = None
    session_id: str = ""
    path: str = ""
    sources: tuple[str, ...] | None = None
    projects: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


class Traces(Protocol):
    """What an engine may keep of deleted rows."""

    def scrub(self) -> list[str]:
        """Make what was deleted unreadable in the engine's files. Return what could not be done, and why."""

    def keeps(self) -> list[str]:
        """Return the places, in words, that may hold what was deleted, out of reach of `scrub`."""


class ForgetRecords:
    """Everything that holds a text, even if its episode is gone."""

    def __init__(self, gateway: Gateway, native: Native, traces: Traces) -> None:
        self._gateway = gateway
        self._native = native
        self._traces = traces

    def matching(self, what: Selection) -> list[str]:
        """Return the ids of the episodes, and of the parts without an episode, that pass all filters, newest first."""
        of_episodes = _filters(what, "timestamp")
        if what.sources is not None:
            of_episodes["source"] = {"$in": list(what.sources)}
        if what.path:
            of_episodes["$or"] = [{"path": what.path}, {"path": _begins(_folder(what.path))}]
        with self._gateway.snapshot() as tables:
            found = _selected(tables["episodes"], "episode_id", "timestamp", what.ids, of_episodes)
            if places := _places(what, tables["sources"].find({}, ("key", "root", "folder"))):
                of_parts = _filters(what, "started_at") | {"$or": places}
                listed = {episode_id for episode_id, _ in found}
                parts = _selected(tables["parts"], "part_id", "started_at", what.ids, of_parts)
                others = {part_id: when for part_id, when in parts if part_id not in listed}
                held = tables["episodes"].among("episode_id", others, ["episode_id"])
                published = {row["episode_id"] for row in held}
                found += [each for each in others.items() if each[0] not in published]
        found.sort()  # by id, and then, since sorting is stable, by time
        return [key for key, _ in sorted(found, key=lambda each: each[1], reverse=True)]

    def forgotten(self, keys: Sequence[str]) -> set[str]:
        """Return those of `keys` that a tombstone forbids."""
        with self._gateway.snapshot() as tables:
            return forbidden(tables, keys)

    def has_forgotten(self, begin: str = "") -> bool:
        """Tell whether there is any tombstone, or one of a key that begins so; cheap."""
        with self._gateway.read() as tables:
            return tables["tombstone_keys"].has({"message_key": _begins(begin)})

    def aliases_of(self, keys: Sequence[str]) -> dict[str, str]:
        """Return further key -> message key, for the further keys by which these messages are known."""
        with self._gateway.read() as tables:
            return dict(further_keys(tables, keys))

    def bury(self, keys_of: Mapping[str, Iterable[str]]) -> None:
        """Leave a tombstone for each id (id -> message keys), and for the keys beside those that it has."""
        graves = [(episode_id, key) for episode_id, keys in keys_of.items() for key in ("", *keys)]
        write_all(self._gateway, graves, bury)

    def parts(self, part_ids: Sequence[str]) -> list[Part]:
        """Return parts by id, also those whose episode was deleted."""
        with self._gateway.read() as tables:
            return sorted(read_parts(tables, part_ids).values(), key=lambda part: part.part_id)

    def parts_of_files(self, files: Iterable[File]) -> list[Part]:
        """Return the parts of these files, also those whose episode was deleted, in the order of the files."""
        with self._gateway.snapshot() as tables:
            parts = list(map(read_part, of_files(tables["parts"], sorted(set(files)), PART_FIELDS)))
        return sorted(parts, key=lambda part: (part.source, part.path, part.ordinal, part.part_id))

    def parts_after(self, part_id: str, limit: int) -> list[Part]:
        """Return parts in the order of their ids, behind this one; `''` comes before all."""
        with self._gateway.read() as tables:
            rows = tables["parts"].find({"part_id": {"$gt": part_id}}, PART_FIELDS, order=["part_id"], limit=limit)
        return list(map(read_part, rows))

    def replace_parts(self, parts: Sequence[Part], *, resummarize: bool = False) -> int:
        """Write parts that exist with other texts. Ids stay, and the episode is to be published again; no reply of an
        LLM about the former text that is still to come is kept. Return how many were there.

        :param resummarize: the summaries go, and so does every cached reply about these parts; the next run asks again.
            Else the summary of the former text stands for the new one.
        """

        def work(tables: Tables, parts: Sequence[Part]) -> int:
            ids = [part.part_id for part in parts]
            llm.void(tables, ids)
            if resummarize:
                llm.withdraw(tables, ids)
                tables["summaries"].delete({"part_id": {"$in": ids}})
            names, of_these = ("part_id", "content_hash"), {"part_id": {"$in": ids}}
            before = {row["part_id"]: row["content_hash"] for row in tables["parts"].find(of_these, names)}
            stored = [part for part in parts if part.part_id in before]
            new = {part.part_id: part.content_hash for part in stored}
            # a summary that stays is noted as being of the new text: it is the same text under other masks. One of an
            # even older text goes
            summaries = tables["summaries"].find({"part_id": {"$in": list(new)}}, names)
            texts = {row["part_id"]: row["content_hash"] for row in summaries}
            older = [part_id for part_id, text in texts.items() if text not in (before[part_id], new[part_id])]
            tables["summaries"].delete({"part_id": {"$in": older}})
            tables["summaries"].put([{"part_id": part_id, "content_hash": text} for part_id, text in new.items()])
            write_parts(tables, stored)
            tables["parts"].update({"part_id": {"$in": list(new)}}, {"published_hash": None})
            drop_session_records(tables, self._native, [(part.source, part.session_id) for part in stored])
            return len(stored)

        return sum(write_all(self._gateway, parts, work, PARTS_PER_WRITE))

    def remove_parts(self, part_ids: Sequence[str]) -> int:
        """Remove parts, their summaries, and every reply of an LLM about any version of them, cached or still to come;
        who owns their messages stays known. Return how many parts there were.
        """

        def work(tables: Tables, part_ids: Sequence[str]) -> int:
            llm.withdraw(tables, part_ids)
            of_parts = {"part_id": {"$in": list(part_ids)}}
            tables["summaries"].delete(of_parts)
            return tables["parts"].delete(of_parts)

        return sum(write_all(self._gateway, part_ids, work, PARTS_PER_WRITE))

    def remove_file(self, source: str, path: str) -> None:
        """Let nothing tell that there was this file, of which no part is left: neither its name nor its archive."""

        def work(tables: Tables) -> None:
            for name in ("frames", "dead_letters", "sightings", "buried_sections", "files"):
                tables[name].delete({"source": source, "path": path})

        self._gateway.write(work)

    def rewrite_episode(self, episode: Episode, passages: Sequence[Passage]) -> bool:
        """Write texts, metadata and passages of an episode as given, even over edits; status and counters
        stay. Unchanged passages keep their keys. Where the verbatim text is another, no reply of an LLM about the
        former one that is still to come is kept. Return False when there is no such id.
        """
        episode, passages = storable(episode), storable_passages(passages)

        def work(tables: Tables) -> bool:
            stored = tables["episodes"].one({"episode_id": episode.episode_id}, ["raw_exchange"])
            if stored is None:
                return False
            if stored["raw_exchange"] != episode.raw_exchange:
                llm.void(tables, [episode.episode_id])
            rewrite_episode(tables, self._native, episode, passages)
            return True

        return self._gateway.write(work)

    def rewrite_summary(self, before: Summary, after: Summary) -> bool:
        """Write text, tags and records of a summary as `after` gives them; the episode is to be published again. When
        it is tried again, and that a new one was asked for, stays. Return False when there is another than `before` by
        now.
        """
        return self._gateway.write(lambda tables: rewrite_summary(tables, before, after))

    def scrub(self) -> list[str]:
        """Make what was deleted unreadable in the store's files: full-text, pages, write-ahead log, index files.

        Takes a while on a large store; others can read and write meanwhile. Return what could not be done, and why.
        """
        return self._traces.scrub()

    def keeps(self) -> list[str]:
        """Return where the backend itself may keep what was deleted, out of reach of `scrub`, each as a place in words;
        empty where it does not.
        """
        return self._traces.keeps()


def _selected(
    rows: Rows, key: str, time: str, ids: Sequence[str] | None, match: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Return (id, time) of the rows that match, of all ids or of these."""
    found = rows.each(match, (key, time)) if ids is None else rows.among(key, ids, (key, time), **match)
    return [(row[key], row[time]) for row in found]


def _filters(what: Selection, time: str) -> dict[str, Any]:
    """Return the filters that are alike for episodes and parts. `time`: the field of when it begins."""
    match: dict[str, Any] = {}
    if what.session_id:
        match["session_id"] = what.session_id
    if what.projects:
        match["project"] = {"$in": list(what.projects)}
    bounds = {name: instant(when) for name, when in (("$gte", what.since), ("$lt", what.until)) if when is not None}
    return match | ({time: bounds} if bounds else {})


def _places(what: Selection, sources: Iterable[Row]) -> list[Match]:
    """Return matches of which a part meets one that is of the path and the sources that are meant. The path of a part
    is relative to its source; parts of a source that is not known are not meant.
    """
    whole: list[str] = []
    places: list[Match] = []
    for row in sources:
        if what.sources is not None and row["key"] not in what.sources:
            continue
        inside = "" if row["folder"] in ("", ".") else f"/{row['folder']}"
        top, folder = f"{row['root']}{inside}/", _folder(what.path)
        if not what.path or top.startswith(folder):
            whole.append(row["key"])
        elif what.path.startswith(top):
            its = [{"path": what.path.removeprefix(top)}, {"path": _begins(folder.removeprefix(top))}]
            places.append({"source": row["key"], "$or": its})
    return [*([{"source": {"$in": whole}}] if whole else []), *places]


def _folder(path: str) -> str:
    return f"{path.rstrip('/')}/"


def _begins(text: str) -> Match:
    """Return the comparison of texts that begin with this one, as a range that an index has."""
    return {"$gte": text, "$lt": f"{text}{LAST_CHARACTER}"}
