"""The values for Dagster's Helm chart, held to the part of its schema that they use.

The schema is that of the chart, in our words: names that it does not know are refused, as it refuses them.
https://github.com/dagster-io/dagster/blob/master/helm/dagster/values.schema.json
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]


def mapping(required: str = "", **properties: Any) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": required.split(), "additionalProperties": False
    }  # fmt: skip


def several(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
ANY = {"type": "object"}
QUANTITY = {"type": "string", "pattern": r"^\d+(m|Mi|Gi)?$"}
RESOURCES = mapping(
    requests={"type": "object", "additionalProperties": QUANTITY},
    limits={"type": "object", "additionalProperties": QUANTITY},
)
PULL = {"enum": ["Always", "IfNotPresent", "Never"]}
IMAGE = mapping("repository pullPolicy", repository=TEXT, tag=TEXT, pullPolicy=PULL)
PROBE = mapping(
    "tcpSocket", tcpSocket=mapping("port", port=NUMBER), periodSeconds=NUMBER, timeoutSeconds=NUMBER,
    failureThreshold=NUMBER,
)  # fmt: skip
POD = mapping(runAsNonRoot=FLAG, runAsUser=NUMBER, runAsGroup=NUMBER, fsGroup=NUMBER)
DEPLOYMENT = mapping(
    "name image port codeServerArgs",
    name=TEXT, image=IMAGE, port=NUMBER, codeServerArgs=several(TEXT),
    env=several(mapping("name value", name=TEXT, value=TEXT)), envSecrets=several(mapping("name", name=TEXT)),
    volumes=several(mapping("name", name=TEXT, persistentVolumeClaim=mapping("claimName", claimName=TEXT),
                            secret=mapping("secretName", secretName=TEXT, defaultMode=NUMBER))),
    volumeMounts=several(mapping("name mountPath", name=TEXT, mountPath=TEXT, readOnly=FLAG)),
    podSecurityContext=POD, resources=RESOURCES, includeConfigInLaunchedRuns=mapping("enabled", enabled=FLAG),
    readinessProbe=PROBE, livenessProbe=PROBE,
)  # fmt: skip
LIMIT = mapping(
    "key limit", key=TEXT, limit=NUMBER, value=mapping("applyLimitPerUniqueValue", applyLimitPerUniqueValue=FLAG)
)
QUEUE = mapping(maxConcurrentRuns=NUMBER, dequeueIntervalSeconds=NUMBER, tagConcurrencyLimits=several(LIMIT))
DAEMON = mapping(
    "image runCoordinator",
    image=IMAGE, resources=RESOURCES,
    runCoordinator=mapping("enabled type config", enabled=FLAG, type={"const": "QueuedRunCoordinator"},
                           config=mapping("queuedRunCoordinator", queuedRunCoordinator=QUEUE)),
    runMonitoring=ANY, runRetries=ANY, sensors=mapping("useThreads", useThreads=FLAG, numWorkers=NUMBER),
)  # fmt: skip
LAUNCHER = mapping(
    "imagePullPolicy loadInclusterConfig envConfigMaps envSecrets envVars volumeMounts volumes",
    imagePullPolicy=PULL, loadInclusterConfig=FLAG, envConfigMaps=several(ANY), envSecrets=several(ANY),
    envVars=several(TEXT), volumes=several(ANY), volumeMounts=several(ANY), resources=RESOURCES,
    runK8sConfig=mapping(containerConfig=ANY, podSpecConfig=ANY, podTemplateSpecMetadata=ANY, jobSpecConfig=ANY,
                         jobMetadata=ANY),
)  # fmt: skip
BY_TYPE = mapping("skipped success failure started", skipped=NUMBER, success=NUMBER, failure=NUMBER, started=NUMBER)
KEPT = mapping("purgeAfterDays", purgeAfterDays={"anyOf": [NUMBER, BY_TYPE]})
CHART = {
    **mapping(
        dagsterWebserver=mapping("image", image=IMAGE, enableReadOnly=FLAG, resources=RESOURCES),
        dagsterDaemon=DAEMON,
        runLauncher=mapping("type config", type={"const": "K8sRunLauncher"},
                            config=mapping("k8sRunLauncher", k8sRunLauncher=LAUNCHER)),
        postgresql=mapping("enabled", enabled=FLAG, postgresqlHost=TEXT, postgresqlUsername=TEXT,
                           postgresqlDatabase=TEXT, postgresqlScheme=TEXT, service=mapping("port", port=NUMBER)),
        generatePostgresqlPasswordSecret=FLAG,
        telemetry=mapping("enabled", enabled=FLAG),
        retention=mapping("enabled", enabled=FLAG, schedule=KEPT, sensor=KEPT),
    ),
}  # fmt: skip
CHART["properties"] |= {
    "dagster-user-deployments": mapping("enabled", enabled=FLAG, deployments=several(DEPLOYMENT)),
    "global": mapping(postgresqlSecretName=TEXT),
}


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "deploy/kubernetes/values.yaml").read_text())
    return loaded


def test_the_chart_knows_every_value_that_it_is_given(values: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(CHART)
    assert [error.message for error in Draft202012Validator(CHART).iter_errors(values)] == []


def test_dagster_is_set_up_on_kubernetes_as_it_is_in_containers(values: dict[str, Any]) -> None:
    here = yaml.safe_load((ROOT / "deploy/dagster.yaml").read_text())
    queue = values["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"]
    assert queue["maxConcurrentRuns"] == here["concurrency"]["runs"]["max_concurrent_runs"]
    assert queue["tagConcurrencyLimits"] == here["concurrency"]["runs"]["tag_concurrency_limits"]
    assert queue["dequeueIntervalSeconds"] == here["run_coordinator"]["config"]["dequeue_interval_seconds"]
    assert values["postgresql"]["postgresqlScheme"] == here["storage"]["postgres"]["postgres_db"]["scheme"]
    assert values["dagsterDaemon"]["runMonitoring"]["maxResumeRunAttempts"] == 0


def test_runs_that_embed_ask_for_a_gpu_of_the_pool(values: dict[str, Any]) -> None:
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    environment = {each["name"]: each["value"] for each in deployment["env"]}
    ((tag, text),) = json.loads(environment["ANAMNESIS_EMBED_RUN_TAGS"]).items()
    assert tag == "dagster-k8s/config"
    wanted = json.loads(text)
    assert wanted["container_config"]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert wanted["pod_spec_config"]["node_selector"] == {"anamnesis/embedding": "true"}
