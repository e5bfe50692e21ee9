"""Pools and models that are closed at the end of a test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel
from anamnesis_pipeline.embeddings.space_models import SpaceModels
from anamnesis_tests.embeddings.fake_models import HashedWords, OpenPool, Threads


@pytest.fixture
def threads() -> Threads:
    """Those that a test starts."""
    return Threads()


@pytest.fixture
def open_pool() -> Iterator[OpenPool]:
    """Opens pools of HashedWords, loaded unless told otherwise; closes them at the end."""
    opened: list[PinnedPool] = []

    def open_one(
        before: Callable[[int], object] = lambda texts: None,
        *,
        cores: list[int] | None = None,
        loaded: bool = True,
        **more: Any,
    ) -> PinnedPool:
        model = PoolModel("hashed", 16, lambda: HashedWords(16, before), query_prefix="query: ")
        opened.append(PinnedPool(model, cores or available_cores()[:1], **more))
        if loaded:
            opened[-1].load()
        return opened[-1]

    yield open_one
    for pool in opened:
        pool.close()


@pytest.fixture
def open_models() -> Iterator[Callable[..., SpaceModels]]:
    opened: list[SpaceModels] = []

    def open_one(*args: Any, **more: Any) -> SpaceModels:
        opened.append(SpaceModels(*args, **more))
        return opened[-1]

    yield open_one
    for models in opened:
        models.close()
