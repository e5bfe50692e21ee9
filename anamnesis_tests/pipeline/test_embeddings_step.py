"""Vectors for what has none, and token vectors where the space has some, on a real store."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel, available_cores
from anamnesis_pipeline.errors import DimensionMismatch, InvalidVectors, SpaceNotFound, StoreFull
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.pipeline.embed import EmbedReport, embed_sources
from anamnesis_pipeline.pipeline.index import space_projection
from anamnesis_pipeline.pipeline.reembed_state import Failure, failure_of, rate_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import sign_value
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.fake_models import HashedWords
from anamnesis_tests.support.hashing_embedder import HashingEmbedder
from anamnesis_tests.support.samples import put
from anamnesis_tests.support.spaces import DIM, write

SPACE = Space("hashing", f"hashing-{DIM}", DIM)


class Watched(HashingEmbedder):
    """Runs `before` ahead of each call, with the number of that call and its texts."""

    def __init__(self, before: Callable[[int, Sequence[str]], object]) -> None:
        super().__init__(DIM)
        self._before, self._calls = before, 0

    def embed(self, texts: Sequence[str], role: object) -> NDArray[np.float32]:
        self._calls += 1
        self._before(self._calls, texts)
        return super().embed(texts, "passage")


@pytest.fixture
def filled(store: Store) -> Store:
    store.spaces.put(SPACE)
    write(store, 60)
    return store


class Choking(HashingEmbedder):
    """Makes no vectors of texts with certain numbers."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(DIM)
        self._bad = {f"number {number} of direct" for number in numbers}
        self.calls = 0

    def embed(self, texts: Sequence[str], role: object) -> NDArray[np.float32]:
        self.calls += 1
        if not self._bad.isdisjoint(texts):
            raise InvalidVectors("no numbers")
        return super().embed(texts, "passage")


def pending_ids(store: Store) -> list[str]:
    return [episode.episode_id for episode in store.vectors.pending(SPACE.key, ["direct"], 999)]


def embed(store: Store, embedder: Any = None, every: int = 25, **how: Any) -> EmbedReport:
    return embed_sources(store, SPACE.key, ["direct"], embedder or HashingEmbedder(DIM), every, **how)


def noted(store: Store) -> Failure | None:
    """The failure that is noted."""
    return failure_of(store, SPACE.key)


def test_vectors_are_written_at_checkpoints_and_texts_once(store: Store) -> None:
    store.spaces.put(SPACE)
    for number in range(60):
        put(store, f"e{number}", f"the number {number % 3} again")
    reports: list[EmbedReport] = []

    def distinct(_: int, texts: Sequence[str]) -> None:
        assert len(texts) == len(set(texts)) <= 3

    report = embed(store, Watched(distinct), on_checkpoint=reports.append)
    assert [r.episodes for r in reports] == [25, 50, 60]
    assert (report.episodes, report.passages, report.vectors) == (60, 60, 120)
    assert (report.sources, report.paused, report.passages_per_s > 0) == ({"direct": 60}, False, True)
    assert store.vectors.pending_sources(SPACE.key) == {}
    again = embed(store)
    assert (again.episodes, again.passages_per_s) == (0, 0.0)


def test_each_variant_gets_the_vector_of_its_own_text(store: Store) -> None:
    store.spaces.put(SPACE)
    (passage_id,) = put(store, "e", "why is it late?", context="acme/api, 14 March")
    embed(store)
    (stored,) = store.episodes.passages_of("e")
    for variant, text in [(Variant.TEXT, stored.passage.text), (Variant.CONTEXT, stored.passage.with_context)]:
        vector = store.vectors.get(SPACE.key, variant, [passage_id])[passage_id]
        assert np.allclose(vector, HashingEmbedder(DIM).embed([text], "passage")[0], atol=1e-2)


def test_the_newest_of_all_sources_go_first(store: Store) -> None:
    store.spaces.put(SPACE)
    for number in range(30):
        write(store, 1, source=f"s{number % 3}", first=number)
    order: list[int] = []

    def note(_: int, texts: Sequence[str]) -> None:
        order.extend(sorted((int(text.split()[1]) for text in texts), reverse=True))

    report = embed_sources(store, SPACE.key, ["s0", "s1", "s2"], Watched(note), 5)
    assert order == list(range(29, -1, -1))
    assert report.sources == {"s0": 10, "s1": 10, "s2": 10}


def test_a_source_that_was_not_asked_for_is_left_alone(store: Store) -> None:
    store.spaces.put(SPACE)
    write(store, 2, source="s0")
    write(store, 3, source="s1")
    embed_sources(store, SPACE.key, ["s0"], HashingEmbedder(DIM), 25)
    assert store.vectors.pending_sources(SPACE.key) == {"s1": 3}


def test_a_killed_run_keeps_what_its_checkpoints_wrote(filled: Store) -> None:
    def die(call: int, _: object) -> None:
        if call == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(filled, Watched(die))
    assert filled.vectors.pending_sources(SPACE.key) == {"direct": 10}
    assert filled.vectors.progress(SPACE.key).passages_done == 50
    assert failure_of(filled, SPACE.key) is None, "an end from outside is no failure"
    assert embed(filled).episodes == 10


@pytest.mark.parametrize("bad", [[], [59]], ids=["", "after an episode without valid vectors"])
def test_a_pause_is_heard_before_the_next_checkpoint(filled: Store, bad: list[int]) -> None:
    reports: list[EmbedReport] = []
    pause = lambda: bool(reports)  # noqa: E731
    report = embed(filled, Choking(bad), should_pause=pause, on_checkpoint=reports.append)
    assert (report.paused, report.episodes) == (True, 25 - len(bad))
    assert len(pending_ids(filled)) == 35 + len(bad)


def test_what_arrives_meanwhile_is_embedded_too_and_first(filled: Store) -> None:
    seen: list[Sequence[str]] = []

    def arrive(call: int, texts: Sequence[str]) -> None:
        seen.append(texts)
        if call == 1:
            put(filled, "late", "said just now", minute=1_000)

    embed(filled, Watched(arrive))
    assert "said just now" in seen[1]
    assert filled.vectors.pending_sources(SPACE.key) == {}


def test_the_cores_are_looked_at_before_each_checkpoint(filled: Store) -> None:
    looks: list[int] = []
    embed(filled, before_checkpoint=lambda: looks.append(filled.vectors.progress(SPACE.key).episodes_done))
    assert looks[:3] == [0, 25, 50]


def test_each_checkpoint_notes_how_fast_it_goes(filled: Store) -> None:
    embed(filled)
    now = filled.vectors.progress(SPACE.key).written_at
    assert (rate_of(filled, SPACE.key, now) or 0) > 0
    assert rate_of(filled, SPACE.key, now.replace(year=now.year + 1)) is None, "old rates tell nothing"


class NoNumbers:
    """A model that has gone wrong."""

    precision, fidelity = "fp32", None

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [[1] for _ in texts]

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        return np.full((len(batch), DIM), np.nan, dtype=np.float32)


def test_vectors_that_are_no_numbers_are_not_written(filled: Store) -> None:
    pool = PinnedPool(PoolModel("broken", DIM, NoNumbers), available_cores()[:1])
    pool.load()
    try:
        for count in (1, 2):
            with pytest.raises(InvalidVectors):
                embed(filled, pool)
            assert (noted(filled).count, "broken" in noted(filled).last) == (count, True)
    finally:
        pool.close()
    assert filled.vectors.progress(SPACE.key).passages_done == 0
    embed(filled)
    assert failure_of(filled, SPACE.key) is None, "a checkpoint was written since"


@pytest.mark.parametrize(
    ("bad", "every", "seen"),
    [
        ([59, 57, 20], 25, [23, 47, 57]),
        (range(30, 50), 5, list(range(5, 45, 5))),
        (range(30, 60), 25, [20, 30]),
    ],
    ids=["a few", "whole checkpoints", "the first checkpoint"],
)
def test_episodes_without_vectors_hold_up_no_other(
    filled: Store, bad: Sequence[int], every: int, seen: list[int]
) -> None:
    reports: list[EmbedReport] = []
    told = rf"hashing: {len(bad)}, first direct-{max(bad)}: no numbers"
    with pytest.raises(InvalidVectors, match=told):
        embed(filled, Choking(bad), every, on_checkpoint=reports.append)
    assert [report.episodes for report in reports] == seen, "a checkpoint of nothing is none"
    assert pending_ids(filled) == [f"direct-{number}" for number in sorted(bad, reverse=True)]
    assert f"direct-{max(bad)}" in noted(filled).last
    write(filled, 5, first=60)
    with pytest.raises(InvalidVectors, match=f": {len(bad)}, first direct-{max(bad)}"):
        embed(filled, Choking(bad))
    assert len(pending_ids(filled)) == len(bad), "what is newer was embedded"
    embed(filled)
    assert pending_ids(filled) == []


@pytest.mark.parametrize(("bad", "every", "left"), [(range(130), 25, 130), (range(5, 125), 10, 125)])
def test_a_run_gives_up_after_a_hundred_without_vectors(
    store: Store, bad: Sequence[int], every: int, left: int
) -> None:
    store.spaces.put(SPACE)
    write(store, 130)
    embedder = Choking(bad)
    with pytest.raises(InvalidVectors, match=f": 100, first direct-{max(bad)}"):
        embed(store, embedder, every)
    assert len(pending_ids(store)) == left
    assert left == 125 or embedder.calls == 104


def test_waiting_doubles_with_each_failure_up_to_a_bound(filled: Store) -> None:
    def fail(*_: object) -> None:
        raise StoreFull("no room")

    waits = []
    for _ in range(9):
        with pytest.raises(StoreFull):
            embed(filled, Watched(fail))
        waits.append((noted(filled).next_try(3_600) - noted(filled).at).total_seconds())
    assert waits == [60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600]


def test_an_error_that_is_not_ours_is_noted_without_its_text(filled: Store) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the passage said: hunter2")

    with pytest.raises(RuntimeError):
        embed(filled, Watched(fail))
    assert noted(filled).last == "RuntimeError"


def test_a_store_that_goes_away_in_a_checkpoint_loses_nothing(filled: Store, open_store: OpenStore) -> None:
    other = open_store()

    def close(call: int, _: object) -> None:
        if call == 2:
            filled.close()

    with pytest.raises(Exception, match="closed"):
        embed(filled, Watched(close))
    assert other.vectors.progress(SPACE.key).episodes_done == 25
    assert embed(other).episodes == 35


def test_a_space_that_is_dropped_meanwhile_is_said_to_be(filled: Store) -> None:
    def drop(call: int, _: object) -> None:
        if call == 2:
            filled.spaces.drop(SPACE.key)

    with pytest.raises(SpaceNotFound, match="dropped while it was being embedded"):
        embed(filled, Watched(drop))
    assert filled.settings.all("reembed.failure.") == {}
    with pytest.raises(SpaceNotFound, match="no space 'hashing'"):
        embed(filled)


# --- token vectors ----------------------------------------------------------------------------------------


TOKENS = Space("hashing", "hashing-32", 32, token_dims=8)


class Recording(HashingEmbedder):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__(32, token_dims=8)
        self.texts: list[str] = []

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        self.texts += texts
        return super().embed_with_tokens(texts, role)


def test_a_projection_is_learned_once_and_then_kept(store: Store) -> None:
    store.spaces.put(TOKENS)
    first = space_projection(store, TOKENS, HashedWords(32))
    again = space_projection(store, TOKENS, HashedWords(32, before=lambda texts: pytest.fail("it ran the model")))
    assert first.shape == (32, 8)
    assert np.array_equal(first, again)
    assert space_projection(store, replace(TOKENS, token_dims=0), HashedWords(32)) is None


@pytest.mark.parametrize("variant", list(Variant))
def test_passages_get_the_token_vectors_of_their_own_text(store: Store, variant: Variant) -> None:
    space = replace(TOKENS, variants=(Variant.TEXT,), token_variant=variant)
    store.spaces.put(space)
    (key,) = put(store, "e", "database is locked", context="acme/api, 14 March")
    embedder = Recording()
    embed_sources(store, space.key, ["direct"], embedder, 25)
    assert ("acme/api, 14 March\ndatabase is locked" in embedder.texts) == (variant is Variant.CONTEXT)
    expected = embedder.embed_with_tokens(["database locked"], "passage").tokens
    assert np.array_equal(store.vectors.tokens(space.key, [key]).numbers(), expected[0] * sign_value(8))
    assert store.vectors.pending_sources(space.key) == {}


def test_an_embedder_without_token_vectors_is_refused(store: Store) -> None:
    store.spaces.put(TOKENS)
    put(store, "e", "text")
    with pytest.raises(DimensionMismatch, match="hashing-32 was opened without"):
        embed_sources(store, TOKENS.key, ["direct"], HashingEmbedder(32), 25)
