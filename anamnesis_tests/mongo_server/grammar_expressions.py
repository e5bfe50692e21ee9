"""The grammar of aggregation expressions: https://www.mongodb.com/docs/v8.0/reference/operator/aggregation/."""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.mongo_server.grammar_shapes import MANUAL, Problems

_PAGES = f"{MANUAL}reference/operator/aggregation/"
VARIABLES_PAGE = f"{MANUAL}reference/aggregation-variables/"
META_PAGE = f"{_PAGES}meta/"

SYSTEM_VARIABLES = frozenset(
    {"ROOT", "CURRENT", "REMOVE", "DESCEND", "PRUNE", "KEEP", "NOW", "CLUSTER_TIME", "SEARCH_META", "USER_ROLES"}
)
META = frozenset(
    {
        "textScore", "indexKey", "searchScore", "searchHighlights", "searchScoreDetails", "searchSequenceToken",
        "vectorSearchScore", "score", "scoreDetails",
    }
)  # fmt: skip
"""What `$meta` may ask for; `score` and `scoreDetails` come from `$rankFusion`."""

MANY = 1_000_000
_ARGUMENTS: dict[str, tuple[int, int]] = {
    # arithmetic
    "$abs": (1, 1), "$add": (0, MANY), "$ceil": (1, 1), "$divide": (2, 2), "$exp": (1, 1), "$floor": (1, 1),
    "$ln": (1, 1), "$log": (2, 2), "$log10": (1, 1), "$mod": (2, 2), "$multiply": (0, MANY), "$pow": (2, 2),
    "$round": (1, 2), "$sqrt": (1, 1), "$subtract": (2, 2), "$trunc": (1, 2),
    "$bitAnd": (0, MANY), "$bitOr": (0, MANY), "$bitXor": (0, MANY), "$bitNot": (1, 1),
    # arrays
    "$arrayElemAt": (2, 2), "$arrayToObject": (1, 1), "$concatArrays": (0, MANY), "$first": (1, 1), "$last": (1, 1),
    "$in": (2, 2), "$indexOfArray": (2, 4), "$isArray": (1, 1), "$objectToArray": (1, 1), "$range": (2, 3),
    "$reverseArray": (1, 1), "$size": (1, 1), "$slice": (2, 3),
    # boolean and comparison
    "$and": (0, MANY), "$or": (0, MANY), "$not": (1, 1),
    "$cmp": (2, 2), "$eq": (2, 2), "$gt": (2, 2), "$gte": (2, 2), "$lt": (2, 2), "$lte": (2, 2), "$ne": (2, 2),
    # conditions
    "$ifNull": (2, MANY),
    # objects
    "$mergeObjects": (0, MANY),
    # sets
    "$allElementsTrue": (1, 1), "$anyElementTrue": (1, 1), "$setDifference": (2, 2), "$setEquals": (2, MANY),
    "$setIntersection": (0, MANY), "$setIsSubset": (2, 2), "$setUnion": (0, MANY),
    # strings
    "$concat": (0, MANY), "$indexOfBytes": (2, 4), "$indexOfCP": (2, 4), "$split": (2, 2), "$strLenBytes": (1, 1),
    "$strLenCP": (1, 1), "$strcasecmp": (2, 2), "$substr": (3, 3), "$substrBytes": (3, 3), "$substrCP": (3, 3),
    "$toLower": (1, 1), "$toUpper": (1, 1),
    # types
    "$isNumber": (1, 1), "$toBool": (1, 1), "$toDate": (1, 1), "$toDecimal": (1, 1), "$toDouble": (1, 1),
    "$toInt": (1, 1), "$toLong": (1, 1), "$toObjectId": (1, 1), "$toString": (1, 1), "$toUUID": (1, 1),
    "$type": (1, 1),
    # over a list, also accumulators
    "$avg": (0, MANY), "$max": (0, MANY), "$min": (0, MANY), "$sum": (0, MANY), "$stdDevPop": (0, MANY),
    "$stdDevSamp": (0, MANY),
    # of a document
    "$binarySize": (1, 1), "$bsonSize": (1, 1),
}  # fmt: skip
"""How many arguments; where it is one, it may stand alone instead of in an array."""

_NAMED: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "$convert": (frozenset({"input", "to"}), frozenset({"onError", "onNull", "format"})),
    "$dateAdd": (frozenset({"startDate", "unit", "amount"}), frozenset({"timezone"})),
    "$dateDiff": (frozenset({"startDate", "endDate", "unit"}), frozenset({"timezone", "startOfWeek"})),
    "$dateFromString": (frozenset({"dateString"}), frozenset({"format", "timezone", "onError", "onNull"})),
    "$dateSubtract": (frozenset({"startDate", "unit", "amount"}), frozenset({"timezone"})),
    "$dateToString": (frozenset({"date"}), frozenset({"format", "timezone", "onNull"})),
    "$dateTrunc": (frozenset({"date", "unit"}), frozenset({"binSize", "timezone", "startOfWeek"})),
    "$firstN": (frozenset({"input", "n"}), frozenset()),
    "$getField": (frozenset({"field"}), frozenset({"input"})),
    "$lastN": (frozenset({"input", "n"}), frozenset()),
    "$ltrim": (frozenset({"input"}), frozenset({"chars"})),
    "$maxN": (frozenset({"input", "n"}), frozenset()),
    "$minN": (frozenset({"input", "n"}), frozenset()),
    "$regexFind": (frozenset({"input", "regex"}), frozenset({"options"})),
    "$regexFindAll": (frozenset({"input", "regex"}), frozenset({"options"})),
    "$regexMatch": (frozenset({"input", "regex"}), frozenset({"options"})),
    "$replaceAll": (frozenset({"input", "find", "replacement"}), frozenset()),
    "$replaceOne": (frozenset({"input", "find", "replacement"}), frozenset()),
    "$rtrim": (frozenset({"input"}), frozenset({"chars"})),
    "$setField": (frozenset({"field", "input", "value"}), frozenset()),
    "$sortArray": (frozenset({"input", "sortBy"}), frozenset()),
    "$trim": (frozenset({"input"}), frozenset({"chars"})),
    "$unsetField": (frozenset({"field", "input"}), frozenset()),
    "$zip": (frozenset({"inputs"}), frozenset({"useLongestLength", "defaults"})),
}
"""Named arguments: those that must be there, and those that may. Each is an expression."""
_PLAIN_ARGUMENTS = {("$sortArray", "sortBy")}

ACCUMULATORS = frozenset(
    {
        "$addToSet", "$avg", "$bottom", "$bottomN", "$count", "$first", "$firstN", "$last", "$lastN", "$max", "$maxN",
        "$median", "$mergeObjects", "$min", "$minN", "$percentile", "$push", "$stdDevPop", "$stdDevSamp", "$sum",
        "$top", "$topN",
    }
)  # fmt: skip
"""https://www.mongodb.com/docs/v8.0/reference/operator/aggregation/group/"""

Names = frozenset[str]


def expression(value: Any, where: str, names: Names = frozenset()) -> Problems:
    """An expression: a path, a variable of `names` or of the system, an operator, or something made of them."""
    if isinstance(value, str):
        yield from _path(value, where, names)
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from expression(each, f"{where}[{place}]", names)
    elif isinstance(value, Mapping):
        yield from _object(value, where, names)


def _path(value: str, where: str, names: Names) -> Problems:
    if value.startswith("$$"):
        variable, _, rest = value[2:].partition(".")
        if variable not in SYSTEM_VARIABLES | names:
            yield f"{where} uses the variable $${variable}, which is not defined ({VARIABLES_PAGE})"
        value = f"${rest}" if rest else "$a"
    if value.startswith("$") and (len(value) == 1 or any(not part for part in value[1:].split("."))):
        yield f"{where}: {value!r} is no path of a field ({MANUAL}core/field-paths/)"


def _object(value: Mapping[str, Any], where: str, names: Names) -> Problems:
    operators = [name for name in value if name.startswith("$")]
    if not operators:
        for name, each in value.items():
            if "." in name or not name:
                yield f"{where}: no dot may be in the name {name!r} of an expression's object ({_PAGES})"
            yield from expression(each, f"{where}.{name}", names)
    elif len(value) != 1:
        yield f"{where} must have exactly one operator, not {', '.join(value)} ({_PAGES})"
    else:
        yield from _operator(operators[0], value[operators[0]], f"{where}.{operators[0]}", names)


def _operator(name: str, value: Any, where: str, names: Names) -> Problems:
    if name == "$literal":
        return
    if name in _SPECIAL:
        yield from _SPECIAL[name](value, where, names)
    elif name in _NAMED and not (name == "$getField" and not isinstance(value, Mapping)):
        yield from _named(name, value, where, names)
    elif name in _ARGUMENTS:
        yield from _arguments(name, value, where, names)
    elif name != "$getField":
        yield f"{where} is no operator of expressions ({_PAGES})"


def _arguments(name: str, value: Any, where: str, names: Names) -> Problems:
    least, most = _ARGUMENTS[name]
    given = value if isinstance(value, list | tuple) else [value]
    if not least <= len(given) <= most:
        yield f"{where} takes {least} to {most} arguments, not {len(given)} ({_PAGES}{name[1:]}/)"
    for place, each in enumerate(given):
        yield from expression(each, f"{where}[{place}]", names)


def _named(name: str, value: Any, where: str, names: Names) -> Problems:
    page = f"{_PAGES}{name[1:]}/"
    if not isinstance(value, Mapping):
        yield f"{where} must be a document of named arguments ({page})"
        return
    needed, further = _NAMED[name]
    for missing in needed - value.keys():
        yield f"{where}.{missing} is required ({page})"
    for given, each in value.items():
        if given not in needed | further:
            yield f"{where} has no argument {given!r} ({page})"
        elif (name, given) not in _PLAIN_ARGUMENTS:
            yield from expression(each, f"{where}.{given}", names)


def _cond(value: Any, where: str, names: Names) -> Problems:
    page = f"{_PAGES}cond/"
    if isinstance(value, Mapping):
        if value.keys() != {"if", "then", "else"}:
            yield f"{where} must have if, then and else ({page})"
        value = list(value.values())
    elif not isinstance(value, list | tuple) or len(value) != 3:
        yield f"{where} takes three arguments ({page})"
    yield from expression(value, where, names)


def _switch(value: Any, where: str, names: Names) -> Problems:
    page = f"{_PAGES}switch/"
    branches = value.get("branches") if isinstance(value, Mapping) else None
    if not isinstance(branches, list | tuple) or not branches or value.keys() - {"branches", "default"}:
        yield f"{where} must have branches, and may have default ({page})"
        return
    for place, branch in enumerate(branches):
        if not isinstance(branch, Mapping) or branch.keys() != {"case", "then"}:
            yield f"{where}.branches[{place}] must have case and then ({page})"
        yield from expression(branch, f"{where}.branches[{place}]", names)
    yield from expression(value.get("default"), f"{where}.default", names)


def _let(value: Any, where: str, names: Names) -> Problems:
    if not isinstance(value, Mapping) or value.keys() != {"vars", "in"} or not isinstance(value["vars"], Mapping):
        yield f"{where} must have vars and in ({_PAGES}let/)"
        return
    for name, each in value["vars"].items():
        yield from expression(each, f"{where}.vars.{name}", names)
    yield from expression(value["in"], f"{where}.in", names | set(value["vars"]))


def _over_an_array(operator: str, body: str, further: frozenset[str], variable: str = "this") -> Any:
    """`$map`, `$filter` and `$reduce`: the expression `body` sees each element as a variable."""
    page = f"{_PAGES}{operator[1:]}/"

    def check(value: Any, where: str, names: Names) -> Problems:
        if not isinstance(value, Mapping):
            yield f"{where} must be a document of named arguments ({page})"
            return
        for missing in {"input", body} - value.keys():
            yield f"{where}.{missing} is required ({page})"
        for unknown in value.keys() - {"input", body} - further:
            yield f"{where} has no argument {unknown!r} ({page})"
        inner = names | {str(value.get("as", variable)), *({"value"} if operator == "$reduce" else ())}
        for name, each in value.items():
            if name != "as":
                yield from expression(each, f"{where}.{name}", inner if name == body else names)

    return check


def _meta(value: Any, where: str, _names: Names) -> Problems:
    if value not in META:
        yield f"{where} must be one of {', '.join(sorted(META))}, not {value!r} ({META_PAGE})"


def _date_part(value: Any, where: str, names: Names) -> Problems:
    if isinstance(value, Mapping) and not any(name.startswith("$") for name in value):
        if "date" not in value or value.keys() - {"date", "timezone"}:
            yield f"{where} must have date, and may have timezone ({_PAGES}year/)"
        value = list(value.values())
    yield from expression(value, where, names)


_SPECIAL: dict[str, Any] = {
    "$cond": _cond,
    "$switch": _switch,
    "$let": _let,
    "$map": _over_an_array("$map", "in", frozenset({"as"})),
    "$filter": _over_an_array("$filter", "cond", frozenset({"as", "limit"})),
    "$reduce": _over_an_array("$reduce", "in", frozenset({"initialValue"})),
    "$meta": _meta,
    "$rand": lambda value, where, _names: iter([] if value == {} else [f"{where} must be empty ({_PAGES}rand/)"]),
    **dict.fromkeys(
        (
            "$dayOfMonth", "$dayOfWeek", "$dayOfYear", "$hour", "$isoDayOfWeek", "$isoWeek", "$isoWeekYear",
            "$millisecond", "$minute", "$month", "$second", "$week", "$year",
        ),
        _date_part,
    ),
}  # fmt: skip
