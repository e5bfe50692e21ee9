"""What people are told of all that is stored equals what was put in."""

from dataclasses import replace
from datetime import timedelta

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.overview_base import SourceState, Tally
from anamnesis_tests.store.samples import DAY, passages, put


def test_an_empty_store_has_nothing_to_count(store: Store) -> None:
    assert store.overview.tally() == Tally()
    assert store.overview.sources() == {}


def test_the_tally_counts_what_became_of_each_episode(store: Store) -> None:
    for name in ("old", "new", "found", "edited"):
        put(store, name, "text")
    put(store, "decided", "text", kind="decision")
    put(store, "pinned", "text", tags=("pinned", "other"))
    old, edited = (store.episodes.get([name])[name] for name in ("old", "edited"))
    superseded = replace(old, status="superseded", superseded_by="new")
    store.episodes.replace(superseded, passages("text"), old.content_hash)
    store.episodes.replace(replace(edited, summary="other"), passages("text"), edited.content_hash)
    store.episodes.track(["found", "new"], DAY)
    store.episodes.track(["found"], DAY)
    assert store.overview.tally() == Tally(episodes=6, active=5, curated=3, replaced=1, confirmed=1, retrievals=3)


def test_each_source_says_of_when_its_newest_episode_is(store: Store) -> None:
    put(store, "a", "text", minute=1, source="logs")
    put(store, "b", "text", minute=9, source="logs")
    put(store, "c", "text", minute=5)
    assert store.overview.sources() == {
        "logs": SourceState(2, DAY + timedelta(minutes=9)), "direct": SourceState(1, DAY + timedelta(minutes=5)),
    }  # fmt: skip
