"""Names go into text that can be stored, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.parsing.text.file_names import bytes_of, name_of

RAW = st.binary().map(lambda raw: raw.replace(b"\0", b"x"))


@given(RAW | st.text(alphabet=st.sampled_from("a\n\uf77f\uf780\uf7ff\uf800ü")).map(str.encode))
def test_every_name_comes_back_as_it_was_and_can_be_stored(raw):
    name = name_of(raw)
    name.encode()
    assert bytes_of(name) == raw


@given(RAW, RAW)
def test_two_names_are_two_texts(one, other):
    assert (name_of(one) == name_of(other)) == (one == other)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_name_that_is_text_stays_that_text(name):
    if not any("\uf780" <= c <= "\uf7ff" for c in name):
        assert name_of(name.encode()) == name


def test_what_python_makes_of_odd_arguments_is_understood():
    assert bytes_of(b"caf\xe9".decode("utf-8", "surrogateescape")) == b"caf\xe9"


def test_half_a_pair_and_a_nul_are_no_names():
    for text in ("\ud800", "a\0b"):
        with pytest.raises(ValueError):
            bytes_of(text)
