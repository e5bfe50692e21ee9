"""Searches by MongoDB's search indexes: how they are built, replaced and waited for."""

import threading
from contextlib import closing

import numpy as np
import pytest

from anamnesis_pipeline.errors import GiveUp, RetryLater
from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import vector_search
from anamnesis_pipeline.store.mongo import vectors as mongo_vectors
from anamnesis_pipeline.store.mongo.fulltext import MongoTextIndex, leaves_few
from anamnesis_pipeline.store.mongo.search_indexes import SearchIndex, text_definition
from anamnesis_pipeline.store.mongo.vectors import MongoVectors
from anamnesis_tests.store.mongo_searched import (
    Open,
    drop_search_indexes,
    found,
    near,
    search_indexes,
    wait_for,
    wait_until_queryable,
)
from anamnesis_tests.support.mongo_server.search_behaviour import EVERY, SearchBehaviour
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.samples import filled, put, random_units, space, unit

TEXT = Variant.TEXT
EAST, WEST = unit(1, 0, 0, 0), unit(-1, 0, 0, 0)


@pytest.fixture
def store(open_it: Open) -> Store:
    return open_it()


def indexed(store: Store) -> np.ndarray:
    """Space `s` with fifty vectors, in its index."""
    _, vectors = filled(store, 50)
    assert store.vectors.build("s").indexed == 50
    return vectors


def wait_until_one_is_built(server: LoopbackServer) -> None:
    """Another index of the space's vectors was asked for, beside the one that is there."""
    wait_for(lambda: len(search_indexes(server, "vectors_s")) >= 2)


class Searching:
    """Searches without a pause in a thread of its own, from `with` to its end; what fails or misses is kept."""

    def __init__(self, store: Store, vectors: np.ndarray) -> None:
        self._store, self._vectors = store, vectors
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._search)
        self.searches, self.problems = 0, list[str]()

    def __enter__(self) -> "Searching":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def go_on(self) -> None:
        """Wait for a few more searches, of which the first may have begun before."""
        before = self.searches
        wait_for(lambda: self.searches >= before + 3)

    def _search(self) -> None:
        while not self._over.is_set():
            number = self.searches % len(self._vectors)
            try:
                hits = near(self._store, self._vectors[number], 5)
            except Exception as exc:  # the test tells of it
                self.problems.append(repr(exc))
            else:
                if len(hits) != 5 or hits[0] != f"e{number}":
                    self.problems.append(f"{number}: {hits}")
            self.searches += 1


def test_searches_answer_by_the_index_all_through_a_forced_build(
    store: Store, server: LoopbackServer, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    vectors = indexed(store)
    monkeypatch.setattr(vector_search, "MAX_SCANNED", 1)
    before = search_indexes(server, "vectors_s")
    behaviour.build_s, behaviour.never_ready = 0.5, {EVERY}

    def let_it_end() -> None:
        wait_until_one_is_built(server)
        searching.go_on()
        behaviour.never_ready = set()

    with Searching(store, vectors) as searching:
        letting = threading.Thread(target=let_it_end)
        letting.start()
        report = store.vectors.build("s", force=True)
        letting.join()
        searching.go_on()
    assert (report.rebuilt, report.indexed, report.seconds > 0.5) == (True, 50, True)
    assert searching.problems == []
    (after,) = search_indexes(server, "vectors_s")
    assert after not in before
    assert store.vectors.build("s").rebuilt is False


def test_another_definition_takes_every_handle_over(
    open_it: Open, server: LoopbackServer, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    old = open_it()
    vectors = indexed(old)
    monkeypatch.setattr(vector_search, "MAX_SCANNED", 1)
    behaviour.build_s = 0.3
    new = open_it(quantization="scalar")
    with Searching(old, vectors) as by_old, Searching(new, vectors) as by_new:
        assert new.vectors.build("s").rebuilt is True
        by_old.go_on()
        by_new.go_on()
    assert (by_old.problems, by_new.problems) == ([], [])
    assert len(search_indexes(server, "vectors_s")) == 1
    assert new.vectors.build("s").rebuilt is False


def test_process_goes_on_by_the_index_of_another_one(store: Store, server: LoopbackServer, behaviour: SearchBehaviour):
    behaviour.lag_s = 0.0
    put(store, "e", "zebra crossing")
    put(store, "f", "other words")
    wait_until_queryable(server, "passages")

    def few(most: int) -> bool:
        where = EpisodeFilter(projects=("acme/api",))
        assert isinstance(store.vectors, MongoVectors)
        with store.vectors._database.read() as tables:
            return leaves_few(tables, store.vectors._passages, where, most)

    assert (found(store, "zebra"), few(1)) == (["e"], False)
    assert (found(store, "zebra"), few(1)) == (["e"], False)
    assert isinstance(store.text, MongoTextIndex)
    digests = iter("abcd")
    for ask in (
        lambda: store.text.unknown(["zebra", "nonsense"]) == ["nonsense"],
        lambda: store.text.check() == [],
        lambda: few(1) is False,
        lambda: found(store, "zebra") == ["e"],
    ):
        definition = {**text_definition(), "storedSource": {"include": [next(digests)]}}
        SearchIndex("passages", "passages_text", "search", definition).build(
            store.text._database, force=False, wait_s=10
        )
        assert ask()


def test_build_that_fails_says_why_and_the_old_index_answers(
    store: Store, server: LoopbackServer, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    vectors = indexed(store)
    monkeypatch.setattr(vector_search, "MAX_SCANNED", 1)
    before = search_indexes(server, "vectors_s")
    behaviour.failing = {EVERY}
    with pytest.raises(GiveUp, match=r"could not build search index vectors_.*FAILED.*log of the search process"):
        store.vectors.build("s", force=True)
    assert search_indexes(server, "vectors_s") == before
    assert near(store, vectors[3], 1) == ["e3"]
    behaviour.failing = set()
    assert store.vectors.build("s", force=True).rebuilt is True


def test_build_that_does_not_end_is_taken_up_by_the_next(
    store: Store, server: LoopbackServer, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    vectors = indexed(store)
    monkeypatch.setattr(vector_search, "MAX_SCANNED", 1)
    assert isinstance(store.vectors, MongoVectors)
    monkeypatch.setattr(store.vectors, "_build_wait_s", 0.3)
    behaviour.never_ready = {EVERY}
    with pytest.raises(RetryLater, match=r"after 0 s: (PENDING|BUILDING).*build again"):
        store.vectors.build("s", force=True)
    assert near(store, vectors[3], 1) == ["e3"]
    waiting = search_indexes(server, "vectors_s")
    assert len(waiting) == 2
    monkeypatch.setattr(store.vectors, "_build_wait_s", 60)
    behaviour.never_ready = set()
    assert store.vectors.build("s").rebuilt is False
    assert search_indexes(server, "vectors_s") == waiting[1:]


def test_a_build_waits_no_longer_than_it_is_told_to(store: Store, behaviour: SearchBehaviour):
    indexed(store)
    behaviour.never_ready = {EVERY}
    with pytest.raises(RetryLater, match=r"vectors of vectors_s cannot be asked after 0 s"):
        store.vectors.build("s", force=True, within_s=0.3)  # by itself it is an hour
    behaviour.never_ready, behaviour.build_s = set(), 0.5
    assert store.vectors.build("s", force=True, within_s=60).rebuilt is True


def test_build_makes_an_index_again_that_was_dropped(store: Store, server: LoopbackServer, behaviour: SearchBehaviour):
    indexed(store)
    behaviour.never_ready = {EVERY}
    reports: list[bool] = []
    build = threading.Thread(target=lambda: reports.append(store.vectors.build("s", force=True).rebuilt))
    build.start()
    wait_until_one_is_built(server)
    drop_search_indexes(server, "vectors_s")
    behaviour.never_ready = set()
    build.join(timeout=30)
    assert reports == [True]
    assert len(search_indexes(server, "vectors_s")) == 1


def test_build_ends_where_its_space_is_dropped(store: Store, server: LoopbackServer, behaviour: SearchBehaviour):
    indexed(store)
    behaviour.never_ready = {EVERY}

    def drop() -> None:
        wait_until_one_is_built(server)
        store.spaces.drop("s")

    dropping = threading.Thread(target=drop)
    dropping.start()
    with pytest.raises(GiveUp, match="was the space dropped"):
        store.vectors.build("s", force=True)
    dropping.join()


def test_a_build_waits_for_a_search_service_that_comes_back(store: Store, behaviour: SearchBehaviour):
    indexed(store)
    behaviour.reachable = False
    threading.Timer(0.4, setattr, (behaviour, "reachable", True)).start()
    assert store.vectors.build("s", force=True).rebuilt is True


def test_missing_search_service_is_no_wait(server: LoopbackServer, open_it: Open, caplog: pytest.LogCaptureFixture):
    fault = server.faults.add("aggregate", error=31082)
    store = open_it()
    assert "this server has no search service" in caplog.text
    assert fault.met == 1
    server.faults.clear()
    put(store, "e", "a text that is found all the same")
    assert found(store, "found") == ["e"]


def test_two_builds_at_once_leave_one_index(
    store: Store, open_it: Open, server: LoopbackServer, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mongo_vectors, "CAUGHT_UP_IN_S", 1.0)  # the first one's index may be dropped by the second
    vectors = indexed(store)
    other = open_it()
    behaviour.never_ready = {EVERY}
    builds = [
        threading.Thread(target=each.vectors.build, args=("s",), kwargs={"force": True}) for each in (store, other)
    ]
    for number, build in enumerate(builds):  # each begins while the one before it builds
        build.start()
        wait_for(lambda there=number + 2: len(search_indexes(server, "vectors_s")) == there)
    behaviour.never_ready = set()
    for build in builds:
        build.join(timeout=30)
        assert not build.is_alive()
    assert len(search_indexes(server, "vectors_s")) == 1
    for each in (store, other):
        assert near(each, vectors[7], 1) == ["e7"]


def test_a_store_that_opens_makes_the_index_of_full_text_once(open_it: Open, server: LoopbackServer):
    for _ in range(2):
        with closing(open_it()) as store:
            assert store.text.check() == []
        assert len(search_indexes(server, "passages")) == 1


def test_space_with_little_answers_before_its_index(store: Store, behaviour: SearchBehaviour):
    behaviour.never_ready = {EVERY}
    for key in ("s", "t"):
        store.spaces.put(space(key))
        put(store, f"of {key}", "text")
    keys = [store.episodes.passages_of(f"of {key}")[0].passage_id for key in ("s", "t")]
    for key in ("s", "t"):
        store.vectors.put(key, TEXT, keys, np.stack([EAST, WEST]))
    assert store.spaces.activate("s") is True
    assert store.spaces.activate("t") is True
    assert [hit.episode_id for hit in store.vectors.nearest("t", TEXT, WEST, 1, EpisodeFilter())] == ["of t"]


def test_full_space_waits_for_its_index(store: Store, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mongo_vectors, "MAX_SCANNED", 1)
    keys = [put(store, f"e{i}", "text")[0] for i in range(3)]
    for key in ("s", "t"):
        behaviour.never_ready = {EVERY} if key == "t" else set()
        store.spaces.put(space(key))
        store.vectors.put(key, TEXT, keys, random_units(3, 4))
    assert store.spaces.activate("s") is True
    assert store.spaces.activate("t") is False
    behaviour.never_ready = set()
    store.vectors.build("t")
    assert store.spaces.activate("t") is True
