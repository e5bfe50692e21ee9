"""How long things take to be there: imports, and `anamnesis up` on the shared logs.

    python benchmarks/startup.py [--logs DIR]

Prints seconds from the start of `anamnesis up` to: the first answer of /health, the first keyword search, /ready, the
first searchable episode, everything searchable by words, everything embedded; then the bytes of the logs and of the
memory made of them.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from service import SHARED, environment, free_port, wait_for

RUNS = 5
IMPORTS = ("anamnesis_pipeline.sidecar.app", "anamnesis_pipeline.cli.app", "anamnesis_pipeline.definitions")


def import_seconds(module: str) -> float:
    """Median wall time of a fresh interpreter that imports a module, less one that imports nothing."""
    return _median(f"import {module}") - _median("pass")


def _median(code: str) -> float:
    spent = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


def until(condition: Callable[[], bool], started: float, timeout_s: float = 600) -> float:
    """Seconds from `started` until the condition holds.

    :raises TimeoutError: it never did.
    """
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise TimeoutError(f"waited {timeout_s} s")
        time.sleep(0.1)
    return time.monotonic() - started


def measure_up(logs: Path, home: Path) -> None:
    """Start `anamnesis up` on an empty home, print the milestones, stop it."""
    ports = [free_port() for _ in range(3)]
    names = ("ANAMNESIS_PORT", "ANAMNESIS_DAGSTER_PORT", "ANAMNESIS_CODE_PORT")
    settings = dict(zip(names, map(str, ports), strict=True)) | {"ANAMNESIS_LOG_ROOTS": str(logs)}
    base = f"http://127.0.0.1:{ports[0]}"
    output = home.with_name("up.log")
    started = time.monotonic()
    with output.open("w") as log:
        command = [sys.executable, "-m", "anamnesis_pipeline", "up"]
        process = subprocess.Popen(command, env=environment(home, **settings), stdout=log, stderr=log)
    try:
        wait_for(f"{base}/health", 60)
        print(f"/health answers              {time.monotonic() - started:6.1f} s")
        _get(f"{base}/api/episodes?limit=1")
        _search(base)
        print(f"keyword search answers       {time.monotonic() - started:6.1f} s")
        wait_for(f"{base}/ready", 120)
        print(f"/ready                       {time.monotonic() - started:6.1f} s")
        print(f"first episode found          {until(lambda: _search(base) > 0, started):6.1f} s")
        wait_for(f"http://127.0.0.1:{ports[1]}/server_info", 120)
        print(f"Dagster UI answers           {time.monotonic() - started:6.1f} s")
        print(f"everything embedded          {until(lambda: 'up to date' in output.read_text(), started):6.1f} s")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _search(base: str) -> int:
    body = json.dumps({"query": "the and of push commit test", "track": False}).encode()
    request = urllib.request.Request(f"{base}/api/episodes/search", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return len(json.load(reply)["results"])


def _get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


def megabytes(folder: Path) -> float:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, default=SHARED / "data/claude_logs/projects")
    args = parser.parse_args()
    for module in IMPORTS:
        print(f"import {module:36} {import_seconds(module):5.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        measure_up(args.logs, Path(folder) / "home")
        print(f"{megabytes(args.logs):.1f} MB of logs, {megabytes(Path(folder) / 'home'):.1f} MB of memory")


if __name__ == "__main__":
    main()
