"""Contract: what is forgotten is found by filters, goes with everything about it, and is gone from the files."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np

from anamnesis_pipeline.model import Passage, Source, Variant, Where
from anamnesis_pipeline.store.base import Publication, Store
from anamnesis_pipeline.store.forget_base import Selection
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.store.samples import DAY, episode, parsed, part, passages, put, segment, space, summary

LOGS = Source("logs", "box", "/root", "-code")


def test_every_filter_is_required_and_parts_without_an_episode_count_too(store: Store) -> None:
    store.ingest.put_sources([LOGS])
    parsed(store, part(segment("m1", minute=1)), part(segment("m2", minute=2), session_id="other", project="b"))
    one, two = part(segment("m1")).part_id, part(segment("m2")).part_id
    put(store, one, "text", source="logs", session_id="s", path="/root/-code/a.jsonl", minute=1)
    put(store, "posted", "text", minute=3)

    def found(**fields: object) -> list[str]:
        return store.forgetting.matching(Selection(**fields))  # type: ignore[arg-type]

    assert found() == ["posted", two, one]
    assert found(ids=(one, two, "no such id")) == [two, one]
    assert found(session_id="s") == [one]
    assert found(path="/root/-code/a.jsonl") == found(path="/root/-code") == found(path="/root/") == [two, one]
    assert found(path="/root/-co") == []
    assert found(projects=("b",)) == [two]
    assert found(since=DAY + timedelta(minutes=2)) == ["posted", two]
    assert found(until=DAY + timedelta(minutes=2)) == [one]
    assert found(projects=("acme/api",), until=DAY + timedelta(minutes=2)) == [one]


def test_a_tombstone_is_left_for_ids_that_no_episode_has(store: Store) -> None:
    store.forgetting.bury({"p1": ["k1", "k2"], "p2": []})
    store.forgetting.bury({"p1": ["k2", "k3"]})
    assert store.forgetting.forgotten(["k1", "k2", "k3", "k4"]) == {"k1", "k2", "k3"}
    assert store.ingest.known_keys(["k3", "k4"]) == {"k3"}
    assert store.episodes.put([(episode("p2"), passages("text"))]).tombstoned == 1


def test_parts_are_there_after_their_episode_was_deleted_until_they_are_removed(store: Store) -> None:
    one, two = part(segment("m1")), part(segment("m2"), path="b.jsonl")
    parsed(store, one, keys=["m1"])
    parsed(store, two, path="b.jsonl", keys=["m2"])
    store.ingest.put_summaries([summary(one), summary(two)])
    put(store, one.part_id, "text", source="logs", message_keys=("m1",))
    store.episodes.delete(one.part_id)
    assert store.ingest.part(one.part_id) is None
    assert store.forgetting.parts([one.part_id, "none"]) == [one]
    assert store.forgetting.parts_of_files([("logs", "a.jsonl"), ("logs", "c.jsonl")]) == [one]
    both = sorted([one, two], key=lambda p: p.part_id)
    assert store.forgetting.parts_after("", 10) == both
    assert store.forgetting.parts_after(both[0].part_id, 10) == both[1:]
    assert store.forgetting.remove_parts([one.part_id, "none"]) == 1
    assert store.forgetting.parts([one.part_id]) == []
    assert store.ingest.summary(one.part_id) is None
    assert store.ingest.summary(two.part_id) == summary(two)
    assert store.ingest.known_keys(["m1"]) == {"m1"}


def test_a_part_written_anew_keeps_its_summary_and_is_published_again(store: Store) -> None:
    one = part(segment("m1", "the secret text"))
    parsed(store, one)
    store.ingest.put_summaries([summary(one)])
    store.episodes.publish([Publication(one, summary(one), [])])
    masked = replace(one, segments=(replace(one.segments[0], text="the [mask] text"),), lead="", prompt="")
    assert store.forgetting.replace_parts([masked, part(segment("none"))]) == 1
    assert store.ingest.part(one.part_id) == masked
    assert store.ingest.parts_to_summarize("logs", DAY, 10) == []
    ((listed, its),) = store.ingest.parts_to_publish("logs", 10)
    assert (listed, its) == (masked, summary(masked))
    again = replace(masked, lead="other")
    assert store.forgetting.replace_parts([again], resummarize=True) == 1
    assert store.ingest.summary(one.part_id) is None
    assert store.ingest.parts_to_summarize("logs", DAY, 10) == [again]


def test_an_episode_is_rewritten_whatever_was_edited_and_keeps_its_counters(store: Store) -> None:
    kept, _ = put(store, "e", "stays", "the secret text")
    held = store.episodes.get(["e"])["e"]
    its_passages = [p.passage for p in store.episodes.passages_of("e")]
    store.episodes.replace(replace(held, summary="edited, secret"), its_passages, held.content_hash)
    store.episodes.track(["e"], DAY)
    wanted = replace(store.episodes.get(["e"])["e"], summary="edited, [mask]", raw_exchange="r", tags=("t",))
    assert store.forgetting.rewrite_episode(wanted, passages("stays", "the [mask] text"))
    assert store.episodes.get(["e"])["e"] == wanted
    ids = [p.passage_id for p in store.episodes.passages_of("e")]
    assert ids[0] == kept
    assert [hit.episode_id for hit in store.text.matching(["mask"], 5, Where())] == ["e"]
    assert store.text.matching(["secret"], 5, Where()) == []
    assert not store.forgetting.rewrite_episode(episode("none"), [])


def test_cached_replies_are_listed_by_key(store: Store) -> None:
    for key in ("b", "a", "c"):
        store.llm.put_reply(key, f"reply {key}", "ollama", "m")
    assert [r.key for r in store.forgetting.replies_after("", 2)] == ["a", "b"]
    (last,) = store.forgetting.replies_after("b", 2)
    assert (last.key, last.reply, last.backend, last.model) == ("c", "reply c", "ollama", "m")


def test_nothing_of_a_deleted_text_is_left_in_any_file(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    store.spaces.put(space("s", dim=8))
    chance = np.random.default_rng(4)
    words = {f"ep{n}": [f"zq{chance.integers(36**9):x}" for _ in range(120)] for n in range(60)}
    for n, (name, own) in enumerate(words.items()):
        texts = [" ".join(own[at : at + 30]) for at in range(0, 120, 30)]
        ids = put(
            store, name, *texts, context=f"context {own[0]}", raw_exchange=" ".join(own), summary=own[1], minute=n
        )
        vectors = chance.standard_normal((len(ids), 8)).astype(np.float32)
        store.vectors.put("s", Variant.TEXT, ids, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        one = part(segment(f"m{n}", " ".join(own)), prompt=own[2])
        parsed(store, one, keys=[f"m{n}"])
        store.llm.put_reply(name, own[3], "b", "m")
    store.vectors.build("s", force=True)
    before = sorted(file.name for file in tmp_path.rglob("*.usearch"))
    gone = [f"ep{n}" for n in range(0, 60, 2)]
    for n, name in enumerate(gone):
        store.episodes.delete(name)
        store.forgetting.remove_parts([part(segment(f"m{2 * n}")).part_id])
    store.llm.forget_replies(gone)
    assert store.forgetting.scrub() == []
    data = b"".join(file.read_bytes().lower() for file in tmp_path.rglob("*") if file.is_file())
    assert [word for name in gone for word in words[name] if word.encode() in data] == []
    kept = [name for name in words if name not in gone]
    assert all(words[name][5].encode() in data for name in kept)
    after = sorted(file.name for file in tmp_path.rglob("*.usearch"))
    assert len(after) == len(before) == 1
    assert after != before
    assert store.vectors.build("s").dead == 0
    assert store.text.check() == []
    assert [hit.episode_id for hit in store.text.matching([words[kept[0]][7]], 5, Where())] == [kept[0]]


def test_an_index_file_of_which_nothing_is_left_goes(store: Store, tmp_path: Path) -> None:
    store.spaces.put(space("s"))
    (passage,) = put(store, "e", "text")
    store.vectors.put("s", Variant.TEXT, [passage], np.array([[1, 0, 0, 0]], np.float32))
    store.vectors.build("s", force=True)
    store.episodes.delete("e")
    assert store.forgetting.scrub() == []
    assert list(tmp_path.rglob("*.usearch")) == []
    (other,) = put(store, "f", "text")
    store.vectors.put("s", Variant.TEXT, [other], np.array([[1, 0, 0, 0]], np.float32))
    assert store.vectors.nearest("s", Variant.TEXT, np.array([1, 0, 0, 0], np.float32), 1, Where())


def test_the_write_ahead_log_is_emptied(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    put(store, "e", "text")
    passage = Passage(0, "x")
    assert store.forgetting.rewrite_episode(episode("e"), [passage])
    assert store.forgetting.scrub() == []
    assert (tmp_path / "anamnesis.db-wal").stat().st_size == 0


def test_an_episode_is_not_published_from_a_part_or_a_summary_that_is_another_by_now(store: Store) -> None:
    one = part(segment("m1", "the walrus"), lead="the quagga")
    parsed(store, one, keys=["m1"])
    store.ingest.put_summaries([summary(one)])
    ((read, its),) = store.ingest.parts_to_publish("logs", 10)
    made = [(episode(one.part_id, source="logs"), passages("the walrus", context="the quagga"))]
    store.forgetting.replace_parts([replace(one, lead="")])
    assert store.episodes.publish([Publication(read, its, made)]).created == 0
    assert store.episodes.publish([Publication(replace(one, lead=""), None, made)]).created == 0
    assert store.episodes.get([one.part_id]) == {}
    assert len(store.ingest.parts_to_publish("logs", 10)) == 1
    assert store.episodes.publish([Publication(replace(one, lead=""), its, made)]).created == 1
    assert store.ingest.parts_to_publish("logs", 10) == []
