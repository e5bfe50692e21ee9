"""Each stage of the ranking by itself."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from anamnesis_pipeline.model import EpisodeHead, Passage, ScoredPassage, StoredPassage
from anamnesis_pipeline.search.best_sentences import excerpt_of
from anamnesis_pipeline.search.boosts import aged, factors_of
from anamnesis_pipeline.search.freshness import Statement, asks_what_holds, names_what_only, newer_first
from anamnesis_pipeline.search.fusion import Ranking
from anamnesis_pipeline.search.profiles import PROFILES, Decay, Profile, tuned
from anamnesis_pipeline.search.reranking import (
    ROWS_AT_ONCE,
    company,
    late_by_words,
    max_similarities,
    with_late_interaction,
    without_vectors_heard,
)
from anamnesis_pipeline.search.time_expressions import times_in
from anamnesis_pipeline.store.contracts import TokenRows, sign_value

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def head(episode_id: str = "a", **fields: object) -> EpisodeHead:
    values = {"source": "logs", "timestamp": NOW, "instance": "mac", "project": "api", "kind": "exchange", **fields}
    return EpisodeHead(episode_id=episode_id, summary="", **values)  # type: ignore[arg-type]


def ranking(name: str, *keys: int, weight: float = 1.0, score: float = 0.5) -> Ranking:
    return Ranking(name, weight, [ScoredPassage(key, f"e{key}", score) for key in keys])


def token_rows_of(*passages: np.ndarray) -> TokenRows:
    starts = np.cumsum([0, *map(len, passages)])[:-1]
    bits = np.packbits(np.concatenate(passages) > 0, axis=1)
    return TokenRows(tuple(range(7, 7 + len(passages))), starts, bits, passages[0].shape[1])


def test_each_token_of_the_query_counts_its_nearest_token_by_its_weight() -> None:
    query = np.array([[0.75, 0.0], [0.0, 0.25]], dtype=np.float32)
    tokens = token_rows_of(np.array([[1, -1], [-1, 1]]), np.array([[1, -1], [-1, -1]]))
    one = sign_value(2) / 127
    assert max_similarities(query, tokens) == pytest.approx({7: one, 8: 0.5 * one})


def test_passages_of_many_tokens_are_compared_in_parts() -> None:
    rng = np.random.default_rng(3)
    lengths = [1, ROWS_AT_ONCE - 1, 3 * ROWS_AT_ONCE + 5, 1, 2, ROWS_AT_ONCE]
    tokens = token_rows_of(*[rng.choice([-1, 1], (length, 12)) for length in lengths])
    query = rng.standard_normal((5, 12)).astype(np.float32)
    cosines = tokens.numbers().astype(np.float32) @ query.T / 127
    expected = [part.max(axis=0).sum() for part in np.split(cosines, tokens.starts[1:])]
    assert list(max_similarities(query, tokens).values()) == pytest.approx(expected)


def test_without_token_vectors_nothing_is_compared() -> None:
    empty = TokenRows((), np.empty(0, dtype=np.intp), np.empty((0, 1), dtype=np.uint8), 2)
    assert max_similarities(np.ones((1, 2), dtype=np.float32), empty) == {}


def test_late_interaction_reorders_and_leaves_what_has_no_token_vectors_in_its_place() -> None:
    episode_of = {key: f"e{key}" for key in (1, 2, 3)}
    scores = {1: 0.9, 2: 0.8, 3: 0.7}
    after = with_late_interaction(scores, {1: 0.1, 3: 0.9}, 3.0, 2.0, episode_of)
    assert max(after, key=lambda key: after[key]) == 3
    assert sorted(after, key=lambda key: -after[key])[1] == 2
    assert with_late_interaction(scores, {}, 3.0, 2.0, episode_of) == scores
    assert with_late_interaction(scores, {3: 0.9}, 0.0, 2.0, episode_of) == scores


def test_a_score_falls_with_how_much_less_late_interaction_finds() -> None:
    episode_of = {key: f"e{key}" for key in (1, 2, 3, 4)}
    scores, late = {1: 0.9, 2: 0.8, 3: 0.7, 4: 0.1}, {1: 0.9, 3: 0.4}
    places = with_late_interaction(scores, late, 1.0, 0.0, episode_of)
    after = with_late_interaction(scores, late, 1.0, 2.0, episode_of)
    fallen = {key: after[key] / places[key] for key in scores}
    assert fallen == pytest.approx({1: 1.0, 2: 1.0, 3: math.exp(-1), 4: math.exp(-1)})


def test_what_has_no_vector_yet_is_judged_by_words_alone() -> None:
    lists = [ranking("dense_text", 1), ranking("words_text", 2)]
    assert without_vectors_heard({1: 0.5, 2: 0.5}, lists, {2}) == {1: 0.5, 2: 1.0}


def test_what_has_no_vector_yet_counts_by_words_in_late_order() -> None:
    words = Ranking(
        "words_text", 1.0, [ScoredPassage(n, "e", s) for n, s in ((3, 30.0), (1, 10.0), (4, 5.0), (2, 4.0))]
    )
    found = late_by_words({1: 0.4, 2: 0.6}, [words], {3, 4, 5})
    assert found == pytest.approx({3: 0.6, 4: 0.2})  # 3 has thrice the words of 1, which is more than is believed
    assert late_by_words({}, [words], {3}) == {}
    assert late_by_words({1: 0.4}, [ranking("dense_text", 1)], {3}) == {}


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (head("a", session_id="s"), head("b", session_id="s"), True),
        (head("a", session_id="s"), head("b", session_id="s", timestamp=NOW + timedelta(hours=2)), False),
        (head("a", session_id="s"), head("b", session_id="t"), False),
        (head("a", source="direct"), head("b", source="direct", timestamp=NOW + timedelta(minutes=5)), True),
        (head("a", source="direct"), head("b", source="direct", timestamp=NOW + timedelta(hours=2)), False),
        (head("a", source="direct"), head("b", source="direct", project="web"), False),
        (head("a"), head("b"), False),
    ],
)
def test_episodes_of_one_conversation_keep_company(one: EpisodeHead, other: EpisodeHead, together: bool) -> None:
    assert company([(one, 0.8), (other, 0.4)]) == pytest.approx([0.2, 0.4] if together else [0.0, 0.0])


def test_only_the_two_best_others_and_the_first_candidates_count() -> None:
    talk = [(head(f"e{n}", session_id="s"), 1.0 - n / 100) for n in range(60)]
    found = company(talk)
    assert found[0] == pytest.approx((0.99 + 0.98) / 2)
    assert found[1] == pytest.approx((1.0 + 0.98) / 2)
    assert found[50:] == [0.0] * 10
    assert company([]) == []


MAY = times_in("what did we do in May 2026?", NOW, UTC)


@pytest.mark.parametrize(
    ("fields", "least", "factors"),
    [
        ({"tags": ("critical",)}, 0.0, {"priority": 1.5}),
        ({"metadata": {"consolidated_from": ["x"]}}, 0.0, {"priority": 1.2}),
        ({"metadata": {"value": 0.1}}, 0.5, {"value": 0.9}),
        ({"metadata": {"value": 0.1}, "source": "direct"}, 0.5, {}),
        ({"timestamp": datetime(2026, 5, 31, 23, tzinfo=UTC)}, 0.0, {"time": 2.0}),
        ({"timestamp": datetime(2026, 4, 30, tzinfo=UTC)}, 0.0, {}),
    ],
)
def test_factors_lift_what_is_kept_or_named(fields: dict[str, object], least: float, factors: dict[str, float]) -> None:
    assert factors_of(head(**fields), least, MAY) == factors


def test_factors_are_those_of_the_profile() -> None:
    profile = Profile(priority=3.0, routine=0.5, curated=2.0)
    kept = head(tags=("critical",), metadata={"value": 0.1, "trust": "curated"})
    assert factors_of(kept, 0.5, None, profile) == {"trust": 2.0, "value": 0.5, "priority": 3.0}


@pytest.mark.parametrize(
    ("decay", "expected"),
    [(Decay.NONE, 0.5), (Decay.MULTIPLICATIVE, 0.375), (Decay.ADDITIVE, 0.5 + 0.3 * np.exp(-30 / 90))],
)
def test_age_counts_by_the_published_formulas(decay: Decay, expected: float) -> None:
    old = head(timestamp=NOW - timedelta(days=30))
    assert aged(0.5, old, Profile(decay=decay), NOW) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("decay", "weight", "expected"),
    [
        (Decay.MULTIPLICATIVE, 1.0, 0.25),
        (Decay.MULTIPLICATIVE, 0.0, 0.5),
        (Decay.ADDITIVE, 0.6, 0.5 + 0.6 * np.exp(-30 / 90)),
    ],
)
def test_decay_weight_says_how_much_age_counts(decay: Decay, weight: float, expected: float) -> None:
    old = head(timestamp=NOW - timedelta(days=30))
    assert aged(0.5, old, Profile(decay=decay, decay_weight=weight), NOW) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("profile", PROFILES)
def test_ranking_numbers_leave_what_a_profile_sets_itself(profile: str) -> None:
    usual, found = PROFILES[profile], tuned(PROFILES[profile], {"late": 0.2, "rrf_k": 40, "floor": 1.0})
    assert (found.rrf_k, found.weak_below) == (40, 1.0)
    assert found.late == (0 if profile == "plain" else 0.2)
    assert found.floor == (1.0 if usual.floor == PROFILES["default"].floor else usual.floor)
    assert tuned(usual, {}) == usual


@pytest.mark.parametrize("fields", [{"kind": "document"}, {"tags": ("pinned",)}, {"metadata": {"trust": "curated"}}])
def test_what_is_written_down_to_last_does_not_age(fields: dict[str, object]) -> None:
    old = head(timestamp=NOW - timedelta(days=3_650), **fields)
    assert aged(0.5, old, Profile(decay=Decay.MULTIPLICATIVE), NOW) == 0.5


def statement(
    text: str, days_old: int, answers: float | None, vector: tuple[float, float] = (1.0, 0.0), **more: object
) -> Statement:
    values = {"project": "api", "stands_alone": True, **more}
    when = NOW - timedelta(days=days_old)
    return Statement(text, when, answers=answers, vector=np.array(vector), **values)  # type: ignore[arg-type]


QUESTION = "Which database are orders in?"
OLD = "We store orders in MongoDB."
NEW = "Orders moved to PostgreSQL, MongoDB lost too many."


SAID = statement(OLD, 90, 1.0)
MOVED = statement(NEW, 10, 0.65, (0.5, 0.8))
TOLD = replace(SAID, stands_alone=False)
AGAIN = replace(TOLD, when=TOLD.when + timedelta(days=1))
CORRECTS = replace(MOVED, corrects=True)
ON_MONDAYS = statement("Orders are sent on Mondays.", 10, 0.65, (0.5, 0.8))
ELSEWHERE = statement("The docs moved to another host.", 10, 0.65, (0.0, 1.0))
LOGGED = statement("Orders are logged as JSON now.", 10, 0.7, (0.5, 0.8))
PRINTED = statement("MongoDB prints its orders.", 10, 0.9, (0.6, -0.8))
DOCS = statement("The docs are built by hand.", 80, 0.8, (0.6, 0.8))
SERVER = statement("The docs moved to a build server.", 10, 0.75, (0.6, 0.8))
ORDERS: dict[str, tuple[list[Statement], list[int]]] = {
    "the newer one first": ([SAID, MOVED], [1, 0]),
    "the newer one first, where it is so": ([MOVED, SAID], [0, 1]),
    "what a session said stays": ([TOLD, MOVED], [0, 1]),
    "unless it was kept as a correction": ([TOLD, CORRECTS], [1, 0]),
    "also where the session said it twice": ([TOLD, AGAIN, CORRECTS], [2, 0, 1]),
    "not one that names nothing of the older": ([SAID, ON_MONDAYS], [0, 1]),
    "not one that speaks of something else": ([SAID, ELSEWHERE], [0, 1]),
    "not one that hardly answers": ([SAID, replace(MOVED, answers=0.2)], [0, 1]),
    "not one that is not embedded": ([SAID, replace(MOVED, answers=None)], [0, 1]),
    "not one of another project": ([SAID, replace(MOVED, project="web")], [0, 1]),
    "not one inside a conversation": ([SAID, replace(MOVED, stands_alone=False)], [0, 1]),
    "not a long one": ([SAID, replace(MOVED, text=NEW * 30)], [0, 1]),
    "not one nearer to another": ([SAID, SERVER, DOCS], [0, 1, 2]),
    "not one nearer to another before it": ([SAID, DOCS, SERVER], [0, 2, 1]),
    "no third displaces what corrects": ([SAID, statement(NEW, 20, 0.9, (0.8, 0.6)), LOGGED], [1, 0, 2]),
    "of two newer ones that which answers better": (
        [replace(SAID, answers=0.9), statement(NEW, 20, 1.0, (0.5, 0.8)), PRINTED],
        [1, 0, 2],
    ),
    "what hardly answers keeps its place": (
        [statement(OLD, 10, 1.0), replace(DOCS, answers=0.7), replace(SERVER, answers=0.7)],
        [0, 1, 2],
    ),
}


@pytest.mark.parametrize("what", ORDERS)
def test_a_newer_statement_precedes_what_it_corrects(what: str) -> None:
    statements, order = ORDERS[what]
    assert newer_first(QUESTION, statements) == order


def test_what_the_named_one_said_is_corrected_by_nobody_else() -> None:
    uma, vic = statement("Uma: my tea is green", 20, 1.0), statement("Vic: my tea is black", 10, 0.9)
    assert newer_first("Which tea does Uma like?", [uma, vic]) == [0, 1]
    assert newer_first("Which tea is it?", [uma, vic]) == [1, 0]
    later = statement("Uma: my tea is black now", 5, 0.9)
    assert newer_first("Which tea does Uma like?", [uma, later]) == [1, 0]


@pytest.mark.parametrize(
    ("older", "newer", "names"),
    [
        (OLD, NEW, True),
        ("The gateway listens on 8080.", "It is 9443 since 8080 was taken.", True),
        ("Editors need a licence.", "An editor needs none.", True),
        ("Orders are in the database of the shop.", "Orders have a database of their own.", False),
    ],
)
def test_a_correction_may_name_what_held_before(older: str, newer: str, names: bool) -> None:
    assert names_what_only(older, newer, QUESTION) is names


@pytest.mark.parametrize(
    ("question", "present"),
    [
        ("Which database does the order service use?", True),
        ("How long are access tokens valid?", True),
        ("What did we decide about the cache?", False),
        ("How was the migration tested?", False),
        ("order service database", False),
    ],
)
def test_only_a_question_about_how_things_are_wants_the_newest(question: str, present: bool) -> None:
    assert asks_what_holds(question) is present


def test_two_passages_are_shown_in_the_order_of_their_episode() -> None:
    later, first, next_one = (
        StoredPassage(n, "e", Passage(n, text, "", ids))
        for n, text, ids in [(5, "later", ("u5",)), (1, "first", ("u1", "u2")), (2, "next", ("u2",))]
    )
    assert excerpt_of((later, first)) == ("first\n[…]\nlater", ("u5", "u1", "u2"))
    assert excerpt_of((first, next_one)) == ("first\nnext", ("u1", "u2"))
    assert excerpt_of((first,)) == ("first", ("u1", "u2"))
