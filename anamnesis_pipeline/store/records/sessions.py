"""Sessions of logs: which have no record of their present text, and which are one record together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from anamnesis_pipeline.model import Episode, Passage
from anamnesis_pipeline.parsing.text.file_names import HISTORY, log_name
from anamnesis_pipeline.store.contracts import Native
from anamnesis_pipeline.store.gateway import Gateway, Row, Tables, write_all
from anamnesis_pipeline.store.records import events
from anamnesis_pipeline.store.records.episodes import put_episodes, remove_episodes
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.session_notes import (
    FIRST,
    NOTED,
    STATE_FIELDS,
    Key,
    by_source,
    change,
    growing_sessions,
    in_record_with,
    in_records,
    key_of,
    of_sessions,
    record_of,
    records_of,
    withdraw_records,
)
from anamnesis_pipeline.store.records.statuses import STATUS_FIELDS, Cause, set_status
from anamnesis_pipeline.store.values import LAST_CHARACTER, clean, moment, sought, storable, storable_passages

_REVISED = Cause("sessions", "a newer revision of the session's record")

File = tuple[str, str]
"""Source and path of a log."""
_PEOPLES_MESSAGES = [
    {"message_key": {"$gte": "u:", "$lt": "u;"}},
    {"message_key": {"$gte": "f:u:", "$lt": "f:u;"}},
]
"""Keys that begin with `u:` or `f:u:`."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session as far as one source has it.

    `noted` grows with what came, changed or went since its record was written; 0: nothing. `root` is the session in
    which the record begins that it is in; empty: it is in none yet. `revision` is the last one written of the record
    that begins in this very session, and `until` when that ended (an instant as stores write it); 0 and empty: there
    was none. `is_open`: a part of it still grows.
    """

    source: str
    session_id: str
    noted: int
    root: str = ""
    revision: int = 0
    until: str = ""
    branch: str = ""
    is_open: bool = False

    @property
    def key(self) -> Key:
        """What tells it from others."""
        return self.source, self.session_id


@dataclass(frozen=True, slots=True)
class NewRecord:
    """The record of some sessions to be written: its episode, the root of its record, its revision and end."""

    episode: Episode
    passages: Sequence[Passage]
    root: SessionState
    revision: int
    until: str


@dataclass(frozen=True, slots=True)
class SessionSpan:
    """Where a session began, its project there, and when it ended; without its subagents."""

    folder: str
    project: str
    ended: datetime


class SessionRecords:
    """Sessions of logs. Each episode of a log that is written or removed notes its session. Where one is removed, its
    text is edited, or its part is masked again or moved to another project, every revision of the record of its session
    goes in the same transaction, and so do replies of an LLM about it: none of its text stays.
    """

    def __init__(self, gateway: Gateway, native: Native) -> None:
        self._gateway = gateway
        self._native = native

    def changed(self, source: str, after: str, limit: int) -> list[str]:
        """Return the sessions of a source that are noted, by id, behind `after`; those of which a part still grows
        wait.
        """
        with self._gateway.read() as tables:
            growing = growing_sessions(tables, [source])
            match = {"source": source, **NOTED, "session_id": {"$gt": after}}
            rows = tables["session_notes"].each(match, ["session_id"], order=["session_id"])
            at_rest = (row["session_id"] for row in rows if (source, row["session_id"]) not in growing)
            return list(islice(at_rest, limit))

    def states(self, session_ids: Iterable[str]) -> list[SessionState]:
        """Return what is known of these sessions, and of all that are in a record with them, in every source; by source
        and id.
        """
        with self._gateway.snapshot() as tables:
            own = list(tables["session_notes"].among("session_id", session_ids, STATE_FIELDS))
            rows = [*own, *in_records(tables, {row["root"] for row in own})]
            growing = growing_sessions(tables, {row["source"] for row in rows})
        found = {key_of(row): row for row in rows}
        return [SessionState(**row, is_open=key in growing) for key, row in sorted(found.items())]

    def spans(self, session_ids: Iterable[str]) -> dict[str, SessionSpan]:
        """Return session -> where it began and when it ended, for those that a log has."""
        match = {"session_id": {"$in": sorted(map(sought, session_ids))}, "agent_id": ""}
        with self._gateway.snapshot() as tables:
            parts = tables["parts"]
            began = parts.firsts(match, by=["session_id"], fields=["cwd", "project"], order=("started_at", "part_id"))
            ends = parts.firsts(match, by=["session_id"], fields=["ended_at"], order=("-ended_at", "-part_id"))
        ended = {row["session_id"]: moment(row["ended_at"]) for row in ends}
        return {
            row["session_id"]: SessionSpan(row["cwd"], row["project"], ended[row["session_id"]])
            for row in began
            if row["session_id"] in ended
        }

    def without_log(self, session_ids: Iterable[str]) -> set[str]:
        """Return those of these sessions whose own log, the one with the session's id, was read and is there no longer,
        in any source, or of which only prompts of the history were ever read.
        """
        match = {"session_id": {"$in": sorted(map(sought, session_ids))}, "agent_id": ""}
        with self._gateway.snapshot() as tables:
            rows = tables["parts"].sums(match, by=["session_id", "source", "path"])
            own = {(row["source"], row["path"]): row["session_id"] for row in rows if _is_own_log(row)}
            typed = {row["session_id"] for row in rows if row["path"] == HISTORY}
            files = [
                row
                for source, paths in by_source(own).items()
                for row in tables["files"].among("path", paths, ["source", "path", "gone"], source=source)
            ]
        read = [(own[row["source"], row["path"]], row["gone"]) for row in files]
        return typed.union(session for session, _ in read) - {session for session, is_gone in read if not is_gone}

    def told(self, source: str, session_id: str) -> list[str]:
        """Return the ids of the parts of a session that are episodes, in the order in which they began; none whose text
        a client edited, or that a rule holds.
        """
        match = {
            "session_id": session_id,
            "held_by": None,
        }  # with the source SQLite reads the parts of all its sessions
        order = ("started_at", "path", "ordinal", "part_id")
        with self._gateway.snapshot() as tables:
            parts = tables["parts"].each(match, ["part_id", "source"], order=order)
            ids = [row["part_id"] for row in parts if row["source"] == source]
            episodes = tables["episodes"].among("episode_id", ids, ["episode_id"], edited={"$lt": 2})
            published = {row["episode_id"] for row in episodes}
        return [part_id for part_id in ids if part_id in published]

    def copied(self, files: Iterable[File], limit: int) -> list[str]:
        """Return up to `limit` keys of messages that these logs hold as copies and that only one session can have
        said.
        """
        found: list[str] = []
        with self._gateway.read() as tables:
            for source, path in sorted(set(files)):
                match = {"source": source, "path": path, "$or": _PEOPLES_MESSAGES}
                left = limit - len(found)
                rows = tables["occurrences"].find(match, ["message_key"], order=["line", "message_key"], limit=left)
                found += [row["message_key"] for row in rows]
        return found

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        """Return the ids of sessions with an episode that begin so, sorted; costs what is returned, not what is
        stored.
        """
        found: list[str] = []
        first = {"$gte": sought(prefix)}
        with self._gateway.read() as tables:
            while len(found) < limit:
                match = {"session_id": {**first, "$lt": sought(prefix) + LAST_CHARACTER}}
                row = tables["episodes"].one(match, ["session_id"], order=["session_id"])
                if row is None:
                    break
                found.append(row["session_id"])
                first = {"$gt": row["session_id"]}
        return found

    def sessions_of(self, files: Iterable[File]) -> dict[File, set[str]]:
        """Return log -> sessions with parts of it, without those of subagents."""
        sessions: dict[File, set[str]] = {file: set() for file in files}
        with self._gateway.read() as tables:
            for source, paths in by_source(sessions).items():
                match = {"source": source, "path": {"$in": paths}, "agent_id": ""}
                for row in tables["parts"].sums(match, by=["path", "session_id"]):
                    sessions[source, row["path"]].add(row["session_id"])
        return sessions

    def note_branches(self, source: str, branches: Mapping[str, str]) -> None:
        """Note session -> git branch that it is on now."""
        rows = [
            {"source": source, "session_id": session_id, **FIRST, "branch": clean(branch)}
            for session_id, branch in sorted(branches.items())
        ]
        kept = [name for name in FIRST if name != "branch"]
        write_all(self._gateway, rows, lambda tables, rows: tables["session_notes"].put(rows, keep=kept))

    def join(self, members: Sequence[SessionState], root: str) -> bool:
        """Let these be one record, which begins in the session `root`. Records of theirs that hold others, which are no
        members now, go, and these are noted. Return False, with nothing written, when one of the members is another by
        now.
        """
        own = {member.key for member in members}

        def work(tables: Tables) -> bool:
            if not _are_as_they_were(tables, members):
                return False
            together = in_record_with(tables, own)
            left = {key_of(row): record_of(row) for row in together if key_of(row) not in own}
            if left:
                parted = [key_of(row) for row in together if key_of(row) in own and record_of(row) in left.values()]
                remove_episodes(tables, self._native, withdraw_records(tables, parted))
                change(tables, left, {"root": ""}, add=1)
            change(tables, own, {"root": root})
            return True

        return self._gateway.write(work)

    def settle(self, members: Sequence[SessionState], record: NewRecord | None, gone: Sequence[SessionState]) -> bool:
        """Write the record of `members`, which are joined, in place of all that there are of them, and note that
        nothing is to be done; former revisions stay, superseded by it. None: the one there is will do. One that was
        deleted with a tombstone stays away. `gone` are sessions of which nothing is left: they are not known any more.
        Return False, with nothing written, when one of all these is another by now.
        """
        ended = {member.key for member in gone}

        def work(tables: Tables) -> bool:
            if not _are_as_they_were(tables, [*members, *gone]):
                return False
            if record is not None:
                episode = storable(record.episode)
                passages = storable_passages(record.passages)
                (outcome,) = put_episodes(tables, self._native, [(episode, passages)])
                if outcome in ("created", "updated"):
                    events.note(tables, Happening.WRITE, [episode.episode_id])
                former = [key for key in records_of(tables, {m.key for m in members}) if key != episode.episode_id]
                if outcome != "tombstoned" and former:
                    holding = list(tables["episodes"].among("episode_id", former, STATUS_FIELDS, status="active"))
                    set_status(tables, holding, dict.fromkeys(former, ("superseded", episode.episode_id)), _REVISED)
                change(tables, [record.root.key], {"revision": record.revision, "until": record.until})
            if ended:
                remove_episodes(tables, self._native, records_of(tables, ended))
            for match in of_sessions(ended):
                tables["session_notes"].delete(match)
            change(tables, {member.key for member in members}, {"noted": 0})
            return True

        return self._gateway.write(work)


def _is_own_log(row: Row) -> bool:
    """Return whether a part is in the log that `claude --resume` reads."""
    name = log_name(row["path"])
    return name is not None and name.stem == row["session_id"] and not name.set_aside


def _are_as_they_were(tables: Tables, members: Sequence[SessionState]) -> bool:
    """Tell whether nothing happened to these since they were read."""
    held: dict[Key, tuple[int, str]] = {}
    for match in of_sessions(member.key for member in members):
        rows = tables["session_notes"].find(match, ["source", "session_id", "noted", "branch"])
        held |= {key_of(row): (row["noted"], row["branch"]) for row in rows}
    return all(held.get(member.key) == (member.noted, member.branch) for member in members)
