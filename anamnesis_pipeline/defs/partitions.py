"""The partition dimensions of the pipeline and their keys."""

from collections.abc import Iterable, Sequence

import dagster as dg

SOURCES = dg.DynamicPartitionsDefinition(name="crawled_source")
"""One key per crawled source: a Claude project folder or a root of documents."""
EMBEDDED_SOURCES = dg.DynamicPartitionsDefinition(name="source")
"""One key per source with episodes, crawled or reserved (`model.RESERVED_SOURCES`)."""
SPACES = dg.DynamicPartitionsDefinition(name="space")
"""One key per embedding space that is built, searched, or can be built on request."""
SPACE_BY_SOURCE = dg.MultiPartitionsDefinition({"source": EMBEDDED_SOURCES, "space": SPACES})
"""Keys have the form `source|space`."""


def embed_key(source: str, space: str) -> str:
    """Return the partition of `embeddings` for a source in a space."""
    return str(dg.MultiPartitionKey({"source": source, "space": space}))


def split_embed_key(key: str) -> tuple[str, str]:
    """Split a partition of `embeddings` into (source, space)."""
    source, _, space = key.partition("|")
    return source, space


def new_keys(known: Iterable[str], keys: Iterable[str]) -> list[str]:
    """Return the unknown `keys`, once each and in order."""
    seen = set(known)
    return [key for key in dict.fromkeys(keys) if key not in seen]


def stretch(order: Sequence[str], first: str, last: str) -> Sequence[str]:
    """Return the keys from `first` to `last`."""
    return order[order.index(first) : order.index(last) + 1]


def contiguous_runs(order: Sequence[str], wanted: set[str], longest: int) -> list[tuple[str, str]]:
    """Return (first, last) of the stretches of `order` with wanted keys only, none longer than `longest`.

    Dagster can give a run a range of partitions: one run, and one model load, for many sources.
    """
    stretches: list[list[str]] = []
    previous_wanted = False
    for key in order:
        if key in wanted and previous_wanted and len(stretches[-1]) < longest:
            stretches[-1].append(key)
        elif key in wanted:
            stretches.append([key])
        previous_wanted = key in wanted
    return [(stretch[0], stretch[-1]) for stretch in stretches]
