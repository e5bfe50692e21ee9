"""Aggregation pipelines: stages one after another, the first ones through an index where they can.

https://www.mongodb.com/docs/manual/reference/operator/aggregation-pipeline/
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anamnesis_tests.mongo_server import stages
from anamnesis_tests.mongo_server.engine import Engine
from anamnesis_tests.mongo_server.matching import compile_filter
from anamnesis_tests.mongo_server.ordering import Order, in_order
from anamnesis_tests.mongo_server.planning import candidates
from anamnesis_tests.mongo_server.refusals import Refusal, not_supported
from anamnesis_tests.mongo_server.storage import Reader
from anamnesis_tests.mongo_server.values import Document

Search = Callable[[str, str, Mapping[str, Any], Mapping[str, Any]], Iterable[Document]]
"""Database, collection, one search stage and the variables in sight to its documents."""


@dataclass(frozen=True)
class Context:
    """Where a pipeline runs, and as whom."""

    engine: Engine
    database: str
    collection: str | None
    reader: Reader
    search: Search
    variables: Mapping[str, Any] = field(default_factory=dict)
    hint: Any = None

    def on(self, collection: str | None, variables: Mapping[str, Any] | None = None) -> "Context":
        """The same for an inner pipeline."""
        inner = self.variables if variables is None else {**self.variables, **variables}
        return Context(self.engine, self.database, collection, self.reader, self.search, inner)


def named(stage: Any) -> tuple[str, Any]:
    """A stage's name and its argument."""
    if not isinstance(stage, Mapping) or len(stage) != 1:
        raise Refusal(40323, "A pipeline stage specification object must contain exactly one field.")
    return next(iter(stage.items()))


def run(context: Context, pipeline: Any) -> Iterator[Document]:
    """What a pipeline yields.

    :raises Refusal: a stage is unknown or has a wrong argument.
    """
    if not isinstance(pipeline, list):
        raise Refusal(14, "'pipeline' option must be specified as an array")
    parsed = [named(stage) for stage in pipeline]
    if parsed and parsed[0][0] in stages.SOURCES:
        documents = iter(stages.SOURCES[parsed[0][0]](context, parsed[0][1]))
        rest = parsed[1:]
    else:
        documents, rest = _start(context, parsed)
    for name, given in rest:
        documents = iter(step_of(context, name, given)(documents))
    return documents


def step_of(context: Context, name: str, given: Any) -> Callable[[Iterable[Document]], Iterable[Document]]:
    if name in stages.SOURCES:
        raise Refusal(40602, f"{name} is only valid as the first stage in a pipeline")
    maker = stages.STAGES.get(name)
    if name in stages.ELSEWHERE:
        raise not_supported(name)
    if maker is None:
        raise Refusal(40324, f"Unrecognized pipeline stage name: '{name}'")
    return maker(context, given)


def _start(context: Context, parsed: list[tuple[str, Any]]) -> tuple[Iterator[Document], list[tuple[str, Any]]]:
    """The documents of the collection, with as much of the first stages done as an index does."""
    if context.collection is None:
        raise Refusal(73, "{aggregate: 1} is not valid for an empty pipeline or one that begins with this stage")
    where: Mapping[str, Any] = {}
    rest = parsed
    if rest and rest[0][0] == "$match":
        where, rest = rest[0][1], rest[1:]
    order: Order = ()
    limit = 0
    if rest and rest[0][0] == "$sort":
        order, rest = stages.order_of(rest[0][1]), rest[1:]
        if rest and rest[0][0] == "$limit":
            limit = stages.positive("$limit", rest[0][1])
    return iter(find(context, where, order, limit)), rest


def find(context: Context, where: Mapping[str, Any], order: Order = (), limit: int = 0) -> Iterable[Document]:
    """Documents of the collection that match, sorted; no more than a limit where there is one."""
    matches = compile_filter(where, context.variables)
    collection = context.engine.collection(context.database, context.collection or "")
    if collection is None:
        return []
    met, is_sorted = candidates(collection, where, context.reader, order, limit, context.hint)
    found = (document for _, document in met if matches(document))
    if order and not is_sorted:
        return in_order(found, order, limit)
    return found
