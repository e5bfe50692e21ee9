"""An index of type `search`: analyzed strings and typed values, as its mappings say.

Definition: https://www.mongodb.com/docs/atlas/atlas-search/define-field-mappings/. Only what is mapped by name is
indexed: `dynamic: true` is not emulated.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from anamnesis_tests.mongo_server.search_analysis import analyzer_of
from anamnesis_tests.mongo_server.search_errors import NotEmulated, query_refused
from anamnesis_tests.mongo_server.search_operators import Operators
from anamnesis_tests.mongo_server.search_terms import Matches, TermField
from anamnesis_tests.mongo_server.search_values import ValuePostings, typed, values_at
from anamnesis_tests.mongo_server.search_vector_index import Hits, Taken

COUNTED = 1000
"""Up to how many hits a count of type `lowerBound` is exact, by default."""

_KINDS = {
    "token": "string", "number": "number", "boolean": "boolean", "date": "date", "objectId": "objectId", "uuid": "uuid",
}  # fmt: skip
"""Type of a field in the mappings: of which values it is."""


class TextIndex:
    """What such an index holds of the documents of a collection, by row."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self._definition = definition
        self.terms: dict[str, TermField] = {}
        self.values: dict[str, dict[str, ValuePostings]] = {}
        self.paths: dict[str, set[int]] = {}
        self.rows: set[int] = set()
        self._map(definition["mappings"])

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
        for path, kinds in self.values.items():
            for kind, values in kinds.items():
                values.put(row, _of_kind(kind, taken[path]))

    def remove(self, row: int) -> None:
        """Forget a row."""
        self.rows.discard(row)
        for rows in self.paths.values():
            rows.discard(row)
        for field in self.terms.values():
            field.remove(row)
        for kinds in self.values.values():
            for values in kinds.values():
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

    def _map(self, mapping: Mapping[str, Any]) -> None:
        if mapping.get("dynamic"):
            raise NotEmulated("dynamic mappings")
        for name, field in mapping.get("fields", {}).items():
            self._map_field(name, field)

    def _map_field(self, path: str, field: Mapping[str, Any]) -> None:
        self.paths.setdefault(path, set())
        match field["type"]:
            case "string":
                self.terms[path] = self._term_field(field)
            case kind if kind in _KINDS:
                if field.get("normalizer", "none") != "none":
                    raise NotEmulated("token fields with a normalizer")
                self.values.setdefault(path, {})[_KINDS[kind]] = ValuePostings()
            case other:
                raise NotEmulated(f"fields of type {other}")

    def _term_field(self, field: Mapping[str, Any]) -> TermField:
        analyzer, custom = field.get("analyzer", "lucene.standard"), self._definition.get("analyzers", ())
        return TermField(analyzer_of(analyzer, custom))


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


def _of_kind(kind: str, values: Sequence[Any] | None) -> list[Any] | None:
    """The values of a type, and null, which each type keeps; None: there are none."""
    found = [value for value in values or () if (known := typed(value)) and known[0] in (kind, "null")]
    return found or None
