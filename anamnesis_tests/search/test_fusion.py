from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.model import ScoredPassage
from anamnesis_pipeline.search.fusion import FUSION_DEPTH, Ranking, best_passages, explain, reciprocal_rank_fusion

orders = st.lists(st.integers(0, 60), unique=True, max_size=60)
rankings = st.lists(st.tuples(orders, st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=5).map(
    lambda lists: [ranking(str(n), order, weight) for n, (order, weight) in enumerate(lists)]
)


def ranking(name: str, order: list[int], weight: float = 1.0) -> Ranking:
    return Ranking(name, weight, [ScoredPassage(p, f"e{p % 7}", 1.0 / (n + 1)) for n, p in enumerate(order)])


@given(rankings)
def test_every_candidate_has_a_score_above_nought_and_at_most_one(lists: list[Ranking]) -> None:
    scores = reciprocal_rank_fusion(lists)
    assert set(scores) == {p.passage_id for r in lists for p in r.passages}
    assert all(0 < score <= 1 + 1e-9 for score in scores.values())


def test_first_place_everywhere_is_one() -> None:
    assert reciprocal_rank_fusion([ranking("a", [7, 8]), ranking("b", [7, 9], 2.0)])[7] == 1.0


@given(rankings)
def test_the_order_of_the_lists_does_not_matter(lists: list[Ranking]) -> None:
    forwards, backwards = reciprocal_rank_fusion(lists), reciprocal_rank_fusion(lists[::-1])
    assert all(abs(forwards[p] - backwards[p]) < 1e-12 for p in forwards)


@given(orders, orders)
def test_a_better_place_never_scores_lower(first: list[int], second: list[int]) -> None:
    scores = reciprocal_rank_fusion([ranking("a", first), ranking("b", second)])
    outside = [p for p in first if p not in second]
    assert [scores[p] for p in outside] == sorted((scores[p] for p in outside), reverse=True)


def test_a_deep_rank_never_overtakes_a_shallow_one() -> None:
    deep = [*range(100, 100 + FUSION_DEPTH), 1]
    scores = reciprocal_rank_fusion(
        [ranking(str(n), deep) for n in range(4)] + [ranking("x", [2, *range(200, 228), 3])]
    )
    assert scores[1] < scores[3]


@given(rankings)
def test_the_best_passage_of_each_episode_comes_best_first(lists: list[Ranking]) -> None:
    scores = reciprocal_rank_fusion(lists)
    best = best_passages(lists, scores)
    assert [(-p.score, -p.passage_id) for p in best] == sorted((-p.score, -p.passage_id) for p in best)
    assert {p.episode_id for p in best} == {f"e{p % 7}" for p in scores}
    for chosen in best:
        assert chosen.score == max(scores[p] for p in scores if f"e{p % 7}" == chosen.episode_id)


def test_an_explanation_gives_rank_score_and_weight() -> None:
    lists = [ranking("a", [5, 6]), ranking("b", [6], 2.0), ranking("c", [])]
    assert explain(lists, 6) == {
        "a": {"rank": 2, "score": 0.5, "weight": 1.0},
        "b": {"rank": 1, "score": 1.0, "weight": 2.0},
    }
