"""Linear layers with weights in the processor's multiplication order. Imports torch."""

from typing import Any

import torch
from torch import nn

_ROWS_HINT = 1024
"""Rows of a typical batch; oneDNN chooses the order of the weights for it. Other sizes work as well."""


class PackedLinear(nn.Module):
    """An nn.Linear for inference on the CPU whose bf16 weights are in oneDNN's blocked order.

    The plain layer reorders them for every batch, and writes its bias before it adds the product to it.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._weight: torch.Tensor = _onednn()._reorder_linear_weight(linear.weight.detach().contiguous(), _ROWS_HINT)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Map shape (..., in_features) to (..., out_features)."""
        product: torch.Tensor = _onednn()._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return product


def _onednn() -> Any:
    return torch.ops.mkldnn


def can_pack() -> bool:
    """Return whether this torch and this processor support PackedLinear."""
    wanted = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
    return (
        bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and all(hasattr(_onednn(), name) for name in wanted)
        and bool(_onednn()._is_mkldnn_bf16_supported())
    )


def pack_linears(module: nn.Module) -> None:
    """Replace every linear layer inside a bf16 module by its packed form, and release the plain weights."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child))
        else:
            pack_linears(child)
