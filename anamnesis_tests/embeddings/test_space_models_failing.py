"""What answers while a model does not load, and when it is tried again."""

import itertools
import threading
import time
from typing import Any

import pytest

from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.errors import UnknownModel
from anamnesis_pipeline.model import Space
from anamnesis_tests.embeddings.fake_models import Threads, wait_for
from anamnesis_tests.embeddings.marked_models import NEW, OLD, OpenModels, answering, pool_of, ready_for_old


@pytest.mark.parametrize("where", ["files", "load"])
def test_a_new_model_that_fails_leaves_the_old_one_answering(open_models: OpenModels, where: str) -> None:
    attempts = []

    def fail() -> None:
        attempts.append(where)
        raise UnknownModel("no files")

    def open_pool(space: Space) -> PinnedPool:
        if space == NEW and where == "files":
            fail()
        return pool_of(space, fail if space == NEW else lambda: None)

    models = ready_for_old(open_models(open_pool, lambda: OLD, first_retry_s=300.0))
    models.space_for(NEW)
    wait_for(lambda: bool(attempts))
    for _ in range(20):
        assert answering(models, NEW) == "old"
    assert (models.ready, models.failure) == (True, None)
    assert len(attempts) == 1, "each search would try again"


def test_a_first_model_that_fails_gives_way_to_the_next_choice(open_models: OpenModels) -> None:
    def open_pool(space: Space) -> PinnedPool:
        if space == OLD:
            raise UnknownModel("no files")
        return pool_of(space)

    models = open_models(open_pool, lambda: OLD)
    models.space_for(OLD)
    wait_for(lambda: models.failure == "no files")
    with pytest.raises(UnknownModel, match="no files"):
        models.embed_query("x", OLD)
    models.space_for(NEW)
    wait_for(lambda: models.ready)
    assert answering(models, NEW) == "new"


def test_a_model_that_failed_is_tried_again_until_it_loads(open_models: OpenModels) -> None:
    failures = [UnknownModel("no files"), UnknownModel("no files"), MemoryError()]

    def open_pool(space: Space) -> PinnedPool:
        if failures:
            raise failures.pop()
        return pool_of(space)

    models = open_models(open_pool, lambda: OLD, first_retry_s=0.01)
    models.space_for(OLD)
    wait_for(lambda: models.ready)
    assert failures == []
    assert models.failure is None
    assert answering(models, OLD) == "old"


def test_a_new_model_that_fails_is_named_leaves_the_old_one_answering_and_takes_over_once_it_loads(
    open_models: OpenModels,
) -> None:
    broken = threading.Event()
    broken.set()

    def load_new() -> None:
        if broken.is_set():
            raise UnknownModel("its folder was removed")

    models = ready_for_old(
        open_models(lambda s: pool_of(s, load_new if s == NEW else lambda: None), lambda: OLD, first_retry_s=0.01)
    )
    models.space_for(NEW)
    wait_for(lambda: models.next_failure is not None)
    assert models.next_failure == ("model-new", "its folder was removed")
    assert models.failure is None
    assert answering(models, NEW) == "old"
    broken.clear()
    wait_for(lambda: answering(models, NEW) == "new")
    assert models.next_failure is None


def test_attempts_become_ever_rarer_and_end_when_the_models_are_closed(
    open_models: OpenModels, threads: Threads
) -> None:
    attempts: list[float] = []

    def open_pool(space: Space) -> PinnedPool:
        attempts.append(time.monotonic())
        raise UnknownModel("no files")

    models = open_models(open_pool, lambda: OLD, first_retry_s=0.02)
    models.space_for(OLD)
    wait_for(lambda: len(attempts) == 5)
    pauses = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert all(pause >= 0.02 * 2**n for n, pause in enumerate(pauses))
    models.close()
    wait_for(lambda: not threads.named("load old"))


def test_a_space_is_prepared_again_until_that_succeeds(open_models: OpenModels) -> None:
    problems = [UnknownModel("no network"), UnknownModel("no network")]

    def prepare() -> None:
        if problems:
            raise problems.pop()

    models = open_models(pool_of, lambda: None if problems else OLD, prepare=prepare, first_retry_s=0.01)
    models.load_in_background()
    wait_for(lambda: models.ready)
    assert models.failure is None


def test_without_any_space_the_reason_is_told(open_models: OpenModels) -> None:
    def prepare() -> None:
        raise UnknownModel("no embedding model 'x'; set ANAMNESIS_MODEL")

    models = open_models(pool_of, lambda: None, prepare=prepare)
    models.load_in_background()
    wait_for(lambda: models.failure is not None)
    assert "ANAMNESIS_MODEL" in str(models.failure)
    assert (models.ready, models.model_id, models.depth) == (False, "", 0)


def test_an_unknown_configured_model_does_not_stop_the_space_that_is_active(open_models: OpenModels) -> None:
    def prepare() -> None:
        raise UnknownModel("no such model")

    models = open_models(pool_of, lambda: OLD, prepare=prepare)
    models.load_in_background()
    wait_for(lambda: models.ready)
    assert answering(models, OLD) == "old"


def test_switching_back_ends_the_attempts_at_a_model_that_fails_and_its_blame(
    open_models: OpenModels, threads: Threads
) -> None:
    def open_pool(space: Space) -> PinnedPool:
        if space == NEW:
            raise UnknownModel("its folder was removed")
        return pool_of(space)

    models = ready_for_old(open_models(open_pool, lambda: OLD, grace_s=0.01, first_retry_s=0.01))
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
def test_a_long_failure_is_told_by_its_first_sentence_and_logged_once_in_full(
    open_models: OpenModels, caplog: pytest.LogCaptureFixture, whole: str, kept: str, where: str
) -> None:
    attempts: list[int] = []

    def fail(*_: object) -> Any:
        attempts.append(1)
        raise UnknownModel(whole)

    models = (
        open_models(pool_of, lambda: None, prepare=fail, first_retry_s=0.001)
        if where == "prepare"
        else open_models(fail, lambda: OLD, first_retry_s=0.001)
    )
    models.load_in_background()
    wait_for(lambda: len(attempts) > 2)
    assert models.failure == kept
    assert sum(whole in record.getMessage() for record in caplog.records) == 1
