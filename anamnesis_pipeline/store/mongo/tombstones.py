"""Tombstones: which episodes and messages are kept away from later ingests."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pymongo import UpdateOne

from anamnesis_pipeline.message_keys import borrowed_key
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.values import instant

_BORROWED = borrowed_key("")


def tombstoned(tables: Tables, episodes: Sequence[Episode]) -> set[str]:
    """Ids of those of these episodes that have a tombstone, by their id or by every single message."""
    ids = {"$in": [episode.episode_id for episode in episodes]}
    gone = {found["episode_id"] for found in tables["tombstones"].find({"episode_id": ids}, ("episode_id",))}
    first = _keys(tables, {episode.message_keys[0] for episode in episodes if episode.message_keys})
    suspects = [episode for episode in episodes if episode.message_keys and episode.message_keys[0] in first]
    buried = _keys(tables, {key for episode in suspects for key in episode.message_keys})
    return gone | {episode.episode_id for episode in suspects if buried.issuperset(episode.message_keys)}


def bury(tables: Tables, episode_id: str) -> None:
    """Keep an episode that is there, and its messages, away from later ingests."""
    found = tables["episodes"].one({"_id": episode_id}, ("message_keys",))
    now = instant(datetime.now(UTC))
    fields = {"deleted_at": now, "reason": "", "went_with": ""}
    tables["tombstones"].upsert({"episode_id": episode_id}, {"$setOnInsert": fields})
    _bury_keys(tables, episode_id, set(found["message_keys"]) if found else set())
    held = [each["message_key"] for each in tables["tombstone_keys"].find({"episode_id": episode_id}, ("message_key",))]
    borrowed = [key for key in held if key.startswith(_BORROWED)]
    if borrowed:  # the original of what only a fork had may go by these alone
        originals = tables["messages"].find({"canonical": {"$in": borrowed}}, ("key",))
        _bury_keys(tables, episode_id, {each["key"] for each in originals if each["key"].startswith(_BORROWED)})


def lift(tables: Tables, episode_id: str) -> None:
    """Let an episode and its messages come again."""
    for name in ("tombstones", "tombstone_keys"):
        tables[name].delete({"episode_id": episode_id})


def _bury_keys(tables: Tables, episode_id: str, keys: set[str]) -> None:
    pairs = [{"message_key": key, "episode_id": episode_id} for key in sorted(keys)]
    tables["tombstone_keys"].write([UpdateOne(pair, {"$setOnInsert": pair}, upsert=True) for pair in pairs])


def _keys(tables: Tables, keys: set[str]) -> set[str]:
    """Those of these message keys that have a tombstone."""
    if not keys:
        return set()
    found = tables["tombstone_keys"].find({"message_key": {"$in": sorted(keys)}}, ("message_key",))
    return {each["message_key"] for each in found}
