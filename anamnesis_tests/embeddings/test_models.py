import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.embeddings import models
from anamnesis_pipeline.embeddings.models import MINILM, bundled_minilm, choose_precision, find_model
from anamnesis_pipeline.errors import UnknownModel


def made_up_model(folder: Path, weights: bytes = b"weights", **files: Any) -> Path:
    """A folder with the files of a small sentence-transformers model; `name__json` stands for `name.json`."""
    folder.mkdir(parents=True)
    contents = {"config": {"hidden_size": 32, "max_position_embeddings": 512}, **files}
    for name, content in contents.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_the_bundled_model_is_minilm_as_published() -> None:
    files = find_model(MINILM)
    assert (files.dim, files.window, files.pooling) == (384, 256, "mean_tokens")
    assert (files.query_prefix, files.passage_prefix) == ("", "")
    assert find_model(f"sentence-transformers/{MINILM}").space().key == files.space().key


def test_the_space_key_of_the_bundled_model_never_changes() -> None:
    """Another key would embed everybody's memory anew: change this only with a migration."""
    assert find_model(MINILM).space().key == f"{MINILM}-{find_model(MINILM).fingerprint}"
    assert find_model(MINILM).fingerprint == "5d85ddcb"
    assert find_model(MINILM).space(generation=2).key == f"{MINILM}-{find_model(MINILM).fingerprint}-g2"


def test_other_weights_under_the_bundled_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = tmp_path / "model"
    shutil.copytree(bundled_minilm(), copied, ignore=shutil.ignore_patterns("*.safetensors"))
    (copied / "model.safetensors").write_bytes(b"something else")
    monkeypatch.setattr(models, "bundled_minilm", lambda: copied)
    with pytest.raises(UnknownModel, match=r"SHA-256 .*not the published 53aa51172d14"):
        find_model(MINILM)


def test_a_folder_is_a_model_and_its_key_depends_on_what_changes_vectors(tmp_path: Path) -> None:
    plain = find_model(str(made_up_model(tmp_path / "a" / "mine")))
    assert (plain.dim, plain.window) == (32, 512)
    assert plain.space().key.startswith("mine-")
    same = find_model(str(made_up_model(tmp_path / "b" / "mine")))
    changed = [
        find_model(str(made_up_model(tmp_path / "c" / "mine", b"other weights"))),
        find_model(
            str(made_up_model(tmp_path / "d" / "mine", **{"1_Pooling__config": {"pooling_mode_cls_token": True}}))
        ),
        find_model(str(made_up_model(tmp_path / "e" / "mine", **{"2_Dense__config": {"out_features": 16}}))),
        find_model(
            str(made_up_model(tmp_path / "f" / "mine", config_sentence_transformers={"prompts": {"query": "ask: "}}))
        ),
    ]
    assert same.space().key == plain.space().key
    assert len({files.space().key for files in [plain, *changed]}) == 5
    assert [changed[1].pooling, changed[2].dim, changed[3].query_prefix] == ["cls_token", 16, "ask: "]


def test_replaced_weights_are_noticed(tmp_path: Path) -> None:
    folder = made_up_model(tmp_path / "m")
    before = find_model(str(folder)).fingerprint
    (folder / "model.safetensors").write_bytes(b"retrained, and longer")
    assert find_model(str(folder)).fingerprint != before


@pytest.mark.parametrize(
    ("name", "query", "passage"),
    [
        ("bge-large-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("bge-m3", "", ""),
        ("e5-small-v2", "query: ", "passage: "),
        ("multilingual-e5-base", "query: ", "passage: "),
        ("some-e50-model", "", ""),
    ],
)
def test_families_that_document_prefixes_get_them(tmp_path: Path, name: str, query: str, passage: str) -> None:
    files = find_model(str(made_up_model(tmp_path / name)))
    assert (files.query_prefix, files.passage_prefix) == (query, passage)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_with_missing_files_says_which_and_names_the_choices(tmp_path: Path, missing: str) -> None:
    folder = made_up_model(tmp_path / "m")
    (folder / missing).unlink()
    with pytest.raises(UnknownModel, match=rf"{missing}.*ANAMNESIS_MODEL to '{MINILM}'"):
        find_model(str(folder))


@pytest.mark.parametrize("broken", ["[]", "{", '{"hidden_size": "wide"}', "{}"])
def test_a_broken_configuration_is_no_model(tmp_path: Path, broken: str) -> None:
    folder = made_up_model(tmp_path / "m")
    (folder / "config.json").write_text(broken, encoding="utf-8")
    with pytest.raises(UnknownModel, match="does not hold a complete sentence-transformers model"):
        find_model(str(folder))


@pytest.mark.parametrize("model_id", ["acme/no-such-model", "no such/model/at all", "/nonexistent/folder"])
@pytest.mark.parametrize("local_only", [True, False])
def test_an_unknown_model_without_network_is_refused_quickly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_id: str, local_only: bool
) -> None:
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path))
    started = time.monotonic()
    with pytest.raises(UnknownModel, match=rf"{model_id}.*ANAMNESIS_MODEL to '{MINILM}'"):
        find_model(model_id, local_only=local_only)
    assert time.monotonic() - started < 5


def test_a_model_that_was_downloaded_before_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")
    cache = tmp_path / "models--acme--tiny"
    revision = "0" * 40
    made_up_model(cache / "snapshots" / revision)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(revision, encoding="utf-8")
    import huggingface_hub

    real = huggingface_hub.snapshot_download
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: real(*a, cache_dir=tmp_path, **k))
    for local_only in (True, False):
        assert find_model("acme/tiny", local_only=local_only).dim == 32


@pytest.mark.parametrize("wanted", ["bf16", "fp32"])
def test_a_chosen_precision_is_kept(wanted: str) -> None:
    assert choose_precision(wanted) == wanted
    assert choose_precision("auto") in ("bf16", "fp32")
