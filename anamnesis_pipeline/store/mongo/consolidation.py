"""What is kept of consolidation, in MongoDB."""

from collections.abc import Mapping, Sequence
from functools import partial

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.model import Episode, Passage
from anamnesis_pipeline.store import episode_values
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.consolidation_base import ChangedSession, Link, Regime, Settlement, Unsuperseded
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.mongo import consolidation_docs
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.consolidation_docs import existing, hide, link, links_of, merged_of, revive, undo
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.episode_docs import set_status
from anamnesis_pipeline.store.mongo.episode_writes import write_documents
from anamnesis_pipeline.store.records import events
from anamnesis_pipeline.store.records.events import Happening


class MongoConsolidation:
    """See `ConsolidationRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def changed(self, limit: int) -> list[ChangedSession]:
        """See `ConsolidationRecords.changed`."""
        return self._database.read(lambda tables: _changed(tables, limit))

    def changed_count(self) -> int:
        """See `ConsolidationRecords.changed_count`."""
        return self._database.read(lambda tables: tables["unconsolidated"].count({}))

    def note_all(self) -> None:
        """See `ConsolidationRecords.note_all`."""
        # groups come one by one; a list of distinct values would be one document, of at most 16 MB
        stages: list[Document] = [{"$match": {"session_id": {"$gt": ""}}}, {"$group": {"_id": "$session_id"}}]
        sessions = self._database.read(lambda tables: tables["episodes"].aggregate(stages))
        for batch in batches(sorted(session["_id"] for session in sessions)):
            self._database.write(partial(consolidation_docs.note, session_ids=batch))

    def links(self, episode_ids: Sequence[str]) -> dict[str, Link]:
        """See `ConsolidationRecords.links`."""
        return self._database.read(lambda tables: links_of(tables, episode_ids))

    def settle(self, session: ChangedSession, canonical_of: Mapping[str, str | None]) -> Settlement:
        """See `ConsolidationRecords.settle`."""
        return self._database.write(lambda tables: _settle(tables, session, canonical_of))

    def merge(self, merged: Episode, passages: Sequence[Passage], members: Sequence[Episode]) -> bool:
        """See `ConsolidationRecords.merge`."""
        merged, passages = episode_values.storable(merged), episode_values.storable_passages(passages)

        def work(tables: Tables) -> bool:
            if not _are_as_they_were(tables, members) or existing(tables, [merged.episode_id]):
                return False
            write_documents(tables, [(merged, passages)])
            canonical_of = {member.episode_id: merged.episode_id for member in members}
            hide(tables, canonical_of)
            link(tables, canonical_of, Regime.MERGE)
            events.note(MongoTables(tables), Happening.CONSOLIDATION, [merged.episode_id, *canonical_of])
            return True

        return self._database.write(work)

    def unsupersede(self, episode_id: str) -> Unsuperseded:
        """See `ConsolidationRecords.unsupersede`."""
        return self._database.write(lambda tables: _unsupersede(tables, episode_id))

    def counts(self) -> dict[str, int]:
        """See `ConsolidationRecords.counts`."""

        def work(tables: Tables) -> dict[str, int]:
            links = tables["consolidated"]
            hidden = {regime.value: links.count({"regime": regime.value, "undone": 0}) for regime in Regime}
            return {**hidden, "undone": links.count({"undone": 1})}

        return self._database.read(work)


def _changed(tables: Tables, limit: int) -> list[ChangedSession]:
    active = tables["spaces"].one({"status": "active"}, ("_id",))
    ready: list[ChangedSession] = []
    last = ""
    while len(ready) < limit:
        found = tables["unconsolidated"].find(
            {"session_id": {"$gt": last}}, ("session_id", "noted"), order=[("session_id", 1)], limit=MAX_ROWS_PER_WRITE
        )
        waiting = _waiting(tables, active["_id"], [each["session_id"] for each in found]) if active and found else set()
        ready += [ChangedSession(**each) for each in found if each["session_id"] not in waiting]
        if len(found) < MAX_ROWS_PER_WRITE:
            break
        last = found[-1]["session_id"]
    return ready[:limit]


def _waiting(tables: Tables, space_id: int, session_ids: Sequence[str]) -> set[str]:
    """Those of these sessions with an episode that lacks vectors."""
    found = tables["episodes"].find({"session_id": {"$in": list(session_ids)}}, ("_id", "session_id"))
    session_of = {each["_id"]: each["session_id"] for each in found}
    lacking = tables["pending"].find({"space_id": space_id, "episode_id": {"$in": list(session_of)}}, ("episode_id",))
    return {session_of[each["episode_id"]] for each in lacking}


def _settle(tables: Tables, session: ChangedSession, canonical_of: Mapping[str, str | None]) -> Settlement:
    links = links_of(tables, canonical_of)
    to_hide, before, to_revive = {}, {}, {}
    for episode_id, canonical in canonical_of.items():
        held = links.get(episode_id)
        if held is not None and (held.undone or held.regime is Regime.MERGE):
            continue
        stood = held.canonical if held else None
        if stood is not None:
            before[episode_id] = stood
        if canonical is not None and canonical != stood:
            to_hide[episode_id] = canonical
        elif canonical is None and stood is not None:
            to_revive[episode_id] = stood
    hidden = _hide_behind_existing(tables, to_hide, before)
    revived = revive(tables, to_revive)
    if to_revive:
        tables["consolidated"].delete({"episode_id": {"$in": sorted(to_revive)}})
    moved = hidden | revived
    events.note(
        MongoTables(tables), Happening.CONSOLIDATION, [episode_id for episode_id in canonical_of if episode_id in moved]
    )
    tables["unconsolidated"].delete({"session_id": session.session_id, "noted": session.noted})
    return Settlement(len(hidden), len(revived))


def _hide_behind_existing(tables: Tables, canonical_of: Mapping[str, str], before: Mapping[str, str]) -> set[str]:
    """Hide episodes of a session, each behind another that is there; returns the ids of those that are hidden now."""
    if not canonical_of:
        return set()
    there = existing(tables, canonical_of.values())
    possible = {episode_id: canonical for episode_id, canonical in canonical_of.items() if canonical in there}
    hidden = hide(tables, possible, before)
    link(tables, {episode_id: possible[episode_id] for episode_id in sorted(hidden)}, Regime.SESSION)
    return hidden


def _unsupersede(tables: Tables, episode_id: str) -> Unsuperseded:
    held = links_of(tables, [episode_id]).get(episode_id)
    if held is not None and held.regime is Regime.SESSION and not held.undone:
        revive(tables, {episode_id: held.canonical})
        undo(tables, [episode_id])
        events.note(MongoTables(tables), Happening.CONSOLIDATION, [episode_id])
        return Unsuperseded((episode_id,))
    merged = next(iter(merged_of(tables, [episode_id])), episode_id)
    members = _merged_members(tables, merged)
    if not members:
        raise EpisodeNotFound(f"nothing was superseded by consolidation of an episode {episode_id!r}")
    revive(tables, dict.fromkeys(members, merged))
    undo(tables, members)
    set_status(tables, {"_id": merged}, "superseded", None)
    events.note(MongoTables(tables), Happening.CONSOLIDATION, [merged, *members])
    return Unsuperseded(tuple(members), merged)


def _merged_members(tables: Tables, merged: str) -> list[str]:
    where = {"canonical": merged, "regime": Regime.MERGE.value, "undone": 0}
    return sorted(found["episode_id"] for found in tables["consolidated"].find(where, ("episode_id",)))


def _are_as_they_were(tables: Tables, members: Sequence[Episode]) -> bool:
    """Whether each is active, has the text that it had, and nobody wants it as it is."""
    ids = [member.episode_id for member in members]
    if links_of(tables, ids):
        return False
    found = tables["episodes"].find({"_id": {"$in": ids}, "status": "active"}, ("_id", "raw_exchange"))
    held = {each["_id"]: each["raw_exchange"] for each in found}
    return held == {member.episode_id: member.raw_exchange for member in members}


# FIX
