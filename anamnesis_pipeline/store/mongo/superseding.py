"""What a file takes over of others that had its messages before: the history, forks, subagents and younger copies."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pymongo import UpdateMany, UpdateOne

from anamnesis_pipeline.message_keys import AGENT_KEY, borrowed_key
from anamnesis_pipeline.model import SOMEWHERE, Occurrence, Part, content_id, part_id_of, record_id
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.mongo import typed
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.cursors import File
from anamnesis_pipeline.store.mongo.episode_writes import remove_episodes
from anamnesis_pipeline.store.mongo.occurrences import own_keys, rename_messages, write_occurrences
from anamnesis_pipeline.store.mongo.parts import change_parts, read_parts, write_parts
from anamnesis_pipeline.summary_model import MAX_RECORDS

PARTS_AT_ONCE = 20
"""Parts whose texts are in memory while messages are looked for in them."""
_MESSAGE = ("key", "source", "path", "canonical")


def supersede(
    tables: Tables, file: File, claims: Mapping[str, str], keys: Mapping[str, str], written: Collection[str]
) -> None:
    """Let a file have what it takes over with the messages of a chunk.

    :param claims: further keys of messages, which the file takes if nobody has them, to the messages' own.
    :param keys: the messages' own keys, and further ones, to their own.
    :param written: the parts that the chunk writes.
    """
    _supersede_history(tables, file, claims)
    _supersede_agents(tables, file, claims, written)
    _supersede_forks(tables, file, keys, written)
    _supersede_younger(tables, file, keys, written)


def _supersede_history(tables: Tables, file: File, claims: Mapping[str, str]) -> None:
    """A prompt that only the history had, and that a transcript has now, belongs to the transcript.

    What was published of the history's is removed, and no tombstone stays; its line becomes an occurrence.
    """
    held = typed.held_by_history(tables, file[0], claims) if claims else []
    if not held:
        return
    exchange_of = {key: (history, content_id("exchange", key)) for key, history, _, _ in held}
    lines = _remove_exchanges(tables, exchange_of.values())
    write_occurrences(
        tables,
        [
            (history, Occurrence(message, path, lines[exchange_of[key]]))
            for key, history, path, message in held
            if exchange_of[key] in lines
        ],
    )
    tables["messages"].write([
        UpdateOne({"key": key}, {"$set": {"source": file[0], "path": file[1], "canonical": message}})
        for key, _, _, message in held
    ])  # fmt: skip
    rename_messages(tables, {key: message for key, _, _, message in held})


def _remove_exchanges(tables: Tables, exchanges: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Remove the parts of exchanges of the history, (source, exchange), with their episodes; returns the lines that
    they stood on.
    """
    ids: dict[str, list[str]] = {}
    for source, exchange_id in exchanges:
        ids.setdefault(source, []).append(exchange_id)
    parts = [
        part
        for source, its in ids.items()
        for part in tables["parts"].among(
            "exchange_id", its, ["part_id", "source", "exchange_id", "ordinal"], source=source
        )
    ]
    _remove_parts(tables, [part["part_id"] for part in parts])
    parts.sort(key=lambda part: -int(part["ordinal"]))  # so that the first one stays
    return {(part["source"], part["exchange_id"]): int(part["ordinal"]) for part in parts}


def _supersede_agents(tables: Tables, file: File, claims: Mapping[str, str], written: Collection[str]) -> None:
    """A subagent's task or answer that its own file had first belongs to the file of who asked, which shows it now.

    A copy of the subagent's own file, which goes by the same name, asked for nothing: there it is said once more.
    """
    shared = {claim: key for claim, key in claims.items() if not claim.startswith(AGENT_KEY)}
    own = own_keys(tables, shared)
    if not own:
        return
    held = _messages(tables, set(own.values()))
    files = {_file(message) for message in held.values()}
    of_agents = {each for each in files if _is_of_agent(tables, each)}
    owners = {key: _file(message) for key, message in _messages(tables, set(shared.values())).items()}
    taken: dict[tuple[File, File], dict[str, str]] = {}
    for claim, key in own.items():
        if key not in held or (former := _file(held[key])) not in of_agents:
            continue
        owner = owners.get(shared[claim], file)
        if _name(former) != _name(owner):
            taken.setdefault((former, owner), {})[key] = shared[claim]
    for (former, owner), keys in taken.items():
        _take_over(tables, former, owner, keys, written)


def _is_of_agent(tables: Tables, file: File) -> bool:
    part = tables["parts"].one({"source": file[0], "path": file[1]}, ["agent_id"])
    return part is not None and part["agent_id"] != ""


def _name(file: File) -> str:
    return file[1].rpartition("/")[2]


def _supersede_forks(tables: Tables, file: File, keys: Mapping[str, str], written: Collection[str]) -> None:
    """Messages that only a fork had belong to their own session, which was read later."""
    originals = {borrowed_key(name): key for name, key in keys.items()}
    known = _messages(tables, originals)
    own = known | _messages(tables, {message["canonical"] for message in known.values()} - {""} - known.keys())
    taken: dict[File, dict[str, str]] = {}
    for name in known:
        key = known[name]["canonical"] or name
        if key in own and key.startswith(borrowed_key("")) and (former := _file(own[key])) != file:
            taken.setdefault(former, {})[key] = originals[name]
    for former, its in taken.items():
        _take_over(tables, former, file, its, written)


def _supersede_younger(tables: Tables, file: File, keys: Mapping[str, str], written: Collection[str]) -> None:
    """Messages that a file of another source had before belong to the older file."""
    taken: dict[File, dict[str, str]] = {}
    for name, message in _messages(tables, keys).items():
        if (former := _file(message)) != file:
            taken.setdefault(former, {})[message["canonical"] or name] = keys[name]
    for former, its in taken.items():
        _take_over(tables, former, file, its, written)


def _messages(tables: Tables, keys: Iterable[str]) -> dict[str, Document]:
    return {message["key"]: message for message in tables["messages"].among("key", keys, _MESSAGE)}


def _file(message: Document) -> File:
    return message["source"], message["path"]


def _take_over(tables: Tables, former: File, owner: File, keys: Mapping[str, str], written: Collection[str]) -> None:
    """Messages of one file become those of another, where they may go by other keys.

    :param written: the parts that the owner's chunk writes.
    """
    renamed = _remove_messages(tables, former, keys, written)
    tables["messages"].write([_owned_by(owner, old, key) for old, key in keys.items()])
    rename_messages(tables, keys)
    write_occurrences(tables, [(former[0], Occurrence(key, former[1], SOMEWHERE)) for key in keys.values()])
    _begin_anew(tables, former, renamed)


def _owned_by(owner: File, old: str, key: str) -> UpdateMany:
    """A message, and each further key of it, under the new owner and as one of `key`."""
    is_own = {"$eq": ["$key", {"$literal": key}]}
    values = {
        "source": {"$literal": owner[0]},
        "path": {"$literal": owner[1]},
        "canonical": {"$cond": [is_own, "", {"$literal": key}]},
    }
    further = {"canonical": {"$eq": old, "$gt": ""}}  # that is what the index holds
    return UpdateMany({"$or": [{"key": old}, further]}, [{"$set": values}])


def _begin_anew(tables: Tables, file: File, renamed: Sequence[tuple[str, str]]) -> None:
    """A run that parses that file at this moment has the messages in its open part, and must begin anew; where it goes
    on, parts have other ids.
    """
    where, change = {"source": file[0], "path": file[1]}, {"$inc": {"version": 1}}
    if renamed and (found := tables["files"].one(where, ["parser_state"])):
        state: str = found["parser_state"]
        for old_id, new_id in renamed:
            state = state.replace(old_id, new_id)
        tables["files"].update(where, {**change, "$set": {"parser_state": state}})
    else:
        tables["files"].update(where, change)


@dataclass(frozen=True, slots=True)
class _Changes:
    """What taking messages out of a file does to its parts."""

    left: list[Part] = field(default_factory=list)
    """They are written with what they still hold."""
    gone: list[str] = field(default_factory=list)
    handed_over: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    """Id, and that of what is left of it; empty: nothing is."""


def _remove_messages(
    tables: Tables, file: File, keys: Collection[str], written: Collection[str]
) -> list[tuple[str, str]]:
    """Take messages out of the parts of a file; a part that held nothing else goes with its episodes, unless it is
    about to be `written` as another file's: then it keeps its summary, and its episode what people changed of it.

    Returns id and new id of the parts that have another one now.
    """
    changes = _Changes()
    for part in _parts_with(tables, file, keys):
        left = tuple(segment for segment in part.segments if segment.message_key not in keys)
        new_id = part_id_of(left[0]) if left else ""
        if new_id != part.part_id:
            (changes.handed_over if part.part_id in written else changes.gone).append(part.part_id)
            changes.renamed.append((part.part_id, new_id))
        if left:
            changes.left.append(replace(part, part_id=new_id, segments=left))
    if changes.handed_over:
        change_parts(tables, {"part_id": {"$in": changes.handed_over}}, {"published_hash": None})
    _remove_parts(tables, changes.gone)
    write_parts(tables, changes.left)
    return changes.renamed


def _parts_with(tables: Tables, file: File, keys: Collection[str]) -> Iterator[Part]:
    """The parts of a file that hold some of these messages.

    They are looked for in the order of the file, since an original is read in the order of its fork, and not behind
    the last of them: what a chunk takes over then costs what it is, not what the fork has.
    """
    missing = set(keys)
    found = tables["parts"].find({"source": file[0], "path": file[1]}, ["part_id"], order=[("ordinal", 1)])
    for batch in batches([part["part_id"] for part in found], PARTS_AT_ONCE):
        parts = read_parts(tables, batch)
        for part in (parts[part_id] for part_id in batch):
            its = {segment.message_key for segment in part.segments}
            if not its.isdisjoint(keys):
                yield part
            elif not missing:
                return
            missing -= its


def _remove_parts(tables: Tables, part_ids: Sequence[str]) -> None:
    for batch in batches(part_ids):
        records = [record_id(part_id, number) for part_id in batch for number in range(MAX_RECORDS)]
        remove_episodes(tables, [*batch, *records])
        tables["summaries"].delete({"part_id": {"$in": list(batch)}})
        tables["parts"].delete({"part_id": {"$in": list(batch)}})
