"""What the fields of resources show, and what a run's config changes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

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
from anamnesis_pipeline.pipeline.reembed_state import failure_of
from anamnesis_pipeline.pipeline.source_specs import put_specs
from anamnesis_pipeline.runtime.crawler_wiring import built_in
from anamnesis_pipeline.services.wiring import CONFIG_PREFIX, loaded_values
from anamnesis_pipeline.sources.specs import LOGS, SourceSpec
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.defs.conftest import HashedModels
from anamnesis_tests.support.spaces import write

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
    graphql, given = Path(sys.executable).with_name("dagster-graphql"), {"ANAMNESIS_HOME": str(home), **environment}
    command = [graphql, "--ephemeral-instance", "-t", query, "-m", "anamnesis_pipeline.definitions"]
    ran = subprocess.run(command, env=os.environ | given, capture_output=True, text=True, timeout=120, check=False)
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


@dataclass
class Embedding:
    """Runs over an active space that lacks thirty episodes, each with a config of its own."""

    memory: MemoryResource
    instance: dg.DagsterInstance
    models: HashedModels

    def run(self, config: Mapping[str, Any]) -> dg.ExecuteInProcessResult:
        resources = {"memory": self.memory, "embedding_pool": EmbeddingPoolResource()}
        given = {"resources": {"embedding_pool": {"config": dict(config)}}}
        key = embed_key("direct", SPACE.key)
        how = {"instance": self.instance, "partition_key": key, "raise_on_error": False}
        return dg.materialize([embeddings], resources=resources, run_config=given, **how)


@pytest.fixture
def embedding(memory: MemoryResource, instance: dg.DagsterInstance, models: HashedModels) -> Embedding:
    memory.store.spaces.put(SPACE)
    memory.store.spaces.activate(SPACE.key)
    write(memory.store, 30, source="direct")
    instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["direct"])
    instance.add_dynamic_partitions(str(SPACES.name), [SPACE.key])
    return Embedding(memory, instance, models)


def test_run_config_overrides_the_settings_for_one_run(embedding: Embedding) -> None:
    last = available_cores()[-1]
    assert embedding.run({"embed_cores": [last], "checkpoint_every": 7}).success
    assert embedding.models.opened[0].cores == (last,)
    write(embedding.memory.store, 5, source="direct", first=30)
    assert embedding.run({}).success
    assert list(embedding.models.opened[1].cores) == available_cores()
    assert not embedding.run({"embed_cpu_pct": 101}).success, "refused also where nothing is left to embed"


def test_values_left_as_shown_follow_the_settings(memory: MemoryResource) -> None:
    pool = EmbeddingPoolResource(checkpoint_every=7)
    assert pool.settings(memory).idle_minutes == 30
    for name, value in {"embed_cpu_pct": 50, "checkpoint_every": 9, "embed_cores": [available_cores()[-1]]}.items():
        memory.store.settings.set(f"{CONFIG_PREFIX}{name}", value)
    assert (pool.settings(memory).embed_cpu_pct, pool.settings(memory).checkpoint_every) == (50, 7)
    shared = EmbeddingPoolResource(embed_cpu_pct=1).settings(memory)
    assert (shared.embed_cpu_pct, shared.embed_cores) == (1, ()), "a share of a run counts though cores are set"


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
def test_config_that_cannot_be_followed_is_refused(embedding: Embedding, config: dict[str, Any], told: str) -> None:
    result = embedding.run(config)
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_failure_data.user_failure_data is not None
    text = str(failed.step_failure_data.user_failure_data.description)
    assert "The config of this run is refused" in text
    assert told in text
    assert not embedding.models.opened
    assert failure_of(embedding.memory.store, SPACE.key) is None, "the sensor would wait because of it"


def test_unknown_device_is_refused_before_a_run_starts(embedding: Embedding) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="tpu"):
        embedding.run({"device": "tpu"})


def test_run_config_cannot_choose_another_store(home: Path) -> None:
    with pytest.raises(dg.Failure, match=r"names the store sqlite, /tmp/other\.db"):
        _ = MemoryResource(store_place="/tmp/other.db").store
    assert not home.exists()


@pytest.mark.parametrize("field", ["address", "api_key"])
def test_llm_of_a_run_has_its_own_budget_and_no_other_address(memory: MemoryResource, field: str) -> None:
    memory.store.settings.set(f"{CONFIG_PREFIX}llm_daily_dollars", 1.0)
    llm = LlmResource(llm_daily_dollars=2.5, summarizer="ollama").pipeline(memory).llm
    assert llm.rules.budget.dollars == 2.5
    assert llm.open is not None
    assert memory.pipeline.llm.rules.budget.dollars == 1.0
    with pytest.raises(dg.Failure, match=f"gives {field}"):
        LlmResource(**{field: "http://elsewhere.example"}).pipeline(memory)


def test_run_asks_none_but_the_hosts_of_its_config(memory: MemoryResource) -> None:
    specs = [SourceSpec(f"{name}-logs", LOGS, "~/logs", f"me@{name}.example", name) for name in ("pi", "nas")]
    put_specs(memory.store.settings, specs, built_in(memory.settings), "mac")
    assert settings_at_load()[1] == ["me@nas.example", "me@pi.example"], "which are shown"
    ssh = SshResource(hosts=["me@pi.example"], read_timeout_s=3)
    assert ssh.pipeline(memory)
    assert ssh.host("pi", "me@pi.example").machine == "pi"
    with pytest.raises(HostRefused, match=r"may not contact me@nas\.example"):
        ssh.host("nas", "me@nas.example")
    with pytest.raises(dg.Failure, match=r"'me@tv\.example' is the host of no source; the hosts are: me@nas"):
        SshResource(hosts=["me@tv.example"]).pipeline(memory)
