"""Files that are not what their names say, of every format: each is read or refused with its path and a reason."""

import contextlib
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.documents.formats import to_text
from anamnesis_pipeline.documents.languages import CODE, CONFIG, CONVERTED, TEXTS
from anamnesis_pipeline.documents.sections import sections_of
from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_tests.documents import made_documents as made
from anamnesis_tests.documents.test_converted import GOOD

PATHS = [f"a.{names.split()[0]}" for table in (CODE, CONFIG, TEXTS, CONVERTED) for names in table.values()]
ZIPPED = ["a.docx", "a.odt", "a.ods", "a.pages", "a.xlsx"]
ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
LAUGHS = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "lol">{ENTITIES}]>'

BAD = {
    "nothing": b"",
    "blanks": b" \r\n\t\n",
    "control characters": bytes(range(1, 32)) * 50,
    "UTF-16 without a mark": ("Ein paar Worte, mehr nicht.\n" * 20).encode("utf-16-le"),
    "random bytes": random.Random(1).randbytes(50_000),
    "an OLE file": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(4_000),
    "another zip": made.zipped({"x": "y"}),
    "laughs": f"{LAUGHS}<x>&e11;</x>".encode(),
    "deep tags": b"<a>" * 2_000,
    "deep brackets": b"[" * 4_000,
    "ten megabytes in a line": b"a b " * 2_600_000,
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_of_any_format_is_read_or_refused_with_its_path_in_time(bad: str) -> None:
    told: list[tuple[str, str]] = []
    for path in PATHS:
        began = time.perf_counter()
        try:
            sections_of(path, to_text(path, BAD[bad]))
        except DocumentUnreadable as problem:
            told.append((path, str(problem)))
        assert time.perf_counter() - began < 60, path
    assert [problem for path, problem in told if not problem.startswith(f"{path}: ")] == []


@pytest.mark.parametrize("path", PATHS)
def test_a_file_without_a_byte_is_said_to_be_empty(path: str) -> None:
    with pytest.raises(DocumentUnreadable, match="the file is empty"):
        to_text(path, b"")


@pytest.mark.parametrize("path", ["a.docx", "a.xlsx"])
def test_an_encrypted_file_of_office_is_said_to_have_a_password(path: str) -> None:
    locked = made.compound_file({"EncryptionInfo": b"x", "EncryptedPackage": b"y"})
    with pytest.raises(DocumentUnreadable, match="protected by a password"):
        to_text(path, locked)


@pytest.mark.parametrize("path", ["a.odt", "a.ods"])
def test_an_encrypted_open_document_is_said_to_have_a_password(path: str) -> None:
    manifest = "<manifest:file-entry><manifest:encryption-data/></manifest:file-entry>"
    with pytest.raises(DocumentUnreadable, match="protected by a password"):
        to_text(path, made.zipped({"META-INF/manifest.xml": manifest, "content.xml": "x"}))


@pytest.mark.parametrize("path", ZIPPED)
def test_members_that_unpack_to_too_much_are_refused_in_every_zipped_format(path: str) -> None:
    with pytest.raises(DocumentUnreadable, match="would unpack to"):
        to_text(path, made.zipped({"content.xml": b" " * (80 << 20)}))


def test_entities_in_a_docx_are_not_laughed_at() -> None:
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    note = "<w:p><w:r><w:t>before &e11; after</w:t></w:r></w:p>"
    body = f'{LAUGHS}<w:document xmlns:w="{word}"><w:body>{note}</w:body></w:document>'
    began = time.perf_counter()
    with contextlib.suppress(DocumentUnreadable):
        assert "lol" not in to_text("a.docx", made.docx_with({}, "", document=body))
    assert time.perf_counter() - began < 60


def test_tables_in_tables_without_end_are_read_or_refused() -> None:
    deep = "<w:tbl><w:tr><w:tc>" * 20_000 + "</w:tc></w:tr></w:tbl>" * 20_000
    with pytest.raises(DocumentUnreadable, match=r"a\.docx: it is damaged"):
        to_text("a.docx", made.docx_with({}, deep))
    with pytest.raises(DocumentUnreadable, match=r"a\.odt: it is damaged"):
        to_text("a.odt", made.odt_with("<text:list><text:list-item>" * 20_000))
    shallow = "<w:tbl><w:tr><w:tc>" * 60 + "<w:p><w:r><w:t>deep</w:t></w:r></w:p>" + "</w:tc></w:tr></w:tbl>" * 60
    assert to_text("a.docx", made.docx_with({}, shallow)) == "deep"


MADE = {path: make() for path, make in GOOD.items()}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(MADE)), st.floats(0, 1))
def test_a_document_torn_at_any_place_is_read_or_refused(path: str, share: float) -> None:
    whole = MADE[path]
    with contextlib.suppress(DocumentUnreadable):
        sections_of(path, to_text(path, whole[: int(len(whole) * share)]))
