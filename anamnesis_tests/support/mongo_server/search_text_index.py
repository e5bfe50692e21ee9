"""An index of type `search`: analyzed strings and typed values, as its mappings say.

Definition: https://www.mongodb.com/docs/atlas/atlas-search/define-field-mappings/. Only what is mapped by name is
indexed: `dynamic: true` is not emulated.
"""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.support.mongo_server.search_analysis import analyzer_of
from anamnesis_tests.support.mongo_server.search_errors import NotEmulated, query_refused
from anamnesis_tests.support.mongo_server.search_operators import Operators
from anamnesis_tests.support.mongo_server.search_terms import Matches, TermField
from anamnesis_tests.support.mongo_server.search_values import ValuePostings, typed, values_at
from anamnesis_tests.support.mongo_server.search_vector_index import Hits, Taken

COUNTED = 1000
"""Up to how many hits a count of type `lowerBound` is exact, by default."""

_KINDS = {"token": "string", "number": "number"}
"""Type of a field in the mappings: of which values it is."""


class TextIndex:
    """What such an index holds of the documents of a collection, by row."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self._definition = definition
        self.terms: dict[str, TermField] = {}
        self.values: dict[str, tuple[str, ValuePostings]] = {}
        self.paths: dict[str, set[int]] = {}
        self.rows: set[int] = set()
        if definition["mappings"].get("dynamic"):
            raise NotEmulated("dynamic mappings")
        for name, field in definition["mappings"].get("fields", {}).items():
            self._map_field(name, field)

    def take(self, document: Mapping[str, Any]) -> Taken:
        """What there is to index of a document, apart from it, since it may change before that happens."""
        return {path: values_at(document, path) for path in self.paths}

    def put(self, row: int, taken: Taken) -> None:
        """Index a row, in place of what it had."""
        self.remove(row)
        self.rows.add(row)
        for path, rows in self.paths.items():
            if taken[path] is not None:
                rows.add(row)
        for path, field in self.terms.items():
            field.put(row, [value for value in taken[path] or () if isinstance(value, str)])
        for path, (kind, values) in self.values.items():
            values.put(row, [value for value in taken[path] or () if (known := typed(value)) and known[0] == kind])

    def remove(self, row: int) -> None:
        """Forget a row."""
        self.rows.discard(row)
        for rows in self.paths.values():
            rows.discard(row)
        for field in self.terms.values():
            field.remove(row)
        for _, values in self.values.values():
            values.remove(row)

    def query(self, stage: str, body: Mapping[str, Any]) -> Hits:
        """What `$search` finds, best first; for `$searchMeta` one row, -1, with the counts.

        :raises SearchRefused: the query does not fit the index.
        """
        if stage == "$vectorSearch":
            raise query_refused(f'{body["path"]} must be indexed as "vector".')
        matches = Operators(self).matches(body)
        if stage == "$searchMeta":
            return [(-1, {"count": counted(len(matches), body.get("count", {}))})]
        return [(row, {"searchScore": matches[row]}) for row in _ordered(matches)]

    def _map_field(self, path: str, field: Mapping[str, Any]) -> None:
        self.paths[path] = set()
        if field["type"] == "string":
            analyzer, custom = field.get("analyzer", "lucene.standard"), self._definition.get("analyzers", ())
            self.terms[path] = TermField(analyzer_of(analyzer, custom))
        elif field["type"] in _KINDS:
            self.values[path] = _KINDS[field["type"]], ValuePostings()
        else:
            raise NotEmulated(f"fields of type {field['type']}")


def counted(hits: int, count: Mapping[str, Any]) -> dict[str, int]:
    """A count as asked for: a lower bound says no more than that there are more than its threshold.

    https://www.mongodb.com/docs/atlas/atlas-search/counting/
    """
    if count.get("type", "lowerBound") == "total":
        return {"total": hits}
    return {"lowerBound": min(hits, int(count.get("threshold", COUNTED)) + 1)}


def _ordered(matches: Matches) -> list[int]:
    """Best first; of equals the one that was indexed first."""
    return sorted(matches, key=lambda row: (-matches[row], row))
