"""The `filter` of `$vectorSearch`: MQL over the fields that the index declares.

Operators: https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/ (pre-filter). Their form is
checked by `search_shapes.py`; here they are answered.
"""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.mongo_server.search_errors import query_refused
from anamnesis_tests.mongo_server.search_values import ValuePostings

_RANGES = {"$gt", "$gte", "$lt", "$lte"}


def passing(where: Mapping[str, Any], fields: Mapping[str, ValuePostings], everything: set[int]) -> set[int]:
    """The rows of `everything` that pass.

    :raises SearchRefused: a field is not declared as one to filter by.
    """
    found = everything
    for name, value in where.items():
        found = found & _clause(name, value, fields, everything)
    return found


def _clause(name: str, value: Any, fields: Mapping[str, ValuePostings], everything: set[int]) -> set[int]:
    match name:
        case "$and":
            return set.intersection(*(passing(part, fields, everything) for part in value))
        case "$or":
            return set().union(*(passing(part, fields, everything) for part in value))
        case "$nor":
            return everything.difference(*(passing(part, fields, everything) for part in value))
    if name not in fields:
        raise query_refused(f"Path '{name}' needs to be indexed as filter")
    if not isinstance(value, Mapping):
        return fields[name].equal(value)
    return _conditions(value, fields[name], everything)


def _conditions(conditions: Mapping[str, Any], field: ValuePostings, everything: set[int]) -> set[int]:
    found = everything
    for operator, value in conditions.items():
        found = found & _condition(operator, value, field, everything)
    return found


def _condition(operator: str, value: Any, field: ValuePostings, everything: set[int]) -> set[int]:
    if operator in _RANGES:
        return field.between({operator.removeprefix("$"): value})
    match operator:
        case "$eq":
            return field.equal(value)
        case "$ne":
            return everything - field.equal(value)
        case "$in":
            return field.among(value)
        case "$nin":
            return everything - field.among(value)
        case "$exists":
            return field.existing() if value else everything - field.existing()
        case "$not":
            return everything - _conditions(value, field, everything)
    raise query_refused(f'"filter.{operator}" unrecognized field')
