"""Present problems, as far as known without contacting a service and without waiting."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from anamnesis_pipeline.services import store_checks
from anamnesis_pipeline.services.embedding_control import ModelPool, coverage
from anamnesis_pipeline.services.log_ingest import llm_state
from anamnesis_pipeline.services.machine_checks import Finding, free_space, run_checks
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.sidecar.admission import DiskSpace
from anamnesis_pipeline.sidecar.resources import Resource
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.base import Store


class Growth:
    """Progress of the embedding, as one application sees it. A large memory takes hours at first, which is no problem
    while it advances.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._embedded, self._changed_at = -1, 0.0

    def goes_on(self, embedded: int) -> bool:
        """Return whether the number of embedded passages changed within the last minutes."""
        if embedded != self._embedded:
            self._embedded, self._changed_at = embedded, self._clock()
        return self._clock() - self._changed_at < store_checks.BEING_EMBEDDED.total_seconds()


def present_problems(
    services: Services, room: DiskSpace, growth: Growth, resources: Sequence[Resource]
) -> list[Finding]:
    """Return the problems to act on, worst first.

    :param resources: results of the last probe.
    """
    covers = partial(_coverage, growth)
    problem = room.problem(services.store)
    found = [
        Finding(problem is None, "writing", problem or "", "until then searches answer, and nothing new is kept"),
        model_loading(services.pool),
    ]
    found += [
        Finding(each.state not in ("down", "stale") or not each.is_used, each.name, each.detail, each.advice)
        for each in resources
        if each.kind in ("dagster", "llm")  # an unused alternative may be down
    ]
    found += [free_space(services.settings), *run_checks([covers, *CHEAP], services.store)]
    return [finding for finding in found if not finding.ok]


def model_loading(pool: ModelPool) -> Finding:
    """Check that the model is loaded or still loading."""
    if pool.failure:
        advice = "searches by words go on; choose a model that is there on the page Embedding"
        return Finding(False, "model", f"no question can be embedded: {pool.failure}", advice)
    if waiting := pool.next_failure:
        return Finding(False, "model", f"{waiting[0]} does not load, the model before it answers: {waiting[1]}")
    return Finding(True, "model", pool.model_id)


def _coverage(growth: Growth, store: Store) -> Finding:
    return (
        Finding(True, "coverage", "") if growth.goes_on(coverage(store)["embedded"]) else store_checks.coverage(store)
    )


def _llm(store: Store) -> Finding:
    """Check that the summary LLM may be called: its breaker is closed and its budget is not used up."""
    problem = llm_state(store, effective_settings(store), datetime.now(UTC))["problem"]
    advice = "mend what it names, or go without an LLM: anamnesis config set summarizer none"
    return Finding(problem is None, "summaries", problem or "", advice)


CHEAP: Sequence[Callable[[Store], Finding]] = (
    store_checks.unread_logs,
    store_checks.dead_letters,
    store_checks.vector_index,
    store_checks.reembedding,
    _llm,
    store_checks.forgetting,
    store_checks.crawler,
    store_checks.clock,
)
"""Mostly checks of `doctor`; they read some rows and call no service."""
