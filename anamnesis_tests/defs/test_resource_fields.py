"""What the fields of resources show, and what a run's config changes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from anamnesis_pipeline.crawler_wiring import built_in
from anamnesis_pipeline.defs.embeddings import embeddings
from anamnesis_pipeline.defs.partitions import EMBEDDED_SOURCES, SPACES, embed_key
from anamnesis_pipeline.defs.resources import (
    AT_LOAD,
    EmbeddingPoolResource,
    LlmResource,
    MemoryResource,
    SshResource,
    settings_at_load,
)
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.errors import HostRefused
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.sources.specs import LOGS, SourceSpec
from anamnesis_pipeline.steps.reembed_state import failure_of
from anamnesis_pipeline.steps.source_specs import put_specs
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.wiring import CONFIG_PREFIX, loaded_values
from anamnesis_tests.defs.conftest import HashedModels
from anamnesis_tests.steps.spaces import write

SPACE = Space("words", "model-of-words", 16)
WORD = "hidden-" + "word-of-a-test"
PAGE = """{ allTopLevelResourceDetailsOrError(repositorySelector: {
  repositoryName: "__repository__", repositoryLocationName: "anamnesis_pipeline.definitions"}) {
  ... on ResourceDetailsList { results {
    name description configFields { name description defaultValueAsJson } configuredValues { key value } } } } }"""
SNAPSHOT = """{ repositoriesOrError { ... on RepositoryConnection { nodes {
  assetNodes { assetKey { path } description metadataEntries { label description
    ... on TextMetadataEntry { text } ... on UrlMetadataEntry { url } } }
  jobs { name description modes { resources { name description configField { name description
    configType { ... on CompositeConfigType { fields { name description defaultValueAsJson } } } } } } }
  schedules { name description } sensors { name description } } } } }"""


def asked(query: str, home: Path, environment: Mapping[str, str]) -> str:
    """Dagster's answer over the definitions, loaded in a process of their own."""
    ran = subprocess.run(
        [
            Path(sys.executable).with_name("dagster-graphql"),
            *("--ephemeral-instance", "-m", "anamnesis_pipeline.definitions", "-t", query),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "ANAMNESIS_HOME": str(home), **environment},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("query", [PAGE, SNAPSHOT], ids=["resource page", "snapshot"])
def test_ui_shows_settings_and_no_secret(tmp_path: Path, query: str) -> None:
    store = open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")
    store.settings.set(f"{CONFIG_PREFIX}embed_cpu_pct", 37)
    store.settings.set(f"{CONFIG_PREFIX}summarizer", "openai")
    store.settings.set(f"{CONFIG_PREFIX}openai_url", f"http://me:{WORD}@llm.example/v1?key={WORD}")
    store.close()
    secrets = {"api_token", "openai_api_key", "anthropic_api_key", "voyage_api_key", "gemini_api_key"}
    environment = {f"ANAMNESIS_{name.upper()}": f"{WORD}-{name}" for name in secrets}
    uri = f"mongodb://me:{WORD}@db.example:27017/?authSource=admin"
    answer = asked(query, tmp_path, {**environment, "ANAMNESIS_MONGO_URI": uri, "ANTHROPIC_API_KEY": WORD})
    assert WORD not in answer
    for shown in ('"37"', "http://llm.example/v1", "present", str(tmp_path / "anamnesis.db"), "all-MiniLM-L6-v2"):
        assert shown in answer.replace('\\"', '"'), shown


def test_every_shown_setting_reloads_the_definitions() -> None:
    shown = EmbeddingPoolResource.model_fields.keys() | LlmResource.model_fields.keys()
    assert shown <= loaded_values(AT_LOAD).keys()


def test_ui_shows_the_place_of_mongo_without_user(tmp_path: Path) -> None:
    environment = {
        "ANAMNESIS_STORE": "mongo",
        "ANAMNESIS_MONGO_URI": f"mongodb://me:{WORD}@127.0.0.1:9/?serverSelectionTimeoutMS=50",
        "ANAMNESIS_MONGO_WAIT_S": "0",
    }
    answer = asked(PAGE, tmp_path, environment)
    assert WORD not in answer
    assert "MongoDB 127.0.0.1:9/anamnesis" in answer


@pytest.fixture
def pooled(memory: MemoryResource, instance: dg.DagsterInstance, models: HashedModels) -> HashedModels:
    """An active space that lacks thirty episodes."""
    memory.store.spaces.put(SPACE)
    memory.store.spaces.activate(SPACE.key)
    write(memory.store, 30, source="direct")
    instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["direct"])
    instance.add_dynamic_partitions(str(SPACES.name), [SPACE.key])
    return models


def embed(memory: MemoryResource, instance: dg.DagsterInstance, config: Mapping[str, Any]) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [embeddings],
        instance=instance,
        resources={"memory": memory, "embedding_pool": EmbeddingPoolResource()},
        partition_key=embed_key("direct", SPACE.key),
        run_config={"resources": {"embedding_pool": {"config": dict(config)}}},
        raise_on_error=False,
    )


def test_run_config_overrides_the_settings_for_one_run(
    memory: MemoryResource, instance: dg.DagsterInstance, pooled: HashedModels
) -> None:
    last = available_cores()[-1]
    assert embed(memory, instance, {"embed_cores": [last], "checkpoint_every": 7}).success
    assert pooled.opened[0].cores == (last,)
    write(memory.store, 5, source="direct", first=30)
    assert embed(memory, instance, {}).success
    assert list(pooled.opened[1].cores) == available_cores()


def test_share_of_cores_counts_for_a_run_though_cores_are_set(memory: MemoryResource) -> None:
    memory.store.settings.set(f"{CONFIG_PREFIX}embed_cores", [available_cores()[-1]])
    settings = EmbeddingPoolResource(embed_cpu_pct=1).settings(memory)
    assert (settings.embed_cpu_pct, settings.embed_cores) == (1, ())


def test_value_left_as_shown_follows_the_setting(memory: MemoryResource) -> None:
    pool = EmbeddingPoolResource(checkpoint_every=7)
    assert pool.settings(memory).idle_minutes == 30
    memory.store.settings.set(f"{CONFIG_PREFIX}embed_cpu_pct", 50)
    memory.store.settings.set(f"{CONFIG_PREFIX}checkpoint_every", 9)
    assert (pool.settings(memory).embed_cpu_pct, pool.settings(memory).checkpoint_every) == (50, 7)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"embed_cores": [65000]}, "may use only cores"),
        ({"embed_cores": [-1]}, "embed_cores = -1: Input should be greater than or equal to 0"),
        ({"embed_cpu_pct": 0}, "embed_cpu_pct = 0: Input should be greater than or equal to 1"),
        ({"embed_cpu_pct": 101}, "embed_cpu_pct = 101: Input should be less than or equal to 100"),
        ({"checkpoint_every": 0}, "checkpoint_every = 0"),
        ({"device": "cuda"}, "no NVIDIA GPU"),
        ({"model": "another-model"}, "anamnesis model add another-model"),
    ],
)
def test_config_that_cannot_be_followed_is_refused(
    memory: MemoryResource, instance: dg.DagsterInstance, pooled: HashedModels, config: dict[str, Any], told: str
) -> None:
    result = embed(memory, instance, config)
    assert not result.success
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_failure_data.user_failure_data is not None
    text = str(failed.step_failure_data.user_failure_data.description)
    assert "The config of this run is refused" in text
    assert told in text
    assert not pooled.opened
    assert failure_of(memory.store, SPACE.key) is None, "the sensor would wait because of it"


def test_config_is_refused_also_where_nothing_is_left_to_embed(
    memory: MemoryResource, instance: dg.DagsterInstance, pooled: HashedModels
) -> None:
    assert embed(memory, instance, {}).success
    assert not embed(memory, instance, {"embed_cpu_pct": 101}).success


def test_unknown_device_is_refused_before_a_run_starts(
    memory: MemoryResource, instance: dg.DagsterInstance, pooled: HashedModels
) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="tpu"):
        embed(memory, instance, {"device": "tpu"})


def test_run_config_cannot_choose_another_store(home: Path) -> None:
    with pytest.raises(dg.Failure, match=r"names the store sqlite, /tmp/other\.db"):
        _ = MemoryResource(store_place="/tmp/other.db").store
    assert not home.exists()


def test_llm_of_a_run_has_its_own_budget(memory: MemoryResource) -> None:
    memory.store.settings.set(f"{CONFIG_PREFIX}llm_daily_dollars", 1.0)
    llm = LlmResource(llm_daily_dollars=2.5, summarizer="ollama").pipeline(memory).llm
    assert llm.rules.budget.dollars == 2.5
    assert llm.open is not None
    assert memory.pipeline.llm.rules.budget.dollars == 1.0


@pytest.mark.parametrize("field", ["address", "api_key"])
def test_run_config_leads_no_key_elsewhere(memory: MemoryResource, field: str) -> None:
    with pytest.raises(dg.Failure, match=f"gives {field}"):
        LlmResource(**{field: "http://elsewhere.example"}).pipeline(memory)


@pytest.fixture
def far(memory: MemoryResource) -> MemoryResource:
    """Sources on two other machines."""
    specs = [SourceSpec(f"{name}-logs", LOGS, "~/logs", f"me@{name}.example", name) for name in ("pi", "nas")]
    put_specs(memory.store.settings, specs, built_in(memory.settings), "mac")
    return memory


def test_hosts_of_sources_are_shown(far: MemoryResource, home: Path) -> None:
    assert settings_at_load()[1] == ["me@nas.example", "me@pi.example"]


def test_run_asks_none_but_the_hosts_of_its_config(far: MemoryResource) -> None:
    ssh = SshResource(hosts=["me@pi.example"], read_timeout_s=3)
    assert ssh.pipeline(far)
    assert ssh.host("pi", "me@pi.example").machine == "pi"
    with pytest.raises(HostRefused, match=r"me@nas\.example is not asked"):
        ssh.host("nas", "me@nas.example")
    with pytest.raises(dg.Failure, match=r"'me@tv\.example' is the host of no source; the hosts are: me@nas"):
        SshResource(hosts=["me@tv.example"]).pipeline(far)
