"""Sentence-transformers models made on the spot: random weights, any width, MiniLM's tokenizer."""

from pathlib import Path

from anamnesis_pipeline.embeddings.models import bundled_minilm


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
        vocab_size=tokenizer.vocab_size, hidden_size=dim, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=4 * dim, max_position_embeddings=window,
    )  # fmt: skip
    BertModel(config).save_pretrained(bert)
    tokenizer.save_pretrained(bert)
    transformer = Transformer(str(bert), max_seq_length=window)
    SentenceTransformer(modules=[transformer, Pooling(dim)], device="cpu").save(str(folder))
    return folder
