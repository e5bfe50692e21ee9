"""How fast secrets are masked, and what is masked in logs that hold none.

    python benchmarks/masking.py FOLDER_OF_LOGS

Prints megabytes of log per second of CPU for the prefilter alone and for whole lines, and every mask with what is
around it, so that false ones can be looked at. Best of five passes, after one that warms the automaton.
"""

import re
import sys
import time
from collections import Counter
from pathlib import Path

from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.parsing.redaction.rules import PREFILTERS

PASSES = 5


def best_rate(work, lines: list[str]) -> float:
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    seconds = []
    for _ in range(PASSES + 1):
        started = time.process_time()
        for line in lines:
            work(line)
        seconds.append(time.process_time() - started)
    print(f"  first pass {megabytes / seconds[0]:.0f} MB/s", end=", ")
    return megabytes / min(seconds[1:])


def main(folder: str) -> None:
    files = sorted(Path(folder).rglob("*.jsonl"))
    lines = [line for file in files for line in file.read_text(errors="replace").split("\n") if line]
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    print(f"{len(files)} files, {len(lines)} lines, {megabytes:.1f} MB")
    print(f"prefilters: {best_rate(lambda line: [hint.search(line.encode()) for hint in PREFILTERS], lines):.0f} MB/s")
    redactor = Redactor(b"benchmark")
    print(f"mask_line: {best_rate(redactor.mask_line, lines):.0f} MB/s")
    found: Counter[str] = Counter()
    for line in lines:
        masked, counts = redactor.mask_line(line)
        found.update(counts)
        for mask in re.finditer(r"\[REDACTED:[^\]]*\]", masked) if counts else ():
            print("  ", repr(masked[max(0, mask.start() - 60) : mask.end() + 20]))
    print(f"masks: {found.total()} ({found.total() / megabytes:.2f} per MB) {dict(found)}")


if __name__ == "__main__":
    main(sys.argv[1])
