"""The grammar of definitions of search indexes and of the commands for them."""

from collections.abc import Iterator, Mapping
from typing import Any

from anamnesis_tests.mongo_server.grammar_shapes import (
    ATLAS_SEARCH,
    VECTOR_SEARCH,
    Problems,
    Shape,
    a_document,
    anything,
    array_of,
    boolean,
    document,
    either,
    integer,
    map_of,
    one_of,
    one_or_array_of,
    string,
    text,
)

VECTOR_PAGE = f"{VECTOR_SEARCH}vector-search-type/"
DEFINITION_PAGE = f"{ATLAS_SEARCH}index-definitions/"
_MAPPINGS_PAGE = f"{ATLAS_SEARCH}define-field-mappings/"
_FIELD_PAGE = f"{ATLAS_SEARCH}field-types/"
_CUSTOM_PAGE = f"{ATLAS_SEARCH}analyzers/custom/"
_TOKENIZERS_PAGE = f"{ATLAS_SEARCH}analyzers/tokenizers/"
_FILTERS_PAGE = f"{ATLAS_SEARCH}analyzers/token-filters/"
_CHARACTERS_PAGE = f"{ATLAS_SEARCH}analyzers/character-filters/"

STOCK_ANALYZERS = frozenset(
    f"lucene.{name}"
    for name in (
        "standard stop simple whitespace keyword arabic armenian basque bengali brazilian bulgarian catalan cjk "
        "chinese czech danish dutch english finnish french galician german greek hindi hungarian indonesian irish "
        "italian japanese korean kuromoji latvian lithuanian morfologik nori norwegian persian polish portuguese "
        "romanian russian smartcn sorani spanish swedish thai turkish ukrainian"
    ).split()
)


def _typed(page: str, kinds: Mapping[str, tuple[Mapping[str, Shape], Mapping[str, Shape]]]) -> Shape:
    """A document whose `type` says what else it has: (required, optional) by type."""

    def check(value: Any, where: str) -> Problems:
        kind = value.get("type") if isinstance(value, Mapping) else None
        if kind not in kinds:
            yield f"{where}.type must be one of {', '.join(kinds)}, not {kind!r} ({page})"
            return
        required, optional = kinds[str(kind)]
        yield from document(page, {"type": string, **required}, optional)(value, where)

    return check


# -- type vectorSearch -----------------------------------------------------------------------------------------------

_hnsw = document(VECTOR_PAGE, optional={"maxEdges": integer(16, 64), "numEdgeCandidates": integer(100, 3200)})
_vector_field = _typed(
    VECTOR_PAGE,
    {
        "vector": (
            {
                "path": text,
                "numDimensions": integer(1, 8192),
                "similarity": one_of("euclidean", "cosine", "dotProduct"),
            },
            {"quantization": one_of("none", "scalar", "binary"), "hnswOptions": _hnsw},
        ),
        "filter": ({"path": text}, {}),
    },
)


def vector_definition(value: Any, where: str) -> Problems:
    """The definition of an index of type `vectorSearch`."""
    fields = array_of(_vector_field, least=1)
    optional = {"numPartitions": one_of(1, 2, 4), "storedSource": anything}
    problems = list(document(VECTOR_PAGE, {"fields": fields}, optional)(value, where))
    yield from problems
    if problems:
        return
    paths = [field["path"] for field in value["fields"]]
    for path in {path for path in paths if paths.count(path) > 1}:
        yield f"{where}.fields must have distinct paths, and {path!r} comes twice ({VECTOR_PAGE})"
    if all(field["type"] != "vector" for field in value["fields"]):
        yield f"{where}.fields must have a field of type vector ({VECTOR_PAGE})"
    for field in value["fields"]:
        if field.get("quantization") == "binary" and field["numDimensions"] % 8:
            yield f"{where}: numDimensions must be a multiple of 8 for binary quantization ({VECTOR_PAGE})"


# -- type search -----------------------------------------------------------------------------------------------------


def _fields(value: Any, where: str) -> Problems:
    yield from map_of(one_or_array_of(_field))(value, where)


def _multi(value: Any, where: str) -> Problems:
    yield from map_of(_typed(f"{_FIELD_PAGE}string-type/", {"string": ({}, _STRING)}))(value, where)
    for name in value if isinstance(value, Mapping) else ():
        if "." in name or "multi" in value[name]:
            yield f"{where}.{name}: no dot may be in the name of a multi analyzer, and no multi in it"


_STRING: dict[str, Shape] = {
    "analyzer": text,
    "searchAnalyzer": text,
    "indexOptions": one_of("docs", "freqs", "positions", "offsets"),
    "store": boolean,
    "ignoreAbove": integer(1),
    "norms": one_of("include", "omit"),
    "similarity": document(f"{_FIELD_PAGE}string-type/", {"type": one_of("bm25", "boolean", "stableTfl")}),
}
_NUMBER: dict[str, Shape] = {
    "representation": one_of("int64", "double"),
    "indexIntegers": boolean,
    "indexDoubles": boolean,
}
_dynamic = either(boolean, document(_MAPPINGS_PAGE, {"typeSet": text}))
_FIELDS: dict[str, tuple[dict[str, Shape], dict[str, Shape]]] = {
    "string": ({}, {**_STRING, "multi": _multi}),
    "token": ({}, {"normalizer": one_of("lowercase", "none")}),
    "number": ({}, _NUMBER),
    "boolean": ({}, {}),
    "date": ({}, {}),
    "objectId": ({}, {}),
    "uuid": ({}, {}),
    "document": ({}, {"dynamic": _dynamic, "fields": _fields}),
    "embeddedDocuments": ({}, {"dynamic": _dynamic, "fields": _fields, "storedSource": anything}),
    "autocomplete": (
        {},
        {
            "analyzer": text, "maxGrams": integer(1), "minGrams": integer(1), "foldDiacritics": boolean,
            "tokenization": one_of("edgeGram", "rightEdgeGram", "nGram"), "similarity": a_document,
        },
    ),
    "stringFacet": ({}, {}),
    "numberFacet": ({}, _NUMBER),
    "dateFacet": ({}, {}),
    "geo": ({}, {"indexShapes": boolean}),
}  # fmt: skip
_field = _typed(_FIELD_PAGE, _FIELDS)

_longest: dict[str, Shape] = {"maxTokenLength": integer(1)}
_grams: dict[str, Shape] = {"minGram": integer(1), "maxGram": integer(1)}
_original: dict[str, Shape] = {"originalTokens": one_of("include", "omit")}
_TOKENIZERS: dict[str, tuple[dict[str, Shape], dict[str, Shape]]] = {
    "standard": ({}, _longest),
    "whitespace": ({}, _longest),
    "keyword": ({}, {}),
    "uaxUrlEmail": ({}, _longest),
    "nGram": (_grams, {}),
    "edgeGram": (_grams, {}),
    "regexSplit": ({"pattern": text}, {}),
    "regexCaptureGroup": ({"pattern": text, "group": integer(0)}, {}),
}
_TOKEN_FILTERS: dict[str, tuple[dict[str, Shape], dict[str, Shape]]] = {
    **dict.fromkeys(
        (
            "lowercase", "icuFolding", "porterStemming", "kStemming", "englishPossessive", "flattenGraph", "reverse",
            "trim", "spanishPluralStemming", "stempel", "keywordRepeat", "removeDuplicates",
        ),
        ({}, {}),
    ),
    "asciiFolding": ({}, _original),
    "daitchMokotoffSoundex": ({}, _original),
    "icuNormalizer": ({}, {"normalizationForm": one_of("nfd", "nfc", "nfkd", "nfkc")}),
    "edgeGram": (_grams, {"termNotInBounds": one_of("include", "omit")}),
    "nGram": (_grams, {"termNotInBounds": one_of("include", "omit")}),
    "length": ({}, {"min": integer(0), "max": integer(0)}),
    "regex": ({"pattern": string, "replacement": string, "matches": one_of("all", "first")}, {}),
    "shingle": ({"minShingleSize": integer(2), "maxShingleSize": integer(2)}, {}),
    "snowballStemming": (
        {
            "stemmerName": one_of(
                "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "estonian", "finnish",
                "french", "german", "german2", "hungarian", "irish", "italian", "lithuanian", "norwegian", "porter",
                "portuguese", "romanian", "russian", "spanish", "swedish", "turkish",
            )
        },
        {},
    ),
    "stopword": ({"tokens": array_of(string, least=1)}, {"ignoreCase": boolean}),
    "wordDelimiterGraph": ({}, {"delimiterOptions": a_document, "protectedWords": a_document}),
}  # fmt: skip
_CHAR_FILTERS: dict[str, tuple[dict[str, Shape], dict[str, Shape]]] = {
    "htmlStrip": ({}, {"ignoredTags": array_of(text)}),
    "icuNormalize": ({}, {}),
    "mapping": ({"mappings": map_of(string, least=1)}, {}),
    "persian": ({}, {}),
}


def _own_name(value: Any, where: str) -> Problems:
    yield from text(value, where)
    if isinstance(value, str) and value.startswith(("lucene.", "builtin.", "mongodb.")):
        yield f"{where} must not begin with lucene., builtin. or mongodb."


_analyzer = document(
    _CUSTOM_PAGE,
    {"name": _own_name, "tokenizer": _typed(_TOKENIZERS_PAGE, _TOKENIZERS)},
    {
        "charFilters": array_of(_typed(_CHARACTERS_PAGE, _CHAR_FILTERS)),
        "tokenFilters": array_of(_typed(_FILTERS_PAGE, _TOKEN_FILTERS)),
    },
)
_search_definition = document(
    DEFINITION_PAGE,
    {"mappings": document(_MAPPINGS_PAGE, optional={"dynamic": _dynamic, "fields": _fields})},
    {
        "analyzer": text,
        "searchAnalyzer": text,
        "analyzers": array_of(_analyzer),
        "numPartitions": one_of(1, 2, 4),
        "storedSource": anything,
        "synonyms": array_of(a_document),
        "typeSets": array_of(a_document, least=1),
        "sort": a_document,
    },
)


def search_definition(value: Any, where: str) -> Problems:
    """The definition of an index of type `search`. Every analyzer that it names must be there."""
    problems = list(_search_definition(value, where))
    yield from problems
    if problems:
        return
    own = [analyzer["name"] for analyzer in value.get("analyzers", ())]
    for name in {name for name in own if own.count(name) > 1}:
        yield f"{where}.analyzers must have distinct names, and {name!r} comes twice ({_CUSTOM_PAGE})"
    for name in set(_analyzers_of(value)) - STOCK_ANALYZERS - set(own):
        yield f"{where} uses the analyzer {name!r}, which it does not define ({DEFINITION_PAGE})"
    if not value["mappings"].get("dynamic") and not value["mappings"].get("fields"):
        yield f"{where}.mappings must be dynamic or have fields ({_MAPPINGS_PAGE})"


def _analyzers_of(value: Any) -> Iterator[str]:
    """Each analyzer that a definition, or a part of one, names."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _analyzers_of(each)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name in ("analyzer", "searchAnalyzer") and isinstance(each, str):
                yield each
            elif name not in ("analyzers", "synonyms"):
                yield from _analyzers_of(each)


def search_index(value: Any, where: str) -> Problems:
    """One entry of `createSearchIndexes`."""
    kind = value.get("type", "search") if isinstance(value, Mapping) else "search"
    definition = vector_definition if kind == "vectorSearch" else search_definition
    page = "https://www.mongodb.com/docs/manual/reference/command/createSearchIndexes/"
    fields = {"name": text, "type": one_of("search", "vectorSearch")}
    yield from document(page, {"definition": definition}, fields)(value, where)


def any_definition(value: Any, where: str) -> Problems:
    """A definition whose type is not said, as in `updateSearchIndex`."""
    is_vector = isinstance(value, Mapping) and "fields" in value
    yield from (vector_definition if is_vector else search_definition)(value, where)
