"""`make bench`: every benchmark, one after the other; each prints its own table. See README.md beside this file."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = (
    "parse_speed.py",
    "masking.py",
    "unchanged_tick.py",
    "idle_ticks.py",
    "remote_crawl.py",
    "repository.py",
    "many_sessions.py",
    "startup.py",
    "store_speed.py",
    "search_speed.py",
    "copies.py",
    "posts.py",
    "embedding.py",
    "claude_qa.py",
    "locomo.py",
    "silence.py",
    "reversals.py",
    "corrections.py",
    "kinds.py",
    "knowledge.py",
    "summary_cost.py",
)


def main() -> None:
    """Run them; one that fails is named and does not stop the others."""
    failed = []
    for name in BENCHMARKS:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, HERE / name], check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
