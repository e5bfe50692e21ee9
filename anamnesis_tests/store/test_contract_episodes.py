"""What every backend promises about episodes, passages and tombstones."""

from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.errors import EpisodeConflict, EpisodeNotFound, InvalidEpisode
from anamnesis_pipeline.model import Episode, EpisodeFilter, EpisodeHead, Passage, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import Layer, layer_of
from anamnesis_pipeline.store.records.episodes import PutReport
from anamnesis_tests.support.samples import DAY, edit, episode, passages, put, space, unit


def test_an_episode_reads_back_as_written(store: Store):
    written = episode(
        "e1",
        tags=("b", "a"),
        machine="laptop",
        path="x/y.jsonl",
        session_id="s",
        message_ids=("u1", "u2"),
        message_keys=("m1",),
        metadata={"nested": {"list": [1, 2.5, None, "ü"]}, "on": True},
        superseded_by=None,
        raw_exchange="quote \" ' \0 ünï 日本",
    )
    store.episodes.put([(written, [])])
    assert store.episodes.get(["e1", "unknown"]) == {"e1": written}
    assert store.episodes.get(["e1"])["e1"].content_hash == written.content_hash


def test_a_head_says_what_the_whole_episode_says(store: Store):
    written = episode(
        "e1", tags=("b", "a"), session_id="s", status="superseded", superseded_by="e2", metadata={"value": 0.5}
    )
    store.episodes.put([(written, [])])
    store.episodes.track(["e1"], DAY)
    heads = store.episodes.heads(["e1", "unknown"])
    assert list(heads) == ["e1"]
    whole = store.episodes.get(["e1"])["e1"]
    assert {f.name: getattr(heads["e1"], f.name) for f in fields(EpisodeHead)} == {
        f.name: getattr(whole, f.name) for f in fields(EpisodeHead)
    }


def test_times_are_kept_to_the_microsecond_and_come_back_in_utc(store: Store):
    there = datetime(2026, 1, 1, 1, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5)))
    store.episodes.put([(replace(episode("e"), timestamp=there), [])])
    stored = store.episodes.get(["e"])["e"].timestamp
    assert stored == there
    assert stored.utcoffset() == timedelta(0)


def test_what_no_store_can_hold_is_not_found(store: Store) -> None:
    put(store, "e", "text")
    bad = "a\ud800"
    put(store, "stored otherwise", "text", project=bad, session_id=bad, tags=(bad,))
    filters: list[dict[str, Any]] = [
        {"projects": (bad,)},
        {"kinds": (bad,)},
        {"tags": (bad,)},
        {"session_id": bad},
        {"instance": bad},
    ]
    for each in filters:
        assert store.episodes.page(EpisodeFilter(**each), 9).items == []
        assert store.text.matching(["text"], 9, EpisodeFilter(**each)) == []
    assert store.episodes.count(EpisodeFilter(hidden_projects=(bad,))) == 2
    assert list(store.episodes.get([bad, "e"])) == list(store.episodes.heads([bad, "e"])) == ["e"]
    assert store.episodes.passages([1 << 63, -(1 << 63) - 1]) == {}
    assert store.episodes.passages_of(bad) == []
    assert store.episodes.delete(bad) is False
    store.episodes.track([bad], DAY)


def test_a_lone_surrogate_is_replaced_and_stops_nothing(store: Store):
    put(store, "e", "broken \ud83d text")
    assert store.episodes.passages_of("e")[0].passage.text == "broken \ufffd text"
    assert store.episodes.put([(episode("e"), passages("broken \ud83d text"))]).unchanged == 1


def test_an_episode_without_time_zone_is_refused(store: Store):
    with pytest.raises(InvalidEpisode, match="timestamp"):
        store.episodes.put([(replace(episode("e"), timestamp=datetime(2026, 1, 1)), [])])


def test_put_reports_what_became_of_each_episode(store: Store):
    one, two = episode("e1"), episode("e2")
    assert store.episodes.put([(one, passages("a")), (two, passages("b"))]) == PutReport(created=2)
    changed = replace(one, summary="another")
    assert store.episodes.put([(changed, passages("a")), (two, passages("b"))]) == PutReport(updated=1, unchanged=1)
    assert store.episodes.get(["e1"])["e1"].summary == "another"


def test_put_of_what_is_new_leaves_what_is_there_as_it_is(store: Store):
    put(store, "old", "as it was")
    put(store, "gone", "text")
    store.episodes.delete("gone")
    given = [(episode(key, summary="anew"), passages("anew")) for key in ("old", "gone", "new", "new")]
    report = store.episodes.put(given, only_new=True)
    assert (report.created, report.updated, report.unchanged, report.tombstoned) == (1, 0, 2, 1)
    assert {key: found.summary for key, found in store.episodes.get(["old", "new"]).items()} == {
        "old": "a summary",
        "new": "anew",
    }
    assert [held.passage.text for held in store.episodes.passages_of("old")] == ["as it was"]


def test_unchanged_passages_keep_their_keys_and_vectors(store: Store):
    store.spaces.put(space("s"))
    before = put(store, "e", "first", "second", "third")
    store.vectors.put("s", Variant.TEXT, before, np.stack([unit(1, 0, 0, i) for i in range(3)]))
    after = put(store, "e", "first", "second grew", "third")
    assert after[0] == before[0]
    assert after[2] == before[2]
    assert after[1] not in before
    assert set(store.vectors.get("s", Variant.TEXT, [*before, *after])) == {before[0], before[2]}


@pytest.mark.parametrize(
    "other",
    [
        Passage(0, "text", "context", ("u2",)),
        Passage(0, "text", "else", ("u",)),
        Passage(0, "more", "context", ("u",)),
        Passage(1, "text", "context", ("u",)),
    ],
)
def test_a_passage_that_differs_in_anything_gets_a_new_key(store: Store, other: Passage):
    store.episodes.put([(episode("e"), [Passage(0, "text", "context", ("u",))])])
    before = store.episodes.passages_of("e")
    store.episodes.put([(episode("e"), [other])])
    after = store.episodes.passages_of("e")
    assert [s.passage for s in after] == [other]
    assert after[0].passage_id != before[0].passage_id


def test_keys_of_deleted_passages_are_never_used_again(store: Store):
    seen: set[int] = set()
    for turn in range(4):
        (key,) = put(store, "e", f"text {turn}")
        assert key not in seen
        seen.add(key)
        store.episodes.delete("e", tombstone=False)


def test_passages_come_by_key_and_by_episode(store: Store):
    keys = put(store, "e1", "a", "b") + put(store, "e2", "c")
    found = store.episodes.passages([*keys, 10**9])
    assert {key: stored.passage.text for key, stored in found.items()} == dict(zip(keys, "abc", strict=True))
    assert found[keys[2]].episode_id == "e2"
    assert store.episodes.passages_of("e1")[1].passage == Passage(1, "b", "", ("uuid-1",))
    assert store.episodes.passages_of("unknown") == []


def test_put_leaves_status_and_counters_of_an_existing_episode(store: Store):
    put(store, "e", "text")
    store.episodes.track(["e"], DAY)
    edit(store, "e", status="superseded", superseded_by="f")
    store.episodes.put([(episode("e", summary="new", path="moved.jsonl"), passages("text"))])
    after = store.episodes.get(["e"])["e"]
    assert (after.path, after.status, after.superseded_by) == ("moved.jsonl", "superseded", "f")
    assert (after.retrieval_count, after.last_retrieved) == (1, DAY)


def test_creating_twice_is_harmless_but_for_other_content(store: Store):
    assert store.episodes.create(episode("e"), passages("text")) is True
    assert store.episodes.create(episode("e"), passages("text")) is False
    with pytest.raises(EpisodeConflict, match="e exists"):
        store.episodes.create(episode("e", summary="other"), passages("text"))


def test_replace_wants_the_hash_that_is_stored(store: Store):
    store.episodes.create(episode("e"), passages("text"))
    first = store.episodes.get(["e"])["e"]
    edited = replace(first, summary="edited", status="superseded", superseded_by="x")
    store.episodes.replace(edited, passages("text"), first.content_hash)
    stored = store.episodes.get(["e"])["e"]
    assert replace(stored, superseded_at=None) == edited
    assert stored.superseded_at is not None
    with pytest.raises(EpisodeConflict):
        store.episodes.replace(first, passages("text"), first.content_hash)
    with pytest.raises(EpisodeNotFound):
        store.episodes.replace(episode("nobody"), [], "")


def test_delete_removes_everything_and_says_so(store: Store):
    store.spaces.put(space("s", token_dims=3))
    (key,) = put(store, "e", "unmistakable")
    store.vectors.put_all("s", [key], {Variant.TEXT: unit(1, 0, 0, 0)[None]}, [np.ones((2, 3), np.int8)])
    assert store.episodes.delete("e") is True
    assert store.episodes.delete("e") is False
    assert store.episodes.get(["e"]) == {}
    assert store.episodes.passages([key]) == {}
    assert store.text.matching(["unmistakable"], 5, EpisodeFilter()) == []
    assert store.text.matching(["unmistakable"], 5, EpisodeFilter(), analyzer="exact") == []
    assert store.vectors.get("s", Variant.TEXT, [key]) == {}
    assert store.vectors.tokens("s", [key]).passage_ids == ()
    assert store.vectors.pending_sources("s") == {}
    assert store.text.check() == []


def test_a_tombstone_keeps_the_id_and_its_messages_away(store: Store):
    put(store, "e", "text", message_keys=("m1", "m2"))
    store.episodes.delete("e")
    again = store.episodes.put(
        [
            (episode("e"), passages("text")),
            (episode("copy", message_keys=("m2",)), passages("text")),
            (episode("partly", message_keys=("m2", "m3")), passages("text")),
            (episode("unrelated"), passages("text")),
        ]
    )
    assert again == PutReport(created=2, tombstoned=2)
    assert set(store.episodes.get(["e", "copy", "partly", "unrelated"])) == {"partly", "unrelated"}


def test_creating_on_purpose_lifts_the_tombstone(store: Store):
    put(store, "e", "text", message_keys=("m1",))
    store.episodes.delete("e")
    assert store.episodes.create(episode("e", message_keys=("m1",)), passages("text"))
    assert store.messages.known_keys(["m1"]) == set()
    assert store.episodes.put([(episode("e", summary="new", message_keys=("m1",)), [])]).updated == 1


def test_without_tombstone_a_deleted_episode_may_come_back(store: Store):
    put(store, "e", "text", message_keys=("m1",))
    assert store.episodes.delete("e", tombstone=False)
    assert store.episodes.put([(episode("e", message_keys=("m1",)), passages("text"))]).created == 1


def test_pages_go_from_new_to_old_each_episode_once(store: Store):
    ids = [f"e{i:02d}" for i in range(23)]
    store.episodes.put([(episode(e, minute=i // 3), []) for i, e in enumerate(ids)])
    seen: list[str] = []
    cursor = None
    while True:
        page = store.episodes.page(EpisodeFilter(), 5, cursor)
        seen += [e.episode_id for e in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_pages_go_from_old_to_new_when_asked(store: Store):
    ids = [f"e{i:02d}" for i in range(11)]
    store.episodes.put([(episode(e, minute=i // 3), []) for i, e in enumerate(ids)])
    first = store.episodes.page(EpisodeFilter(), 6, oldest_first=True)
    second = store.episodes.page(EpisodeFilter(), 6, first.next_cursor, oldest_first=True)
    assert [e.episode_id for e in (*first.items, *second.items)] == ids
    assert second.next_cursor is None


def test_a_session_is_told_from_others(store: Store):
    store.episodes.put([(episode(f"e{i}", minute=i, session_id=f"s{i % 2}"), []) for i in range(5)])
    page = store.episodes.page(EpisodeFilter(session_id="s1"), 10, oldest_first=True)
    assert [e.episode_id for e in page.items] == ["e1", "e3"]
    assert store.episodes.count(EpisodeFilter(session_id="s2")) == 0


def test_a_page_that_ends_exactly_has_no_next_one(store: Store):
    store.episodes.put([(episode(f"e{i}"), []) for i in range(4)])
    assert store.episodes.page(EpisodeFilter(), 4).next_cursor is None
    assert [e.episode_id for e in store.episodes.page(EpisodeFilter(), 2, skip=2).items] == ["e1", "e0"]


def test_an_episode_written_while_paging_disturbs_nothing(store: Store):
    store.episodes.put([(episode(f"e{i}", minute=i), []) for i in range(4)])
    page = store.episodes.page(EpisodeFilter(), 2)
    store.episodes.put([(episode("newest", minute=99), [])])
    assert [e.episode_id for e in store.episodes.page(EpisodeFilter(), 2, page.next_cursor).items] == ["e1", "e0"]


@pytest.mark.parametrize("cursor", ["", "nonsense", "W10=", "WzEsMl0=", "e30=", "ü"])
def test_a_foreign_cursor_is_refused(store: Store, cursor: str):
    with pytest.raises(InvalidEpisode, match="cursor"):
        store.episodes.page(EpisodeFilter(), 5, cursor)


def test_projects_are_distinct_and_sorted(store: Store):
    for i, project in enumerate(["b", "a", "b"]):
        put(store, f"e{i}", project=project)
    assert store.projects.all() == ["a", "b"]


def test_preceding_are_the_nearest_direct_ones_oldest_first(store: Store):
    for i in range(5):
        put(store, f"e{i}", minute=i)
    put(store, "same time", minute=3)
    put(store, "of a log", minute=3, source="logs")
    put(store, "elsewhere", minute=3, project="other")
    put(store, "someone else", minute=3, instance="other")
    put(store, "replaced", minute=3, status="superseded")
    put(store, "drawn from one", minute=3, kind="record")
    before, since = DAY + timedelta(minutes=4), DAY + timedelta(minutes=1)
    found = store.episodes.preceding("main", "acme/api", before, since, 10)
    assert [e.episode_id for e in found] == ["e1", "e2", "e3", "same time"]
    nearest = store.episodes.preceding("main", "acme/api", before, since, 2)
    assert [e.episode_id for e in nearest] == ["e3", "same time"]


def test_tracking_counts_each_episode_once_per_call(store: Store):
    put(store, "e")
    put(store, "other")
    store.episodes.track(["e", "e", "unknown"], DAY)
    store.episodes.track(["e"], DAY + timedelta(hours=1))
    found = store.episodes.get(["e", "other"])
    assert (found["e"].retrieval_count, found["e"].last_retrieved) == (2, DAY + timedelta(hours=1))
    assert (found["other"].retrieval_count, found["other"].last_retrieved) == (0, None)
    assert found["e"].read_count == 0


def test_what_was_read_is_counted_apart(store: Store) -> None:
    put(store, "e")
    store.episodes.track(["e"], DAY)
    store.episodes.track(["e"], DAY, read=True)
    store.episodes.track(["e", "e"], DAY, read=True)
    put(store, "e", "another text")  # a rerun of the ingest
    found, head = store.episodes.get(["e"])["e"], store.episodes.heads(["e"])["e"]
    assert (found.retrieval_count, found.read_count) == (head.retrieval_count, head.read_count) == (1, 2)


def passes(e: Episode, where: EpisodeFilter) -> bool:
    """The filter of the contract, said in Python."""
    return all(
        (
            not where.projects or e.project in where.projects,
            where.instance is None or e.instance == where.instance,
            set(where.tags) <= set(e.tags),
            not where.kinds or e.kind in where.kinds,
            e.kind not in where.hidden_kinds,
            e.source not in where.hidden_sources or e.project in where.shown_projects,
            where.source is None or e.source == where.source,
            where.since is None or e.timestamp >= where.since,
            where.until is None or e.timestamp < where.until,
            where.include_superseded or where.only_superseded or e.status == "active",
            not where.only_superseded or e.status == "superseded",
        )
    )


def few(values: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=2, unique=True).map(tuple)


instants = st.integers(0, 6).map(lambda minutes: DAY + timedelta(minutes=minutes))
filters = st.builds(
    EpisodeFilter,
    projects=few("pqr"),
    instance=st.none() | st.sampled_from("ij"),
    tags=few("xyz"),
    kinds=few("klm"),
    hidden_kinds=few("klm"),
    hidden_sources=st.sampled_from([(), ("logs",), ("logs", "direct")]),
    shown_projects=few("pqr"),
    source=st.none() | st.sampled_from(["direct", "logs"]),
    since=st.none() | instants,
    until=st.none() | instants,
    include_superseded=st.booleans(),
    only_superseded=st.booleans(),
)
episodes = st.lists(
    st.builds(
        episode,
        st.uuids().map(str),
        st.integers(0, 6),
        project=st.sampled_from("pqr"),
        instance=st.sampled_from("ij"),
        tags=few("xyz"),
        kind=st.sampled_from("klm"),
        source=st.sampled_from(["direct", "logs"]),
        status=st.sampled_from(["active", "active", "superseded"]),
    ),
    max_size=12,
    unique_by=lambda e: e.episode_id,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=episodes, where=filters)
def test_every_search_applies_every_filter_exactly(store: Store, written: list[Episode], where: EpisodeFilter):
    for page_item in store.episodes.page(EpisodeFilter(include_superseded=True), 100).items:
        store.episodes.delete(page_item.episode_id, tombstone=False)
    store.spaces.put(space("s"))
    store.episodes.put([(e, passages("needle in the hay")) for e in written])
    keys = [p.passage_id for e in written for p in store.episodes.passages_of(e.episode_id)]
    if keys:
        store.vectors.put("s", Variant.TEXT, keys, np.tile(unit(1, 0, 0, 0), (len(keys), 1)))
    wanted = {e.episode_id for e in written if passes(e, where)}
    assert {e.episode_id for e in store.episodes.page(where, 100).items} == wanted
    assert store.episodes.count(where) == len(wanted)
    assert {h.episode_id for h in store.text.matching(["needles"], 100, where)} == wanted
    assert {h.episode_id for h in store.text.matching(["needle"], 100, where, analyzer="exact")} == wanted
    assert {h.episode_id for h in store.vectors.nearest("s", Variant.TEXT, unit(1, 1, 0, 0), 100, where)} == wanted


def test_own_name_of_a_project_changes_beneath_the_called_one(store: Store):
    for number, project in enumerate(("old", "old", "other")):
        put(store, f"e{number}", "text", project=project)
    store.projects.call("old", "called")
    assert store.projects.rename("old", "new") == 2
    assert sorted(store.projects.names()) == [("new", "called", 2), ("other", "other", 1)]


def test_what_an_episode_stands_for_is_found(store: Store) -> None:
    for name in ("new", "b", "a", "other"):
        put(store, name, "text")
    for name in "ba":
        edit(store, name, status="superseded", superseded_by="new")
    assert store.episodes.superseded_by("new", 9) == ["a", "b"]
    assert store.episodes.superseded_by("new", 1) == ["a"]
    assert store.episodes.superseded_by("other", 9) == store.episodes.superseded_by("\ud800", 9) == []


def test_ids_that_begin_alike_are_listed_in_order(store: Store):
    for name in ("abc2", "abc1", "abd", "ab", "ab%c", "ABC", "ab\U0001f600", "abc"):
        put(store, name, "text")
    assert store.episodes.beginning_with("abc", 9) == ["abc", "abc1", "abc2"]
    assert store.episodes.beginning_with("abc", 2) == ["abc", "abc1"]
    assert store.episodes.beginning_with("ab%", 9) == ["ab%c"]
    assert store.episodes.beginning_with("ab\U0001f600", 9) == ["ab\U0001f600"]
    assert store.episodes.beginning_with("ab\ud800", 9) == store.episodes.beginning_with("x", 9) == []
    assert len(store.episodes.beginning_with("", 9)) == 8


# --- layers: a filter passes exactly what `layer_of` says, at that time -----------------------------------

KINDS = ("exchange", "note", "record", "procedure", "code", "decision")
METADATA: tuple[dict[str, object], ...] = (
    {},
    {"value": 2.79},
    {"value": 2.8},
    {"value": 9},
    {"value": True},
    {"value": "9"},
    {"type": "procedure"},
    {"trust": "file"},
    {"trust": None},
)
AGES = (0, 29, 30, 31)
RETRIEVALS = (0, 1, 2, 4, 5)


@pytest.fixture
def full_store(store: Store) -> Store:
    made = []
    for number, (kind, metadata, age) in enumerate(product(KINDS, METADATA, AGES)):
        tags, source = ("pinned",) * (number % 7 == 0), "direct" if number % 5 == 0 else "logs"
        fields: dict[str, Any] = {"kind": kind, "metadata": metadata, "tags": tags, "source": source}
        made.append((episode(f"e{number}", -age, **fields), passages("text")))
    store.episodes.put(made)
    return store


def test_a_filter_by_layer_passes_what_is_in_it(full_store: Store) -> None:
    known = [episode.episode_id for episode in full_store.episodes.page(EpisodeFilter(), 1_000).items]
    for before, count in zip((0, *RETRIEVALS), RETRIEVALS, strict=False):
        for _ in range(count - before):
            full_store.episodes.track(known, DAY, read=True)
        layers = {e.episode_id: layer_of(e, DAY) for e in full_store.episodes.get(known).values()}
        for layer in Layer:
            where = EpisodeFilter(layers=(layer.value,), layers_at=DAY)
            found = {episode.episode_id for episode in full_store.episodes.page(where, 1_000).items}
            assert found == {episode_id for episode_id, its in layers.items() if its is layer}, (layer, count)


def test_a_search_by_layer_follows_the_clock_and_what_was_read(store: Store) -> None:
    put(store, "e", "zeppelin", kind="exchange")

    def working(minutes: int) -> list[str]:
        where = EpisodeFilter(layers=("working",), layers_at=DAY + timedelta(minutes=minutes))
        return [passage.episode_id for passage in store.text.matching(["zeppelin"], 5, where)]

    for _ in range(5):  # being listed moves nothing
        store.episodes.track(["e"], DAY)
    assert (working(29), working(30)) == (["e"], [])
    store.episodes.track(["e"], DAY, read=True)
    assert working(28) == ["e"]
    store.episodes.track(["e"], DAY, read=True)
    assert working(27) == []


def test_layers_are_of_a_time(store: Store) -> None:
    with pytest.raises(ValueError, match="layers_at"):
        store.episodes.count(EpisodeFilter(layers=("working",)))
