"""How `$listSearchIndexes` shows an index: https://www.mongodb.com/docs/manual/reference/operator/aggregation/listSearchIndexes/."""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.mongo_server.search_generation import FAILED, Generation

_HOST = "localhost"
_DEFAULTS = {
    "string": {"indexOptions": "offsets", "store": True, "norms": "include"},
    "number": {"representation": "double", "indexDoubles": True, "indexIntegers": True},
}
"""The search process writes these out, so a definition does not come back as it was given."""


def entry(index_id: str, latest: Generation, status: str, *, queryable: bool) -> dict[str, Any]:
    """The document of one index."""
    version = {"version": latest.version, "createdAt": latest.created_at}
    definition = as_listed(latest.kind, latest.definition)
    main = {"status": status, "queryable": queryable, "definitionVersion": version, "definition": definition}
    if status == FAILED:
        main["message"] = "Your index could not be built"
    return {
        "id": index_id,
        "name": latest.name,
        "type": latest.kind,
        "status": status,
        "queryable": queryable,
        "latestDefinitionVersion": version,
        "latestDefinition": definition,
        "statusDetail": [{"hostname": _HOST, "status": status, "queryable": queryable, "mainIndex": main}],
    }


def as_listed(kind: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition with the defaults that are shown, and without those that are not."""
    if kind == "vectorSearch":
        return {**definition, "fields": [_without_defaults(field) for field in definition["fields"]]}
    return {**definition, "mappings": _mapping(definition["mappings"])}


def _without_defaults(field: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in field.items() if (name, value) != ("quantization", "none")}


def _mapping(mapping: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: {**_DEFAULTS.get(field["type"], {}), **field} for name, field in mapping.get("fields", {}).items()}
    return {**mapping, "dynamic": mapping.get("dynamic", False), "fields": fields}
