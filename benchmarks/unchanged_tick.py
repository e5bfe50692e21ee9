"""What a tick costs over 10,000 log files of which none changed: listing, loading cursors, comparing.

python benchmarks/unchanged_tick.py [FILES]
"""

import os
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.crawl import crawl_source
from anamnesis_pipeline.sources.discovery import discover
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.crawled_logs import source_changed

PROJECTS = 50


def main(files: int) -> None:
    with tempfile.TemporaryDirectory() as base:
        root = Path(base, "projects")
        for number in range(files):
            folder = root / f"-home-dev-project-{number % PROJECTS}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{uuid.UUID(int=number)}.jsonl").write_text('{"type":"user"}\n')
        store = open_sqlite(Path(base, "memory.db"), Path(base, "index"))
        host, archive = LocalHost("box"), Archive(Path(base, "archive"))
        sources = discover(host, [os.fspath(root)]).sources
        store.files.put_sources(sources)
        started, cpu = time.perf_counter(), time.process_time()
        for source in sources:
            crawl_source(store, host, archive, source, lambda line: (line, Counter()))
        print(f"first crawl: {time.perf_counter() - started:.1f} s, {time.process_time() - cpu:.1f} s of CPU")
        for _ in range(3):
            started, cpu = time.perf_counter(), time.process_time()
            changed = sum(source_changed(store, host, s) for s in discover(host, [os.fspath(root)]).sources)
            spent = time.process_time() - cpu
            print(f"unchanged tick over {files} files: {spent:.2f} s of CPU, {time.perf_counter() - started:.2f} s")
            if changed:
                sys.exit(f"{changed} sources look changed")
        store.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
