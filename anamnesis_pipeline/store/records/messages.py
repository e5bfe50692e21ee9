"""Which file owns each message, where its copies stand, and what the parser writes.

A message is one row under its own key, and one more for each further key by which it is known: their `canonical` is its
own key.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from anamnesis_pipeline.model import (
    MAX_RECORDS,
    SOMEWHERE,
    DeadLetter,
    FileCursor,
    Occurrence,
    Part,
    content_id,
    part_id_of,
    record_id,
)
from anamnesis_pipeline.parsing.claude_logs.message_keys import (
    AGENT_KEY,
    CLAIM_KEY,
    TYPED_KEY,
    TYPED_WITHIN_MS,
    borrowed_key,
    forgotten_typed,
    nearest_typed,
    typed_at,
    typed_near,
)
from anamnesis_pipeline.store.contracts import Native
from anamnesis_pipeline.store.gateway import Gateway, Row, Rows, Tables, batches
from anamnesis_pipeline.store.records.episodes import remove_episodes
from anamnesis_pipeline.store.records.files import File, of_files, versions_of, write_cursors
from anamnesis_pipeline.store.records.parts import buried, place_agents, read_parts, write_parts
from anamnesis_pipeline.store.tables import NOT_EMPTY
from anamnesis_pipeline.store.values import clean

_PARTS_AT_ONCE = 20
"""Parts whose texts are in memory while messages are looked for in them."""


@dataclass(frozen=True, slots=True)
class ParsedChunk:
    """What one transaction of the parser writes. `after.version` is ignored; the store sets it.

    `keys` are the message keys (aliases included) that this chunk adds, owned by (source, path); `parts` are new or
    grown; `dead` lines of it could not be read; `revived` ones, dead before, now can. `aliases` leads from those of
    `keys` that are further keys of a message to its own. `claims` does so from keys that a message takes if no file has
    them, or only what gives way: the history (`claude_history`), whose part then goes, since a transcript's prompt
    wins, also over the nearest that was typed about then (`typed_near`); or a subagent's file, out of whose part the
    message goes, since its session owns the answer.
    """

    before: FileCursor
    after: FileCursor
    keys: Sequence[str] = ()
    occurrences: Sequence[Occurrence] = ()
    parts: Sequence[Part] = ()
    dead: Sequence[DeadLetter] = ()
    revived: Sequence[DeadLetter] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)


class MessageRecords:
    """The owner of each message, and the writes of the parser."""

    def __init__(self, gateway: Gateway, native: Native) -> None:
        self._gateway = gateway
        self._native = native

    def known_keys(self, keys: Sequence[str], reader: File | None = None) -> set[str]:
        """Return those of `keys` that some file already owns, or that a tombstone forbids.

        :param reader: source and path of the file that has them: what a younger file of another source owns
            (`FileCursor.first_mtime_ns`) is not known to it, and becomes its own with `commit_parsed`. Nothing passes
            so to or from the history or a subagent's file.
        """
        with self._gateway.snapshot() as tables:
            owners = _owners(tables, keys)
            younger = _giving_way(tables, set(owners.values()), reader) if reader else set()
            known = {key for key, owner in owners.items() if owner not in younger}
            return known | forbidden(tables, keys)

    def owners(self, keys: Sequence[str]) -> dict[str, File]:
        """Return message key -> (source, path) that owns it, for those that are known."""
        with self._gateway.read() as tables:
            return _owners(tables, keys)

    def occurrences_of(self, keys: Sequence[str]) -> list[tuple[str, Occurrence]]:
        """Return (source, occurrence) of the copies of these messages."""
        fields = ("source", "path", "line", "message_key")
        with self._gateway.read() as tables:
            found = tables["occurrences"].among("message_key", keys, fields)
            rows = sorted(tuple(row[name] for name in fields) for row in found)
        return [(source, Occurrence(key, path, line)) for source, path, line, key in rows]

    def claims_near(self, entries: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return key of an entry of the history -> further key -> message, for the transcripts' prompts of the same
        text that were sent about then (`typed_near`), and that no entry is known of.
        """
        near = {entry: span for entry in entries if (span := typed_near(entry))}
        with self._gateway.snapshot() as tables:
            held = _Spans(tables["messages"], "key", near.values(), ["canonical"])
            claims = {entry: held.within(span) for entry, span in near.items()}
            names = {forgotten_typed(claim) for its in claims.values() for claim in its}
            gone = {row["message_key"] for row in tables["tombstone_keys"].among("message_key", names, ["message_key"])}
        left = {
            entry: {claim: row["canonical"] for claim, row in its.items() if forgotten_typed(claim) not in gone}
            for entry, its in claims.items()
        }
        return {entry: its for entry, its in left.items() if its}

    def dead_letters(self, source: str | None = None, limit: int = 1_000) -> list[DeadLetter]:
        """Return lines that could not be read, by source, path and line."""
        match = {} if source is None else {"source": source}
        order = ("source", "path", "generation", "line")
        with self._gateway.read() as tables:
            return [DeadLetter(**row) for row in tables["dead_letters"].find(match, order=order, limit=limit)]

    def commit_parsed(self, chunk: ParsedChunk) -> bool:
        """Compare and set on `chunk.before.version`, atomically with everything the chunk adds.

        A part is written by id: a grown part replaces its row. A subagent's has the project of its session instead of
        its own as soon as that is known (`PartRecords.session_start`), whichever comes first. Return False when another
        run was faster: also when a key came to be another file's, or was tombstoned, since the chunk was parsed. The
        same message would end up in two parts.
        """
        file = chunk.before.source, chunk.before.path

        def work(tables: Tables) -> bool:
            others = set(_owners(tables, chunk.keys).values()) - {file}
            if (
                versions_of(tables, [file]).get(file) != chunk.before.version
                or others - _giving_way(tables, others, file)
                or any(tables["tombstone_keys"].among("message_key", chunk.keys, ["message_key"]))
                or buried(tables, [part.part_id for part in chunk.parts])
                or not are_open(tables, chunk.aliases)
            ):
                return False
            write_cursors(tables, [replace(chunk.after, version=chunk.before.version + 1)])
            _write_messages(tables, self._native, file, chunk)
            write_parts(tables, chunk.parts)
            place_agents(tables, (part.session_id for part in chunk.parts))
            return True

        return self._gateway.write(work)


def _owners(tables: Tables, keys: Iterable[str]) -> dict[str, File]:
    rows = tables["messages"].among("key", keys, ["key", "source", "path"])
    return {row["key"]: (row["source"], row["path"]) for row in rows}


def _giving_way(tables: Tables, owners: Collection[File], reader: File) -> set[File]:
    """Return the files that give way to a file of another source that has their messages too: both are sessions' own,
    and the reader is the older one.
    """

    def is_of_agent(file: File) -> bool:
        return "/agent-" in f"/{file[1]}".lower()

    candidates = {owner for owner in owners if owner[0] != reader[0] and not is_of_agent(owner)}
    if not candidates or is_of_agent(reader):
        return set()
    history = histories(tables)
    files = of_files(tables["files"], {*candidates, reader}, ["source", "path", "first_mtime_ns"])
    seen = {(row["source"], row["path"]): row["first_mtime_ns"] for row in files}
    if reader[0] in history or reader not in seen:
        return set()
    return {owner for owner in candidates if owner[0] not in history and owner in seen and seen[owner] > seen[reader]}


def _write_messages(tables: Tables, native: Native, file: File, chunk: ParsedChunk) -> None:
    """Write the keys, copies and dead letters of a chunk."""
    further = own_keys(tables, set(chunk.claims.values()))  # where a copy made the claim by a further key
    claims = {claim: further.get(key, key) for claim, key in chunk.claims.items()}
    keys = {key: chunk.aliases.get(key, key) for key in chunk.keys}
    taking = _Taking(tables, native, file, {part.part_id for part in chunk.parts})
    taking.from_history(claims)
    taking.from_agents(claims)
    taking.from_forks(keys)
    taking.from_younger(keys)
    names = [*((key, chunk.aliases.get(key, "")) for key in chunk.keys), *claims.items()]
    rows = [{"key": key, "source": file[0], "path": file[1], "canonical": canonical} for key, canonical in names]
    tables["messages"].add(rows)
    close_claims(tables, {**chunk.claims, **chunk.aliases})
    write_occurrences(tables, [(file[0], occurrence) for occurrence in chunk.occurrences])
    for letter in chunk.revived:
        row = asdict(letter)
        tables["dead_letters"].delete({name: row[name] for name in ("source", "path", "generation", "line")})
    tables["dead_letters"].put([{**asdict(letter), "reason": clean(letter.reason)} for letter in chunk.dead])


def own_keys(tables: Tables, keys: Iterable[str]) -> dict[str, str]:
    """Return further key -> the message's own, for those of `keys` that are further ones."""
    rows = tables["messages"].among("key", keys, ["key", "canonical"])
    return {row["key"]: row["canonical"] for row in rows if row["canonical"]}


def write_occurrences(tables: Tables, seen: Iterable[tuple[str, Occurrence]]) -> None:
    """Write (source, occurrence) of copies; those that are known stay. One that is known by a further key is a copy of
    the message whose key that is.
    """
    copies = list(seen)
    own = own_keys(tables, {occurrence.message_key for _, occurrence in copies})
    tables["occurrences"].add(
        [
            {
                "source": source,
                "path": occurrence.path,
                "line": occurrence.line,
                "message_key": own.get(occurrence.message_key, occurrence.message_key),
            }
            for source, occurrence in copies
        ]
    )


class _Taking:
    """What a file takes over, with the messages of a chunk, of others that had these before.

    :param written: the parts that the chunk writes.
    """

    def __init__(self, tables: Tables, native: Native, file: File, written: Collection[str]) -> None:
        self._tables = tables
        self._native = native
        self._file = file
        self._written = written

    def from_history(self, claims: Mapping[str, str]) -> None:
        """Take prompts that only the history had, and that a transcript has now.

        What was published of the history's is removed, and no tombstone stays; its line becomes an occurrence.

        :param claims: further keys of messages, which the file takes if no other has them, to the messages' own.
        """
        tables = self._tables
        held = held_by_history(tables, self._file[0], claims) if claims else []
        if not held:
            return
        exchange_of = {key: (history, content_id("exchange", key)) for key, history, _, _ in held}
        ids: dict[str, list[str]] = {}
        for history, exchange_id in exchange_of.values():
            ids.setdefault(history, []).append(exchange_id)
        fields = ("part_id", "source", "exchange_id", "ordinal")
        parts = [
            row
            for history, its in ids.items()
            for row in tables["parts"].among("exchange_id", its, fields, source=history)
        ]
        self._remove_parts([row["part_id"] for row in parts])
        parts.sort(key=lambda row: -int(row["ordinal"]))  # so that the first one stays
        lines = {(row["source"], row["exchange_id"]): int(row["ordinal"]) for row in parts}
        copies = [
            (history, Occurrence(message, path, lines[exchange_of[key]]))
            for key, history, path, message in held
            if exchange_of[key] in lines
        ]
        write_occurrences(tables, copies)
        source, path = self._file
        tables["messages"].put(
            [{"key": key, "source": source, "path": path, "canonical": message} for key, _, _, message in held]
        )
        self._rename({key: message for key, _, _, message in held})

    def from_agents(self, claims: Mapping[str, str]) -> None:
        """Take a subagent's task or answer that its own file had first for the file of who asked, which shows it now.

        A copy of the subagent's own file, which goes by the same name, asked for nothing: there it is said once more.
        """
        tables = self._tables
        shared = {claim: key for claim, key in claims.items() if not claim.startswith(AGENT_KEY)}
        own = own_keys(tables, shared)
        if not own:
            return
        held = _owners(tables, set(own.values()))
        of_agents = set[File]()
        for file in set(held.values()):
            part = tables["parts"].one({"source": file[0], "path": file[1]}, ["agent_id"])
            if part is not None and part["agent_id"]:
                of_agents.add(file)
        owners = _owners(tables, set(shared.values()))
        taken: dict[tuple[File, File], dict[str, str]] = {}
        for claim, key in own.items():
            if key not in held or (former := held[key]) not in of_agents:
                continue
            owner = owners.get(shared[claim], self._file)
            if former[1].rpartition("/")[2] != owner[1].rpartition("/")[2]:
                taken.setdefault((former, owner), {})[key] = shared[claim]
        for (former, owner), keys in taken.items():
            self._take_over(former, owner, keys)

    def from_forks(self, keys: Mapping[str, str]) -> None:
        """Take messages that only a fork had, and whose own session was read later.

        :param keys: the messages' own keys, and further ones, to their own.
        """
        originals = {borrowed_key(name): key for name, key in keys.items()}
        known = _messages(self._tables, originals)
        own = known | _messages(self._tables, {row["canonical"] for row in known.values()} - {""} - known.keys())
        taken: dict[File, dict[str, str]] = {}
        for name in known:
            key = known[name]["canonical"] or name
            if key in own and key.startswith(borrowed_key("")) and (former := _file(own[key])) != self._file:
                taken.setdefault(former, {})[key] = originals[name]
        for former, its in taken.items():
            self._take_over(former, self._file, its)

    def from_younger(self, keys: Mapping[str, str]) -> None:
        """Take messages that a younger file of another source had before."""
        taken: dict[File, dict[str, str]] = {}
        for name, row in _messages(self._tables, keys).items():
            if (former := _file(row)) != self._file:
                taken.setdefault(former, {})[row["canonical"] or name] = keys[name]
        for former, its in taken.items():
            self._take_over(former, self._file, its)

    def _take_over(self, former: File, owner: File, keys: Mapping[str, str]) -> None:
        """Let messages of one file become those of another, where they may have other keys."""
        tables = self._tables
        renamed = self._remove_messages(former, keys)
        further = dict(further_keys(tables, keys))
        names = {**{old: old for old in keys}, **further}
        held = {row["key"] for row in tables["messages"].among("key", names, ["key"])}
        tables["messages"].put(
            [
                {
                    "key": name,
                    "source": owner[0],
                    "path": owner[1],
                    "canonical": "" if name == keys[old] else keys[old],
                }
                for name, old in names.items()
                if name in held
            ]
        )
        self._rename(keys)
        write_occurrences(tables, [(former[0], Occurrence(key, former[1], SOMEWHERE)) for key in keys.values()])
        # a run that parses that file at this moment has the messages in its open part, and must begin again
        match = {"source": former[0], "path": former[1]}
        change: Row = {}
        if renamed and (found := tables["files"].one(match, ["parser_state"])):
            state: str = found["parser_state"]  # where the parser goes on
            for old_id, new_id in renamed:
                state = state.replace(old_id, new_id)
            change = {"parser_state": state}
        tables["files"].update(match, change, add={"version": 1})

    def _rename(self, keys: Mapping[str, str]) -> None:
        """Let copies of messages (old key -> key) be of those that they are now."""
        changed = {old: key for old, key in keys.items() if old != key}
        occurrences = self._tables["occurrences"]
        rows = list(occurrences.among("message_key", changed))
        for batch in batches(sorted(changed)):
            occurrences.delete({"message_key": {"$in": list(batch)}})
        occurrences.add([{**row, "message_key": changed[row["message_key"]]} for row in rows])

    def _remove_messages(self, file: File, keys: Collection[str]) -> list[tuple[str, str]]:
        """Take messages out of the parts of a file; a part that held nothing else goes with its episodes, unless it is
        about to be written as another file's: then it keeps its summary, and its episode what people changed of it.

        Return id and new id of the parts that have another one now; empty: nothing is left.
        """
        left: list[Part] = []
        gone: list[str] = []
        handed_over: list[str] = []
        renamed: list[tuple[str, str]] = []
        for part in self._parts_with(file, keys):
            segments = tuple(segment for segment in part.segments if segment.message_key not in keys)
            new_id = part_id_of(segments[0]) if segments else ""
            if new_id != part.part_id:
                (handed_over if part.part_id in self._written else gone).append(part.part_id)
                renamed.append((part.part_id, new_id))
            if segments:
                left.append(replace(part, part_id=new_id, segments=segments))
        if handed_over:
            self._tables["parts"].update({"part_id": {"$in": handed_over}}, {"published_hash": None})
        self._remove_parts(gone)
        write_parts(self._tables, left)
        return renamed

    def _parts_with(self, file: File, keys: Collection[str]) -> Iterator[Part]:
        """Yield the parts of a file that hold some of these messages.

        They are looked for in the order of the file, since an original is read in the order of its fork, and not behind
        the last of them: what a chunk takes over then costs what it is, not what the fork has.
        """
        missing = set(keys)
        found = self._tables["parts"].find({"source": file[0], "path": file[1]}, ["part_id"], order=["ordinal"])
        for batch in batches([row["part_id"] for row in found], _PARTS_AT_ONCE):
            parts = read_parts(self._tables, batch)
            for part in (parts[part_id] for part_id in batch):
                its = {segment.message_key for segment in part.segments}
                if not its.isdisjoint(keys):
                    yield part
                elif not missing:
                    return
                missing -= its

    def _remove_parts(self, part_ids: Sequence[str]) -> None:
        for batch in batches(part_ids):
            records = [record_id(part_id, number) for part_id in batch for number in range(MAX_RECORDS)]
            remove_episodes(self._tables, self._native, [*batch, *records])
            for name in ("summaries", "parts"):
                self._tables[name].delete({"part_id": {"$in": list(batch)}})


def _messages(tables: Tables, keys: Iterable[str]) -> dict[str, Row]:
    return {row["key"]: row for row in tables["messages"].among("key", keys)}


def _file(message: Row) -> File:
    return message["source"], message["path"]


# --- which entries of the history and which transcripts' prompts are the same: equal texts, the nearest in time

Span = tuple[str, str]
"""The first and the last of the keys that are meant; keys are in the order of time."""


def histories(tables: Tables) -> set[str]:
    """Return the sources that are the history of some machine."""
    return {row["key"] for row in tables["sources"].find({"kind": "claude_history"}, ["key"])}


def forbidden(tables: Tables, keys: Sequence[str]) -> set[str]:
    """Return those of `keys` that a tombstone forbids, by this name or by the one that the same prompt has elsewhere:
    of all that may be the same prompt, the nearest in time is forgotten, and not one that stays.
    """
    found = {row["message_key"] for row in tables["tombstone_keys"].among("message_key", keys, ["message_key"])}
    near = {key: span for key in keys if (span := typed_near(key))}
    buried = _Spans(tables["tombstone_keys"], "message_key", near.values())
    gone = {key: distances for key, span in near.items() if (distances := _distances(key, buried.within(span)))}
    messages = {key: _bare(near[key]) for key in gone}
    left = _Spans(tables["messages"], "key", messages.values())
    return found | {
        key
        for key, distances in gone.items()
        if min(distances) <= min(_distances(key, left.within(messages[key])), default=TYPED_WITHIN_MS)
    }


def held_by_history(tables: Tables, source: str, claims: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Return (key, source, path, message) of the entries that only the history has, and that these messages are."""
    spans = {claim: typed_near(claim) or (claim, claim) for claim in claims}
    held = _Spans(tables["messages"], "key", spans.values(), ["source", "path", "canonical"])
    others = histories(tables) - {source} if held else set[str]()
    near: dict[str, dict[str, str]] = {}
    files: dict[str, tuple[str, str]] = {}
    for claim, message in claims.items():
        for key, row in held.within(spans[claim]).items():
            if row["canonical"] == "" and row["source"] in others:
                files[key] = row["source"], row["path"]
                near.setdefault(key, {})[claim] = message
    return [(key, *files[key], message) for key, message in nearest_typed(near).items()]


def close_claims(tables: Tables, names: Mapping[str, str]) -> None:
    """Stop looking for messages (further key -> message) in the history that are known from it by now."""
    messages = {message for name, message in names.items() if message and typed_near(name)}
    known = list(further_keys(tables, messages))
    entered = {message for key, message in known if key.startswith(f"{TYPED_KEY}:")}
    closed = [key for key, message in known if key.startswith(f"{CLAIM_KEY}:") and message in entered]
    for batch in batches(closed):
        tables["messages"].delete({"key": {"$in": list(batch)}})


def are_open(tables: Tables, aliases: Mapping[str, str]) -> bool:
    """Tell whether every message that entries of the history are taken for is still looked for there."""
    messages = {message for alias, message in aliases.items() if alias.startswith(f"{TYPED_KEY}:")}
    looked_for = {message for key, message in further_keys(tables, messages) if key.startswith(f"{CLAIM_KEY}:")}
    return messages <= looked_for


def further_keys(tables: Tables, messages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (further key, message) of these messages."""
    for batch in batches(sorted({message for message in messages if message})):
        # the index holds those that have one, and the match has to say so
        match = {"canonical": {"$in": list(batch), **NOT_EMPTY}}
        for row in tables["messages"].each(match, ["key", "canonical"]):
            yield row["key"], row["canonical"]


def _bare(span: Span) -> Span:
    first, last = (name.removeprefix(forgotten_typed("")) for name in span)
    return first, last


def _distances(key: str, found: Iterable[str]) -> list[int]:
    return [abs(typed_at(name) - typed_at(key)) for name in found]


class _Spans:
    """The rows that have a value of a field within any of some spans."""

    def __init__(self, rows: Rows, field: str, spans: Iterable[Span], fields: Sequence[str] = ()) -> None:
        self._rows: dict[str, Row] = {}
        for batch in batches(sorted(set(spans))):
            ranges = [{field: {"$gte": first, "$lte": last}} for first, last in batch]
            for row in rows.each({"$or": ranges}, [field, *fields]):
                self._rows[row[field]] = row
        self._values = sorted(self._rows)

    def __bool__(self) -> bool:
        return bool(self._values)

    def within(self, span: Span) -> dict[str, Row]:
        """Return value -> row within one of these spans."""
        first, last = span
        values = self._values[bisect_left(self._values, first) : bisect_right(self._values, last)]
        return {value: self._rows[value] for value in values}
