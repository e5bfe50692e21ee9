"""Stages that look into another collection: `$lookup` and `$unionWith`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from anamnesis_tests.mongo_server.expressions import compile_expression
from anamnesis_tests.mongo_server.paths import leaves, set_value
from anamnesis_tests.mongo_server.refusals import Refusal, refuse_unknown
from anamnesis_tests.mongo_server.scored import carried
from anamnesis_tests.mongo_server.values import MISSING, Document

if TYPE_CHECKING:
    from anamnesis_tests.mongo_server.pipeline import Context

Step = Callable[[Iterable[Document]], Iterable[Document]]
_LOOKUP = frozenset({"from", "localField", "foreignField", "let", "pipeline", "as"})


def lookup(context: "Context", given: Any) -> Step:
    """Each document with those of another collection that belong to it."""
    if not isinstance(given, Mapping):
        raise Refusal(9, "the $lookup specification must be an object")
    refuse_unknown(given, _LOOKUP, "$lookup")
    if not isinstance(given.get("as"), str):
        raise Refusal(9, "must specify 'as' field for a $lookup")
    if ("localField" in given) != ("foreignField" in given):
        raise Refusal(9, "$lookup requires both or neither of 'localField' and 'foreignField' to be specified")
    if "localField" not in given and "pipeline" not in given:
        raise Refusal(9, "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified")
    names = {name: compile_expression(value) for name, value in (given.get("let") or {}).items()}

    def step(documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            variables = {name: value(document, context.variables) for name, value in names.items()}
            found = _matching(context, given, document, variables)
            yield carried(document, set_value(document, given["as"], found))

    return step


def _matching(context: "Context", given: Mapping[str, Any], document: Document, variables: Any) -> list[Document]:
    from anamnesis_tests.mongo_server.pipeline import run

    stages = list(given.get("pipeline") or [])
    if "localField" in given:
        stages = [{"$match": {given["foreignField"]: {"$in": _values(document, given["localField"])}}}, *stages]
    inner = context.on(given.get("from"), variables)
    return list(run(inner, stages))


def _values(document: Document, path: str) -> list[Any]:
    """What the other collection's field may equal; an array stands for its elements."""
    found: list[Any] = []
    for value in leaves(document, path.split(".")):
        found += value if isinstance(value, list) else [None if value is MISSING else value]
    return found


def union_with(context: "Context", given: Any) -> Step:
    """The documents, then those of another collection or pipeline."""
    from anamnesis_tests.mongo_server.pipeline import run

    options = {"coll": given} if isinstance(given, str) else given
    refuse_unknown(options, {"coll", "pipeline"}, "$unionWith")

    def step(documents: Iterable[Document]) -> Iterator[Document]:
        yield from documents
        yield from run(context.on(options.get("coll")), options.get("pipeline") or [])

    return step
