import contextlib
import io
import shutil
import struct
import time
import zipfile

import pytest

from anamnesis_pipeline.document_model import Section
from anamnesis_pipeline.documents import mail
from anamnesis_pipeline.documents.formats import MOST_TEXT_CHARS, to_text
from anamnesis_pipeline.documents.sections import sections_of
from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_tests.documents import made_documents as made


def titles(path: str, data: bytes) -> list[tuple[str, ...]]:
    return [section.title[1:] for section in sections_of(path, to_text(path, data))]


def test_a_docx_keeps_its_headings_and_tables_in_order() -> None:
    text = to_text("x/manual.docx", made.docx_file())
    assert text.index("# Operations manual") < text.index("# Cooling") < text.index("P7 | 400 W | B12")
    assert text.index("P7 | 400 W | B12") < text.index("## After the table")
    assert "- Check the valve" in text
    assert text.count("merged") == 1
    assert titles("manual.docx", made.docx_file()) == [
        ("Operations manual",), ("Cooling",), ("Cooling", "After the table"),
    ]  # fmt: skip


def test_a_pdf_has_a_heading_per_page() -> None:
    data = made.pdf_file(
        [
            ["The bridge was built in 1911", "by two engineers."],
            [],
            ["# It was painted green in 1950, against her will."],
        ]
    )
    assert titles("bridge.pdf", data) == [("Page 1",), ("Page 3",)]
    assert "The bridge was built in 1911\nby two engineers." in to_text("bridge.pdf", data)


def test_a_pdf_without_text_is_said_to_be_a_scan() -> None:
    with pytest.raises(DocumentUnreadable, match="scan"):
        to_text("a.pdf", made.pdf_file([[], []]))


def test_an_encrypted_pdf_is_said_to_be_encrypted() -> None:
    with pytest.raises(DocumentUnreadable, match=r"a\.pdf: it is encrypted"):
        to_text("a.pdf", made.encrypted_pdf_file())


def test_an_odt_keeps_headings_lists_and_tables() -> None:
    text = to_text("plan.odt", made.odt_file())
    assert "# Garden plan\n\nThe apple trees" in text
    assert "## Tools\n\n- A spade for the holes\n- A saw" in text or "- A spade for the holes" in text
    assert "spade | shed 4" in text


def test_an_ods_has_a_heading_per_sheet() -> None:
    assert to_text("h.ods", made.ods_file()) == "# Harvest\n\nfruit | kilograms\napples | 412.5\npears | 96"


@pytest.mark.parametrize("preview", [True, False])
def test_a_pages_file_is_read_by_its_preview_or_its_xml(preview: bool) -> None:
    assert "Minutes of the meeting" in to_text("m.pages", made.pages_file(preview))


def test_a_pages_file_without_either_says_what_to_do() -> None:
    with pytest.raises(DocumentUnreadable, match="export it as PDF"):
        to_text("m.pages", made.zipped({"Index/Document.iwa": b"x"}))


def test_an_rtf_is_read_without_its_pictures() -> None:
    text = to_text("a.rtf", made.rtf_file())
    assert "The heating of the café is serviced in May." in text
    assert "Second paragraph" in text
    assert "89504e" not in text


@pytest.mark.skipif(not shutil.which("antiword"), reason="antiword is not installed")
def test_a_doc_is_read_by_antiword() -> None:
    text = "The lighthouse keeper writes a log every evening.\nNothing happened on the first day."
    assert to_text("a.doc", made.doc_file(text)).split() == text.split()


def test_without_antiword_a_doc_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DocumentUnreadable, match="antiword"):
        to_text("a.doc", made.doc_file("A log."))


def test_a_doc_that_is_rtf_or_docx_is_read_as_such() -> None:
    assert "boiler" in to_text("a.doc", made.rtf_file())
    assert "# Cooling" in to_text("a.doc", made.docx_file())


def test_a_mail_has_its_headers_its_text_its_attachments_and_the_mail_inside() -> None:
    text = to_text("a.eml", made.eml_file())
    assert text.startswith("# Fwd: lift\n\nFrom: Ada <ada@example.org>\nTo: Bob")
    assert "\\# this is no heading" in text
    assert "Attachments: offer.pdf" in text
    assert "## Original complaint" in text
    assert titles("a.eml", made.eml_file()) == [
        ("Fwd: lift",),
        ("Fwd: lift", "offer.pdf"),
        ("Fwd: lift", "Original complaint"),
    ]


def test_a_mail_in_html_is_read_without_its_scripts() -> None:
    text = to_text("a.eml", bytes(made.mail(html=True)))
    assert "## Lift\n\nThe lift is **stuck** on floor 3." in text
    assert "x()" not in text


def test_each_mail_of_a_mailbox_is_a_section() -> None:
    data = made.mbox_file([made.mail("First"), made.mail("Second", html=True), made.mail("First")])
    found = [section.anchor for section in sections_of("in.mbox", to_text("in.mbox", data))]
    assert found == ["First", "Second", "Second > Lift", "First~2"]


def test_a_workbook_has_a_heading_per_sheet_and_a_line_per_row() -> None:
    sheets: dict[str, made.Rows] = {
        "Prices": [("item", "euro"), ("bolt", 0.25), ("# nut", 3.0)],
        "Empty": [],
        "B": [("x",)],
    }
    expected = "# Prices\n\nitem | euro\nbolt | 0.25\n\\# nut | 3\n\n# B\n\nx"
    assert to_text("p.xlsx", made.xlsx_file(sheets)) == expected
    assert to_text("p.XLSM", made.xlsx_file(sheets)) == expected


def test_an_old_workbook_is_read_too() -> None:
    assert (
        to_text("s.xls", made.xls_file([("part", "count"), ("wheel", 12.0)])) == "# Stock\n\npart | count\nwheel | 12"
    )


def test_a_page_keeps_its_structure_and_loses_its_scripts() -> None:
    text = to_text("b.html", made.HTML.encode())
    assert "# Backups" in text
    assert "**two**" in text
    assert "| sda | 4 TB |" in text
    assert "a picture of a disk" in text
    assert not any(gone in text for gone in ("never read", "color", "tracker"))
    assert titles("b.html", made.HTML.encode())[-1] == ("Backups", "Restore")


def test_a_page_is_read_in_the_charset_it_declares() -> None:
    page = '<meta charset="iso-8859-15"><p>Das Menü kostet zwölf € heute Abend</p>'
    assert "zwölf €" in to_text("m.htm", page.encode("iso-8859-15"))


def test_a_notebook_keeps_text_code_and_outputs_but_no_pictures() -> None:
    text = to_text("t.ipynb", made.notebook_file())
    assert "# Study of tides\nThe moon" in text
    assert "```python\n# no heading\nprint(height)\n```" in text
    assert "4.2 metres" in text
    assert "ValueError: no water" in text
    assert "iVBOR" not in text


# --- documents that are not what they should be ----------------------------------------------------------

GOOD = {
    "a.docx": made.docx_file,
    "a.pdf": lambda: made.pdf_file([["Some text on a page."]]),
    "a.odt": made.odt_file,
    "a.ods": made.ods_file,
    "a.pages": made.pages_file,
    "a.xlsx": lambda: made.xlsx_file({"A": [("x", 1.0)]}),
    "a.xls": lambda: made.xls_file([("x", 1.0)]),
    "a.ipynb": made.notebook_file,
    "a.rtf": made.rtf_file,
    "a.doc": lambda: made.doc_file("A log of the sea."),
    "a.eml": made.eml_file,
    "a.mbox": lambda: made.mbox_file([made.mail()] * 3),
    "a.html": made.HTML.encode,
}


def read_or_refused(path: str, data: bytes) -> list[Section]:
    """The sections; none if the document is refused by the one error that may be raised."""
    with contextlib.suppress(DocumentUnreadable):
        return sections_of(path, to_text(path, data))
    return []


@pytest.mark.parametrize("path", GOOD)
def test_a_document_cut_anywhere_is_read_or_refused(path: str) -> None:
    whole = GOOD[path]()
    for share in (0.02, 0.3, 0.5, 0.9, 0.99):
        read_or_refused(path, whole[: int(len(whole) * share)])


@pytest.mark.parametrize("path", GOOD)
def test_a_document_with_changed_bytes_is_read_or_refused(path: str) -> None:
    whole = GOOD[path]()
    for start in range(7, len(whole), max(1, len(whole) // 12)):
        damaged = bytearray(whole)
        damaged[start : start + 16] = bytes(255 - byte for byte in damaged[start : start + 16])
        read_or_refused(path, bytes(damaged))


@pytest.mark.parametrize("path", [name for name in GOOD if name not in {"a.html", "a.rtf"}])
@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 40, b"just some words, nothing else\n" * 20])
def test_a_name_that_promises_another_format_is_refused(path: str, data: bytes) -> None:
    with pytest.raises(DocumentUnreadable):
        to_text(path, data)


@pytest.mark.parametrize(("path", "member"), [("a.docx", "word/document.xml"), ("a.odt", "content.xml"),
                                              ("a.xlsx", "xl/worksheets/sheet1.xml")])  # fmt: skip
def test_a_zip_bomb_is_refused_before_it_is_unpacked(path: str, member: str) -> None:
    bomb = made.zipped({"META-INF/manifest.xml": "<x/>", member: b" " * (80 << 20)})
    assert len(bomb) < 1 << 20
    with pytest.raises(DocumentUnreadable, match="would unpack to"):
        to_text(path, bomb)


@pytest.mark.parametrize("path", ["a.docx", "a.odt", "a.xlsx"])
def test_a_zip_that_lies_about_a_size_is_refused(path: str) -> None:
    member = {"a.docx": "word/document.xml", "a.odt": "content.xml", "a.xlsx": "xl/worksheets/sheet1.xml"}[path]
    data = bytearray(GOOD[path]())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = archive.getinfo(member).file_size
    listed = data.rindex(member.encode()) - 46 + 24
    assert struct.unpack_from("<I", data, listed)[0] == size
    struct.pack_into("<I", data, listed, size - 9)
    with pytest.raises(DocumentUnreadable):
        to_text(path, bytes(data))


def test_an_entity_bomb_is_refused() -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 20}">' for n in range(1, 12))
    xml = (
        f'<!DOCTYPE x [<!ENTITY e0 "lol">{entities}]><o:document-content '
        'xmlns:o="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
        'xmlns:t="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><o:body><t:p>&e11;</t:p></o:body></o:document-content>'
    )
    try:
        text = to_text("a.odt", made.zipped({"META-INF/manifest.xml": "<x/>", "content.xml": xml}))
    except DocumentUnreadable:
        return
    assert "lol" not in text


def test_no_file_of_the_machine_comes_in_through_an_entity() -> None:
    xml = (
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><o:document-content '
        'xmlns:o="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
        'xmlns:t="urn:oasis:names:tc:opendocument:xmlns:text:1.0">'
        "<o:body><t:p>before &e; after, and some more words</t:p></o:body></o:document-content>"
    )
    assert "root:" not in to_text("a.odt", made.zipped({"META-INF/manifest.xml": "<x/>", "content.xml": xml}))


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


def test_of_a_huge_mailbox_the_mails_behind_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "MOST_CHARS", 300)
    assert "[8 more mails were left out]" in to_text("a.mbox", made.mbox_file([made.mail()] * 10))


@pytest.mark.parametrize("path", ["a.html", "a.eml", "a.ipynb", "a.json", "a.rtf"])
def test_deep_nesting_is_read_or_refused(path: str) -> None:
    deep = {
        "a.html": b"<div>" * 20_000 + b"deep words",
        "a.eml": b"".join(b"Content-Type: message/rfc822\n\n" for _ in range(500)) + b"Subject: x\n\nhello",
        "a.ipynb": b'{"cells":' + b"[" * 100_000,
        "a.json": b"[" * 100_000,
        "a.rtf": b"{\\rtf1" + b"{" * 50_000 + b"words",
    }[path]
    read_or_refused(path, deep)


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
        assert sum(len(piece.text) for section in found for piece in section.pieces) < 2 * MOST_TEXT_CHARS
