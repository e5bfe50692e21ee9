"""Sentence-transformers models made on the spot: random weights, any width, MiniLM's tokenizer."""

from pathlib import Path
from typing import Any

from anamnesis_pipeline.embeddings.models import ModelFiles, bundled_minilm, find_model


def random_model(folder: Path, dim: int = 32, layers: int = 1, window: int = 256, seed: int = 0) -> Path:
    """Write a BERT of this width and depth with mean pooling, as sentence-transformers saves it; returns `folder`."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(seed)
    bert = folder.with_name(folder.name + "-bert")
    tokenizer = AutoTokenizer.from_pretrained(bundled_minilm())
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * dim,
        max_position_embeddings=window,
    )
    BertModel(config).save_pretrained(bert)
    tokenizer.save_pretrained(bert)
    transformer = Transformer(str(bert), max_seq_length=window)
    SentenceTransformer(modules=[transformer, Pooling(dim)], device="cpu").save(str(folder))
    return folder


def saved(folder: Path, *more: object, pooling: str | tuple[str, ...] = "mean", scale: float = 1.0) -> ModelFiles:
    """A tiny model with this pooling and further modules; `scale` blows its weights up."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    base = as_published(random_model(folder / "base", layers=2))
    with torch.no_grad():
        for weights in base.parameters():
            weights.mul_(scale)
    modules = [base[0], Pooling(32, pooling_mode=pooling), *more]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"))
    return find_model(str(folder / "model"))


def saved_other(folder: Path, network: Any) -> ModelFiles:
    """This transformers model with MiniLM's tokenizer and mean pooling, saved with no window of its own."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer

    network.save_pretrained(folder / "base")
    tokenizer = AutoTokenizer.from_pretrained(bundled_minilm())
    tokenizer.model_max_length = int(1e30)
    tokenizer.save_pretrained(folder / "base")
    modules = [Transformer(str(folder / "base")), Pooling(32)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"))
    return find_model(str(folder / "model"))


def random_cross_encoder(folder: Path, scores: int = 1, layers: int = 1, dim: int = 32, heads: int = 4) -> Path:
    """Write a BERT that gives so many scores to a pair of texts, with MiniLM's tokenizer; returns `folder`."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(bundled_minilm())
    tokenizer.model_max_length = 512
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * dim,
        num_labels=scores,
        initializer_range=0.5,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def loaded(files: ModelFiles, precision: str = "fp32") -> Any:
    """The model of these files."""
    from anamnesis_pipeline.embeddings.transformer_model import TransformerModel

    return TransformerModel(files, precision)


def as_published(path: Path) -> Any:
    """The model of a folder in its authors' library."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(path), device="cpu", local_files_only=True)
