"""How much of what is nearest a search finds: sampled vectors are looked for, and scanned for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.vector_docs import unpack
from anamnesis_pipeline.store.vector_recall import POOL, kth_scores, share_found, spread, unlike

Vectors = NDArray[np.float32]
PAGE_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class Sample:
    """Vectors of a variant that are looked for, of shape (n, dim), and the k-th highest score that each is to find."""

    queries: Vectors
    wanted: NDArray[np.float32]
    k: int

    def share(self, found: Sequence[Sequence[float]]) -> float:
        """Share of what is nearest among these scores, in [0, 1]."""
        return share_found(found, self.wanted, self.k)


def sample_of(tables: Tables, name: str, variant: str, dim: int, k: int, samples: int) -> Sample | None:
    """A sample that is spread over the passages by their keys, without any two that are alike; None: there are none."""
    ids = [found["_id"] for found in tables[name].each({}, ("_id",), order=[("_id", 1)])]
    pool = _vectors(tables, name, variant, dim, [ids[place] for place in spread(len(ids), POOL * samples)])
    if not len(pool):
        return None
    total = 0

    def pages() -> Iterator[Vectors]:
        nonlocal total
        for page in _pages(tables, name, variant):
            total += len(page)
            yield unpack(page, dim)

    queries = unlike(pool, samples)
    wanted = kth_scores(pages(), queries, k)
    return Sample(queries, wanted, min(k, total))


def _vectors(tables: Tables, name: str, variant: str, dim: int, ids: Sequence[int]) -> Vectors:
    where = {"_id": {"$in": list(ids)}, variant: {"$exists": True}}
    return unpack([found[variant] for found in tables[name].find(where, (variant,), order=[("_id", 1)])], dim)


def _pages(tables: Tables, name: str, variant: str) -> Iterator[list[bytes]]:
    page: list[bytes] = []
    for found in tables[name].each({variant: {"$exists": True}}, (variant,)):
        page.append(found[variant])
        if len(page) == PAGE_ROWS:
            yield page
            page = []
    if page:
        yield page
