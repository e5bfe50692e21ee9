"""The index files that the SQLite backend derives from its vectors."""

import gc
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usearch.index import Index

from anamnesis_pipeline.errors import SpaceNotFound
from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite import index_files, vector_file, vector_search
from anamnesis_pipeline.store.sqlite.index_files import Coverage
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.store.sqlite.vector_file import VectorFile
from anamnesis_pipeline.store.sqlite.vector_search import VectorTail
from anamnesis_pipeline.store.vector_values import kth_scores, share_found
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.samples import episode, passages, put, random_units, space, unit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "anamnesis.db"


@pytest.fixture
def store(store: Store) -> Store:
    """With a space of eight numbers."""
    store.spaces.put(space("s", 8))
    return store


@pytest.fixture
def refreshed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty rows are enough for another file."""
    monkeypatch.setattr(index_files, "REFRESH_ROWS", 20)


def damaged(file: Path, damage: str) -> None:
    """Damage an index file in some way."""
    held = bytearray(file.read_bytes())
    if damage == "delete":
        file.unlink()
    elif damage == "truncate":
        file.write_bytes(held[:100])
    elif damage == "flip":
        held[len(held) // 3] ^= 0xFF
        file.write_bytes(held)
    elif damage == "of an earlier version":
        graph = Index(ndim=8, metric="cos", dtype="i8")
        graph.add(np.arange(60), random_units(60, 8))
        graph.save(file)
    else:
        file.write_bytes({"scribble": b"\xff", "zero": b"\0"}[damage] * len(held))


DAMAGES = ["delete", "truncate", "flip", "scribble", "zero", "of an earlier version"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_index_file_costs_speed_only(open_store: OpenStore, path: Path, damage: str) -> None:
    with closing(open_sqlite(path, path.parent / "index")) as made:
        made.spaces.put(space("s", 8))
        keys, vectors = many(made, 60), random_units(60, 8)
        made.vectors.build("s", force=True)
    del made  # and what it maps
    (file,) = (path.parent / "index").glob("*.usearch")
    damaged(file, damage)
    store = open_store()
    assert store.vectors.nearest("s", Variant.TEXT, vectors[3], 1, EpisodeFilter())[0].passage_id == keys[3]
    assert store.vectors.index_state("s").is_lost
    assert not mapped(path.parent / "index")
    assert not file.exists(), "it is set aside, so that no process opens it again"
    assert (store.vectors.build("s").rebuilt, store.vectors.build("s").indexed) == (True, 60)
    assert not store.vectors.index_state("s").problem
    assert store.vectors.nearest("s", Variant.TEXT, vectors[3], 1, EpisodeFilter())[0].passage_id == keys[3]


def test_index_set_aside_elsewhere_is_lost_here(store: Store, open_store: OpenStore, path: Path) -> None:
    other = open_store()
    many(store, 60)
    store.vectors.build("s", force=True)
    assert not store.vectors.index_state("s").is_lost
    (file,) = (path.parent / "index").glob("*.usearch")
    held = file.read_bytes()
    file.unlink()
    file.write_bytes(held[:-1] + b"?")
    assert other.vectors.index_state("s").is_lost
    assert store.vectors.index_state("s").is_lost, "although it is mapped here still"
    assert store.vectors.build("s").rebuilt
    assert not other.vectors.index_state("s").problem


def mapped(folder: Path) -> int:
    """How many index files of the folder this process maps, deleted ones included."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not tell which files a process maps")
    return len({line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if f"{folder}/" in line})


@pytest.mark.parametrize("notice", ["search", "build", "refused search"])
def test_files_of_a_dropped_space_are_let_go(store: Store, open_store: OpenStore, path: Path, notice: str) -> None:
    other = open_store()
    keys, vectors = put(store, "e", *(f"text {i}" for i in range(60))), random_units(60, 8)
    for name in ("kept", "dropped"):
        store.spaces.put(space(name, 8))
        store.vectors.put(name, Variant.TEXT, keys, vectors)
        store.vectors.build(name, force=True)
        store.vectors.nearest(name, Variant.TEXT, vectors[0], 3, EpisodeFilter())
    assert mapped(path.parent / "index") == 2
    other.spaces.drop("dropped")
    if notice == "build":
        store.vectors.build("kept")
    elif notice == "search":
        assert store.vectors.nearest("kept", Variant.TEXT, vectors[3], 1, EpisodeFilter())[0].passage_id == keys[3]
    else:
        with pytest.raises(SpaceNotFound):
            store.vectors.nearest("dropped", Variant.TEXT, vectors[0], 3, EpisodeFilter())
    assert mapped(path.parent / "index") == 1


def test_the_tail_of_a_dropped_space_is_let_go(store: Store) -> None:
    key = put(store, "e", "text")
    for name in ("kept", "dropped"):
        store.spaces.put(space(name, 8))
        store.vectors.put(name, Variant.TEXT, key, random_units(1, 8))
    before = tails()
    for name in ("kept", "dropped"):
        store.vectors.nearest(name, Variant.TEXT, random_units(1, 8)[0], 1, EpisodeFilter())
    assert tails() == before + 2
    store.spaces.drop("dropped")
    store.vectors.nearest("kept", Variant.TEXT, random_units(1, 8)[0], 1, EpisodeFilter())
    assert tails() == before + 1


def tails() -> int:
    # `isinstance` would ask each object for its `__class__`, which a dead weak proxy among them answers with an error.
    return sum(type(thing) is VectorTail for thing in gc.get_objects())


def many(store: Store, count: int, first: int = 0) -> list[int]:
    """`count` passages with vectors in space `s`; returns their keys."""
    keys = put(store, f"e{first}", *(f"text {first + i}" for i in range(count)))
    store.vectors.put("s", Variant.TEXT, keys, random_units(count, 8, seed=first))
    return keys


@pytest.mark.usefixtures("refreshed_soon")
def test_changed_vectors_are_dead_in_a_file_until_too_many(store: Store, path: Path) -> None:
    keys = many(store, 100)
    store.vectors.build("s")
    store.vectors.put("s", Variant.TEXT, keys[:10], random_units(10, 8, seed=1))
    report = store.vectors.build("s")
    assert (report.vectors, report.indexed, report.dead, report.rebuilt) == (100, 100, 10, False)
    many(store, 1, 200)
    assert store.vectors.build("s").rebuilt is True


def removed_from_file(path: Path) -> int:
    with closing(sqlite3.connect(path)) as looking:
        return int(looking.execute("SELECT removed FROM index_files").fetchone()[0])


@pytest.mark.usefixtures("refreshed_soon")
def test_file_is_grown_until_too_much_was_removed(store: Store, path: Path) -> None:
    for first in range(0, 1_000, 50):
        many(store, 50, first)
    store.vectors.build("s")
    removed = []
    for turn in range(6):
        store.episodes.delete(f"e{50 * turn}")
        many(store, 20, 1_000 + turn)
        report = store.vectors.build("s")
        assert (report.rebuilt, report.dead, report.indexed) == (True, 0, report.vectors)
        removed.append(removed_from_file(path))
    assert removed == [50, 100, 150, 0, 50, 100]
    many(store, 5, 2_000)
    assert store.vectors.build("s").rebuilt is False
    assert store.vectors.build("s", force=True).rebuilt is True
    assert removed_from_file(path) == 0


@pytest.mark.parametrize("damage", ["delete", "scribble"])
@pytest.mark.usefixtures("refreshed_soon")
def test_a_file_lost_while_it_is_mapped_is_built_anew(store: Store, path: Path, damage: str) -> None:
    many(store, 200)
    store.vectors.build("s")
    (file,) = (path.parent / "index").glob("*.usearch")
    size = file.stat().st_size
    file.unlink()
    if damage == "scribble":
        file.write_bytes(b"\xff" * size)
    many(store, 30, first=200)
    assert store.vectors.build("s").indexed == 230
    assert removed_from_file(path) == 0
    assert store.vectors.recall("s") > 0.9  # the graph depends on how its threads took turns


SEARCHING = """
import sys
from pathlib import Path
from anamnesis_pipeline.model import Variant, EpisodeFilter
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.samples import unit

path = Path(sys.argv[1])
store = open_sqlite(path, path.parent / "index")
for _ in sys.stdin:
    hits = store.vectors.nearest("s", Variant.TEXT, unit(*[1.0] * 8), 10, EpisodeFilter())
    with open("/proc/self/maps") as maps:
        mapped = {line.split("/")[-1].strip() for line in maps if ".usearch" in line}
    print(len(hits), ",".join(sorted(mapped)), flush=True)
store.close()
"""


def test_another_process_takes_up_a_new_file_by_itself(store: Store, path: Path) -> None:
    many(store, 100)
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SEARCHING, str(path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], text=True, stdin=pipe, stdout=pipe) as searching:
        assert searching.stdin is not None
        assert searching.stdout is not None
        for _ in range(3):
            store.vectors.build("s", force=True)
            with closing(sqlite3.connect(path)) as looking:
                (name,) = looking.execute("SELECT name FROM index_files").fetchone()
            searching.stdin.write("search\n")
            searching.stdin.flush()
            assert searching.stdout.readline().split() == ["10", name]
        searching.stdin.close()
        assert searching.wait(timeout=60) == 0


def test_vectors_behind_the_file_are_not_all_scanned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old = many(store, 500)
    store.vectors.build("s", force=True)
    new = many(store, 500, first=500)
    monkeypatch.delattr(vector_search, "_OF_ALL")
    query = random_units(1, 8, seed=9)[0]
    every = {**store.vectors.get("s", Variant.TEXT, old), **store.vectors.get("s", Variant.TEXT, new)}
    best = sorted(every, key=lambda key: -float(every[key] @ query))[:20]
    assert {*best} & {*old}
    assert {*best} & {*new}
    assert [hit.passage_id for hit in store.vectors.nearest("s", Variant.TEXT, query, 20, EpisodeFilter())] == best


def test_poor_graph_is_searched_exactly(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CONNECTIVITY": 2, "EXPANSION_ADD": 2, "EXPANSION_SEARCH": 2}.items():
        monkeypatch.setattr(vector_file, name, value)
    for first in range(0, 2_000, 500):
        many(store, 500, first)
    assert store.vectors.recall("s") == 1.0
    store.vectors.build("s", force=True)
    state = store.vectors.index_state("s")
    assert state.is_exact
    assert state.recall is not None
    assert state.recall < 0.9
    assert f"finds {state.recall:.0%}" in state.problem
    assert store.vectors.recall("s") == 1.0
    monkeypatch.undo()
    store.vectors.build("s", force=True)
    assert store.vectors.index_state("s").problem == ""


@pytest.mark.usefixtures("refreshed_soon")
def test_grown_graph_that_finds_too_little_is_rebuilt(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(0, 1_000, 500):
        many(store, 500, first)
    store.vectors.build("s")
    monkeypatch.setattr(VectorFile, "measured", lambda _: 0.5)
    many(store, 100, first=2_000)
    assert store.vectors.build("s").indexed == 1_100
    assert removed_from_file(path) == 0
    assert store.vectors.index_state("s").is_exact


REAL, WIDE = 1_500, 96


def near_copies(count: int, spread: float, seed: int = 5) -> np.ndarray:
    """Vectors around one of the texts, with noise of so much in all."""
    centre, noise = random_units(seed + 1, WIDE)[seed], random_units(count, WIDE, seed=3)
    vectors = centre + spread * noise
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    "copies",
    [
        near_copies(0, 0.0),
        near_copies(4_000, 0.0),
        near_copies(4_000, 0.02),
        near_copies(4_000, 0.2),
        near_copies(4_000, 0.5),
        np.concatenate([near_copies(3_000, 0.0), near_copies(3_000, 0.0, seed=700)]),
        np.concatenate([near_copies(3_000, 0.02), near_copies(3_000, 0.3, seed=700)]),
    ],
    ids=["none", "equal", "nearly equal", "alike", "less alike", "two groups", "two near groups"],
)
@pytest.mark.parametrize("order", ["behind", "before", "mixed"])
def test_index_finds_the_rest_beside_copies(tmp_path: Path, copies: np.ndarray, order: str):
    every = np.concatenate([random_units(REAL, WIDE), copies])
    shuffled = {
        "behind": slice(None),
        "before": slice(None, None, -1),
        "mixed": np.random.default_rng(1).permutation(len(every)),
    }
    vectors = every[shuffled[order]].astype(np.float16).astype(np.float32)
    ids = np.arange(len(vectors))
    pages = [(ids[first : first + 1_100], vectors[first : first + 1_100]) for first in range(0, len(ids), 1_100)]
    assert vector_file.write_file(tmp_path / "x.usearch", WIDE, pages) == len(ids)
    file = VectorFile(tmp_path / "x.usearch", WIDE)
    queries = np.concatenate([random_units(50, WIDE, seed=9), copies[:: max(1, len(copies) // 20)]])
    found = [np.sort(vectors[file.nearest(query, 26)] @ query)[::-1] for query in queries]
    assert share_found(found, kth_scores([vectors], queries, 10), 10) >= 0.98


def test_copies_take_one_node_of_the_graph_and_all_are_found(store: Store) -> None:
    keys, copies = many(store, 60), put(store, "copies", *(f"copy {i}" for i in range(400)))
    store.vectors.put("s", Variant.TEXT, copies, np.repeat(random_units(60, 8)[:1], 400, axis=0))
    store.vectors.build("s", force=True)
    query = random_units(60, 8)[0]
    hits = store.vectors.nearest("s", Variant.TEXT, query, 450, EpisodeFilter())
    assert {hit.passage_id for hit in hits[:401]} == {keys[0], *copies}
    assert len(hits) == 450
    store.episodes.put([(episode("other", project="other"), passages("text"))])
    (other,) = [held.passage_id for held in store.episodes.passages_of("other")]
    store.vectors.put("s", Variant.TEXT, [other], query[None])
    store.vectors.build("s", force=True)
    hits = store.vectors.nearest("s", Variant.TEXT, query, 1, EpisodeFilter(hidden_projects=("acme/api",)))
    assert [hit.passage_id for hit in hits] == [other], "behind 400 equal ones that do not pass"


@pytest.mark.usefixtures("refreshed_soon")
def test_group_outlives_the_first_of_its_vectors(store: Store, path: Path) -> None:
    many(store, 900)
    east = unit(1.0, *[0.0] * 7)
    first, second = put(store, "first", "text"), put(store, "second", *("text" for _ in range(30)))
    store.vectors.put("s", Variant.TEXT, [*first, *second], np.repeat(east[None], 31, axis=0))
    store.vectors.build("s", force=True)
    store.episodes.delete("first")
    third = put(store, "third", *("text" for _ in range(60)))
    store.vectors.put("s", Variant.TEXT, third, np.repeat(east[None], 60, axis=0))
    store.vectors.put("s", Variant.TEXT, second[:1], -east[None])
    assert store.vectors.build("s").rebuilt
    assert removed_from_file(path) == 2, "it was grown"
    hits = store.vectors.nearest("s", Variant.TEXT, east, 89, EpisodeFilter())
    assert {hit.passage_id for hit in hits} == {*second[1:], *third}
    assert store.vectors.nearest("s", Variant.TEXT, -east, 1, EpisodeFilter())[0].passage_id == second[0]


@pytest.mark.parametrize(
    ("coverage", "is_due", "is_worn"),
    [
        (Coverage(vectors=5_000), False, True),
        (Coverage(vectors=5_001), True, True),
        (Coverage(vectors=60, is_lost=True), True, True),
        (Coverage(vectors=200_000, indexed=190_000), False, False),
        (Coverage(vectors=200_000, indexed=189_999), True, False),
        (Coverage(vectors=200_000, indexed=205_001, dead=5_001), False, False),
        (Coverage(vectors=200_000, indexed=210_001, dead=10_001), True, False),
        (Coverage(vectors=200_000, indexed=240_000, dead=40_000), True, False),
        (Coverage(vectors=200_000, indexed=240_001, dead=40_001), True, True),
        (Coverage(vectors=200_000, indexed=210_001, dead=10_001, removed=30_000), True, True),
    ],
)
def test_when_a_file_is_due_and_when_it_is_worn(coverage: Coverage, is_due: bool, is_worn: bool):
    assert (coverage.is_due, coverage.is_worn) == (is_due, is_worn)


@settings(max_examples=50, deadline=None)
@given(pages=st.lists(st.integers(0, 9), max_size=5), queries=st.integers(1, 4), k=st.integers(1, 12))
def test_the_kth_score_is_that_of_all_pages_together(pages: list[int], queries: int, k: int):
    matrix, asked = random_units(sum(pages), 4, seed=1), random_units(queries, 4, seed=2)
    ends = np.cumsum(pages)
    found = kth_scores((matrix[end - size : end] for end, size in zip(ends, pages, strict=True)), asked, k)
    ranked = -np.sort(-(asked @ matrix.T), axis=1)
    wanted = ranked[:, k - 1] if k <= len(matrix) else np.full(queries, -np.inf)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_the_share_found_counts_no_query_twice_and_none_too_low():
    wanted = np.array([0.5, 0.9], np.float32)
    assert share_found([[0.7, 0.6, 0.5], [0.95, 0.9]], wanted, 2) == 1.0
    assert share_found([[0.7, 0.4], [0.95, 0.89]], wanted, 2) == 0.5
    assert share_found([[], []], wanted, 2) == 0.0
