"""The benchmarks take minutes and are run by hand; that what they import still exists is tested here."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
BENCHMARKS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__main__")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_finds_everything_that_it_imports(name: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", f"import {name}"]
    found = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
