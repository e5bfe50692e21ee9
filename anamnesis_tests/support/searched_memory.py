"""A small searchable memory: a real store, real passages and the hashing embedder."""

from datetime import UTC, datetime, timedelta
from typing import Any

from anamnesis_pipeline.embeddings.base import QueryVectors, query_vectors
from anamnesis_pipeline.model import Episode, Passage, Space
from anamnesis_pipeline.pipeline.embed import embed_passages
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import SearchAnswer, SearchQuery
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.hashing_embedder import HashingEmbedder

SPACE = Space("hashing", "hashing-128", 128)
START = datetime(2026, 1, 1, tzinfo=UTC)
EMBEDDER = HashingEmbedder(SPACE.dim)


def embed_query(text: str, space: Space) -> QueryVectors:
    assert space.key == SPACE.key
    return query_vectors(EMBEDDER.embed_with_tokens([text], "query"))


class Memory:
    """`add` writes an episode whose passages are given texts; `ask` searches."""

    def __init__(self, store: Store) -> None:
        self.store = store
        store.spaces.put(SPACE)
        store.spaces.activate(SPACE.key)
        self.engine = Engine(store, embed_query)
        self._added = 0

    def add(self, *texts: str, embed: bool = True, **fields: Any) -> str:
        self._added += 1
        values: dict[str, Any] = {
            "episode_id": f"e{self._added:03}",
            "source": "direct",
            "timestamp": START + timedelta(hours=self._added),
            "instance": "mac",
            "project": "acme/api",
            "kind": "note",
            "summary": texts[0],
            "raw_exchange": "",
            **fields,
        }
        episode = Episode(**values)
        self.store.episodes.put([(episode, [Passage(n, text) for n, text in enumerate(texts)])])
        if embed:
            embed_passages(self.store, SPACE, self.store.episodes.passages_of(episode.episode_id), EMBEDDER)
        return episode.episode_id

    def ask(self, text: str, **more: Any) -> SearchAnswer:
        return self.engine.search(SearchQuery(text, **more))

    def ids(self, text: str, **more: Any) -> list[str]:
        return [hit.episode.episode_id for hit in self.ask(text, **more).hits]
