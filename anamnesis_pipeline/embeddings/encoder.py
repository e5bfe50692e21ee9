"""BERT, RoBERTa and XLM-RoBERTa for inference, read from their files. Imports torch.

It imports neither sentence-transformers nor the models of transformers: these import pandas, scikit-learn, scipy and
sympy, 190 MiB of each process that embeds, and take more time than the model.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, relu, scaled_dot_product_attention

from anamnesis_pipeline.embeddings.models import ModelFiles, modules_of

_FIRST_POSITION = {"bert": 0, "roberta": 1, "xlm-roberta": 1}
"""Kinds of networks -> position of a text's first piece, counted from that of padding where there is one."""
_POOLING = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls"}
_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "relu": relu}


class Encoder:
    """A network with one pooling. Has no state besides the weights, so threads may share it."""

    def __init__(self, weights: Mapping[str, Tensor], config: Mapping[str, Any], pooling: str) -> None:
        """:param weights: as transformers names them, without the network's own prefix.
        :param config: the network's config.json.
        :param pooling: `mean` or `cls`.
        :raises KeyError: a weight is missing.
        """
        self._pooling = pooling
        self._heads = int(config["num_attention_heads"])
        self._epsilon = float(config.get("layer_norm_eps", 1e-12))
        self._activation = _ACTIVATIONS[config["hidden_act"]]
        first = _FIRST_POSITION[config["model_type"]]
        first = first and first + int(config.get("pad_token_id") or 0)
        self._words = weights["embeddings.word_embeddings.weight"]
        self._positions = weights["embeddings.position_embeddings.weight"][first:]
        self._type = weights["embeddings.token_type_embeddings.weight"][0]
        self._norm = _pair(weights, "embeddings.LayerNorm")
        self._layers = [
            {
                name.removesuffix(".dense"): _pair(weights, f"encoder.layer.{number}.{name}")
                for name in (
                    *(f"attention.self.{part}" for part in ("query", "key", "value")),
                    *("attention.output.dense", "attention.output.LayerNorm"),
                    *("intermediate.dense", "output.dense", "output.LayerNorm"),
                )
            }
            for number in range(int(config["num_hidden_layers"]))
        ]

    @classmethod
    def read(cls, files: ModelFiles, dtype: torch.dtype, device: str) -> Self | None:
        """Return the network of a model; None if its files ask for more than this class computes."""
        transformer, *others = modules_of(files.path)
        config_file, weights_file = transformer.folder / "config.json", transformer.folder / "model.safetensors"
        config, pooling = json.loads(config_file.read_text(encoding="utf-8")), _POOLING.get(files.pooling)
        is_known = (
            [module.kind for module in others] in (["Pooling"], ["Pooling", "Normalize"])
            and config.get("model_type") in _FIRST_POSITION
            and config.get("hidden_act") in _ACTIVATIONS
            and config.get("position_embedding_type", "absolute") == "absolute"
            and not config.get("is_decoder")
        )
        if not is_known or pooling is None or not weights_file.is_file():
            return None
        found = load_file(weights_file)
        prefix = f"{config['model_type'].replace('xlm-', '')}."
        weights = {name.removeprefix(prefix): each.to(device, dtype) for name, each in found.items()}
        try:
            return cls(weights, config, pooling)
        except KeyError:  # written by an old or another library
            return None

    def __call__(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return `sentence_embedding`, shape (texts, width), and `token_embeddings`, shape (texts, pieces, width).

        :param features: `input_ids` and `attention_mask`, shape (texts, pieces), padded on the right.
        """
        ids, mask = features["input_ids"], features["attention_mask"]
        hidden = self._normed(self._words[ids] + self._type + self._positions[: ids.shape[1]], self._norm)
        hidden_pieces = None
        if not bool(mask.all()):
            lowest = torch.finfo(hidden.dtype).min
            hidden_pieces = torch.zeros_like(mask, dtype=hidden.dtype).masked_fill_(mask == 0, lowest)[:, None, None]
        for layer in self._layers:
            hidden = self._through(layer, hidden, hidden_pieces)
        if self._pooling == "cls":
            return {"sentence_embedding": hidden[:, 0], "token_embeddings": hidden}
        counted = mask[:, :, None].float()
        return {"sentence_embedding": (hidden * counted).sum(1) / counted.sum(1), "token_embeddings": hidden}

    def _through(self, layer: Mapping[str, tuple[Tensor, Tensor]], hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Map shape (texts, pieces, width) to the same. Heads are copied to be contiguous, since torch's attention
        reads them faster than interleaved, and sums are computed in place.

        :param mask: added to the attention scores, shape (texts, 1, 1, pieces); None: nothing is padded.
        """
        query, key, value = (
            linear(hidden, *layer[f"attention.self.{part}"])
            .view(*hidden.shape[:2], self._heads, -1)
            .transpose(1, 2)
            .contiguous()
            for part in ("query", "key", "value")
        )
        heads = scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)
        attended = linear(heads.reshape(hidden.shape), *layer["attention.output"]).add_(hidden)
        hidden = self._normed(attended, layer["attention.output.LayerNorm"])
        wide = self._activation(linear(hidden, *layer["intermediate"]))
        return self._normed(linear(wide, *layer["output"]).add_(hidden), layer["output.LayerNorm"])

    def _normed(self, hidden: Tensor, norm: tuple[Tensor, Tensor]) -> Tensor:
        return layer_norm(hidden, hidden.shape[-1:], *norm, self._epsilon)


def _pair(weights: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]
