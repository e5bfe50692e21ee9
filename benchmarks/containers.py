"""The system in containers: how large its image is, how long it takes to start and to stop, what it costs when idle.

    sudo python benchmarks/containers.py [--idle-s 240]

Starts a Docker daemon of its own and what `make test-docker` starts: the compose file as it is, with the tests' own
server in MongoDB's place, and two small projects as logs. Idle is when everything is embedded and a minute has gone by.
CPU and memory are what Docker counts for a container; memory is without the file cache that can be dropped. Processes
of Docker itself are counted by their names.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from anamnesis_tests.containers.docker_host import docker_daemon, make_images, serving_wheels, why_not
from anamnesis_tests.containers.stack import Stack

OF_DOCKER = ("dockerd", "containerd", "containerd-shim")
SETTLES_S = 60
SPUN_EVERY_S = 15


class Containers:
    """What Docker counts for the containers that run."""

    def __init__(self, stack: Stack) -> None:
        transport = httpx.HTTPTransport(uds=stack.environment["DOCKER_SOCKET"])
        self._docker = httpx.Client(base_url="http://docker", transport=transport, timeout=30)

    def stats(self) -> dict[str, dict[str, Any]]:
        """Name -> its counters (https://docs.docker.com/reference/api/engine/version/v1.41/, ContainerStats)."""
        running = self._docker.get("/v1.41/containers/json").raise_for_status().json()
        asked = {"stream": "false", "one-shot": "true"}
        return {
            each["Names"][0].removeprefix("/"): self._docker.get(f"/v1.41/containers/{each['Id']}/stats", params=asked)
            .raise_for_status()
            .json()
            for each in running
        }


def cpu_s(stats: dict[str, Any]) -> float:
    """Seconds of CPU that a container has used."""
    return float(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9


def memory_mb(stats: dict[str, Any]) -> float:
    """Without file cache that was not used of late, as `docker stats` counts it; cgroups of version 1 say `total_`."""
    memory = stats["memory_stats"]
    inactive = memory["stats"].get("total_inactive_file", memory["stats"].get("inactive_file", 0))
    return float(memory["usage"] - inactive) / 1e6


def cpu_s_of_docker() -> float:
    """Seconds of CPU that Docker's own processes have used."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name, fields = (process / "comm").read_text().strip(), (process / "stat").read_text().rpartition(")")[2]
        except OSError:  # it ended meanwhile
            continue
        ticks += sum(map(int, fields.split()[11:13])) if name in OF_DOCKER else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def spin_ms() -> float:
    """Milliseconds of CPU for the same 5,000,000 additions: on a shared machine they differ by a factor of two, and so
    does the CPU that anything else takes.
    """
    began = time.process_time()
    sum(range(5_000_000))
    return 1e3 * (time.process_time() - began)


def idle(stack: Stack, seconds: float) -> None:
    """Print what each container takes while nothing happens."""
    containers, spins = Containers(stack), []
    before, docker_before, began = containers.stats(), cpu_s_of_docker(), time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        spins.append(spin_ms())
        time.sleep(min(left, SPUN_EVERY_S))
    after, docker_after, took = containers.stats(), cpu_s_of_docker(), time.monotonic() - began
    print(f"idle for {took:.0f} s, load average {os.getloadavg()[1]:.1f}:  % of a core       MB")
    for name in sorted(before.keys() & after.keys()):
        used = 100 * (cpu_s(after[name]) - cpu_s(before[name])) / took
        print(f"  {name:40} {used:12.2f} {memory_mb(after[name]):8.0f}")
    print(f"  {'processes of Docker itself':40} {100 * (docker_after - docker_before) / took:12.2f}")
    print(f"  5,000,000 additions: {statistics.median(spins):.0f} ms of CPU, from {min(spins):.0f} to {max(spins):.0f}")
    if passed := sorted(before.keys() ^ after.keys()):
        print(f"  not idle: {', '.join(passed)} came or went")


def timed(what: str, call: Callable[[], object]) -> None:
    """Print the seconds that a call takes."""
    began = time.monotonic()
    call()
    print(f"{what:42} {time.monotonic() - began:12.1f} s", flush=True)


def measure(stack: Stack, idle_s: float) -> None:
    """Print all figures of a stack whose image is built."""
    (image,) = json.loads(stack.run("docker", "image", "inspect", "anamnesis:test"))
    print(f"{'image':42} {image['Size'] / 1e9:12.2f} GB")
    stack.wait_until("everything is embedded", stack.is_covered)
    stack.wait_until("no run is under way", lambda: not stack.run_containers())
    time.sleep(SETTLES_S)
    idle(stack, idle_s)
    timed("stop.sh, idle", lambda: stack.run("stop.sh"))
    timed("deploy.sh, image built", stack.deploy)
    stack.wait_until("the sidecar is ready", stack.is_ready)
    stack.run("stop.sh")

    def start() -> None:
        stack.run("start.sh")
        stack.wait_until("the sidecar is ready", stack.is_ready)

    timed("start.sh to /ready", start)


def main() -> None:
    """Deploy, measure, remove."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle-s", type=float, default=240)
    options = parser.parse_args()
    if reason := why_not():
        parser.exit(1, f"{reason}\n")
    with tempfile.TemporaryDirectory() as folder, docker_daemon() as environment, serving_wheels():
        make_images(environment)
        stack = Stack(Path(folder), environment)
        try:
            stack.deploy()
            stack.wait_until("the sidecar is ready", stack.is_ready)
            measure(stack, options.idle_s)
        finally:
            stack.remove()


if __name__ == "__main__":
    main()
