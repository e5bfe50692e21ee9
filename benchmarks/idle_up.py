"""CPU and memory of the processes of `anamnesis up` while nothing happens, and of an earlier checkout beside it.

python benchmarks/idle_up.py [--beside FOLDER] [--seconds 300] [--with-model]

Both read the example logs, on homes and ports of their own, by default with a model that is not there: what is measured
is Dagster and the sensors. `--with-model` loads MiniLM and embeds the logs first. On a shared machine the seconds are
worth little, and the ratio of two that ran side by side more. Memory is the proportional set size (`smaps_rollup`) of
all processes, the supervisor and its watcher included: pages that several processes share are counted once.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import psutil

from anamnesis_pipeline.runtime.process_group import members
from anamnesis_tests.support.live_system import System, watchers_of

ROLES = {
    "supervisor": ("anamnesis_pipeline up", "runtime.watcher"),
    "code server": ("code-server start", "api grpc"),
    "webserver": ("dagster_ui",),
    "daemon": ("daemon run",),
    "sidecar": ("anamnesis_pipeline.sidecar",),
}
"""Role -> one of these words is in the command line; the first role that fits."""
SETTLES_S = 60


def role_of(process: psutil.Process) -> str:
    command = " ".join(process.cmdline())
    return next((role for role, words in ROLES.items() if any(word in command for word in words)), "others")


def cpu_s(system: System) -> dict[str, float]:
    """Seconds of CPU that the processes of each role have used."""
    spent = dict.fromkeys(ROLES, 0.0)
    for process in processes(system):
        times = process.cpu_times()
        spent[role_of(process)] = spent.get(role_of(process), 0.0) + times.user + times.system
    return spent


def processes(system: System) -> list[psutil.Process]:
    """All processes of a system."""
    assert system.process is not None
    return [psutil.Process(system.process.pid), *watchers_of(system.life), *members(system.life)]


def memory_mib(system: System) -> dict[str, list[float]]:
    """Proportional set size of each process, by role."""
    found: dict[str, list[float]] = {}
    for process in processes(system):
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        found.setdefault(role_of(process), []).append(kib / 1024)
    return found


def started(folder: Path, checkout: Path, *, with_model: bool) -> System:
    """A system of the code in `checkout`."""
    folder.mkdir()
    model = {} if with_model else {"ANAMNESIS_MODEL": "/nonexistent/model"}
    system = System(folder, ANAMNESIS_LOCAL_ONLY="1", PYTHONPATH=str(checkout), **model)
    system.start()
    return system


def is_quiet(system: System) -> bool:
    """Whether the examples are read and no run is under way."""
    if not system.answers("/health"):
        return False
    found = system.graphql("{ runsOrError(limit: 50) { ... on Runs { results { status } } } }")
    statuses = [run["status"] for run in found.get("runsOrError", {}).get("results", [])]
    return bool(statuses) and set(statuses) <= {"SUCCESS", "FAILURE", "CANCELED"}


def main() -> None:
    """Print a row per role."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="an earlier checkout")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--with-model", action="store_true", help="load MiniLM, and wait until all is embedded")
    given = parser.parse_args()
    checkouts = [Path(__file__).resolve().parents[1], *([given.beside.resolve()] if given.beside else [])]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # which Python puts before PYTHONPATH
        systems = [
            started(Path(folder, str(number)), checkout, with_model=given.with_model)
            for number, checkout in enumerate(checkouts)
        ]
        try:
            for system in systems:
                if given.with_model:
                    system.wait_until("all is embedded", system.is_covered, timeout_s=900)
                system.wait_until("nothing is left to do", lambda system=system: is_quiet(system), timeout_s=900)
            time.sleep(SETTLES_S)
            before, began = [cpu_s(system) for system in systems], time.monotonic()
            time.sleep(given.seconds)
            after, took = [cpu_s(system) for system in systems], time.monotonic() - began
            held = [memory_mib(system) for system in systems]
        finally:
            for system in systems:
                system.terminate()
    print(f"idle for {took:.0f} s, load average {os.getloadavg()[1]:.1f}; % of a core, here | beside | ratio")
    for role in [*ROLES, "all"]:
        used = [
            100 * sum(now[each] - then[each] for each in (ROLES if role == "all" else [role])) / took
            for then, now in zip(before, after, strict=True)
        ]
        ratio = [used[0] / used[1]] if used[1:] else []
        print(f"| {role} | {' | '.join(f'{share:.2f}' for share in used + ratio)} |")
    print("MiB (PSS) of each process, here | beside")
    for role in dict.fromkeys(role for each in held for role in each):
        print(f"| {role} | {' | '.join(' + '.join(f'{mib:.0f}' for mib in each.get(role, [])) for each in held)} |")
    print(f"| all | {' | '.join(f'{sum(map(sum, each.values())):.0f}' for each in held)} |")


if __name__ == "__main__":
    main()
