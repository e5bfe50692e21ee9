"""What every backend promises to several processes at once."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.samples import episode, passages, space

ROOT = Path(__file__).parents[2]


def start(place: tuple[str, Path], role: str, number: int, seconds: float) -> subprocess.Popen[str]:
    backend, folder = place
    command = [sys.executable, "-m", "anamnesis_tests.store.process", backend, folder, role, str(number), str(seconds)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def killed_after(place: tuple[str, Path], role: str, number: int, lines: int) -> list[str]:
    """What a process printed that was killed after so many lines."""
    process = start(place, role, number, seconds=60)
    assert process.stdout is not None
    printed = [process.stdout.readline().strip() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    return printed + rest.split()


def work_together(open_store: Callable[[], Store], place: tuple[str, Path], each: int, seconds: float) -> None:
    store = open_store()
    store.spaces.put(space("s"))
    processes = [start(place, role, n, seconds) for n in range(each) for role in ("writer", "reader")]
    outputs = [process.communicate(timeout=seconds + 120) for process in processes]
    # a writer that waits for long says so
    said = [line for _, err in outputs for line in err.splitlines() if "waiting for another writer" not in line]
    assert ([process.returncode for process in processes], said) == ([0] * 2 * each, [])
    written = [line for out, _ in outputs[::2] for line in out.split()]
    assert min(int(out) for out, _ in outputs[1::2]) > 0
    assert store.overview.counts().episodes == len(written) + 1
    assert store.overview.counts().passages == 2 * len(written) + 2
    assert store.vectors.count("s") == 2 * len(written)
    hits = store.text.matching(["needle"], len(written) + 10, EpisodeFilter())
    assert sorted(hit.episode_id for hit in hits) == sorted(written)
    assert {e.retrieval_count for e in store.episodes.get(written).values()} == {1}
    assert store.text.check() == []


def test_eight_writers_and_readers_do_not_disturb_each_other(open_store, place):  # type: ignore[no-untyped-def]
    work_together(open_store, place, each=8, seconds=2)


@pytest.mark.slow
def test_eight_writers_and_eight_readers_work_for_a_minute(open_store, place):  # type: ignore[no-untyped-def]
    work_together(open_store, place, each=8, seconds=60)


def test_a_killed_writer_loses_nothing_that_it_wrote(open_store, place):  # type: ignore[no-untyped-def]
    store = open_store()
    store.spaces.put(space("s"))
    written: list[str] = []
    for number in range(3):
        written += killed_after(place, "writer", number, 15)
    found = store.episodes.get(written)
    assert sorted(found) == sorted(written)
    assert {h.episode_id for h in store.text.matching(["needle"], 10_000, EpisodeFilter())} >= set(written)
    assert store.text.check() == []
    assert store.settings.set("still", "writable") is None


def test_processes_that_open_a_new_store_at_once_all_succeed(place):  # type: ignore[no-untyped-def]
    processes = [start(place, "opener", n, seconds=0) for n in range(6)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [(p.returncode, err) for p, (_, err) in zip(processes, outputs, strict=True)] == [(0, "")] * 6
    assert len({secret for secret, _ in outputs}) == 1


def test_one_of_the_processes_that_start_a_space_at_once_wins(open_store, place):  # type: ignore[no-untyped-def]
    store = open_store()
    for number in range(4):
        store.spaces.put(space(f"s{number}"))
    processes = [start(place, "starter", n, seconds=0) for n in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [(p.returncode, err) for p, (_, err) in zip(processes, outputs, strict=True)] == [(0, "")] * 4
    assert sorted(out for out, _ in outputs) == ["lost\n"] * 3 + ["won\n"]
    winner = [out for out, _ in outputs].index("won\n")
    assert [s.key for s in store.spaces.all() if s.status == "building"] == [f"s{winner}"]


def test_killed_embedder_leaves_progress_and_backlog_agreed(open_store, place):  # type: ignore[no-untyped-def]
    store = open_store()
    store.spaces.put(space("s", variants=(Variant.TEXT, Variant.CONTEXT)))
    ids = [f"e{n:03d}" for n in range(400)]
    store.episodes.put(
        [(episode(i, n, source=("direct", "logs")[n % 2]), passages("a", "b")) for n, i in enumerate(ids)]
    )
    keys = [stored.passage_id for i in ids for stored in store.episodes.passages_of(i)]
    written: list[str] = []
    for number in range(3):
        written += killed_after(place, "embedder", number, 8)
        progress = store.vectors.progress("s")
        left = store.vectors.pending("s", ["direct", "logs"], 400)
        assert [p.episode_id for p in left] == ids[: 400 - progress.episodes_done][::-1]
        assert progress.passages - progress.passages_done == sum(len(p.passages) for p in left)
        for variant in (Variant.TEXT, Variant.CONTEXT):
            assert progress.passages_done == len(store.vectors.get("s", variant, keys)) == 2 * progress.episodes_done
        assert progress.last_episode == ids[400 - progress.episodes_done]
        assert progress.last_episode <= written[-1]
    assert written == sorted(set(written), reverse=True)
