import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.embeddings.hashing import HashingEmbedder


@given(st.lists(st.text(max_size=60), max_size=5))
def test_vectors_are_unit_length_and_the_same_every_time(texts: list[str]) -> None:
    embedder = HashingEmbedder(32)
    vectors = embedder.embed(texts, "query")
    assert vectors.shape == (len(texts), 32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert np.array_equal(vectors, HashingEmbedder(32).embed(texts, "passage"))


def test_texts_that_share_words_are_nearer_than_texts_that_do_not() -> None:
    near, base, far = HashingEmbedder(256).embed(
        ["webhook retries charged", "webhook retries failed", "zeppelin hangar doors"], "passage"
    )
    assert near @ base > far @ base + 0.3
