"""Pages and counts by a filter in MongoDB, and what lacks vectors there."""

from collections.abc import Iterable, Sequence

from typing_extensions import override

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.contracts import Lacking, Native
from anamnesis_pipeline.store.episode_values import EPISODE_FIELDS
from anamnesis_pipeline.store.gateway import Row
from anamnesis_pipeline.store.mongo import pending
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.facets import of_episodes
from anamnesis_pipeline.store.mongo.passage_docs import terms_of
from anamnesis_pipeline.store.mongo.space_docs import live_spaces


class MongoNative(Native):
    """What MongoDB does in its own form."""

    @override
    def page(
        self,
        tables: MongoTables,
        where: Where,
        limit: int,
        after: tuple[str, str] | None = None,
        skip: int = 0,
        *,
        oldest_first: bool = False,
    ) -> list[Row]:
        way, operator = (1, "$gt") if oldest_first else (-1, "$lt")
        behind: Document = {}
        if after is not None:
            at, episode_id = after
            behind = {
                "timestamp": {f"{operator}e": at},
                "$or": [{"timestamp": {operator: at}}, {"timestamp": at, "_id": {operator: episode_id}}],
            }
        found = tables.collections["episodes"].find(
            {"$and": [of_episodes(where), behind]},
            ["_id" if name == "episode_id" else name for name in EPISODE_FIELDS],
            order=[("timestamp", way), ("_id", way)],
            limit=limit,
            skip=skip,
        )
        return [{**document, "episode_id": document["_id"]} for document in found]

    @override
    def count(self, tables: MongoTables, where: Where) -> int:
        return tables.collections["episodes"].count(of_episodes(where))

    @override
    def projects(self, tables: MongoTables) -> list[str]:
        return tables.collections["episodes"].values("project", {})

    @override
    def note_lacking(self, tables: MongoTables, written: Sequence[Lacking]) -> None:
        pending.note(tables.collections, live_spaces(tables.collections), written)

    @override
    def prepare(self, texts: Iterable[str]) -> None:
        """What is worked out is remembered: a transaction may run again."""
        for text in texts:
            terms_of(text)
