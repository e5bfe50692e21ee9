"""Fixtures that every test may use. `store` runs a test once per backend."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from anamnesis_pipeline.steps import log_folders
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.opening import open_sqlite

# The same examples each time, so that a failure belongs to the change that shows it;
# HYPOTHESIS_PROFILE=explore draws new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.register_profile("explore", max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

OpenStore = Callable[[], Store]


def _sqlite(folder: Path) -> Store:
    return open_sqlite(folder / "anamnesis.db", folder / "index")


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


BACKENDS: dict[str, Callable[[Path], Store]] = {"sqlite": _sqlite}
"""Backend name -> opens the store that lives in a folder. A new backend is one entry here."""


@pytest.fixture(params=sorted(BACKENDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Backend and folder of the test's store: what another process needs to open it."""
    return request.param, tmp_path


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
