from collections.abc import Callable, Mapping
from typing import Any

import pytest

from anamnesis_tests.mongo_server.search_behaviour import EVERY
from anamnesis_tests.mongo_server.search_catalog import SearchCatalog
from anamnesis_tests.mongo_server.search_errors import SearchRefused

VECTORS = {
    "fields": [
        {"type": "vector", "path": "v", "numDimensions": 2, "similarity": "cosine"},
        {"type": "filter", "path": "kind"},
    ]
}
TEXTS = {"mappings": {"dynamic": False, "fields": {"text": {"type": "string"}, "kind": {"type": "token"}}}}


class World:
    """A collection, a clock, and the search process that follows them."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.documents: dict[Any, Mapping[str, Any]] = {}
        self.catalog = SearchCatalog(lambda _db, _coll: self.documents, clock=lambda: self.now)

    def write(self, *documents: Mapping[str, Any]) -> None:
        self.documents |= {document["_id"]: document for document in documents}
        self.catalog.committed("db", "c", [document["_id"] for document in documents])

    def delete(self, key: Any) -> None:
        del self.documents[key]
        self.catalog.committed("db", "c", [key])

    def create(self, name: str, kind: str, definition: Mapping[str, Any]) -> None:
        self.catalog.create("db", "c", [{"name": name, "type": kind, "definition": definition}])

    def state(self, name: str) -> tuple[str, bool]:
        [found] = self.catalog.list("db", "c", name)
        return found["status"], found["queryable"]

    def nearest(self, **body: Any) -> list[Any]:
        stage = {"index": "i", "path": "v", "queryVector": [1.0, 0.0], "limit": 10} | body
        return self._ids({"$vectorSearch": stage if "exact" in stage else stage | {"numCandidates": 10}})

    def text(self, query: str) -> list[Any]:
        return self._ids({"$search": {"index": "t", "text": {"query": query, "path": "text"}}})

    def _ids(self, stage: Mapping[str, Any]) -> list[Any]:
        return [document["_id"] for document, _ in self.catalog.run("db", "c", stage)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def built(world: World) -> World:
    world.create("i", "vectorSearch", VECTORS)
    world.create("t", "search", TEXTS)
    world.now += 1
    return world


def refused(call: Callable[[], Any]) -> SearchRefused:
    with pytest.raises(SearchRefused) as caught:
        call()
    return caught.value


def test_an_index_is_built_some_time_after_the_command(world: World) -> None:
    world.catalog.behaviour.build_s = 10
    world.create("i", "vectorSearch", VECTORS)
    seen = []
    for _ in range(4):
        seen.append(world.state("i"))
        world.now += 4
    assert seen == [("PENDING", False), ("BUILDING", False), ("BUILDING", False), ("READY", True)]


def test_a_query_before_the_index_is_ready_is_refused_with_its_state(world: World) -> None:
    world.catalog.behaviour.build_s = 10
    world.create("i", "vectorSearch", VECTORS)
    messages = []
    for _ in range(3):
        error = refused(world.nearest)
        assert (error.code, error.code_name) == (8, "UnknownError")
        messages.append(error.message.rpartition(" ")[2])
        world.now += 1.5
    assert messages == ["initialized", "NOT_STARTED", "INITIAL_SYNC"]


def test_an_index_that_does_not_exist_finds_nothing(world: World) -> None:
    world.write({"_id": 1, "v": [1.0, 0.0], "text": "word"})
    assert (world.nearest(), world.text("word")) == ([], [])


def test_the_counts_of_an_index_that_does_not_exist_are_zero(world: World) -> None:
    stage = {"$searchMeta": {"exists": {"path": "text"}, "count": {"type": "total"}}}
    assert world.catalog.run("db", "c", stage) == [({"count": {"total": 0}}, {})]


def test_an_index_holds_what_was_there_before_it(world: World) -> None:
    world.write({"_id": 1, "v": [1.0, 0.0], "text": "word"})
    world.create("i", "vectorSearch", VECTORS)
    world.create("t", "search", TEXTS)
    world.now += 1
    assert (world.nearest(), world.text("word")) == ([1], [1])


def test_a_commit_is_found_after_the_lag_and_not_before(built: World) -> None:
    built.catalog.behaviour.lag_s = 5
    built.write({"_id": 1, "v": [1.0, 0.0], "text": "word"})
    built.now += 4.9
    assert (built.nearest(), built.text("word")) == ([], [])
    built.now += 0.2
    assert (built.nearest(), built.text("word")) == ([1], [1])


def test_commits_become_visible_in_their_order_also_when_the_lag_shrinks(built: World) -> None:
    built.catalog.behaviour.lag_s = 5
    built.write({"_id": 1, "v": [1.0, 0.0]})
    built.catalog.behaviour.lag_s = 0
    built.write({"_id": 2, "v": [1.0, 0.1]})
    built.now += 1
    assert built.nearest() == []
    built.now += 5
    assert built.nearest() == [1, 2]


def test_a_commit_can_be_half_visible_its_end_first(built: World) -> None:
    built.catalog.behaviour.torn_s = 5
    built.write(*({"_id": number, "v": [1.0, number / 10]} for number in range(4)))
    built.now += 1
    assert built.nearest() == [2, 3]
    built.now += 5
    assert built.nearest() == [0, 1, 2, 3]


def test_a_frozen_index_answers_from_what_it_has(built: World) -> None:
    built.write({"_id": 1, "v": [1.0, 0.0]})
    built.now += 1
    assert built.nearest() == [1]
    built.catalog.behaviour.frozen = True
    built.write({"_id": 2, "v": [1.0, 0.1]})
    built.now += 1000
    assert built.nearest() == [1]
    built.catalog.behaviour.frozen = False
    assert built.nearest() == [1, 2]


def test_an_index_is_built_while_changes_are_frozen(world: World) -> None:
    world.write({"_id": 1, "v": [1.0, 0.0]})
    world.catalog.behaviour.frozen = True
    world.create("i", "vectorSearch", VECTORS)
    world.now += 1
    assert world.nearest() == [1]


def test_catching_up_applies_all_commits_at_once(built: World) -> None:
    built.catalog.behaviour.lag_s = 1000
    built.write({"_id": 1, "v": [1.0, 0.0], "text": "word"})
    built.catalog.catch_up()
    assert (built.nearest(), built.text("word")) == ([1], [1])


def test_a_hit_is_read_as_the_document_is_now(built: World) -> None:
    built.write({"_id": 1, "text": "word", "n": 1})
    built.now += 1
    built.catalog.behaviour.frozen = True
    built.write({"_id": 1, "text": "other", "n": 2})
    stage = {"$search": {"index": "t", "text": {"query": "word", "path": "text"}}}
    assert [document["n"] for document, _ in built.catalog.run("db", "c", stage)] == [2]


def test_a_document_that_is_gone_leaves_a_gap_in_the_hits(built: World) -> None:
    built.write({"_id": 1, "v": [1.0, 0.0]}, {"_id": 2, "v": [1.0, 0.1]})
    built.now += 1
    built.catalog.behaviour.frozen = True
    built.delete(1)
    assert built.nearest(limit=1) == []
    assert built.nearest(limit=2) == [2]


def test_a_removed_document_leaves_the_index(built: World) -> None:
    built.write({"_id": 1, "v": [1.0, 0.0], "text": "word"}, {"_id": 2, "v": [1.0, 0.1]})
    built.delete(1)
    built.now += 1
    assert (built.nearest(limit=1), built.text("word")) == ([2], [])


def test_an_index_can_stay_in_its_build_for_ever(world: World) -> None:
    world.catalog.behaviour.never_ready.add("i")
    world.create("i", "vectorSearch", VECTORS)
    world.create("t", "search", TEXTS)
    world.now += 10_000
    assert (world.state("i"), world.state("t")) == (("BUILDING", False), ("READY", True))
    world.catalog.behaviour.never_ready.clear()
    assert world.state("i") == ("READY", True)


def test_a_failed_index_says_so_and_answers_nothing(world: World) -> None:
    world.catalog.behaviour.failing.add(EVERY)
    world.create("i", "vectorSearch", VECTORS)
    world.now += 1
    assert world.state("i") == ("FAILED", False)
    assert refused(world.nearest).message.endswith("in state FAILED")


def test_the_old_definition_is_queried_until_the_new_one_is_built(built: World) -> None:
    built.write({"_id": 1, "v": [1.0, 0.0], "n": 1})
    built.now += 1
    built.catalog.behaviour.build_s = 10
    wider = {"fields": [*VECTORS["fields"], {"type": "filter", "path": "n"}]}
    built.catalog.update("db", "c", "i", wider)
    built.now += 5
    assert built.state("i") == ("BUILDING", True)
    assert built.nearest() == [1]
    assert "indexed as filter" in refused(lambda: built.nearest(filter={"n": 1})).message
    built.now += 6
    assert built.state("i") == ("READY", True)
    assert built.nearest(filter={"n": 1}) == [1]


def test_a_document_written_during_an_update_is_in_the_new_definition(built: World) -> None:
    built.catalog.behaviour.build_s = 10
    built.catalog.update("db", "c", "i", {"fields": [*VECTORS["fields"], {"type": "filter", "path": "n"}]})
    built.write({"_id": 1, "v": [1.0, 0.0], "n": 1})
    built.now += 11
    assert built.nearest(filter={"n": 1}) == [1]


def test_the_same_definition_twice_is_no_error_and_another_one_is(built: World) -> None:
    built.create("i", "vectorSearch", VECTORS)
    error = refused(lambda: built.create("i", "search", TEXTS))
    assert (error.code, error.code_name) == (68, "IndexAlreadyExists")
    assert len(built.catalog.list("db", "c")) == 2


def test_a_dropped_index_is_gone_and_cannot_be_dropped_again(built: World) -> None:
    built.catalog.drop("db", "c", "i")
    assert [found["name"] for found in built.catalog.list("db", "c")] == ["t"]
    assert refused(lambda: built.catalog.drop("db", "c", "i")).code == 27


def test_indexes_go_with_their_collection_and_database(built: World) -> None:
    built.catalog.create("db", "d", [{"name": "i", "type": "vectorSearch", "definition": VECTORS}])
    built.catalog.drop_collection("db", "c")
    assert (len(built.catalog.list("db", "c")), len(built.catalog.list("db", "d"))) == (0, 1)
    built.catalog.drop_database("db")
    assert built.catalog.list("db", "d") == []


def test_a_collection_that_does_not_exist_gets_no_index() -> None:
    catalog = SearchCatalog(lambda _db, _coll: {}, exists=lambda _db, _coll: False)
    error = refused(lambda: catalog.create("db", "c", [{"definition": TEXTS}]))
    assert (error.code, error.message) == (26, "Collection 'db.c' does not exist.")


def test_a_process_that_does_not_run_is_another_error_for_queries_than_for_commands(built: World) -> None:
    built.catalog.behaviour.reachable = False
    assert refused(built.nearest).code == 6
    assert refused(lambda: built.create("j", "search", TEXTS)).code == 125
    assert refused(lambda: built.catalog.list("db", "c")).code == 125
    built.catalog.behaviour.reachable = True
    assert built.nearest() == []


def test_a_definition_is_listed_with_the_defaults_of_its_fields(built: World) -> None:
    [found] = built.catalog.list("db", "c", "t")
    text = found["latestDefinition"]["mappings"]["fields"]["text"]
    assert text == {"type": "string", "indexOptions": "offsets", "store": True, "norms": "include"}
    assert (found["type"], found["latestDefinitionVersion"]["version"]) == ("search", 0)
