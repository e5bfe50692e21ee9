"""Pools and models that are closed at the end of a test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.pinned_pool import LoadedModel, PinnedPool, PoolModel
from anamnesis_pipeline.embeddings.space_models import SpaceModels
from anamnesis_pipeline.model import Space
from anamnesis_tests.embeddings.marked_models import OLD, OpenModels, answering, pool_of
from anamnesis_tests.support.fake_models import HashedWords, OpenPool, Threads, wait_for


@pytest.fixture
def threads() -> Threads:
    """Those that a test starts."""
    return Threads()


@pytest.fixture
def open_pool() -> Iterator[OpenPool]:
    """Opens pools, of HashedWords and loaded unless told otherwise; closes them at the end."""
    opened: list[PinnedPool] = []

    def open_one(
        before: Callable[[int], object] = lambda texts: None,
        *,
        load: Callable[[], LoadedModel] | None = None,
        model: dict[str, Any] | None = None,
        cores: list[int] | None = None,
        loaded: bool = True,
        **more: Any,
    ) -> PinnedPool:
        of = PoolModel("hashed", 16, load or (lambda: HashedWords(16, before)), query_prefix="query: ", **(model or {}))
        opened.append(PinnedPool(of, cores or available_cores()[:1], **more))
        if loaded:
            opened[-1].load()
        return opened[-1]

    yield open_one
    for pool in opened:
        pool.close()


@pytest.fixture
def open_models() -> Iterator[OpenModels]:
    """Makes the models of a service whose space is OLD unless told otherwise; with `ready`, of which that answers."""
    opened: list[SpaceModels] = []

    def open_one(
        open_pool: Callable[[Space], PinnedPool] = pool_of,
        active: Callable[[], Space | None] = lambda: OLD,
        *,
        ready: bool = False,
        **more: Any,
    ) -> SpaceModels:
        models = SpaceModels(open_pool, active, **more)
        opened.append(models)
        if ready:
            models.space_for(OLD)
            wait_for(lambda: models.ready)
            assert answering(models, OLD) == "old"
        return models

    yield open_one
    for models in opened:
        models.close()
