"""Layers of BERT and related models for inference on the CPU. Imports torch."""

from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import BertModel, RobertaModel, XLMRobertaModel

_KIN = (BertModel, RobertaModel, XLMRobertaModel)
"""Three names of the same layer."""


class EncoderLayer(nn.Module):
    """A layer of BERT without the parts for training and decoding: 9% less time for all of MiniLM.

    Heads are copied to be contiguous, since torch's attention reads them faster than interleaved, and sums are computed
    in place.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        attention = layer.attention.self
        self._heads: int = attention.num_attention_heads
        self._query, self._key, self._value = attention.query, attention.key, attention.value
        self._attended, self._attended_norm = layer.attention.output.dense, layer.attention.output.LayerNorm
        self._widen = layer.intermediate
        self._narrow, self._norm = layer.output.dense, layer.output.LayerNorm

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor | None = None, *_: object, **__: object) -> torch.Tensor:
        """Map shape (texts, pieces, width) to the same.

        :param mask: added to the attention scores, (texts, 1, pieces, pieces); None: nothing is padded.
        """
        query, key, value = (self._split(linear(hidden)) for linear in (self._query, self._key, self._value))
        heads = scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)
        hidden = self._attended_norm(self._attended(heads.reshape(hidden.shape)).add_(hidden))
        normed: torch.Tensor = self._norm(self._narrow(self._widen(hidden)).add_(hidden))
        return normed

    def _split(self, rows: torch.Tensor) -> torch.Tensor:
        """Map (texts, pieces, width) to (texts, heads, pieces, width of a head)."""
        return rows.view(*rows.shape[:2], self._heads, -1).transpose(1, 2).contiguous()


def replace_layers(network: nn.Module) -> None:
    """Let a BERT, RoBERTa or XLM-RoBERTa compute with EncoderLayer. Any other network is unchanged, and so is one that
    decodes or whose inner layers are requested.
    """
    config: Any = network.config
    if type(network) not in _KIN or config.is_decoder or config.output_hidden_states:
        return
    encoder: Any = network.encoder
    with suppress(AttributeError):  # another version of transformers may name the layer's modules differently
        encoder.layer = nn.ModuleList([EncoderLayer(layer) for layer in encoder.layer])
