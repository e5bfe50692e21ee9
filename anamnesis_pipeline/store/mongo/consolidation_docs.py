"""Which episodes stand for which others, as documents; what happens to them when an episode is written or removed."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pymongo import UpdateOne

from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.store.consolidation_base import Link, Regime
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.episode_docs import CHANGED_FIELDS, change, status_fields
from anamnesis_pipeline.store.values import instant

_LINK_FIELDS = ("episode_id", "canonical", "regime", "undone")


def note_sessions(tables: Tables, episodes: Iterable[tuple[str, str]]) -> None:
    """(session id, source) of episodes that came or changed: the sessions of those of logs are to be settled."""
    note(tables, [session_id for session_id, source in episodes if source not in RESERVED_SOURCES])


def note(tables: Tables, session_ids: Iterable[str]) -> None:
    """Something came to, or changed in, these sessions, as often as each is named."""
    counted = Counter(session_id for session_id in session_ids if session_id)
    tables["unconsolidated"].write([
        UpdateOne({"session_id": session_id}, {"$inc": {"noted": times}}, upsert=True)
        for session_id, times in sorted(counted.items())
    ])  # fmt: skip


def links_of(tables: Tables, episode_ids: Collection[str]) -> dict[str, Link]:
    """See `ConsolidationRecords.links`."""
    if not episode_ids:
        return {}
    found = tables["consolidated"].find({"episode_id": {"$in": list(episode_ids)}}, _LINK_FIELDS)
    return {each["episode_id"]: _read_link(each) for each in found}


def members_of(tables: Tables, canonical: str) -> list[str]:
    """Ids of the episodes that this one stands for."""
    found = tables["consolidated"].find({"canonical": canonical, "undone": 0}, ("episode_id",))
    return sorted(each["episode_id"] for each in found)


def merged_of(tables: Tables, episode_ids: Collection[str]) -> set[str]:
    """The merged episodes that quote any of these, also those that were retired."""
    where = {"episode_id": {"$in": list(episode_ids)}, "regime": Regime.MERGE.value}
    return {each["canonical"] for each in tables["consolidated"].find(where, ("canonical",))}


def link(tables: Tables, canonical_of: Mapping[str, str], regime: Regime) -> None:
    """Note which episode stands for each of these from now on."""
    tables["consolidated"].write([
        UpdateOne(
            {"episode_id": episode_id},
            {"$set": {"canonical": canonical, "regime": regime.value}, "$setOnInsert": {"undone": 0}},
            upsert=True,
        )
        for episode_id, canonical in canonical_of.items()
    ])  # fmt: skip


def hide_again(tables: Tables, links: Collection[Link]) -> None:
    """The episodes of these links were written: those for which another one stands are hidden as they were."""
    wanted = {each.episode_id: each.canonical for each in links if not each.undone}
    if wanted:
        there = existing(tables, wanted.values())
        hide(tables, {episode_id: canonical for episode_id, canonical in wanted.items() if canonical in there})


def existing(tables: Tables, episode_ids: Iterable[str]) -> set[str]:
    """Those of these ids that are episodes."""
    found = tables["episodes"].find({"_id": {"$in": sorted(set(episode_ids))}}, ("_id",))
    return {each["_id"] for each in found}


def hide(tables: Tables, canonical_of: Mapping[str, str], before: Mapping[str, str] | None = None) -> set[str]:
    """Let another episode stand for each of these that is active, or for which that of `before` stood. Returns the ids
    of those that are hidden now.
    """
    stood = before or {}
    hidden = [
        each
        for each in _changeable(tables, canonical_of)
        if each["status"] == "active" or each["superseded_by"] == stood.get(each["_id"], "")
    ]
    now = instant(datetime.now(UTC))
    change(tables, hidden, lambda each: status_fields(each, "superseded", canonical_of[each["_id"]], now))
    return {each["_id"] for each in hidden}


def revive(tables: Tables, canonical_of: Mapping[str, str]) -> set[str]:
    """Let episodes for which these stood be active, but for those that something else superseded. Returns the ids of
    those that are active now.
    """
    hidden = [each for each in _changeable(tables, canonical_of) if each["superseded_by"] == canonical_of[each["_id"]]]
    now = instant(datetime.now(UTC))
    change(tables, hidden, lambda each: status_fields(each, "active", None, now))
    return {each["_id"] for each in hidden}


def release(tables: Tables, canonicals: Collection[str]) -> None:
    """Let the episodes that these stood for be active, and forget that they did. Their sessions are settled anew:
    another one may stand for them.
    """
    where = {"canonical": {"$in": list(canonicals)}, "undone": 0}
    members = {each["episode_id"]: each["canonical"] for each in tables["consolidated"].find(where, _LINK_FIELDS)}
    if not members:
        return
    revive(tables, members)
    tables["consolidated"].delete(where)
    note(
        tables,
        {each["session_id"] for each in tables["episodes"].find({"_id": {"$in": sorted(members)}}, ("session_id",))},
    )


def undo(tables: Tables, episode_ids: Sequence[str]) -> None:
    """Note that somebody wants these as they are: no run links them again."""
    tables["consolidated"].update({"episode_id": {"$in": list(episode_ids)}}, {"$set": {"undone": 1}})


def _changeable(tables: Tables, episode_ids: Iterable[str]) -> list[Document]:
    ids = sorted(episode_ids)
    return tables["episodes"].find({"_id": {"$in": ids}}, CHANGED_FIELDS) if ids else []


def _read_link(document: Document) -> Link:
    return Link(
        document["episode_id"], document["canonical"], Regime(document["regime"]), undone=bool(document["undone"])
    )
