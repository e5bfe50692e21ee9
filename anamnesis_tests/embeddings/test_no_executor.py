"""Embedding has threads of its own: the event loop's default executor would starve, and its threads are not pinned."""

import re
from pathlib import Path

import anamnesis_pipeline

BORROWED = re.compile(r"\bto_thread\(|run_in_executor\(\s*None")


def test_nothing_is_handed_to_the_event_loops_default_executor() -> None:
    files = list(Path(anamnesis_pipeline.__file__).parent.rglob("*.py"))
    assert len(files) > 50
    assert [str(file) for file in files if BORROWED.search(file.read_text(encoding="utf-8"))] == []


def test_the_search_would_find_it() -> None:
    assert BORROWED.search("await asyncio.to_thread(pool.embed, texts)")
    assert BORROWED.search("loop.run_in_executor(\n    None, pool.embed)")
    assert not BORROWED.search("anyio.to_thread.run_sync(work, limiter=mine)")
