from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.search.fusion import fold

texts = st.lists(st.one_of(st.sampled_from(["a b c", "c b a", "d", "", "!"]), st.text(max_size=20)), max_size=12)


@given(texts)
def test_groups_hold_every_text_once_in_the_order_of_their_best(found: list[str]) -> None:
    groups = fold([(text,) for text in found])
    assert sorted(n for group in groups for n in group) == list(range(len(found)))
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
    assert all(group == sorted(group) for group in groups)


def test_near_equal_texts_fold_and_others_do_not() -> None:
    words = " ".join(f"w{n}" for n in range(20))
    texts = [words, "other", words.upper() + " one-more", words + " " + "x y z"]
    assert fold([(text,) for text in texts]) == [[0, 2], [1], [3]]


def test_what_is_shown_already_folds_whichever_of_its_texts_is_its_best() -> None:
    assert fold([("question", "answer"), ("answer", "question")]) == [[0, 1]]
    assert fold([("answer",), ("question", "answer")]) == [[0], [1]], "the second one's best text is not shown yet"


@given(texts, st.integers(1, 5))
def test_so_many_groups_as_are_wanted_are_those_that_come_first(found: list[str], most: int) -> None:
    every = fold([(text,) for text in found])
    behind = min((group[0] for group in every[most:]), default=len(found))
    assert fold(((text,) for text in found), most) == [[n for n in group if n < behind] for group in every[:most]]


def test_texts_without_words_are_not_called_equal() -> None:
    assert fold([("",), ("!",), ("日本",)]) == [[0], [1], [2]]


WORDS = [f"w{n}" for n in range(22)]


@given(st.lists(st.sets(st.sampled_from(WORDS), min_size=17), min_size=2, max_size=8))
def test_a_text_joins_the_first_group_whose_best_it_is_alike(texts: list[set[str]]) -> None:
    bests: list[int] = []
    expected: list[list[int]] = []
    for index, mine in enumerate(texts):
        near = [n for n, best in enumerate(bests) if len(mine & texts[best]) >= 0.9 * len(mine | texts[best])]
        if near:
            expected[near[0]].append(index)
        else:
            bests.append(index)
            expected.append([index])
    assert fold([(" ".join(words),) for words in texts]) == expected
