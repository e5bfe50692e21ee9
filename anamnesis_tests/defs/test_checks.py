"""Asset checks say what is so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anamnesis_pipeline.defs.checks import every_part_is_an_episode
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.steps.uploads import Handed
from anamnesis_pipeline.wiring import open_uploads


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryResource]:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(tmp_path))
    resource = MemoryResource()
    yield resource
    resource.store.close()


def test_an_upload_is_an_episode_as_any_part(memory: MemoryResource) -> None:
    uploads = open_uploads(memory.settings, memory.store)
    for name in ("walrus", "seal"):
        uploads.take(Handed(f"{name}.md", f"# Zoo\n\nThe {name} sleeps behind the second gate.".encode()))
    assert every_part_is_an_episode(memory).passed
