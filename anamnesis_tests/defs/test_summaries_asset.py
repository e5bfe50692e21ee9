"""The asset `summaries`: who started its run decides what a paid LLM may do, and its metadata say what it cost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from anamnesis_pipeline.defs.checks import every_llm_summary_is_made
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import LlmResource, MemoryResource
from anamnesis_pipeline.defs.summaries import AGAIN_TAG, AUTOMATIC_TAGS, is_by_hand, summaries
from anamnesis_pipeline.steps import summaries as step
from anamnesis_pipeline.steps.llm_breaker import Breaker
from anamnesis_pipeline.wiring import CONFIG_PREFIX
from anamnesis_tests.steps.llms import SOURCE, LlmHere, parsed, part


@pytest.fixture
def llm(memory: MemoryResource, monkeypatch: pytest.MonkeyPatch) -> LlmHere:
    """Configured, and opened in the place of a real one."""
    llm = LlmHere(is_paid=True)
    monkeypatch.setattr("anamnesis_pipeline.llm_wiring.open_backend", lambda kind, options: llm)
    memory.store.settings.set(f"{CONFIG_PREFIX}summarizer", "anthropic")
    parsed(memory.store, part(1), part(2, "hi", "hello"))
    return llm


def materialize(
    memory: MemoryResource, instance: dg.DagsterInstance, tags: dict[str, str], **config: Any
) -> dict[str, Any]:
    instance.add_dynamic_partitions(str(SOURCES.name), [SOURCE.key])
    upstream = dg.AssetSpec("exchanges", partitions_def=SOURCES)
    result = dg.materialize(
        [summaries, upstream], selection=["summaries"], instance=instance, partition_key=SOURCE.key, tags=tags,
        resources={"memory": MemoryResource(), "llm": LlmResource()},
        run_config={"ops": {"summaries": {"config": config}}},
    )  # fmt: skip
    (event,) = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_a_run_that_a_sensor_started_asks_no_paid_llm_without_a_budget(
    memory: MemoryResource, instance: dg.DagsterInstance, llm: LlmHere
) -> None:
    found = materialize(memory, instance, {"dagster/sensor_name": "crawl_sensor"})
    assert (found["flagged"], found["LLM calls"], found["low value"]) == (1, 0, 1)
    assert found["problem"] == step.NO_BUDGET
    assert not every_llm_summary_is_made(memory).passed
    by_hand = materialize(memory, instance, {})
    assert (by_hand["flagged"], by_hand["LLM calls"], by_hand["tokens in"]) == (0, 1, 400)
    assert by_hand["dollars"] == pytest.approx(0.004)
    assert every_llm_summary_is_made(memory).passed


def test_a_budget_lets_the_next_run_ask_and_another_backend_is_taken_at_once(
    memory: MemoryResource, instance: dg.DagsterInstance, llm: LlmHere
) -> None:
    memory.store.settings.set(f"{CONFIG_PREFIX}llm_daily_dollars", 1.0)
    assert materialize(memory, instance, {"dagster/schedule_name": "daily_ingest"})["LLM calls"] == 1
    memory.store.settings.set(f"{CONFIG_PREFIX}summarizer", "none")
    memory.store.summaries.want_summaries("nobody")
    assert materialize(memory, instance, {})["LLM calls"] == 0
    assert len(llm.asked) == 1


def test_a_run_summarizes_at_most_so_many_and_the_next_goes_on(
    memory: MemoryResource, instance: dg.DagsterInstance, llm: LlmHere
) -> None:
    parsed(memory.store, *(part(n) for n in range(3, 7)))
    memory.store.settings.set(f"{CONFIG_PREFIX}max_exchanges_per_run", 2)
    memory.store.settings.set(f"{CONFIG_PREFIX}llm_daily_dollars", 1.0)
    tags = {"dagster/sensor_name": "crawl_sensor"}
    written = []
    while SOURCE.key in memory.store.summaries.sources_to_summarize(datetime.now(UTC)):
        written.append(materialize(memory, instance, tags)["written"])
    assert written == [2, 2, 2]


def test_by_hand_a_refusal_since_the_run_was_made_stands(
    memory: MemoryResource, instance: dg.DagsterInstance, llm: LlmHere
) -> None:
    breaker = Breaker(memory.store.settings, "ollama")
    breaker.was_refused("wrong key")
    assert materialize(memory, instance, {})["LLM calls"] == 1, "refused before"
    memory.store.summaries.want_summaries("nobody")
    later = datetime.now(UTC) + timedelta(minutes=1)
    Breaker(memory.store.settings, "ollama", lambda: later).was_refused("wrong key")
    llm.model = "another"
    assert materialize(memory, instance, {})["flagged"] == 1
    assert len(llm.asked) == 1


def test_tags_of_a_backfill_are_a_persons_and_those_of_the_daemon_are_not() -> None:
    assert is_by_hand({"dagster/backfill": "abc", "dagster/partition": "s"})
    assert not any(is_by_hand({tag: "x"}) for tag in AUTOMATIC_TAGS)


@pytest.mark.parametrize(
    ("tags", "config"), [({AGAIN_TAG: "true"}, {}), ({}, {"again": True}), ({}, {"again": True, "project": "acme/api"})]
)
def test_summaries_again_are_made_by_the_present_llm(
    memory: MemoryResource, instance: dg.DagsterInstance, llm: LlmHere, tags: dict[str, str], config: dict[str, Any]
) -> None:
    assert materialize(memory, instance, {})["LLM calls"] == 1
    llm.model, llm.reply = "another", llm.reply.replace("double-charged", "charged twice")
    assert materialize(memory, instance, {})["LLM calls"] == 0, "it has a summary"
    assert materialize(memory, instance, tags, **config)["LLM calls"] == 1
    made = memory.store.summaries.summary(part(1).part_id)
    assert made is not None
    assert (made.model, "charged twice" in made.text) == ("another", True)
    assert materialize(memory, instance, tags, **config)["LLM calls"] == 0, "the cache has its reply"


def test_summaries_again_keep_the_former_one_without_budget(
    memory: MemoryResource, instance: dg.DagsterInstance, llm: LlmHere
) -> None:
    materialize(memory, instance, {})
    former = memory.store.summaries.summary(part(1).part_id)
    assert former is not None
    memory.store.settings.set(f"{CONFIG_PREFIX}llm_daily_tokens", 1)
    llm.model = "another"
    assert materialize(memory, instance, {}, again=True)["LLM calls"] == 0
    present = memory.store.summaries.summary(part(1).part_id)
    assert present is not None
    assert (present.text, present.model) == (former.text, former.model)
