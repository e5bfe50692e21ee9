"""What every backend promises about vectors, their index, and what episodes say on the whole."""

import numpy as np
import pytest

from anamnesis_pipeline.errors import DimensionMismatch, SpaceNotFound
from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.sqlite import index_files
from anamnesis_tests.support.samples import edit, episode, filled, first_keys, passages, put, random_units, space, unit

TEXT, CONTEXT = Variant.TEXT, Variant.CONTEXT


def test_a_vector_reads_back_nearly_as_written(store: Store):
    keys, vectors = filled(store, 3)
    found = store.vectors.get("s", TEXT, [*keys, 10**9])
    assert sorted(found) == keys
    for key, vector in zip(keys, vectors, strict=True):
        assert found[key].dtype == np.float32
        np.testing.assert_allclose(found[key], vector, atol=2e-3)


def test_spaces_and_variants_are_never_mixed(store: Store):
    (key,) = put(store, "e", "text")
    for name in ("s", "t"):
        store.spaces.put(space(name, variants=(TEXT, CONTEXT)))
    store.vectors.put("s", TEXT, [key], unit(1, 0, 0, 0)[None])
    assert store.vectors.get("t", TEXT, [key]) == {}
    assert store.vectors.get("s", CONTEXT, [key]) == {}
    assert store.vectors.nearest("t", TEXT, unit(1, 0, 0, 0), 5, EpisodeFilter()) == []
    assert store.vectors.nearest("s", CONTEXT, unit(1, 0, 0, 0), 5, EpisodeFilter()) == []
    assert len(store.vectors.nearest("s", TEXT, unit(1, 0, 0, 0), 5, EpisodeFilter())) == 1


def test_another_width_than_the_spaces_is_refused(store: Store):
    (key,) = put(store, "e", "text")
    store.spaces.put(space("s", dim=4))
    with pytest.raises(DimensionMismatch, match="4-d"):
        store.vectors.put("s", TEXT, [key], random_units(1, 5))
    with pytest.raises(DimensionMismatch):
        store.vectors.nearest("s", TEXT, unit(1, 0, 0), 5, EpisodeFilter())
    assert store.vectors.get("s", TEXT, [key]) == {}


def test_an_unknown_space_is_named(store: Store):
    with pytest.raises(SpaceNotFound, match="nowhere"):
        store.vectors.nearest("nowhere", TEXT, unit(1, 0), 5, EpisodeFilter())


def test_vectors_of_passages_deleted_meanwhile_are_skipped(store: Store):
    store.spaces.put(space("s"))
    (alive,), (dead,) = put(store, "a", "text"), put(store, "b", "text")
    store.episodes.delete("b")
    assert store.vectors.put("s", TEXT, [alive, dead], random_units(2, 4)) == 1
    assert set(store.vectors.get("s", TEXT, [alive, dead])) == {alive}


def exactly(keys: list[int], vectors: np.ndarray, query: np.ndarray, k: int) -> list[int]:
    return [keys[i] for i in np.argsort(-(vectors @ query))[:k]]


def test_nearest_is_ordered_by_cosine(store: Store):
    keys, vectors = filled(store, 200)
    for query in random_units(5, 8, seed=1):
        hits = store.vectors.nearest("s", TEXT, query, 10, EpisodeFilter())
        assert [hit.passage_id for hit in hits] == exactly(keys, vectors, query, 10)
        best = keys.index(hits[0].passage_id)
        assert hits[0].score == pytest.approx(float(vectors[best] @ query), abs=2e-3)
        assert hits[0].episode_id == f"e{best}"


def test_a_vector_written_again_replaces_the_old_one(store: Store):
    keys, vectors = filled(store, 30)
    target = unit(*range(1, 9))
    store.vectors.nearest("s", TEXT, target, 1, EpisodeFilter())
    assert store.vectors.put("s", TEXT, [keys[7]], target[None]) == 1
    hits = store.vectors.nearest("s", TEXT, target, 30, EpisodeFilter())
    assert hits[0].passage_id == keys[7]
    assert sorted(hit.passage_id for hit in hits) == keys
    away = store.vectors.nearest("s", TEXT, vectors[7], 1, EpisodeFilter())[0]
    assert away.passage_id != keys[7] or away.score < 0.99


def test_vectors_may_arrive_in_any_order_of_passages(store: Store):
    store.spaces.put(space("s"))
    keys = put(store, "e", "a", "b", "c")
    for key in reversed(keys):
        store.vectors.put("s", TEXT, [key], unit(1, key, 0, 0)[None])
        assert key in {hit.passage_id for hit in store.vectors.nearest("s", TEXT, unit(1, 0, 0, 0), 9, EpisodeFilter())}
    store.vectors.build("s", force=True)
    assert len(store.vectors.nearest("s", TEXT, unit(1, 0, 0, 0), 9, EpisodeFilter())) == 3


def test_built_index_finds_new_and_changed_and_nothing_dead(store: Store):
    keys, vectors = filled(store, 400)
    report = store.vectors.build("s", force=True)
    assert (report.vectors, report.indexed, report.dead, report.rebuilt) == (400, 400, 0, True)
    (new,) = put(store, "new", "text", project="many")
    store.vectors.put("s", TEXT, [new], unit(*[1] * 8)[None])
    store.vectors.put("s", TEXT, [keys[1]], unit(*[-1] * 8)[None])
    store.episodes.delete("e2")
    assert store.vectors.nearest("s", TEXT, unit(*[1] * 8), 3, EpisodeFilter())[0].passage_id == new
    assert store.vectors.nearest("s", TEXT, unit(*[-1] * 8), 3, EpisodeFilter())[0].passage_id == keys[1]
    everything = store.vectors.nearest("s", TEXT, vectors[2], 1_000, EpisodeFilter())
    assert sorted(hit.passage_id for hit in everything) == sorted({*keys, new} - {keys[2]})
    report = store.vectors.build("s")
    assert (report.vectors, report.indexed, report.rebuilt) == (400, 400, False)


def test_size_of_a_space_is_that_of_its_vectors_and_files(store: Store):
    filled(store, 20)
    store.spaces.put(space("e"))
    assert store.vectors.vector_bytes("e") == 0
    alone = store.vectors.vector_bytes("s")
    store.vectors.build("s", force=True)
    assert store.vectors.vector_bytes("s") >= alone > 0


def test_an_index_is_found_by_every_handle(open_store):  # type: ignore[no-untyped-def]
    writer, reader = open_store(), open_store()
    keys, vectors = filled(writer, 100)
    for _ in range(2):
        hits = reader.vectors.nearest("s", TEXT, vectors[5], 3, EpisodeFilter())
        assert hits[0].passage_id == keys[5]
        writer.vectors.build("s", force=True)
        writer.vectors.put("s", TEXT, [keys[6]], vectors[6][None])


def test_ten_that_pass_give_ten_with_an_index_and_without(store: Store):
    keys, vectors = filled(store, 300)
    wheres = [
        EpisodeFilter(projects=("few",)),
        EpisodeFilter(hidden_kinds=("note",)),
        EpisodeFilter(kinds=("note",), projects=("few",)),
    ]
    for _ in range(2):
        for where in wheres:
            wanted = 0 if where.hidden_kinds else 30
            hits = store.vectors.nearest("s", TEXT, vectors[1], 30, where)
            assert len(hits) == wanted
        store.vectors.build("s", force=True)
    few = keys[::10]
    assert [h.passage_id for h in store.vectors.nearest("s", TEXT, vectors[1], 10, wheres[0])] == exactly(
        few, vectors[::10], vectors[1], 10
    )


def test_hiding_most_of_a_kind_still_fills_the_answer(store: Store):
    store.spaces.put(space("s", 8))
    kinds = ["shown" if i % 20 == 0 else "hidden" for i in range(400)]
    store.episodes.put([(episode(f"e{i}", kind=kind), passages("text")) for i, kind in enumerate(kinds)])
    keys = first_keys(store, *(f"e{i}" for i in range(400)))
    vectors = random_units(400, 8)
    store.vectors.put("s", TEXT, keys, vectors)
    store.vectors.build("s", force=True)
    where = EpisodeFilter(hidden_kinds=("hidden",))
    hits = store.vectors.nearest("s", TEXT, vectors[1], 20, where)
    assert [hit.passage_id for hit in hits] == exactly(keys[::20], vectors[::20], vectors[1], 20)


def test_more_vectors_than_one_transaction_takes_are_written(store: Store):
    keys, vectors = filled(store, MAX_ROWS_PER_WRITE + 5)
    assert len(store.vectors.get("s", TEXT, keys)) == store.vectors.count("s") == len(keys)
    assert store.vectors.put("s", TEXT, [], vectors[:0]) == 0


def test_variants_of_a_passage_are_written_together_or_not(store: Store):
    store.spaces.put(space("s", variants=(TEXT, CONTEXT)))
    keys = [key for i in range(7) for key in put(store, f"e{i}", *(f"{i} {j}" for j in range(100)))]
    text, context = random_units(700, 4), random_units(700, 4, seed=1)
    with pytest.raises(DimensionMismatch, match="4-d"):
        store.vectors.put_all("s", keys, {TEXT: text, CONTEXT: random_units(700, 5)})
    with pytest.raises(ValueError, match="700 passage ids came with 699 vectors"):
        store.vectors.put_all("s", keys, {TEXT: text, CONTEXT: context[1:]})
    assert store.vectors.get("s", TEXT, keys) == {}
    store.episodes.delete("e3")
    assert store.vectors.put_all("s", keys, {TEXT: text, CONTEXT: context}) == 1_200
    for variant, written in ((TEXT, text), (CONTEXT, context)):
        found = store.vectors.get("s", variant, keys)
        assert set(found) == {*keys[:300], *keys[400:]}
        np.testing.assert_allclose(found[keys[650]], written[650], atol=2e-3)
    assert store.vectors.put_all("s", keys, {}) == 0


def test_grown_index_finds_new_and_changed_and_nothing_dead(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index_files, "REFRESH_ROWS", 100)  # or SQLite's index would not grow by so few
    store.spaces.put(space("s", 8))
    first = [key for i in range(4) for key in put(store, f"old {i}", *(f"{i} {j}" for j in range(100)))]
    vectors = dict(zip(first, random_units(400, 8), strict=True))
    store.vectors.put("s", TEXT, first, np.stack(list(vectors.values())))
    assert store.vectors.build("s", force=True).indexed == 400
    store.episodes.delete("old 3")
    more = put(store, "new", *(f"new {j}" for j in range(150)))
    changed = dict(zip([*more, *first[:50]], random_units(200, 8, seed=1), strict=True))
    store.vectors.put("s", TEXT, list(changed), np.stack(list(changed.values())))
    vectors = {key: vector for key, vector in vectors.items() if key not in first[300:]} | changed
    report = store.vectors.build("s")
    assert (report.vectors, report.indexed, report.dead) == (450, 450, 0)
    for key in (more[0], more[-1], first[0], first[299]):
        assert store.vectors.nearest("s", TEXT, vectors[key], 1, EpisodeFilter())[0].passage_id == key
    gone = {
        hit.passage_id
        for query in random_units(20, 8, seed=2)
        for hit in store.vectors.nearest("s", TEXT, query, 100, EpisodeFilter())
    } - set(vectors)
    assert gone == set()
    assert store.vectors.recall("s") > 0.99
    assert store.vectors.build("s").rebuilt is False


def test_recall_is_the_share_of_the_true_nearest_that_is_found(store: Store):
    store.spaces.put(space("empty", 8))
    assert store.vectors.recall("empty") == 1.0
    filled(store, 300)
    assert store.vectors.recall("s") == 1.0
    store.vectors.build("s", force=True)
    store.episodes.delete("e5")
    assert 0.99 <= store.vectors.recall("s") <= 1.0
    assert store.vectors.recall("s", k=400, samples=5) == 1.0
    assert store.vectors.recall("s", samples=7) == store.vectors.recall("s", samples=7)
    with pytest.raises(SpaceNotFound, match="nowhere"):
        store.vectors.recall("nowhere")


def test_equal_texts_are_as_near_as_each_other(store: Store):
    keys, vectors = filled(store, 100)
    store.vectors.put("s", TEXT, keys[:40], np.repeat(vectors[:1], 40, axis=0))
    store.vectors.build("s", force=True)
    assert store.vectors.recall("s") == 1.0


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_copies_hide_nothing_from_a_search(store: Store, noise: float):
    store.spaces.put(space("s", 64))
    keys = put(store, "e", *(f"text {j}" for j in range(200)))
    copies = put(store, "copies", *(f"copy {j}" for j in range(500)))
    near = random_units(1, 64) + noise * random_units(500, 64, seed=2)
    given = np.concatenate([random_units(200, 64), near / np.linalg.norm(near, axis=1, keepdims=True)])
    store.vectors.put("s", TEXT, [*keys, *copies], given)
    store.vectors.build("s", force=True)
    for query in random_units(20, 64, seed=4):
        hits = store.vectors.nearest("s", TEXT, query, 10, EpisodeFilter())
        assert [hit.score for hit in hits] == pytest.approx(np.sort(given @ query)[::-1][:10], abs=1e-3)
    assert store.vectors.recall("s") >= 0.98
    assert store.vectors.index_state("s").problem == ""


def test_every_variant_and_superseded_episode_counts_for_recall(store: Store):
    store.spaces.put(space("s", variants=(TEXT, CONTEXT)))
    keys = put(store, "e", *(f"text {i}" for i in range(40)))
    edit(store, "e", status="superseded")
    for variant in (TEXT, CONTEXT):
        store.vectors.put("s", variant, keys, random_units(40, 4))
    store.vectors.build("s", force=True)
    assert store.vectors.recall("s") == 1.0


# --- what episodes say on the whole ------------------------------------------------------------------------


def test_middle_is_the_direction_of_the_mean_of_all_passages(store: Store):
    store.spaces.put(space("s"))
    a, b, c = put(store, "e", "one", "two", "three", project="acme")
    store.vectors.put("s", TEXT, [a, b, c], np.stack([unit(1, 0, 0, 0), unit(1, 0, 0, 0), unit(0, 1, 0, 0)]))
    found = store.vectors.middles("s", TEXT, EpisodeFilter(), 0, 10)
    assert (found.episode_ids, found.projects, found.passage_ids, found.after) == (("e",), ("acme",), (a,), None)
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(found.vectors[0], unit(2, 1, 0, 0), atol=2e-3)


def test_middles_come_in_pages_each_episode_once(store: Store):
    store.spaces.put(space("s"))
    for n in range(7):
        (key,) = put(store, f"e{n}", "text", project=f"p{n}")
        if n not in (2, 3):
            store.vectors.put("s", TEXT, [key], unit(1, n, 0, 0)[None])
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = store.vectors.middles("s", TEXT, EpisodeFilter(), after, 2)
        seen += page.episode_ids
        after = page.after
    assert seen == ["e0", "e1", "e4", "e5", "e6"]


def test_middles_are_of_what_passes_and_is_current(store: Store):
    store.spaces.put(space("s"))
    for name, fields in (("a", {}), ("b", {"kind": "compact_summary"}), ("c", {"project": "secret"})):
        store.vectors.put("s", TEXT, put(store, name, "text", **fields), unit(1, 0, 0, 0)[None])
    where = EpisodeFilter(hidden_kinds=("compact_summary",), hidden_projects=("secret",))
    assert store.vectors.middles("s", TEXT, where, 0, 10).episode_ids == ("a",)
    store.episodes.delete("a")
    assert store.vectors.middles("s", TEXT, where, 0, 10).episode_ids == ()


def test_passages_that_cancel_out_have_no_middle(store: Store):
    store.spaces.put(space("s"))
    store.vectors.put("s", TEXT, put(store, "e", "yes", "no"), np.stack([unit(1, 0, 0, 0), unit(-1, 0, 0, 0)]))
    assert not store.vectors.middles("s", TEXT, EpisodeFilter(), 0, 10).vectors.any()


def test_without_vectors_there_are_no_middles(store: Store):
    store.spaces.put(space("s", dim=6))
    put(store, "e", "text")
    found = store.vectors.middles("s", TEXT, EpisodeFilter(), 0, 10)
    assert (found.episode_ids, found.vectors.shape, found.after) == ((), (0, 6), None)
    with pytest.raises(SpaceNotFound):
        store.vectors.middles("nowhere", TEXT, EpisodeFilter(), 0, 10)
