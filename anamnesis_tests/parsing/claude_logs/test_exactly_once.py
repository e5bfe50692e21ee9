"""Whatever happens to the files, each message is there once, and belongs to the earliest that had it."""

import contextlib
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from anamnesis_pipeline.model import FileCursor, Segment
from anamnesis_pipeline.pipeline import crawl as crawl_step
from anamnesis_pipeline.pipeline import parse as parse_step
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.parsing.claude_logs.expected_memory import ALONE, ExpectedMemory
from anamnesis_tests.parsing.claude_logs.interrupted_store import Died, WatchedStore
from anamnesis_tests.parsing.claude_logs.log_tree import (
    FOLDERS,
    Line,
    LogTree,
    Place,
    Writer,
    is_agents,
    session_name,
    session_place,
)
from anamnesis_tests.support.ingested import Ingested

WORD = re.compile(r"word\d+\.")
SESSIONS = st.integers(0, 3)
FILES = st.integers(0, 11)
KINDS = st.sampled_from(["user", "say", "tool", "user", "say", "long"])
WAYS = ["resume", "fork", "fork with new uuids", "branch", "background", "upgrade", "new uuids"]
SAME_SESSION = {"upgrade", "new uuids"}
LAYOUTS = st.sampled_from(["{session}/subagents/agent-{agent}.jsonl", "agent-{agent}.jsonl"])


class GrowingLogs(RuleBasedStateMachine):
    """Files as they are left, ingested at any moment, by processes that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._open()
        self.tree, self.writer, self.expected = LogTree(self.home), Writer(), ExpectedMemory()
        self.unsaid: list[tuple[Place, list[Line]]] = []
        """What is yet to be written about subagents, and where."""

    def _open(self) -> None:
        self.store = open_sqlite(Path(self._folder.name, "anamnesis.db"), Path(self._folder.name, "index"))
        self.watch = WatchedStore(self.store)
        self.home = Ingested(self.watch.store, Path(self._folder.name))

    def teardown(self) -> None:
        try:
            self.ingest()
        finally:
            self.store.close()
            self._folder.cleanup()

    # --- what Claude Code does ---

    @rule(number=SESSIONS, kinds=st.lists(KINDS, min_size=1, max_size=4))
    def go_on(self, number: int, kinds: list[str]) -> None:
        place = session_place(number)
        self.tree.append(place, [self.writer.line(kind, session_name(number)) for kind in kinds])

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES, kinds=st.lists(KINDS, min_size=1, max_size=3))
    def go_on_in_any_file(self, at: int, kinds: list[str]) -> None:
        place = self.tree.at(at)
        self.tree.append(place, [self._line(kind, place) for kind in kinds])

    def _line(self, kind: str, place: Place) -> Line:
        """The next one of a file."""
        stem = place[1].rpartition("/")[2].removesuffix(".jsonl")
        if is_agents(place):
            return self.writer.line(kind, session_name(int(stem.split("-")[1])), stem.removeprefix("agent-"))
        return self.writer.line(kind, stem)

    @rule(number=SESSIONS, layout=LAYOUTS, said=st.integers(0, 4), told=st.integers(0, 2))
    def spawn(self, number: int, layout: str, said: int, told: int) -> None:
        session, agent = session_name(number), f"{number}-{self.writer.next()}"
        folder, name = session_place(number)
        trunk, own = self.writer.spawning(session, agent)
        begun: list[tuple[Place, list[Line], int]] = [
            ((folder, name), trunk, told),
            ((folder, layout.format(session=session, agent=agent)), own, said),
        ]
        for place, lines, count in begun:
            self.tree.append(place, lines[:count])
            self.unsaid += [(place, lines[count:])] if lines[count:] else []

    @precondition(lambda self: self.unsaid)
    @rule(at=FILES, count=st.integers(1, 3))
    def go_on_about_a_subagent(self, at: int, count: int) -> None:
        place, lines = self.unsaid.pop(at % len(self.unsaid))
        self.tree.append(place, lines[:count])
        self.unsaid += [(place, lines[count:])] if lines[count:] else []

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES, share=st.floats(0, 1))
    def write_half_a_line(self, at: int, share: float) -> None:
        place = self.tree.at(at)
        self.tree.tear(place, self._line("say", place), share)

    @precondition(lambda self: any(map(self.tree.is_torn, self.tree.files)))
    @rule(at=FILES, glued=st.booleans())
    def go_on_behind_half_a_line(self, at: int, glued: bool) -> None:
        torn = sorted(filter(self.tree.is_torn, self.tree.files))
        place = torn[at % len(torn)]
        if glued:
            self.tree.glue(place, self._line("user", place))
        else:
            self.tree.append(place, [])

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES, to=SESSIONS, elsewhere=st.booleans(), how=st.sampled_from(WAYS), keep=st.integers(1, 8))
    def copy(self, at: int, to: int, elsewhere: bool, how: str, keep: int) -> None:
        source, target = self.tree.at(at), session_place(to)
        session = session_name(to)
        if is_agents(source):
            target, how = source, how if how in SAME_SESSION else "upgrade"
        if elsewhere:
            target = FOLDERS[1 - FOLDERS.index(target[0])], target[1]
        number = self.writer.next()
        lines = [twin for line in self.tree.files[source][:keep] for twin in line.copied(how, session, number)]
        self.tree.append(target, lines)

    # --- what users, crashes and the sweeper do ---

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES, keep=st.integers(0, 5))
    def truncate(self, at: int, keep: int) -> None:
        place = self.tree.at(at)
        self.tree.rewrite(place, self.tree.files[place][:keep])

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES, which=st.integers(0, 5))
    def drop_a_line_in_place(self, at: int, which: int) -> None:
        place = self.tree.at(at)
        lines = self.tree.files[place]
        self.tree.rewrite(place, [*lines[:which], *lines[which + 1 :]])

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES)
    def replace_by_the_same(self, at: int) -> None:
        self.tree.replace(self.tree.at(at))

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES, folder=st.sampled_from(FOLDERS))
    def copy_into_another_folder(self, at: int, folder: str) -> None:
        place = self.tree.at(at)
        self.tree.rewrite((folder, place[1]), list(self.tree.files[place]))

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES, folder=st.sampled_from(FOLDERS))
    def move_into_another_folder(self, at: int, folder: str) -> None:
        self.tree.move(self.tree.at(at), folder)

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES)
    def sweep(self, at: int) -> None:
        self.tree.remove(self.tree.at(at))

    @precondition(lambda self: self.tree.files)
    @rule(at=FILES, keep=st.integers(0, 5))
    def delete_and_create_again(self, at: int, keep: int) -> None:
        place = self.tree.at(at)
        lines = self.tree.files[place]
        self.tree.remove(place)
        self.tree.rewrite(place, [*lines[:keep], self._line("user", place)])

    # --- what the memory does ---

    @rule()
    def crawl(self) -> None:
        """The run dies before it parses."""
        self._run(self.home.crawl)

    @rule(write=st.integers(1, 9), after=st.booleans())
    def ingest_and_die(self, write: int, after: bool) -> None:
        self.watch.die_at(write, after=after)
        with contextlib.suppress(Died):
            self._run(self.home.crawl)
            self._run(self.home.parse)
            self.home.publish()
        self.watch.die_at(None)

    @rule()
    def restart(self) -> None:
        self.store.close()
        clock = self.home._clock
        self._open()
        self.home._clock, self.tree.home = clock, self.home

    @rule()
    def ingest(self) -> None:
        self._run(self.home.crawl)
        self._run(self.home.parse)
        self.home.publish()
        self.check()

    @rule()
    def ingest_again(self) -> None:
        self.ingest()
        counts = self.store.overview.counts()
        seen = self.home.ingest()
        assert (seen.bytes_read, seen.messages, seen.parts) == (0, 0, 0)
        assert self.store.overview.counts() == counts

    def _run(self, step: Callable[[], object]) -> None:
        """A step, after which what it committed counts, also if it died."""
        died = True
        try:
            step()
            died = False
        finally:
            folders = {source.key: source.folder for source in self.store.files.sources()}
            crawled, parsed = self.watch.committed()
            for cursor in crawled:
                place = folders[cursor.source], cursor.path
                self.expected.crawled(place, self.tree.files[place], cursor)
            self._note_parsed([((folders[cursor.source], cursor.path), cursor) for cursor in parsed], died)

    def _note_parsed(self, committed: list[tuple[Place, FileCursor]], died: bool) -> None:
        if not committed:
            return
        folders = [source.folder for source in self.store.files.sources()]
        wanted = [place for folder in folders for place in self.expected.unparsed(folder)]
        found = [place for place, _ in groupby(place for place, _ in committed) if place in wanted]
        assert found == (wanted[: len(found)] if died else wanted)
        for place, cursor in committed:
            self.expected.parsed(place, cursor)

    # --- what must hold whenever it settles ---

    def check(self) -> None:
        self._check_archive()
        segments = self._segments()
        words = [(w, key) for key, (_, found) in segments.items() for w in WORD.findall(_whole_text(found))]
        wanted = [(word.removesuffix(ALONE), place) for word, place in self.expected.owner.items()]
        assert sorted((word, segments[key][0]) for word, key in words) == sorted(wanted)
        assert self.store.overview.counts().messages == len(wanted)
        folders = {source.key: source.folder for source in self.store.files.sources()}
        word_of = {key: word for word, key in words}
        found = self.store.messages.occurrences_of([*word_of])
        seen = {(word_of[o.message_key], (folders[source], o.path), o.line) for source, o in found}
        assert seen >= {(word.removesuffix(ALONE), place, line) for word, place, line in self.expected.copies}

    def _check_archive(self) -> None:
        """Every line that was read is kept, as it was, in its generation."""
        read = ArchivedLines(self.store, self.home.archive).read
        keys = {source.folder: source.key for source in self.store.files.sources()}
        for place, lines in self.tree.files.items():
            if lines:
                assert self.expected.archived[place][-1] == lines
        for (folder, path), generations in self.expected.archived.items():
            for number, lines in enumerate(generations):
                kept = list(read(FileCursor(keys[folder], path, generation=number), 0))
                assert kept == [line.text for line in lines]

    def _segments(self) -> dict[str, tuple[Place, list[Segment]]]:
        """Message key -> the file whose parts have it, and its pieces in them. Each episode says what its part does."""
        found: dict[str, tuple[set[Place], list[Segment]]] = defaultdict(lambda: (set(), []))
        numbered: set[tuple[Place, int]] = set()
        folders = {source.key: source.folder for source in self.store.files.sources()}
        for episode in self.home.episodes():
            part = self.store.parts.part(episode.episode_id)
            assert part is not None, f"{episode.path}: an episode without its part"
            assert WORD.findall(episode.raw_exchange) == [w for s in part.segments for w in WORD.findall(s.text)]
            place = folders[part.source], part.path
            assert (place, part.ordinal) not in numbered
            numbered.add((place, part.ordinal))
            for segment in part.segments:
                found[segment.message_key][0].add(place)
                found[segment.message_key][1].append(segment)
        assert all(len(places) == 1 for places, _ in found.values())
        return {key: (places.pop(), segments) for key, (places, segments) in found.items()}


def _whole_text(segments: list[Segment]) -> str:
    """The text that the pieces are of, each of which is there once."""
    text = ""
    for segment in sorted(segments, key=lambda segment: segment.start):
        assert segment.start == len(text)
        text += segment.text
    return text


def test_each_message_is_once_in_its_earliest_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_step, "FRAME_LINES", 3)
    monkeypatch.setattr(parse_step, "CHUNK_LINES", 3)
    run_state_machine_as_test(
        GrowingLogs,
        settings=settings(
            max_examples=settings.default.max_examples // 2,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
