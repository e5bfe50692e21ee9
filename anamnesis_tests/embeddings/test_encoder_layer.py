"""The lean layers of BERT and its kin, held against those of transformers."""

import copy
from typing import Any

import pytest

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 300,
    "max_position_embeddings": 80,
    "attn_implementation": "sdpa",
}


def network_of(kind: str, **more: object) -> Any:
    """A transformers model of this kind with random weights, ready for inference."""
    import torch
    import transformers

    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**SIZES | more)
    return getattr(transformers, f"{kind}Model")(config).eval()


def replaced(network: Any) -> Any:
    from anamnesis_pipeline.embeddings.encoder_layer import replace_layers

    lean = copy.deepcopy(network)
    replace_layers(lean)
    return lean


def hidden_of(network: Any, padded: bool) -> Any:
    """Hidden states of the real pieces of three texts."""
    import torch

    ids = torch.arange(3 * 40).reshape(3, 40) + 5
    mask = torch.ones_like(ids)
    if padded:
        mask[1, 25:] = 0
        mask[2, 1:] = 0
    with torch.inference_mode():
        return network(input_ids=ids, attention_mask=mask).last_hidden_state.float()[mask == 1]


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "XLMRoberta"])
@pytest.mark.parametrize("padded", [False, True])
def test_lean_layers_compute_what_those_of_transformers_do(kind: str, padded: bool) -> None:
    import torch

    network = network_of(kind)
    lean = replaced(network)
    assert {type(layer).__name__ for layer in lean.encoder.layer} == {"EncoderLayer"}
    assert torch.allclose(hidden_of(lean, padded), hidden_of(network, padded), atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu_new"])
def test_the_activation_is_the_model_s_own(activation: str) -> None:
    import torch

    network = network_of("Bert", hidden_act=activation)
    assert torch.allclose(hidden_of(replaced(network), True), hidden_of(network, True), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "more"), [("Bert", {"is_decoder": True}), ("Bert", {"output_hidden_states": True}), ("Electra", {})]
)
def test_any_other_network_keeps_its_layers(kind: str, more: dict[str, object]) -> None:
    lean = replaced(network_of(kind, **more))
    assert {type(layer).__name__ for layer in lean.encoder.layer} == {f"{kind}Layer"}


def test_lean_and_packed_the_real_minilm_stays_within_bf16_of_fp32() -> None:
    import torch

    from anamnesis_pipeline.embeddings.models import MINILM, find_model
    from anamnesis_pipeline.embeddings.precision import MIN_FIDELITY, SAMPLES, lowest_cosine
    from anamnesis_pipeline.embeddings.transformer_model import TransformerModel

    files = find_model(MINILM)
    lean, reference = TransformerModel(files, "bf16"), TransformerModel(files, "fp32")
    assert lowest_cosine(lean.embed(SAMPLES), reference.embed(SAMPLES)) >= MIN_FIDELITY
    plain = copy.deepcopy(reference._model).to(torch.bfloat16)
    plain_vectors = plain.encode(list(SAMPLES), normalize_embeddings=True, convert_to_tensor=True).float().numpy()
    assert lowest_cosine(lean.embed(SAMPLES), plain_vectors) >= MIN_FIDELITY
