"""Contract: mentions are found again where something changed, and go with their episode."""

from dataclasses import replace

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import EntityKind, Mention, Relation
from anamnesis_pipeline.store.records.observations import Unobserved
from anamnesis_tests.support.samples import put

FILE = Mention(EntityKind.FILE, "src/Pay.py", Relation.EDITED, "one", "shop")


def waiting(store: Store) -> list[Unobserved]:
    return store.entities.unlinked(10)


def test_what_is_written_waits_until_it_is_settled(store: Store) -> None:
    put(store, "one", "a text")
    (of,) = waiting(store)
    assert of.origin == "one"
    assert store.entities.settle(of, [FILE]) == 1
    assert waiting(store) == []
    assert store.entities.named(EntityKind.FILE, "pay.py", 5) == [FILE]


def test_settling_again_keeps_what_is_the_same(store: Store) -> None:
    put(store, "one", "a text")
    (of,) = waiting(store)
    store.entities.settle(of, [FILE])
    store.entities.note_all()
    (of,) = waiting(store)
    other = replace(FILE, name="src/other.py")
    assert store.entities.settle(of, [FILE, other]) == 1
    assert store.entities.of_episodes(["one"]) == [FILE, other]
    assert store.entities.settle(of, [other]) == 0
    assert store.entities.of_episodes(["one"]) == [other]


def test_change_meanwhile_is_read_again(store: Store) -> None:
    put(store, "one", "a text")
    (of,) = waiting(store)
    put(store, "one", "another text")
    store.entities.settle(of, [FILE])
    assert [each.origin for each in waiting(store)] == ["one"]


def test_mentions_go_with_their_episode(store: Store) -> None:
    put(store, "one", "a text")
    store.entities.settle(waiting(store)[0], [FILE])
    store.episodes.delete("one")
    assert store.entities.of_episodes(["one"]) == []
    assert waiting(store) == []


def test_mention_of_an_episode_that_is_gone_is_not_written(store: Store) -> None:
    put(store, "one", "a text")
    (of,) = waiting(store)
    assert store.entities.settle(of, [replace(FILE, episode_id="gone")]) == 0


def test_mentions_are_found_by_project(store: Store) -> None:
    put(store, "one", "a text")
    put(store, "two", "a text")
    for of in waiting(store):
        store.entities.settle(
            of, [replace(FILE, episode_id=of.origin, project="shop" if of.origin == "one" else "web")]
        )
    found = store.entities.named(EntityKind.FILE, "pay.py", 5, projects=["web"])
    assert [each.episode_id for each in found] == ["two"]
    assert store.entities.counted("shop", [EntityKind.FILE]) == [(EntityKind.FILE, "src/Pay.py", Relation.EDITED, 1)]
