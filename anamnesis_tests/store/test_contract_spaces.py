"""What every backend promises about embedding spaces and stored settings."""

from dataclasses import replace

import pytest

from anamnesis_pipeline.errors import SpaceConflict, SpaceNotFound
from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.samples import put, random_units, space, unit

TEXT = Variant.TEXT


def test_spaces_read_back_as_written_oldest_first(store: Store):
    full = replace(
        space("b", 384, tuple(Variant)),
        generation=2,
        query_prefix="q: ",
        passage_prefix="p: ",
        pooling="cls",
        precision="bf16",
        fidelity=0.9991,
        token_dims=4,
    )
    assert store.spaces.put(full) is True
    assert store.spaces.put(space("a")) is True
    assert store.spaces.put(replace(full, model_id="other", status="active")) is False
    assert store.spaces.all() == [full, space("a")]
    assert store.spaces.active() is None
    assert [s.status for s in store.spaces.all()] == ["added", "added"]


def test_the_first_space_may_be_activated_before_it_is_complete(store: Store):
    put(store, "e", "text")
    store.spaces.put(space("s"))
    assert store.spaces.activate("s")
    assert store.spaces.active() == replace(space("s"), status="active")


def test_space_that_lacks_vectors_is_not_activated(store: Store):
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


@pytest.mark.parametrize("how", ["activate", "start"])
def test_unknown_space_is_told_with_the_known_ones(store: Store, how: str):
    store.spaces.put(space("here"))
    with pytest.raises(SpaceNotFound, match=r"nowhere.*known are: here"):
        getattr(store.spaces, how)("nowhere")


def statuses(store: Store) -> dict[str, str]:
    return {s.key: s.status for s in store.spaces.all()}


def test_one_space_at_a_time_is_building(store: Store):
    for key in ("a", "b"):
        store.spaces.put(space(key))
    store.spaces.start("a")
    with pytest.raises(SpaceConflict, match="b cannot be building while a is"):
        store.spaces.start("b")
    with pytest.raises(SpaceConflict, match="a is being embedded already"):
        store.spaces.start("a")
    assert statuses(store) == {"a": "building", "b": "added"}
    store.spaces.stop("a")
    store.spaces.start("b")
    assert statuses(store) == {"a": "added", "b": "building"}


def test_active_space_is_neither_started_nor_dropped(store: Store):
    store.spaces.put(space("s"))
    store.spaces.activate("s")
    with pytest.raises(SpaceConflict, match=r"s is active.*new generation"):
        store.spaces.start("s")
    with pytest.raises(SpaceConflict, match="s is active"):
        store.spaces.drop("s")
    assert statuses(store) == {"s": "active"}


def test_no_second_active_or_building_space_is_added(store: Store):
    for status in ("active", "building"):
        assert store.spaces.put(replace(space(f"first {status}"), status=status))
        with pytest.raises(SpaceConflict, match=f"first {status}"):
            store.spaces.put(replace(space(f"second {status}"), status=status))
    assert statuses(store) == {"first active": "active", "first building": "building"}


def test_building_space_alone_is_stopped_and_keeps_what_it_has(store: Store):
    keys = put(store, "e", "a", "b")
    for key in ("s", "active", "retired"):
        store.spaces.put(space(key))
    for key in ("retired", "active"):
        store.vectors.put(key, TEXT, keys, random_units(2, 4))
        store.spaces.activate(key)
    store.spaces.start("s")
    store.vectors.put("s", TEXT, keys[:1], random_units(1, 4))
    for key in ("s", "active", "retired", "nowhere"):
        store.spaces.stop(key)
    assert statuses(store) == {"s": "added", "active": "active", "retired": "retired"}
    assert set(store.vectors.get("s", TEXT, keys)) == {keys[0]}
    assert store.vectors.pending_sources("s") == {"direct": 1}


def test_a_retired_space_is_used_again_at_once_or_filled_first(store: Store):
    keys = put(store, "e", "a")
    for key in ("old", "new"):
        store.spaces.put(space(key))
        store.vectors.put(key, TEXT, keys, random_units(1, 4))
        assert store.spaces.activate(key) is True
    assert store.spaces.activate("old") is True
    assert statuses(store) == {"old": "active", "new": "retired"}
    (late,) = put(store, "late", "b")
    assert store.spaces.activate("new") is False
    store.spaces.start("new")
    assert statuses(store) == {"old": "active", "new": "building"}
    assert store.spaces.activate("new") is False
    store.vectors.put("new", TEXT, [late], random_units(1, 4))
    assert store.spaces.activate("new") is True
    assert statuses(store) == {"old": "retired", "new": "active"}


def test_precision_and_fidelity_are_noted_and_nothing_else(store: Store):
    store.spaces.put(space("s"))
    store.spaces.put(space("other"))
    store.spaces.record_precision("s", "int8", 0.9985)
    assert store.spaces.all() == [replace(space("s"), precision="int8", fidelity=0.9985), space("other")]
    store.spaces.record_precision("s", "fp32", None)
    assert store.spaces.all()[0] == space("s")
    with pytest.raises(SpaceNotFound, match="nowhere"):
        store.spaces.record_precision("nowhere", "fp32", None)


def test_precision_of_stored_vectors_stays_as_noted(store: Store):
    store.spaces.put(space("s"))
    store.spaces.put(space("empty"))
    store.spaces.record_precision("s", "bf16", 0.9995)
    keys = put(store, "e", "a text")
    store.vectors.put("s", TEXT, keys, random_units(1, 4))
    store.spaces.record_precision("s", "fp32", None)
    store.spaces.record_precision("empty", "bf16", 0.999)
    assert [(s.precision, s.fidelity) for s in store.spaces.all()] == [("bf16", 0.9995), ("bf16", 0.999)]


def test_a_dropped_space_leaves_nothing_behind(store: Store):
    keys = put(store, "e", *(f"text {i}" for i in range(40)))
    for name in ("s", "other"):
        store.spaces.put(space(name))
        store.vectors.put(name, TEXT, keys, random_units(40, 4))
    store.vectors.build("s", force=True)
    store.spaces.drop("s")
    store.spaces.drop("s")
    assert [s.key for s in store.spaces.all()] == ["other"]
    assert len(store.vectors.get("other", TEXT, keys)) == 40
    assert store.spaces.put(space("s"))
    assert store.vectors.get("s", TEXT, keys) == {}
    assert store.vectors.nearest("s", TEXT, unit(1, 0, 0, 0), 5, EpisodeFilter()) == []
    assert store.vectors.pending_sources("s") == {"direct": 40}


def test_settings_hold_json_by_name(store: Store):
    store.settings.set("config.cores", [0, 1])
    store.settings.set("config.x_y", {"a": None, "ü": 1.5})
    store.settings.set("configuration", True)
    store.settings.set("other", 0)
    assert store.settings.all("config_") == store.settings.all("%") == {}, "a prefix is no pattern"
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


def test_a_setting_is_swapped_only_for_what_it_is(store: Store):
    assert store.settings.swap("x", None, {"of": "a", "whole": False})
    assert not store.settings.swap("x", None, {"of": "b"})
    assert not store.settings.swap("x", {"of": "a"}, {"of": "b"})
    assert store.settings.get("x") == {"of": "a", "whole": False}
    assert store.settings.swap("x", {"whole": False, "of": "a"}, 2)
    assert store.settings.swap("x", 2, None)
    assert store.settings.all() == {}
