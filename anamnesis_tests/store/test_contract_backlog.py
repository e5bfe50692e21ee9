"""What every backend promises about what lacks vectors, and how far a space is."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.errors import DimensionMismatch, SpaceNotFound
from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import SpaceProgress
from anamnesis_tests.support.samples import episode, passages, put, random_units, space

TEXT, CONTEXT = Variant.TEXT, Variant.CONTEXT


def test_what_lacks_a_vector_is_told_by_source_and_newest_first(store: Store):
    store.spaces.put(space("s", variants=(TEXT, CONTEXT)))
    old = put(store, "old", "a", "b", minute=1)
    new = put(store, "new", "c", minute=2)
    put(store, "of logs", "d", source="logs")
    put(store, "empty")
    assert store.vectors.pending_sources("s") == {"direct": 3, "logs": 1}
    assert [p.episode_id for p in store.vectors.pending("s", ["direct"], 5)] == ["new", "old"]
    assert [p.episode_id for p in store.vectors.pending("s", ["direct"], 1)] == ["new"]
    store.vectors.put("s", TEXT, [*new, old[0]], random_units(2, 4))
    assert store.vectors.count("s") == 0
    store.vectors.put("s", CONTEXT, [*new, old[0]], random_units(2, 4))
    assert store.vectors.count("s") == 2
    assert store.vectors.pending_sources("s") == {"direct": 1, "logs": 1}
    (left,) = store.vectors.pending("s", ["direct"], 5)
    assert [stored.passage_id for stored in left.passages] == [old[1]]
    assert left.passages[0].passage.text == "b"


def test_a_new_space_lacks_everything_and_a_changed_passage_lacks_its_vector(store: Store):
    keys = put(store, "e", "a", "b")
    store.spaces.put(space("s"))
    assert store.vectors.pending_sources("s") == {"direct": 2}
    store.vectors.put("s", TEXT, keys, random_units(2, 4))
    assert store.vectors.pending_sources("s") == {}
    put(store, "e", "a", "b grew", source="logs")
    assert store.vectors.pending_sources("s") == {"logs": 1}
    assert store.vectors.count("s") == 1


def test_the_newest_of_all_sources_come_first(store: Store):
    store.spaces.put(space("s"))
    for minute, source in enumerate(["logs", "direct", "logs", "chat", "uploads", "direct", "chat"]):
        put(store, f"e{minute}", "text", minute=minute, source=source)

    def listed(sources: Sequence[str], episodes: int) -> list[tuple[str, str]]:
        return [(p.episode_id, p.source) for p in store.vectors.pending("s", sources, episodes)]

    assert listed(["direct", "logs", "chat"], 4) == [("e6", "chat"), ("e5", "direct"), ("e3", "chat"), ("e2", "logs")]
    assert listed(["logs", "logs", "unknown"], 9) == [("e2", "logs"), ("e0", "logs")]
    assert listed([], 9) == []
    assert listed(["logs"], 0) == []


def test_progress_is_of_everything_stored_and_tells_the_newest_write(store: Store):
    assert put(store, "empty") == []
    old, new = put(store, "old", "a", "b", minute=1), put(store, "new", "c", minute=2)
    store.spaces.put(space("s", variants=(TEXT, CONTEXT)))
    store.spaces.put(space("other"))
    assert store.vectors.progress("s") == SpaceProgress(3, 1, 3, 0, None, None)
    before = datetime.now(UTC)
    store.vectors.put("s", TEXT, [*new, *old], random_units(3, 4))
    store.vectors.put("s", CONTEXT, new, random_units(1, 4))
    progress = store.vectors.progress("s")
    assert (progress.episodes, progress.episodes_done, progress.passages, progress.passages_done) == (3, 2, 3, 1)
    assert progress.last_episode == "new"
    assert progress.written_at is not None
    assert before <= progress.written_at <= datetime.now(UTC) + timedelta(seconds=1)
    store.vectors.put("s", CONTEXT, old, random_units(2, 4))
    done = store.vectors.progress("s")
    assert (done.episodes_done, done.passages_done, done.last_episode) == (3, 3, "old")
    assert store.vectors.progress("other").written_at is None
    with pytest.raises(SpaceNotFound, match="nowhere"):
        store.vectors.progress("nowhere")


def test_a_put_that_writes_nothing_is_no_progress(store: Store):
    store.spaces.put(space("s"))
    keys = put(store, "e", "text")
    with pytest.raises(DimensionMismatch):
        store.vectors.put("s", TEXT, keys, random_units(1, 5))
    store.episodes.delete("e")
    assert store.vectors.put("s", TEXT, keys, random_units(1, 4)) == 0
    assert store.vectors.progress("s") == SpaceProgress(0, 0, 0, 0, None, None)


def test_progress_names_the_last_episode_that_lacks_nothing(store: Store):
    store.spaces.put(space("s", variants=(TEXT, CONTEXT)))
    whole, half = put(store, "whole", "a"), put(store, "half", "b", "c")
    store.vectors.put("s", TEXT, whole, random_units(1, 4))
    assert store.vectors.progress("s").last_episode is None, "its other variant is to come"
    two, one = random_units(2, 4), random_units(1, 4)
    assert store.vectors.put_all("s", [*whole, half[0]], {TEXT: two, CONTEXT: two}) == 4
    assert store.vectors.progress("s").last_episode == "whole"
    assert store.vectors.put_all("s", half[1:], {TEXT: one, CONTEXT: one}) == 2
    assert store.vectors.progress("s").last_episode == "half"


SOURCES = ("direct", "logs", "chat")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5), st.integers(0, 3), st.sampled_from(SOURCES)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("embed"), st.integers(1, 3), st.sets(st.sampled_from(SOURCES))),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_progress_agrees_with_what_is_pending_and_with_the_vectors(store: Store, steps: list):  # type: ignore[type-arg]
    for n in range(6):
        store.episodes.delete(f"e{n}", tombstone=False)
    store.spaces.put(space("s"))
    for kind, *values in steps:
        if kind == "write":
            n, count, source = values
            texts = [f"text {i} of {count}" for i in range(count)]
            store.episodes.put([(episode(f"e{n}", n, source=source), passages(*texts))])
        elif kind == "delete":
            store.episodes.delete(f"e{values[0]}", tombstone=False)
        else:
            for left in store.vectors.pending("s", sorted(values[1]), values[0]):
                keys = [stored.passage_id for stored in left.passages]
                assert store.vectors.put("s", TEXT, keys, random_units(len(keys), 4)) == len(keys)
    progress = store.vectors.progress("s")
    stored = [p.passage_id for n in range(6) for p in store.episodes.passages_of(f"e{n}")]
    left = store.vectors.pending("s", SOURCES, 99)
    assert [p.episode_id for p in left] == sorted((p.episode_id for p in left), reverse=True)
    assert progress.passages == len(stored)
    assert progress.passages_done == store.vectors.count("s") == len(store.vectors.get("s", TEXT, stored))
    assert progress.episodes - progress.episodes_done == len(left)
    assert progress.passages - progress.passages_done == sum(len(p.passages) for p in left)
    assert sum(store.vectors.pending_sources("s").values()) == sum(len(p.passages) for p in left)
