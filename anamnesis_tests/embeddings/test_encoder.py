"""The encoder of BERT and its kin, held against transformers and sentence-transformers."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.models import ModelFiles
from anamnesis_tests.support.tiny_models import as_published, loaded, saved, saved_other

TEXTS = ["ok", "why did webhook retries double-charge", "a longer text " * 9, "日本語"]
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 30_522,
    "max_position_embeddings": 80,
}


def network_of(kind: str, **more: object) -> Any:
    """A transformers model of this kind with random weights."""
    import torch
    import transformers

    torch.manual_seed(1)
    return getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**SIZES | more))


def encoder_of(files: ModelFiles) -> Any:
    import torch

    from anamnesis_pipeline.embeddings.encoder import Encoder

    return Encoder.read(files, torch.float32, "cpu")


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Bert", {}),
        ("Bert", {"hidden_act": "relu", "layer_norm_eps": 1e-5}),
        ("Roberta", {"pad_token_id": 1}),
        ("XLMRoberta", {"pad_token_id": 1}),
        ("Roberta", {"pad_token_id": 0}),
    ],
)
def test_encoder_makes_the_vectors_of_transformers(tmp_path: Path, kind: str, more: dict[str, object]) -> None:
    files = saved_other(tmp_path, network_of(kind, **more))
    assert encoder_of(files) is not None
    expected = as_published(files.path)
    vectors, pieces = loaded(files).forward_with_tokens(loaded(files).token_ids(TEXTS), None)
    alone = [expected.encode(text, normalize_embeddings=True) for text in TEXTS]
    assert np.allclose(vectors, alone, atol=1e-5)
    states = expected.encode(TEXTS[1], output_value="token_embeddings").cpu().numpy()[1:-1]
    lengths = np.linalg.norm(pieces[1], axis=1)  # rows are weighted
    assert np.allclose(pieces[1] / lengths[:, None], states / np.linalg.norm(states, axis=1)[:, None], atol=1e-5)


def test_encoder_reads_weights_with_the_prefix_of_a_task(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    files = saved(tmp_path, pooling="cls")
    before = loaded(files).embed(TEXTS)
    weights = next(files.path.rglob("model.safetensors"))
    save_file({f"bert.{name}": each for name, each in load_file(weights).items()}, weights)
    assert np.array_equal(loaded(files).embed(TEXTS), before)


@pytest.mark.parametrize(
    ("kind", "more"), [("Bert", {"is_decoder": True}), ("Bert", {"hidden_act": "gelu_new"}), ("Electra", {})]
)
def test_other_networks_are_left_to_sentence_transformers(tmp_path: Path, kind: str, more: dict[str, object]) -> None:
    files = saved_other(tmp_path, network_of(kind, **more))
    assert encoder_of(files) is None
    assert loaded(files).embed(TEXTS).shape == (4, 64)


def test_max_pooling_is_left_to_sentence_transformers(tmp_path: Path) -> None:
    assert encoder_of(saved(tmp_path, pooling="max")) is None


def test_minilm_in_bf16_stays_near_fp32() -> None:
    from anamnesis_pipeline.embeddings.models import MINILM, find_model
    from anamnesis_pipeline.embeddings.precision import MIN_FIDELITY, SAMPLES, lowest_cosine

    files = find_model(MINILM)
    assert lowest_cosine(loaded(files, "bf16").embed(SAMPLES), loaded(files).embed(SAMPLES)) >= MIN_FIDELITY


def test_minilm_loads_without_sentence_transformers() -> None:
    code = (
        "import sys; from anamnesis_pipeline.embeddings.models import MINILM, find_model\n"
        "from anamnesis_pipeline.embeddings.transformer_model import TransformerModel\n"
        "TransformerModel(find_model(MINILM), 'fp32').embed(['a'])\n"
        "print({'sentence_transformers', 'sklearn', 'scipy', 'pandas', 'sympy'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
