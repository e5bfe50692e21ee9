"""What a document of each format becomes: all of its text, in order, and nothing else."""

import json
import shutil
import time

import pytest

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents import chat_messages, mail, spreadsheets
from anamnesis_pipeline.parsing.documents import mail as attachments
from anamnesis_pipeline.parsing.documents import plain as notebooks
from anamnesis_pipeline.parsing.documents.formats import to_text
from anamnesis_pipeline.parsing.documents.sections import sections_of
from anamnesis_tests.support import made_documents as made


def words(text: str) -> str:
    """A paragraph of Word."""
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def docx(body: str, **parts: str) -> tuple[str, bytes]:
    return "a.docx", made.docx_with(parts, body)


def odt(body: str, edges: str = "") -> tuple[str, bytes]:
    return "a.odt", made.odt_with(body, edges)


def cell(inside: str) -> str:
    return f"<table:table-cell>{inside}</table:table-cell>"


SHEETS: dict[str, made.Rows] = {
    "Prices": [("item", "euro"), ("bolt", 0.25), ("# nut", 3.0)],
    "Empty": [],
    "B": [("x",)],
}
PRICES = "# Prices\n\nitem | euro\nbolt | 0.25\n\\# nut | 3\n\n# B\n\nx"
PAGES = (["The bridge was built in 1911", "by two engineers."], [], ["# It was painted green in 1950."])
SENT = "From: Ada <ada@example.org>\nTo: Bob <bob@example.org>\nDate: Mon, 02 Mar 2026 10:00:00 +0100\n\n"
SAID = f"{SENT}The lift is stuck on floor 3.\n\\# this is no heading\nPlease call Müller."
BOX = f"<w:txbxContent>{words('Mind the step')}</w:txbxContent>"
INNER = f"<w:tbl><w:tr><w:tc>{words('deep')}</w:tc><w:tc>{words('cell')}</w:tc></w:tr></w:tbl>"
INNER_ODT = f"<table:table><table:table-row>{cell('<text:p>deep</text:p>')}</table:table-row></table:table>"

READ: dict[str, tuple[tuple[str, bytes], str]] = {
    "headings and tables of Word in order": (
        ("x/manual.docx", made.docx_file()),
        "# Operations manual\n\nEverything that the night shift must know about the turbines.\n\n# Cooling\n\n"
        "The pump starts at seventy degrees and stops at fifty.\n\n- Check the valve\n\nPump | Power | Room\n"
        "P7 | 400 W | B12\n\nmerged\n\n## After the table\n\n"
        "\\# is no heading here, and what follows stands behind the table.",
    ),
    "tracked changes of Word: what was put in": (
        docx(
            "<w:p><w:r><w:t>The pump </w:t></w:r><w:ins><w:r><w:t>is red</w:t></w:r></w:ins>"
            "<w:del><w:r><w:delText>is blue</w:delText></w:r></w:del>"
            "<w:moveTo><w:r><w:t> and loud</w:t></w:r></w:moveTo>"
            "<w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom></w:p>"
        ),
        "The pump is red and loud",
    ),
    "a text box of Word once, behind its paragraph": (
        docx(
            "<w:p><w:r><w:t>Before</w:t><mc:AlternateContent><mc:Choice><w:drawing>" + BOX + "</w:drawing></mc:Choice>"
            "<mc:Fallback><w:pict><v:textbox>" + BOX + "</v:textbox></w:pict></mc:Fallback></mc:AlternateContent>"
            "<w:t> and after</w:t></w:r></w:p>"
        ),
        "Before and after\n\nMind the step",
    ),
    "content controls, fields and links of Word": (
        docx(
            f"<w:sdt><w:sdtPr/><w:sdtContent>{words('A control of its own')}</w:sdtContent></w:sdt>"
            "<w:p><w:sdt><w:sdtContent><w:r><w:t>Inside</w:t></w:r></w:sdtContent></w:sdt>"
            "<w:hyperlink><w:r><w:t> a link</w:t></w:r></w:hyperlink>"
            "<w:fldSimple><w:r><w:t> of 2026</w:t></w:r></w:fldSimple>"
            "<w:r><w:instrText>DATE</w:instrText><w:tab/><w:t>end</w:t></w:r></w:p>"
        ),
        "A control of its own\n\nInside a link of 2026\tend",
    ),
    "a table in a table of Word behind it, wide cells in their columns": (
        docx(
            f"<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr>{words('wide')}</w:tc>"
            f"<w:tc>{words('c')}</w:tc></w:tr><w:sdt><w:sdtContent><w:tr><w:tc>{words('one')}{words('two')}{INNER}"
            f"{words('')}</w:tc></w:tr></w:sdtContent></w:sdt></w:tbl>"
        ),
        "wide |  | c\none two\n\ndeep | cell",
    ),
    "notes and comments of Word at their place": (
        docx(
            "<w:p><w:r><w:t>The bolt</w:t><w:footnoteReference w:id='2'/><w:t> holds.</w:t>"
            "<w:commentReference w:id='0'/></w:r></w:p>",
            footnotes=f"<w:footnote w:type='separator' w:id='1'>{words('----x')}</w:footnote>"
            f"<w:footnote w:id='2'>{words('M8, see page 4')}</w:footnote>",
            comments=f"<w:comment w:id='0' w:author='Ada'>{words('Is it M8?')}</w:comment>",
        ),
        "The bolt [footnote: M8, see page 4] holds. [comment by Ada: Is it M8?]",
    ),
    "headers and footers of Word once, at the end": (
        docx(words("The text"), header1=words("Draft of May"), header2=words("Draft of May"), footer1=words("12")),
        "The text\n\n# Headers and footers\n\nDraft of May",
    ),
    "headings, lists and tables of an odt": (
        ("plan.odt", made.odt_file()),
        "# Garden plan\n\nThe apple trees stand in the north, where the wind comes from.\n\n## Tools\n\n"
        "- A spade for the holes\n\n- A saw for the branches\n\nspade | shed 4",
    ),
    "notes, comments, boxes and changes of an odt": (
        odt(
            "<text:tracked-changes><text:p>taken out</text:p></text:tracked-changes>"
            "<text:p>The bolt<text:note text:note-class='footnote'><text:note-citation>1</text:note-citation>"
            "<text:note-body><text:p>M8</text:p></text:note-body></text:note> holds"
            "<office:annotation><dc:creator>Ada</dc:creator><text:p>Sure?</text:p></office:annotation>."
            "<draw:frame><draw:text-box><text:p>Mind the step</text:p></draw:text-box></draw:frame></text:p>"
        ),
        "The bolt [footnote: M8] holds [comment by Ada: Sure?].\n\nMind the step",
    ),
    "headers of an odt, and tables in its tables, once": (
        odt(
            f"<table:table><table:table-header-rows><table:table-row>{cell('<text:p>head</text:p>')}</table:table-row>"
            "</table:table-header-rows><table:table-row>"
            f"{cell('<text:p>outer</text:p>' + INNER_ODT)}</table:table-row></table:table>",
            "<style:header><text:p>Draft of May</text:p></style:header>"
            "<style:footer><text:p>12</text:p></style:footer>",
        ),
        "head\nouter\n\ndeep\n\n# Headers and footers\n\nDraft of May",
    ),
    "a heading for each page of a PDF": (
        ("bridge.pdf", made.pdf_file(PAGES)),
        "## Page 1\n\nThe bridge was built in 1911\nby two engineers.\n\n"
        "## Page 3\n\n\\# It was painted green in 1950.",
    ),
    "comments and filled in fields of a PDF on their page": (
        ("a.pdf", made.annotated_pdf_file()),
        "## Page 1\n\nOrder of the shop.\n\n[comment: Who signed this?]\n\ncustomer: Ada & Sons",
    ),
    "a Pages file by its preview": (
        ("m.pages", made.pages_file()),
        "## Page 1\n\nMinutes of the meeting about the new roof.",
    ),
    "a Pages file by its XML": (("m.pages", made.pages_file(preview=False)), "Minutes of the meeting in 2008."),
    "rtf without its pictures": (
        ("a.rtf", made.rtf_file()),
        "The heating of the café is serviced in May.\n Second paragraph about the boiler.",
    ),
    "a doc that is rtf": (
        ("a.doc", made.rtf_file()),
        "The heating of the café is serviced in May.\n Second paragraph about the boiler.",
    ),
    "a doc that is docx": (("a.doc", made.docx_with({}, words("The text"))), "The text"),
    "a mail with its attachments and the mail inside": (
        ("a.eml", made.eml_file()),
        f"# Fwd: lift\n\n{SAID}\n\nAttachments: offer.pdf\n\n## offer.pdf\n\n[offer.pdf: it is damaged "
        f"(Failed to load document (PDFium: Data format error).)]\n\n## Original complaint\n\n{SAID}",
    ),
    "a mail in HTML without its scripts": (
        ("a.eml", bytes(made.mail(html=True))),
        f"# Broken lift in house 4\n\n{SENT}## Lift\n\nThe lift is **stuck** on floor 3.",
    ),
    "a heading for each sheet of an ods": (
        ("h.ods", made.ods_file()),
        "# Harvest\n\nfruit | kilograms\napples | 412.5\npears | 96",
    ),
    "a heading for each sheet, a line for each row": (("p.xlsx", made.xlsx_file(SHEETS)), PRICES),
    "a workbook with macros, in capitals": (("p.XLSM", made.xlsx_file(SHEETS)), PRICES),
    "an old workbook": (
        ("s.xls", made.xls_file([("part", "count"), ("wheel", 12.0)])),
        "# Stock\n\npart | count\nwheel | 12",
    ),
    "a page with its structure, without scripts": (
        ("b.html", made.HTML.encode()),
        "[Home](/)\n\n# Backups\n\nEvery night at **two**, see [here](http://x.example/).\n\n## Restore\n\n"
        "- stop\n- copy\n\n| Disk | Size |\n| --- | --- |\n| sda | 4 TB |\n\na picture of a disk",
    ),
    "a page in the charset it declares": (
        ("m.htm", '<meta charset="iso-8859-15"><p>Das Menü kostet zwölf € heute Abend</p>'.encode("iso-8859-15")),
        "Das Menü kostet zwölf € heute Abend",
    ),
    "a page inside a form": (
        ("a.html", b"<form><h1>Tickets</h1><p>All in one form.</p><select><option>no</select></form>"),
        "# Tickets\n\nAll in one form.",
    ),
    "text, code and outputs of a notebook, no pictures": (
        ("t.ipynb", made.notebook_file()),
        "# Study of tides\nThe moon is the cause of most of it.\n\n```python\n# no heading\nprint(height)\n```\n\n"
        f"```\n4.2 metres\n```\n\n```\nValueError: no water\n```\n\n```\n{'x' * 10_000}\n```",
    ),
}


@pytest.mark.parametrize("what", READ)
def test_document_becomes_its_text(what: str) -> None:
    (path, data), text = READ[what]
    assert to_text(path, data) == text


@pytest.mark.parametrize(
    ("path", "data", "titles"),
    [
        ("x.docx", made.docx_file(), ["Operations manual", "Cooling", "Cooling > After the table"]),
        ("x.pdf", made.pdf_file(PAGES), ["Page 1", "Page 3"]),
        ("x.html", made.HTML.encode(), ["", "Backups", "Backups > Restore"]),
        ("x.eml", made.eml_file(), ["Fwd: lift", "Fwd: lift > offer.pdf", "Fwd: lift > Original complaint"]),
        (
            "x.mbox",
            made.mbox_file([made.mail("First"), made.mail("Second", html=True), made.mail("First")]),
            ["First", "Second", "Second > Lift", "First"],
        ),
    ],
    ids=["docx", "pdf", "html", "eml", "mbox"],
)
def test_document_is_cut_at_its_headings(path: str, data: bytes, titles: list[str]) -> None:
    assert [" > ".join(section.title[1:]) for section in sections_of(path, to_text(path, data))] == titles


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        ("a.pdf", made.pdf_file([[], []]), "scan"),
        ("a.pdf", made.encrypted_pdf_file(), r"a\.pdf: it is encrypted"),
        ("m.pages", made.zipped({"Index/Document.iwa": b"x"}), "export it as PDF"),
    ],
    ids=["a scan", "encrypted", "pages without preview"],
)
def test_document_without_text_says_why(path: str, data: bytes, reason: str) -> None:
    with pytest.raises(DocumentUnreadable, match=reason):
        to_text(path, data)


@pytest.mark.skipif(not shutil.which("antiword"), reason="antiword is not installed")
def test_a_doc_is_read_by_antiword() -> None:
    text = "The lighthouse keeper writes a log every evening.\nNothing happened on the first day."
    assert to_text("a.doc", made.doc_file(text)).split() == text.split()


def test_without_antiword_a_doc_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DocumentUnreadable, match="antiword"):
        to_text("a.doc", made.doc_file("A log."))


# --- what is attached to mails ---------------------------------------------------------------------------


def test_what_is_attached_to_a_mail_is_read_below_its_name() -> None:
    message = made.mail("Offer")
    message.add_attachment(made.docx_file(), maintype="application", subtype="octet-stream", filename="in/manual.docx")
    message.add_attachment(b"part,price\nwheel,12\n", maintype="text", subtype="csv", filename="prices.csv")
    message.add_attachment(b"def f(): ...\n", maintype="text", subtype="x-python", filename="f.py")
    text = to_text("a.eml", bytes(message))
    assert "## in_manual.docx\n\n### Operations manual" in text
    assert "## prices.csv\n\npart | price\nwheel | 12" in text
    assert "## f.py\n\n```\ndef f(): ...\n```" in text
    assert "Offer > in_manual.docx > Cooling" in [section.anchor for section in sections_of("a.eml", text)]


def test_what_is_attached_to_a_mail_in_a_mail_is_read_too() -> None:
    inner = made.mail("Inner")
    inner.add_attachment("The plan is to paint the roof.", filename="plan.txt")
    message = made.mail("Outer")
    message.add_attachment(inner)
    text = to_text("a.eml", bytes(message))
    assert "### plan.txt\n\nThe plan is to paint the roof." in text
    assert text.count("plan.txt") == 2


def test_attachment_that_is_unreadable_says_why_and_costs_no_other() -> None:
    message = made.mail("Bad")
    bomb = made.zipped({"word/document.xml": b" " * (80 << 20)})
    attached = {"bomb.docx": bomb, "torn.pdf": b"%PDF-1.4", "x.png": b"x", ".env": b"A=b", "c.txt": b"Fine."}
    for name, data in attached.items():
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    began = time.process_time()
    text = to_text("a.eml", bytes(message))
    assert time.process_time() - began < 5
    assert "[bomb.docx: it would unpack to" in text
    assert "[torn.pdf: it is damaged" in text
    assert "Attachments: bomb.docx, torn.pdf, x.png, .env, c.txt" in text
    assert "A=b" not in text
    assert text.endswith("## c.txt\n\nFine.")


def test_no_more_attachments_are_read_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "MAX_ATTACHMENTS", 2)
    monkeypatch.setattr(attachments, "MAX_ATTACHED_CHARS", 5)
    message = made.mail("Many")
    for number in range(4):
        message.add_attachment(f"Text {number} of many.", filename=f"{number}.txt")
    text = to_text("a.eml", bytes(message))
    assert text.count("Text ") == 2
    assert "Text  … 11 more characters are in the file" in text
    assert "3.txt" in text


# --- what is longer than most ----------------------------------------------------------------------------


def test_of_a_huge_mailbox_the_mails_behind_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "MAX_CHARS", 300)
    assert "[8 more mails were left out]" in to_text("a.mbox", made.mbox_file([made.mail()] * 10))


def test_a_long_cell_is_whole_and_of_a_longer_one_the_rest_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made.xlsx_file({"A": [("x" * 30_000, "end")]})
    assert to_text("a.xlsx", data) == f"# A\n\n{'x' * 30_000} | end"
    monkeypatch.setattr(spreadsheets, "MAX_CELL_CHARS", 10)
    assert "xxxxxxxxxx … 29,990 more characters are in the file | end" in to_text("a.xlsx", data)


def test_of_a_long_output_of_a_notebook_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebooks, "MAX_OUTPUT_CHARS", 100)
    assert "x … 9,900 more characters are in the file" in to_text("t.ipynb", made.notebook_file())


def test_of_a_long_attachment_of_a_chat_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "uuid": "1",
        "sender": "human",
        "text": "Read this",
        "created_at": "2026-03-02T10:00:00Z",
        "attachments": [{"file_name": "a.txt", "extracted_content": "y" * 200_000}],
    }
    export = json.dumps([{"name": "Talk", "chat_messages": [said]}])

    def text() -> str:
        return "".join(piece.text for section in sections_of("c.json", export) for piece in section.pieces)

    assert text().count("y") == 200_000
    monkeypatch.setattr(chat_messages, "MAX_ATTACHED_CHARS", 10)
    assert "yyyyyyyyyy … 199,990 more characters are in the file" in text()
