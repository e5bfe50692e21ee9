"""What is curated wins near ties, routine loses them, and every hit says how far it may be relied on."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from anamnesis_pipeline.model import ChatMessage, ChatSession, Citation, EpisodeFilter
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.search.trust import CHAT_FACTOR, CURATED_FACTOR, authority_of, tier_of, trust_factor
from anamnesis_pipeline.services.rendering import answer_body
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.samples import put

NOTES, LOGS = "mac--notes--00000000", "mac--logs--00000000"
TEXT = "the zeppelin gateway keeps its window"


CURATED = {"trust": "curated"}


@pytest.mark.parametrize(
    ("fields", "tier", "shown", "whole"),
    [
        ({"source": NOTES, "metadata": CURATED}, "curated", "authoritative", "authoritative"),
        ({"source": NOTES, "metadata": CURATED, "status": "superseded"}, "curated", "routing", "routing"),
        ({"source": NOTES, "metadata": {"trust": "file"}}, "file", "routing", "routing"),
        ({"source": LOGS, "session_id": "s", "kind": "exchange"}, "transcript", "routing", "arbitration"),
        ({"source": LOGS, "session_id": "s", "kind": "record"}, "transcript", "routing", "routing"),
        ({"source": "direct", "kind": "exchange", "metadata": CURATED}, "", "routing", "routing"),
        ({"source": "chat", "kind": "chat_answer", "metadata": CURATED}, "chat", "routing", "routing"),
        ({"source": "chat", "kind": "exchange"}, "chat", "routing", "routing"),  # as it was stored before
    ],
)
def test_tier_and_authority_come_from_where_an_episode_was_read(
    store: Store, fields: dict[str, object], tier: str, shown: str, whole: str
) -> None:
    put(store, "e", "the zeppelin gateway", **fields)
    episode = store.episodes.get(["e"])["e"]
    assert tier_of(episode) == tier
    assert trust_factor(episode) == {"curated": CURATED_FACTOR, "chat": CHAT_FACTOR}.get(tier, 1.0)
    assert (authority_of(episode), authority_of(episode, is_whole=True)) == (shown, whole)


def hits(store: Store) -> list[tuple[str, str | None]]:
    answer = Engine(store, None).search(SearchQuery("zeppelin gateway", mode=Mode.HYBRID, fold=False))
    found = answer_body(answer, (), explain=False)["results"]
    return [(hit["episode_id"], hit["source"].get("trust")) for hit in found]


def test_what_is_curated_comes_before_what_matches_almost_as_well(store: Store) -> None:
    put(store, "other", TEXT, source=NOTES, metadata={"trust": "file"})
    put(store, "curated", TEXT + " open", source=NOTES, metadata={"trust": "file"})
    assert hits(store) == [("other", "file"), ("curated", "file")]
    put(store, "curated", TEXT + " open", source=NOTES, metadata={"trust": "curated"})
    assert hits(store) == [("curated", "curated"), ("other", "file")]


ROUTINE, WORTH_IT = ({"source": LOGS, "metadata": {"value": value}} for value in (0.5, 4.0))


@pytest.mark.parametrize(
    ("first", "second", "mode", "least", "order"),
    [
        (ROUTINE, WORTH_IT, Mode.HYBRID, 0.0, ["first", "second"]),
        (ROUTINE, WORTH_IT, Mode.HYBRID, 1.0, ["second", "first"]),
        (ROUTINE, WORTH_IT, Mode.EXACT, 1.0, ["first", "second"]),  # literal tokens are asked for
        ({}, {"source": LOGS, "metadata": {"value": "much"}}, Mode.HYBRID, 20.0, ["first", "second"]),  # no value
        ({"metadata": {"value": 0.0}}, WORTH_IT, Mode.HYBRID, 1.0, ["first", "second"]),  # a client posted it
    ],
)
def test_routine_ranks_below_what_matches_almost_as_well(
    store: Store, first: dict[str, object], second: dict[str, object], mode: Mode, least: float, order: list[str]
) -> None:
    put(store, "first", TEXT, **first)
    put(store, "second", TEXT + " open", **second)
    answer = Engine(store, None, min_value=lambda: least).search(SearchQuery("zeppelin gateway", mode=mode, fold=False))
    assert [hit.episode.episode_id for hit in answer.hits] == order


def test_what_is_curated_overtakes_nothing_that_matches_better_by_two_places(store: Store) -> None:
    put(store, "best", TEXT, source=NOTES, metadata={"trust": "file"})
    put(store, "good", TEXT + " open", source=NOTES, metadata={"trust": "file"})
    put(store, "curated", TEXT + " open for a long time", source=NOTES, metadata={"trust": "curated"})
    assert hits(store)[0] == ("best", "file")


def test_a_hit_carries_what_its_score_was_multiplied_with(store: Store) -> None:
    put(store, "file", TEXT, source=NOTES, metadata={"trust": "file"})
    put(store, "kept", TEXT + " open", source=NOTES, metadata={"trust": "curated"})
    answer = Engine(store, None).search(SearchQuery("zeppelin gateway", mode=Mode.HYBRID, fold=False))
    factors = {hit.episode.episode_id: hit.factor for hit in answer.hits}
    assert factors["kept"] == pytest.approx(factors["file"] * CURATED_FACTOR)


def test_a_curated_hit_that_leads_every_list_scores_one_at_most(store: Store) -> None:
    put(store, "curated", TEXT, source=NOTES, metadata={"trust": "curated", "title": ["Gateway", "Window"]})
    answer = Engine(store, None).search(SearchQuery("zeppelin gateway", mode=Mode.HYBRID))
    (hit,) = answer_body(answer, (), explain=False)["results"]
    assert hit["score"] == 1.0
    assert hit["source"]["title"] == ["Gateway", "Window"]


def answer_of(
    store: Store, name: str, *cites: str, text: str = TEXT, kind: str = "chat_answer", minute: int = 0
) -> None:
    """An answer of the chat that cites these episodes."""
    put(store, name, text, minute=minute, source="chat", kind=kind, metadata={})
    when = datetime(2026, 5, 1, tzinfo=UTC)
    store.chat.put_session(ChatSession("s", "Zeppelins", "ollama", "qwen", "", when, when))
    cited = tuple(Citation(each, "", "", when, 0.5) for each in cites)
    store.chat.add(ChatMessage(f"m-{name}", "s", "assistant", text, when, cited, episode_id=name))


@pytest.mark.parametrize("kind", ["chat_answer", "exchange"])
def test_an_answer_of_the_chat_stands_behind_all_that_it_cites(store: Store, kind: str) -> None:
    for name, text in (("near", TEXT + " open"), ("far", TEXT + " open in the long nights of winter")):
        put(store, name, text, source="direct", kind="note")
    answer_of(store, "first", "near", "far", kind=kind, minute=1)
    answer_of(store, "second", "first", kind=kind, minute=2)
    answer = Engine(store, None).search(SearchQuery("zeppelin gateway keeps window", fold=False))
    assert [hit.episode.episode_id for hit in answer.hits][-2:] == ["first", "second"]
    assert {hit.episode.kind for hit in answer.hits} == {"note", "chat_answer"}
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)


def test_answers_of_the_chat_are_filtered_by_their_kind(store: Store) -> None:
    for name, source, kind in (
        ("old", "chat", "exchange"),
        ("new", "chat", "chat_answer"),
        ("said", "logs", "exchange"),
    ):
        put(store, name, TEXT, source=source, kind=kind)

    def found(*kinds: str) -> set[str]:
        listed = {each.episode_id for each in store.episodes.page(EpisodeFilter(kinds=kinds), 9).items}
        assert listed == {each.episode_id for each in store.text.matching(["zeppelin"], 9, EpisodeFilter(kinds=kinds))}
        return listed

    assert found("chat_answer") == {"old", "new"}
    assert found("exchange") == {"said"}
    assert found("exchange", "chat_answer") == {"old", "new", "said"}


def test_a_former_answer_of_the_chat_can_be_edited(store: Store) -> None:
    put(store, "old", TEXT, source="chat", kind="exchange")
    known = store.episodes.get(["old"])["old"]
    edited = replace(known, summary="another")
    store.episodes.replace(edited, [], known.content_hash)
    assert store.episodes.get(["old"])["old"].summary == "another"
