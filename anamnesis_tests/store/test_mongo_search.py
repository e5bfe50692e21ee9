"""Searches by MongoDB's search indexes: these follow a write later, take their time to be built, and may be gone."""

import logging
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pymongo import MongoClient

from anamnesis_pipeline.errors import RetryLater
from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import fulltext, index_tail, vector_search
from anamnesis_tests.mongo_server.search_behaviour import EVERY, SearchBehaviour
from anamnesis_tests.mongo_server.search_vectors import VectorMatrix
from anamnesis_tests.mongo_server.server import LoopbackServer
from anamnesis_tests.search.memory import Memory
from anamnesis_tests.store.mongo_searched import NAME, Open, found, kept, near, search_indexes, wait_until_queryable
from anamnesis_tests.store.mongo_watching import watched
from anamnesis_tests.store.samples import DAY, episode, passages, put, random_units, space, unit

TEXT, CONTEXT = Variant.TEXT, Variant.CONTEXT
EAST, WEST, NORTH = unit(1, 0, 0, 0), unit(-1, 0, 0, 0), unit(0, 1, 0, 0)


@pytest.fixture
def store(open_it: Open) -> Store:
    return open_it()


# --- what the index does not hold yet -------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [{"lag_s": 60.0}, {"frozen": True}])
def test_a_write_is_found_by_the_next_search_however_far_the_index_is_behind(
    store: Store, behaviour: SearchBehaviour, slow: dict[str, Any]
):
    store.spaces.put(space("s"))
    kept(store, "before", "old words", EAST)
    for name, value in slow.items():
        setattr(behaviour, name, value)
    assert (found(store, "new"), near(store, WEST, 1)) == ([], ["before"])
    kept(store, "after", "new words", WEST, context="under a heading")
    assert found(store, "words") == ["before", "after"]
    assert found(store, "new") == ["after"]
    assert [hit.episode_id for hit in store.text.matching(["heading"], 5, Where(), variant=CONTEXT)] == ["after"]
    assert [hit.episode_id for hit in store.text.matching(["new"], 5, Where(), analyzer="exact")] == ["after"]
    assert [hit.episode_id for hit in store.text.with_all(["new", "words"], 5, Where())] == ["after"]
    assert store.text.unknown(["new", "newer"]) == ["newer"]
    assert near(store, WEST) == ["after", "before"]


def test_what_was_superseded_or_deleted_leaves_the_results_at_once(store: Store, behaviour: SearchBehaviour):
    store.spaces.put(space("s"))
    for name in ("stays", "goes", "is replaced"):
        kept(store, name, "shared words", EAST)
    assert len(found(store, "shared")) == len(near(store, EAST)) == 3
    behaviour.frozen = True
    held = store.episodes.get(["is replaced"])["is replaced"]
    store.episodes.replace(replace(held, status="superseded"), passages("shared words"), held.content_hash)
    store.episodes.delete("goes")
    assert found(store, "shared") == near(store, EAST) == ["stays"]
    assert set(found(store, "shared", include_superseded=True)) == {"stays", "is replaced"}
    assert set(near(store, EAST, include_superseded=True)) == {"stays", "is replaced"}
    assert len(found(store, "shared", k=1)) == len(near(store, EAST, k=1)) == 1


def test_a_changed_vector_counts_and_no_more_the_one_that_the_index_holds(store: Store, behaviour: SearchBehaviour):
    store.spaces.put(space("s"))
    keys = [kept(store, f"e{i}", "text", EAST) for i in range(5)]
    assert near(store, EAST, 1) == ["e0"]
    behaviour.frozen = True
    store.vectors.put("s", TEXT, keys[:2], np.stack([WEST, NORTH]))
    hits = store.vectors.nearest("s", TEXT, EAST, 5, Where())
    assert [(hit.episode_id, round(hit.score, 6)) for hit in hits] == [
        ("e2", 1.0), ("e3", 1.0), ("e4", 1.0), ("e1", 0.0), ("e0", -1.0),
    ]  # fmt: skip
    assert near(store, WEST, 1) == ["e0"]


def test_filters_are_exact_to_the_last_row_while_the_index_is_behind(store: Store, behaviour: SearchBehaviour):
    store.spaces.put(space("s"))
    rng = np.random.default_rng(0)

    def write(number: int) -> None:
        fields = {
            "project": f"p{rng.integers(3)}", "kind": f"k{rng.integers(3)}", "source": f"s{rng.integers(2)}",
            "tags": tuple(f"t{i}" for i in range(3) if rng.random() < 0.5), "session_id": f"x{rng.integers(2)}",
        }  # fmt: skip
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
        Where(), Where(projects=("p1", "p2")), Where(hidden_projects=("p1",)), Where(kinds=("k0",), tags=("t1",)),
        Where(hidden_kinds=("k1", "k2")), Where(source="s1"), Where(session_id="x0"), Where(tags=("t0", "t2")),
        Where(since=DAY.replace(minute=30), until=DAY.replace(minute=50)),
        Where(layers=("episodic",), layers_at=DAY.replace(year=2027)), Where(instance="main", projects=("p0",)),
        Where(hidden_sources=("s1",)), Where(hidden_sources=("s1", "s0"), shown_projects=("p1",)),
    ]  # fmt: skip
    for where in wheres:
        passing = {item.episode_id for item in store.episodes.page(where, 1_000).items}
        assert {hit.episode_id for hit in store.text.matching(["shared"], 1_000, where)} == passing, where
        assert {hit.episode_id for hit in store.vectors.nearest("s", TEXT, EAST, 1_000, where)} == passing, where


def test_what_the_index_lacks_has_the_score_that_it_would_have_there(store: Store, behaviour: SearchBehaviour):
    for i in range(60):
        put(store, f"e{i}", f"the server number {i} slept well" + " and so on" * (i % 7), context="a server's heading")
    for i in range(30):
        put(store, f"bare {i}", f"nobody slept in room {i}", f"the {'save' if i % 2 else 'config'} of number {i}")
    text, heading = "the certificate of a server slept: SAVE_CONFIG in src/save/config.py", "how servers sleep-walk"
    put(store, "indexed", text, context=heading)
    words = ["server", "certificate", "slept", "SAVE_CONFIG", "save/config.py", "sleep-walk"]
    assert store.text.matching(words, 1, Where())[0].episode_id == "indexed"
    behaviour.frozen = True
    put(store, "late", text, context=heading)
    for options in ({}, {"variant": CONTEXT}, {"analyzer": "exact"}):
        scores = {h.episode_id: h.score for h in store.text.matching(words, 100, Where(), **options)}
        assert scores["late"] == pytest.approx(scores["indexed"], rel=0.05), options
        assert len(scores) == 92


def test_a_heading_that_the_newest_passages_lack_counts_in_what_the_index_lacks_as_it_does_there(
    store: Store, behaviour: SearchBehaviour
):
    put(store, "old", *(f"text number {i}" for i in range(300)), context="some heading of a file")
    put(store, "newer", *(f"text number {i}" for i in range(150)))
    put(store, "indexed", "text", context="the heading of a certificate")
    assert store.text.matching(["certificate"], 9, Where(), variant=CONTEXT)[0].episode_id == "indexed"
    behaviour.frozen = True
    put(store, "late", "text", context="the heading of a certificate")
    found = store.text.matching(["certificate"], 9, Where(), variant=CONTEXT)
    scores = {hit.episode_id: hit.score for hit in found}
    assert scores["late"] == pytest.approx(scores["indexed"], rel=0.15)  # by a sample of the headings


def test_a_new_process_reads_nothing_itself_where_nothing_was_written_for_long(
    store: Store, server: LoopbackServer, open_it: Open, monkeypatch: pytest.MonkeyPatch
):
    server.catalog.behaviour.lag_s = 0.0
    for i in range(60):
        put(store, f"e{i}", f"the server number {i} slept well" + " and so on" * (i % 7), context="a server's heading")
    wait_until_queryable(server, "passages")

    def ranked(of: Store) -> list[tuple[str, float]]:
        return [(hit.episode_id, hit.score) for hit in of.text.matching(["server", "slept", "well"], 20, Where())]

    lately = ranked(open_it())
    time.sleep(0.3)
    monkeypatch.setattr(index_tail, "QUIET_S", 0.2)
    monkeypatch.setattr(fulltext.MongoTextIndex, "_in_tail", lambda *_: pytest.fail("nothing was to be read"))
    assert ranked(open_it()) == lately, "read here or not, it is scored alike"


def test_what_is_few_is_asked_for_once_where_the_index_has_it_all(
    store: Store, server: LoopbackServer, open_it: Open, monkeypatch: pytest.MonkeyPatch
):
    server.catalog.behaviour.lag_s = 0.0
    store.spaces.put(space("s"))
    for i in range(60):
        kept(store, f"e{i}", "text", EAST, project="p" if i < 5 else "q")
    wait_until_queryable(server, "passages", "vectors_s")
    sent = watched(monkeypatch)
    reader = open_it()
    for where in ({}, {"projects": ("p",)}):
        assert near(reader, EAST, 100, **where)
    time.sleep(0.3)  # what the index has shown by then is there whole
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
    monkeypatch.setattr(index_tail, "SETTLED_AFTER_S", 600.0)
    behaviour.torn_s = 600.0
    keys = put(store, "e", "first words", "second", "third", "fourth words")
    store.vectors.put("s", TEXT, keys, np.stack([EAST, NORTH, WEST, EAST]))
    for _ in range(2):
        hits = store.vectors.nearest("s", TEXT, EAST, 2, Where())
        assert [hit.passage_id for hit in hits] == [keys[0], keys[3]]
        assert len(found(store, "words", k=2)) == 2


def test_of_a_large_transaction_that_an_index_shows_in_part_all_is_found(
    store: Store, server: LoopbackServer, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(index_tail, "UNSETTLED", 10)
    behaviour.lag_s = 0.0  # of what is torn the later half is there at once
    store.episodes.put([(episode(f"e{i}"), passages("shared words")) for i in range(40)])
    wait_until_queryable(server, "passages")
    found(store, "shared")
    time.sleep(0.2)
    assert len(found(store, "shared")) == 40  # and all that is whole
    monkeypatch.setattr(index_tail, "SETTLED_AFTER_S", 600.0)
    behaviour.torn_s = 600.0
    store.projects.call("acme/api", "renamed")
    assert len(found(store, "shared", projects=("renamed",))) == 40


def test_passages_that_another_process_changes_during_a_search_are_found(
    store: Store, open_it: Open, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
    behaviour.lag_s = 0.0
    store.spaces.put(space("s"))
    for i in range(3):
        kept(store, f"e{i}", "shared words", EAST)
    kept(store, "far", "other words", WEST)
    store.vectors.build("s")
    near(store, EAST)
    time.sleep(0.3)  # all that the index showed is whole by now
    other, behind = open_it(), vector_search.VectorSearch._behind

    def meanwhile(*args: Any) -> index_tail.Tail:
        tail = behind(*args)
        other.projects.call("acme/api", "renamed")  # which the index has at once
        return tail

    monkeypatch.setattr(vector_search.VectorSearch, "_behind", meanwhile)
    assert near(store, EAST) == ["e0", "e1", "e2", "far"]


def test_an_index_that_is_far_behind_is_told_of_and_the_newest_are_found(
    store: Store, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    store.spaces.put(space("s"))
    kept(store, "indexed", "shared words", EAST)
    assert found(store, "shared") == near(store, EAST) == ["indexed"]
    behaviour.frozen = True
    monkeypatch.setattr(index_tail, "STEPS", (0, 5))
    for i in range(20):
        kept(store, f"e{i}", "shared words", EAST)
    with caplog.at_level(logging.WARNING):
        assert set(found(store, "shared")) == {"indexed", *(f"e{i}" for i in range(15, 20))}
        assert set(near(store, EAST)) >= {"indexed", *(f"e{i}" for i in range(16, 20))}
    assert "more than 5 changes behind" in caplog.text


# --- an index that cannot be asked ----------------------------------------------------------------------------


def test_while_no_index_is_ready_little_is_read_and_much_is_refused_by_name(
    open_it: Open, behaviour: SearchBehaviour, monkeypatch: pytest.MonkeyPatch
):
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
        monkeypatch.setattr(module, "MOST_SCANNED", 5)
    assert set(found(store, "shared", projects=("few",))) == set(near(store, EAST, projects=("few",))) == {
        "e0", "e1", "e2",
    }  # fmt: skip
    with pytest.raises(RetryLater, match=r"search index passages_text of passages is (PENDING|BUILDING)"):
        found(store, "shared")
    with pytest.raises(RetryLater, match=r"search index vectors of vectors_s is (PENDING|BUILDING)"):
        near(store, EAST)
    with pytest.raises(RetryLater, match="passages_text"):
        store.text.unknown(["shared"])
    monkeypatch.setattr(fulltext, "CHECKED_FOR_S", 0.1)
    assert [problem.state for problem in store.text.check()] == ["down"]


@pytest.mark.parametrize(("down", "up"), [("dense_text", "words_text"), ("words_text", "dense_text")])
def test_a_search_names_the_index_that_is_down_and_answers_by_the_other(
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
    with MongoClient[dict[str, Any]](server.uri) as client:
        for index in search_indexes(server, collection):
            client[NAME][collection].drop_search_index(index)
    monkeypatch.setattr(vector_search if down == "dense_text" else fulltext, "MOST_SCANNED", 5)
    answer = memory.ask("gateway connection")
    assert answer.hits
    assert any(note.startswith(f"{down}: search index") for note in answer.degraded)
    assert not any(note.startswith(up) for note in answer.degraded)


def test_a_search_service_that_is_away_is_done_without_and_used_again(
    store: Store, server: LoopbackServer, behaviour: SearchBehaviour
):
    store.spaces.put(space("s"))
    kept(store, "a", "shared words", EAST)
    wait_until_queryable(server, "passages", "vectors_s")
    assert found(store, "shared") == near(store, EAST) == ["a"]
    behaviour.reachable = False
    kept(store, "b", "shared words", EAST)
    assert found(store, "shared") == near(store, EAST) == ["a", "b"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fulltext, "MOST_SCANNED", 1)
        with pytest.raises(RetryLater, match="does not answer"):
            found(store, "shared")
        behaviour.reachable = True
        assert sorted(found(store, "shared")) == ["a", "b"]


def test_an_index_that_somebody_dropped_does_not_hide_what_is_stored(store: Store, server: LoopbackServer):
    store.spaces.put(space("s"))
    kept(store, "a", "shared words", EAST)
    assert found(store, "shared") == near(store, EAST) == ["a"]
    with MongoClient[dict[str, Any]](server.uri) as client:
        for collection in ("passages", "vectors_s"):
            for index in search_indexes(server, collection):
                client[NAME][collection].drop_search_index(index)
    assert found(store, "shared") == near(store, EAST) == ["a"]
    assert found(store, "nothing") == []
    assert [len(search_indexes(server, collection)) for collection in ("passages", "vectors_s")] == [1, 1]
    assert store.vectors.build("s").indexed == 1


# --- scores and quantization ----------------------------------------------------------------------------------


@pytest.mark.parametrize("quantization", ["none", "scalar", "binary"])
def test_scores_are_the_cosines_of_what_is_stored_whatever_the_index_holds(open_it: Open, quantization: str):
    store = open_it(quantization=quantization)
    store.spaces.put(space("s", 16))
    items = [(episode(f"e{i}", project="few" if i % 20 == 0 else "many"), passages("text")) for i in range(400)]
    store.episodes.put(items)
    keys = [store.episodes.passages_of(f"e{i}")[0].passage_id for i in range(400)]
    store.vectors.put("s", TEXT, keys, random_units(400, 16))
    assert store.vectors.build("s").indexed == 400
    stored = store.vectors.get("s", TEXT, keys)
    for query in random_units(10, 16, seed=1):
        cosines = {key: float(vector @ query) for key, vector in stored.items()}
        best = sorted(cosines, key=lambda key: -cosines[key])
        hits = store.vectors.nearest("s", TEXT, query, 10, Where())
        ids = [hit.passage_id for hit in hits]
        assert ids == sorted(ids, key=lambda key: -cosines[key])
        assert [hit.score for hit in hits] == pytest.approx([cosines[key] for key in ids], abs=1e-6)
        overlooked = len(set(best[:10]) - set(ids))
        assert overlooked <= (3 if quantization == "binary" else 0)  # one bit a number, of sixteen numbers
        few = [key for key in best if key in keys[::20]]
        hits = store.vectors.nearest("s", TEXT, query, 5, Where(projects=("few",)))
        assert [hit.passage_id for hit in hits] == few[:5]
    assert store.vectors.recall("s") > (0.8 if quantization == "binary" else 0.99)


def test_index_that_finds_too_little_is_searched_exactly(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vector_search, "FEW", 50)
    store.spaces.put(space("s", 16))
    store.episodes.put([(episode(f"e{i}"), passages("text")) for i in range(400)])
    keys = [store.episodes.passages_of(f"e{i}")[0].passage_id for i in range(400)]
    vectors = random_units(400, 16)
    store.vectors.put("s", TEXT, keys, vectors)
    assert store.vectors.index_state("s").recall is None
    with monkeypatch.context() as poor:
        approximate = VectorMatrix.approximate
        poor.setattr(VectorMatrix, "approximate", lambda *given: approximate(*given)[3:])
        store.vectors.build("s")
        assert store.vectors.recall("s") == 1.0
        state = store.vectors.index_state("s")
        assert state.is_exact
        assert state.recall == pytest.approx(0.7, abs=0.05)
        assert store.vectors.nearest("s", TEXT, vectors[7], 1, Where())[0].passage_id == keys[7]
    store.vectors.recall("s")
    assert store.vectors.index_state("s").problem == ""


def test_never_fewer_than_asked_for_are_found_however_stale_the_index_is(store: Store, behaviour: SearchBehaviour):
    behaviour.lag_s = 0.0
    store.spaces.put(space("s"))
    near_by = [(episode(f"near{i}"), passages("text")) for i in range(300)]
    store.episodes.put([*near_by, *((episode(f"far{i}"), passages("text")) for i in range(20))])
    heads = [*(f"near{i}" for i in range(300)), *(f"far{i}" for i in range(20))]
    keys = [store.episodes.passages_of(name)[0].passage_id for name in heads]
    store.vectors.put("s", TEXT, keys, np.stack([EAST] * 300 + [WEST] * 20))
    store.vectors.build("s")
    assert near(store, WEST, 1) == ["far0"]
    time.sleep(0.2)  # all that the index showed is whole by now
    assert len(near(store, EAST, 400)) == 320
    behaviour.frozen = True
    for i in range(150):
        store.episodes.delete(f"near{i}")
    store.vectors.put("s", TEXT, keys[150:300], np.stack([NORTH] * 150))
    held = store.episodes.get(["near299"])["near299"]
    store.episodes.replace(replace(held, status="superseded"), passages("text"), held.content_hash)
    hits = store.vectors.nearest("s", TEXT, WEST, 20, Where())
    assert {hit.episode_id for hit in hits} == {f"far{i}" for i in range(20)}
    assert len(near(store, EAST, 160)) == 160
    assert len(near(store, EAST, 160, projects=("acme/api",))) == 160  # by an exact search
    assert len(near(store, EAST, 400)) == 169


def test_more_than_the_server_considers_are_found_too(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vector_search, "MOST_CANDIDATES", 50)
    store.spaces.put(space("s", 8))
    store.episodes.put([(episode(f"e{i}"), passages("text")) for i in range(120)])
    keys = [store.episodes.passages_of(f"e{i}")[0].passage_id for i in range(120)]
    vectors = random_units(120, 8)
    store.vectors.put("s", TEXT, keys, vectors)
    store.vectors.build("s")
    hits = store.vectors.nearest("s", TEXT, vectors[0], 100, Where())
    assert [hit.passage_id for hit in hits] == [keys[i] for i in np.argsort(-(vectors @ vectors[0]))[:100]]
