import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from anamnesis_tests.mongo_server.search_analysis import analyzer_of
from anamnesis_tests.mongo_server.search_catalog import SearchCatalog
from anamnesis_tests.mongo_server.search_errors import NotEmulated, SearchRefused
from anamnesis_tests.mongo_server.search_terms import TermField, kept_length

EXACT = {"name": "exact", "tokenizer": {"type": "whitespace"}}
MAPPINGS = {
    "dynamic": False,
    "fields": {
        "text": {"type": "string", "analyzer": "lucene.english"},
        "title": {"type": "string", "multi": {"exact": {"type": "string", "analyzer": "exact"}}},
        "kind": {"type": "token"},
        "tags": [{"type": "token"}, {"type": "string"}],
        "n": {"type": "number", "representation": "int64"},
        "when": {"type": "date"},
        "done": {"type": "boolean"},
        "inner": {"type": "document", "dynamic": False, "fields": {"kind": {"type": "token"}}},
    },
}


class Collection:
    """Documents and a text index over them that is always up to date."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.documents: dict[Any, Mapping[str, Any]] = dict(enumerate(documents))
        self.catalog = SearchCatalog(lambda _db, _coll: self.documents)
        self.catalog.behaviour.build_s = self.catalog.behaviour.lag_s = 0
        definition = {"mappings": MAPPINGS, "analyzers": [EXACT]}
        self.catalog.create("db", "c", [{"name": "t", "definition": definition}])

    def scores(self, **body: Any) -> dict[int, float]:
        hits = self.catalog.run("db", "c", {"$search": {"index": "t", **body}})
        by_n = {document["_id"]: key for key, document in self.documents.items()}
        return {by_n[document["_id"]]: metadata["searchScore"] for document, metadata in hits}

    def found(self, **body: Any) -> list[int]:
        return list(self.scores(**body))

    def counted(self, **body: Any) -> Any:
        [(result, _)] = self.catalog.run("db", "c", {"$searchMeta": {"index": "t", **body}})
        return result["count"]


def documents(**values: Any) -> list[dict[str, Any]]:
    """One document per element of the lists, which have one length."""
    rows = zip(*values.values(), strict=True)
    return [{"_id": number, **dict(zip(values, row, strict=True))} for number, row in enumerate(rows)]


def text(query: Any, path: Any = "text", **more: Any) -> dict[str, Any]:
    return {"text": {"query": query, "path": path, **more}}


def test_words_are_found_by_their_stems_and_without_their_case() -> None:
    collection = Collection(*documents(text=["Running dogs", "a cat runs", "nothing"]))
    assert sorted(collection.found(**text("RUN"))) == [0, 1]
    assert collection.found(**text("the of")) == []


def test_any_word_of_a_query_is_enough_unless_all_are_asked_for() -> None:
    collection = Collection(*documents(text=["red house", "red car", "blue car"]))
    assert sorted(collection.found(**text("red car"))) == [0, 1, 2]
    assert collection.found(**text("red car"))[0] == 1
    assert collection.found(**text("red car", matchCriteria="all")) == [1]


def test_several_queries_and_paths_are_alternatives_whose_scores_add_up() -> None:
    collection = Collection(*documents(text=["red", "blue", "x"], title=["red", "y", "red"]))
    scores = collection.scores(**text(["red", "blue"], ["text", "title"]))
    assert sorted(scores) == [0, 1, 2]
    alone = collection.scores(**text("red", "text"))[0] + collection.scores(**text("red", "title"))[0]
    assert scores[0] == pytest.approx(alone)


def test_a_path_that_is_not_mapped_finds_nothing() -> None:
    assert Collection(*documents(text=["red"], other=["red"])).found(**text("red", "other")) == []


def test_a_multi_analyzer_is_another_field() -> None:
    collection = Collection(*documents(title=["Foo-Bar baz", "foo bar"]))
    assert sorted(collection.found(**text("foo", "title"))) == [0, 1]
    assert collection.found(**text("Foo-Bar", {"value": "title", "multi": "exact"})) == [0]


def test_a_phrase_has_its_words_one_after_another() -> None:
    collection = Collection(*documents(text=["new york city", "york is new", "new big york", "new the york"]))
    phrase = {"phrase": {"query": "new york", "path": "text"}}
    assert collection.found(**phrase) == [0]
    assert set(collection.found(phrase={"query": "new the york", "path": "text"})) == {2, 3}


def test_scores_are_those_of_bm25() -> None:
    field = TermField(analyzer_of("lucene.standard"), analyzer_of("lucene.standard"))
    for row, words in enumerate(["a a b", "a c", "d"]):
        field.put(row, [words])
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    expected = idf * 2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 3 / 2))
    assert field.matching("a", every=False)[0] == pytest.approx(expected)
    assert field.matching("a a", every=False)[0] == pytest.approx(2 * expected)


def test_lengths_are_kept_with_four_bits_above_forty() -> None:
    assert [kept_length(length) for length in (0, 1, 23, 24, 39, 40, 41, 42, 57, 1000)] == [
        0, 1, 23, 24, 39, 40, 40, 42, 56, 984,
    ]  # fmt: skip


def test_removing_and_changing_leaves_no_trace_in_the_figures() -> None:
    field = TermField(analyzer_of("lucene.standard"), analyzer_of("lucene.standard"))
    field.put(1, ["a b"])
    before = field.matching("a", every=False)
    field.put(2, ["a a a"])
    field.put(2, ["z"])
    field.remove(2)
    assert field.matching("a", every=False) == before
    assert field.matching("z", every=False) == {}


VALUES = documents(
    kind=["a", "b", "a", None],
    tags=[["x", "y"], [], ["y"], None],
    n=[1, 2**53 + 1, 7.0, None],
    when=[datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)],
    done=[True, False, True, True],
    inner=[{"kind": "q"}, {}, {"kind": "r"}, {"other": 1}],
)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"equals": {"path": "kind", "value": "a"}}, [0, 2]),
        ({"equals": {"path": "done", "value": False}}, [1]),
        ({"equals": {"path": "n", "value": 7}}, [2]),
        ({"equals": {"path": "kind", "value": None}}, [3]),
        ({"equals": {"path": "inner.kind", "value": "q"}}, [0]),
        ({"equals": {"path": "tags", "value": "y"}}, [0, 2]),
        ({"in": {"path": "kind", "value": ["b", "c"]}}, [1]),
        ({"in": {"path": ["kind", "tags"], "value": ["b", "x"]}}, [0, 1]),
        ({"range": {"path": "n", "gt": 1, "lt": 2**53 + 1}}, [2]),
        ({"range": {"path": "n", "gte": 2**53 + 1}}, [1]),
        ({"range": {"path": "when", "lte": datetime(2020, 1, 2, tzinfo=UTC)}}, [0, 1]),
        ({"range": {"path": "kind", "gte": "b"}}, [1]),
        ({"exists": {"path": "n"}}, [0, 1, 2, 3]),
        ({"exists": {"path": "inner.kind"}}, [0, 2]),
        ({"exists": {"path": "inner"}}, [0, 1, 2, 3]),
        ({"compound": {"filter": [{"equals": {"path": "kind", "value": "a"}}]}}, [0, 2]),
        ({"compound": {"mustNot": [{"equals": {"path": "kind", "value": "a"}}]}}, [1, 3]),
        ({"compound": {"must": [{"exists": {"path": "n"}}], "mustNot": [{"exists": {"path": "inner.kind"}}]}}, [1, 3]),
        ({"compound": {"should": [{"equals": {"path": "kind", "value": "a"}}, {"equals": {"path": "n", "value": 1}}],
                       "minimumShouldMatch": 2}}, [0]),
        ({"compound": {"should": [{"equals": {"path": "kind", "value": "b"}}]}}, [1]),
        ({"compound": {"filter": [{"exists": {"path": "n"}}],
                       "should": [{"equals": {"path": "kind", "value": "b"}}]}}, [0, 1, 2, 3]),
    ],
    ids=str,
)  # fmt: skip
def test_operators_find_values_as_documented(body: Mapping[str, Any], found: list[int]) -> None:
    assert sorted(Collection(*VALUES).found(**body)) == found


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"equals": {"path": "text", "value": "a"}}, "Path 'text' needs to be indexed as token"),
        ({"equals": {"path": "other", "value": 1}}, "Path 'other' needs to be indexed as number"),
        ({"in": {"path": "kind", "value": [True]}}, "needs to be indexed as boolean"),
        ({"range": {"path": "kind", "gt": 1}}, "needs to be indexed as number"),
    ],
)
def test_a_path_without_the_type_that_is_asked_for_is_refused(body: Mapping[str, Any], told: str) -> None:
    with pytest.raises(SearchRefused, match=told):
        Collection(*VALUES).found(**body)


def test_what_compares_scores_one_and_a_filter_nothing() -> None:
    collection = Collection(*documents(text=["red", "red"], kind=["a", "b"]))
    of_kind = {"equals": {"path": "kind", "value": "a"}}
    assert collection.scores(**of_kind) == {0: 1.0}
    assert collection.scores(compound={"filter": [of_kind]}) == {0: 0.0}
    alone = collection.scores(**text("red"))[0]
    assert collection.scores(compound={"must": [text("red")], "filter": [of_kind]}) == {0: alone}
    assert collection.scores(compound={"must": [text("red"), of_kind]}) == {0: alone + 1}


def test_a_sort_orders_by_values_and_nulls_come_first_when_it_rises() -> None:
    collection = Collection(*VALUES)
    everything = {"exists": {"path": "when"}}
    assert collection.found(**everything, sort={"n": 1}) == [3, 0, 2, 1]
    assert collection.found(**everything, sort={"n": -1}) == [1, 2, 0, 3]
    assert collection.found(**everything, sort={"kind": 1, "when": -1}) == [3, 2, 0, 1]
    assert collection.found(**everything, sort={"tags": -1}) == [0, 2, 1, 3]


def test_counts_are_exact_as_totals_and_bounded_otherwise() -> None:
    collection = Collection(*documents(n=list(range(1500))))
    everything = {"exists": {"path": "n"}}
    assert collection.counted(**everything, count={"type": "total"}) == {"total": 1500}
    assert collection.counted(**everything) == {"lowerBound": 1001}
    assert collection.counted(**everything, count={"threshold": 5000}) == {"lowerBound": 1500}
    assert collection.counted(range={"path": "n", "lt": 10}) == {"lowerBound": 10}


@pytest.mark.parametrize(
    ("name", "words", "terms"),
    [
        ("lucene.standard", "Can't stop: example.com SNAKE_case e-mail 1,234.5", [
            "can't", "stop", "example.com", "snake_case", "e", "mail", "1,234.5"]),
        ("lucene.standard", "日本語 テスト", ["日", "本", "語", "テスト"]),
        ("lucene.whitespace", " a-b  C\u00a0d ", ["a-b", "C\u00a0d"]),
        ("lucene.keyword", "A b", ["A b"]),
        ("lucene.simple", "It's 5pm", ["it", "s", "pm"]),
        ("lucene.english", "The dog's flies", [None, "dog", "fli"]),
    ],
)  # fmt: skip
def test_stock_analyzers_cut_as_lucene_does(name: str, words: str, terms: list[str]) -> None:
    assert analyzer_of(name)(words) == terms


@pytest.mark.parametrize(
    ("filters", "words", "terms"),
    [
        ([{"type": "lowercase"}, {"type": "asciiFolding"}], "Straße Ærø naïve", ["strasse", "aero", "naive"]),
        ([{"type": "icuFolding"}], "STRASSE Straße Źdźbło", ["strasse", "strasse", "zdzblo"]),
        ([{"type": "snowballStemming", "stemmerName": "english"}], "generously", ["generous"]),
        ([{"type": "porterStemming"}], "relational hopping", ["relat", "hop"]),
        ([{"type": "stopword", "tokens": ["The"], "ignoreCase": True}], "the end", [None, "end"]),
        ([{"type": "stopword", "tokens": ["The"], "ignoreCase": False}], "the end", ["the", "end"]),
        ([{"type": "length", "min": 2, "max": 3}], "a bc defg", [None, "bc", None]),
    ],
)
def test_token_filters_do_what_they_are_named_for(filters: Any, words: str, terms: list[str]) -> None:
    own = {"name": "own", "tokenizer": {"type": "standard"}, "tokenFilters": filters}
    assert analyzer_of("own", [own])(words) == terms


def test_a_pattern_of_java_takes_marks_for_parts_of_words_and_fractions_for_none() -> None:
    own = {"name": "own", "tokenizer": {"type": "regexSplit", "pattern": r"(?U)[\W_]+"}}
    assert analyzer_of("own", [own])("SAVE_CONFIG na\u0131\u0308ve 10.0 a½b") == [
        "SAVE", "CONFIG", "na\u0131\u0308ve", "10", "0", "a", "b",
    ]  # fmt: skip
    plain = {"name": "own", "tokenizer": {"type": "regexSplit", "pattern": r"\W+"}}
    assert analyzer_of("own", [plain])("naïve a_b") == ["na", "ve", "a_b"]


def test_a_very_long_word_is_cut() -> None:
    assert [len(term or "") for term in analyzer_of("lucene.whitespace")("x" * 600)] == [255, 255, 90]


def test_what_is_not_emulated_says_so() -> None:
    with pytest.raises(NotEmulated, match="kStemming"):
        analyzer_of(
            "own", [{"name": "own", "tokenizer": {"type": "standard"}, "tokenFilters": [{"type": "kStemming"}]}]
        )
    catalog = SearchCatalog(lambda _db, _coll: {})
    with pytest.raises(NotEmulated, match="dynamic"):
        catalog.create("db", "c", [{"definition": {"mappings": {"dynamic": True}}}])
