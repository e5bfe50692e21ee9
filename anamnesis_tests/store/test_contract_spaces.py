"""What every backend promises about embedding spaces and stored settings."""

from dataclasses import replace

import numpy as np
import pytest

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.store.samples import put, random_units, space, unit

TEXT = Variant.TEXT


def test_spaces_read_back_as_written_oldest_first(store: Store):
    full = replace(space("b", 384, tuple(Variant)), generation=2, query_prefix="q: ", passage_prefix="p: ",
                   pooling="cls", precision="bf16")  # fmt: skip
    assert store.spaces.put(full) is True
    assert store.spaces.put(space("a")) is True
    assert store.spaces.put(replace(full, model_id="other", status="active")) is False
    assert store.spaces.all() == [full, space("a")]
    assert store.spaces.active() is None


def test_the_first_space_may_be_activated_before_it_is_complete(store: Store):
    put(store, "e", "text")
    store.spaces.put(space("s"))
    assert store.spaces.activate("s")
    assert store.spaces.active() == replace(space("s"), status="active")


def test_a_space_that_lacks_vectors_is_not_activated_over_another(store: Store):
    keys = put(store, "e", "a", "b")
    store.spaces.put(space("old"))
    store.spaces.put(space("new"))
    store.spaces.activate("old")
    store.vectors.put("new", TEXT, keys[:1], random_units(1, 4))
    assert store.spaces.activate("new") is False
    assert store.spaces.active().key == "old"  # type: ignore[union-attr]
    store.vectors.put("new", TEXT, keys[1:], random_units(1, 4))
    assert store.spaces.activate("new") is True
    assert [(s.key, s.status) for s in store.spaces.all()] == [("old", "retired"), ("new", "active")]
    assert store.spaces.activate("new") is True


def test_every_variant_must_be_there_to_activate(store: Store):
    keys = put(store, "e", "a")
    store.spaces.put(space("old"))
    store.spaces.put(space("new", variants=tuple(Variant)))
    store.spaces.activate("old")
    store.vectors.put("new", TEXT, keys, random_units(1, 4))
    assert store.spaces.activate("new") is False
    store.vectors.put("new", Variant.CONTEXT, keys, random_units(1, 4))
    assert store.spaces.activate("new") is True


def test_activating_an_unknown_space_names_the_known_ones(store: Store):
    store.spaces.put(space("here"))
    with pytest.raises(GiveUp, match=r"nowhere.*here"):
        store.spaces.activate("nowhere")


def test_the_active_space_cannot_be_dropped(store: Store):
    store.spaces.put(space("s"))
    store.spaces.activate("s")
    with pytest.raises(GiveUp, match="s is active"):
        store.spaces.drop("s")
    assert store.spaces.active() is not None


def test_a_dropped_space_leaves_nothing_behind(store: Store):
    keys = put(store, "e", *(f"text {i}" for i in range(40)))
    for name in ("s", "other"):
        store.spaces.put(space(name))
        store.vectors.put(name, TEXT, keys, random_units(40, 4))
        store.vectors.put_tokens(name, {keys[0]: np.ones((2, 2), np.int8)})
    store.vectors.build("s", force=True)
    store.spaces.drop("s")
    store.spaces.drop("s")
    assert [s.key for s in store.spaces.all()] == ["other"]
    assert len(store.vectors.get("other", TEXT, keys)) == 40
    assert set(store.vectors.tokens("other", keys)) == {keys[0]}
    assert store.spaces.put(space("s"))
    assert store.vectors.get("s", TEXT, keys) == {}
    assert store.vectors.tokens("s", keys) == {}
    assert store.vectors.nearest("s", TEXT, unit(1, 0, 0, 0), 5, Where()) == []
    assert store.vectors.pending_sources("s") == {"direct": 40}


def test_settings_hold_json_by_name(store: Store):
    store.settings.set("config.cores", [0, 1])
    store.settings.set("config.x_y", {"a": None, "ü": 1.5})
    store.settings.set("configuration", True)
    store.settings.set("other", 0)
    assert store.settings.get("config.cores") == [0, 1]
    assert store.settings.get("missing") is None
    assert store.settings.get("missing", 7) == 7
    assert store.settings.all("config.") == {"config.cores": [0, 1], "config.x_y": {"a": None, "ü": 1.5}}
    assert len(store.settings.all()) == 4


def test_a_setting_is_replaced_and_removed(store: Store):
    store.settings.set("x", 1)
    store.settings.set("x", 2)
    assert store.settings.get("x") == 2
    store.settings.set("x", None)
    store.settings.set("x", None)
    assert store.settings.all() == {}


def test_a_prefix_is_no_pattern(store: Store):
    store.settings.set("axb", 1)
    assert store.settings.all("a_") == {}
    assert store.settings.all("%") == {}
