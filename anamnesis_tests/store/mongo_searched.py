"""Stores in MongoDB whose search process the tests of searches steer, and small questions to them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pymongo import MongoClient
from pymongo.database import Database

from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo.opening import open_mongo
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.samples import put

NAME = "searched"

Open = Callable[..., Store]


def handles(server: LoopbackServer) -> Iterator[Open]:
    """Opens the store once more with each call, as another process would; all are closed at the end."""
    opened: list[Store] = []

    def open_another(**options: Any) -> Store:
        opened.append(open_mongo(server.uri, NAME, **options))
        return opened[-1]

    yield open_another
    for store in opened:
        store.close()


def found(store: Store, *words: str, k: int = 1_000, **filters: Any) -> list[str]:
    """Ids of the episodes that have any of `words`, best first."""
    return [hit.episode_id for hit in store.text.matching(words, k, EpisodeFilter(**filters))]


def near(store: Store, vector: np.ndarray, k: int = 1_000, **filters: Any) -> list[str]:
    """Ids of the episodes nearest in space `s`, best first."""
    return [hit.episode_id for hit in store.vectors.nearest("s", Variant.TEXT, vector, k, EpisodeFilter(**filters))]


def kept(store: Store, episode_id: str, text: str, vector: np.ndarray, **fields: Any) -> int:
    """Write an episode of one passage with its vector in space `s`; returns the key."""
    (key,) = put(store, episode_id, text, **fields)
    store.vectors.put("s", Variant.TEXT, [key], vector[None])
    return key


@contextmanager
def from_outside(server: LoopbackServer) -> Iterator[Database[dict[str, Any]]]:
    """The database of the store, as its administrator sees it."""
    with MongoClient[dict[str, Any]](server.uri) as client:
        yield client[NAME]


def search_indexes(server: LoopbackServer, collection: str) -> list[str]:
    """Their names."""
    with from_outside(server) as database:
        return sorted(index["name"] for index in database[collection].list_search_indexes())


def drop_search_indexes(server: LoopbackServer, *collections: str) -> None:
    """As somebody may who administers the server."""
    with from_outside(server) as database:
        for collection in collections:
            for index in search_indexes(server, collection):
                database[collection].drop_search_index(index)


def wait_until_queryable(server: LoopbackServer, *collections: str) -> None:
    """Their search indexes have been built."""
    wait_for(lambda: all(index["queryable"] for each in collections for index in server.catalog.list(NAME, each)))


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Until this is true; a busy machine takes its time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
