"""Which sessions of logs changed since their record was written, and which are one record together."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.store.gateway import Match, Row, Tables, batches
from anamnesis_pipeline.store.records import llm
from anamnesis_pipeline.store.session_model import SESSION_KIND, episode_id_of, name_with_source
from anamnesis_pipeline.store.tables import NOT_EMPTY
from anamnesis_pipeline.store.values import as_json

Key = tuple[str, str]
"""Source and session."""


_MADE_OF_OTHERS = (SESSION_KIND, "record")
"""Kinds of episodes that no record of a session tells of."""


STATE_FIELDS = ("source", "session_id", "noted", "root", "revision", "until", "branch")


FIRST: Row = {"noted": 0, "root": "", "revision": 0, "until": "", "branch": ""}
"""What a new session begins with."""


NOTED = {"noted": {"$gt": 0}}


def is_of_log(source: str, session_id: str) -> bool:
    """Tell whether this is a session of a log."""
    return bool(session_id) and source not in RESERVED_SOURCES


def is_told(kind: str) -> bool:
    """Tell whether the record of a session tells of its episodes of this kind."""
    return kind not in _MADE_OF_OTHERS


def note(tables: Tables, sessions: Iterable[Key]) -> None:
    """Note that something of these sessions, as far as they are of logs, came, changed or went."""
    for match in of_sessions(key for key in sessions if is_of_log(*key)):
        source, ids = match["source"], match["session_id"]["$in"]
        if tables["session_notes"].update(match, {}, add={"noted": 1}) < len(ids):
            first = {**FIRST, "noted": 1}
            tables["session_notes"].add([{"source": source, "session_id": each, **first} for each in ids])


def withdraw_records(tables: Tables, sessions: Iterable[Key]) -> list[str]:
    """Remove what an LLM said of the records that these sessions are in, and note all sessions that are in them: some
    of what the records tell is to be found no longer. Return the ids of all their revisions, and of records of these
    sessions that were imported: the caller removes them in this transaction.
    """
    keys = set(sessions)
    changed = {key for key in keys if is_of_log(*key)}
    records: list[str] = []
    for source, ids in by_source(keys - changed).items():
        names = [as_json(session_id) for session_id in ids if session_id]
        for batch in batches(names):
            named = [{"metadata": {"$contains": name}} for name in batch]
            match = {"source": source, "kind": SESSION_KIND, "$or": named}
            rows = tables["episodes"].find(match, ["episode_id", "metadata"])
            records += [row["episode_id"] for row in rows if any(name in row["metadata"] for name in batch)]
    if changed:
        together = in_record_with(tables, changed)
        note(tables, changed | {key_of(row) for row in together})
        asked = _record_ids(together, further=1)
        if tables["llm_asked"].has({"part_id": {"$in": asked}}):
            llm.withdraw(tables, asked)
        records += _records_of(tables, together)
    return records


def at_rest_sources(tables: Tables, logs: Sequence[str]) -> set[str]:
    """Return those of these sources with a session that is noted and of which no part grows."""
    growing = growing_sessions(tables, logs)
    found = set()
    for source in logs:
        rows = tables["session_notes"].each({"source": source, **NOTED}, ["session_id"])
        if any((source, row["session_id"]) not in growing for row in rows):
            found.add(source)
    return found


def growing_sessions(tables: Tables, sources: Iterable[str]) -> set[Key]:
    """Return the sessions of these sources with a part that still grows."""
    return {key_of(row) for row in tables["parts"].among("source", sources, ["source", "session_id"], closed=0)}


def in_record_with(tables: Tables, sessions: Collection[Key]) -> list[Row]:
    """Return the sessions that are in a record with any of these, and these, as far as they are known, each with its
    machine.
    """
    found = {
        key_of(row): row for match in of_sessions(sessions) for row in tables["session_notes"].find(match, STATE_FIELDS)
    }
    others = in_records(tables, {row["root"] for row in found.values()})
    sources = {row["source"] for row in (*found.values(), *others)}
    machines = {row["key"]: row["machine"] for row in tables["sources"].among("key", sources, ["key", "machine"])}
    for row in (*found.values(), *others):
        row["machine"] = machines.get(row["source"], "")
    records = {record_of(row) for row in found.values() if row["root"]}
    return list((found | {key_of(row): row for row in others if record_of(row) in records}).values())


def in_records(tables: Tables, roots: Collection[str]) -> list[Row]:
    """Return the sessions that are in a record which begins in one of these, on any machine."""
    wanted = sorted(root for root in roots if root)
    return [
        row
        for batch in batches(wanted)
        for row in tables["session_notes"].find({"root": {"$in": list(batch), **NOT_EMPTY}}, STATE_FIELDS)
    ]


def records_of(tables: Tables, sessions: Collection[Key]) -> list[str]:
    """Return the ids of the revisions of the records that begin in these."""
    return _records_of(tables, [row for row in in_record_with(tables, sessions) if key_of(row) in sessions])


def _records_of(tables: Tables, sessions: Sequence[Row]) -> list[str]:
    """Return the ids of the stored revisions of the records that begin in these sessions, as `in_record_with` returns
    them. A session of another source may have the same id; its records stay.
    """
    sources: dict[str, set[str]] = {}
    for row in sessions:
        for record_id in _record_ids([row]):
            sources.setdefault(record_id, set()).add(row["source"])
    found = tables["episodes"].among("episode_id", sources, ["episode_id", "source"])
    return [row["episode_id"] for row in found if row["source"] in sources[row["episode_id"]]]


def _record_ids(sessions: Iterable[Row], further: int = 0) -> list[str]:
    """Return all ids that revisions of the records which begin in these sessions may have.

    :param further: revisions beside those that were written.
    """
    return [
        episode_id_of(row["machine"], name, number)
        for row in sessions
        for number in range(1, row["revision"] + 1 + further)
        for name in (row["session_id"], name_with_source(row["session_id"], row["source"]))
    ]


def change(tables: Tables, sessions: Iterable[Key], change: Row, add: int = 0) -> None:
    """Set fields of these sessions; `add` to how often they are noted."""
    for match in of_sessions(sessions):
        tables["session_notes"].update(match, change, add={"noted": add} if add else None)


def of_sessions(sessions: Iterable[Key]) -> Iterator[Match]:
    """Yield matches of these sessions, one for each source."""
    for source, ids in by_source(sessions).items():
        yield {"source": source, "session_id": {"$in": ids}}


def by_source(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return source -> what else is in its pairs, each once, sorted."""
    found: dict[str, list[str]] = {}
    for source, other in sorted(set(pairs)):
        found.setdefault(source, []).append(other)
    return found


def key_of(row: Row) -> Key:
    """Return the key of a session."""
    return row["source"], row["session_id"]


def record_of(row: Row) -> tuple[str, str]:
    """Return the key of the record that a session is in: its machine and root."""
    return row["machine"], row["root"]
