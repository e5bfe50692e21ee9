"""The values for Dagster's Helm chart and the objects of the guide, held to what the chart and Kubernetes take.

Objects of Kubernetes go through its own JSON schemas (`kubernetes-validate`), in which nothing unknown passes. The Job
of a run is the one that dagster-k8s makes of the values and hands to a cluster that only takes it.
"""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.embeddings import POOL
from anamnesis_tests.containers.chart import SCHEMA, code_server, image_name, run_launcher

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "deploy/kubernetes/values.yaml").read_text())
    return loaded


@pytest.fixture(scope="module")
def deployment(values: dict[str, Any]) -> dict[str, Any]:
    (only,) = values["dagster-user-deployments"]["deployments"]
    return dict(only)


@pytest.fixture(scope="module")
def guide() -> dict[str, dict[str, Any]]:
    """Kind -> object of docs/guides/kubernetes.md."""
    text = (ROOT / "docs/guides/kubernetes.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    blocks += re.findall(r"<<EOT\n(.*?)^EOT", text, re.DOTALL | re.MULTILINE)
    found = [each for block in blocks for each in yaml.safe_load_all(block)]
    return {each["kind"]: each for each in found}


class Cluster(HTTPServer):
    """Kubernetes' API, which takes every Job it is given; `jobs` are these."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Jobs)


class _Jobs(BaseHTTPRequestHandler):
    server: Cluster

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/apis/batch/v1/namespaces/default/jobs"):
            self.server.jobs.append(json.loads(body))
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def run_job(
    values: dict[str, Any], deployment: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The Job that dagster-k8s makes of a run that embeds, which is launched from the command line."""
    home = tmp_path_factory.mktemp("dagster")
    with Cluster() as cluster:
        threading.Thread(target=cluster.serve_forever, daemon=True).start()
        launcher = run_launcher(values) | _reached(cluster, home)
        configuration = {
            "run_launcher": {"module": "dagster_k8s", "class": "K8sRunLauncher", "config": launcher},
            "run_coordinator": {"module": "dagster.core.run_coordinator", "class": "DefaultRunCoordinator"},
            "telemetry": {"enabled": False},
        }
        (home / "dagster.yaml").write_text(yaml.safe_dump(configuration))
        launch = ["dagster", "job", "launch", "-m", "anamnesis_pipeline.definitions", "-j", "embed"]
        command = [sys.executable, "-m", *launch, "--tags", json.dumps(embed_tags(deployment))]
        given = {"DAGSTER_HOME": str(home), "ANAMNESIS_HOME": str(home), "NO_PROXY": "127.0.0.1"}
        environment = os.environ | given | {"DAGSTER_CONTAINER_IMAGE": image_name(deployment["image"])}
        done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)
        cluster.shutdown()
    assert done.returncode == 0, done.stderr
    (job,) = cluster.jobs
    return job


def _reached(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """How the launcher reaches it."""
    here = {"cluster": {"server": f"http://127.0.0.1:{cluster.server_port}"}, "name": "test"}
    context = {"context": {"cluster": "test", "user": "none"}, "name": "test"}
    user: dict[str, Any] = {"name": "none", "user": {}}
    file = folder / "kubeconfig"
    file.write_text(
        yaml.safe_dump({"clusters": [here], "contexts": [context], "users": [user], "current-context": "test"})
    )
    return {"load_incluster_config": False, "kubeconfig_file": str(file)}


def embed_tags(deployment: dict[str, Any]) -> dict[str, str]:
    (text,) = (each["value"] for each in deployment["env"] if each["name"] == "ANAMNESIS_EMBED_RUN_TAGS")
    return dict(json.loads(text))


def refusals(values: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(values)]


def test_the_chart_takes_every_value_that_it_is_given(values: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert refusals(values) == []


@pytest.mark.parametrize(
    "probe", [{"tcpSocket": {"port": 3011}}, {"exec": {"command": ["x"]}}, {"enabled": True, "grpc": {"port": 3011}}]
)
def test_a_readiness_probe_that_the_chart_refuses_or_discards_is_seen(
    values: dict[str, Any], deployment: dict[str, Any], probe: dict[str, Any]
) -> None:
    other = {"enabled": True, "deployments": [deployment | {"readinessProbe": probe}]}
    assert refusals(values | {"dagster-user-deployments": other})


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_takes_code_server_run_and_the_guides_objects(
    deployment: dict[str, Any], run_job: dict[str, Any], guide: dict[str, dict[str, Any]], version: str
) -> None:
    assert guide.keys() == {"PersistentVolumeClaim", "Deployment", "Service"}
    for each in (code_server(deployment), run_job, *guide.values()):
        kubernetes_validate.validate(each, version, strict=True)


def test_code_server_starts_as_in_compose(deployment: dict[str, Any]) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    (container,) = code_server(deployment)["spec"]["template"]["spec"]["containers"]
    assert container["args"] == compose["services"]["code-server"]["command"]
    commands = [deployment[name]["exec"]["command"] for name in ("readinessProbe", "livenessProbe")]
    assert commands == [["probe.sh", "grpc", "127.0.0.1", str(deployment["port"])]] * 2
    assert re.search(r"/files/bin deploy/probe\.sh", (ROOT / "Dockerfile").read_text())


def test_dagsters_ui_has_the_token_and_a_name_it_knows(values: dict[str, Any]) -> None:
    webserver = values["dagsterWebserver"]
    assert webserver["envSecrets"] == [{"name": "anamnesis"}], "which holds ANAMNESIS_API_TOKEN"
    probe = webserver["readinessProbe"]["httpGet"]
    assert (probe["path"], probe["port"]) == ("/server_info", webserver["service"]["port"])
    assert probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    asked = {each["name"]: each.get("value") for each in deployment["env"]}["ANAMNESIS_DAGSTER_URL"]
    assert {"name": "ANAMNESIS_DAGSTER_URL", "value": asked} in webserver["env"]


def test_run_has_what_the_code_server_has_but_its_memory(
    run_job: dict[str, Any], deployment: dict[str, Any], values: dict[str, Any]
) -> None:
    pod = run_job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == image_name(deployment["image"])
    assert container["envFrom"] == [{"secretRef": secret} for secret in deployment["envSecrets"]]
    assert {each["name"]: each.get("value") for each in deployment["env"]}.items() <= {
        each["name"]: each.get("value") for each in container["env"]
    }.items()
    for wanted in deployment["volumes"]:
        assert wanted in pod["volumes"]
    for wanted in deployment["volumeMounts"]:
        assert wanted in container["volumeMounts"]
    assert pod["securityContext"] == deployment["podSecurityContext"]
    wanted = values["runLauncher"]["config"]["k8sRunLauncher"]["resources"]
    assert container["resources"]["requests"] == wanted["requests"]
    assert container["resources"]["limits"]["memory"] == wanted["limits"]["memory"] == "4Gi"


def test_a_run_that_embeds_asks_for_a_gpu_of_the_pool(run_job: dict[str, Any]) -> None:
    pod = run_job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert pod["nodeSelector"] == {"anamnesis/embedding": "true"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_runs_that_embed_are_in_a_pool_that_counts_runs(values: dict[str, Any]) -> None:
    """So they wait for a GPU in Dagster's queue, and not as pods."""
    pools = {
        name: {pool for node in defs.resolve_job_def(name).nodes for pool in node.definition.pools}
        for name in ("embed", "ingest", "index")
    }
    assert pools == {"embed": {POOL}, "ingest": set(), "index": set()}
    assert values["concurrency"]["pools"] == {"defaultLimit": 2, "granularity": "run"}


def test_webserver_has_what_runs_print(values: dict[str, Any], deployment: dict[str, Any], tmp_path: Path) -> None:
    manager = values["computeLogManager"]["config"]["customComputeLogManager"]
    here = yaml.safe_load((ROOT / "deploy/dagster.yaml").read_text())["compute_logs"]
    assert manager == here
    local = manager | {"config": {"base_dir": str(tmp_path / "logs")}}
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump({"compute_logs": local}))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert type(instance.compute_log_manager).__name__ == "LocalComputeLogManager"
    for part in (values["dagsterWebserver"], deployment):
        folder = manager["config"]["base_dir"]
        (mount,) = [each for each in part["volumeMounts"] if folder.startswith(each["mountPath"])]
        assert not mount.get("readOnly")
        (volume,) = [each for each in part["volumes"] if each["name"] == mount["name"]]
        assert volume["persistentVolumeClaim"] == {"claimName": "anamnesis-home"}
        assert part["podSecurityContext"]["fsGroup"] == 10001


def test_every_pod_of_ours_is_the_same_machine(deployment: dict[str, Any], guide: dict[str, dict[str, Any]]) -> None:
    (sidecar,) = guide["Deployment"]["spec"]["template"]["spec"]["containers"]
    for env in (sidecar["env"], deployment["env"]):
        assert [each["value"] for each in env if each["name"] == "ANAMNESIS_MACHINE"] == ["cluster"]


def test_instance_opens_with_the_limits_of_containers(values: dict[str, Any], tmp_path: Path) -> None:
    """As the chart writes them: `concurrency` in snake case, and a custom run coordinator as it is."""
    here = yaml.safe_load((ROOT / "deploy/dagster.yaml").read_text())
    pools, runs = (values["concurrency"][name] for name in ("pools", "runs"))
    coordinator = values["dagsterDaemon"]["runCoordinator"]["config"]["customRunCoordinator"]
    of_pools = {"default_limit": pools["defaultLimit"], "granularity": pools["granularity"]}
    tags = {"tag_concurrency_limits": runs["tagConcurrencyLimits"]}
    of_runs = {"max_concurrent_runs": runs["maxConcurrentRuns"], **tags}
    rendered = {"run_coordinator": coordinator, "concurrency": {"pools": of_pools, "runs": of_runs}}
    assert rendered == {name: here[name] for name in rendered}
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(rendered))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert type(instance.run_coordinator).__name__ == "QueuedRunCoordinator"
    assert values["postgresql"]["postgresqlScheme"] == here["storage"]["postgres"]["postgres_db"]["scheme"]
    assert values["dagsterDaemon"]["runMonitoring"]["maxResumeRunAttempts"] == 0
