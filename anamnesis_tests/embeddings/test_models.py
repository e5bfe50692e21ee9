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
from anamnesis_pipeline.embeddings.models import MINILM, bundled_minilm, choose_precision, find_model, named
from anamnesis_pipeline.errors import UnknownModel
from anamnesis_tests.embeddings.weight_files import safetensors


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
    (copied / "model.safetensors").write_bytes(safetensors(b"something else"))
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
    (folder / "model.safetensors").write_bytes(safetensors(b"retrained, and longer"))
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


@pytest.mark.parametrize("width", ["hidden_size", "dim", "d_model", "n_embd"])
def test_the_width_goes_by_several_names(tmp_path: Path, width: str) -> None:
    folder = made_up_model(tmp_path / "m", config={width: 48, "max_position_embeddings": 512})
    assert find_model(str(folder)).dim == 48


@pytest.mark.parametrize(
    ("pooling", "dim", "name"),
    [
        ({"pooling_mode": "cls"}, 32, "cls"),
        ({"pooling_mode": ["cls", "mean", "max"]}, 96, "cls+mean+max"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, 64, "cls_token+mean_tokens"),
        ({"pooling_mode_cls_token": False}, 32, "mean_tokens"),
    ],
)
def test_pooled_modes_lie_side_by_side(tmp_path: Path, pooling: dict[str, Any], dim: int, name: str) -> None:
    files = find_model(str(made_up_model(tmp_path / "m", **{"1_Pooling__config": pooling})))
    assert (files.dim, files.pooling) == (dim, name)


def test_the_last_dense_layer_sets_the_width_in_the_order_of_the_modules(tmp_path: Path) -> None:
    dense = {"2_Dense__config": {"out_features": 96}, "10_Dense__config": {"out_features": 8}}
    order = [{"path": path, "type": f"x.{path[-5:]}"} for path in ("", "2_Dense", "10_Dense")]
    assert find_model(str(made_up_model(tmp_path / "m", **dense, modules=order))).dim == 8


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
def test_the_window_is_the_least_limit_that_is_known(
    tmp_path: Path, config: dict[str, Any], sentence: int | None, tokenizer: float | None, window: int
) -> None:
    folder = made_up_model(
        tmp_path / "m", config={"hidden_size": 32, **config}, sentence_bert_config={"max_seq_length": sentence},
        tokenizer_config={"model_max_length": tokenizer},
    )  # fmt: skip
    assert find_model(str(folder)).window == window


def test_a_model_without_any_limit_is_refused(tmp_path: Path) -> None:
    folder = made_up_model(tmp_path / "m", config={"d_model": 32}, tokenizer_config={"model_max_length": 1e30})
    with pytest.raises(UnknownModel, match="no file limits the length of a text"):
        find_model(str(folder))


def test_what_a_dense_layer_does_to_its_sums_counts(tmp_path: Path) -> None:
    keys = []
    for activation in ("torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"):
        dense = {"2_Dense__config": {"out_features": 16, "activation_function": activation}}
        keys.append(find_model(str(made_up_model(tmp_path / activation / "m", **dense))).space().key)
    assert keys[0] != keys[1]


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_weights_of_a_later_module_count(tmp_path: Path, weights: str) -> None:
    folder = made_up_model(tmp_path / "m", **{"2_Dense__config": {"out_features": 16}})
    keys = []
    for content in (b"dense", b"another dense"):
        (folder / "2_Dense" / weights).write_bytes(safetensors(content))
        keys.append(find_model(str(folder)).space().key)
    assert keys[0] != keys[1]


def test_every_shard_of_the_weights_counts_and_must_be_there(tmp_path: Path) -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    folder = made_up_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": shards[0], "b": shards[1], "c": shards[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / shards[0]).write_bytes(safetensors(b"first"))
    with pytest.raises(UnknownModel, match=shards[1]):
        find_model(str(folder))
    keys = []
    for content in (b"second", b"a longer second"):
        (folder / shards[1]).write_bytes(safetensors(content))
        keys.append(find_model(str(folder)).space().key)
    assert keys[0] != keys[1]


@pytest.mark.parametrize("broken", ["[]", "{", "[1]", '[{"path": "", "type": 1}]', '[{"type": "x.Transformer"}]'])
def test_a_broken_list_of_modules_is_no_model(tmp_path: Path, broken: str) -> None:
    folder = made_up_model(tmp_path / "m")
    (folder / "modules.json").write_text(broken, encoding="utf-8")
    with pytest.raises(UnknownModel, match="does not hold a complete sentence-transformers model"):
        find_model(str(folder))


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_with_missing_files_says_which_and_names_the_choices(tmp_path: Path, missing: str) -> None:
    folder = made_up_model(tmp_path / "m")
    (folder / missing).unlink()
    with pytest.raises(UnknownModel, match=rf"{missing}.*Known are {MINILM}, .*bge-large"):
        find_model(str(folder))


@pytest.mark.parametrize("broken", ["[]", "{", '{"hidden_size": "wide"}', "{}"])
def test_a_broken_configuration_is_no_model(tmp_path: Path, broken: str) -> None:
    folder = made_up_model(tmp_path / "m")
    (folder / "config.json").write_text(broken, encoding="utf-8")
    with pytest.raises(UnknownModel, match="does not hold a complete sentence-transformers model"):
        find_model(str(folder))


ACME = "acme/no-such-model"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Settings of the hub's library: an empty cache, and a hub that nobody reaches."""
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return hub


@pytest.mark.parametrize(
    ("model_id", "local_only", "problem"),
    [
        (ACME, False, "is not on this disk, and the model hub cannot be reached: connect"),
        (ACME, True, f"on this disk, and none may be downloaded. Known are {MINILM}"),
        ("no such/model/at all", False, f"neither a folder here nor a hub id. Known are {MINILM}"),
        ("/nonexistent/folder", True, f"neither a folder here nor a hub id. Known are {MINILM}"),
    ],
)
def test_a_model_that_is_not_to_be_had_without_network_is_refused_quickly(
    hub: ModuleType, model_id: str, local_only: bool, problem: str
) -> None:
    started = time.monotonic()
    with pytest.raises(UnknownModel) as refused:
        find_model(model_id, local_only=local_only)
    assert problem in str(refused.value)
    assert model_id in str(refused.value)
    assert len(str(refused.value)) < 400
    assert time.monotonic() - started < 60


def test_a_hub_that_is_switched_off_is_said_to_be(hub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_what_the_hub_refuses_is_told_apart(
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
    assert choose_precision(wanted, of_vectors="fp32") == wanted


def test_auto_goes_on_in_fp32_where_the_vectors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anamnesis_pipeline.embeddings.models.has_gpu", lambda: True)
    found = [choose_precision("auto", of_vectors=of_vectors) for of_vectors in (None, "bf16", "fp32")]
    assert found == ["bf16", "bf16", "fp32"]


def test_a_folder_is_named_by_its_whole_path_and_a_known_model_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tiny", "all-MiniLM-L6-v2"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert named("tiny") == named("./tiny") == str(tmp_path / "tiny")
    assert named("all-MiniLM-L6-v2") == "all-MiniLM-L6-v2"
    assert named("nobody/no-such-model") == "nobody/no-such-model"


def test_weights_that_are_cut_off_are_refused_before_anything_is_embedded(tmp_path: Path) -> None:
    weights = made_up_model(tmp_path / "mine") / "model.safetensors"
    for kept in (3, 20, -1):
        whole = safetensors(b"weights")
        weights.write_bytes(whole[:kept])
        with pytest.raises(UnknownModel, match=r"model.safetensors is cut off|complete sentence-transformers model"):
            find_model(str(tmp_path / "mine"))
