"""What `anamnesis up` costs while nothing happens: CPU of its processes, and of an earlier checkout beside it.

python benchmarks/idle_up.py [--beside FOLDER] [--seconds 300]

Both read the example logs, on homes and ports of their own, with a model that is not there: what is measured is Dagster
and the sensors. On a shared machine the seconds are worth little, and the ratio of two that ran side by side more.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import psutil

from anamnesis_pipeline.runtime.process_group import members
from anamnesis_tests.support.live_system import System

ROLES = {
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
    for process in members(system.life):
        times = process.cpu_times()
        spent[role_of(process)] = spent.get(role_of(process), 0.0) + times.user + times.system
    return spent


def started(folder: Path, checkout: Path) -> System:
    """A system of the code in `checkout`."""
    folder.mkdir()
    system = System(folder, ANAMNESIS_MODEL="/nonexistent/model", ANAMNESIS_LOCAL_ONLY="1", PYTHONPATH=str(checkout))
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
    given = parser.parse_args()
    checkouts = [Path(__file__).resolve().parents[1], *([given.beside.resolve()] if given.beside else [])]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # which Python puts before PYTHONPATH
        systems = [started(Path(folder, str(number)), checkout) for number, checkout in enumerate(checkouts)]
        try:
            for system in systems:
                system.wait_until("nothing is left to do", lambda system=system: is_quiet(system), timeout_s=900)
            time.sleep(SETTLES_S)
            before, began = [cpu_s(system) for system in systems], time.monotonic()
            time.sleep(given.seconds)
            after, took = [cpu_s(system) for system in systems], time.monotonic() - began
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


if __name__ == "__main__":
    main()
