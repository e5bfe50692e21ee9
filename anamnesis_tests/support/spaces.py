"""Models without files, and stores with something to embed."""

from collections.abc import Sequence
from pathlib import Path

from anamnesis_pipeline.embeddings.models import ModelFiles
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.embed import embed_sources
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.hashing_embedder import HashingEmbedder
from anamnesis_tests.support.samples import put

DIM = 32


def files_of(name: str, dim: int = DIM) -> ModelFiles:
    """A model of this name; its vectors come from hashing."""
    return ModelFiles(name, Path("/nowhere"), dim, "mean_tokens", 256, "", "", f"{sum(map(ord, name)):08x}")


def write(store: Store, count: int, source: str = "direct", first: int = 0) -> None:
    """Episodes of one passage, one a minute: the highest number is the newest."""
    for number in range(first, first + count):
        put(store, f"{source}-{number}", f"number {number} of {source}", minute=number, source=source)


def embed_all(store: Store, space: Space, sources: Sequence[str] = ("direct",), dim: int = DIM) -> None:
    """Vectors for everything the space lacks."""
    embed_sources(store, space.key, sources, HashingEmbedder(dim), 25)
