"""Whatever happens to the files, each message is there once, and belongs to the earliest that had it."""

import json
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from anamnesis_pipeline.exchanges.parsing import FileOrigin, FileState, advance, read_messages
from anamnesis_pipeline.sources.lines import complete_lines
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.exchanges.ingested import Ingested
from anamnesis_tests.exchanges.log_lines import Log, stamp

SESSIONS = st.integers(0, 3)


def copied(line: str, how: str, number: int) -> list[str]:
    """A line as a copy has it; a branch writes it twice."""
    record = json.loads(line)
    new_session = {"sessionId": f"copy-{number}"}
    match how:
        case "resume":
            return [json.dumps(record | new_session)]
        case "fork":
            return [json.dumps(record | new_session | {"forkedFrom": {"sessionId": "x"}})]
        case "branch":
            return [json.dumps(record | new_session), json.dumps(record | new_session | {"forkedFrom": {"x": 1}})]
        case "background":
            return [json.dumps(record | new_session | {"sessionKind": "bg"})]
        case "upgrade":
            return [json.dumps(record | {"version": "2.1.299", "slug": "otter"})]
    return [json.dumps(record | {"uuid": f"{record['uuid']}-again-{number}"})]


class GrowingLogs(RuleBasedStateMachine):
    """Files as Claude Code leaves them, ingested at any moment, by processes that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._open()
        self.files: dict[str, list[str]] = {}
        self.owner: dict[str, str] = {}
        """Text -> the first file that an ingest found it in."""
        self.copies: set[tuple[str, str, int]] = set()
        self.borrowed: set[str] = set()
        """Texts that only forks had so far: whoever has them without the mark takes them over."""
        self.seen: set[str] = set()
        self.crawled: dict[str, list[list[str]]] = {}
        """File -> what crawls found in it that nobody has parsed."""
        self.known: set[str] = set()
        """Files that were parsed before."""
        self.made = 0

    def _open(self) -> None:
        self.store = open_sqlite(Path(self._folder.name, "anamnesis.db"), Path(self._folder.name, "index"))
        self.home = Ingested(self.store, Path(self._folder.name))

    def teardown(self) -> None:
        try:
            self.ingest()
        finally:
            self.store.close()
            self._folder.cleanup()

    def _name(self, number: int) -> str:
        return f"00000000-0000-0000-0000-{number:012d}.jsonl"

    def _existing(self, number: int) -> str:
        return sorted(self.files)[number % len(self.files)]

    def _write(self, name: str) -> None:
        self.home.write(self.files[name], name)

    @rule(number=SESSIONS, kinds=st.lists(st.sampled_from(["user", "say", "tool"]), min_size=1, max_size=4))
    def append(self, number: int, kinds: list[str]) -> None:
        name = self._name(number)
        lines = self.files.setdefault(name, [])
        for kind in kinds:
            self.made += 1
            log = Log(session=f"session-{number}")
            text, uuid, when = f"word{self.made}.", f"uuid-{self.made}", stamp(self.made)
            if kind == "user":
                log.user(text, uuid=uuid, timestamp=when)
            elif kind == "say":
                log.assistant({"type": "text", "text": text}, message_id=f"m{self.made}", uuid=uuid, timestamp=when)
            else:
                block = {"type": "tool_result", "tool_use_id": f"toolu_{self.made}", "content": text}
                log.user([block], uuid=uuid, timestamp=when)
            lines += log.lines
        self._write(name)

    @precondition(lambda self: self.files)
    @rule(number=SESSIONS, keep=st.floats(0, 1))
    def tear(self, number: int, keep: float) -> None:
        """The last line is only half written."""
        name = self._existing(number)
        if self.files.get(name):
            line = self.files[name].pop()
            self._write(name)
            self.home.append(line[: int(keep * (len(line) - 1))].encode(), name)
            self._note_owners()
            self.home.crawl()
            self.home.parse()
            self.files[name].append(line)
            self._write(name)

    @precondition(lambda self: self.files)
    @rule(number=SESSIONS, keep=st.integers(0, 5))
    def truncate(self, number: int, keep: int) -> None:
        name = self._existing(number)
        self.files[name] = self.files[name][:keep]
        self._write(name)

    @precondition(lambda self: self.files)
    @rule(number=SESSIONS, at=st.integers(0, 5))
    def drop_a_line_in_place(self, number: int, at: int) -> None:
        name = self._existing(number)
        if len(self.files.get(name, [])) > at:
            del self.files[name][at]
            self._write(name)

    @precondition(lambda self: self.files)
    @rule(
        number=SESSIONS,
        to=SESSIONS,
        how=st.sampled_from(["resume", "fork", "branch", "background", "upgrade", "new uuids"]),
    )
    def copy(self, number: int, to: int, how: str) -> None:
        source, target = self._existing(number), self._name(to)
        if self.files.get(source):
            self.made += 1
            new = [twin for line in self.files[source] for twin in copied(line, how, self.made)]
            self.files[target] = [*self.files.get(target, []), *new]
            self._write(target)

    def _note_owners(self) -> None:
        """What the next ingest will find, and where first."""
        for name in sorted(self.files, key=self._precedence):
            found = [pair for lines in (*self.crawled.pop(name, []), self.files[name]) for pair in enumerate(lines)]
            self.known.update([name] if found else [])
            for number, line in found:
                text = next(t for t in line.replace('"', " ").split() if t.startswith("word"))
                is_borrowed = "forkedFrom" in line or "sessionKind" in line
                owner = self.owner.setdefault(text, name)
                if owner == name:
                    self.borrowed.update([text] if is_borrowed and text not in self.seen else [])
                elif text in self.borrowed and not is_borrowed:
                    self.owner[text] = name
                    self.borrowed.remove(text)
                else:
                    self.copies.add((text, name, number))
                self.seen.add(text)

    def _precedence(self, name: str) -> tuple[bool, bool, str, int, str]:
        """Those that were there before, originals, the older ones."""
        is_known, lines = name in self.known, self.files[name]
        first = json.loads(lines[0]) if lines and not is_known else {}
        is_fork = "forkedFrom" in first or "sessionKind" in first
        return not is_known, is_fork, first.get("timestamp", ""), self.home.path(name).stat().st_mtime_ns, name

    @rule()
    def crawl(self) -> None:
        """The run dies before it parses."""
        self.home.crawl()
        for name, lines in self.files.items():
            self.crawled.setdefault(name, []).append(list(lines))

    @rule()
    def ingest(self) -> None:
        self._note_owners()
        self.home.ingest()
        self.check()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self._open()

    @rule()
    def ingest_again(self) -> None:
        self.ingest()
        counts = self.store.ingest.counts()
        seen = self.home.ingest()
        assert (seen.bytes_read, seen.messages, seen.parts) == (0, 0, 0)
        assert self.store.ingest.counts() == counts

    def check(self) -> None:
        episodes = self.home.episodes()
        found = Counter(word for e in episodes for word in e.raw_exchange.split() if word.startswith("word"))
        wanted = set(self.owner)
        assert found.keys() >= wanted
        assert set(found.values()) <= {1}
        for episode in episodes:
            name = episode.path.rpartition("/")[2]
            assert all(self.owner[w] == name for w in episode.raw_exchange.split() if w in self.owner)
        keys = {w: k for e in episodes for w, k in _keys_by_word(self.home, e.episode_id)}
        occurrences = {(o.message_key, o.path, o.line) for _, o in self.store.ingest.occurrences_of([*keys.values()])}
        assert occurrences >= {(keys[text], path, line) for text, path, line in self.copies}

    @invariant()
    def the_store_counts_what_there_is(self) -> None:
        assert self.store.ingest.counts().messages >= len(self.owner)


def _keys_by_word(home: Ingested, part_id: str) -> list[tuple[str, str]]:
    part = home.store.ingest.part(part_id)
    return [(s.text.strip(), s.message_key) for s in part.segments] if part else []


def test_any_interleaving_of_what_happens_to_logs_yields_each_message_once_in_its_earliest_owner() -> None:
    run_state_machine_as_test(
        GrowingLogs,
        settings=settings(
            max_examples=12, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@given(st.binary(max_size=3_000), st.lists(st.binary(max_size=200), max_size=6))
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_never_stop_the_parser(noise: bytes, lines: list[bytes]) -> None:
    log = Log()
    log.user("kept")
    data = noise + b"\n" + b"\n".join(lines) + b"\n" + log.lines[0].encode() + b"\n"
    texts = [text for text, _ in complete_lines(lambda at, n: data[at : at + n], 0, len(data))]
    batch = read_messages(texts, 0)
    step = advance(FileState(), None, batch, (), FileOrigin("s", "a.jsonl"), label=str, idle_minutes=30)
    assert any(segment.text == "kept" for part in step.parts for segment in part.segments)
    assert FileState.from_json(step.state.to_json()) == step.state


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("type", "uuid", "parentUuid", "sessionId", "timestamp", "cwd", "agentId", "isSidechain", "isMeta", "message",
          "toolUseResult", "attachment", "subtype", "content", "logicalParentUuid", "origin")  # fmt: skip
TYPES = st.sampled_from(["user", "assistant", "attachment", "system", "progress", "zz"])
BLOCK_TYPES = st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image", "document", "zz"])
BLOCKS = st.fixed_dictionaries(
    {"type": BLOCK_TYPES},
    optional=dict.fromkeys(("text", "thinking", "id", "name", "input", "tool_use_id", "content", "source"), JSON),
)
RECORDS = st.fixed_dictionaries(
    {"type": TYPES | JSON},
    optional={name: JSON for name in FIELDS if name not in {"type", "message"}}
    | {
        "message": JSON | st.fixed_dictionaries({"content": JSON | st.lists(BLOCKS, max_size=3)}, optional={"id": JSON})
    },
)


@given(st.lists(RECORDS, max_size=4))
@settings(max_examples=200, deadline=None)
def test_records_whose_fields_hold_anything_never_stop_the_parser(records: list[dict[str, object]]) -> None:
    batch = read_messages([json.dumps(record) for record in records], 0)
    step = advance(FileState(), None, batch, (), FileOrigin("s", "a.jsonl"), label=str, idle_minutes=30)
    assert batch.malformed == 0
    assert FileState.from_json(step.state.to_json()) == step.state
