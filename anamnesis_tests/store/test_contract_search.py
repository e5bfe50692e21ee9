"""What every backend promises about full text."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite import fulltext
from anamnesis_tests.support.samples import episode, passages, put


def found(store: Store, *words: str, **options: object) -> list[str]:
    """Ids of the episodes that contain any of `words`, best first."""
    return [hit.episode_id for hit in store.text.matching(words, 10, EpisodeFilter(), **options)]  # type: ignore[arg-type]


def test_words_are_stemmed_and_folded(store: Store):
    put(store, "e", "We were Migrating the café databases")
    for word in ("migrate", "MIGRATED", "cafe", "database"):
        assert found(store, word) == ["e"]
    assert found(store, "migrant") == []


def test_words_that_no_text_has_are_unknown(store: Store):
    put(store, "e", "We were migrating the café databases", context="a header about elephants")
    words = ["postgres", "Migrated", "cafe", "elephant", "?!", "postgres databases"]
    assert store.text.unknown(words) == ["postgres", "elephant", "postgres databases"]
    put(store, "f", "Postgres it is")
    assert store.text.unknown(["postgres"]) == []
    store.episodes.delete("f")
    store.episodes.delete("e")
    assert store.text.unknown(["database"]) == ["database"]


def test_what_has_all_words_is_told_from_what_has_some(store: Store):
    put(store, "long", "the café's servers lost a certificate, and then they slept for days and days")
    put(store, "short", "A server of the cafe: certified again")
    put(store, "apart", "one server", "one cafe and a certificate")
    put(store, "header", "the cafe's certificate", context="on a server")
    put(store, "old", "server, cafe, certificate", status="superseded")

    def having(*words: str, k: int = 10, **filters: Any) -> list[str]:
        return [hit.episode_id for hit in store.text.with_all(words, k, EpisodeFilter(**filters))]

    assert having("Server", "cafe", "certificates") == ["long"]
    assert having("server", "cafe") == ["short", "long"]
    assert having("server", "cafe", "?!") == ["short", "long"]
    assert having("server", "cafe", k=1) == ["short"]
    assert having("server", "cafe", projects=("elsewhere",)) == []
    assert having("server", "elephant") == having("?!") == having() == having("server", k=0) == []


def test_what_few_passages_have_is_told_of_each_word(store: Store):
    put(store, "one", "ZEBRA-77 and zebra-77 again", "common")
    put(store, "two", "of zebra-77, in many more words than the other one has", "common", project="elsewhere")
    put(store, "hidden", "zebra-77", kind="compact_summary")
    put(store, "old", "zebra-77", status="superseded")
    put(store, "third", "common")

    def few(*words: str, most: int = 2, **filters: Any) -> list[list[str]]:
        where = EpisodeFilter(hidden_kinds=("compact_summary",), **filters)
        return [[hit.episode_id for hit in found] for found in store.text.held_by_few(words, most, where)]

    assert few("zebra-77", "common", "absent", "?!") == [["one", "two"], [], [], []]
    assert few("zebra-77", "common", most=1) == [[], []]
    assert [sorted(found) for found in few("common", most=3)] == [["one", "third", "two"]]
    assert few("zebra-77", "common", projects=("elsewhere",)) == [["two"], ["two"]]
    assert few("zebra-77", include_superseded=True) == [[]]
    assert few() == []


def test_a_passage_with_more_and_rarer_words_comes_first(store: Store):
    put(store, "one", "the server restarted and then the server slept")
    put(store, "both", "the server lost its certificate")
    put(store, "none", "nothing of the kind")
    hits = store.text.matching(["server", "certificate"], 10, EpisodeFilter())
    assert [hit.episode_id for hit in hits] == ["both", "one"]
    assert hits[0].score > hits[1].score > 0


def test_context_is_found_by_the_context_variant_only(store: Store):
    (key,) = put(store, "e", "verbatim words", context="a header about elephants")
    assert found(store, "elephant") == []
    assert found(store, "elephant", variant=Variant.TEXT) == []
    hits = store.text.matching(["elephant"], 10, EpisodeFilter(), variant=Variant.CONTEXT)
    assert [(hit.passage_id, hit.episode_id) for hit in hits] == [(key, "e")]
    assert found(store, "verbatim", variant=Variant.CONTEXT) == ["e"]
    assert found(store, "elephants", analyzer="exact") == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("ping 192.168.0.108. It answered", "192.168.0.108"),
        ("ping 192.168.0.108. It answered", "192.168.0.108."),
        ("call foo_bar.baz(1)", "foo_bar.baz"),
        ("call foo_bar.baz now", "foo_bar"),
        ("call foo_bar.baz now", "baz"),
        ("never git push --no-verify!", "--no-verify"),
        ("tagged (v1.2.3),", "v1.2.3"),
        ("see src/billing.py:44.", "src/billing.py:44"),
        ("see src/billing.py:44.", "src/billing.py"),
        ("see src/billing.py:44.", "billing.py"),
        ("see src/billing.py:44.", "billing"),
        ('{"file_path":"/code/a.txt","limit":5}', "file_path"),
        ('{"file_path":"/code/a.txt","limit":5}', "limit"),
        ("HTTP_PROXY was unset", "http_proxy"),
        ("in __init__.py", "__init__.py"),
        ("Überprüfung läuft", "überprüfung"),
        ("host:port/path-with-dash", "path-with-dash"),
        ("日本語 のテキスト", "日本語"),
    ],
)
def test_the_exact_analyzer_finds_identifiers(store: Store, text: str, word: str):
    put(store, "e", text)
    put(store, "other", "unrelated words only")
    assert found(store, word, analyzer="exact") == ["e"]


UNSPACED = [
    ("上周我们决定把登录超时改成三十秒，为什么？", "登录超时"),
    ("上周我们决定把登录超时改成三十秒，为什么？", "三十秒"),
    ("上周我们决定把登录超时改成三十秒，为什么？", "登录超时改成多少"),
    ("因为夜间重跑gen-itgc后连接池会空闲。", "itgc"),
    ("因为夜间重跑gen-itgc后连接池会空闲。", "gen-itgc"),
    ("バッチの再試行は三回までにしてください", "再試行"),
    ("値は30秒です", "秒"),
    ("เซสชันหมดเวลาหลังจากสามสิบวินาที", "หมดเวลา"),
    ("타임아웃을 삼십 초로 바꿨다", "타임아웃"),
    ("ເວລາໝົດອາຍຸຂອງເຊດຊັນ", "ໝົດອາຍຸ"),
    ("អស់ពេលនៃវគ្គគឺសាមសិបវិនាទី", "វិនាទី"),
    ("စက်ရှင်အချိန်ကုန်သည်", "အချိန်ကုန်"),
]


@pytest.mark.parametrize(("text", "word"), UNSPACED)
def test_scripts_without_spaces_are_found_by_words(store: Store, text: str, word: str):
    put(store, "e", text)
    put(store, "other", "设置连接数 ตกลง 서버 設定 unrelated words")
    put(store, "header", "verbatim", context=text)
    assert found(store, *content_words(word)) == ["e"]
    assert set(found(store, *content_words(word), variant=Variant.CONTEXT)) == {"e", "header"}
    assert store.text.unknown(content_words(word)) in ([], ["成多", "多少"])


@pytest.mark.parametrize(("text", "word"), [each for each in UNSPACED if each[1] != "登录超时改成多少"])
def test_scripts_without_spaces_are_found_exactly(store: Store, text: str, word: str):
    put(store, "e", text)
    put(store, "other", f"unrelated {word[1:]}")
    assert found(store, word, analyzer="exact") == ["e"]
    assert [hit.episode_id for hit in store.text.with_all([word], 10, EpisodeFilter(), analyzer="exact")] == ["e"]


def test_exact_words_need_each_character_in_order_with_its_marks(store: Store):
    put(store, "e", "登录再超时，重跑gen-itgc后", "ม้าวิ่ง")
    for absent in ("登录超时", "录登", "重跑itgc", "มาวิ่ง"):
        assert found(store, absent, analyzer="exact") == []
    for there in ("登录再超时", "重跑gen-itgc后", "ม้าวิ่ง"):
        assert found(store, there, analyzer="exact") == ["e"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("no need to verify", "--no-verify"),
        ("192.168.0.1081", "192.168.0.108"),
        ("migrating", "migrate"),
        ("foo bar baz", "foo_bar.baz"),
        ("cafe", "café"),
    ],
)
def test_the_exact_analyzer_finds_nothing_merely_similar(store: Store, text: str, word: str):
    put(store, "e", text)
    assert found(store, word, analyzer="exact") == []


@pytest.mark.parametrize(
    "word",
    [
        '"',
        'a"b',
        "a\0b",
        "*",
        "NEAR(",
        "{text}: x",
        "AND",
        "-",
        "(",
        "text:x",
        "^",
        "",
        " ",
        "'; DROP --",
        "\ud83d",
        "😀",
    ],
)
@pytest.mark.parametrize("analyzer", ["stem", "exact"])
def test_words_are_data_and_never_syntax(store: Store, word: str, analyzer: str):
    put(store, "e", "harmless")
    assert found(store, word, analyzer=analyzer) == []
    assert found(store, word, "harmless", analyzer=analyzer) == ["e"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text(max_size=12), max_size=4), analyzer=st.sampled_from(["stem", "exact"]))
def test_no_words_can_break_a_search(store: Store, words: list[str], analyzer: str):
    store.text.matching(words, 3, EpisodeFilter(), analyzer=analyzer)


def test_nothing_is_found_for_no_words_or_no_results_wanted(store: Store):
    put(store, "e", "text")
    assert store.text.matching([], 5, EpisodeFilter()) == []
    assert store.text.matching(["text"], 0, EpisodeFilter()) == []


def test_an_unknown_analyzer_is_refused(store: Store):
    with pytest.raises(ValueError, match="fuzzy"):
        store.text.matching(["x"], 5, EpisodeFilter(), analyzer="fuzzy")


def test_changed_passages_are_found_by_their_new_words_only(store: Store):
    put(store, "e", "old words", "second")
    put(store, "e", "new words", "second")
    assert found(store, "old") == []
    assert found(store, "new") == ["e"]
    assert found(store, "old", analyzer="exact") == []
    assert store.text.check() == []


@pytest.fixture
def common_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """For SQLite, a word is a common one in a tenth of the passages that it is by itself."""
    for name in ("RARE_ROWS", "COUNTED_ROWS", "RESCORED"):
        monkeypatch.setattr(fulltext, name, getattr(fulltext, name) // 10)


@pytest.mark.usefixtures("common_soon")
def test_ten_that_pass_give_ten_however_many_do_not(store: Store):
    many = [(episode(f"m{i}", project="noise"), passages("the needle again needle needle")) for i in range(330)]
    ten = [(episode(f"t{i}", project="rare"), passages("a needle somewhere in a long stack of hay")) for i in range(10)]
    store.episodes.put(many + ten)
    where = EpisodeFilter(projects=("rare",))
    for analyzer in ("stem", "exact"):
        hits = store.text.matching(["needle"], 10, where, analyzer=analyzer)
        assert {hit.episode_id for hit in hits} == {f"t{i}" for i in range(10)}
        hits = store.text.matching(["needle", "stack", "nowhere"], 10, where, analyzer=analyzer)
        assert len(hits) == 10


def test_all_words_are_compared_as_the_analyzer_does(store: Store):
    put(store, "a", "the gateway at 192.168.0.108. refused SAVE_CONFIG twice")
    put(store, "b", "the gateways at 192.168.0.109 refuse nothing")

    def having(*words: str, **options: str) -> list[str]:
        return [hit.episode_id for hit in store.text.with_all(words, 10, EpisodeFilter(), **options)]

    assert set(having("gateway", "refuse")) == {"a", "b"}
    assert having("gateway", "refused", analyzer="exact") == ["a"]
    assert having("192.168.0.108", "save_config", analyzer="exact") == ["a"]
    assert having("gateways at", analyzer="exact") == ["b"]
    assert having("save_config", "unheard", analyzer="exact") == []
    assert having("...", analyzer="exact") == []
    with pytest.raises(ValueError, match="analyzer"):
        store.text.with_all(["gateway"], 1, EpisodeFilter(), analyzer="other")


def test_hidden_projects_are_left_out_and_cost_no_results(store: Store):
    for number in range(60):
        put(store, f"a{number}", "shared word", project="me/diary", minute=number)
    for number in range(10):
        put(store, f"b{number}", "shared word", project=f"acme/{number % 3}")
    where, left = EpisodeFilter(hidden_projects=("me/diary", "acme/2")), {f"b{n}" for n in range(10) if n % 3 != 2}
    assert {hit.episode_id for hit in store.text.matching(["shared"], 7, where)} == left
    assert {item.episode_id for item in store.episodes.page(where, 100).items} == left
    assert store.episodes.count(where) == 7


def test_hidden_sources_are_left_out_but_for_shown_projects(store: Store):
    for number in range(60):
        project = "mine" if number % 20 else "named"
        put(store, f"a{number}", "shared word", source="vault", project=project, minute=number)
    for number in range(4):
        put(store, f"b{number}", "shared word", project="acme")
    open_ones, named = {f"b{n}" for n in range(4)}, {"a0", "a20", "a40"}
    for shown, left in (((), open_ones), (("named",), open_ones | named)):
        where = EpisodeFilter(hidden_sources=("vault",), shown_projects=shown)
        assert {hit.episode_id for hit in store.text.matching(["shared"], 7, where)} == left
        assert {item.episode_id for item in store.episodes.page(where, 100).items} == left
        assert store.episodes.count(where) == len(left)


@pytest.mark.usefixtures("common_soon")
def test_common_word_is_searched_and_fills_up_what_others_leave(store: Store):
    store.episodes.put([(episode(f"m{i}"), passages("everyday words")) for i in range(320)])
    put(store, "special", "everyday unicorn")
    assert len(store.text.matching(["everyday"], 50, EpisodeFilter())) == 50
    hits = store.text.matching(["everyday", "unicorn"], 50, EpisodeFilter())
    assert hits[0].episode_id == "special"
    assert len(hits) == 50


@pytest.mark.usefixtures("common_soon")
def test_common_word_still_counts_in_the_score(store: Store):
    store.episodes.put([(episode(f"m{i}"), passages("everyday words, and more of them")) for i in range(320)])
    store.episodes.put([(episode(f"o{i}"), passages("other things that have nothing in common")) for i in range(400)])
    put(store, "without", "a unicorn in the garden of the house")
    put(store, "with", "a unicorn in the everyday of the house")
    for analyzer in ("stem", "exact"):
        for _ in range(2):
            hits = store.text.matching(["unicorn", "everyday"], 2, EpisodeFilter(), analyzer=analyzer)
            assert [hit.episode_id for hit in hits] == ["with", "without"]
            assert hits[0].score > hits[1].score
    put(store, "fresh", "a unicorn in the everyday of a life")
    assert {h.episode_id for h in store.text.matching(["unicorn", "everyday"], 2, EpisodeFilter())} == {"with", "fresh"}


def test_a_passage_written_by_another_handle_is_found_at_once(open_store):  # type: ignore[no-untyped-def]
    reader, writer = open_store(), open_store()
    for _ in range(2):
        assert found(reader, "fresh") == []
        assert reader.text.unknown(["fresh"]) == ["fresh"]
    put(writer, "e", "fresh words")
    assert found(reader, "fresh") == ["e"]
    assert reader.text.unknown(["fresh"]) == []
    put(writer, "f", "fresh words as well")
    assert set(found(reader, "fresh")) == {"e", "f"}


def test_check_finds_nothing_wrong_after_many_changes(store: Store):
    for turn in range(5):
        for i in range(5):
            put(store, f"e{i}", *(f"text {turn} {i} {n}" for n in range(turn + 1)))
    for i in range(0, 5, 2):
        store.episodes.delete(f"e{i}")
    assert store.text.check() == []


def test_words_are_found_in_either_unicode_form(store: Store):
    put(store, "decomposed", "in Ku\u0308che-Steuerung/ofen.py, \u30ab\u3099\u30e9\u30b9")
    put(store, "composed", "in Küche-Steuerung/kuehlschrank.py, ガラス")
    for analyzer in ("exact", "stem"):
        for word in ("Küche-Steuerung", "Ku\u0308che-Steuerung", "ガラス", "\u30ab\u3099\u30e9\u30b9"):
            assert set(found(store, word, analyzer=analyzer)) == {"composed", "decomposed"}, (analyzer, word)
    assert store.text.unknown(["ガラス", "\u30ab\u3099\u30e9\u30b9"]) == []


def test_projects_are_filtered_in_either_unicode_form(store: Store):
    for name in ("~/Küche", "~/Ku\u0308che"):
        put(store, name, "the oven", project=name)
    assert store.projects.all() == ["~/Küche"]
    for name in ("~/Küche", "~/Ku\u0308che"):
        assert store.episodes.count(EpisodeFilter(projects=(name,))) == 2
        assert store.context.has_project(name)
