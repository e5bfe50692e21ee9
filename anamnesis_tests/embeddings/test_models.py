"""What the files of a model say, and where they come from."""

import json
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from anamnesis_pipeline.embeddings import models
from anamnesis_pipeline.embeddings.models import (
    MINILM,
    bundled_minilm,
    choose_precision,
    find_model,
    model_choices,
    named,
)
from anamnesis_pipeline.embeddings.registry import KNOWN_MODELS, KnownModel, known_model
from anamnesis_pipeline.errors import UnknownModel
from anamnesis_tests.support.weight_files import safetensors

INCOMPLETE = "does not hold a complete sentence-transformers model"


def made_up_model(folder: Path, weights: bytes = b"weights", **files: Any) -> Path:
    """A folder with the files of a small sentence-transformers model; `a__b` stands for `a/b.json`.

    modules.json lists the transformer and then every module that has a config.json here.
    """
    folder.mkdir(parents=True)
    parts = sorted(name.removesuffix("__config") for name in files if name.endswith("__config"))
    modules = [{"path": part, "type": f"some.package.{part[2:] or 'Transformer'}"} for part in ["", *parts]]
    contents = {"config": {"hidden_size": 32, "max_position_embeddings": 512}, "modules": modules, **files}
    for name, content in contents.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(safetensors(weights))
    return folder


def key_of(folder: Path) -> str:
    return find_model(str(folder)).space().key


def test_bundled_model_is_minilm_as_published() -> None:
    files, known = find_model(MINILM), known_model(MINILM)
    assert (files.dim, files.window, files.pooling) == (384, 256, "mean_tokens")
    assert (files.query_prefix, files.passage_prefix) == ("", "")
    assert known is not None
    assert (known.dim, known.window, known.download_mb) == (files.dim, files.window, 0)
    assert known_model(f"sentence-transformers/{MINILM}") is known
    assert find_model(f"sentence-transformers/{MINILM}").space().key == files.space().key


def test_space_key_of_the_bundled_model_never_changes() -> None:
    """Another key would embed everybody's memory anew: change this only with a migration."""
    assert find_model(MINILM).fingerprint == "5d85ddcb"
    assert find_model(MINILM).space().key == f"{MINILM}-5d85ddcb"
    assert find_model(MINILM).space(generation=2).key == f"{MINILM}-5d85ddcb-g2"


def test_other_weights_under_the_bundled_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = tmp_path / "model"
    shutil.copytree(bundled_minilm(), copied, ignore=shutil.ignore_patterns("*.safetensors"))
    (copied / "model.safetensors").write_bytes(safetensors(b"something else"))
    monkeypatch.setattr(models, "bundled_minilm", lambda: copied)
    with pytest.raises(UnknownModel, match=r"SHA-256 .*not the published 53aa51172d14"):
        find_model(MINILM)


# --- the key of a space ----------------------------------------------------------------------------------

LINEAR = {"out_features": 16, "activation_function": "torch.nn.modules.linear.Identity"}
DIFFERENT: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights": {"weights": b"other weights"},
    "pooling": {"1_Pooling__config": {"pooling_mode_cls_token": True}},
    "dense layer": {"2_Dense__config": LINEAR},
    "activation": {"2_Dense__config": LINEAR | {"activation_function": "torch.nn.modules.activation.Tanh"}},
    "prompt": {"config_sentence_transformers": {"prompts": {"query": "ask: "}}},
}


def test_key_differs_with_all_that_changes_vectors(tmp_path: Path) -> None:
    keys = {what: key_of(made_up_model(tmp_path / what / "mine", **files)) for what, files in DIFFERENT.items()}
    assert len({*keys.values()}) == len(keys)
    assert keys["plain"].startswith("mine-")
    assert key_of(made_up_model(tmp_path / "again" / "mine")) == keys["plain"]


@pytest.mark.parametrize("weights", ["model.safetensors", "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin"])
def test_replaced_weights_are_noticed(tmp_path: Path, weights: str) -> None:
    folder = made_up_model(tmp_path / "m", **{"2_Dense__config": {"out_features": 16}})
    keys = set()
    for content in (b"weights", b"retrained, and longer"):
        (folder / weights).write_bytes(safetensors(content))
        keys.add(key_of(folder))
    assert len(keys) == 2


def test_every_shard_of_the_weights_counts_and_must_be_there(tmp_path: Path) -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    folder = made_up_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": shards[0], "b": shards[1], "c": shards[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / shards[0]).write_bytes(safetensors(b"first"))
    with pytest.raises(UnknownModel, match=shards[1]):
        find_model(str(folder))
    keys = set()
    for content in (b"second", b"a longer second"):
        (folder / shards[1]).write_bytes(safetensors(content))
        keys.add(key_of(folder))
    assert len(keys) == 2


# --- what the files say ----------------------------------------------------------------------------------


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


DENSE = {"2_Dense__config": {"out_features": 96}, "10_Dense__config": {"out_features": 8}}
IN_ORDER = [{"path": path, "type": f"x.{path[-5:]}"} for path in ("", "2_Dense", "10_Dense")]


@pytest.mark.parametrize(
    ("files", "dim", "pooling"),
    [
        *(
            ({"config": {n: 48, "max_position_embeddings": 512}}, 48, "none")
            for n in ("hidden_size", "dim", "d_model", "n_embd")
        ),
        ({"1_Pooling__config": {"pooling_mode": "cls"}}, 32, "cls"),
        ({"1_Pooling__config": {"pooling_mode": ["cls", "mean", "max"]}}, 96, "cls+mean+max"),
        (
            {"1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}},
            64,
            "cls_token+mean_tokens",
        ),
        ({"1_Pooling__config": {"pooling_mode_cls_token": False}}, 32, "mean_tokens"),
        ({**DENSE, "modules": IN_ORDER}, 8, "none"),
    ],
)
def test_width_and_pooling_are_of_the_modules(tmp_path: Path, files: dict[str, Any], dim: int, pooling: str) -> None:
    found = find_model(str(made_up_model(tmp_path / "m", **files)))
    assert (found.dim, found.pooling) == (dim, pooling)


def test_without_a_list_of_modules_a_transformer_is_averaged(tmp_path: Path) -> None:
    folder = made_up_model(tmp_path / "m", **{"1_Pooling__config": {"pooling_mode": ["cls", "max"]}})
    (folder / "modules.json").unlink()
    assert (find_model(str(folder)).dim, find_model(str(folder)).pooling) == (32, "mean_tokens")


@pytest.mark.parametrize(
    ("config", "sentence", "tokenizer", "window"),
    [
        ({"max_position_embeddings": 512}, None, None, 512),
        ({"max_position_embeddings": 512}, 128, 512, 128),
        ({"max_position_embeddings": 512}, 4096, int(1e30), 512),
        ({"max_position_embeddings": 512}, None, 1e30, 512),
        ({"max_position_embeddings": 512}, None, 384, 384),
        ({"max_position_embeddings": 514, "model_type": "xlm-roberta", "pad_token_id": 1}, None, None, 512),
        ({"max_position_embeddings": 514, "model_type": "roberta"}, 514, 514, 512),
        ({"max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 0}, None, None, 513),
        ({"max_position_embeddings": 514, "model_type": "mpnet", "pad_token_id": 0}, None, None, 512),
        ({"model_type": "t5"}, 256, None, 256),
        ({"n_positions": 1024}, None, None, 1024),
    ],
)
def test_window_is_the_least_limit_that_is_known(
    tmp_path: Path, config: dict[str, Any], sentence: int | None, tokenizer: float | None, window: int
) -> None:
    folder = made_up_model(
        tmp_path / "m",
        config={"hidden_size": 32, **config},
        sentence_bert_config={"max_seq_length": sentence},
        tokenizer_config={"model_max_length": tokenizer},
    )
    assert find_model(str(folder)).window == window


def test_model_without_any_limit_is_refused(tmp_path: Path) -> None:
    folder = made_up_model(tmp_path / "m", config={"d_model": 32}, tokenizer_config={"model_max_length": 1e30})
    with pytest.raises(UnknownModel, match="no file limits the length of a text"):
        find_model(str(folder))


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        *(("modules.json", each) for each in ("[]", "{", "[1]", '[{"path": "", "type": 1}]')),
        ("modules.json", '[{"type": "x.Transformer"}]'),
        *(("config.json", each) for each in ("[]", "{", '{"hidden_size": "wide"}', "{}")),
    ],
)
def test_broken_file_of_a_model_is_no_model(tmp_path: Path, name: str, broken: str) -> None:
    folder = made_up_model(tmp_path / "m")
    (folder / name).write_text(broken, encoding="utf-8")
    with pytest.raises(UnknownModel, match=INCOMPLETE):
        find_model(str(folder))


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_missing_file_is_named_with_the_choices(tmp_path: Path, missing: str) -> None:
    folder = made_up_model(tmp_path / "m")
    (folder / missing).unlink()
    with pytest.raises(UnknownModel, match=rf"{missing}.*Known are {MINILM}, .*bge-large"):
        find_model(str(folder))


@pytest.mark.parametrize("kept", [3, 20, -1])
def test_weights_that_are_cut_off_are_refused(tmp_path: Path, kept: int) -> None:
    weights = made_up_model(tmp_path / "mine") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(UnknownModel, match=f"model.safetensors is cut off|{INCOMPLETE[14:]}"):
        find_model(str(tmp_path / "mine"))


# --- the hub ---------------------------------------------------------------------------------------------

ACME = "acme/no-such-model"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Settings of the hub's library: an empty cache, and a hub that nobody reaches."""
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return hub


@pytest.fixture
def cache(tmp_path: Path, hub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that models may be put in."""
    import huggingface_hub

    real = huggingface_hub.snapshot_download
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: real(*a, cache_dir=tmp_path, **k))
    return tmp_path


def in_hub_cache(cache: Path, model_id: str, **files: object) -> None:
    folder, revision = cache / f"models--{model_id.replace('/', '--')}", "0" * 40
    made_up_model(folder / "snapshots" / revision, **files)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(revision, encoding="utf-8")


def test_known_models_are_the_choices() -> None:
    ids = [known.model_id for known in KNOWN_MODELS]
    recommended = [known.model_id for known in KNOWN_MODELS if "recommended" in known.description]
    assert len(set(ids)) == len(ids) >= 7
    assert recommended == ["BAAI/bge-large-en-v1.5"]
    assert all(model_id in model_choices() for model_id in ids)
    assert known_model("acme/unheard-of") is None


@pytest.mark.parametrize("known", [known for known in KNOWN_MODELS if known.download_mb], ids=lambda k: k.model_id)
def test_known_model_gets_the_prefixes_of_its_entry(cache: Path, known: KnownModel) -> None:
    in_hub_cache(cache, known.model_id)
    files = find_model(known.model_id, local_only=True)
    assert (files.query_prefix, files.passage_prefix) == (known.query_prefix, known.passage_prefix)


def test_own_files_of_a_model_win_over_its_entry(cache: Path) -> None:
    own = {"prompts": {"query": "ask: ", "document": ""}}
    in_hub_cache(cache, "BAAI/bge-large-en-v1.5", config_sentence_transformers=own)
    for local_only in (True, False):  # what was downloaded before needs no network
        assert find_model("BAAI/bge-large-en-v1.5", local_only=local_only).query_prefix == "ask: "


@pytest.mark.parametrize(
    ("model_id", "local_only", "problem"),
    [
        (ACME, False, "is not on this disk, and the model hub cannot be reached: connect"),
        (ACME, True, f"on this disk, and none may be downloaded. Known are {MINILM}"),
        ("no such/model/at all", False, f"neither a folder here nor a hub id. Known are {MINILM}"),
        ("/nonexistent/folder", True, f"neither a folder here nor a hub id. Known are {MINILM}"),
    ],
)
def test_unavailable_model_is_refused_quickly(hub: ModuleType, model_id: str, local_only: bool, problem: str) -> None:
    started = time.monotonic()
    with pytest.raises(UnknownModel) as refused:
        find_model(model_id, local_only=local_only)
    assert problem in str(refused.value)
    assert model_id in str(refused.value)
    assert len(str(refused.value)) < 450
    assert time.monotonic() - started < 60


def test_hub_that_is_switched_off_is_told(hub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    with pytest.raises(UnknownModel, match=f"{ACME}.*HF_HUB_OFFLINE forbids to download it: unset that"):
        find_model(ACME)


@pytest.mark.parametrize(
    ("status", "code", "problem"),
    [
        (404, "RepoNotFound", f"the model hub has no '{ACME}', or hides it .* Known are {MINILM}"),
        (403, "GatedRepo", f"ask on https://huggingface.co/{ACME}, then set HF_TOKEN"),
    ],
)
def test_refusals_of_the_hub_are_told_apart(
    hub: ModuleType, monkeypatch: pytest.MonkeyPatch, status: int, code: str, problem: str
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(hub, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(UnknownModel, match=problem):
            find_model(ACME)
        server.shutdown()


@pytest.mark.parametrize("wanted", ["bf16", "fp32"])
def test_chosen_precision_is_kept(wanted: str) -> None:
    assert choose_precision(wanted) == wanted
    assert choose_precision("auto") in ("bf16", "fp32")
    assert choose_precision(wanted, of_vectors="fp32") == wanted


def test_auto_goes_on_in_fp32_where_the_vectors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anamnesis_pipeline.embeddings.models.has_gpu", lambda: True)
    found = [choose_precision("auto", of_vectors=of_vectors) for of_vectors in (None, "bf16", "fp32")]
    assert found == ["bf16", "bf16", "fp32"]


def test_folder_is_named_by_its_path_and_a_model_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tiny", "all-MiniLM-L6-v2"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert named("tiny") == named("./tiny") == str(tmp_path / "tiny")
    assert named("all-MiniLM-L6-v2") == "all-MiniLM-L6-v2"
    assert named("nobody/no-such-model") == "nobody/no-such-model"
