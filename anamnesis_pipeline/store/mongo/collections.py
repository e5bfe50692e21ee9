"""The few things that are asked of a collection, always within the transaction that is under way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.collection import Collection as DriverCollection
from pymongo.errors import ConnectionFailure, DocumentTooLarge, OperationFailure, PyMongoError
from pymongo.operations import SearchIndexModel

from anamnesis_pipeline.store.gateway import batches, can_be_stored
from anamnesis_pipeline.store.mongo.schema import Index, bring_about, validator_of

Document = dict[str, Any]
Filter = Mapping[str, Any]
Order = Sequence[tuple[str, int]]
Write = InsertOne[Document] | UpdateOne | UpdateMany | ReplaceOne[Document] | DeleteOne | DeleteMany

VALUES_AT_ONCE = 10_000
"""Values that one query names: ids are at most some 400 bytes."""

FETCHED_AT_ONCE = 1_000
"""Documents of one answer, which ends with 16 MB all the same. By itself the server gives 101 first."""

_NAMESPACE_EXISTS = 48


class Collection:
    """A collection, and the session that its calls belong to."""

    def __init__(self, driver: DriverCollection[Document], session: ClientSession | None) -> None:
        self._driver = driver
        self._session = session

    def find(
        self, where: Filter, fields: Sequence[str] = (), *, order: Order = (), limit: int | None = None, skip: int = 0
    ) -> list[Document]:
        """Documents that match, all their fields or some."""
        return list(self.each(where, fields, order=order, limit=limit, skip=skip))

    def each(
        self, where: Filter, fields: Sequence[str] = (), *, order: Order = (), limit: int | None = None, skip: int = 0
    ) -> Iterator[Document]:
        """As `find`, without holding all of them in memory."""
        if limit is not None and limit < 1:  # for the server 0 is no limit
            return
        yield from self._driver.find(
            where,
            _projection(fields),
            sort=list(order) or None,
            limit=limit or 0,
            skip=skip,
            batch_size=FETCHED_AT_ONCE,
            session=self._session,
        )

    def among(self, field: str, values: Iterable[Any], fields: Sequence[str] = (), **where: Any) -> Iterator[Document]:
        """Documents that have one of these values in a field, however many values they are: a command that names all of
        them would outgrow what the server takes (16 MB). Those that match several values of an array may come twice.

        :param where: further conditions, by field.
        """
        for batch in batches(list(filter(can_be_stored, dict.fromkeys(values))), VALUES_AT_ONCE):
            yield from self.each({**where, field: {"$in": batch}}, fields)

    def one(self, where: Filter, fields: Sequence[str] = (), *, order: Order = ()) -> Document | None:
        """The first document that matches."""
        return self._driver.find_one(where, _projection(fields), sort=list(order) or None, session=self._session)

    def has(self, where: Filter) -> bool:
        """Whether any document matches."""
        return self._driver.find_one(where, {"_id": 1}, session=self._session) is not None

    def count(self, where: Filter) -> int:
        """How many documents match."""
        return self._driver.count_documents(where, session=self._session)

    def size(self) -> int:
        """How many documents there are, which the server knows without looking; after a crash of it, about how many."""
        return self._driver.estimated_document_count()

    def values(self, field: str, where: Filter) -> list[Any]:
        """Distinct values of a field, sorted."""
        return sorted(self._driver.distinct(field, where, session=self._session))

    def aggregate(self, stages: Sequence[Mapping[str, Any]]) -> list[Document]:
        """What a pipeline yields."""
        return [dict(found) for found in self._driver.aggregate(list(stages), session=self._session)]

    def search(self, stages: Sequence[Mapping[str, Any]]) -> list[Document]:
        """What a pipeline yields that begins with `$search`, `$searchMeta` or `$vectorSearch`. Outside of any
        transaction, and of what this server has: these stages are refused with a read concern other than `local`.

        A separate command, which the driver asks once: a search service that is away it would ask again and again
        for as long as the read may take. Where the server went, the one that is there now is asked.
        """
        command = {
            "aggregate": self._driver.name,
            "pipeline": list(stages),
            "cursor": {},
            "readConcern": {"level": "local"},
        }

        def ask() -> list[Document]:
            found = self._driver.database.cursor_command(dict(command), codec_options=self._driver.codec_options)
            return [dict(each) for each in found]

        try:
            return ask()
        except ConnectionFailure:
            return ask()

    def insert(self, documents: Sequence[Document]) -> None:
        """Write new documents."""
        if documents:
            with self._named():
                self._driver.insert_many(documents, session=self._session)

    def upsert(self, where: Filter, change: Mapping[str, Any]) -> bool:
        """Change the one that matches, or make it; True when it was made."""
        with self._named():
            return self._driver.update_one(where, change, upsert=True, session=self._session).upserted_id is not None

    def update(self, where: Filter, change: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> int:
        """Change all that match, by operators or by a pipeline; returns how many matched."""
        with self._named():
            return self._driver.update_many(where, change, session=self._session).matched_count

    def delete(self, where: Filter) -> int:
        """Remove all that match; returns how many did."""
        return self._driver.delete_many(where, session=self._session).deleted_count

    def write(self, writes: Sequence[Write]) -> int:
        """Several writes in order, one command for each run of the same kind; returns how many documents were made,
        matched or removed.
        """
        if not writes:
            return 0
        with self._named():
            done = self._driver.bulk_write(writes, session=self._session)
        return done.inserted_count + done.matched_count + done.upserted_count + done.deleted_count

    def made(self, writes: Sequence[Write]) -> int:
        """As `write`; returns how many documents were made."""
        if not writes:
            return 0
        with self._named():
            return self._driver.bulk_write(writes, session=self._session).upserted_count

    def make(self, indexes: Sequence[Index], former: Iterable[str] = ()) -> None:
        """Make the collection where it is missing, and let validator and indexes be those of this version; concurrent
        starts may all do so.

        :param former: names of indexes that an earlier version made.
        """
        name, validator = self._driver.name, validator_of(self._driver.name)
        database = self._driver.database
        try:
            database.create_collection(name, check_exists=False, validator=validator)
        except OperationFailure as exc:
            if exc.code != _NAMESPACE_EXISTS:
                raise
            (found,) = database.list_collections(filter={"name": name})
            if found["options"].get("validator") != validator:
                database.command("collMod", name, validator=validator)
        bring_about(self._driver, indexes, frozenset(former))

    def drop(self) -> None:
        """Remove the collection with its indexes, outside of any transaction."""
        self._driver.drop()

    def search_indexes(self) -> list[Document]:
        """Definition and state of each search index."""
        return [dict(found) for found in self._driver.list_search_indexes()]

    def create_search_index(self, name: str, kind: str, definition: Mapping[str, Any]) -> None:
        """Ask for a search index; it is built some time later."""
        self._driver.create_search_index(SearchIndexModel(definition=definition, name=name, type=kind))

    def drop_search_index(self, name: str) -> None:
        """Remove a search index."""
        self._driver.drop_search_index(name)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Note with an error of the driver which collection was written."""
        try:
            yield
        except (PyMongoError, DocumentTooLarge) as exc:
            exc.add_note(self._driver.name)
            raise


def _projection(fields: Sequence[str]) -> dict[str, int] | None:
    return dict.fromkeys(fields, 1) | ({} if "_id" in fields else {"_id": 0}) if fields else None
