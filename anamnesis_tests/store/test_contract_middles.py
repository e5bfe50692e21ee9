"""What every backend promises about what episodes say on the whole."""

import numpy as np
import pytest

from anamnesis_pipeline.errors import SpaceNotFound
from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.store.samples import put, space, unit

TEXT = Variant.TEXT
ALL = Where()


def test_a_middle_is_the_direction_of_the_mean_of_all_passages(store: Store):
    store.spaces.put(space("s"))
    a, b, c = put(store, "e", "one", "two", "three", project="acme")
    store.vectors.put("s", TEXT, [a, b, c], np.stack([unit(1, 0, 0, 0), unit(1, 0, 0, 0), unit(0, 1, 0, 0)]))
    found = store.vectors.middles("s", TEXT, ALL, 0, 10)
    assert (found.episode_ids, found.projects, found.passage_ids, found.after) == (("e",), ("acme",), (a,), None)
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(found.vectors[0], unit(2, 1, 0, 0), atol=2e-3)


def test_pages_follow_each_other_until_all_episodes_were_there_once(store: Store):
    store.spaces.put(space("s"))
    for n in range(7):
        (key,) = put(store, f"e{n}", "text", project=f"p{n}")
        if n not in (2, 3):
            store.vectors.put("s", TEXT, [key], unit(1, n, 0, 0)[None])
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = store.vectors.middles("s", TEXT, ALL, after, 2)
        seen += page.episode_ids
        after = page.after
    assert seen == ["e0", "e1", "e4", "e5", "e6"]


def test_only_what_passes_the_filter_and_is_current_counts(store: Store):
    store.spaces.put(space("s"))
    for name, fields in (("a", {}), ("b", {"kind": "compact_summary"}), ("c", {"project": "secret"})):
        store.vectors.put("s", TEXT, put(store, name, "text", **fields), unit(1, 0, 0, 0)[None])
    where = Where(hidden_kinds=("compact_summary",), hidden_projects=("secret",))
    assert store.vectors.middles("s", TEXT, where, 0, 10).episode_ids == ("a",)
    store.episodes.delete("a")
    assert store.vectors.middles("s", TEXT, where, 0, 10).episode_ids == ()


def test_passages_that_cancel_out_leave_no_direction(store: Store):
    store.spaces.put(space("s"))
    store.vectors.put("s", TEXT, put(store, "e", "yes", "no"), np.stack([unit(1, 0, 0, 0), unit(-1, 0, 0, 0)]))
    assert not store.vectors.middles("s", TEXT, ALL, 0, 10).vectors.any()


def test_without_vectors_there_are_no_middles_of_the_right_width(store: Store):
    store.spaces.put(space("s", dim=6))
    put(store, "e", "text")
    found = store.vectors.middles("s", TEXT, ALL, 0, 10)
    assert (found.episode_ids, found.vectors.shape, found.after) == ((), (0, 6), None)
    with pytest.raises(SpaceNotFound):
        store.vectors.middles("nowhere", TEXT, ALL, 0, 10)
