"""A process that goes on while its database is dropped and restored: keys, ids and `seq` begin anew."""

import time

import pytest
from pymongo import MongoClient

from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import vector_search
from anamnesis_tests.mongo_server.server import LoopbackServer
from anamnesis_tests.store.mongo_searched import NAME, Open, found, kept, near, wait_until_queryable
from anamnesis_tests.store.samples import put, random_units, space, unit

EAST, WEST, NORTH = unit(1, 0, 0, 0), unit(-1, 0, 0, 0), unit(0, 1, 0, 0)


@pytest.fixture
def going_on(open_it: Open) -> Store:
    """The store of the process that goes on."""
    return open_it()


def dropped(server: LoopbackServer) -> None:
    with MongoClient[dict[str, object]](server.uri) as client:
        client.drop_database(NAME)


def test_words_are_found_in_the_passages_that_have_them_now(going_on: Store, server: LoopbackServer, open_it: Open):
    server.catalog.behaviour.frozen = True
    for i in range(3):
        put(going_on, f"old{i}", "apple words")
    assert len(found(going_on, "apple")) == 3
    dropped(server)
    restored = open_it()
    for i in range(3):
        put(restored, f"new{i}", "banana words")
    assert found(going_on, "apple") == []
    assert len(found(going_on, "banana")) == 3
    assert going_on.text.unknown(["apple", "banana"]) == ["apple"]


def test_what_the_new_index_lacks_is_read_however_far_the_old_one_was(
    going_on: Store, server: LoopbackServer, open_it: Open
):
    server.catalog.behaviour.lag_s = 0.0
    going_on.spaces.put(space("s"))
    for i in range(5):
        kept(going_on, f"old{i}", "apple words", EAST)
    wait_until_queryable(server, "passages", "vectors_s")
    for wait_s in (0.0, 0.2):  # after which all that the indexes showed is whole
        time.sleep(wait_s)
        assert len(found(going_on, "apple")) == len(near(going_on, EAST)) == 5
    dropped(server)
    restored = open_it()
    restored.spaces.put(space("s"))
    for i in range(3):
        kept(restored, f"new{i}", "banana words", WEST)
    restored.vectors.build("s")
    server.catalog.behaviour.frozen = True
    kept(restored, "fresh", "cherry words", NORTH)
    assert found(going_on, "cherry") == ["fresh"]
    assert near(going_on, NORTH, 1) == ["fresh"]


def test_a_space_is_searched_by_its_own_index_whatever_space_had_its_id(
    going_on: Store, server: LoopbackServer, open_it: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(vector_search, "MOST_SCANNED", 2)
    going_on.spaces.put(space("t", dim=8))
    (key,) = put(going_on, "x", "text")
    going_on.vectors.put("t", Variant.TEXT, [key], random_units(1, 8))
    assert len(going_on.vectors.nearest("t", Variant.TEXT, random_units(1, 8)[0], 3, Where())) == 1
    dropped(server)
    restored = open_it()
    restored.spaces.put(space("s"))
    for i in range(5):
        kept(restored, f"new{i}", "text", WEST)
    restored.vectors.build("s")
    assert near(going_on, WEST) == [f"new{i}" for i in range(5)]
    assert going_on.vectors.build("s").rebuilt is False
