"""Which model answers while one space gives way to another. Each model here writes its own number into its vectors."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel
from anamnesis_pipeline.embeddings.space_models import SpaceModels
from anamnesis_pipeline.errors import BadSetting, ModelLoading, StoreBusy, UnknownModel
from anamnesis_pipeline.model import Space
from anamnesis_tests.embeddings.fake_models import Gate

OLD, NEW = Space("old", "model-old", 4), Space("new", "model-new", 6)


class Marked:
    precision, fidelity = "fp32", None

    def __init__(self, dim: int) -> None:
        self._dim = dim

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [[1] for _ in texts]

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        return np.full((len(batch), self._dim), self._dim, dtype=np.float32)


def pool_of(space: Space, load: Callable[[], object] = lambda: None) -> PinnedPool:
    def loaded() -> Marked:
        load()
        return Marked(space.dim)

    return PinnedPool(PoolModel(space.model_id, space.dim, loaded), available_cores()[:1])


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@pytest.fixture
def open_models() -> Iterator[Callable[..., SpaceModels]]:
    opened: list[SpaceModels] = []

    def open_one(*args: Any, **more: Any) -> SpaceModels:
        opened.append(SpaceModels(*args, **more))
        return opened[-1]

    yield open_one
    for models in opened:
        models.close()


OpenModels = Callable[..., SpaceModels]


def answering(models: SpaceModels, active: Space) -> str:
    space = models.space_for(active)
    vector = models.embed_query("x", space)
    assert vector.shape == (space.dim,)
    assert set(vector) == {float(space.dim)}, "a vector of another model"
    return space.key


def ready_for_old(models: SpaceModels) -> SpaceModels:
    models.space_for(OLD)
    wait_for(lambda: models.ready)
    assert answering(models, OLD) == "old"
    return models


def test_the_model_of_the_active_space_is_loaded_in_the_background(open_models: OpenModels) -> None:
    gate = Gate()
    models = open_models(lambda space: pool_of(space, gate), lambda: OLD)
    models.load_in_background()
    assert gate.reached.wait(5)
    with pytest.raises(ModelLoading, match="model-old is still loading"):
        models.embed_query("x", OLD)
    assert (models.ready, models.failure, models.model_id) == (False, None, "model-old")
    gate.opened.set()
    wait_for(lambda: models.ready)
    assert models.embed_passages(["a", "b"], OLD).shape == (2, 4)


def test_the_old_space_answers_until_the_new_model_is_in_memory(open_models: OpenModels) -> None:
    gate = Gate()
    models = ready_for_old(open_models(lambda s: pool_of(s, gate if s == NEW else lambda: None), lambda: OLD))
    for _ in range(3):
        assert answering(models, NEW) == "old"
    assert gate.reached.wait(5)
    gate.opened.set()
    wait_for(lambda: answering(models, NEW) == "new")
    assert models.model_id == "model-new"


def test_a_search_that_chose_its_space_just_before_the_switch_still_gets_that_spaces_vector(
    open_models: OpenModels,
) -> None:
    models = ready_for_old(open_models(pool_of, lambda: OLD))
    chosen = models.space_for(OLD)
    wait_for(lambda: models.space_for(NEW) == NEW)
    assert models.embed_query("x", chosen).shape == (4,)
    assert models.space_for(NEW) == NEW, "asking for the old space does not bring it back"


def test_a_replaced_model_leaves_memory_after_its_grace(open_models: OpenModels) -> None:
    models = ready_for_old(open_models(pool_of, lambda: OLD, grace_s=0.05))
    wait_for(lambda: models.space_for(NEW) == NEW)
    wait_for(lambda: sum(thread.name == "embed-0" for thread in threading.enumerate()) == 1)
    with pytest.raises(ModelLoading):
        models.embed_query("x", OLD)
    assert answering(models, NEW) == "new"


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

    models = ready_for_old(open_models(open_pool, lambda: OLD))
    models.space_for(NEW)
    wait_for(lambda: bool(attempts))
    for _ in range(20):
        assert answering(models, NEW) == "old"
    assert (models.ready, models.failure) == (True, None)
    assert len(attempts) == 1, "each search would try again"


def test_a_search_never_waits_for_the_files_of_a_model(open_models: OpenModels) -> None:
    gate = Gate()

    def open_pool(space: Space) -> PinnedPool:
        if space == NEW:
            gate()
        return pool_of(space)

    models = ready_for_old(open_models(open_pool, lambda: OLD))
    started = time.monotonic()
    assert answering(models, NEW) == "old"
    assert time.monotonic() - started < 1
    gate.opened.set()
    wait_for(lambda: answering(models, NEW) == "new")


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


def test_attempts_become_ever_rarer_and_end_when_the_models_are_closed(open_models: OpenModels) -> None:
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
    wait_for(lambda: not any(thread.name == "load old" for thread in threading.enumerate()))


def test_a_space_is_prepared_again_until_that_succeeds(open_models: OpenModels) -> None:
    problems = [UnknownModel("no network"), UnknownModel("no network")]

    def prepare() -> None:
        if problems:
            raise problems.pop()

    models = open_models(pool_of, lambda: None if problems else OLD, prepare=prepare, first_retry_s=0.01)
    models.load_in_background()
    wait_for(lambda: models.ready)
    assert models.failure is None


def test_workers_follow_the_configured_cores_without_the_model_being_loaded_again(open_models: OpenModels) -> None:
    loads: list[int] = []
    cores = [available_cores()[:1]]
    models = open_models(lambda s: pool_of(s, lambda: loads.append(1)), lambda: OLD, cores=lambda: cores[0])
    ready_for_old(models)
    cores[0] = available_cores()
    models.follow_cores()
    assert models.pool is not None
    assert list(models.pool.cores) == available_cores()
    assert models.pool.workers == len(available_cores())
    assert answering(models, OLD) == "old"
    assert loads == [1]


def test_cores_are_read_at_most_once_a_second_and_unreadable_ones_change_nothing(open_models: OpenModels) -> None:
    reads: list[int] = []

    def cores() -> list[int]:
        reads.append(1)
        raise BadSetting("embed_cores = 99: this machine has no such core")

    models = ready_for_old(open_models(pool_of, lambda: OLD, cores=cores))
    for _ in range(20):
        assert answering(models, OLD) == "old"
    assert len(reads) <= 2
    assert models.pool is not None
    assert list(models.pool.cores) == available_cores()[:1]


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


def test_searches_during_many_switches_are_never_answered_from_a_wrong_space_and_never_crash(
    open_models: OpenModels,
) -> None:
    models = ready_for_old(open_models(pool_of, lambda: OLD, grace_s=0.0))
    active, stop, problems, answers = [OLD], threading.Event(), [], []

    def search() -> None:
        while not stop.is_set():
            try:
                answers.append(answering(models, active[0]))
            except ModelLoading:
                pass  # the grace is nought here: too late, said politely
            except BaseException as exc:
                problems.append(exc)
                raise

    searchers = [threading.Thread(target=search) for _ in range(4)]
    for searcher in searchers:
        searcher.start()
    for n in range(12):
        active[0] = (NEW, OLD)[n % 2]
        time.sleep(0.05)
    stop.set()
    for searcher in searchers:
        searcher.join(5)
    assert problems == []
    assert {"old", "new"} <= set(answers)


def test_a_switch_is_seen_without_a_search(open_models: OpenModels) -> None:
    active = [OLD]
    models = open_models(pool_of, lambda: active[0], look_every_s=0.01)
    models.load_in_background()
    wait_for(lambda: models.ready)
    active[0] = NEW
    wait_for(lambda: models.model_id == "model-new" and models.ready)


def test_looking_at_the_active_space_outlives_a_busy_store_and_ends_with_the_models(open_models: OpenModels) -> None:
    looks: list[int] = []

    def active() -> Space:
        looks.append(1)
        if len(looks) < 5:
            raise StoreBusy("locked")
        return OLD

    models = open_models(pool_of, active, look_every_s=0.01)
    models.load_in_background()
    wait_for(lambda: models.ready)
    models.close()
    seen = len(looks)
    time.sleep(0.05)
    assert len(looks) == seen
    assert not any(thread.name == "space-watcher" for thread in threading.enumerate())


def test_once_the_old_space_is_dropped_the_new_one_is_named_and_said_to_be_loading(open_models: OpenModels) -> None:
    gate, known = Gate(), {"old", "new"}
    models = ready_for_old(
        open_models(lambda s: pool_of(s, gate if s == NEW else lambda: None), lambda: NEW, exists=known.__contains__)
    )
    assert answering(models, NEW) == "old"
    known.remove("old")
    assert models.space_for(NEW) == NEW
    with pytest.raises(ModelLoading, match="model-new is still loading"):
        models.embed_query("x", NEW)
    assert (models.ready, models.model_id) == (False, "model-new")
    gate.opened.set()
    wait_for(lambda: models.ready)
    assert answering(models, NEW) == "new"


def test_switching_back_lets_go_of_the_model_that_was_on_its_way(open_models: OpenModels) -> None:
    gate = Gate()
    models = ready_for_old(
        open_models(lambda s: pool_of(s, gate if s == NEW else lambda: None), lambda: OLD, grace_s=0.01)
    )
    models.space_for(NEW)
    assert gate.reached.wait(5)
    assert answering(models, OLD) == "old"
    gate.opened.set()
    wait_for(lambda: not any(thread.name == "load new" for thread in threading.enumerate()))
    wait_for(lambda: sum(thread.name == "embed-0" for thread in threading.enumerate()) == 1)
    assert answering(models, OLD) == "old"


def test_switching_back_ends_the_attempts_at_a_model_that_fails_and_its_blame(open_models: OpenModels) -> None:
    def open_pool(space: Space) -> PinnedPool:
        if space == NEW:
            raise UnknownModel("its folder was removed")
        return pool_of(space)

    models = ready_for_old(open_models(open_pool, lambda: OLD, grace_s=0.01, first_retry_s=0.01))
    models.space_for(NEW)
    wait_for(lambda: models.next_failure is not None)
    models.space_for(OLD)
    assert models.next_failure is None
    wait_for(lambda: not any(thread.name == "load new" for thread in threading.enumerate()))
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


def test_closing_while_a_model_is_on_its_way_ends_it_too() -> None:
    gate = Gate()
    models = SpaceModels(lambda space: pool_of(space, gate), lambda: OLD)
    models.space_for(OLD)
    assert gate.reached.wait(5)
    models.close()
    gate.opened.set()
    time.sleep(0.05)
    assert not any(thread.name == "embed-0" for thread in threading.enumerate())
    assert models.space_for(NEW) == NEW
    with pytest.raises(ModelLoading):
        models.embed_query("x", NEW)
