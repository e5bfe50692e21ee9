"""Contract: what is forgotten is found by filters, and goes with everything about it."""

from dataclasses import replace
from datetime import timedelta

from anamnesis_pipeline.model import EpisodeFilter, Source
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import Publication
from anamnesis_pipeline.store.records.forgetting import Selection
from anamnesis_tests.support.samples import DAY, edit, episode, parsed, part, passages, put, segment, summary

LOGS = Source("logs", "box", "/root", "-code")


def test_every_filter_is_required_of_parts_as_well(store: Store) -> None:
    store.files.put_sources([LOGS])
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
    assert store.messages.known_keys(["k3", "k4"]) == {"k3"}
    assert store.episodes.put([(episode("p2"), passages("text"))]).tombstoned == 1


def test_parts_of_a_deleted_episode_stay_until_removed(store: Store) -> None:
    one, two = part(segment("m1")), part(segment("m2"), path="b.jsonl")
    parsed(store, one, keys=["m1"])
    parsed(store, two, path="b.jsonl", keys=["m2"])
    store.summaries.put_summaries([summary(one), summary(two)])
    put(store, one.part_id, "text", source="logs", message_keys=("m1",))
    store.episodes.delete(one.part_id)
    assert store.parts.part(one.part_id) is None
    assert store.forgetting.parts([one.part_id, "none"]) == [one]
    assert store.forgetting.parts_of_files([("logs", "a.jsonl"), ("logs", "c.jsonl")]) == [one]
    both = sorted([one, two], key=lambda p: p.part_id)
    assert store.forgetting.parts_after("", 10) == both
    assert store.forgetting.parts_after(both[0].part_id, 10) == both[1:]
    assert store.forgetting.remove_parts([one.part_id, "none"]) == 1
    assert store.forgetting.parts([one.part_id]) == []
    assert store.summaries.summary(one.part_id) is None
    assert store.summaries.summary(two.part_id) == summary(two)
    assert store.messages.known_keys(["m1"]) == {"m1"}


def test_rewritten_part_keeps_its_summary_and_is_published(store: Store) -> None:
    one = part(segment("m1", "the secret text"))
    parsed(store, one)
    store.summaries.put_summaries([summary(one)])
    store.episodes.publish([Publication(one, summary(one), [])])
    masked = replace(one, segments=(replace(one.segments[0], text="the [mask] text"),), lead="", prompt="")
    assert store.forgetting.replace_parts([masked, part(segment("none"))]) == 1
    assert store.parts.part(one.part_id) == masked
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == []
    ((listed, its),) = store.parts.parts_to_publish("logs", 10)
    assert (listed, its) == (masked, summary(masked))
    again = replace(masked, lead="other")
    assert store.forgetting.replace_parts([again], resummarize=True) == 1
    assert store.summaries.summary(one.part_id) is None
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == [again]


def test_rewritten_episode_keeps_its_counters(store: Store) -> None:
    kept, _ = put(store, "e", "stays", "the secret text")
    edit(store, "e", summary="edited, secret")
    store.episodes.track(["e"], DAY)
    wanted = replace(store.episodes.get(["e"])["e"], summary="edited, [mask]", raw_exchange="r", tags=("t",))
    assert store.forgetting.rewrite_episode(wanted, passages("stays", "the [mask] text"))
    assert store.episodes.get(["e"])["e"] == wanted
    ids = [p.passage_id for p in store.episodes.passages_of("e")]
    assert ids[0] == kept
    assert [hit.episode_id for hit in store.text.matching(["mask"], 5, EpisodeFilter())] == ["e"]
    assert store.text.matching(["secret"], 5, EpisodeFilter()) == []
    assert not store.forgetting.rewrite_episode(episode("none"), [])


def test_cached_replies_are_listed_by_key(store: Store) -> None:
    for key in ("b", "a", "c"):
        store.llm.put_reply(key, f"reply {key}", "ollama", "m")
    assert [r.key for r in store.llm.replies_after("", 2)] == ["a", "b"]
    (last,) = store.llm.replies_after("b", 2)
    assert (last.key, last.reply, last.backend, last.model) == ("c", "reply c", "ollama", "m")


def test_nothing_is_published_from_a_changed_part_or_summary(store: Store) -> None:
    one = part(segment("m1", "the walrus"), lead="the quagga")
    parsed(store, one, keys=["m1"])
    store.summaries.put_summaries([summary(one)])
    ((read, its),) = store.parts.parts_to_publish("logs", 10)
    made = [(episode(one.part_id, source="logs"), passages("the walrus", context="the quagga"))]
    store.forgetting.replace_parts([replace(one, lead="")])
    assert store.episodes.publish([Publication(read, its, made)]).created == 0
    assert store.episodes.publish([Publication(replace(one, lead=""), None, made)]).created == 0
    assert store.episodes.get([one.part_id]) == {}
    assert len(store.parts.parts_to_publish("logs", 10)) == 1
    assert store.episodes.publish([Publication(replace(one, lead=""), its, made)]).created == 1
    assert store.parts.parts_to_publish("logs", 10) == []
