from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.embeddings.batching import length_sorted_batches

lengths = st.lists(st.integers(0, 300), max_size=400)


@given(lengths, st.integers(1, 5_000), st.integers(1, 200))
def test_every_text_is_in_exactly_one_batch_within_the_bounds(found: list[int], tokens: int, most: int) -> None:
    batches = length_sorted_batches(found, tokens, most)
    assert sorted(index for batch in batches for index in batch) == list(range(len(found)))
    for batch in batches:
        longest = max(found[index] for index in batch)
        assert len(batch) == 1 or longest * len(batch) <= tokens
        assert 1 <= len(batch) <= most


@given(lengths)
def test_longer_texts_come_first(found: list[int]) -> None:
    order = [found[index] for batch in length_sorted_batches(found, 4_096) for index in batch]
    assert order == sorted(found, reverse=True)
