"""Whatever is done to episodes, spaces and links, in whatever order: every backend ends with the same."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Episode, EpisodeFilter, Passage, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import Layer
from anamnesis_pipeline.store.records.consolidation import ChangedSession
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES
from anamnesis_tests.conftest import BACKENDS, mongo_database
from anamnesis_tests.support.mongo_server import shared
from anamnesis_tests.support.samples import DAY, episode, space, unit

IDS = [f"e{n}" for n in range(8)]
MERGED = ["m0", "m1"]
SOURCES = ["logs", "direct"]
SPACES = ["s1", "s2"]

Step = Callable[[Store], Any]
"""Something to do to a store; the same answer is expected of each."""


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[Store]]:
    """An empty store of each backend."""
    opened = [BACKENDS[name](tmp_path) for name in sorted(BACKENDS)]
    yield opened
    for store in opened:
        store.close()
    shared.drop(mongo_database(tmp_path))


def some_passages(r: random.Random) -> list[Passage]:
    return [
        Passage(n, r.choice(["text", "more", "words"]), r.choice(["", "before"]), r.choice([(), ("u",)]))
        for n in range(r.randrange(4))
    ]


def some_episode(r: random.Random, episode_id: str) -> Episode:
    return episode(
        episode_id,
        r.randrange(5),
        source=r.choice(SOURCES),
        instance=r.choice(["main", "other"]),
        project=r.choice("pq"),
        kind=r.choice(["note", "decision", "exchange", "code"]),
        tags=tuple(r.sample("xyz", r.randrange(3))),
        summary=r.choice("ab"),
        raw_exchange=r.choice(["one", "two"]),
        status=r.choice(["active", "active", "active", "superseded"]),
        session_id=r.choice(["", "s", "t"]),
        message_keys=tuple(r.sample(["k1", "k2", "f:k1"], r.randrange(3))),
        metadata=r.choice([{}, {"value": 1}, {"value": 3}]),
    )


def put(r: random.Random) -> Step:
    batch = [(some_episode(r, r.choice(IDS)), some_passages(r)) for _ in range(r.randrange(1, 5))]
    return lambda store: store.episodes.put(batch)


def edit(r: random.Random) -> Step:
    name, passages = r.choice(IDS), some_passages(r)
    new, rewritten, moved = some_episode(r, name), r.random() < 0.3, r.random() < 0.5

    def step(store: Store) -> None:
        if (held := store.episodes.get([name]).get(name)) is None:
            return
        kept: dict[str, Any] = {"source": held.source, "session_id": held.session_id, "message_keys": held.message_keys}
        kept |= {} if rewritten else {"raw_exchange": held.raw_exchange}
        kept |= {} if moved else {"project": held.project}
        store.episodes.replace(replace(new, **kept), passages, held.content_hash)

    return step


def create(r: random.Random) -> Step:
    new, passages = some_episode(r, r.choice(IDS)), some_passages(r)
    return lambda store: store.episodes.create(new, passages)


def delete(r: random.Random) -> Step:
    name, tombstone = r.choice(IDS + MERGED), r.random() < 0.3
    return lambda store: store.episodes.delete(name, tombstone=tombstone)


def track(r: random.Random) -> Step:
    names = r.sample(IDS, 3)
    return lambda store: store.episodes.track(names, DAY)


def settle(r: random.Random) -> Step:
    chosen = {name: r.choice([None, *IDS]) for name in r.sample(IDS, 3)}
    canonical_of = {name: None if name == other else other for name, other in chosen.items()}

    def step(store: Store) -> Any:
        sessions = store.consolidation.changed(1) or [ChangedSession("s", 1)]
        return store.consolidation.settle(sessions[0], canonical_of)

    return step


def merge(r: random.Random) -> Step:
    merged, passages = replace(some_episode(r, r.choice(MERGED)), status="active"), some_passages(r)
    names = r.sample(IDS, 2)
    return lambda store: store.consolidation.merge(merged, passages, list(store.episodes.get(names).values()))


def unsupersede(r: random.Random) -> Step:
    name = r.choice(IDS + MERGED)
    return lambda store: store.consolidation.unsupersede(name)


def name_project(r: random.Random) -> Step:
    own, name, called = r.choice("pqz"), r.choice("pqz"), r.random() < 0.5
    aliases = r.choice([None, {"p": "z"}, {"q": "p"}])

    def step(store: Store) -> int:
        store.settings.set(PROJECT_ALIASES, aliases)
        return store.projects.call(own, name) if called else store.projects.rename(own, name)

    return step


def change_space(r: random.Random) -> Step:
    key, how = r.choice(SPACES), r.choice(["put", "put", "activate", "start", "stop", "drop"])
    new = space(key, 4, r.choice([(Variant.TEXT,), tuple(Variant)]), r.choice([0, 3]))
    return lambda store: getattr(store.spaces, how)(new if how == "put" else key)


def embed(r: random.Random) -> Step:
    episodes, with_tokens = r.randrange(1, 6), r.random() < 0.7

    def step(store: Store) -> list[int]:
        written = []
        for each in store.spaces.all():
            pending = store.vectors.pending(each.key, SOURCES, episodes)
            keys = [stored.passage_id for found in pending for stored in found.passages]
            vectors = np.tile(unit(1, 0, 0, 0), (len(keys), 1))
            tokens = [np.ones((2, 3), np.int8)] * len(keys) if each.token_dims and with_tokens else None
            written.append(store.vectors.put_all(each.key, keys, dict.fromkeys(each.variants, vectors), tokens))
        return written

    return step


WAYS = [
    put,
    put,
    put,
    edit,
    edit,
    create,
    delete,
    track,
    settle,
    settle,
    merge,
    unsupersede,
    name_project,
    change_space,
    change_space,
    embed,
]


def outcome(store: Store, step: Step) -> Any:
    try:
        return step(store)
    except AnamnesisError as exc:
        return type(exc), str(exc)


def held(store: Store) -> dict[str, Any]:
    """All that can be seen of it, but for when it was written."""
    episodes = store.episodes.get(IDS + MERGED)
    everything = EpisodeFilter(include_superseded=True)
    late = DAY + timedelta(minutes=32)
    return {
        "episodes": {
            name: replace(found, superseded_at=found.superseded_at and DAY) for name, found in episodes.items()
        },
        "passages": {name: [p.passage for p in store.episodes.passages_of(name)] for name in episodes},
        "order": [found.episode_id for found in store.episodes.page(everything, 50).items],
        "layers": {layer: store.episodes.count(EpisodeFilter(layers=(layer,), layers_at=late)) for layer in Layer},
        "texts": {hit.episode_id for hit in store.text.matching(["text"], 50, EpisodeFilter(projects=("p",)))},
        "names": sorted(store.projects.names()),
        "sessions": [session.session_id for session in store.consolidation.changed(10)],
        "waiting": store.consolidation.changed_count(),
        "links": store.consolidation.links(IDS + MERGED),
        "counts": store.consolidation.counts(),
        "buried": store.messages.known_keys(["k1", "k2", "f:k1"]),
        "events": store.events.counts(),
        "spaces": {each.key: (each, *of_space(store, each.key)) for each in store.spaces.all()},
    }


def of_space(store: Store, key: str) -> tuple[Any, ...]:
    lacking = store.vectors.pending(key, SOURCES, 50)
    return (
        [(each.episode_id, each.source, [stored.passage for stored in each.passages]) for each in lacking],
        store.vectors.pending_sources(key),
        replace(store.vectors.progress(key), written_at=None),
    )


def agree(stores: list[Store], seed: int, steps: int) -> None:
    """Do the same steps to all stores; the same seed gives the same steps each time."""
    r = random.Random(seed)
    for number in range(steps):
        step = r.choice(WAYS)(r)
        first, *others = [outcome(store, step) for store in stores]
        assert others == [first] * len(others), (number, step)
        wanted, *found = [held(store) for store in stores]
        for other in found:
            assert other == wanted, (number, step)


@pytest.mark.parametrize("seed", range(2))
def test_every_backend_ends_with_the_same_whatever_is_done(stores: list[Store], seed: int) -> None:
    agree(stores, seed, steps=25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_every_backend_ends_with_the_same_after_much_was_done(stores: list[Store], seed: int) -> None:
    agree(stores, seed, steps=100)
