"""Token vectors of a space: their projection is learned once, and passages get them with their vectors."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.embeddings.hashing import HashingEmbedder
from anamnesis_pipeline.errors import DimensionMismatch
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.steps.embeddings import embed_sources
from anamnesis_pipeline.steps.token_projection import space_projection
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import sign_value
from anamnesis_tests.embeddings.fake_models import HashedWords
from anamnesis_tests.store.samples import put

SPACE = Space("hashing", "hashing-32", 32, token_dims=8)


class Recording(HashingEmbedder):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__(32, token_dims=8)
        self.texts: list[str] = []

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        self.texts += texts
        return super().embed_with_tokens(texts, role)


def test_a_projection_is_learned_once_and_then_kept(store: Store) -> None:
    store.spaces.put(SPACE)
    first = space_projection(store, SPACE, HashedWords(32))
    again = space_projection(store, SPACE, HashedWords(32, before=lambda texts: pytest.fail("it ran the model")))
    assert first is not None
    assert again is not None
    assert first.shape == (32, 8)
    assert np.array_equal(first, again)
    assert space_projection(store, replace(SPACE, token_dims=0), HashedWords(32)) is None


@pytest.mark.parametrize("variant", list(Variant))
def test_passages_get_the_token_vectors_of_their_own_text_as_read_in_what_the_space_names(
    store: Store, variant: Variant
) -> None:
    space = replace(SPACE, variants=(Variant.TEXT,), token_variant=variant)
    store.spaces.put(space)
    (key,) = put(store, "e", "database is locked", context="acme/api, 14 March")
    embedder = Recording()
    embed_sources(store, space.key, ["direct"], embedder, 25)
    assert ("acme/api, 14 March\ndatabase is locked" in embedder.texts) == (variant is Variant.CONTEXT)
    expected = embedder.embed_with_tokens(["database locked"], "passage").tokens
    assert expected is not None
    assert np.array_equal(store.vectors.tokens(space.key, [key]).numbers(), expected[0] * sign_value(8))
    assert store.vectors.pending_sources(space.key) == {}


def test_an_embedder_without_token_vectors_is_refused_where_the_space_has_some(store: Store) -> None:
    store.spaces.put(SPACE)
    put(store, "e", "text")
    with pytest.raises(DimensionMismatch, match="hashing-32 was opened without"):
        embed_sources(store, SPACE.key, ["direct"], HashingEmbedder(32), 25)
