"""The statements that are compared with one: those that share most with it, among all that a project states."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.knowledge import detecting
from anamnesis_pipeline.knowledge.detecting import MAX_NEAR, Statements
from anamnesis_pipeline.knowledge.statements import Weights, claim_of
from anamnesis_pipeline.store.knowledge_model import Observation, Signal
from anamnesis_tests.support.hashing_embedder import HashingEmbedder

WORDS = "deploy staging database invoice parser retry token cache worker queue export branch schema ledger".split()


def stated(number: int, quote: str, signal: Signal = Signal.NOTE) -> Observation:
    return Observation(signal, "", f"e{number}", quote, number=number)


def sentences(count: int) -> list[Observation]:
    rng = random.Random(3)
    signals = (Signal.NOTE, Signal.TOPIC, Signal.DECISION)
    return [stated(n, " ".join(rng.choices(WORDS, k=rng.randint(2, 9))), signals[n % 3]) for n in range(1, count)]


@pytest.mark.parametrize("most", [1, MAX_NEAR, 400])
def test_near_statements_are_the_most_alike_of_all(most: int) -> None:
    found = sentences(600)
    claims = [claim_of(each.quote) for each in found]
    weights, wanted = Weights(claims), (Signal.NOTE, Signal.TOPIC)
    statements = Statements(found, None)
    for of in found[:40]:
        own = claim_of(of.quote)
        rated = [
            (-weights.alike(own, claim), place)
            for place, claim in enumerate(claims)
            if found[place].signal in wanted and found[place].number != of.number and claim.stems & own.stems
        ]
        expected = [found[place].number for _, place in sorted(rated)[:most]]
        assert [each.observation.number for each in statements.near(of, wanted, most)] == expected


def test_word_of_too_many_statements_finds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detecting, "MAX_HAVING", 2)
    found = [stated(1, "deploy staging"), stated(2, "deploy ledger"), stated(3, "deploy parser"), stated(4, "parser")]
    assert [each.observation.number for each in Statements(found, None).near(found[2], [Signal.NOTE])] == [4]


class CountingEmbedder(HashingEmbedder):
    """Counts the texts that it embeds."""

    embedded = 0

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        self.embedded += len(texts)
        return super().embed(texts, role)


def test_sentences_are_embedded_once_and_when_meant() -> None:
    embedder = CountingEmbedder()
    found = [stated(1, "deploy staging"), stated(2, "deploy ledger"), stated(3, "deploy parser")]
    statements = Statements(found, embedder)
    near = statements.near(found[0], [Signal.NOTE])
    assert embedder.embedded == 0
    assert all(each.cosine is not None and -1.01 <= each.cosine <= 1.01 for each in near)
    assert [each.cosine for each in statements.near(found[1], [Signal.NOTE])]
    assert embedder.embedded == 3
