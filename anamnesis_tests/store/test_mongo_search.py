"""Searches by MongoDB's search indexes: these follow a write later, take their time to be built, and may be gone."""

import logging
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.errors import RetryLater
from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import fulltext, vector_search
from anamnesis_pipeline.store.mongo import search_indexes as search_indexes_of
from anamnesis_tests.store.mongo_searched import (
    NAME,
    Open,
    drop_search_indexes,
    found,
    kept,
    near,
    search_indexes,
    wait_until_queryable,
)
from anamnesis_tests.support.mongo_server.search_behaviour import EVERY, SearchBehaviour
from anamnesis_tests.support.mongo_server.search_vectors import VectorMatrix
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.mongo_watching import watched
from anamnesis_tests.support.samples import (
    DAY,
    edit,
    episode,
    filled,
    first_keys,
    passages,
    put,
    random_units,
    space,
    unit,
)
from anamnesis_tests.support.searched_memory import Memory

TEXT, CONTEXT = Variant.TEXT, Variant.CONTEXT
EAST, WEST, NORTH = unit(1, 0, 0, 0), unit(-1, 0, 0, 0), unit(0, 1, 0, 0)


@pytest.fixture
def store(open_it: Open) -> Store:
    return open_it()


# --- what the index does not hold yet -------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [{"lag_s": 60.0}, {"frozen": True}])
def test_write_is_found_however_far_the_index_is_behind(store: Store, behaviour: SearchBehaviour, slow: dict[str, Any]):
    store.spaces.put(space("s"))
    kept(store, "before", "old words", EAST)
    for name, value in slow.items():
        setattr(behaviour, name, value)
    assert (found(store, "new"), near(store, WEST, 1)) == ([], ["before"])
    kept(store, "after", "new words", WEST, context="under a heading")
    assert found(store, "words") == ["before", "after"]
    assert found(store, "new") == ["after"]
    assert [hit.episode_id for hit in store.text.matching(["heading"], 5, EpisodeFilter(), variant=CONTEXT)] == [
        "after"
    ]
    assert [hit.episode_id for hit in store.text.matching(["new"], 5, EpisodeFilter(), analyzer="exact")] == ["after"]
    assert [hit.episode_id for hit in store.text.with_all(["new", "words"], 5, EpisodeFilter())] == ["after"]
    assert store.text.unknown(["new", "newer"]) == ["newer"]
    assert near(store, WEST) == ["after", "before"]


def test_superseded_or_deleted_leaves_the_results_at_once(store: Store, behaviour: SearchBehaviour):
    store.spaces.put(space("s"))
    for name in ("stays", "goes", "is replaced"):
        kept(store, name, "shared words", EAST)
    assert len(found(store, "shared")) == len(near(store, EAST)) == 3
    behaviour.frozen = True
    edit(store, "is replaced", "shared words", status="superseded")
    store.episodes.delete("goes")
    assert found(store, "shared") == near(store, EAST) == ["stays"]
    assert set(found(store, "shared", include_superseded=True)) == {"stays", "is replaced"}
    assert set(near(store, EAST, include_superseded=True)) == {"stays", "is replaced"}
    assert len(found(store, "shared", k=1)) == len(near(store, EAST, k=1)) == 1


def test_changed_vector_counts_and_not_the_indexed_one(store: Store, behaviour: SearchBehaviour):
    store.spaces.put(space("s"))
    keys = [kept(store, f"e{i}", "text", EAST) for i in range(5)]
    assert near(store, EAST, 1) == ["e0"]
    behaviour.frozen = True
    store.vectors.put("s", TEXT, keys[:2], np.stack([WEST, NORTH]))
    hits = store.vectors.nearest("s", TEXT, EAST, 5, EpisodeFilter())
    assert [(hit.episode_id, round(hit.score, 6)) for hit in hits] == [
        ("e2", 1.0),
        ("e3", 1.0),
        ("e4", 1.0),
        ("e1", 0.0),
        ("e0", -1.0),
    ]
    assert near(store, WEST, 1) == ["e0"]


def test_filters_are_exact_while_the_index_is_behind(store: Store, behaviour: SearchBehaviour):
    store.spaces.put(space("s"))
    rng = np.random.default_rng(0)

    def write(number: int) -> None:
        fields = {
            "project": f"p{rng.integers(3)}",
            "kind": f"k{rng.integers(3)}",
            "source": f"s{rng.integers(2)}",
            "tags": tuple(f"t{i}" for i in range(3) if rng.random() < 0.5),
            "session_id": f"x{rng.integers(2)}",
        }
        name = f"e{number}"
        kept(store, name, "shared words", EAST, minute=int(rng.integers(100)), **fields)

    for number in range(60):
        write(number)
    assert len(found(store, "shared")) == 60
    behaviour.frozen = True
    for number in rng.choice(80, 40, replace=False):
        if rng.random() < 0.3:
            store.episodes.delete(f"e{number}")
        else:
            write(int(number))
    wheres = [
        EpisodeFilter(),
        EpisodeFilter(projects=("p1", "p2")),
        EpisodeFilter(hidden_projects=("p1",)),
        EpisodeFilter(kinds=("k0",), tags=("t1",)),
        EpisodeFilter(hidden_kinds=("k1", "k2")),
        EpisodeFilter(source="s1"),
        EpisodeFilter(session_id="x0"),
        EpisodeFilter(tags=("t0", "t2")),
        EpisodeFilter(since=DAY.replace(minute=30), until=DAY.replace(minute=50)),
        EpisodeFilter(layers=("episodic",), layers_at=DAY.replace(year=2027)),
        EpisodeFilter(instance="main", projects=("p0",)),
        EpisodeFilter(hidden_sources=("s1",)),
        EpisodeFilter(hidden_sources=("s1", "s0"), shown_projects=("p1",)),
    ]
    for where in wheres:
        passing = {item.episode_id for item in store.episodes.page(where, 1_000).items}
        assert {hit.episode_id for hit in store.text.matching(["shared"], 1_000, where)} == passing, where
        assert {hit.episode_id for hit in store.vectors.nearest("s", TEXT, EAST, 1_000, where)} == passing, where


def test_what_the_index_lacks_has_the_score_of_there(store: Store, behaviour: SearchBehaviour):
    for i in range(60):
        put(store, f"e{i}", f"the server number {i} slept well" + " and so on" * (i % 7), context="a server's heading")
    for i in range(30):
        put(store, f"bare {i}", f"nobody slept in room {i}", f"the {'save' if i % 2 else 'config'} of number {i}")
    text, heading = "the certificate of a server slept: SAVE_CONFIG in src/save/config.py", "how servers sleep-walk"
    put(store, "indexed", text, context=heading)
    words = ["server", "certificate", "slept", "SAVE_CONFIG", "save/config.py", "sleep-walk"]
    assert store.text.matching(words, 1, EpisodeFilter())[0].episode_id == "indexed"
    behaviour.frozen = True
    put(store, "late", text, context=heading)
    for options in ({}, {"variant": CONTEXT}, {"analyzer": "exact"}):
        scores = {h.episode_id: h.score for h in store.text.matching(words, 100, EpisodeFilter(), **options)}
        assert scores["late"] == pytest.approx(scores["indexed"], rel=0.05), options
        assert len(scores) == 92


def test_heading_counts_alike_in_what_the_index_lacks(store: Store, behaviour: SearchBehaviour):
    put(store, "old", *(f"text number {i}" for i in range(300)), context="some heading of a file")
    put(store, "newer", *(f"text number {i}" for i in range(150)))
    put(store, "indexed", "text", context="the heading of a certificate")
    assert store.text.matching(["certificate"], 9, EpisodeFilter(), variant=CONTEXT)[0].episode_id == "indexed"
    behaviour.frozen = True
    put(store, "late", "text", context="the heading of a certificate")
    found = store.text.matching(["certificate"], 9, EpisodeFilter(), variant=CONTEXT)
    scores = {hit.episode_id: hit.score for hit in found}
    assert scores["late"] == pytest.approx(scores["indexed"], rel=0.15)  # by a sample of the headings


def test_new_process_reads_none(store: Store, server: LoopbackServer, open_it: Open, monkeypatch: pytest.MonkeyPatch):
    server.catalog.behaviour.lag_s = 0.0
    for i in range(60):
        put(store, f"e{i}", f"the server number {i} slept well" + " and so on" * (i % 7), context="a server's heading")
    wait_until_queryable(server, "passages")

    def ranked(of: Store) -> list[tuple[str, float]]:
        return [
            (hit.episode_id, hit.score) for hit in of.text.matching(["server", "slept", "well"], 20, EpisodeFilter())
        ]

    lately = ranked(open_it())
    monkeypatch.setattr(search_indexes_of, "QUIET_S", 0.0)
    monkeypatch.setattr(fulltext.MongoTextIndex, "_scored", lambda *_: pytest.fail("nothing was to be read"))
    assert ranked(open_it()) == lately, "read here or not, it is scored alike"


def test_few_are_asked_for_once(store: Store, server: LoopbackServer, open_it: Open, monkeypatch: pytest.MonkeyPatch):
    server.catalog.behaviour.lag_s = 0.0
    store.spaces.put(space("s"))
    for i in range(60):
        kept(store, f"e{i}", "text", EAST, project="p" if i < 5 else "q")
    wait_until_queryable(server, "passages", "vectors_s")
    sent = watched(monkeypatch)
    reader = open_it()
    for where in ({}, {"projects": ("p",)}):
        assert near(reader, EAST, 100, **where)
    assert len(near(reader, EAST, 100)) == 60
    some = sent.during(lambda: near(reader, EAST, 10))
    assert sent.during(lambda: near(reader, EAST, 100)) == some
    some_of_few = sent.during(lambda: near(reader, EAST, 2, projects=("p",)))
    assert sent.during(lambda: near(reader, EAST, 50, projects=("p",))) == some_of_few


def test_what_an_index_shows_only_in_part_is_found_whole(
    store: Store, server: LoopbackServer, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    behaviour.lag_s = 0.0  # of what is torn the later half is there at once
    store.spaces.put(space("s"))
    kept(store, "before", "other", WEST)
    store.vectors.build("s")
    wait_until_queryable(server, "passages", "vectors_s")
    monkeypatch.setattr(search_indexes_of, "SETTLED_AFTER_S", 600.0)
    behaviour.torn_s = 600.0
    keys = put(store, "e", "first words", "second", "third", "fourth words")
    store.vectors.put("s", TEXT, keys, np.stack([EAST, NORTH, WEST, EAST]))
    for _ in range(2):
        hits = store.vectors.nearest("s", TEXT, EAST, 2, EpisodeFilter())
        assert [hit.passage_id for hit in hits] == [keys[0], keys[3]]
        assert len(found(store, "words", k=2)) == 2


def test_large_transaction_shown_in_part_is_found_whole(
    store: Store, server: LoopbackServer, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(search_indexes_of, "UNSETTLED", 10)
    behaviour.lag_s = 0.0  # of what is torn the later half is there at once
    store.episodes.put([(episode(f"e{i}"), passages("shared words")) for i in range(40)])
    wait_until_queryable(server, "passages")
    found(store, "shared")
    assert len(found(store, "shared")) == 40  # and all that is whole
    monkeypatch.setattr(search_indexes_of, "SETTLED_AFTER_S", 600.0)
    behaviour.torn_s = 600.0
    store.projects.call("acme/api", "renamed")
    assert len(found(store, "shared", projects=("renamed",))) == 40


def test_passages_changed_during_a_search_are_found(
    store: Store, open_it: Open, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    behaviour.lag_s = 0.0
    store.spaces.put(space("s"))
    for i in range(3):
        kept(store, f"e{i}", "shared words", EAST)
    kept(store, "far", "other words", WEST)
    store.vectors.build("s")
    near(store, EAST)
    other, behind = open_it(), vector_search.VectorSearch._behind

    def meanwhile(*args: Any) -> search_indexes_of.Tail:
        tail = behind(*args)
        other.projects.call("acme/api", "renamed")  # which the index has at once
        return tail

    monkeypatch.setattr(vector_search.VectorSearch, "_behind", meanwhile)
    assert near(store, EAST) == ["e0", "e1", "e2", "far"]


def test_index_far_behind_is_told_and_the_newest_are_found(
    store: Store, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    store.spaces.put(space("s"))
    kept(store, "indexed", "shared words", EAST)
    assert found(store, "shared") == near(store, EAST) == ["indexed"]
    behaviour.frozen = True
    monkeypatch.setattr(search_indexes_of, "STEPS", (0, 5))
    for i in range(20):
        kept(store, f"e{i}", "shared words", EAST)
    with caplog.at_level(logging.WARNING):
        assert set(found(store, "shared")) == {"indexed", *(f"e{i}" for i in range(15, 20))}
        assert set(near(store, EAST)) >= {"indexed", *(f"e{i}" for i in range(16, 20))}
    assert "more than 5 changes behind" in caplog.text


# --- an index that cannot be asked ----------------------------------------------------------------------------


def test_without_an_index_much_is_refused(open_it: Open, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch):
    behaviour.never_ready = {EVERY}
    store = open_it()
    store.spaces.put(space("s"))
    for i in range(20):
        kept(store, f"e{i}", f"shared words {i}", EAST if i % 2 else WEST, project="few" if i < 3 else "many")
    assert len(found(store, "shared")) == len(near(store, EAST)) == 20
    assert found(store, "7") == ["e7"]
    assert set(near(store, EAST, 10)) == {f"e{i}" for i in range(1, 20, 2)}
    assert store.text.unknown(["shared", "else"]) == ["else"]
    for module in (fulltext, vector_search):
        monkeypatch.setattr(module, "MAX_SCANNED", 5)
    assert (
        set(found(store, "shared", projects=("few",)))
        == set(near(store, EAST, projects=("few",)))
        == {
            "e0",
            "e1",
            "e2",
        }
    )
    with pytest.raises(RetryLater, match=r"search index passages_text of passages is (PENDING|BUILDING)"):
        found(store, "shared")
    with pytest.raises(RetryLater, match=r"search index vectors of vectors_s is (PENDING|BUILDING)"):
        near(store, EAST)
    with pytest.raises(RetryLater, match="passages_text"):
        store.text.unknown(["shared"])
    monkeypatch.setattr(fulltext, "CHECKED_FOR_S", 0.1)
    assert [problem.state for problem in store.text.check()] == ["down"]


@pytest.mark.parametrize(("down", "up"), [("dense_text", "words_text"), ("words_text", "dense_text")])
def test_search_names_the_index_that_is_down(
    store: Store,
    server: LoopbackServer,
    behaviour: SearchBehaviour,
    monkeypatch: pytest.MonkeyPatch,
    down: str,
    up: str,
):
    memory = Memory(store)
    for i in range(10):
        memory.add(f"the gateway refused connection number {i}")
    behaviour.never_ready = {EVERY}
    collection = "vectors_hashing" if down == "dense_text" else "passages"
    drop_search_indexes(server, collection)
    monkeypatch.setattr(vector_search if down == "dense_text" else fulltext, "MAX_SCANNED", 5)
    answer = memory.ask("gateway connection")
    assert answer.hits
    assert any(note.startswith(f"{down}: search index") for note in answer.degraded)
    assert not any(note.startswith(up) for note in answer.degraded)


def test_search_goes_on_without_its_service(store: Store, server: LoopbackServer, behaviour: SearchBehaviour):
    store.spaces.put(space("s"))
    kept(store, "a", "shared words", EAST)
    wait_until_queryable(server, "passages", "vectors_s")
    assert found(store, "shared") == near(store, EAST) == ["a"]
    behaviour.reachable = False
    kept(store, "b", "shared words", EAST)
    assert found(store, "shared") == near(store, EAST) == ["a", "b"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fulltext, "MAX_SCANNED", 1)
        with pytest.raises(RetryLater, match="does not answer"):
            found(store, "shared")
        behaviour.reachable = True
        assert sorted(found(store, "shared")) == ["a", "b"]


def test_dropped_index_does_not_hide_what_is_stored(store: Store, server: LoopbackServer):
    store.spaces.put(space("s"))
    kept(store, "a", "shared words", EAST)
    assert found(store, "shared") == near(store, EAST) == ["a"]
    drop_search_indexes(server, "passages", "vectors_s")
    assert found(store, "shared") == near(store, EAST) == ["a"]
    assert found(store, "nothing") == []
    assert [len(search_indexes(server, collection)) for collection in ("passages", "vectors_s")] == [1, 1]
    assert store.vectors.build("s").indexed == 1


# --- scores and quantization ----------------------------------------------------------------------------------


@pytest.mark.parametrize("quantization", ["none", "scalar", "binary"])
def test_scores_are_the_cosines_of_what_is_stored(open_it: Open, quantization: str):
    store = open_it(quantization=quantization)
    keys, _ = filled(store, 400, 16)
    assert store.vectors.build("s").indexed == 400
    stored = store.vectors.get("s", TEXT, keys)
    for query in random_units(10, 16, seed=1):
        cosines = {key: float(vector @ query) for key, vector in stored.items()}
        best = sorted(cosines, key=lambda key: -cosines[key])
        hits = store.vectors.nearest("s", TEXT, query, 10, EpisodeFilter())
        ids = [hit.passage_id for hit in hits]
        assert ids == sorted(ids, key=lambda key: -cosines[key])
        assert [hit.score for hit in hits] == pytest.approx([cosines[key] for key in ids], abs=1e-6)
        overlooked = len(set(best[:10]) - set(ids))
        assert overlooked <= (3 if quantization == "binary" else 0)  # one bit a number, of sixteen numbers
        few = [key for key in best if key in keys[::10]]
        hits = store.vectors.nearest("s", TEXT, query, 5, EpisodeFilter(projects=("few",)))
        assert [hit.passage_id for hit in hits] == few[:5]
    assert store.vectors.recall("s") > (0.8 if quantization == "binary" else 0.99)


def test_index_that_finds_too_little_is_searched_exactly(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vector_search, "FEW", 50)
    keys, vectors = filled(store, 400, 16)
    assert store.vectors.index_state("s").recall is None
    with monkeypatch.context() as poor:
        approximate = VectorMatrix.approximate
        poor.setattr(VectorMatrix, "approximate", lambda *given: approximate(*given)[3:])
        store.vectors.build("s")
        assert store.vectors.recall("s") == 1.0
        state = store.vectors.index_state("s")
        assert state.is_exact
        assert state.recall == pytest.approx(0.7, abs=0.05)
        assert store.vectors.nearest("s", TEXT, vectors[7], 1, EpisodeFilter())[0].passage_id == keys[7]
    store.vectors.recall("s")
    assert store.vectors.index_state("s").problem == ""


def test_never_fewer_than_asked_for_are_found(store: Store, behaviour: SearchBehaviour):
    behaviour.lag_s = 0.0
    store.spaces.put(space("s"))
    names = [*(f"near{i}" for i in range(300)), *(f"far{i}" for i in range(20))]
    store.episodes.put([(episode(name), passages("text")) for name in names])
    keys = first_keys(store, *names)
    store.vectors.put("s", TEXT, keys, np.stack([EAST] * 300 + [WEST] * 20))
    store.vectors.build("s")
    assert near(store, WEST, 1) == ["far0"]
    assert len(near(store, EAST, 400)) == 320
    behaviour.frozen = True
    for i in range(150):
        store.episodes.delete(f"near{i}")
    store.vectors.put("s", TEXT, keys[150:300], np.stack([NORTH] * 150))
    edit(store, "near299", "text", status="superseded")
    hits = store.vectors.nearest("s", TEXT, WEST, 20, EpisodeFilter())
    assert {hit.episode_id for hit in hits} == {f"far{i}" for i in range(20)}
    assert len(near(store, EAST, 160)) == 160
    assert len(near(store, EAST, 160, projects=("acme/api",))) == 160  # by an exact search
    assert len(near(store, EAST, 400)) == 169


def test_more_than_the_server_considers_are_found_too(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vector_search, "MAX_CANDIDATES", 50)
    keys, vectors = filled(store, 120)
    store.vectors.build("s")
    hits = store.vectors.nearest("s", TEXT, vectors[0], 100, EpisodeFilter())
    assert [hit.passage_id for hit in hits] == [keys[i] for i in np.argsort(-(vectors @ vectors[0]))[:100]]


# --- a process that goes on while its database is dropped and restored: keys, ids and `seq` begin again -------------


def test_words_are_found_in_the_passages_that_have_them_now(store: Store, server: LoopbackServer, open_it: Open):
    server.catalog.behaviour.frozen = True
    for i in range(3):
        put(store, f"old{i}", "apple words")
    assert len(found(store, "apple")) == 3
    server.drop(NAME)
    restored = open_it()
    for i in range(3):
        put(restored, f"new{i}", "banana words")
    assert found(store, "apple") == []
    assert len(found(store, "banana")) == 3
    assert store.text.unknown(["apple", "banana"]) == ["apple"]


def test_what_the_new_index_lacks_is_read_as_before(store: Store, server: LoopbackServer, open_it: Open):
    server.catalog.behaviour.lag_s = 0.0
    store.spaces.put(space("s"))
    for i in range(5):
        kept(store, f"old{i}", "apple words", EAST)
    wait_until_queryable(server, "passages", "vectors_s")
    for _ in range(2):  # after which all that the indexes showed is whole
        assert len(found(store, "apple")) == len(near(store, EAST)) == 5
    server.drop(NAME)
    restored = open_it()
    restored.spaces.put(space("s"))
    for i in range(3):
        kept(restored, f"new{i}", "banana words", WEST)
    restored.vectors.build("s")
    server.catalog.behaviour.frozen = True
    kept(restored, "fresh", "cherry words", NORTH)
    assert found(store, "cherry") == ["fresh"]
    assert near(store, NORTH, 1) == ["fresh"]


def test_space_is_searched_by_its_own_index(
    store: Store, server: LoopbackServer, open_it: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(vector_search, "MAX_SCANNED", 2)
    store.spaces.put(space("t", dim=8))
    (key,) = put(store, "x", "text")
    store.vectors.put("t", Variant.TEXT, [key], random_units(1, 8))
    assert len(store.vectors.nearest("t", Variant.TEXT, random_units(1, 8)[0], 3, EpisodeFilter())) == 1
    server.drop(NAME)
    restored = open_it()
    restored.spaces.put(space("s"))
    for i in range(5):
        kept(restored, f"new{i}", "text", WEST)
    restored.vectors.build("s")
    assert near(store, WEST) == [f"new{i}" for i in range(5)]
    assert store.vectors.build("s").rebuilt is False


# --- how far an index is behind, as a process learns it --------------------------------------------------------


def test_index_known_to_hold_the_newest_is_not_asked_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search_indexes_of, "SETTLED_AFTER_S", 5.0)
    asked: list[int] = []
    now = held = 0
    tail = search_indexes_of.IndexTail(lambda: now)

    def holds(seq: int) -> bool:
        asked.append(seq)
        return seq <= held

    def behind(newest: int) -> tuple[int, bool]:
        asked.clear()
        seen = tail.behind("i", newest, holds)
        return seen.since, seen.is_whole

    assert behind(50) == (0, True)
    held = 50
    assert (behind(50), asked) == ((0, True), [50]), "it shows this one, and may lack one before"
    assert (behind(50), asked) == ((0, True), [])
    now = 6
    assert (behind(50), asked) == ((50, True), [])
    assert (behind(149), asked) == ((50, True), [149])
    held = 5_000
    assert (behind(5_100), asked) == ((50, True), [5_100, 5_000]), "all since may be one transaction"
    now = 12
    assert (behind(5_100), asked) == ((5_000, True), [5_100])
    assert (behind(30_000), asked) == ((20_000, False), [30_000, 29_900, 29_000, 20_000])
    assert (behind(4_000), asked) == ((3_000, True), [4_000]), "the collection was restored"
    tail.forget("i")
    assert (behind(5_000), asked) == ((4_000, True), [5_000])


def test_index_that_shows_the_newest_is_whole_after_a_quiet_time():
    asked: list[int] = []
    unused, held = 0.0, 50

    def holds(seq: int) -> bool:
        return seq <= held

    def unused_s() -> float:
        asked.append(1)
        return unused

    def since(tail: search_indexes_of.IndexTail, newest: int) -> int:
        return tail.behind("i", newest, holds, unused_s).since

    assert since(search_indexes_of.IndexTail(), 50) == 0, "something was written just now"
    unused = search_indexes_of.QUIET_S
    new = search_indexes_of.IndexTail()
    assert (since(new, 60), asked) == (0, [1]), "it lacks the newest, and nobody asks for how long"
    assert (since(new, 50), since(new, 50), asked) == (50, 50, [1, 1])
    held = 60
    assert (since(new, 60), asked) == (50, [1, 1]), "from then on what it shows tells more"
