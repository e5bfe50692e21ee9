"""Asset checks say what is so."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from anamnesis_pipeline.defs.checks import every_part_is_an_episode
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.model import Where
from anamnesis_pipeline.session_model import SESSION_KIND
from anamnesis_pipeline.steps.episodes import delete_episode
from anamnesis_pipeline.steps.pipeline import ingest_all
from anamnesis_pipeline.steps.uploads import Handed
from anamnesis_pipeline.wiring import discover_sources, open_pipeline, open_uploads
from anamnesis_tests.steps.archived_logs import FOLDER, OTHER, SESSION, record


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


def test_what_was_deleted_or_a_rule_holds_back_is_not_missing(memory: MemoryResource, tmp_path: Path) -> None:
    store = memory.store
    for number, session in enumerate((SESSION, OTHER)):
        log = tmp_path / FOLDER / f"{session}.jsonl"
        log.parent.mkdir(exist_ok=True)
        log.write_text(json.dumps(record("user", f"Where does walrus {number} sleep?", 60 * number, session)) + "\n")
    ingest_all(open_pipeline(memory.settings, store), discover_sources(memory.settings).sources)
    said = store.episodes.page(Where(hidden_kinds=(SESSION_KIND,)), 10).items
    one, other = sorted(episode.episode_id for episode in said)
    assert delete_episode(store, one)
    assert every_part_is_an_episode(memory).passed
    assert store.episodes.delete(other, tombstone=False)
    assert not every_part_is_an_episode(memory).passed
    store.exclusion.hold({other: "rule-of-some"})
    assert store.ingest.counts().kept_away == 2
    assert every_part_is_an_episode(memory).passed
