"""A store full of words that stand nowhere else, half of them forgotten: to look for what is left."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.samples import DAY, parsed, part, put, segment, space

EPISODES = 60
WORDS = 120


@dataclass(frozen=True, slots=True)
class Words:
    """Episode -> its words, of those that are `gone` and those that are `kept`."""

    gone: Mapping[str, list[str]]
    kept: Mapping[str, list[str]]


def fill(store: Store) -> dict[str, list[str]]:
    """Write episodes of `WORDS` words each, with vectors, parts, replies and queries; returns the words by episode."""
    store.spaces.put(space("s", dim=8))
    chance = np.random.default_rng(4)
    words = {f"ep{n}": [f"zq{chance.integers(36**9):x}" for _ in range(WORDS)] for n in range(EPISODES)}
    for n, (name, own) in enumerate(words.items()):
        texts = [" ".join(own[at : at + 30]) for at in range(0, WORDS, 30)]
        ids = put(
            store, name, *texts, context=f"context {own[0]}", raw_exchange=" ".join(own), summary=own[1], minute=n
        )
        vectors = chance.standard_normal((len(ids), 8)).astype(np.float32)
        store.vectors.put("s", Variant.TEXT, ids, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        one = part(segment(f"m{n}", " ".join(own)), prompt=own[2])
        parsed(store, one, keys=[f"m{n}"])
        assert store.llm.note_asked({name: one}) == {name}
        store.llm.put_reply(name, own[3], "b", "m")
        store.queries.note(own[4], {}, [name], DAY)
    return words


def forget_half(store: Store, words: Mapping[str, list[str]]) -> Words:
    """Remove every other episode with all that is about it."""
    gone = [f"ep{n}" for n in range(0, EPISODES, 2)]
    for n, name in enumerate(gone):
        store.episodes.delete(name)
        store.forgetting.remove_parts([part(segment(f"m{2 * n}")).part_id])
    return Words({name: words[name] for name in gone}, {name: own for name, own in words.items() if name not in gone})
