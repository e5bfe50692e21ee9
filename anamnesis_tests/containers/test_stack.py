"""The stack in real containers, driven as a user drives it: deployed, asked, stopped in the middle of work, started."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_tests.containers.docker_host import docker_daemon, make_images, serving_wheels, why_not
from anamnesis_tests.containers.stack import ABSENT_MODEL, OWNER, ROOT, SECRETS, Stack
from anamnesis_tests.sidecar.mcp.conftest import initialize
from anamnesis_tests.support.live_reembed import note

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]

ENDED = ("SUCCESS", "FAILURE", "CANCELED")
RUNS = "{ runsOrError { ... on Runs { results { runId jobName status tags { key value } } } } }"
SOURCES = '{ assetNodeOrError(assetKey: {path: ["exchanges"]}) { ... on AssetNode { partitionKeys } } }'
CORES = """{ assetNodeOrError(assetKey: {path: ["embeddings"]}) { ... on AssetNode { assetMaterializations(limit: 1) {
  metadataEntries { label ... on TextMetadataEntry { text } } } } } }"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Deployed, and ready to be asked."""
    with docker_daemon() as environment:
        stack = Stack(tmp_path_factory.mktemp("stack"), environment)
        try:
            with serving_wheels():
                make_images(environment)
                stack.deploy()
            stack.wait_until("the sidecar is ready", stack.is_ready)
            yield stack
        finally:
            stack.remove()


def runs(stack: Stack) -> list[dict[str, Any]]:
    """Of Dagster, newest first; `tags` as a mapping."""
    try:
        results = stack.dagster.ask(RUNS)["runsOrError"]["results"]
    except ServiceUnreachable:
        return []
    return [run | {"tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in results]


def told(stack: Stack) -> dict[str, Any]:
    """What the last run that embedded said of itself; empty as long as none has ended."""
    made = stack.dagster.ask(CORES)["assetNodeOrError"]["assetMaterializations"]
    return {entry["label"]: entry.get("text") for one in made for entry in one["metadataEntries"]}


def test_what_opens_the_store_was_started_after_mongodb_was_found_healthy(stack: Stack) -> None:
    checks = stack.first_states["mongo"]["State"]["Health"]["Log"]
    found_healthy = min(check["End"] for check in checks if check["ExitCode"] == 0)
    for name in ("sidecar", "code-server"):
        started = stack.first_states[name]["State"]["StartedAt"]
        assert datetime.fromisoformat(started) > datetime.fromisoformat(found_healthy), name


def test_every_container_says_that_it_is_well(stack: Stack) -> None:
    def all_are_well() -> bool:
        states = stack.docker(
            "ps", "--format", "{{.Names}} {{.Status}}", "--filter", "label=com.docker.compose.project"
        )
        return len(states) == 6 and all("(healthy)" in state for state in states)

    stack.wait_until("all are healthy", all_are_well)


def test_who_brings_no_token_learns_only_that_it_is_alive(stack: Stack) -> None:
    url = f"http://127.0.0.1:{stack.port}"
    assert httpx.get(f"{url}/health", trust_env=False, timeout=60).status_code == 200
    assert httpx.get(f"{url}/ready", trust_env=False, timeout=60).status_code == 401


def test_passwords_of_ones_own_are_in_files_and_nowhere_else(stack: Stack) -> None:
    everything = json.dumps(stack.inspect(*stack.docker("ps", "--quiet"))) + (stack.repository / ".env").read_text()
    uri = (stack.repository / "secrets/settings/anamnesis_mongo_uri").read_text().strip()
    for secret in (*SECRETS.values(), uri):
        assert json.dumps(secret)[1:-1] not in everything
        assert quote(secret) not in everything


def test_what_other_machines_may_call_reaches_dagsters_ui_and_nothing_behind_it(stack: Stack) -> None:
    def is_open(host: str, port: int) -> bool:
        asked = f"timeout 3 bash -c ': 3<>/dev/tcp/{host}/{port}' && echo open || echo closed"
        return stack.run("docker-compose", "exec", "-T", "sidecar", "bash", "-c", asked).strip() == "open"

    assert is_open("webserver", 3000)
    assert is_open("mongo", 27017)
    for name, port in (("postgres", 5432), ("code-server", 3011)):
        addresses = [each["IPAddress"] for each in stack.service(name)["NetworkSettings"]["Networks"].values()]
        assert addresses
        assert not any(is_open(host, port) for host in (name, *addresses))


def test_dagsters_ui_wants_the_token_and_refuses_foreign_pages(stack: Stack) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{stack.dagster_port}", trust_env=False, timeout=60) as client:
        assert client.get("/server_info").status_code == 200
        assert client.get("/runs").status_code == 401
        assert client.get("/server_info", headers={"Host": "evil.example"}).status_code == 421


def test_no_process_of_ours_is_root(stack: Stack) -> None:
    for name in ("sidecar", "code-server", "webserver", "daemon"):
        assert stack.run("docker-compose", "exec", "-T", name, "id", "-u").strip() == "10001"
    refused = stack.run("docker-compose", "exec", "-T", "sidecar", "sh", "-c", "touch /opt/venv/x 2>&1 || true")
    assert "Read-only file system" in refused


def test_memory_begins_with_minilm_where_its_default_model_is_absent(stack: Stack) -> None:
    log = stack.run("docker-compose", "logs", "--no-color", "sidecar")
    assert log.count("Embedding model: all-MiniLM-L6-v2 (384 dimensions); the default model") == 1
    status = stack.run("docker-compose", "exec", "-T", "sidecar", "anamnesis", "status")
    assert f"Move with: anamnesis model use {ABSENT_MODEL}" in status


def test_mcp_answers_through_compose_by_the_command_of_the_guide(stack: Stack) -> None:
    """As a client starts it, in the folder of a project."""
    guide = (ROOT / "docs/guides/containers.md").read_text()
    (command,) = re.findall(r"claude mcp add anamnesis -- sh -c '(.*)'", guide)
    command = command.replace("/path/to/anamnesis", str(stack.repository)).replace("docker compose", "docker-compose")
    with subprocess.Popen(
        ["sh", "-c", command], cwd=stack.home, env=stack.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(initialize())
        client.stdin.flush()
        assert json.loads(client.stdout.readline())["result"]["serverInfo"]["name"] == "anamnesis"
        call = {"name": "status", "arguments": {}}
        for message in (
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": call},
        ):
            client.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        client.stdin.flush()
        answer = json.loads(client.stdout.readline())
        client.stdin.close()
        assert client.wait(60) == 0
    assert answer["id"] == 2
    assert "ready" in answer["result"]["content"][0]["text"]


def test_logs_become_searchable_by_runs_in_containers_of_their_own(stack: Stack) -> None:
    def of_both_sources() -> list[str]:
        done = [run for run in runs(stack) if run["jobName"] == "ingest" and run["status"] == "SUCCESS"]
        return [str(run["tags"]["docker/container_id"]) for run in done]

    stack.wait_until("both sources are ingested", lambda: len(of_both_sources()) >= 2)
    assert len(set(of_both_sources())) == len(of_both_sources())
    found = stack.http.post("/api/episodes/search", json={"query": "rate limit", "min_score": 0}).json()
    assert found["results"]


def test_an_asset_is_materialized_on_demand_within_the_bounds_of_a_run(stack: Stack) -> None:
    keys = stack.dagster.ask(SOURCES)["assetNodeOrError"]["partitionKeys"]
    backfill = stack.dagster.launch_ingest_backfill(keys[:1], "by hand", {})
    found: dict[str, dict[str, Any]] = {}

    def is_done() -> bool:
        for container in set(stack.run_containers()) - found.keys():
            with suppress(AssertionError):  # it ended meanwhile, and is gone
                found[container] = stack.inspect(container)[0]
        mine = [run for run in runs(stack) if run["tags"].get("dagster/backfill") == backfill]
        return bool(mine) and all(run["status"] == "SUCCESS" for run in mine)

    stack.wait_until("the backfill's run is over", is_done)
    (mine,) = [run for run in runs(stack) if run["tags"].get("dagster/backfill") == backfill]
    seen = found[mine["tags"]["docker/container_id"]]
    assert seen["Config"]["User"] == "anamnesis"
    assert (seen["HostConfig"]["CpusetCpus"], seen["HostConfig"]["Memory"]) == ("0", 4 * 2**30)
    assert seen["HostConfig"]["ReadonlyRootfs"]
    assert seen["HostConfig"]["PidsLimit"] == 512
    assert seen["HostConfig"]["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "3"}
    assert seen["NetworkSettings"]["Networks"].keys() == {"anamnesis_dagster"}
    assert not any(json.dumps(secret)[1:-1] in json.dumps(seen) for secret in SECRETS.values())
    assert {mount["Destination"] for mount in seen["Mounts"] if mount["RW"]} == {"/data"}


def test_embedding_stays_on_the_cores_of_its_container(stack: Stack) -> None:
    stack.wait_until("everything is embedded", stack.is_covered)
    stack.wait_until("the run that embeds has told where", lambda: told(stack))
    assert told(stack)["cores"] == "0"


def test_a_backup_of_what_runs_is_restored_with_archive_and_salt(stack: Stack) -> None:
    out = stack.home / "out"
    out.mkdir()
    os.chown(out, OWNER, OWNER)

    def in_a_container(*arguments: str) -> str:
        return stack.run("docker-compose", "run", "--rm", "-T", "-v", f"{out}:/out", *arguments)

    in_a_container("sidecar", "anamnesis", "backup", "/out/memory.backup")
    elsewhere = ("-e", "ANAMNESIS_MONGO_DATABASE=elsewhere", "-e", "ANAMNESIS_HOME=/data/elsewhere", "sidecar")
    assert "compared row by row" in in_a_container(*elsewhere, "anamnesis", "restore", "/out/memory.backup")
    for file in ("redaction.salt", "archive"):
        in_a_container(*elsewhere, "sh", "-c", f"diff -r -x .lock -x written-by /data/{file} /data/elsewhere/{file}")


def test_while_mongodb_is_away_a_search_says_so_and_once_it_is_back_all_goes_on(stack: Stack) -> None:
    asked = {"query": "rate limit", "min_score": 0}
    before = stack.http.post("/api/episodes/search", json=asked).json()["results"]
    stack.run("docker-compose", "stop", "mongo")
    refused = stack.http.post("/api/episodes/search", json=asked)
    assert refused.status_code == 503
    assert "MongoDB" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    assert stack.http.get("/health").status_code == 200

    stack.run("docker-compose", "start", "mongo")
    stack.wait_until("the sidecar is ready again", stack.is_ready)
    after = stack.http.post("/api/episodes/search", json=asked).json()["results"]
    assert [hit["episode_id"] for hit in after] == [hit["episode_id"] for hit in before]


def test_a_reembed_that_a_stop_cuts_off_goes_on_after_the_start_and_ends(stack: Stack) -> None:
    stack.run("docker-compose", "exec", "-T", "sidecar", "anamnesis", "config", "set", "checkpoint_every", "5")
    notes = [note("a valve leaks", number) for number in range(40)]
    assert stack.http.post("/api/episodes/bulk", json={"episodes": notes}).json()["created"] == 40
    stack.wait_until("everything is embedded", stack.is_covered)

    started = stack.http.post("/api/episodes/reembed", json={})
    assert started.status_code == 202
    assert started.json()["link"].startswith(f"http://127.0.0.1:{stack.dagster_port}/")
    stack.wait_until("the first checkpoint is written", lambda: stack.reembed()["done"] > 0)
    stack.run("stop.sh")
    assert stack.docker("ps", "--quiet") == []

    stack.run("start.sh")
    stack.wait_until("the sidecar is ready again", stack.is_ready)
    state = stack.reembed()
    assert state["state"] == "running"
    assert 0 < state["done"] < state["total"]
    stack.wait_until("the re-embed is complete", lambda: stack.reembed()["state"] == "complete")
    cut_off = [run for run in runs(stack) if run["status"] == "FAILURE"]
    assert cut_off, "the stop found no run to end"
    stack.wait_until("no run is left", lambda: all(run["status"] in ENDED for run in runs(stack)))


def test_a_run_that_outlives_its_daemon_is_left_alone(stack: Stack) -> None:
    def is_accepted() -> bool:  # the one before is still being switched to
        return stack.http.post("/api/episodes/reembed", json={}).status_code == 202

    stack.wait_until("another re-embed is accepted", is_accepted)
    stack.wait_until("a container embeds", stack.run_containers)
    containers = stack.run_containers()
    going = {run["runId"] for run in runs(stack) if run["tags"].get("docker/container_id") in containers}
    assert going

    def times_recovered() -> int:
        return stack.run("docker-compose", "logs", "--no-color", "daemon").count("unfinished runs as canceled")

    before = times_recovered()
    stack.run("docker-compose", "restart", "daemon")
    stack.wait_until("the daemon has looked at what goes on", lambda: times_recovered() > before)
    stack.wait_until("the re-embed is complete", lambda: stack.reembed()["state"] == "complete")

    def statuses() -> set[str]:
        return {run["status"] for run in runs(stack) if run["runId"] in going}

    stack.wait_until("the run is over, which ends after its last vector", lambda: "STARTED" not in statuses())
    assert statuses() == {"SUCCESS"}


def test_the_image_is_small_and_not_for_root(stack: Stack) -> None:
    (config,) = json.loads(stack.run("docker", "image", "inspect", "anamnesis:test"))
    assert config["Config"]["User"] == "anamnesis"
    assert config["Size"] < 1.7e9


def test_where_mongodb_is_elsewhere_none_is_started_and_nobody_waits_for_one(stack: Stack) -> None:
    stack.run("stop.sh")
    stack.run("docker-compose", "rm", "--force", "mongo")
    stack.run("docker-compose", "run", "--detach", "--name", "elsewhere", "mongo")  # of the same data
    uri = stack.repository / "secrets/settings/anamnesis_mongo_uri"
    uri.write_text(uri.read_text().replace("@mongo:", "@elsewhere:"))
    with (stack.repository / ".env").open("a") as env:
        env.write("MONGO_CONTAINERS=0\n")

    stack.run("start.sh")
    assert stack.docker(
        "ps", "--all", "--filter", "label=com.docker.compose.service=mongo", "--format", "{{.Names}}"
    ) == ["elsewhere"]
    asked = {"query": "rate limit", "min_score": 0}
    stack.wait_until(
        "what is stored is found", lambda: stack.http.post("/api/episodes/search", json=asked).json().get("results")
    )
    stack.run("docker", "rm", "--force", "elsewhere")
