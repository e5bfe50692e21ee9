"""Collections, indexes and search indexes: what makes, changes, lists and removes them.

https://www.mongodb.com/docs/manual/reference/command/nav-administration/
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anamnesis_tests.mongo_server.engine import ById
from anamnesis_tests.mongo_server.indexes import Index
from anamnesis_tests.mongo_server.matching import compile_filter
from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.requests import FIRST_BATCH, Request
from anamnesis_tests.mongo_server.storage import Collection
from anamnesis_tests.mongo_server.values import Document, is_true

if TYPE_CHECKING:
    from anamnesis_tests.mongo_server.search_catalog import SearchCatalog

_COLLECTION = ("validator", "validationLevel", "validationAction")


def _existing(request: Request) -> Collection:
    collection = request.engine.collection(request.database, request.target)
    if collection is None:
        raise Refusal(26, f"ns does not exist: {request.database}.{request.target}")
    return collection


def _options(command: Mapping[str, Any]) -> Document:
    """Validation options.

    :raises Refusal: one of them is none.
    """
    options = {name: command[name] for name in _COLLECTION if name in command}
    if options.get("validationLevel", "strict") not in ("strict", "moderate", "off"):
        raise Refusal(2, f"Enumeration value '{options['validationLevel']}' for field 'validationLevel' is no value.")
    if options.get("validationAction", "error") not in ("error", "warn"):
        raise Refusal(2, f"Enumeration value '{options['validationAction']}' for field 'validationAction' is no value.")
    compile_filter(options.get("validator") or {})
    return options


def create(request: Request, _: "SearchCatalog") -> Document:
    """Make a collection."""
    request.allow(*_COLLECTION)
    options = _options(request.command)
    held = request.engine.collection(request.database, request.target)
    if held is not None and held.visible:
        raise Refusal(48, f"Collection {held.namespace} already exists.")
    collection = request.engine.made(request.database, request.target)
    collection.configure(options)
    collection.visible = True
    return {}


def coll_mod(request: Request, _: "SearchCatalog") -> Document:
    """Change the validation of a collection."""
    request.allow(*_COLLECTION)
    collection = _existing(request)
    request.engine.settle(collection)
    collection.configure(_options(request.command))
    return {}


def drop(request: Request, catalog: "SearchCatalog") -> Document:
    """Remove a collection; one that is not there is removed already."""
    request.allow()
    collection = request.engine.collection(request.database, request.target)
    if collection is None:
        return {}
    count = len(collection.indexes)
    request.engine.drop(collection)
    catalog.drop_collection(request.database, collection.name)
    return {"nIndexesWas": count, "ns": collection.namespace}


def drop_database(request: Request, catalog: "SearchCatalog") -> Document:
    """Remove a database."""
    request.allow()
    for collection in list(request.engine.databases.get(request.database, {}).values()):
        request.engine.drop(collection)
    request.engine.databases.pop(request.database, None)
    catalog.drop_database(request.database)
    return {"dropped": request.database}


def list_databases(request: Request, _: "SearchCatalog") -> Document:
    """Databases that have a collection."""
    request.allow("filter", "nameOnly", "authorizedDatabases")
    names = [name for name in request.engine.databases if request.engine.collections(name)]
    found = [{"name": name, "sizeOnDisk": 0, "empty": False} for name in sorted(names)]
    matches = compile_filter(request.command.get("filter") or {})
    return {"databases": [each for each in found if matches(each)], "totalSize": 0}


def list_collections(request: Request, _: "SearchCatalog") -> Document:
    """Names and options of collections."""
    request.allow("filter", "nameOnly", "authorizedCollections", "cursor")
    matches = compile_filter(request.command.get("filter") or {})
    names_only = is_true(request.command.get("nameOnly"))
    found: list[Document] = []
    for collection in request.engine.collections(request.database):
        entry: Document = {"name": collection.name, "type": "collection"}
        if not names_only:
            entry |= {
                "options": collection.options,
                "info": {"readOnly": False, "uuid": collection.uuid},
                "idIndex": collection.indexes["_id_"].described(),
            }
        if matches(entry):
            found.append(entry)
    return {"cursor": _first(request, f"{request.database}.$cmd.listCollections", found)}


def _first(request: Request, namespace: str, documents: list[Document]) -> Document:
    size = int((request.command.get("cursor") or {}).get("batchSize", FIRST_BATCH))
    return request.cursors.first(namespace, iter(documents), size)


def create_indexes(request: Request, _: "SearchCatalog") -> Document:
    """Make indexes that are not there yet."""
    request.allow("indexes", "commitQuorum")
    held = request.engine.collection(request.database, request.target)
    collection = held or request.engine.made(request.database, request.target)
    collection.visible = True
    request.engine.settle(collection)
    before = len(collection.indexes)
    for spec in request.command["indexes"]:
        index = Index(spec)
        if not _is_there(collection, index):
            collection.build(index)
    note = {"note": "all indexes already exist"} if len(collection.indexes) == before else {}
    return {
        "numIndexesBefore": before,
        "numIndexesAfter": len(collection.indexes),
        "createdCollectionAutomatically": held is None,
    } | note


def _is_there(collection: Collection, index: Index) -> bool:
    """Whether the very same index exists.

    :raises Refusal: one with the same name or the same fields is another one.
    """
    for other in collection.indexes.values():
        same_keys = list(other.spec["key"].items()) == list(index.spec["key"].items())
        same_options = (other.unique, other.partial, other.sparse) == (index.unique, index.partial, index.sparse)
        if other.name == "_id_" and same_keys:
            return True
        if other.name == index.name:
            if same_keys and same_options:
                return True
            raise Refusal(86, f"An existing index has the same name as the requested index: {index.name}")
        if same_keys and other.partial == index.partial:
            raise Refusal(85, f"Index already exists with a different name: {other.name}")
    return False


def list_indexes(request: Request, _: "SearchCatalog") -> Document:
    """The indexes of a collection."""
    request.allow("cursor", "includeBuildUUIDs", "includeIndexBuildInfo")
    collection = _existing(request)
    found = [index.described() for index in collection.indexes.values()]
    return {"cursor": _first(request, collection.namespace, found)}


def drop_indexes(request: Request, _: "SearchCatalog") -> Document:
    """Remove indexes by name, by fields, or all but that of `_id`."""
    request.allow("index")
    collection = _existing(request)
    request.engine.settle(collection)
    before = len(collection.indexes)
    for name in _named(collection, request.command["index"]):
        if name == "_id_":
            raise Refusal(72, "cannot drop _id index")
        collection.drop_index(name)
    return {"nIndexesWas": before}


def _named(collection: Collection, wanted: Any) -> list[str]:
    if wanted == "*":
        return [name for name in collection.indexes if name != "_id_"]
    names = []
    for each in wanted if isinstance(wanted, list) else [wanted]:
        found = [
            index.name for index in collection.indexes.values()
            if each == index.name or (isinstance(each, dict) and list(index.spec["key"].items()) == list(each.items()))
        ]  # fmt: skip
        if not found:
            raise Refusal(27, f"index not found with name [{each}]")
        names += found
    return names


def rename_collection(request: Request, _: "SearchCatalog") -> Document:
    """Give a collection another name within its database."""
    request.allow("to", "dropTarget")
    (old_database, old), (database, new) = (request.command[part].split(".", 1) for part in (request.name, "to"))
    collection = request.engine.collection(old_database, old)
    if collection is None:
        raise Refusal(26, f"Source collection {old_database}.{old} does not exist")
    target = request.engine.collection(database, new)
    if target is not None:
        if not is_true(request.command.get("dropTarget")):
            raise Refusal(48, "target namespace exists")
        request.engine.drop(target)
    request.engine.settle(collection)
    del request.engine.databases[old_database][old]
    collection.database, collection.name = database, new
    request.engine.databases.setdefault(database, {})[new] = collection
    return {}


def db_stats(request: Request, _: "SearchCatalog") -> Document:
    """Numbers of collections and documents."""
    request.allow("scale", "freeStorage")
    collections = request.engine.collections(request.database)
    counts = [len(ById(collection)) for collection in collections]
    return {"db": request.database, "collections": len(collections), "objects": sum(counts)}


def create_search_indexes(request: Request, catalog: "SearchCatalog") -> Document:
    """Ask for search indexes, which are built later."""
    request.allow("indexes")
    made = catalog.create(request.database, request.target, request.command["indexes"])
    listed = {entry["name"]: str(entry["id"]) for entry in catalog.list(request.database, request.target)}
    return {"indexesCreated": [{"id": listed[name], "name": name} for name in made]}


def update_search_index(request: Request, catalog: "SearchCatalog") -> Document:
    """Ask for another definition of a search index."""
    request.allow("name", "id", "definition")
    catalog.update(request.database, request.target, request.command["name"], request.command["definition"])
    return {}


def drop_search_index(request: Request, catalog: "SearchCatalog") -> Document:
    """Remove a search index."""
    request.allow("name", "id")
    catalog.drop(request.database, request.target, request.command["name"])
    return {}
