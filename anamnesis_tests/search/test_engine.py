from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from anamnesis_pipeline.embeddings.base import query_vectors
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel
from anamnesis_pipeline.embeddings.space_models import SpaceModels
from anamnesis_pipeline.errors import EmbeddingQueueFull, ModelLoading, StoreBusy, StoreCorrupt
from anamnesis_pipeline.model import EpisodeFilter, Source, Space
from anamnesis_pipeline.search.engine import CHARS_PER_TOKEN, Engine
from anamnesis_pipeline.search.project_labels import labels_of
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.store.contracts import IndexState
from anamnesis_tests.support.fake_models import Gate, HashedWords, wait_for
from anamnesis_tests.support.searched_memory import EMBEDDER, SPACE, START, Memory, embed_query

EVERYTHING: dict[str, Any] = {"min_score": 0, "fold": False, "top_k": 10}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("narrow", "fields"),
    [
        ({"projects": ("wanted",)}, {"project": "wanted"}),
        ({"tags": ("t",)}, {"tags": ("t", "u")}),
        ({"kinds": ("decision",)}, {"kind": "decision"}),
        ({"instance": "pi"}, {"instance": "pi"}),
    ],
)
def test_ten_matches_give_ten_however_many_others_match_better(
    memory: Memory, mode: Mode, narrow: dict[str, Any], fields: dict[str, Any]
) -> None:
    for _ in range(60):
        memory.add("zeppelin hangar door", "zeppelin hangar", "zeppelin door", project="other")
    wanted = [
        memory.add(f"a zeppelin of another size, number {n}, seen from far away", status=status, **fields)
        for n, status in enumerate(["active", "superseded"] * 5)
    ]
    found = memory.ids(
        "zeppelin hangar door", mode=mode, where=EpisodeFilter(include_superseded=True, **narrow), **EVERYTHING
    )
    assert sorted(found) == sorted(wanted)


def test_time_bounds_are_exact(memory: Memory) -> None:
    ids = [memory.add(f"zeppelin {n}") for n in range(6)]
    where = EpisodeFilter(since=START + timedelta(hours=2), until=START + timedelta(hours=4))
    assert sorted(memory.ids("zeppelin", where=where, **EVERYTHING)) == ids[1:3]


def test_superseded_and_compaction_summaries_are_hidden_unless_asked_for(memory: Memory) -> None:
    old, new = memory.add("zeppelin", status="superseded"), memory.add("zeppelin now")
    made = memory.add("zeppelin hangar", kind="compact_summary")
    assert memory.ids("zeppelin") == [new]
    assert set(memory.ids("zeppelin", where=EpisodeFilter(include_superseded=True))) == {old, new}
    assert memory.ids("zeppelin hangar", where=EpisodeFilter(kinds=("compact_summary",))) == [made]


def test_a_bare_project_name_means_every_project_of_that_name(memory: Memory) -> None:
    labels = ("acme/api", "~/code/api", "api", "my-api", "api/x")
    ids = {label: memory.add("zeppelin", project=label) for label in labels}
    found = memory.ids("zeppelin", where=EpisodeFilter(projects=("api",)), **EVERYTHING)
    assert sorted(found) == sorted([ids["acme/api"], ids["~/code/api"], ids["api"]])
    assert memory.ids("zeppelin", where=EpisodeFilter(projects=("acme/api",)), **EVERYTHING) == [ids["acme/api"]]
    assert memory.ids("zeppelin", where=EpisodeFilter(projects=("nowhere",))) == []
    assert labels_of("api", ["my-api", "a/api", "api/b"]) == ["a/api"]


@pytest.mark.parametrize(
    ("token", "alike"),
    [
        ("192.168.0.108", "192.168.0.10"),
        ("--no-verify", "--no-edit"),
        ("v1.2.3", "v1.2.30"),
        ("src/billing.py:44", "src/billing.py:45"),
        ("chargeCustomerOnce", "chargeCustomerTwice"),
        ("a7f3b2c", "a7f3b2d"),
        ("HTTP2", "HTTP3"),
        ("foo_bar", "foo_baz"),
    ],
)
def test_a_literal_token_ranks_its_own_passage_first(memory: Memory, token: str, alike: str) -> None:
    for n in range(20):
        memory.add(f"what happened with {alike} in release {n}")
    wanted = memory.add(f"In the end it was {token}.")
    for n in range(20):
        memory.add(f"something else about {alike} happened on day {n} of the week")
    assert memory.ids(f"what happened with {token}?")[0] == wanted
    assert memory.ids(token, mode=Mode.EXACT)[0] == wanted


def test_what_is_asked_around_an_event_is_looked_for_at_its_time(memory: Memory) -> None:
    day = datetime(2026, 3, 5, 10, tzinfo=UTC)
    memory.add("the zeppelin migration ran", timestamp=day)
    late = memory.add("the invoices broke in the hangar", timestamp=day + timedelta(days=40))
    soon = memory.add("the invoices broke in the office", timestamp=day + timedelta(hours=2))
    ids = memory.ids("what broke in the invoices right after the zeppelin migration?", top_k=20)
    assert ids.index(soon) < ids.index(late)
    ids = memory.ids("what broke in the invoices in the hangar?", top_k=20)
    assert ids.index(late) < ids.index(soon)


def test_an_episode_is_one_hit_with_its_best_passage_as_excerpt(memory: Memory) -> None:
    text = "the zeppelin hangar burns"
    episode = memory.add("nothing here", text, "zeppelin")
    (hit,) = memory.ask("zeppelin hangar burns").hits
    assert (hit.episode.episode_id, hit.passage.passage.text) == (episode, text)
    near = embed_query("zeppelin hangar burns", SPACE).vector @ EMBEDDER.embed([text], "passage")[0]
    assert hit.similarity == pytest.approx(float(near), abs=1e-3)


def test_equals_are_ordered_the_same_way_every_time(memory: Memory) -> None:
    ids = [memory.add("the same zeppelin") for _ in range(12)]
    answers = {tuple(memory.ids("zeppelin", fold=False, top_k=12)) for _ in range(5)}
    assert len(answers) == 1
    assert sorted(answers.pop()) == ids


def test_near_duplicates_are_one_hit_that_names_the_others(memory: Memory) -> None:
    copies = [memory.add("the zeppelin hangar needs new doors") for _ in range(3)]
    other = memory.add("a zeppelin without any hangar at all")
    hits = memory.ask("zeppelin hangar doors").hits
    assert [hit.episode.episode_id in copies for hit in hits] == [True, False]
    assert {hits[0].episode.episode_id, *hits[0].also} == set(copies)
    assert (hits[1].episode.episode_id, hits[1].also) == (other, ())
    assert len(memory.ids("zeppelin hangar doors", fold=False)) == 4


def test_of_folded_copies_one_that_is_not_superseded_is_shown(memory: Memory) -> None:
    text = "the zeppelin hangar doors jam in frost and need oil twice a year says the keeper of the field"
    old = memory.add(text, status="superseded")
    new = memory.add(f"{text} today", status="active")
    every = EpisodeFilter(include_superseded=True)
    assert memory.ids("zeppelin hangar doors", where=every, fold=False) == [old, new]
    (hit,) = memory.ask("zeppelin hangar doors", where=every).hits
    assert (hit.episode.episode_id, hit.also) == (new, (old,))


def test_what_is_folded_away_is_replaced(memory: Memory) -> None:
    for _ in range(120):
        memory.add("zeppelin hangar")
    others = [memory.add(f"zeppelin number {n} with its crew and cargo {n} stood in a far hangar") for n in range(4)]
    assert set(others) < set(memory.ids("zeppelin hangar", top_k=5))


@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.SEMANTIC])
def test_the_floor_drops_what_is_less_similar_and_nothing_else(memory: Memory, mode: Mode) -> None:
    for n in range(80):
        memory.add(f"zeppelin {n} over some other town with entirely different words")
    near = [memory.add(f"zeppelin hangar {n}") for n in range(3)]
    hits = memory.ask("zeppelin hangar", mode=mode, min_score=0.6, fold=False, top_k=10).hits
    assert sorted(hit.episode.episode_id for hit in hits) == near
    assert all(hit.similarity is not None and hit.similarity >= 0.6 for hit in hits)


def test_the_budget_is_kept_and_a_long_hit_does_not_hide_a_short_one(memory: Memory) -> None:
    long = memory.add("zeppelin hangar " + "and more " * 60)
    short = memory.add("zeppelin")
    assert set(memory.ids("zeppelin hangar")) == {long, short}
    answer = memory.ask("zeppelin hangar", max_tokens=20)
    assert [hit.episode.episode_id for hit in answer.hits] == [short]
    assert answer.total_tokens == 2 * len("zeppelin") // CHARS_PER_TOKEN <= 20
    assert memory.ask("zeppelin hangar", max_tokens=1).hits == []


def test_a_retrieval_counts_once_for_each_hit_and_only_when_asked(memory: Memory) -> None:
    shown, folded = memory.add("zeppelin"), memory.add("zeppelin")
    memory.ask("zeppelin", track=False)
    (hit,) = memory.ask("zeppelin").hits
    stored = memory.store.episodes.get([shown, folded])
    assert {key: episode.retrieval_count for key, episode in stored.items()} == {
        hit.episode.episode_id: 1,
        hit.also[0]: 0,
    }


@pytest.mark.parametrize(
    ("mode", "lists"),
    [
        (Mode.HYBRID, {"dense_text", "dense_context", "words_text", "words_context", "exact", "rare"}),
        (Mode.SEMANTIC, {"dense_text", "dense_context"}),
        (Mode.EXACT, {"exact"}),
    ],
)
def test_an_explanation_names_each_list_that_the_mode_asks(memory: Memory, mode: Mode, lists: set[str]) -> None:
    memory.add("run src/billing.py:44 again")
    (hit,) = memory.ask("src/billing.py:44", mode=mode, explain=True).hits
    assert hit.explanation is not None
    assert hit.explanation.pop("stages") == {"factors": {}}
    assert {name: entry["rank"] for name, entry in hit.explanation.items()} == dict.fromkeys(lists, 1)
    assert memory.ask("src/billing.py:44", mode=mode).hits[0].explanation is None


def test_without_a_model_words_answer_and_the_answer_says_so(memory: Memory) -> None:
    found = memory.add("zeppelin", embed=False)

    def loading(text: str, space: object) -> Any:
        raise ModelLoading("the model is loading")

    for engine in (Engine(memory.store, None), Engine(memory.store, loading)):
        answer = engine.search(SearchQuery("zeppelin"))
        assert [hit.episode.episode_id for hit in answer.hits] == [found]
        assert answer.hits[0].similarity is None
        assert answer.degraded[0].startswith("dense: ")
    assert engine.search(SearchQuery("zeppelin", mode=Mode.SEMANTIC)).hits == []
    assert engine.search(SearchQuery("zeppelin", mode=Mode.EXACT)).degraded == []


@pytest.mark.parametrize(
    ("question", "note"),
    [
        ("how does Quillfeather like the gateway log?", "Quillfeather reads the gateway log on paper"),
        ("gateway qx-7719 log", "The gateway qx-7719 is in the cellar"),
        ("quillfeather", "Nobody but Quillfeather opens that door"),
    ],
)
@pytest.mark.parametrize("embed", [True, False])
def test_a_word_that_hardly_anything_has_goes_first(memory: Memory, question: str, note: str, embed: bool) -> None:
    for n in range(8):
        memory.add(f"How does the gateway like its log? The gateway log, number {n}", session_id="s", source="logs")
    new = memory.add(note, embed=embed)
    answer = memory.ask(question, fold=False)
    assert answer.hits[0].episode.episode_id == new
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] <= 1


def test_a_word_that_many_have_puts_nothing_first(memory: Memory) -> None:
    for n in range(4):
        memory.add(f"Marta, number {n}")
    best = memory.add("The gateway log is rotated weekly by Marta")
    assert memory.ids("when is the gateway log of Marta rotated")[0] == best


def test_what_has_no_vector_yet_is_not_outranked_for_it(memory: Memory) -> None:
    for n in range(6):
        memory.add(f"The gateway log is kept for {n} days in the cellar", session_id="s", source="logs")
    note = "The rotation of the gateway log happens every Friday after lunch in the cellar"
    new = memory.add(note, embed=False)
    assert memory.ids("gateway log rotation happens friday lunch", fold=False)[0] == new


def test_words_answer_while_the_model_of_the_only_space_is_loading(memory: Memory) -> None:
    gate, spaces = Gate(), memory.store.spaces
    new = replace(SPACE, key="new", model_id="new-model")

    def open_pool(space: Space) -> PinnedPool:
        if space.key == "new":
            gate()
        return PinnedPool(PoolModel(space.model_id, space.dim, lambda: HashedWords(space.dim)), available_cores()[:1])

    models = SpaceModels(open_pool, spaces.active, exists=lambda key: any(space.key == key for space in spaces.all()))
    with closing(models):
        models.load_in_background()
        wait_for(lambda: models.ready)
        spaces.put(new)
        spaces.activate("new")
        found = memory.add("zeppelin", embed=False)
        spaces.drop(SPACE.key)
        answer = Engine(memory.store, models.embed_query, models.space_for).search(SearchQuery("zeppelin"))
        gate.opened.set()
    assert [hit.episode.episode_id for hit in answer.hits] == [found]
    assert answer.degraded == ["dense: the embedding model new-model is still loading; try again in a few seconds"]


class Broken:
    """A part of a store whose named calls fail."""

    def __init__(self, part: object, error: Exception, *names: str) -> None:
        self._part, self._error, self._names = part, error, names

    def __getattr__(self, name: str) -> Any:
        return self._fail if name in self._names else getattr(self._part, name)

    def _fail(self, *_: object, **__: object) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("part", "error", "calls", "degraded"),
    [
        ("text", StoreCorrupt("malformed"), ["matching"], ["words_text: malformed", "words_context: malformed"]),
        ("vectors", StoreCorrupt("none"), ["nearest", "get"], ["dense_text: none", "dense_context: none"]),
        ("episodes", StoreBusy("locked"), ["track"], ["track: locked"]),
    ],
)
def test_what_fails_in_the_store_is_told_and_the_rest_answers(
    memory: Memory, part: str, error: Exception, calls: list[str], degraded: list[str]
) -> None:
    found = memory.add("zeppelin")
    broken = replace(memory.store, **{part: Broken(getattr(memory.store, part), error, *calls)})
    answer = Engine(broken, embed_query).search(SearchQuery("zeppelin"))
    assert [hit.episode.episode_id for hit in answer.hits] == [found]
    assert answer.degraded == degraded


def test_vector_index_problem_is_told(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.add("zeppelin")
    assert memory.ask("zeppelin").degraded == []
    state = IndexState(recall=0.37, is_exact=True)
    monkeypatch.setattr(type(memory.store.vectors), "index_state", lambda *_: state)
    told = "dense: the vector index finds 37% of what is nearest: every vector is compared instead"
    assert memory.ask("zeppelin").degraded == [told]
    assert memory.ask("zeppelin", mode=Mode.EXACT).degraded == []


def test_the_space_that_answers_is_the_one_searched_and_named(memory: Memory) -> None:
    other = replace(SPACE, key="other", model_id="other-model", status="building")
    memory.store.spaces.put(other)
    found = memory.add("zeppelin")
    memory.store.spaces.drop("other")
    engine = Engine(memory.store, embed_query, lambda active: SPACE)
    answer = engine.search(SearchQuery("zeppelin", mode=Mode.SEMANTIC))
    assert (answer.model_id, [hit.episode.episode_id for hit in answer.hits]) == ("hashing-128", [found])


@pytest.mark.parametrize("text", ["", "   ", '"', "* OR NEAR(", "\0", "the of and", "-" * 5_000, "日本語", "👩‍💻"])
@pytest.mark.parametrize("mode", list(Mode))
def test_no_question_is_syntax(memory: Memory, text: str, mode: Mode) -> None:
    memory.add("zeppelin")
    assert len(memory.ask(text, mode=mode).hits) <= 1


def test_one_episode_of_many_passages_does_not_hide_the_others(memory: Memory) -> None:
    memory.add(*[f"zeppelin hangar door {n}" for n in range(200)])
    others = [memory.add(f"zeppelin {n}") for n in range(9)]
    assert set(others) < set(memory.ids("zeppelin hangar door", **EVERYTHING))


@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.SEMANTIC])
def test_a_full_queue_before_the_model_sends_the_caller_away(memory: Memory, mode: Mode) -> None:
    memory.add("zeppelin")
    gate = Gate()
    model = PoolModel("hashing", 16, lambda: HashedWords(16, gate))
    with closing(PinnedPool(model, available_cores()[:1], queue_max=1)) as pool, ThreadPoolExecutor(1) as caller:
        pool.load()
        busy = caller.submit(pool.embed, ["a"], "query")
        assert gate.reached.wait(60)
        engine = Engine(memory.store, lambda text, space: query_vectors(pool.embed_with_tokens([text], "query")))
        with pytest.raises(EmbeddingQueueFull):
            engine.search(SearchQuery("zeppelin", mode=mode))
        assert engine.search(SearchQuery("zeppelin", mode=Mode.EXACT)).hits
        gate.opened.set()
        busy.result(60)


def test_an_empty_answer_says_what_is_still_to_be_read_and_embedded(memory: Memory) -> None:
    answer = memory.ask("zeppelin")
    assert (answer.hits, answer.total_tokens, answer.degraded) == ([], 0, ["reading: nothing is stored yet"])
    memory.add("zeppelin", embed=False)
    memory.store.files.put_sources([Source("logs"), Source("direct", kind="reserved")])
    assert memory.ask("nothing alike", mode=Mode.EXACT).degraded == ["reading: not finished in 1 of 1 source of logs"]
    assert memory.ask("nothing alike").degraded[-1] == "embedding: no vectors yet of 1 of 1 passage"
    assert memory.ask("zeppelin").degraded == ["embedding: no vectors yet of 1 passage, found by words alone"]
    assert memory.ask("zeppelin", mode=Mode.EXACT).degraded == []


@pytest.mark.parametrize(("zone", "lifted"), [("UTC", {"e001", "e002"}), ("Pacific/Auckland", {"e002"})])
def test_a_day_of_the_question_is_one_of_the_configured_zone(memory: Memory, zone: str, lifted: set[str]) -> None:
    memory.add("zeppelin inspection, first part", timestamp=datetime(2026, 5, 4, 9, tzinfo=UTC))
    memory.add("zeppelin inspection, second part", timestamp=datetime(2026, 5, 4, 15, tzinfo=UTC))
    engine = Engine(memory.store, embed_query, zone=lambda: ZoneInfo(zone))
    now = datetime(2026, 5, 5, 13, tzinfo=UTC)  # the 6th of May in Auckland, where the second part was on the 5th
    answer = engine.search(SearchQuery("zeppelin inspection yesterday", now=now, explain=True, min_score=0.0))
    factors = {h.episode.episode_id: h.explanation["stages"]["factors"] for h in answer.hits if h.explanation}
    assert {key for key, found in factors.items() if "time" in found} == lifted


def test_explanation_names_the_ranking_numbers_that_are_not_the_defaults(memory: Memory) -> None:
    memory.add("zeppelin hangar")
    numbers: dict[str, float] = {}
    engine = Engine(memory.store, embed_query, numbers=lambda: numbers)
    for numbers in ({}, {"rrf_k": 1.0, "depth": 5}):
        explanation = engine.search(SearchQuery("zeppelin", explain=True)).explanation
        assert explanation is not None
        assert explanation["ranking"] == numbers


def test_ranking_numbers_order_the_hits(memory: Memory) -> None:
    kept = memory.add("zeppelin hangar door", tags=("critical",))
    near = memory.add("zeppelin hangar")
    orders = []
    for numbers in ({"priority": 10.0}, {"priority": 0.1}):
        engine = Engine(memory.store, embed_query, numbers=lambda numbers=numbers: numbers)  # type: ignore[misc]
        orders.append([hit.episode.episode_id for hit in engine.search(SearchQuery("zeppelin hangar")).hits])
    assert orders == [[kept, near], [near, kept]]
