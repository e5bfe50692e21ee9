"""Contract: what people call things is applied when mentions are read, and can be taken back."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.errors import EntityConflict
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import Entity, EntityKind, EntityName, Mention, Names, Relation
from anamnesis_pipeline.store.records import entities
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES
from anamnesis_tests.support.mentioned import NOW, SHOP, file, touch

OLD, NEW = file("src/pay.py"), file("src/billing.py")


def decide(store: Store, entity: Entity, canonical: Entity, project: str = SHOP) -> None:
    store.entities.name(EntityName(project, entity, canonical, NOW))


def episodes(found: list[Mention]) -> list[str]:
    return sorted(each.episode_id for each in found)


def test_merged_file_is_found_by_its_canonical_name_only(store: Store) -> None:
    touch(store, "one", OLD)
    touch(store, "two", NEW)
    decide(store, OLD, NEW)
    assert episodes(store.entities.of_entity(NEW, 9)) == ["one", "two"]
    assert episodes(store.entities.named(EntityKind.FILE, "billing.py", 9)) == ["one", "two"]
    assert store.entities.of_entity(OLD, 9) == []
    assert store.entities.named(EntityKind.FILE, "pay.py", 9) == []
    assert store.entities.tally() == {(SHOP, NEW): 2}
    assert {each.name for each in store.entities.of_episodes(["one", "two"])} == {"src/billing.py"}
    assert store.entities.counted(SHOP, [EntityKind.FILE]) == [(EntityKind.FILE, "src/billing.py", Relation.EDITED, 2)]


def test_deleting_an_alias_restores_what_was_found(store: Store) -> None:
    touch(store, "one", OLD)
    decide(store, OLD, NEW)
    assert store.entities.unname(SHOP, file("SRC/PAY.py"))
    assert not store.entities.unname(SHOP, OLD)
    assert store.entities.tally() == {(SHOP, OLD): 1}


def test_alias_is_known_in_any_case(store: Store) -> None:
    touch(store, "one", NEW)
    decide(store, file("Billing"), NEW)
    assert store.entities.known("bILLING") == {(SHOP, NEW): 1}
    assert store.entities.known("billing.py") == {(SHOP, NEW): 1}
    assert store.entities.known("bill") == {}


def test_names_of_names_are_known(store: Store) -> None:
    touch(store, "one", OLD)
    decide(store, file("till"), OLD)
    decide(store, OLD, Entity(EntityKind.SYMBOL, "Till.pay"))
    for name in ("Till", "src/pay.py", "till.PAY"):
        assert store.entities.known(name) == {(SHOP, Entity(EntityKind.SYMBOL, "Till.pay")): 1}


def test_changed_kind_moves_a_thing_to_the_other_kind(store: Store) -> None:
    word, tool = Entity(EntityKind.SYMBOL, "Terraform"), Entity(EntityKind.TOOL, "Terraform")
    touch(store, "one", word)
    decide(store, word, tool)
    assert store.entities.named(EntityKind.SYMBOL, "terraform", 9) == []
    assert episodes(store.entities.named(EntityKind.TOOL, "terraform", 9)) == ["one"]
    assert store.entities.counted(SHOP, [EntityKind.SYMBOL]) == []


def test_names_hold_in_their_project_only(store: Store) -> None:
    touch(store, "one", OLD)
    touch(store, "other", OLD, project="acme/api")
    decide(store, OLD, NEW)
    assert store.entities.tally() == {(SHOP, NEW): 1, ("acme/api", OLD): 1}
    assert store.entities.tally(projects=["acme/api"]) == {("acme/api", OLD): 1}
    assert episodes(store.entities.of_entity(OLD, 9)) == ["other"]


def test_names_follow_a_project_that_is_called_otherwise(store: Store) -> None:
    touch(store, "one", OLD)
    decide(store, OLD, NEW)
    store.settings.set(PROJECT_ALIASES, {SHOP: "acme/store"})
    assert store.entities.tally() == {("acme/store", NEW): 1}
    assert store.entities.unname("acme/store", OLD)


def test_circle_of_names_is_refused(store: Store) -> None:
    third = file("src/third.py")
    decide(store, OLD, NEW)
    decide(store, NEW, third)
    for canonical in (OLD, NEW, third):
        with pytest.raises(EntityConflict, match="delete that alias first"):
            decide(store, third, canonical)
    assert store.entities.names().of(SHOP, OLD) == third


def test_fixed_error_is_read_under_its_canonical_name(store: Store) -> None:
    error = Entity(EntityKind.ERROR, "port in use")
    fixed = Mention(EntityKind.FILE, "src/pay.py", Relation.FIXED, "one", SHOP, at=NOW, other="port <n> in use")
    touch(store, "one", fixed)
    decide(store, Entity(EntityKind.ERROR, "port <n> in use"), error)
    assert [each.other for each in store.entities.of_episodes(["one"])] == ["port in use"]


def test_mentions_of_some_sources_are_counted_apart(store: Store) -> None:
    touch(store, "one", NEW)
    touch(store, "two", NEW, source="kept-apart")
    assert store.entities.tally(sources=["kept-apart"]) == {(SHOP, NEW): 1}


def test_names_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entities, "MAX_NAMES", 1)
    decide(store, OLD, NEW)
    decide(store, OLD, file("src/third.py"))
    with pytest.raises(EntityConflict, match="1 names are stored"):
        decide(store, NEW, OLD)


_FEW = st.sampled_from([Entity(kind, name) for kind in (EntityKind.FILE, EntityKind.SYMBOL) for name in "aAbcD"])
_DECIDED = st.lists(st.tuples(_FEW, _FEW), max_size=12)


def _names(pairs: list[tuple[Entity, Entity]]) -> Names:
    return Names(EntityName("", *pair, NOW + timedelta(minutes=number)) for number, pair in enumerate(pairs))


@given(_DECIDED)
def test_every_name_leads_somewhere_and_stays_there(pairs: list[tuple[Entity, Entity]]) -> None:
    names = _names(pairs)
    for entity, canonical in pairs:
        assert names.of("", names.of("", entity)) == names.of("", entity)
        swapped = Entity(entity.kind, entity.name.swapcase())
        assert names.of("", swapped) == names.of("", entity)
        decided = names.path("", entity)[1]
        if decided == canonical:
            assert names.of("", canonical) == names.of("", entity)


@given(_DECIDED)
def test_refusing_circles_keeps_all_paths_straight(pairs: list[tuple[Entity, Entity]]) -> None:
    kept: list[tuple[Entity, Entity]] = []
    for entity, canonical in pairs:
        own = (entity.kind, entity.name.lower())
        if own not in [(each.kind, each.name.lower()) for each in _names(kept).path("", canonical)]:
            kept.append((entity, canonical))
    names = _names(kept)
    for entity, _ in kept:
        path = [(each.kind, each.name.lower()) for each in names.path("", entity)]
        assert len(set(path)) == len(path)
