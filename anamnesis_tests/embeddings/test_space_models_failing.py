"""What answers while a model does not load, and when it is tried again."""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.errors import UnknownModel
from anamnesis_pipeline.model import Space
from anamnesis_tests.embeddings.marked_models import NEW, OLD, OpenModels, answering, new_from, pool_of
from anamnesis_tests.support.fake_models import Threads, wait_for


def failing(problem: str = "no files", attempts: list[float] | None = None) -> Callable[..., Any]:
    """Fails each time with this problem, and notes when."""

    def fail(*_: object) -> Any:
        if attempts is not None:
            attempts.append(time.monotonic())
        raise UnknownModel(problem)

    return fail


def without_files(of: Space, fail: Callable[..., Any]) -> Callable[[Space], PinnedPool]:
    """Opens pools, but for that of a space."""
    return lambda space: fail() if space == of else pool_of(space)


@pytest.mark.parametrize("where", ["files", "load"])
def test_new_model_that_fails_leaves_the_old_one_answering(open_models: OpenModels, where: str) -> None:
    attempts: list[float] = []
    fail = failing(attempts=attempts)
    opens = without_files(NEW, fail) if where == "files" else new_from(fail)
    models = open_models(opens, first_retry_s=300.0, ready=True)
    models.space_for(NEW)
    wait_for(lambda: bool(attempts))
    for _ in range(20):
        assert answering(models, NEW) == "old"
    assert (models.ready, models.failure) == (True, None)
    assert len(attempts) == 1, "each search would try again"


def test_first_model_that_fails_gives_way_to_the_next_choice(open_models: OpenModels) -> None:
    models = open_models(without_files(OLD, failing()))
    models.space_for(OLD)
    wait_for(lambda: models.failure == "no files")
    with pytest.raises(UnknownModel, match="no files"):
        models.embed_query("x", OLD)
    models.space_for(NEW)
    wait_for(lambda: models.ready)
    assert answering(models, NEW) == "new"


def test_model_that_failed_is_tried_again_until_it_loads(open_models: OpenModels) -> None:
    failures = [UnknownModel("no files"), UnknownModel("no files"), MemoryError()]

    def open_pool(space: Space) -> PinnedPool:
        if failures:
            raise failures.pop()
        return pool_of(space)

    models = open_models(open_pool, first_retry_s=0.01)
    models.space_for(OLD)
    wait_for(lambda: models.ready)
    assert (failures, models.failure) == ([], None)
    assert answering(models, OLD) == "old"


def test_new_model_that_fails_is_named_until_it_loads(open_models: OpenModels) -> None:
    broken = threading.Event()
    broken.set()
    fail = failing("its folder was removed")
    models = open_models(new_from(lambda: broken.is_set() and fail()), first_retry_s=0.01, ready=True)
    models.space_for(NEW)
    wait_for(lambda: models.next_failure is not None)
    assert models.next_failure == ("model-new", "its folder was removed")
    assert models.failure is None
    assert answering(models, NEW) == "old"
    broken.clear()
    wait_for(lambda: answering(models, NEW) == "new")
    assert models.next_failure is None


def test_attempts_become_ever_rarer_and_end_with_the_models(open_models: OpenModels, threads: Threads) -> None:
    attempts: list[float] = []
    models = open_models(failing(attempts=attempts), first_retry_s=0.02)
    models.space_for(OLD)
    wait_for(lambda: len(attempts) == 5)
    pauses = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert all(pause >= 0.02 * 2**n for n, pause in enumerate(pauses))
    models.close()
    wait_for(lambda: not threads.named("load old"))


def test_space_is_prepared_again_until_that_succeeds(open_models: OpenModels) -> None:
    problems = [UnknownModel("no network"), UnknownModel("no network")]

    def prepare() -> None:
        if problems:
            raise problems.pop()

    models = open_models(active=lambda: None if problems else OLD, prepare=prepare, first_retry_s=0.01)
    models.load_in_background()
    wait_for(lambda: models.ready)
    assert models.failure is None


def test_without_any_space_the_reason_is_told(open_models: OpenModels) -> None:
    models = open_models(active=lambda: None, prepare=failing("no embedding model 'x'; set ANAMNESIS_MODEL"))
    models.load_in_background()
    wait_for(lambda: models.failure is not None)
    assert "ANAMNESIS_MODEL" in str(models.failure)
    assert (models.ready, models.model_id, models.depth) == (False, "", 0)


def test_unknown_configured_model_does_not_stop_the_active_space(open_models: OpenModels) -> None:
    models = open_models(prepare=failing("no such model"))
    models.load_in_background()
    wait_for(lambda: models.ready)
    assert answering(models, OLD) == "old"


def test_switching_back_ends_the_attempts_at_a_failing_model(open_models: OpenModels, threads: Threads) -> None:
    models = open_models(without_files(NEW, failing()), grace_s=0.01, first_retry_s=0.01, ready=True)
    models.space_for(NEW)
    wait_for(lambda: models.next_failure is not None)
    models.space_for(OLD)
    assert models.next_failure is None
    wait_for(lambda: not threads.named("load new"))
    assert answering(models, OLD) == "old"


LONG_REASON = "model-old at /models/v1.5/old does not load: no weights. " + "What may be set is listed here. " * 30


@pytest.mark.parametrize(
    ("whole", "kept"),
    [
        (LONG_REASON, "model-old at /models/v1.5/old does not load: no weights."),
        ("no weights\nlooked in many places", "no weights"),
        ("x" * 700, "x" * 199 + "…"),
    ],
)
@pytest.mark.parametrize("where", ["prepare", "load"])
def test_long_failure_is_told_in_short_and_logged_once_in_full(
    open_models: OpenModels, caplog: pytest.LogCaptureFixture, whole: str, kept: str, where: str
) -> None:
    attempts: list[float] = []
    fail = failing(whole, attempts)
    given = {"active": lambda: None, "prepare": fail} if where == "prepare" else {"open_pool": fail}
    models = open_models(**given, first_retry_s=0.001)
    models.load_in_background()
    wait_for(lambda: len(attempts) > 2)
    assert models.failure == kept
    assert sum(whole in record.getMessage() for record in caplog.records) == 1
