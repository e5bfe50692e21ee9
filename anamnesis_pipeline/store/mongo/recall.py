"""How much of what is nearest a search finds: sampled vectors are looked for, and scanned for."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import ScoredPassage
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.vector_docs import unpack
from anamnesis_pipeline.store.vector_recall import kth_scores, share_found

Vectors = NDArray[np.float32]
PAGE_ROWS = 4_096


def recall_of(
    tables: Tables,
    name: str,
    variant: str,
    dim: int,
    k: int,
    samples: int,
    search: Callable[[Vectors], list[ScoredPassage]],
) -> float:
    """See `VectorIndex.recall`, of one variant. Samples are spread over the passages by their keys.

    :param search: the k nearest of a vector of shape (dim,), of everything.
    """
    ids = [found["_id"] for found in tables[name].each({}, ("_id",), order=[("_id", 1)])]
    spread = np.unique(np.linspace(0, max(len(ids) - 1, 0), samples).astype(int))
    queries = _vectors(tables, name, variant, dim, [ids[place] for place in spread] if ids else [])
    if not len(queries):
        return 1.0
    total = 0

    def pages() -> Iterator[Vectors]:
        nonlocal total
        for page in _pages(tables, name, variant):
            total += len(page)
            yield unpack(page, dim)

    wanted = kth_scores(pages(), queries, k)
    found = [[hit.score for hit in search(query)] for query in queries]
    return share_found(found, wanted, min(k, total))


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
