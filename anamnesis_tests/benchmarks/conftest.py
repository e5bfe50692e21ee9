"""Benchmarks are scripts in a folder of their own, which import one another by name."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
