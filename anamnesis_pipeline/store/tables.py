"""Every table of a store, declared once: fields with their types, key and indexes.

Both engines make their tables, validators, indexes and copies from this. To add a table, add an entry to `TABLES` and a
class in `records/`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.model import EXCLUDED

KINDS = ("text", "texts", "int", "flag", "real", "bytes", "date")
"""Types of fields. `texts`: a list of texts; `flag`: 0 or 1. Times and JSON are texts (`values.py`); `date`
is only of MongoDB's own collections. A `?` behind a
type: the value may be None.
"""


@dataclass(frozen=True, slots=True)
class Index:
    """An index over fields, `-` before a name: descending. `where`: of a partial index, as in `gateway.Match`."""

    fields: tuple[str, ...]
    unique: bool = False
    where: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that follows from other fields of its row, so that a partial index can hold the rows that need work: all
    its terms hold. No row is written with it, and a match only asks for 0 or 1.

    `unset`: fields that are None; `equal`: field -> value; `unequal`: field -> the field that it differs from.
    """

    unset: tuple[str, ...] = ()
    equal: Mapping[str, Any] = field(default_factory=dict)
    unequal: Mapping[str, str] = field(default_factory=dict)

    def of(self, row: Mapping[str, Any]) -> int:
        """Return the flag of a row, in which a missing field is None."""
        is_set = (
            all(row.get(name) is None for name in self.unset)
            and all(row.get(name) == value for name, value in self.equal.items())
            and all(row.get(name) != row.get(other) for name, other in self.unequal.items())
        )
        return int(is_set)

    @property
    def sql(self) -> str:
        """The terms as SQL, as the partial indexes have them."""
        terms = [f"{name} IS NOT {other}" for name, other in self.unequal.items()]
        terms += [f"{name} IS NULL" for name in self.unset]
        return " AND ".join([*(f"{name} = {value!r}" for name, value in self.equal.items()), *terms])


@dataclass(frozen=True, slots=True)
class RowFlag:
    """A flag like `Flag` that terms of its kind cannot tell. It is worked out when a whole row is written, so no update
    may change the fields that it follows from.

    :param sql: the same as SQL, as the partial indexes have it.
    """

    test: Callable[[Mapping[str, Any]], bool]
    sql: str

    def of(self, row: Mapping[str, Any]) -> int:
        """Return the flag of a whole row."""
        return int(self.test(row))


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `kinds`: field -> its type, in the order in which copies hold the fields.

    `flags`: further fields that follow from these. `serial`: the field, if any, that an engine numbers when a row is
    inserted without it; no number is given twice. `wide`: rows have long values, so SQLite keeps them apart from the
    index of their key.
    """

    name: str
    key: tuple[str, ...]
    kinds: Mapping[str, str]
    lists: frozenset[str]
    """The fields of type `texts`."""
    reals: frozenset[str]
    """The fields of type `real`."""
    required: frozenset[str]
    """The fields without which there is no row."""
    indexes: tuple[Index, ...] = ()
    flags: Mapping[str, Flag | RowFlag] = field(default_factory=dict)
    serial: str = ""
    wide: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all fields."""
        return tuple(self.kinds)

    def key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of the key of a row."""
        return tuple(row[name] for name in self.key)

    def row(self, values: Iterable[Any]) -> dict[str, Any]:
        """Return the row of these values, in the order of the fields. Whole numbers of `real` fields become floats."""
        row = dict(zip(self.kinds, values, strict=True))
        for name in self.reals:
            if row[name] is not None:
                row[name] = float(row[name])
        return row

    @property
    def space(self) -> str:
        """The key of the space whose vectors these are (`vectors/<space>/<variant>`, `tokens/<space>`); else empty."""
        return self.name.split("/")[1] if "/" in self.name else ""


def by(fields: str, where: Mapping[str, Any] | None = None, *, unique: bool = False) -> Index:
    """Return an index over the fields that a text names, e.g. `source -ended_at`."""
    return Index(tuple(fields.split()), unique, where or {})


def table(
    name: str,
    key: str,
    fields: str = "",
    indexes: Sequence[Index] = (),
    *,
    flags: Mapping[str, Flag | RowFlag] | None = None,
    serial: str = "",
    wide: bool = False,
) -> Table:
    """Return the table that these texts declare.

    :param key: the fields of the key, e.g. `source, path`, each a name and its type (by default text).
    :param fields: the others, e.g. `text, at, size int, model text?`.
    """
    kinds = dict(_declared(each) for each in f"{key}, {fields}".split(",") if each.strip())
    names = tuple(_declared(each)[0] for each in key.split(","))
    lists, reals = (
        frozenset(field for field, its in kinds.items() if its.rstrip("?") == kind) for kind in ("texts", "real")
    )
    required = frozenset(field for field, its in kinds.items() if not its.endswith("?")) - {serial}
    return Table(name, names, kinds, lists, reals, required, tuple(indexes), flags or {}, serial, wide)


def _declared(text: str) -> tuple[str, str]:
    name, _, kind = text.strip().partition(" ")
    kind = kind or "text"
    if kind.rstrip("?") not in KINDS:
        raise ValueError(f"field {name} has type {kind!r}; choose one of {', '.join(KINDS)}")
    return name, kind


LINE_BREAK_BYTES = 2
"""The most that a file has behind its last line when all of it is read."""


def _is_incomplete(file: Mapping[str, Any]) -> bool:
    if file["unread"]:
        return not file["unread"].startswith(EXCLUDED)
    return bool(file["size"] - file["offset"] > LINE_BREAK_BYTES)


INCOMPLETE = RowFlag(
    _is_incomplete,
    f"""(unread = '' AND size - "offset" > {LINE_BREAK_BYTES} OR unread <> '' AND unread NOT GLOB '{EXCLUDED}*')""",
)
"""Of a file: the last attempt could not read it, but for what a rule keeps away, or there is more behind its last line
than a line break.
"""

NOT_EMPTY = {"$gt": ""}
NOT_NULL = {"$ne": None}
TEXT = {"$gte": ""}
"""Any text, but not None."""

STORE_SECRET = table("store_secret", "secret bytes")
"""One row."""
# numbers of dropped spaces are never used again, so vectors left over by a crash belong to no other
SPACES = table(
    "spaces",
    "space_id int",
    "key, model_id, dim int, generation int, query_prefix, passage_prefix, pooling, precision, fidelity real?, "
    "variants texts, token_dims int, token_variant, status, projection bytes?, last_episode text?, written_at text?",
    [by("key", unique=True), by("status", {"status": {"$in": ["active", "building"]}}, unique=True)],
    serial="space_id",
)
EPISODES = table(
    "episodes",
    "number int",
    "episode_id, source, timestamp, instance, project, own_project, kind, status, superseded_by text?, "
    "superseded_at text?, passages int, content_hash, edited int, stored_hash, retrieval_count int, read_count int, "
    "last_retrieved text?, summary, tags texts, machine, path, session_id, metadata, message_ids texts, "
    "message_keys texts, raw_exchange",
    [
        by("timestamp episode_id"),
        by("project timestamp episode_id"),
        by("own_project project"),
        by("project kind status timestamp episode_id"),
        by("instance project timestamp kind status"),
        by("source timestamp episode_id"),
        by("source passages"),
        by("session_id"),
        by("path"),
        by("superseded_by episode_id", {"superseded_by": NOT_EMPTY}),
        by("tags -number project status"),
        by("edited", {"edited": {"$gt": 0}}),
        by("-retrieval_count read_count", {"retrieval_count": {"$gt": 0}}),
        by("-read_count -last_retrieved episode_id", {"read_count": {"$gt": 0}}),
    ],
    serial="number",
    wide=True,
)
PASSAGES = table(
    "passages",
    "passage_id int",
    "episode_id, ordinal int, text, context, message_ids texts",
    [by("episode_id ordinal", unique=True)],
    serial="passage_id",
    wide=True,
)
# how many passages of an episode lack a vector; no row when none: ticks cost what is left to do
PENDING = table(
    "pending",
    "space_id int, number int",
    "source, timestamp, missing int",
    [by("space_id source -timestamp -number missing")],
)

TABLES = (
    # ingest
    table("sources", "key", "machine, root, folder, kind, spec"),
    # device and inode are texts: file systems have unsigned numbers of 64 bits, which SQLite's integers cannot hold
    table(
        "files",
        "source, path",
        "device, inode, size int, mtime_ns int, head_hash, head_bytes int, offset int, generation int, lines int, "
        "parsed_lines int, parser_state, gone flag, version int, first_mtime_ns int, unread",
        flags={
            "incomplete": INCOMPLETE,
            "to_parse": RowFlag(lambda file: file["parsed_lines"] < file["lines"], "parsed_lines < lines"),
        },
        wide=True,
    ),
    table(
        "frames",
        "source, path, generation int, first_line int",
        "lines int, archive_offset int, archive_bytes int, revision int, mark, base_source text?, base_path text?, "
        "base_generation int?, base_revision int?, base_offset int?, base_bytes int?",
        [by("mark", {"mark": NOT_EMPTY}), by("base_source base_path base_generation", {"base_source": TEXT})],
    ),
    # canonical: the message's own key where this is another one of it, else empty
    table(
        "messages",
        "key",
        "source, path, canonical",
        [by("source canonical"), by("canonical", {"canonical": NOT_EMPTY})],
    ),
    table("dead_letters", "source, path, generation int, line int", "reason"),
    table("occurrences", "source, path, line int, message_key", "", [by("message_key")]),
    # wanted_hash: what an up-to-date episode is made of (text and summary); published_hash: what it was made of;
    # summarized_hash: the text of its summary; summary_due: when to make another summary ('': asked for); held_by: the
    # rule that keeps a part from being summarized and published. The work left is what the partial indexes hold
    table(
        "parts",
        "part_id",
        "source, path, session_id, exchange_id, ordinal int, kind, project, cwd, prompt, agent_id, agent_type, "
        "origin, lead, section, closed flag, started_at, ended_at, content_hash, wanted_hash, published_hash text?, "
        "summarized_hash text?, summary_due text?, held_by text?, segments bytes",
        [
            by("source exchange_id closed summarized_hash"),  # all fields that counting reads
            by("source path ordinal part_id"),
            by("session_id agent_id started_at part_id project"),
            by("source kind origin"),
            by("source ended_at", {"closed": 0}),
            by("source -ended_at -part_id summary_due", {"closed": 1, "summary_due": TEXT}),
            by("held_by", {"held_by": TEXT}),
            by("source to_summarize -ended_at -part_id", {"to_summarize": 1}),
            by("source to_publish -ended_at -part_id", {"to_publish": 1}),
        ],
        flags={
            "to_publish": Flag(unset=("held_by",), unequal={"published_hash": "wanted_hash"}),
            "to_summarize": Flag(unset=("held_by",), equal={"closed": 1}, unequal={"summarized_hash": "content_hash"}),
        },
        wide=True,
    ),
    # which text of which section was seen where; rows of texts that went stay, with present = 0
    table(
        "sightings",
        "source, path, part_id",
        "place, anchor, ordinal int, first_line int, last_line int, since_ns int, skew_ns int, text, body, cwd, "
        "present flag, became",
        [
            by("source path", {"present": 1}),
            by("place anchor part_id present"),
            by("part_id present"),
            by("text"),
            by("became", {"became": NOT_EMPTY}),
        ],
    ),
    table("unsettled", "place, anchor", "source, noted int", [by("source place anchor")]),
    # summaries and LLM calls
    table(
        "summaries",
        "part_id",
        "content_hash, text, model, tags, records, skip flag, problem, retry_at text?, attempts int, reply_key",
        [by("model problem skip"), by("-retry_at part_id", {"problem": NOT_EMPTY})],
        wide=True,
    ),
    table("llm_replies", "key", "backend, model, reply", wide=True),
    # void: the reply to this key is not kept, should it still come
    table("llm_asked", "key, part_id", "void flag", [by("part_id")]),
    # a call that is not settled counts as it was booked: it may have been made
    table(
        "llm_calls",
        "call_id",
        "day, backend, model, settled flag, calls int, input_tokens int, output_tokens int, dollars real",
        [by("day")],
        wide=True,
    ),
    table("llm_leases", "key", "call_id, until", [by("call_id")]),
    table("llm_failures", "key", "problem"),
    table(
        "llm_batches",
        "batch_id",
        "number int, backend, model, call_id, keys",
        [by("backend number")],
        serial="number",
    ),
    table("llm_turns", "backend", "next_at real", wide=True),
    table("settings", "name", "value"),
    # context of sessions: restarted_at is when a session last forgot what it was shown
    table("context_sessions", "session_id", "seen_at, restarted_at text?", [by("seen_at")]),
    table("context_shown", "session_id, episode_id", "number int, passage_id int?", [by("session_id number")]),
    # forgotten episodes. went_with: the episode of which this is a record, or the rule with which it was forgotten;
    # kept: keyed digests of runs of words of the section
    table(
        "tombstones",
        "episode_id",
        "deleted_at, reason, went_with",
        [by("-deleted_at -episode_id"), by("went_with", {"went_with": NOT_EMPTY})],
    ),
    table("tombstone_keys", "message_key, episode_id", "", [by("episode_id")]),
    table("buried_sections", "episode_id, source, path", "place, kept bytes", [by("place"), by("source path")]),
    # consolidation (which episode stands for which, whether or not their rows are there) and session records. noted
    # counts what happened to a session since then; root names the session in which the record begins that it is in,
    # revision and until the last record that began in this one
    table("consolidated", "episode_id", "canonical, regime, undone flag", [by("canonical"), by("regime undone")]),
    table("unconsolidated", "session_id", "noted int"),
    table(
        "session_notes",
        "source, session_id",
        "noted int, root, revision int, until, branch",
        [
            by("source noted session_id", {"noted": {"$gt": 0}}),
            by("session_id"),
            by("root", {"root": NOT_EMPTY}),
        ],
    ),
    # changes of the status of episodes: what it was, what it became, the episode that stands for it, who, and why
    table(
        "status_history",
        "number int",
        "episode_id, former, status, successor text?, actor, reason, at",
        [by("episode_id number")],
        serial="number",
    ),
    # the subjects of posted statements, in the form in which they are compared; the episode's metadata has the text
    table("subjects", "episode_id", "subject", [by("subject")]),
    # what is observed in sessions, notes and texts (origin: session or episode), and what is to be observed: noted
    # counts what happened since it was
    table("unobserved", "origin", "source, noted int", [by("source origin")]),
    table(
        "observations",
        "number int",
        "origin, signal, key, project, session_id, episode_id, message_id, at, quote, answer, answer_id",
        [
            by("origin"),
            by("number signal"),
            by("signal at number"),
            by("signal key number"),
            by("signal project -number"),
            by("episode_id"),
            by("answer_id", {"answer_id": NOT_EMPTY}),
        ],
        serial="number",
        wide=True,
    ),
    # what sessions, notes and texts touch and name (`leaf`: what lookups begin with), and those to be read for it
    table("unlinked", "origin", "source, noted int", [by("source origin")]),
    table(
        "mentions",
        "number int",
        "kind, name, leaf, relation, other, project, session_id, episode_id, message_id, at, place int, detail, folder",
        [
            by("kind leaf number"),
            by("project kind name"),
            by("kind project number"),
            by("session_id place"),
            by("episode_id"),
        ],
        serial="number",
        wide=True,
    ),
    # what people call things: `name` (`folded`: in small letters) of a project is `canonical`, of that kind
    table("entity_names", "project, kind, folded", "name, canonical, canonical_kind, at"),
    # proposals: `change`, `evidence` and `applied`, what undoing needs, are JSON; `record_id`: the note that accepting
    # posted
    table(
        "proposals",
        "proposal_id",
        "kind, project, target, title, change, evidence, confidence real, detector, created_at, state, "
        "decided_at text?, decided_by, reason, reopens, applied text?, record_id",
        [
            by("state -created_at proposal_id"),
            by("kind target"),
            by("record_id", {"record_id": NOT_EMPTY}),
        ],
        wide=True,
    ),
    table("proposal_evidence", "proposal_id, episode_id", "", [by("episode_id")]),
    # queries: `asked` holds the other fields of the request as JSON, `found` the number of episodes found
    table(
        "query_log", "number int", "asked_at, query, asked, found int, used_at text?", [by("asked_at")], serial="number"
    ),
    table("query_results", "episode_id, number int", "", [by("number")]),
    # events
    table(
        "events",
        "number int",
        "at, kind, process int, episode_id, episodes int, project",
        [by("kind number"), by("episode_id number")],
        serial="number",
    ),
    # conversations: `details` is JSON; `records_at` is when to look for the records of a round trip ('': never)
    table(
        "chat_sessions",
        "session_id",
        "title, backend, model, worker_url, project, created_at, updated_at, name_history",
        [by("updated_at session_id")],
    ),
    table(
        "chat_messages",
        "message_id",
        "session_id, number int, role, text, at, episode_id, feedback int, details, records_at",
        [by("session_id number", unique=True), by("episode_id"), by("feedback at"), by("records_at")],
        wide=True,
    ),
)
"""The tables that both engines keep as declared, in the order in which a copy writes them: a row comes after the rows
that it refers to.
"""
BY_NAME = {each.name: each for each in (STORE_SECRET, SPACES, EPISODES, PASSAGES, PENDING, *TABLES)}


def plain_tables() -> list[Table]:
    """Return the tables of `TABLES`."""
    return [each for each in BY_NAME.values() if each not in (STORE_SECRET, SPACES, EPISODES, PASSAGES, PENDING)]
