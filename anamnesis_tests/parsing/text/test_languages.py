import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.parsing.text.languages import forms_of, language_of, splits_of, stemmed


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Die Rechnungen werden nicht mehr doppelt erzeugt.", "german"),
        ("Les paniers orphelins sont fusionnés au prochain passage.", "french"),
        ("El carrito desaparece al iniciar la sesión.", "spanish"),
        ("The cart vanishes when a customer signs in.", None),
        ("Der Fehler lautet: the index is out of range for this array, so it was not read.", None),
        ("Rechnung gelöscht", None),
        ("der Cart", None),
        ("for (let d = 0; d < n; d++) { c = s[d] }", None),
        (".row { font-size: 1em; font-style: italic; margin: 0; padding: 0; color: var(--text) }", None),
        ("购物车里的商品数量", None),
        ("", None),
    ],
)
def test_language_is_that_of_most_stop_words(text: str, language: str | None) -> None:
    assert language_of(text) == language


def test_only_words_of_letters_are_stemmed_behind_the_code() -> None:
    text = "Die Rechnungen für HTTP2 wurden nicht gelöscht: v1.2 sowie 登录超时."
    assert stemmed(text) == "de0die de0rechnung de0fur HTTP2 de0wurd de0nicht de0geloscht: v1.2 de0sowi 登录超时."


@given(st.text(max_size=60))
def test_english_and_unknown_texts_stay_as_they_are(text: str) -> None:
    assert language_of(text) is not None or stemmed(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Wir haben die Rechnungen und Warenkörbe nicht gelöscht.", ["rechnung", "warenkorb", "Warenkoerben"]),
        ("Les paniers abandonnés ne sont pas facturés.", ["panier", "abandonnes", "facture"]),
        ("La facturación no se repite en las sesiones.", ["facturacion", "facturar", "sesion", "sesión"]),
    ],
)
def test_other_forms_and_lost_accents_have_the_same_stem(text: str, words: list[str]) -> None:
    held = set(_folded(stemmed(text)).strip(".").split())
    for word in words:
        assert held & {_folded(form) for form in forms_of(word)}, word


def test_stems_are_the_same_for_composed_and_decomposed_letters() -> None:
    text = "Die Warenkörbe wurden nicht gelöscht"
    assert stemmed(unicodedata.normalize("NFD", text)) == stemmed(text)


def test_forms_are_the_word_and_its_stem_in_each_language() -> None:
    assert forms_of("sesiones") == ("sesiones", "de0sesion", "fr0sesion", "es0sesion")
    assert forms_of("HTTP2") == ("HTTP2",)
    assert forms_of("登录") == ("登录",)


def test_splits_of_a_compound_have_two_parts_of_four_letters() -> None:
    assert ("de0akku", "de0verbrauch") in splits_of("akkuverbrauch")
    assert ("de0zahlung", "de0ziel") in splits_of("zahlungsziel")
    assert len(splits_of("akkuverb")) == 1
    assert splits_of("akku") == splits_of("akku-verbrauch") == splits_of("a" * 41) == []


def test_stemmers_are_not_shared_between_threads() -> None:
    text = "Die Rechnungen wurden nicht gelöscht, weil die Löschung der Kunden fehlte. " * 50
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(stemmed, [text] * 64)) == {stemmed(text)}


def _folded(text: str) -> str:
    return "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))
