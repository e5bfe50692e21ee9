"""A repository of real code through every step: megabytes and sections per second, and the most memory of each step.

    python benchmarks/repository.py [MEGABYTES]

The files are those of the Python packages that are installed here. Each step runs in a process of its own, whose peak
(VmHWM) is its memory: that of imports and of the open store is in it. Embedding is not part of it.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from proc import peak_mib

from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.crawled_documents import DocumentHome, make_repository

LARGEST = 1 << 20
FOLDER_FILES = 200
STEPS = ("crawl", "parse", "publish", "crawl again")


def main(megabytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        files, size = copy_code(base / "repo", megabytes << 20)
        print(f"{files:,} files, {size / 2**20:.0f} MB")
        print("| step | s | s of CPU | a second | peak MiB |\n|---|---|---|---|---|", flush=True)
        for step in STEPS:
            subprocess.run([sys.executable, __file__, str(base), step], check=True)


def copy_code(repository: Path, most: int) -> tuple[int, int]:
    """How many files and bytes were copied."""
    files = size = 0
    for source in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        bytes_here = source.stat().st_size
        if size < most and 0 < bytes_here <= LARGEST:
            target = repository / f"{files // FOLDER_FILES}" / f"{files}_{source.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            files, size = files + 1, size + bytes_here
    return files, size


def run(base: Path, step: str) -> None:
    """One step, and its row of the table."""
    store = open_sqlite(base / "memory.db", base / "index")
    home = DocumentHome(store, base, mask=open_redactor(Settings(home=base)).mask_line)
    source = home.source("repo")
    make_repository(source)
    started, cpu = time.perf_counter(), time.process_time()
    if step == "parse":
        parsed = home.pipeline.parse_documents(source)
        done, problems = (parsed.sections, "sections"), parsed.problems
    elif step == "publish":
        done, problems = (home.pipeline.publish(source).put.created, "episodes"), []
    else:
        crawled = home.pipeline.crawl(source)
        done, problems = (round(crawled.bytes_read / 2**20), "MB"), crawled.problems
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    rate = f"{done[0] / wall:,.1f} {done[1]}" if done[0] else "nothing new"
    print(f"| {step} | {wall:.1f} | {cpu:.1f} | {rate} (of {done[0]:,}) | {peak_mib():.0f} |", flush=True)
    for problem in problems[:3]:
        print(f"  {problem}")
    store.close()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(Path(sys.argv[1]), sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
