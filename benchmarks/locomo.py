"""LoCoMo evidence retrieval through the HTTP API: posts every turn as an episode, then asks every question.

    python benchmarks/locomo.py [--conversations N] [--out FOLDER]

Needs ../shared/data and ../shared/bench.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from service import SHARED, environment, need_shared, sidecar


def main() -> None:
    """Serve an empty memory and let the harness fill and question it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=0, help="only the first N (0 = all)")
    parser.add_argument("--out", type=Path, help="folder for the result file (default: thrown away)")
    args = parser.parse_args()
    need_shared()
    with tempfile.TemporaryDirectory() as folder, sidecar(Path(folder) / "home") as base:
        out = args.out or Path(folder) / "results"
        command = [sys.executable, SHARED / "bench/locomo/harness.py", "http", "--out", out]
        if args.conversations:
            command += ["--conversations", args.conversations]
        subprocess.run([str(word) for word in command], check=True, env=environment(Path(folder), BENCH_HTTP_BASE=base))


if __name__ == "__main__":
    main()
