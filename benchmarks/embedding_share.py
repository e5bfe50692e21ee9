"""What part of the processor's matrix rate a whole model reaches, and where the rest of the time goes.

Every forward pass is followed by its own matrix products alone, on the same thread: a machine that other work slows
down slows both. Seconds are CPU time of the thread. `embedding.py` runs
this as its part `share`; it runs itself once more without AMX.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from embedding_designs import by_tokens, on_cores, table
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertModel

from anamnesis_pipeline.embeddings.batching import padded_length
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.models import MINILM, find_model
from anamnesis_pipeline.embeddings.transformer_model import TransformerModel

CORES = available_cores()
SQUARE = 2048
TEXTS = 120

Rates = dict[str, float]
CEILINGS = {"linear": "its linear layers", "all": "all its products", "square": f"a square of {SQUARE:,}"}
"""What a model's rate is held against."""


@dataclass(frozen=True)
class Shape:
    """What decides how many operations a text costs."""

    hidden: int
    intermediate: int
    layers: int
    heads: int

    def linear(self, pieces: int) -> float:
        """Multiplications and additions of the linear layers for so many pieces."""
        return 2.0 * self.layers * pieces * (4 * self.hidden**2 + 2 * self.hidden * self.intermediate)

    def attention(self, pieces: int) -> float:
        """Those of the two products that attention needs for one text of so many pieces."""
        return 4.0 * self.layers * pieces**2 * self.hidden


MINILM_SHAPE = Shape(384, 1536, 6, 12)
LARGE_SHAPE = Shape(1024, 4096, 24, 16)
"""Of bge-large-en-v1.5."""


class Products:
    """The matrix products of one batch and nothing else, by torch.mm and torch.bmm, all operands contiguous."""

    def __init__(self, shape: Shape, dtype: torch.dtype, texts: int, pieces: int) -> None:
        def numbers(*sizes: int) -> torch.Tensor:
            return torch.randn(sizes).to(dtype)

        hidden, wide, rows = shape.hidden, shape.intermediate, texts * pieces
        sizes = [(hidden, hidden)] * 4 + [(hidden, wide), (wide, hidden)]
        self._layers = shape.layers
        self._pairs = [(numbers(rows, inner), numbers(inner, outer)) for inner, outer in sizes]
        heads = [numbers(texts * shape.heads, pieces, hidden // shape.heads) for _ in range(3)]
        self._query, self._key, self._value = heads
        self._square = numbers(SQUARE, SQUARE)
        self.operations = {
            "linear": shape.linear(rows),
            "attention": texts * shape.attention(pieces),
            "square": 2.0 * SQUARE**3,
        }

    def linear(self) -> None:
        """Those of all linear layers."""
        for _ in range(self._layers):
            for left, right in self._pairs:
                torch.mm(left, right)

    def attention(self) -> None:
        """Scores, and their products with the values, of all layers."""
        for _ in range(self._layers):
            torch.bmm(torch.bmm(self._query, self._key.transpose(1, 2)), self._value)

    def square(self) -> None:
        """One large product, the machine's rate at its best."""
        torch.mm(self._square, self._square)


def seconds_of(work: Callable[[], object]) -> float:
    """CPU time of this thread."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def rates_on_core(
    model: TransformerModel, batches: Sequence[list[list[int]]], shape: Shape, rounds: int
) -> list[Rates]:
    """GFLOP/s in every round but the first, which warms up. The model is credited with real pieces only."""
    dtype = torch.bfloat16 if model.precision == "bf16" else torch.float32
    plain = [
        Products(shape, dtype, len(batch), padded_length(max(map(len, batch)), model.files.window)) for batch in batches
    ]
    useful = sum(shape.linear(len(ids)) + shape.attention(len(ids)) for batch in batches for ids in batch)
    alone = ("linear", "attention", "square")
    done = {kind: sum(products.operations[kind] for products in plain) for kind in alone}
    done |= {"model": useful, "all": done["linear"] + done["attention"]}
    found = []
    for _ in range(rounds + 1):
        spent: Rates = defaultdict(float)
        for batch, products in zip(batches, plain, strict=True):
            spent["model"] += seconds_of(lambda batch=batch: model.forward(batch))
            for kind in alone:
                spent[kind] += seconds_of(getattr(products, kind))
        spent["all"] = spent["linear"] + spent["attention"]
        found.append({kind: done[kind] / spent[kind] / 1e9 for kind in done})
    return found[1:]


def row_of(name: str, model: TransformerModel, texts: Sequence[str], shape: Shape, rounds: int) -> list[str]:
    """Medians over the rounds of rates, summed over the cores, and of what they are of each other."""
    token_ids = model.token_ids(texts)
    batches = [[token_ids[number] for number in batch] for batch in by_tokens([len(ids) for ids in token_ids])]
    of_cores: list[list[Rates]] = [[] for _ in CORES]

    def work(number: int) -> None:
        of_cores[number] = rates_on_core(model, batches[number :: len(CORES)], shape, rounds)

    on_cores(CORES, 1, work)
    by_round = [
        {kind: sum(rates[kind] for rates in cores) for kind in cores[0]} for cores in zip(*of_cores, strict=True)
    ]
    medians = [f"{statistics.median(rates[kind] for rates in by_round):,.0f}" for kind in ("model", *CEILINGS)]
    return [name, *medians, *(share_text([rates["model"] / rates[kind] for rates in by_round]) for kind in CEILINGS)]


def share_text(shares: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"


def share(texts: Sequence[str], rounds: int) -> None:
    """MiniLM in both precisions, with AMX and without, and the shape of a large model; then MiniLM's profile."""
    rows = [share_of_minilm(texts, rounds, "bf16"), share_of_minilm(texts, rounds, "fp32")]
    if "amx_bf16" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace"):
        rows.append(share_without_amx(texts, rounds))
    rows.append(share_of_large(texts, rounds))
    rates = [f"GFLOP/s of {name}" for name in CEILINGS.values()]
    table(["model, precision", "GFLOP/s", *rates, *(f"share of {name}" for name in CEILINGS.values())], rows)
    profile(texts)


def share_of_minilm(texts: Sequence[str], rounds: int, precision: str, note: str = "") -> list[str]:
    model = TransformerModel(find_model(MINILM), precision)
    chosen = random.Random(2).sample(texts, TEXTS if precision == "bf16" else TEXTS // 3)
    return row_of(f"MiniLM, {precision}{note}", model, chosen, MINILM_SHAPE, 2 * rounds)


def share_without_amx(texts: Sequence[str], rounds: int) -> list[str]:
    """In another process: oneDNN reads what it may use of the processor once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_text(json.dumps(random.Random(2).sample(texts, TEXTS)), encoding="utf-8")
        command = [sys.executable, __file__, "--texts", str(path), "--rounds", str(rounds)]
        environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    row: list[str] = json.loads(done.stdout.splitlines()[-1])
    return row


def share_of_large(texts: Sequence[str], rounds: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = random_bert(Path(folder), LARGE_SHAPE)
        model = TransformerModel(find_model(str(path)), "bf16")
        return row_of("bge-large's shape, bf16", model, random.Random(2).sample(texts, 24), LARGE_SHAPE, min(rounds, 2))


def random_bert(folder: Path, shape: Shape) -> Path:
    """A model of this shape with random weights."""
    tokenizer = AutoTokenizer.from_pretrained(find_model(MINILM).path)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate,
    )
    BertModel(config).to(torch.bfloat16).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert"), max_seq_length=512), Pooling(shape.hidden)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"))
    return folder / "model"


def profile(texts: Sequence[str]) -> None:
    """Where MiniLM's time goes, on one core."""
    model = TransformerModel(find_model(MINILM), "bf16")
    token_ids = model.token_ids(random.Random(3).sample(texts, 100))
    batches = [[token_ids[i] for i in batch] for batch in by_tokens([len(ids) for ids in token_ids])]
    spent: dict[str, float] = defaultdict(float)

    def work(_: int) -> None:
        for batch in batches:
            model.forward(batch)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for batch in batches:
                model.forward(batch)
        for event in profiler.key_averages():
            spent[_PARTS.get(event.key, "everything else")] += event.self_cpu_time_total / 1000 / len(token_ids)

    on_cores(CORES[:1], 1, work)
    total = sum(spent.values())
    rows = [[name, f"{ms:.2f}", f"{ms / total:.0%}"] for name, ms in sorted(spent.items(), key=lambda item: -item[1])]
    table(["MiniLM bf16, one core", "ms a text", "share"], rows)


_PARTS = {
    "aten::addmm": "linear layers",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "attention (softmax, mostly)",
    "aten::gelu": "GELU",
    "aten::native_layer_norm": "layer norm",
    "aten::add_": "residual sums",
    "aten::copy_": "copies of the heads",
}


def main() -> None:
    """MiniLM in bf16, as this process finds the processor: a row of the table, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    texts = json.loads(args.texts.read_text(encoding="utf-8"))
    print(json.dumps(share_of_minilm(texts, args.rounds, "bf16", ", AMX off")))


if __name__ == "__main__":
    main()
