"""Operators of expressions with a form of their own: conditions, variables, and what is asked of each element."""

import re
from collections.abc import Callable
from typing import Any

from bson import Regex

from anamnesis_tests.mongo_server.expression_arrays import array
from anamnesis_tests.mongo_server.expression_functions import (
    as_double,
    as_text,
    as_whole,
    nothing,
)
from anamnesis_tests.mongo_server.expressions import Expression, arguments, compile_expression
from anamnesis_tests.mongo_server.ordering import sort_key
from anamnesis_tests.mongo_server.refusals import Refusal, failed_to_parse
from anamnesis_tests.mongo_server.values import MISSING, Document, is_true, key_of, type_name

Form = Callable[[Any], Expression]


def _all(argument: Any) -> Expression:
    parts = [compile_expression(each) for each in _listed(argument)]
    return lambda document, variables: all(is_true(part(document, variables)) for part in parts)


def _any(argument: Any) -> Expression:
    parts = [compile_expression(each) for each in _listed(argument)]
    return lambda document, variables: any(is_true(part(document, variables)) for part in parts)


def _listed(argument: Any) -> list[Any]:
    return argument if isinstance(argument, list) else [argument]


def _if_null(argument: Any) -> Expression:
    if not isinstance(argument, list) or len(argument) < 2:
        raise Refusal(1257300, "$ifNull needs at least two arguments")
    parts = [compile_expression(each) for each in argument]

    def evaluate(document: Document, variables: Any) -> Any:
        value: Any = MISSING
        for part in parts:
            value = part(document, variables)
            if not nothing(value):
                break
        return value

    return evaluate


def _cond(argument: Any) -> Expression:
    if isinstance(argument, list):
        if len(argument) != 3:
            raise Refusal(16020, f"Expression $cond takes exactly 3 arguments. {len(argument)} were passed in.")
        argument = dict(zip(("if", "then", "else"), argument, strict=True))
    given = arguments(argument, "$cond", ("if", "then", "else"))
    test, then, otherwise = (compile_expression(given[name]) for name in ("if", "then", "else"))
    return lambda document, variables: (then if is_true(test(document, variables)) else otherwise)(document, variables)


def _switch(argument: Any) -> Expression:
    given = arguments(argument, "$switch", ("branches",), ("default",))
    branches = [
        (compile_expression(branch["case"]), compile_expression(branch["then"]))
        for branch in (arguments(each, "$switch", ("case", "then")) for each in given["branches"])
    ]
    default = compile_expression(given["default"]) if "default" in given else None

    def evaluate(document: Document, variables: Any) -> Any:
        for case, then in branches:
            if is_true(case(document, variables)):
                return then(document, variables)
        if default is None:
            raise Refusal(40066, "$switch could not find a matching branch for an input, and no default was specified.")
        return default(document, variables)

    return evaluate


def _let(argument: Any) -> Expression:
    given = arguments(argument, "$let", ("vars", "in"))
    names = {name: compile_expression(value) for name, value in given["vars"].items()}
    inner = compile_expression(given["in"])

    def evaluate(document: Document, variables: Any) -> Any:
        bound = {name: value(document, variables) for name, value in names.items()}
        return inner(document, {**variables, **bound})

    return evaluate


def _map(argument: Any) -> Expression:
    given = arguments(argument, "$map", ("input", "in"), ("as",))
    source, inner, name = compile_expression(given["input"]), compile_expression(given["in"]), given.get("as", "this")

    def evaluate(document: Document, variables: Any) -> Any:
        values = source(document, variables)
        if nothing(values):
            return None
        found = (inner(document, {**variables, name: each}) for each in array("input to $map", values, 16883))
        return [None if value is MISSING else value for value in found]

    return evaluate


def _filter(argument: Any) -> Expression:
    given = arguments(argument, "$filter", ("input", "cond"), ("as", "limit"))
    source, test = compile_expression(given["input"]), compile_expression(given["cond"])
    name, limit = given.get("as", "this"), compile_expression(given.get("limit"))

    def evaluate(document: Document, variables: Any) -> Any:
        values = source(document, variables)
        if nothing(values):
            return None
        elements = array("input to $filter", values, 28651)
        return [e for e in elements if is_true(test(document, {**variables, name: e}))][: limit(document, variables)]

    return evaluate


def _reduce(argument: Any) -> Expression:
    given = arguments(argument, "$reduce", ("input", "initialValue", "in"))
    source, start, inner = (compile_expression(given[name]) for name in ("input", "initialValue", "in"))

    def evaluate(document: Document, variables: Any) -> Any:
        values = source(document, variables)
        if nothing(values):
            return None
        value = start(document, variables)
        for each in array("input to $reduce", values, 40080):
            value = inner(document, {**variables, "value": value, "this": each})
        return value

    return evaluate


def _sort_array(argument: Any) -> Expression:
    given = arguments(argument, "$sortArray", ("input", "sortBy"))
    source, order = compile_expression(given["input"]), given["sortBy"]
    if isinstance(order, dict):
        key, backwards = sort_key(list(order.items())), False
    else:
        key, backwards = key_of, order == -1

    def evaluate(document: Document, variables: Any) -> Any:
        values = source(document, variables)
        if nothing(values):
            return None
        return sorted(array("$sortArray", values, 2942504), key=key, reverse=backwards)

    return evaluate


def _zip(argument: Any) -> Expression:
    given = arguments(argument, "$zip", ("inputs",))
    parts = [compile_expression(each) for each in given["inputs"]]

    def evaluate(document: Document, variables: Any) -> Any:
        values = [part(document, variables) for part in parts]
        return None if any(nothing(value) for value in values) else [list(each) for each in zip(*values, strict=False)]

    return evaluate


def _field_of(argument: Any) -> Expression:
    named = argument if isinstance(argument, dict) and "field" in argument else {"field": argument}
    given = arguments(named, "$getField", ("field",), ("input",))
    name = compile_expression(given["field"])
    source = compile_expression(given.get("input", "$$CURRENT"))

    def evaluate(document: Document, variables: Any) -> Any:
        value = source(document, variables)
        return value.get(name(document, variables), MISSING) if isinstance(value, dict) else MISSING

    return evaluate


def _set_field(argument: Any) -> Expression:
    given = arguments(argument, "$setField", ("field", "input", "value"))
    name, source, new = (compile_expression(given[part]) for part in ("field", "input", "value"))

    def evaluate(document: Document, variables: Any) -> Any:
        base, value = source(document, variables), new(document, variables)
        if nothing(base):
            return None
        changed = {**base, name(document, variables): value}
        return {field: inner for field, inner in changed.items() if inner is not MISSING}

    return evaluate


def _pattern(operator: str, given: dict[str, Any]) -> Callable[[Document, Any], re.Pattern[str]]:
    source, options = compile_expression(given["regex"]), given.get("options") or ""
    flags = 0
    for option in options:
        if option not in "imsx":
            raise Refusal(51108, f"{operator}: invalid flag in regex options: {options}")
        flags |= getattr(re, option.upper())

    def pattern(document: Document, variables: Any) -> re.Pattern[str]:
        value = source(document, variables)
        if isinstance(value, Regex):
            return re.compile(value.pattern, (value.flags & ~re.UNICODE) | flags)
        return re.compile(value, flags)

    return pattern


def _regex(operator: str) -> Form:
    def form(argument: Any) -> Expression:
        given = arguments(argument, operator, ("input", "regex"), ("options",))
        source, pattern = compile_expression(given["input"]), _pattern(operator, given)

        def evaluate(document: Document, variables: Any) -> Any:
            text = source(document, variables)
            if nothing(text):
                return {"$regexMatch": False, "$regexFind": None, "$regexFindAll": []}[operator]
            if not isinstance(text, str):
                raise Refusal(51104, f"{operator} needs 'input' to be of type string")
            found = [
                {"match": each.group(), "idx": each.start(), "captures": list(each.groups())}
                for each in pattern(document, variables).finditer(text)
            ]
            if operator == "$regexFindAll":
                return found
            return bool(found) if operator == "$regexMatch" else (found[0] if found else None)

        return evaluate

    return form


def _replace(count: int) -> Form:
    def form(argument: Any) -> Expression:
        given = arguments(argument, "$replaceAll" if count else "$replaceOne", ("input", "find", "replacement"))
        parts = [compile_expression(given[name]) for name in ("input", "find", "replacement")]

        def evaluate(document: Document, variables: Any) -> Any:
            text, find, new = (part(document, variables) for part in parts)
            if nothing(text) or nothing(find) or nothing(new):
                return None
            return text.replace(find, new) if count else text.replace(find, new, 1)

        return evaluate

    return form


def _trim(of: Callable[[str, str | None], str]) -> Form:
    def form(argument: Any) -> Expression:
        given = arguments(argument, "$trim", ("input",), ("chars",))
        source, chars = compile_expression(given["input"]), compile_expression(given.get("chars"))

        def evaluate(document: Document, variables: Any) -> Any:
            text = source(document, variables)
            return None if nothing(text) else of(text, chars(document, variables))

        return evaluate

    return form


def _convert(argument: Any) -> Expression:
    given = arguments(argument, "$convert", ("input", "to"), ("onError", "onNull"))
    makers = {"string": as_text, "int": as_whole, "long": as_whole, "double": as_double, "bool": is_true}
    if given["to"] not in makers:
        raise failed_to_parse(f"$convert to {given['to']!r} is not known to the loopback server")
    source, of_null = compile_expression(given["input"]), compile_expression(given.get("onNull"))
    of_error = compile_expression(given["onError"]) if "onError" in given else None

    def evaluate(document: Document, variables: Any) -> Any:
        value = source(document, variables)
        if nothing(value):
            return of_null(document, variables)
        try:
            return makers[given["to"]](value)
        except Refusal:
            if of_error is None:
                raise
            return of_error(document, variables)

    return evaluate


def _first_n(operator: str) -> Form:
    def form(argument: Any) -> Expression:
        given = arguments(argument, operator, ("input", "n"))
        source, count = compile_expression(given["input"]), compile_expression(given["n"])

        def evaluate(document: Document, variables: Any) -> Any:
            values, wanted = source(document, variables), count(document, variables)
            if not isinstance(values, list):
                raise Refusal(5788200, f"{operator} needs an array, but was given {type_name(values)}")
            if operator == "$firstN":
                return values[:wanted]
            if operator == "$lastN":
                return values[-wanted:]
            held = [value for value in values if not nothing(value)]
            return sorted(held, key=key_of, reverse=operator == "$maxN")[:wanted]

        return evaluate

    return form


FORMS: dict[str, Form] = {
    "$and": _all,
    "$or": _any,
    "$ifNull": _if_null,
    "$cond": _cond,
    "$switch": _switch,
    "$let": _let,
    "$map": _map,
    "$filter": _filter,
    "$reduce": _reduce,
    "$sortArray": _sort_array,
    "$zip": _zip,
    "$getField": _field_of,
    "$setField": _set_field,
    "$replaceAll": _replace(-1),
    "$replaceOne": _replace(0),
    "$trim": _trim(str.strip),
    "$ltrim": _trim(str.lstrip),
    "$rtrim": _trim(str.rstrip),
    "$convert": _convert,
}
FORMS |= {name: _regex(name) for name in ("$regexMatch", "$regexFind", "$regexFindAll")}
FORMS |= {name: _first_n(name) for name in ("$firstN", "$lastN", "$minN", "$maxN")}
