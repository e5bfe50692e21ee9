"""Files that are not what their names say, of every format: each is read or refused with its path and a reason."""

import contextlib
import io
import random
import struct
import time
import zipfile

import pytest

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.model import Section
from anamnesis_pipeline.parsing.documents.formats import MAX_TEXT_CHARS, to_text
from anamnesis_pipeline.parsing.documents.languages import CODE, CONFIG, CONVERTED, TEXTS
from anamnesis_pipeline.parsing.documents.sections import sections_of
from anamnesis_tests.support import made_documents as made

GOOD = {
    "a.docx": made.docx_file(),
    "a.pdf": made.pdf_file([["Some text on a page."]]),
    "a.odt": made.odt_file(),
    "a.ods": made.ods_file(),
    "a.pages": made.pages_file(),
    "a.xlsx": made.xlsx_file({"A": [("x", 1.0)]}),
    "a.xls": made.xls_file([("x", 1.0)]),
    "a.ipynb": made.notebook_file(),
    "a.rtf": made.rtf_file(),
    "a.doc": made.doc_file("A log of the sea."),
    "a.eml": made.eml_file(),
    "a.mbox": made.mbox_file([made.mail()] * 3),
    "a.html": made.HTML.encode(),
}
PATHS = [f"a.{names.split()[0]}" for table in (CODE, CONFIG, TEXTS, CONVERTED) for names in table.values()]
MEMBERS = {"a.docx": "word/document.xml", "a.odt": "content.xml", "a.xlsx": "xl/worksheets/sheet1.xml"}
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


def read_or_refused(path: str, data: bytes) -> list[Section]:
    """The sections; none if the document is refused by the one error that may be raised."""
    with contextlib.suppress(DocumentUnreadable):
        return sections_of(path, to_text(path, data))
    return []


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_of_any_format_is_read_or_refused_in_time(bad: str) -> None:
    told: list[tuple[str, str]] = []
    for path in PATHS:
        began = time.perf_counter()
        try:
            sections_of(path, to_text(path, BAD[bad]))
        except DocumentUnreadable as problem:
            told.append((path, str(problem)))
        assert time.perf_counter() - began < 60, path
    assert [problem for path, problem in told if not problem.startswith(f"{path}: ")] == []
    if bad == "nothing":
        assert {problem.endswith("the file is empty") for _, problem in told} == {True}
        assert [path for path, _ in told] == PATHS


@pytest.mark.parametrize("path", GOOD)
def test_a_document_cut_anywhere_is_read_or_refused(path: str) -> None:
    draw = random.Random(path)
    for share in (0.0, 0.02, 0.3, 0.5, 0.9, 0.99, *(draw.random() for _ in range(5))):
        read_or_refused(path, GOOD[path][: int(len(GOOD[path]) * share)])


@pytest.mark.parametrize("path", GOOD)
def test_a_document_with_changed_bytes_is_read_or_refused(path: str) -> None:
    whole = GOOD[path]
    for start in range(7, len(whole), max(1, len(whole) // 12)):
        damaged = bytearray(whole)
        damaged[start : start + 16] = bytes(255 - byte for byte in damaged[start : start + 16])
        read_or_refused(path, bytes(damaged))


@pytest.mark.parametrize("path", [name for name in GOOD if name not in {"a.html", "a.rtf"}])
@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 40, b"just some words, nothing else\n" * 20])
def test_a_name_that_promises_another_format_is_refused(path: str, data: bytes) -> None:
    with pytest.raises(DocumentUnreadable):
        to_text(path, data)


@pytest.mark.parametrize("path", ["a.docx", "a.xlsx", "a.odt", "a.ods"])
def test_an_encrypted_document_is_said_to_have_a_password(path: str) -> None:
    manifest = "<manifest:file-entry><manifest:encryption-data/></manifest:file-entry>"
    office = made.compound_file({"EncryptionInfo": b"x", "EncryptedPackage": b"y"})
    locked = office if path.endswith("x") else made.zipped({"META-INF/manifest.xml": manifest, "content.xml": "x"})
    with pytest.raises(DocumentUnreadable, match="protected by a password"):
        to_text(path, locked)


@pytest.mark.parametrize("path", ["a.docx", "a.odt", "a.ods", "a.pages", "a.xlsx"])
@pytest.mark.parametrize("is_expected", [True, False])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(path: str, is_expected: bool) -> None:
    member = MEMBERS.get(path, "content.xml") if is_expected else "another.xml"
    bomb = made.zipped({"META-INF/manifest.xml": "<x/>", member: b" " * (80 << 20)})
    assert len(bomb) < 1 << 20
    with pytest.raises(DocumentUnreadable, match="would unpack to"):
        to_text(path, bomb)


@pytest.mark.parametrize("path", MEMBERS)
def test_a_zip_that_lies_about_a_size_is_refused(path: str) -> None:
    data = bytearray(GOOD[path])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = archive.getinfo(MEMBERS[path]).file_size
    listed = data.rindex(MEMBERS[path].encode()) - 46 + 24
    assert struct.unpack_from("<I", data, listed)[0] == size
    struct.pack_into("<I", data, listed, size - 9)
    with pytest.raises(DocumentUnreadable):
        to_text(path, bytes(data))


def odt_of(doctype: str, paragraph: str) -> bytes:
    schema = "urn:oasis:names:tc:opendocument:xmlns"
    content = (
        f'{doctype}<o:document-content xmlns:o="{schema}:office:1.0" xmlns:t="{schema}:text:1.0"><o:body>'
        f"<t:p>{paragraph}</t:p></o:body></o:document-content>"
    )
    return made.zipped({"META-INF/manifest.xml": "<x/>", "content.xml": content})


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
LAUGHED = "<w:body><w:p><w:r><w:t>before &e11; after</w:t></w:r></w:p></w:body></w:document>"


@pytest.mark.parametrize(
    ("path", "data", "brought"),
    [
        ("a.odt", odt_of(LAUGHS, "&e11;"), "lol"),
        ("a.docx", made.docx_with({}, "", document=f'{LAUGHS}<w:document xmlns:w="{WORD}">{LAUGHED}'), "lol"),
        ("a.odt", odt_of('<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>', "before &e; and more"), "root:"),
    ],
    ids=["laughs in odt", "laughs in docx", "a file of the machine"],
)
def test_an_entity_brings_nothing_in(path: str, data: bytes, brought: str) -> None:
    began = time.perf_counter()
    with contextlib.suppress(DocumentUnreadable):
        assert brought not in to_text(path, data)
    assert time.perf_counter() - began < 60


def test_a_sheet_with_one_cell_far_out_is_refused() -> None:
    sheet = '<worksheet><sheetData><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData></worksheet>'
    data = made.zipped({"xl/workbook.xml": "<workbook/>", "xl/worksheets/sheet1.xml": sheet})
    with pytest.raises(DocumentUnreadable, match="1048576 rows and 16384 columns"):
        to_text("a.xlsx", data)


def test_headers_without_end_stall_nothing() -> None:
    began = time.process_time()
    text = to_text("a.eml", b"Subject: " + b"=?utf-8?q?a?= " * 20_000 + b"\nTo: " + b"a@b, " * 20_000 + b"\n\nhello")
    assert time.process_time() - began < 2
    assert text.endswith("hello")


DEEP = {
    "a.html": b"<div>" * 20_000 + b"deep words",
    "a.eml": b"".join(b"Content-Type: message/rfc822\n\n" for _ in range(500)) + b"Subject: x\n\nhello",
    "a.ipynb": b'{"cells":' + b"[" * 100_000,
    "a.json": b"[" * 100_000,
    "a.rtf": b"{\\rtf1" + b"{" * 50_000 + b"words",
}


@pytest.mark.parametrize("path", DEEP)
def test_deep_nesting_is_read_or_refused(path: str) -> None:
    read_or_refused(path, DEEP[path])


def test_tables_in_tables_without_end_are_refused() -> None:
    begin, end = "<w:tbl><w:tr><w:tc>", "</w:tc></w:tr></w:tbl>"
    with pytest.raises(DocumentUnreadable, match=r"a\.docx: it is damaged"):
        to_text("a.docx", made.docx_with({}, begin * 20_000 + end * 20_000))
    with pytest.raises(DocumentUnreadable, match=r"a\.odt: it is damaged"):
        to_text("a.odt", made.odt_with("<text:list><text:list-item>" * 20_000))
    shallow = made.docx_with({}, begin * 60 + "<w:p><w:r><w:t>deep</w:t></w:r></w:p>" + end * 60)
    assert to_text("a.docx", shallow) == "deep"


@pytest.mark.slow
@pytest.mark.parametrize("extension", ["txt", "md", "py", "csv", "yaml", "html", "eml", "rtf", "json", "rst"])
def test_fifty_megabytes_in_one_line_neither_stall_nor_fill_the_memory(extension: str) -> None:
    path = f"a.{extension}"
    head = {"a.rtf": "{\\rtf1 ", "a.eml": "Subject: x\n\n", "a.json": '["'}.get(path, "")
    line = (head + "word " * 10_000_000 + ('"]' if path == "a.json" else "")).encode()
    began = time.perf_counter()
    found = read_or_refused(path, line)
    assert time.perf_counter() - began < 30
    if path != "a.json":
        assert sum(len(piece.text) for section in found for piece in section.pieces) < 2 * MAX_TEXT_CHARS
