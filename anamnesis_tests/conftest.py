"""Fixtures that every test may use. `store` runs a test once per backend.

Tests on MongoDB are marked `mongo`. The contract suite (`anamnesis_tests/store`) has them always, other tests with a
store only with ANAMNESIS_TEST_STORES=all.
"""

import gc
import hashlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from anamnesis_pipeline.embeddings import cores, pinned_pool
from anamnesis_pipeline.services import log_folders
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.mongo_server import shared
from anamnesis_tests.support.mongo_server.server import LoopbackServer

# A shell that starts the tests in the background has them ignore SIGINT; Dagster would let SIGTERM do what SIGINT does,
# and no process that a test starts could be ended any more.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples each time, so that a failure belongs to the change that shows it;
# HYPOTHESIS_PROFILE=explore draws new ones. No deadline: a busy machine is no failure.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", max_examples=500, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

OpenStore = Callable[[], Store]


def _sqlite(folder: Path) -> Store:
    return open_sqlite(folder / "anamnesis.db", folder / "index")


def mongo_database(folder: Path) -> str:
    """The database that stands for a test's folder."""
    return f"anamnesis_test_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def _mongo(folder: Path) -> Store:
    from anamnesis_pipeline.store.mongo.opening import open_mongo

    return open_mongo(shared.uri(), mongo_database(folder))


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user who has nothing."""
    return tmp_path_factory.mktemp("user")


@pytest.fixture(autouse=True)
def nobodys_home(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test looks at the logs and folders of whoever runs it, or of the other users here."""
    monkeypatch.setenv("HOME", str(empty_home))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setattr(log_folders, "PLACES", ())
    monkeypatch.setattr(log_folders, "COWORK_PLACES", ())


@pytest.fixture(autouse=True)
def unranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What gives way to everything else would wait in vain beside as many processes of tests as there are cores."""
    for module in (cores, pinned_pool):
        monkeypatch.setattr(module, "rank_this_thread", lambda _: None)


BACKENDS: dict[str, Callable[[Path], Store]] = {"sqlite": _sqlite, "mongo": _mongo}
"""Backend name -> opens the store that lives in a folder. A new backend is one entry here."""

CONTRACT, BROWSER = Path(__file__).parent / "store", Path(__file__).parent / "browser"


def backends_for(test_file: Path) -> list[str]:
    """The backends that the tests of a file run on; in the contract suite, a file may be of one by its name."""
    if not test_file.is_relative_to(CONTRACT):
        return sorted(BACKENDS) if os.environ.get("ANAMNESIS_TEST_STORES") == "all" else ["sqlite"]
    return [name for name in BACKENDS if test_file.name.startswith(f"test_{name}")] or sorted(BACKENDS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with a store once per backend. A test may have a parameter of its own with the same name."""
    own = [re.findall(r"\w+", str(mark.args[0])) for mark in metafunc.definition.iter_markers("parametrize")]
    if "place" in metafunc.fixturenames and not any("place" in names for names in own):
        marks = {"mongo": [pytest.mark.mongo]}
        backends = [pytest.param(name, marks=marks.get(name, ())) for name in backends_for(metafunc.definition.path)]
        metafunc.parametrize("place", backends, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of one engine's files, and those of the pages."""
    for item in items:
        if item.path.is_relative_to(CONTRACT) and item.path.name.startswith("test_mongo"):
            item.add_marker(pytest.mark.mongo)
        if item.path.is_relative_to(BROWSER):
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was loaded to collect the tests stays to the end: the garbage collector need not look through it each time,
    which took a twentieth of all the time.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """The server of this process, if one was started, ends with it."""
    shared.stop()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Backend and folder of the test's store: what another process needs to open it."""
    yield request.param, tmp_path
    if request.param == "mongo":
        shared.drop(mongo_database(tmp_path))


@pytest.fixture
def open_store(place: tuple[str, Path]) -> Iterator[OpenStore]:
    """Opens the test's store, once more with each call, as another process would; closes every handle at the end."""
    backend, folder = place
    opened: list[Store] = []

    def open_another() -> Store:
        opened.append(BACKENDS[backend](folder))
        return opened[-1]

    yield open_another
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    """An empty store."""
    return open_store()


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """A MongoDB that a test may make fail, whatever the others run on; afterwards it is as it was before."""
    running = shared.loopback()
    others = running.databases()
    yield running
    running.reset(*others)
