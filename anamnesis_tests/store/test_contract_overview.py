"""What people are told of all that is stored equals what was put in."""

from dataclasses import replace
from datetime import timedelta
from typing import get_args

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.overview import EVERYTHING, Census, Grouping, SourceState, Tally
from anamnesis_tests.support.samples import DAY, edit, put


def test_an_empty_store_has_nothing_to_count(store: Store) -> None:
    assert store.overview.tally() == Tally()
    assert store.overview.sources() == {}


def test_the_tally_counts_what_became_of_each_episode(store: Store) -> None:
    for name in ("old", "new", "found", "edited"):
        put(store, name, "text")
    put(store, "decided", "text", kind="decision")
    put(store, "pinned", "text", tags=("pinned", "other"))
    edit(store, "old", status="superseded", superseded_by="new")
    edit(store, "edited", summary="other")
    store.episodes.track(["found", "new"], DAY)
    store.episodes.track(["found"], DAY)
    store.episodes.track(["found"], DAY, read=True)
    store.episodes.track(["found"], DAY, read=True)
    assert store.overview.tally() == Tally(episodes=6, active=5, curated=3, replaced=1, confirmed=1, retrievals=3)


def test_each_source_says_of_when_its_newest_episode_is(store: Store) -> None:
    put(store, "a", "text", minute=1, source="logs")
    put(store, "b", "text", minute=9, source="logs")
    put(store, "c", "text", minute=5)
    assert store.overview.sources() == {
        "logs": SourceState(2, DAY + timedelta(minutes=9)),
        "direct": SourceState(1, DAY + timedelta(minutes=5)),
    }


def test_content_of_source_changes_with_its_passages_alone(store: Store) -> None:
    nothing = store.overview.content_of("logs")
    put(store, "a", "first", source="logs")
    put(store, "b", "second", source="logs")
    content = store.overview.content_of("logs")
    assert content != nothing
    put(store, "c", "third")
    store.episodes.track(["a"], DAY, read=True)
    edit(store, "a", status="superseded", superseded_by="b")
    assert store.overview.content_of("logs") == content
    edit(store, "a", "other", summary="other")
    other = store.overview.content_of("logs")
    assert other != content
    store.episodes.delete("a")
    assert store.overview.content_of("logs") not in (content, other)


def test_census_counts_by_project_and_instance_largest_first(store: Store) -> None:
    assert store.overview.census() == Census()
    put(store, "a", "text", project="zoo")
    put(store, "b", "text", project="zoo", instance="other")
    put(store, "c", "text", project="api")
    put(store, "d", "text", project="api")
    put(store, "e", "text", project="zoo")
    edit(store, "b", "text", status="superseded", superseded_by="a")
    for _ in range(2):
        store.episodes.track(["a", "b"], DAY)
    found = store.overview.census()
    assert found == Census(5, 4, {"zoo": 3, "api": 2}, {"main": 4, "other": 1})
    assert (list(found.projects), list(found.instances)) == (["zoo", "api"], ["main", "other"])
    put(store, "f", "text", source="vault", instance="third")
    shown = store.overview.census(replace(EVERYTHING, hidden_projects=("api",), hidden_sources=("vault",)))
    assert shown == Census(3, 4, {"zoo": 3}, {"main": 2, "other": 1})


def test_episodes_are_counted_by_day_of_universal_time(store: Store) -> None:
    assert store.overview.days(EpisodeFilter()) == {}
    put(store, "late", "text", minute=12 * 60 - 1)
    put(store, "noon", "text")
    put(store, "next", "text", minute=12 * 60, project="zoo")
    put(store, "before", "text", minute=-24 * 60, kind="decision", instance="other")
    first = DAY.date()
    days = {first - timedelta(days=1): 1, first: 2, first + timedelta(days=1): 1}
    assert store.overview.days(EpisodeFilter()) == days
    assert list(store.overview.days(EpisodeFilter())) == sorted(days)
    assert store.overview.days(EpisodeFilter(projects=("zoo",))) == {first + timedelta(days=1): 1}
    assert store.overview.days(EpisodeFilter(hidden_projects=("zoo",), since=DAY)) == {first: 2}
    assert store.overview.days(EpisodeFilter(instance="other", kinds=("decision",))) == {first - timedelta(days=1): 1}
    assert store.overview.days(EpisodeFilter(instance="main", until=DAY + timedelta(hours=1))) == {first: 1}


def test_superseded_is_counted_by_day_when_asked_for(store: Store) -> None:
    put(store, "old", "text")
    edit(store, "old", "text", status="superseded")
    assert store.overview.days(EpisodeFilter()) == {}
    assert store.overview.days(EpisodeFilter(include_superseded=True)) == {DAY.date(): 1}


def test_groups_count_each_episode_once_under_its_value(store: Store) -> None:
    assert store.overview.groups("layer", EVERYTHING, DAY) == {}
    put(store, "new", "text", minute=1)
    put(store, "read", "text", minute=1, kind="exchange")
    put(store, "old", "text", minute=-60 * 24 * 31, project="zoo", kind="exchange")
    put(store, "fact", "text", kind="record", tags=("fact", "zebra"), metadata={"type": "fact"})
    put(store, "way", "text", kind="record", tags=("x", "procedure"), metadata={"type": "procedure"})
    put(store, "untagged", "text", kind="record", metadata={"type": "fact"})
    put(store, "said", "text", kind="chat", source="chat")
    put(store, "code", "text", kind="code", source="logs", instance="other")
    put(store, "pin", "text", tags=("pinned",))
    for _ in range(2):
        store.episodes.track(["read"], DAY, read=True)
    edit(store, "old", "text", status="superseded", superseded_by="new")
    by = {name: store.overview.groups(name, EVERYTHING, DAY + timedelta(minutes=20)) for name in get_args(Grouping)}
    assert by["layer"] == {"semantic": 3, "episodic": 2, "working": 2, "codebase": 1, "procedural": 1}
    assert by["kind"] == {"record": 3, "exchange": 2, "note": 2, "chat": 1, "code": 1}
    assert by["month"] == {DAY.strftime("%Y-%m"): 8, (DAY - timedelta(days=31)).strftime("%Y-%m"): 1}
    assert by["day"][DAY.strftime("%Y-%m-%d")] == by["hour"][DAY.strftime("%Y-%m-%dT%H")] == 8
    assert by["type"] == {"exchange": 2, "note": 2, "": 1, "chat": 1, "code": 1, "fact": 1, "procedure": 1}
    assert (by["source"], by["instance"]) == ({"direct": 7, "chat": 1, "logs": 1}, {"main": 8, "other": 1})
    assert next(iter(by["layer"])) == "semantic"
    assert store.overview.groups("layer", EVERYTHING, DAY + timedelta(hours=2))["episodic"] == 4
    shown = EpisodeFilter(kinds=("exchange",))
    assert store.overview.groups("project", shown, DAY) == {"acme/api": 1}
    assert all(sum(counts.values()) == store.episodes.count(EVERYTHING) for counts in by.values())


def test_most_read_come_first_then_the_last_read(store: Store) -> None:
    for name in ("never", "once", "early", "late", "hidden"):
        put(store, name, "text", project="secret" if name == "hidden" else "api")
    for minute, names in enumerate((["hidden", "late"], ["early", "hidden"], ["early"], ["late", "once", "hidden"])):
        store.episodes.track(names, DAY + timedelta(minutes=minute), read=True)
    shown = EpisodeFilter(hidden_projects=("secret",))
    assert store.overview.most_read(shown, 10) == ["late", "early", "once"]
    assert store.overview.most_read(EpisodeFilter(), 2) == ["hidden", "late"]
