"""The benchmarks take minutes and are run by hand; that what they import still exists is tested here."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"
BENCHMARKS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__main__")


def test_the_benchmarks_find_everything_that_they_import() -> None:
    assert len(BENCHMARKS) > 10
    command = [sys.executable, "-W", "ignore", "-c", f"import {', '.join(BENCHMARKS)}"]
    found = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
