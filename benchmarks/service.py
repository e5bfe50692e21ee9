"""What benchmarks share: a sidecar on a free port with a home of its own, the shared data, the commit measured."""

import functools
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
PAGE = ROOT / "docs/benchmarks.md"
SHARED = ROOT.parent / "shared"
"""Benchmark data and harnesses; not part of this repository."""


def need_shared() -> None:
    """End the program, with what is missing, if the shared data is not there."""
    if not SHARED.is_dir():
        sys.exit(f"No folder {SHARED}: put the questions and logs that are measured there")


@functools.cache
def commit() -> str:
    """Return the commit of the working tree when it is first asked for, with `+` if its files have changes; what is
    measured here does not count.
    """
    results = [f":!{path.relative_to(ROOT)}" for path in (RESULTS, PAGE)]
    head, changed = (
        subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout.strip()
        for words in (
            ["rev-parse", "--short=12", "HEAD"],
            ["status", "--porcelain", "--untracked-files=no", "--", ".", *results],
        )
    )
    return f"{head}{'+' if changed else ''}" or "unknown"


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of this process, with a home of its own."""
    return os.environ | {"ANAMNESIS_HOME": str(home)} | more


@contextmanager
def sidecar(home: Path, timeout_s: float = 120) -> Iterator[str]:
    """The base URL of a sidecar that is ready, ended afterwards."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "anamnesis_pipeline.sidecar"],
        env=environment(home, ANAMNESIS_PORT=str(port)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(f"{base}/ready", timeout_s)
        yield base
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_for(url: str, timeout_s: float) -> float:
    """Seconds until `url` answers 200.

    :raises TimeoutError: it never did.
    """
    started = time.monotonic()
    while time.monotonic() - started < timeout_s:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return time.monotonic() - started
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise TimeoutError(f"{url} did not answer 200 within {timeout_s} s")


def wait_embedded(base: str, timeout_s: float = 120) -> float:
    """Seconds until everything that is stored has its vectors.

    :raises TimeoutError: it had not within the time.
    """
    started = time.monotonic()
    while (waited := time.monotonic() - started) < timeout_s:
        with urllib.request.urlopen(f"{base}/ready", timeout=30) as reply:
            covered = json.load(reply)["coverage"]
        if covered["embedded"] >= covered["stored"]:
            return waited
        time.sleep(0.2)
    raise TimeoutError(f"Only {covered['embedded']} of {covered['stored']} texts have vectors after {timeout_s:.0f} s")
