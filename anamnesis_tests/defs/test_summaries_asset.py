"""The asset `summaries`: who started its run decides what a paid LLM may do, and its metadata say what it cost."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from anamnesis_pipeline.defs.checks import every_llm_summary_is_made
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import LlmResource, MemoryResource
from anamnesis_pipeline.defs.summaries import AGAIN_TAG, AUTOMATIC_TAGS, is_by_hand, summaries
from anamnesis_pipeline.pipeline import summarize as step
from anamnesis_pipeline.pipeline.llm_guard import Breaker
from anamnesis_pipeline.services.wiring import CONFIG_PREFIX
from anamnesis_tests.support.llms import SOURCE, LlmHere, parsed, part


@pytest.fixture
def llm(memory: MemoryResource, monkeypatch: pytest.MonkeyPatch) -> LlmHere:
    """Configured, and opened in the place of a real one."""
    llm = LlmHere(is_paid=True)
    monkeypatch.setattr("anamnesis_pipeline.runtime.llm_wiring.open_provider", lambda kind, options: llm)
    memory.store.settings.set(f"{CONFIG_PREFIX}summarizer", "anthropic")
    parsed(memory.store, part(1), part(2, "hi", "hello"))
    return llm


Made = Callable[..., dict[str, Any]]
BY_SENSOR = {"dagster/sensor_name": "crawl_sensor"}


@pytest.fixture
def made(memory: MemoryResource, instance: dg.DagsterInstance, llm: LlmHere) -> Made:
    """Materializes it under these tags and with this configuration: its metadata."""

    def materialize(tags: dict[str, str] | None = None, **config: Any) -> dict[str, Any]:
        instance.add_dynamic_partitions(str(SOURCES.name), [SOURCE.key])
        upstream = dg.AssetSpec("exchanges", partitions_def=SOURCES)
        result = dg.materialize(
            [summaries, upstream],
            selection=["summaries"],
            instance=instance,
            partition_key=SOURCE.key,
            tags=tags,
            resources={"memory": MemoryResource(), "llm": LlmResource()},
            run_config={"ops": {"summaries": {"config": config}}},
        )
        (event,) = result.get_asset_materialization_events()
        return {name: value.value for name, value in event.materialization.metadata.items()}

    return materialize


def test_run_of_a_sensor_asks_no_paid_llm_without_a_budget(memory: MemoryResource, made: Made) -> None:
    found = made(BY_SENSOR)
    assert (found["flagged"], found["LLM calls"], found["low value"]) == (1, 0, 1)
    assert found["problem"] == step.NO_BUDGET
    assert not every_llm_summary_is_made(memory).passed
    by_hand = made()
    assert (by_hand["flagged"], by_hand["LLM calls"], by_hand["tokens in"]) == (0, 1, 400)
    assert by_hand["dollars"] == pytest.approx(0.004)
    assert every_llm_summary_is_made(memory).passed


def test_run_summarizes_at_most_so_many_and_the_next_goes_on(memory: MemoryResource, made: Made) -> None:
    parsed(memory.store, *(part(n) for n in range(3, 7)))
    memory.store.settings.set(f"{CONFIG_PREFIX}max_exchanges_per_run", 2)
    memory.store.settings.set(f"{CONFIG_PREFIX}llm_daily_dollars", 1.0)
    written = []
    while SOURCE.key in memory.store.summaries.sources_to_summarize(datetime.now(UTC)):
        written.append(made(BY_SENSOR)["written"])
    assert written == [2, 2, 2]


def test_by_hand_a_refusal_since_the_run_was_made_stands(memory: MemoryResource, made: Made, llm: LlmHere) -> None:
    Breaker(memory.store.settings, "ollama").was_refused("wrong key")
    assert made()["LLM calls"] == 1, "refused before"
    memory.store.summaries.want_summaries("nobody")
    later = datetime.now(UTC) + timedelta(minutes=1)
    Breaker(memory.store.settings, "ollama", lambda: later).was_refused("wrong key")
    llm.model = "another"
    assert made()["flagged"] == 1
    assert len(llm.asked) == 1


def test_backfills_are_by_hand_and_what_the_daemon_tags_is_not() -> None:
    assert is_by_hand({"dagster/backfill": "abc", "dagster/partition": "s"})
    assert not any(is_by_hand({tag: "x"}) for tag in AUTOMATIC_TAGS)


@pytest.mark.parametrize(
    ("tags", "config"), [({AGAIN_TAG: "true"}, {}), ({}, {"again": True}), ({}, {"again": True, "project": "acme/api"})]
)
def test_summaries_again_are_made_by_the_present_llm(
    memory: MemoryResource, made: Made, llm: LlmHere, tags: dict[str, str], config: dict[str, Any]
) -> None:
    def stored() -> tuple[str, str]:
        found = memory.store.summaries.summary(part(1).part_id)
        assert found is not None
        return found.model, found.text

    assert made()["LLM calls"] == 1
    former = stored()
    llm.model, llm.reply = "another", llm.reply.replace("double-charged", "charged twice")
    assert made()["LLM calls"] == 0, "it has a summary"
    memory.store.settings.set(f"{CONFIG_PREFIX}llm_daily_tokens", 1)
    assert made(tags, **config)["LLM calls"] == 0
    assert stored() == former, "without a budget the former one stays"
    memory.store.settings.set(f"{CONFIG_PREFIX}llm_daily_tokens", 1_000_000)
    assert made(tags, **config)["LLM calls"] == 1
    assert (stored()[0], "charged twice" in stored()[1]) == ("another", True)
    assert made(tags, **config)["LLM calls"] == 0, "the cache has its reply"
