"""The model that a deployment names for new memories: used where it can be had, and never a reason to embed again."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import huggingface_hub.constants as hub
import pytest

from anamnesis_pipeline.cli.status import memory_status
from anamnesis_pipeline.embeddings.models import MINILM, bundled_minilm, find_model
from anamnesis_pipeline.errors import UnknownModel
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.embedding_control import EmbeddingControl
from anamnesis_pipeline.services.machine_checks import model_files
from anamnesis_pipeline.services.store_checks import space_models
from anamnesis_pipeline.settings import load
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.runtime.conftest import wait_for

DEFAULT = "acme/large-en"
DOCKERFILE = Path(__file__).parents[1] / "Dockerfile"


@pytest.fixture(autouse=True)
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, as the image sets it up, without a network and without what this machine has downloaded."""
    for name in ("MODEL", "LOCAL_ONLY"):
        monkeypatch.delenv(f"ANAMNESIS_{name}", raising=False)
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_DEFAULT_MODEL", DEFAULT)
    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))


@pytest.fixture
def memory(deployment: None) -> Iterator[Store]:
    with closing(wiring.open_store(load())) as store:
        yield store


def bake(folder: Path) -> None:
    """Put a model into the image, by the words of its Dockerfile; MiniLM's files stand for what is downloaded."""
    (words,) = re.findall(r"^RUN (if \[ -n \"\$BAKE\".*?)\n\n", DOCKERFILE.read_text(), re.DOTALL | re.MULTILINE)
    hub = folder / "venv/bin/hf"
    hub.parent.mkdir(parents=True)
    hub.write_text(
        f'#!/bin/sh\nmkdir -p "$4/.cache" && cp -r {bundled_minilm()}/. "$4" && touch "$4/pytorch_model.bin"\n'
    )
    hub.chmod(0o755)
    command = words.replace("\\\n", "").replace("/opt/venv", str(folder / "venv"))
    subprocess.run(["sh", "-euc", command], env=os.environ | {"BAKE": "1", "MODEL": DEFAULT}, check=True)


def begun(store: Store) -> str:
    """The model of the space that a start makes or finds."""
    return wiring.wanted_space(wiring.effective_settings(store), store).model_id


def spaces(store: Store) -> list[tuple[str, str]]:
    return [(space.model_id, space.status) for space in store.spaces.all()]


def test_new_memory_begins_with_the_model_of_the_image(memory: Store, tmp_path: Path) -> None:
    bake(tmp_path)
    assert begun(memory) == DEFAULT
    assert spaces(memory) == [(DEFAULT, "active")]
    assert wiring.default_model_note(memory) == ""
    folder = find_model(DEFAULT, local_only=True).path
    assert not (folder / ".cache").exists()
    assert not (folder / "pytorch_model.bin").exists(), "the same weights twice"


def test_absent_default_is_replaced_by_minilm(memory: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnknownModel, match=DEFAULT):
        wiring.wanted_space(wiring.effective_settings(memory), memory, downloads=False)
    assert spaces(memory) == [], "a caller that downloads nothing leaves the choice"
    assert begun(memory) == MINILM
    assert [f"{DEFAULT}' is not on this disk" in record.message for record in caplog.records] == [True]
    assert f"embedded with {MINILM} instead" in caplog.text
    bake(tmp_path)
    assert wiring.effective_settings(memory).model == begun(memory) == MINILM
    assert spaces(memory) == [(MINILM, "active")], "also when the default comes"
    EmbeddingControl(memory).use_model(DEFAULT)
    assert begun(memory) == DEFAULT, "the move is asked for"
    assert wiring.default_model_note(memory) == ""


def test_memory_of_an_earlier_image_keeps_it(memory: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bake(tmp_path)
    with monkeypatch.context() as earlier:
        earlier.delenv("ANAMNESIS_DEFAULT_MODEL")
        assert begun(memory) == MINILM
    assert begun(memory) == MINILM
    assert spaces(memory) == [(MINILM, "active")]


def test_memory_begun_meanwhile_keeps_its_model(memory: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bake(tmp_path)
    real, settings = wiring.model_files, wiring.effective_settings(memory)

    def found_late(*args: object, **options: object) -> object:
        monkeypatch.setattr(wiring, "model_files", real)
        wiring.ensure_space(memory, find_model(MINILM), "fp32")
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(wiring, "model_files", found_late)
    assert wiring.wanted_space(settings, memory).model_id == MINILM
    assert spaces(memory) == [(MINILM, "active")]


def test_chosen_model_that_is_absent_is_an_error_and_no_minilm(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_MODEL", DEFAULT)
    with pytest.raises(UnknownModel, match=DEFAULT):
        begun(memory)
    assert spaces(memory) == []


def test_why_the_default_is_not_used_is_said(memory: Store, caplog: pytest.LogCaptureFixture) -> None:
    before = model_files(wiring.effective_settings(memory))
    assert before.ok
    assert f"downloads it, or takes {MINILM}" in before.detail
    begun(memory)
    expected = f"the default model {DEFAULT} is for new memories; this one began with {MINILM} and keeps it"
    with caplog.at_level(logging.INFO), closing(wiring.open_services(load())) as services:
        services.pool.load_in_background()
        wait_for(lambda: "Embedding model:" in caplog.text)
    (line,) = [record.message for record in caplog.records if record.message.startswith("Embedding model:")]
    assert line.startswith(f"Embedding model: {MINILM} (384 dimensions); {expected}")
    assert expected in memory_status(memory)["notes"][0]
    assert model_files(wiring.effective_settings(memory)).ok
    assert expected in space_models(memory).note
