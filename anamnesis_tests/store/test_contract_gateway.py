"""What the verbs of an engine do, on a table that these tests add."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.services.store_copies import move
from anamnesis_pipeline.store import tables
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import Field, Gateway, Match, Row, Rows, Tables, beyond
from anamnesis_pipeline.store.mongo import schema
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.store.tables import Flag, by, table
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.mongo_server import shared
from anamnesis_tests.support.samples import put

PLANTS = table(
    "plants",
    "bed, name",
    "number int, height real, wet flag, eaten_by text?, colours texts, seed bytes",
    [by("wet", {"wet": 1}), by("eaten_by", {"eaten_by": tables.TEXT})],
    flags={"thirsty": Flag(unset=("eaten_by",), equal={"wet": 0}, unequal={"bed": "name"})},
    serial="number",
)


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare the table, as an entry of `tables.py` would, before a store is opened."""
    monkeypatch.setitem(tables.BY_NAME, PLANTS.name, PLANTS)
    monkeypatch.setitem(schema.COLLECTIONS, PLANTS.name, schema.indexes_of(PLANTS.name))


@pytest.fixture
def gateway(declared: None, store: Store) -> Gateway:
    return store.gateway


def plant(name: str, bed: str = "north", **fields: object) -> Row:
    row: Row = {
        "bed": bed,
        "name": name,
        "height": 1.5,
        "wet": 0,
        "eaten_by": None,
        "colours": ["green"],
        "seed": b"\0",
    }
    return row | fields


def insert(gateway: Gateway, *rows: Row) -> int:
    return gateway.write(lambda held: held["plants"].insert(rows))


@pytest.fixture
def filled(gateway: Gateway) -> Iterator[Rows]:
    insert(
        gateway,
        plant("aster", height=0.5, eaten_by=""),
        plant("beet", height=0.25, wet=1, eaten_by="Hare"),
        plant("Chard", bed="south", wet=1, colours=["red", "green"]),
    )
    with gateway.read() as held:
        yield held["plants"]


def test_rows_come_back_as_they_were_inserted(filled: Rows) -> None:
    assert filled.find({"name": "Chard"}) == [plant("Chard", bed="south", wet=1, colours=["red", "green"], number=3)]
    assert filled.one({"name": "none"}) is None


@pytest.mark.parametrize(
    ("match", "found"),
    [
        ({}, "aster beet Chard"),
        ({"bed": "south"}, "Chard"),
        ({"eaten_by": None}, "Chard"),
        ({"eaten_by": {"$ne": None}}, "aster beet"),
        ({"eaten_by": {"$ne": "Hare"}}, "aster Chard"),
        ({"eaten_by": tables.TEXT}, "aster beet"),
        ({"eaten_by": {"$gt": ""}}, "beet"),
        ({"height": {"$gte": 0.5, "$lt": 1.5}}, "aster"),
        ({"height": {"$gt": 0.25, "$lte": 1.5}, "wet": 1}, "Chard"),
        ({"name": {"$in": ["beet", "Chard", "none"]}}, "beet Chard"),
        ({"name": {"$in": []}}, ""),
        ({"name": {"$contains": "CHA"}}, "Chard"),
        ({"name": {"$contains": "a.t"}}, ""),
        ({"colours": {"$has": "red"}}, "Chard"),
        ({"colours": {"$has": "gre"}}, ""),
        ({"$or": [{"wet": 0}, {"bed": "south"}]}, "aster Chard"),
        ({"$and": [{"wet": 1}, {"$or": [{"bed": "north"}, {"name": "none"}]}]}, "beet"),
    ],
)
def test_match_finds_rows(filled: Rows, match: Match, found: str) -> None:
    assert [row["name"] for row in filled.find(match, ["name"], order=["number"])] == found.split()
    assert filled.count(match) == len(found.split())
    assert filled.has(match) == bool(found)


def test_match_with_unknown_field_or_operator_is_refused(gateway: Gateway, filled: Rows) -> None:
    with pytest.raises(KeyError, match="plants has no field colour"):
        filled.find({"colour": "red"})
    if type(gateway).__name__.startswith("Sqlite"):
        with pytest.raises(ValueError, match=r"\$near"):
            filled.find({"name": {"$near": "x"}})


def test_order_limit_and_skip_cut_a_page(filled: Rows) -> None:
    def names(**page: object) -> list[str]:
        return [row["name"] for row in filled.find({}, ["name"], **page)]  # type: ignore[arg-type]

    assert names(order=["-height"], limit=1) == ["Chard"]
    assert names(order=["wet", "-number"]) == ["aster", "Chard", "beet"]
    assert names(order=["number"], skip=1) == ["beet", "Chard"]
    assert names(order=["number"], limit=0) == []
    after = beyond(["wet", "-number"], (1, 3))
    assert [row["name"] for row in filled.find(after, ["name"])] == ["beet"]


def test_among_finds_rows_of_many_values(filled: Rows) -> None:
    names = ["beet", "\ud800", "Chard", *(f"none {n}" for n in range(25_000))]
    assert {row["name"] for row in filled.among("name", names, ["name"])} == {"beet", "Chard"}
    assert {row["name"] for row in filled.among("name", names, ["name"], bed="south")} == {"Chard"}
    assert list(filled.among("name", [])) == []


def test_sums_group_rows(filled: Rows) -> None:
    by_bed = sorted(filled.sums({}, ["number", "height"], by=["bed"]), key=lambda row: row["bed"])
    assert by_bed == [
        {"bed": "north", "rows": 2, "number": 3, "height": 0.75},
        {"bed": "south", "rows": 1, "number": 3, "height": 1.5},
    ]
    assert filled.sums({"name": "none"}, ["number"]) == [{"rows": 0, "number": 0}]
    assert filled.sums({"name": "none"}, ["number"], by=["bed"]) == []


def test_count_counts_combinations_of_values(filled: Rows) -> None:
    assert filled.count({}, by=["bed"]) == 2
    assert filled.count({"wet": 1}, by=["bed", "height"]) == 2
    assert filled.count({"bed": "north", "name": tables.TEXT}, by=["wet"]) == 2
    assert filled.count({"name": tables.TEXT}) == 3
    assert filled.count({"name": "none"}, by=["bed"]) == 0


def test_numbers_are_given_once(gateway: Gateway) -> None:
    assert insert(gateway, plant("aster"), plant("beet")) == 1
    gateway.write(lambda held: held["plants"].delete({"name": "beet"}))
    assert insert(gateway, plant("beet")) == 3


def test_add_leaves_stored_rows_alone(gateway: Gateway) -> None:
    insert(gateway, plant("aster"))
    added = gateway.write(lambda held: held["plants"].add([plant("aster", height=9.0), plant("beet")]))
    with gateway.read() as held:
        assert (added, [row["height"] for row in held["plants"].find({}, order=["name"])]) == (1, [1.5, 1.5])


def test_put_replaces_all_but_the_kept_fields(gateway: Gateway) -> None:
    insert(gateway, plant("aster"))
    new = plant("aster", height=9.0, wet=1, colours=["blue"], number=1)
    gateway.write(lambda held: held["plants"].put([new, plant("beet", number=2)], keep=["wet"]))
    with gateway.read() as held:
        assert held["plants"].find({}, order=["name"]) == [new | {"wet": 0}, plant("beet", number=2)]


def test_put_of_some_fields_changes_stored_rows_only(gateway: Gateway) -> None:
    insert(gateway, plant("aster"), plant("beet"))
    some = [
        {"name": "aster", "wet": 1},
        {"name": "beet", "height": 9.0, "colours": ["$red"]},
        {"name": "none", "wet": 1},
    ]
    gateway.write(lambda held: held["plants"].put([{"bed": "north", **row} for row in some]))
    with gateway.read() as held:
        rows = held["plants"].find({}, order=["name"])
        thirsty = held["plants"].find({"thirsty": 1}, ["name"])
    assert rows == [plant("aster", wet=1, number=1), plant("beet", height=9.0, colours=["$red"], number=2)]
    assert thirsty == [{"name": "beet"}]


def test_episodes_change_as_rows(store: Store) -> None:
    for name in "abc":
        put(store, name, "text")

    def work(held: Tables) -> int:
        hidden = held["episodes"].find({"episode_id": {"$in": ["a", "b"]}}, ["number", "episode_id"])
        hide = {"status": "superseded"}
        held["episodes"].put(
            [{"number": row["number"], **hide, "superseded_by": f"x{row['episode_id']}"} for row in hidden]
        )
        return held["episodes"].update({"status": "active"}, {"own_project": Field("kind")}, add={"read_count": 2})

    assert store.gateway.write(work) == 1
    found = store.episodes.get("abc")
    states = [(found[name].status, found[name].superseded_by, found[name].read_count) for name in "abc"]
    assert states == [("superseded", "xa", 0), ("superseded", "xb", 0), ("active", None, 2)]
    assert sorted(own for own, _, _ in store.projects.names()) == ["acme/api", "note"]


def test_update_sets_and_adds(gateway: Gateway, filled: Rows) -> None:
    def change(held: Tables) -> int:
        return held["plants"].update({"wet": 1}, {"eaten_by": None, "colours": []}, add={"number": 10})

    assert gateway.write(change) == 2
    with gateway.read() as held:
        rows = held["plants"].find({}, ["number", "eaten_by", "colours"], order=["number"])
    assert [tuple(row.values()) for row in rows] == [(1, "", ["green"]), (12, None, []), (13, None, [])]


def test_flags_follow_every_write(gateway: Gateway) -> None:
    def thirsty() -> str:
        with gateway.read() as held:
            return " ".join(row["name"] for row in held["plants"].find({"thirsty": 1}, ["name"], order=["number"]))

    insert(gateway, plant("aster"), plant("beet", wet=1), plant("north"))
    gateway.write(lambda held: held["plants"].add([plant("chard")]))
    assert thirsty() == "aster chard"
    gateway.write(lambda held: held["plants"].put([plant("beet", number=2)], keep=["colours"]))
    gateway.write(lambda held: held["plants"].update({"name": "aster"}, {"eaten_by": "Hare"}))
    gateway.write(lambda held: held["plants"].update({"name": "chard"}, {"bed": "$name"}))
    assert thirsty() == "beet chard"
    gateway.write(lambda held: held["plants"].update({"name": "chard"}, {"bed": Field("name")}, add={"number": 1}))
    assert thirsty() == "beet"
    with gateway.read() as held:
        assert held["plants"].count({"thirsty": 0}) == 3


def test_write_that_raises_changes_nothing(gateway: Gateway) -> None:
    def work(held: Tables) -> None:
        held["plants"].insert([plant("aster")])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gateway.write(work)
    with gateway.read() as held:
        assert held["plants"].count({}) == 0


def test_snapshot_sees_one_moment(gateway: Gateway, place: tuple[str, Path]) -> None:
    if place[0] == "mongo" and not shared.is_given():
        pytest.skip("SecantusDB 0.7.0b3 reads what is newest: docs/decisions/0027-secantusdb.md")
    insert(gateway, plant("aster"))
    with gateway.snapshot() as held:
        assert held["plants"].count({}) == 1
        insert(gateway, plant("beet"))
        assert held["plants"].count({}) == 1


def test_added_table_is_made_in_a_present_store(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.delitem(tables.BY_NAME, PLANTS.name)
        before.delitem(schema.COLLECTIONS, PLANTS.name)
        open_store().settings.set("old", 1)
    store = open_store()
    insert(store.gateway, plant("aster"))
    with store.gateway.read() as held:
        assert held["plants"].count({"wet": 0}) == 1
    assert store.settings.get("old") == 1


def test_added_table_is_copied(store: Store, tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "other" / "anamnesis.db", tmp_path / "other" / "index")) as other:
        insert(other.gateway, plant("aster"), plant("beet", colours=[], eaten_by="Hare"))
        move(other, store, "other", lambda step, done, of: None)
        with store.gateway.read() as held, other.gateway.read() as copied:
            assert held["plants"].find({}, order=["name"]) == copied["plants"].find({}, order=["name"])
    assert insert(store.gateway, plant("chard")) == 3
