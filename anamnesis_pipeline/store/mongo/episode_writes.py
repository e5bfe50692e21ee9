"""Writing and removing whole episodes, many at once, with all that hangs on them: passages, vectors, what lacks
vectors, and which episode stands for which. A few calls for each step, however many episodes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pymongo import InsertOne, UpdateOne

from anamnesis_pipeline.model import Episode, Passage
from anamnesis_pipeline.store.episode_values import stored_hash
from anamnesis_pipeline.store.mongo import consolidation_docs, pending, session_docs
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.episode_docs import changed_facets, read_aliases
from anamnesis_pipeline.store.mongo.facets import FACET_SOURCES, facets_of
from anamnesis_pipeline.store.mongo.passage_docs import Wish, delete_passages, write_passages
from anamnesis_pipeline.store.mongo.space_docs import live_spaces
from anamnesis_pipeline.store.project_names import store_name
from anamnesis_pipeline.store.records import chat, llm, queries
from anamnesis_pipeline.store.session_base import is_of_log, is_told
from anamnesis_pipeline.store.values import as_json, instant

Written = tuple[Episode, Sequence[Passage]]

_HELD_FIELDS = ("_id", "number", "own_project", *FACET_SOURCES)


def write_episode(tables: Tables, episode: Episode, passages: Sequence[Passage]) -> None:
    """As `write_episodes`, of one."""
    write_episodes(tables, [(episode, passages)])


def write_episodes(tables: Tables, written: Sequence[Written]) -> None:
    """Insert or update by id, each id once, leaving status and counters of those that are there alone. A merged episode
    goes when a text that it quotes becomes another, sessions are noted, and what was hidden stays so.
    """
    links = consolidation_docs.links_of(tables, [episode.episode_id for episode, _ in written])
    if links:
        drop_outdated_merges(tables, {e.episode_id: e.raw_exchange for e, _ in written if e.episode_id in links})
    write_documents(tables, written)
    consolidation_docs.note_sessions(tables, [(episode.session_id, episode.source) for episode, _ in written])
    session_docs.note(tables, [(e.source, e.session_id) for e, _ in written if is_told(e.kind)])
    if links:
        consolidation_docs.hide_again(tables, list(links.values()))


def write_documents(tables: Tables, written: Sequence[Written]) -> None:
    """Insert or update episodes with their passages by id, each id once; what is known of consolidation stays."""
    ids = [episode.episode_id for episode, _ in written]
    held = {found["_id"]: found for found in tables["episodes"].find({"_id": {"$in": ids}}, _HELD_FIELDS)}
    wishes = list(_wishes(tables, written, held))
    there = [wish.episode for wish in wishes if wish.was_there]
    tables["episodes"].write([
        *(InsertOne(wish.episode) for wish in wishes if not wish.was_there),
        *(UpdateOne({"_id": d["_id"]}, {"$set": {name: d[name] for name in d if name != "_id"}}) for d in there),
    ])  # fmt: skip
    spaces = live_spaces(tables)
    pending.note(tables, spaces, write_passages(tables, spaces, wishes))


def drop_merges(tables: Tables, episode_ids: Collection[str]) -> None:
    """Remove the merged episodes that quote any of these: what they quote changes, or goes."""
    if not episode_ids:
        return
    if merged := consolidation_docs.merged_of(tables, episode_ids):
        remove_episodes(tables, merged)
        tables["consolidated"].delete({"canonical": {"$in": sorted(merged)}})


def remove_episode(tables: Tables, episode_id: str) -> None:
    """As `remove_episodes`, of one."""
    remove_episodes(tables, [episode_id])


def remove_episodes(tables: Tables, episode_ids: Iterable[str]) -> None:
    """Remove those of these episodes that are there, with their passages, vectors, and the questions that found them;
    no tombstone stays. What they stood for is active again, and merged episodes that quote them go.
    """
    held = tables["episodes"].find({"_id": {"$in": sorted(set(episode_ids))}}, ("_id", "session_id", "source", "kind"))
    if not held:
        return
    ids = [found["_id"] for found in held]
    drop_merges(tables, ids)
    consolidation_docs.note_sessions(tables, [(found["session_id"], found["source"]) for found in held])
    drop_session_records(tables, [(each["source"], each["session_id"]) for each in held if is_told(each["kind"])])
    of_these = {"episode_id": {"$in": ids}}
    passages = [found["_id"] for found in tables["passages"].find(of_these, ("_id",))]
    delete_passages(tables, live_spaces(tables), passages)
    tables["pending"].delete(of_these)
    tables["episodes"].delete({"_id": {"$in": ids}})
    consolidation_docs.release(tables, ids)
    queries.remove_queries_of(MongoTables(tables), ids)
    chat.forget_messages_of(MongoTables(tables), ids)


def drop_session_records(tables: Tables, sessions: Iterable[tuple[str, str]]) -> None:
    """Remove every revision of the records that these sessions (source, id) are in, with what an LLM said of them, and
    note all sessions that are in them: some of what the records tell is to be found no longer. Records that were
    imported go, too.
    """
    keys = set(sessions)
    changed = {key for key in keys if is_of_log(*key)}
    if imported := session_docs.imported_ids(tables, keys - changed):
        remove_episodes(tables, imported)
    if not changed:
        return
    together = session_docs.in_record_with(tables, changed)
    session_docs.note(tables, changed | {(each["source"], each["session_id"]) for each in together})
    asked = session_docs.record_ids(together, further=1)
    if tables["llm_asked"].has({"part_id": {"$in": asked}}):
        llm.withdraw(MongoTables(tables), asked)
    if written := session_docs.record_ids(together):
        remove_episodes(tables, written)


def _wishes(tables: Tables, written: Sequence[Written], held: Mapping[str, Document]) -> Iterator[Wish]:
    """The documents of these episodes: all fields of new ones, and of those that are there what a write may change."""
    aliases = read_aliases(tables)
    new = sum(episode.episode_id not in held for episode, _ in written)
    number = tables.next_number("episodes", new) if new else 0
    for episode, passages in written:
        before = held.get(episode.episode_id)
        document = _document(episode, passages) | _projects(aliases, episode, before)
        if before is None:
            document |= _first_fields(episode, number)
            number += 1
            yield Wish({**document, **_own_facets(facets_of(document))}, passages)
        else:
            document |= {name: before[name] for name in ("number", "status", "read_count")}
            changed = changed_facets(before, document)
            yield Wish({**document, **_own_facets(changed)}, passages, was_there=True, changed=changed)


def _document(episode: Episode, passages: Sequence[Passage]) -> Document:
    """The fields that every write sets."""
    return {
        "_id": episode.episode_id,
        "source": episode.source,
        "timestamp": instant(episode.timestamp),
        "instance": episode.instance,
        "kind": episode.kind,
        "summary": episode.summary,
        "raw_exchange": episode.raw_exchange,
        "tags": list(episode.tags),
        "machine": episode.machine,
        "path": episode.path,
        "session_id": episode.session_id,
        "message_ids": list(episode.message_ids),
        "message_keys": list(episode.message_keys),
        "metadata": as_json(dict(episode.metadata)),
        "passages": len(passages),
        "content_hash": episode.content_hash,
        "stored_hash": stored_hash(episode, passages),
    }


def _first_fields(episode: Episode, number: int) -> Document:
    """The fields that later writes leave alone."""
    return {
        "number": number,
        "status": episode.status,
        "superseded_by": episode.superseded_by,
        "superseded_at": None,
        "edited": 0,
        "retrieval_count": 0,
        "read_count": 0,
        "last_retrieved": None,
    }


def _projects(aliases: Mapping[str, str], episode: Episode, before: Document | None) -> Document:
    """The own name of the episode's project, and what the aliases call it. One that is written back under the name
    that it is called keeps its own.
    """
    keeps = aliases and before is not None and before["project"] == episode.project
    own = before["own_project"] if before is not None and keeps else episode.project
    return {"own_project": own, "project": store_name(aliases, own)}


def _own_facets(facets: Document) -> Document:
    """Facets as the episode's own document has them: its id is `_id`."""
    return {name: value for name, value in facets.items() if name != "episode_id"}


def drop_outdated_merges(tables: Tables, texts: Mapping[str, str]) -> None:
    """Let merged episodes go that quote another text of an episode than it is about to have."""
    where = {"_id": {"$in": sorted(texts)}}
    held = tables["episodes"].find(where, ("_id", "raw_exchange"))
    drop_merges(tables, [found["_id"] for found in held if found["raw_exchange"] != texts[found["_id"]]])
