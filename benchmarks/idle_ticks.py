"""What the ticks of the sensors cost a memory in which nothing happens, by how many sources it has.

python benchmarks/idle_ticks.py [--sources 3 300 3000] [--store mongo] [--profile]
python benchmarks/idle_ticks.py --up 180 [--sources 3]

Each source is a folder with one log of four messages, all of it read and embedded. CPU of this process per tick, once
everything is opened, the time by the clock, and what share of a core that is at the sensor's interval. The ticks of
`crawl_sensor` look at every source, as they do when its interval is over. On MongoDB: the tests' own server, whose CPU
does not count. With `--up`: what share of a core each process of `anamnesis up` takes for so many seconds once
everything is embedded.
"""

import argparse
import cProfile
import json
import logging
import os
import pstats
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

import dagster as dg
import psutil
from service import environment, free_port
from startup import until

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.embed_sensor import embed_sensor
from anamnesis_pipeline.defs.resources import MemoryResource, close_kept
from anamnesis_pipeline.defs.sensors import crawl_sensor, quick_crawl_sensor
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.wiring import discover_sources, open_pipeline
from anamnesis_tests.support.archived_logs import record
from anamnesis_tests.support.spaces import embed_all

SPACE = Space("hashing-1", "hashing-64", 64)
TICKS = 30
SENSORS = (crawl_sensor, quick_crawl_sensor, embed_sensor)
AT_REST = ("vector_index", "memory_map", "consolidation_report")
"""Assets that `embed_sensor` looks for until there are some."""


def write_logs(root: Path, sources: int) -> None:
    """One folder per source."""
    for number in range(sources):
        session = str(uuid.UUID(int=number + 1))
        folder = root / f"-home-dev-project-{number}"
        folder.mkdir(parents=True)
        said = [
            record(role, f"what {role} says of {number}", place, session=session, uuid=f"{session}-{place}")
            for place, role in enumerate(("user", "assistant") * 2)
        ]
        for place, line in enumerate(said):
            line["message"]["id"] = f"{session}-{place}"
        (folder / f"{session}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in said), encoding="utf-8")


def fill(memory: MemoryResource) -> None:
    """Read and embed everything."""
    store = memory.store
    store.spaces.put(SPACE)
    store.spaces.activate(SPACE.key)
    ingest_all(open_pipeline(memory.settings, store), discover_sources(memory.settings).sources)
    embed_all(store, SPACE, [source.key for source in store.files.sources()], SPACE.dim)


@dataclass
class Ticks:
    """Evaluates a sensor as the daemon does, with the cursor of the last tick.

    `spent_s` is the CPU of each tick, `took_s` its time by the clock.
    """

    sensor: dg.SensorDefinition
    memory: MemoryResource
    instance: dg.DagsterInstance
    cursor: str | None = None
    spent_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)

    def tick(self) -> int:
        """Returns how many runs it asked for."""
        settings = self.memory.store.settings
        for name in settings.all("crawl.source."):  # every interval is over
            settings.set(name, {key: value for key, value in settings.get(name).items() if key != "tried_at"})
        began, started = time.process_time(), time.perf_counter()
        with dg.build_sensor_context(
            instance=self.instance, definitions=defs, resources={"memory": self.memory}, cursor=self.cursor
        ) as context:
            result = self.sensor(context)
        self.spent_s.append(time.process_time() - began)
        self.took_s.append(time.perf_counter() - started)
        if not isinstance(result, dg.SensorResult):
            return 0
        self.cursor = result.cursor
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        for request in result.dynamic_partitions_requests or []:
            if isinstance(request, dg.AddDynamicPartitionsRequest) and request.partition_keys:
                self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        return len(result.run_requests or [])


@contextmanager
def deployment(base: Path, sources: int, backend: str) -> Iterator[MemoryResource]:
    """A memory of so many sources, by the settings of this process."""
    os.environ |= {
        "ANAMNESIS_HOME": str(base / "home"),
        "ANAMNESIS_LOG_ROOTS": str(base / "logs"),
        "ANAMNESIS_STORE": backend,
        "ANAMNESIS_MODEL": "/nonexistent/model",
        "ANAMNESIS_MACHINE": "box",
        "ANAMNESIS_LOCAL_ONLY": "1",
        "HOME": str(base),
    }
    server = None
    if backend == "mongo":
        command = [sys.executable, "-m", "anamnesis_tests.support.mongo_server"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        os.environ["ANAMNESIS_MONGO_URI"] = server.stdout.readline().strip()
    memory = MemoryResource(keeps_open=True)  # as the code server has it
    try:
        write_logs(base / "logs", sources)
        fill(memory)
        yield memory
    finally:
        close_kept()
        if server is not None:
            server.kill()
            server.wait()


def measure(sources: int, backend: str, *, profile: bool) -> None:
    """Print a row per sensor."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as dagster_home,
        deployment(Path(folder), sources, backend) as memory,
        dg.DagsterInstance.local_temp(dagster_home) as instance,
    ):
        for asset in AT_REST:
            partition = SPACE.key if asset == "vector_index" else None
            instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=partition))
        for sensor in SENSORS:
            ticks, profiler = Ticks(sensor, memory, instance), cProfile.Profile()
            for _ in range(3):  # partitions are added, and what is asked or reported once is
                ticks.tick()
            ticks.spent_s.clear()
            ticks.took_s.clear()
            asked = 0
            for _ in range(TICKS):
                asked += profiler.runcall(ticks.tick) if profile else ticks.tick()
            mean_s = mean(ticks.spent_s)
            share = 100 * mean_s / (sensor.minimum_interval_seconds or 30)
            p50_ms, most_ms = 1000 * median(ticks.took_s), 1000 * max(ticks.took_s)
            print(
                f"| {sources:,} | {sensor.name} | {1000 * mean_s:.1f} | {p50_ms:.0f} | {most_ms:.0f} | {share:.3f} "
                f"| {asked} |",
                flush=True,
            )
            if profile:
                pstats.Stats(profiler).sort_stats("cumulative").print_stats("anamnesis_pipeline", 25)


def measure_up(sources: int, seconds: float) -> None:
    """Print a row per process of `anamnesis up` over so many sources."""
    with tempfile.TemporaryDirectory() as folder:
        logs, output = Path(folder, "logs"), Path(folder, "up.log")
        write_logs(logs, sources)
        names = ("ANAMNESIS_PORT", "ANAMNESIS_DAGSTER_PORT", "ANAMNESIS_CODE_PORT")
        settings = {name: str(free_port()) for name in names} | {"ANAMNESIS_LOG_ROOTS": str(logs)}
        command = [sys.executable, "-m", "anamnesis_pipeline", "up"]
        with output.open("w") as log:
            up = subprocess.Popen(command, env=environment(Path(folder, "home"), **settings), stdout=log, stderr=log)
        try:
            until(lambda: "up to date" in output.read_text(), time.monotonic())
            time.sleep(120)  # the runs that this led to end, and what was imported is in use
            processes = [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]
            before = {process: sum(process.cpu_times()[:2]) for process in processes}
            time.sleep(seconds)
            print("| process | % of a core | MB |\n|---|---|---|")
            for process, spent in before.items():
                if process.is_running():
                    share = 100 * (sum(process.cpu_times()[:2]) - spent) / seconds
                    name = " ".join(process.cmdline()[2:5])
                    print(f"| {name} | {share:.2f} | {process.memory_info().rss / 1e6:.0f} |", flush=True)
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(timeout=120)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", type=int, nargs="+", default=[3, 300, 3_000])
    parser.add_argument("--store", choices=["sqlite", "mongo"], default="sqlite")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--up", type=float, metavar="SECONDS")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    if given.up:
        measure_up(given.sources[0], given.up)
        return
    print("| sources | sensor | ms of CPU a tick | ms, p50 | most | % of a core | runs asked for |")
    print("|---|---|---|---|---|---|---|")
    for sources in given.sources:
        measure(sources, given.store, profile=given.profile)


if __name__ == "__main__":
    main()
