"""A sentence-transformers model in memory. Imports torch, which takes seconds: import it late.

A model reads only its first `window` word pieces and silently drops the rest, so longer texts are cut into windows.
Every window gets the special pieces that frame a whole text; the text's vector is the mean of its windows' vectors,
weighted by the pieces in each, at unit length.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize
from transformers import AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from anamnesis_pipeline.embeddings.batching import length_sorted_batches, padded_length
from anamnesis_pipeline.embeddings.encoder import Encoder
from anamnesis_pipeline.embeddings.models import ModelFiles, model_choices, modules_of
from anamnesis_pipeline.embeddings.pieces import is_quiet
from anamnesis_pipeline.embeddings.precision import MIN_FIDELITY, Device, measure_fidelity
from anamnesis_pipeline.embeddings.token_vectors import QUIET, Projection, Rows
from anamnesis_pipeline.errors import BadSetting, UnknownModel

# The calling worker tokenizes; the tokenizer would otherwise use every core.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
disable_progress_bar()  # type: ignore[no-untyped-call]  # the commands say for themselves what they wait for

WINDOW_TOKENS = 4_096
"""Limit of padded tokens in one batch of windows of long texts."""
UNPADDED_PIECES = 32
"""A single text up to this length is not padded in fp32: nearly all of its time is that of the linear layers, and 20
pieces take 15% less of it than 32."""

_Network = Callable[[dict[str, torch.Tensor]], Mapping[str, torch.Tensor]]
"""Maps `input_ids` and `attention_mask` to `sentence_embedding` and, if the model has them, `token_embeddings`."""
_Shape = Callable[[torch.Tensor], torch.Tensor]
"""Maps vectors of pieces to their stored form: shape (pieces, width) to (pieces, dims)."""

log = logging.getLogger(__name__)


class TransformerModel:
    """Converts token IDs to unit vectors. Stateless after loading, so threads may share it."""

    def __init__(
        self, files: ModelFiles, precision: str, device: Device = "cpu", fidelity: float | None = None
    ) -> None:
        """:param precision: `bf16` or `fp32` (see models.choose_precision).
        :param fidelity: lowest cosine to fp32 measured for this precision.
        :raises UnknownModel: the files do not load, or make vectors of another width than stated.
        :raises BadSetting: the device is `cuda` and this torch cannot use the GPU.
        """
        self.files = files
        self.precision = precision
        self.fidelity = fidelity
        self._device = device
        self._model, tokenizer = _read(files, torch.bfloat16 if precision == "bf16" else torch.float32, device)
        self._pad = tokenizer.pad_token_id or 0
        self._pad_left = tokenizer.padding_side == "left"
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._lead, self._tail = _special_ids(self._backend)
        self._weights = _weights(self._backend)
        self._check_width()

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return word piece IDs with special ones, of the whole text at any length. Runs on the calling thread."""
        return [found.ids for found in self._backend.encode_batch_fast(list(texts))]

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return vectors of one batch, shape (len(batch), dim), unit length. Runs on the calling thread.

        A text longer than the model's window is embedded in windows whose vectors are averaged.
        """
        return self._in_windows(batch, None)[0]

    def forward_with_tokens(
        self, batch: Sequence[Sequence[int]], projection: Projection | None
    ) -> tuple[NDArray[np.float32], list[Rows]]:
        """Return the same vectors, and those of each text's pieces from the same pass, without special ones.

        :param projection: applied to the pieces' vectors; None: they keep the model's width.
        :raises UnknownModel: the model gives no vectors of pieces.
        """
        return self._in_windows(batch, _shaped_by(projection, self._device))

    def _in_windows(
        self, batch: Sequence[Sequence[int]], shape: _Shape | None
    ) -> tuple[NDArray[np.float32], list[Rows]]:
        """Return vectors of the texts, and with `shape` those of their pieces, window after window."""
        window = self.files.window
        if all(len(ids) <= window for ids in batch):
            return self._compute(batch, shape)
        cut = [cut_windows(ids, self._lead, self._tail, window) for ids in batch]
        windows = [ids for text in cut for ids in text]
        vectors = np.empty((len(windows), self.files.dim), dtype=np.float32)
        pieces: dict[int, Rows] = {}
        for rows in length_sorted_batches([len(ids) for ids in windows], WINDOW_TOKENS):
            vectors[rows], found = self._compute([windows[row] for row in rows], shape)
            pieces.update(zip(rows, found, strict=shape is not None))
        counts = [len(text) for text in cut]
        averaged = average_windows(vectors, [len(ids) for ids in windows], counts)
        return averaged, join_windows(pieces, counts) if pieces else []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of a few texts in one batch, on the calling thread."""
        return self.forward(self.token_ids(texts))

    def _check_width(self) -> None:
        """Check the width, which modules unknown to models.py may change, before the store rejects it."""
        files, (found,) = self.files, self.embed(["a"]).shape[1:]
        if found != files.dim:
            raise UnknownModel(
                f"{files.model_id} at {files.path} makes vectors of {found} numbers, and its files say {files.dim}. "
                f"{model_choices()}"
            )

    def _compute(self, batch: Sequence[Sequence[int]], shape: _Shape | None) -> tuple[NDArray[np.float32], list[Rows]]:
        longest = max(map(len, batch))
        is_short_query = len(batch) == 1 and longest <= UNPADDED_PIECES and self.precision == "fp32"
        length = longest if is_short_query else padded_length(longest, self.files.window)
        ids = np.full((len(batch), length), self._pad, dtype=np.int64)
        mask = np.zeros((len(batch), length), dtype=np.int64)
        for row, text in enumerate(batch):
            place = slice(length - len(text), length) if self._pad_left else slice(len(text))
            ids[row, place] = text
            mask[row, place] = 1
        features: dict[str, Any] = {
            "input_ids": torch.from_numpy(ids).to(self._device),
            "attention_mask": torch.from_numpy(mask).to(self._device),
        }
        with torch.inference_mode():
            output = self._model(features)
            unit = normalize(output["sentence_embedding"].float(), dim=1)
            vectors = np.ascontiguousarray(unit.cpu().numpy(), dtype=np.float32)
            return vectors, self._pieces(output, batch, shape) if shape is not None else []

    def _pieces(self, output: Mapping[str, Any], batch: Sequence[Sequence[int]], shape: _Shape) -> list[Rows]:
        """Return vectors of each text's pieces between the special ones."""
        states = output.get("token_embeddings")
        if states is None:
            raise UnknownModel(
                f"{self.files.model_id} gives no vectors of single pieces; set ANAMNESIS_TOKEN_VECTORS to 0, then let "
                "it embed with: anamnesis reembed"
            )
        length, lead, tail = states.shape[1], len(self._lead), len(self._tail)
        counts = [len(ids) - lead - tail for ids in batch]
        starts = [(length - len(ids) if self._pad_left else 0) + lead for ids in batch]
        own = [state[start : start + count] for state, start, count in zip(states, starts, counts, strict=True)]
        rows = shape(torch.cat(own).float()).cpu().numpy()
        rows *= self._weights[[id_ for ids in batch for id_ in ids[lead : len(ids) - tail]], None]
        return np.split(rows, np.cumsum(counts)[:-1])


def _shaped_by(projection: Projection | None, device: Device) -> _Shape:
    """Return a function that normalizes and projects vectors of pieces."""
    if projection is None:
        return lambda states: normalize(states, dim=1)
    matrix = torch.from_numpy(projection).to(device)
    return lambda states: normalize(states @ matrix, dim=1)


def cut_windows(ids: Sequence[int], lead: Sequence[int], tail: Sequence[int], window: int) -> list[list[int]]:
    """Return the minimum number of windows that hold one text; a text that fits is its only window.

    :param ids: word pieces of the text, framed by `lead` and `tail`, the special ones that every text gets.
    :param window: maximum pieces in a window, including special ones.
    :raises ValueError: the special pieces leave no space.
    """
    if len(ids) <= window:
        return [list(ids)]
    room = window - len(lead) - len(tail)
    if room < 1:
        raise ValueError(f"a window of {window} pieces has no room beside {len(lead) + len(tail)} special ones")
    body = ids[len(lead) : len(ids) - len(tail)]
    return [[*lead, *body[start : start + room], *tail] for start in range(0, len(body), room)]


def average_windows(vectors: NDArray[np.float32], weights: Sequence[int], counts: Sequence[int]) -> NDArray[np.float32]:
    """Return one unit vector per text.

    :param vectors: shape (windows, dim), unit length, consecutive windows of each text.
    :param weights: pieces in each window.
    :param counts: windows of each text, at least one.
    """
    if len(counts) == len(vectors):
        return vectors
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.intp)
    sums = np.add.reduceat(vectors * np.asarray(weights, dtype=np.float32)[:, None], starts, axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / np.where(norms == 0, 1, norms), dtype=np.float32)


def join_windows(rows: Mapping[int, NDArray[np.float32]], counts: Sequence[int]) -> list[NDArray[np.float32]]:
    """Return the vectors of each text's pieces, window after window; windows do not overlap.

    :param rows: shape (pieces, dims) for each window, consecutive windows of each text.
    :param counts: windows of each text, at least one.
    """
    ends = np.cumsum(counts)
    firsts = ends - np.asarray(counts)
    return [
        np.concatenate([rows[number] for number in range(first, end)]) for first, end in zip(firsts, ends, strict=True)
    ]


def load_model(files: ModelFiles, precision: str, device: Device, fidelity: float | None) -> TransformerModel:
    """Load a model. A precision other than fp32 is compared with it first, unless it was before. A GPU that only
    emulates bf16, as those before Ampere do, gets fp32, since emulation is slower.

    :param fidelity: measured for this precision earlier; None: measure now.
    :raises UnknownModel: the files do not load.
    :raises BadSetting: the device is `cuda` and this torch cannot use the GPU.
    """
    if precision == "fp32" or _only_emulates_bf16(device):
        return TransformerModel(files, "fp32", device)
    model = TransformerModel(files, precision, device, fidelity)
    if fidelity is not None:
        return model
    reference = TransformerModel(files, "fp32", device)
    model.fidelity = measure_fidelity(model.embed, reference.embed)
    if model.fidelity >= MIN_FIDELITY:
        return model
    log.warning(
        "embedding model %s: in %s its vectors come as far from fp32 as cosine %.4f, and at least %.3f is wanted; "
        "it runs in fp32",
        files.model_id,
        precision,
        model.fidelity,
        MIN_FIDELITY,
    )
    return reference


def _only_emulates_bf16(device: Device) -> bool:
    is_there = device == "cuda" and torch.cuda.is_available()
    return is_there and not torch.cuda.is_bf16_supported(including_emulation=False)


def use_one_thread() -> None:
    """Restrict the calling worker to one torch thread: N workers then use N cores, not N x N."""
    torch.set_num_threads(1)


def _read(files: ModelFiles, dtype: torch.dtype, device: Device) -> tuple[_Network, Any]:
    """Return the network and its tokenizer."""
    if device == "cuda" and not torch.cuda.is_available():
        raise BadSetting(
            f"device: this torch ({torch.__version__}) cannot use the GPU; install one built for CUDA, or set "
            "ANAMNESIS_DEVICE to cpu"
        )
    try:
        encoder = Encoder.read(files, dtype, device)
        if encoder is not None:
            tokenizer = AutoTokenizer.from_pretrained(modules_of(files.path)[0].folder, local_files_only=True)
            if tokenizer.padding_side == "right":
                return encoder, tokenizer
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - 190 MiB that most models do not need

        model = SentenceTransformer(str(files.path), device=device, local_files_only=True).to(dtype).eval()
    except Exception as exc:
        raise UnknownModel(f"{files.model_id} at {files.path} does not load: {exc}. {model_choices()}") from exc
    return model, model.tokenizer


def _special_ids(backend: Any) -> tuple[list[int], list[int]]:
    """Return the special IDs before and after every text."""
    probe = backend.encode("a")
    special = probe.special_tokens_mask
    first = special.index(0)
    last = len(special) - special[::-1].index(0)
    return probe.ids[:first], probe.ids[last:]


def _weights(backend: Any) -> NDArray[np.float32]:
    """Return word piece ID -> its weight: lower without meaning alone."""
    weights = np.ones(backend.get_vocab_size(), dtype=np.float32)
    weights[[number for piece, number in backend.get_vocab().items() if is_quiet(piece)]] = QUIET
    return weights
