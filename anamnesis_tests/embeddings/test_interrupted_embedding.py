"""A signal that ends a wait for vectors, as when a run is told to stop."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel
from anamnesis_tests.embeddings.fake_models import Gate, HashedWords


class ToldToStop(BaseException):
    """What a run's signal handler raises."""


@pytest.fixture
def _raising_signal() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise ToldToStop

    before = signal.signal(signal.SIGUSR1, stop)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_raising_signal")
def test_batches_that_nobody_waits_for_any_more_are_not_computed() -> None:
    gate, batches = Gate(), []

    def before(texts: int) -> None:
        batches.append(texts)
        gate()

    pool = PinnedPool(PoolModel("hashed", 16, lambda: HashedWords(16, before)), available_cores()[:1])
    pool.load()

    def interrupt() -> None:
        gate.reached.wait(60)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with pytest.raises(ToldToStop):
            pool.embed(["word " * 100] * 400, "passage")
        interrupter.join()
        assert pool.depth > 5
    finally:
        gate.opened.set()
        pool.close()
    assert len(batches) == 1, "only the one in hand"
