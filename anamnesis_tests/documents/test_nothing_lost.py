"""Text that stands elsewhere than in the paragraphs of a document, or that is longer than most."""

import json
import time

import pytest

from anamnesis_pipeline.documents import attachments, chat_messages, notebooks, spreadsheets
from anamnesis_pipeline.documents.formats import to_text
from anamnesis_pipeline.documents.sections import sections_of
from anamnesis_tests.documents import made_documents as made


def words(text: str) -> str:
    """A paragraph of Word."""
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def docx(body: str, **parts: str) -> str:
    return to_text("a.docx", made.docx_with(parts, body))


def odt(body: str, edges: str = "") -> str:
    return to_text("a.odt", made.odt_with(body, edges))


def test_of_tracked_changes_in_word_what_was_put_in_stays_and_what_was_taken_out_goes() -> None:
    body = (
        "<w:p><w:r><w:t>The pump </w:t></w:r><w:ins><w:r><w:t>is red</w:t></w:r></w:ins>"
        "<w:del><w:r><w:delText>is blue</w:delText></w:r></w:del>"
        "<w:moveTo><w:r><w:t> and loud</w:t></w:r></w:moveTo>"
        "<w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom></w:p>"
    )
    assert docx(body) == "The pump is red and loud"


def test_a_text_box_of_word_is_told_once_behind_its_paragraph() -> None:
    box = f"<w:txbxContent>{words('Mind the step')}</w:txbxContent>"
    body = (
        "<w:p><w:r><w:t>Before</w:t><mc:AlternateContent><mc:Choice><w:drawing>" + box + "</w:drawing></mc:Choice>"
        "<mc:Fallback><w:pict><v:textbox>" + box + "</v:textbox></w:pict></mc:Fallback></mc:AlternateContent>"
        "<w:t> and after</w:t></w:r></w:p>"
    )
    assert docx(body) == "Before and after\n\nMind the step"


def test_content_controls_fields_and_links_of_word_are_read() -> None:
    body = (
        f"<w:sdt><w:sdtPr/><w:sdtContent>{words('A control of its own')}</w:sdtContent></w:sdt>"
        "<w:p><w:sdt><w:sdtContent><w:r><w:t>Inside</w:t></w:r></w:sdtContent></w:sdt>"
        "<w:hyperlink><w:r><w:t> a link</w:t></w:r></w:hyperlink>"
        "<w:fldSimple><w:r><w:t> of 2026</w:t></w:r></w:fldSimple>"
        "<w:r><w:instrText>DATE</w:instrText><w:tab/><w:t>end</w:t></w:r></w:p>"
    )
    assert docx(body) == "A control of its own\n\nInside a link of 2026\tend"


def test_a_table_in_a_table_of_word_follows_it_and_wide_cells_keep_their_columns() -> None:
    inner = f"<w:tbl><w:tr><w:tc>{words('deep')}</w:tc><w:tc>{words('cell')}</w:tc></w:tr></w:tbl>"
    body = (
        f"<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr>{words('wide')}</w:tc><w:tc>{words('c')}</w:tc>"
        f"</w:tr><w:sdt><w:sdtContent><w:tr><w:tc>{words('one')}{words('two')}{inner}{words('')}</w:tc></w:tr>"
        "</w:sdtContent></w:sdt></w:tbl>"
    )
    assert docx(body) == "wide |  | c\none two\n\ndeep | cell"


def test_notes_and_comments_of_word_stand_at_their_place() -> None:
    text = docx(
        "<w:p><w:r><w:t>The bolt</w:t><w:footnoteReference w:id='2'/><w:t> holds.</w:t>"
        "<w:commentReference w:id='0'/></w:r></w:p>",
        footnotes=f"<w:footnote w:type='separator' w:id='1'>{words('----x')}</w:footnote>"
        f"<w:footnote w:id='2'>{words('M8, see page 4')}</w:footnote>",
        comments=f"<w:comment w:id='0' w:author='Ada'>{words('Is it M8?')}</w:comment>",
    )
    assert text == "The bolt [footnote: M8, see page 4] holds. [comment by Ada: Is it M8?]"


def test_headers_and_footers_of_word_are_told_once_at_the_end() -> None:
    text = docx(words("The text"), header1=words("Draft of May"), header2=words("Draft of May"), footer1=words("12"))
    assert text == "The text\n\n# Headers and footers\n\nDraft of May"


def test_notes_comments_boxes_and_changes_of_an_odt_are_read() -> None:
    body = (
        "<text:tracked-changes><text:p>taken out</text:p></text:tracked-changes>"
        "<text:p>The bolt<text:note text:note-class='footnote'><text:note-citation>1</text:note-citation>"
        "<text:note-body><text:p>M8</text:p></text:note-body></text:note> holds"
        "<office:annotation><dc:creator>Ada</dc:creator><text:p>Sure?</text:p></office:annotation>."
        "<draw:frame><draw:text-box><text:p>Mind the step</text:p></draw:text-box></draw:frame></text:p>"
    )
    assert odt(body) == "The bolt [footnote: M8] holds [comment by Ada: Sure?].\n\nMind the step"


def test_headers_of_an_odt_and_tables_in_its_tables_are_told_once() -> None:
    def cell(inside: str) -> str:
        return f"<table:table-cell>{inside}</table:table-cell>"

    inner = f"<table:table><table:table-row>{cell('<text:p>deep</text:p>')}</table:table-row></table:table>"
    body = (
        f"<table:table><table:table-header-rows><table:table-row>{cell('<text:p>head</text:p>')}</table:table-row>"
        f"</table:table-header-rows><table:table-row>{cell('<text:p>outer</text:p>' + inner)}</table:table-row>"
        "</table:table>"
    )
    edges = "<style:header><text:p>Draft of May</text:p></style:header><style:footer><text:p>12</text:p></style:footer>"
    assert odt(body, edges) == "head\nouter\n\ndeep\n\n# Headers and footers\n\nDraft of May"


def test_comments_and_filled_in_fields_of_a_pdf_are_on_their_page() -> None:
    text = to_text("a.pdf", made.annotated_pdf_file())
    assert text == "## Page 1\n\nOrder of the shop.\n\n[comment: Who signed this?]\n\ncustomer: Ada & Sons"


# --- mails -------------------------------------------------------------------------------------------------


def test_what_is_attached_to_a_mail_is_read_below_its_name() -> None:
    message = made.mail("Offer")
    message.add_attachment(made.docx_file(), maintype="application", subtype="octet-stream", filename="in/manual.docx")
    message.add_attachment(b"part,price\nwheel,12\n", maintype="text", subtype="csv", filename="prices.csv")
    message.add_attachment(b"def f(): ...\n", maintype="text", subtype="x-python", filename="f.py")
    text = to_text("a.eml", bytes(message))
    assert "## in_manual.docx\n\n### Operations manual" in text
    assert "## prices.csv\n\npart | price\nwheel | 12" in text
    assert "## f.py\n\n```\ndef f(): ...\n```" in text
    titles = [section.title[1:] for section in sections_of("a.eml", text)]
    assert ("Offer", "in_manual.docx", "Cooling") in titles or (
        "Offer",
        "in_manual.docx",
        "Operations manual",
    ) in titles


def test_what_is_attached_to_a_mail_in_a_mail_is_read_too() -> None:
    inner = made.mail("Inner")
    inner.add_attachment("The plan is to paint the roof.", filename="plan.txt")
    message = made.mail("Outer")
    message.add_attachment(inner)
    text = to_text("a.eml", bytes(message))
    assert "### plan.txt\n\nThe plan is to paint the roof." in text
    assert text.count("plan.txt") == 2


def test_an_attachment_that_cannot_be_read_says_why_and_costs_nothing_else() -> None:
    message = made.mail("Bad")
    bomb = made.zipped({"word/document.xml": b" " * (80 << 20)})
    for name, data in {
        "bomb.docx": bomb,
        "torn.pdf": b"%PDF-1.4",
        "x.png": b"x",
        ".env": b"A=b",
        "c.txt": b"Fine.",
    }.items():
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
    monkeypatch.setattr("anamnesis_pipeline.documents.mail.MOST_ATTACHMENTS", 2)
    monkeypatch.setattr(attachments, "MOST_ATTACHED_CHARS", 5)
    message = made.mail("Many")
    for number in range(4):
        message.add_attachment(f"Text {number} of many.", filename=f"{number}.txt")
    text = to_text("a.eml", bytes(message))
    assert text.count("Text ") == 2
    assert "Text  … 11 more characters are in the file" in text
    assert "3.txt" in text


# --- long values -------------------------------------------------------------------------------------------


def test_a_long_cell_is_whole_and_one_that_is_too_long_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made.xlsx_file({"A": [("x" * 30_000, "end")]})
    assert to_text("a.xlsx", data).endswith("x | end")
    assert to_text("a.xlsx", data).count("x") == 30_000
    monkeypatch.setattr(spreadsheets, "MOST_CELL_CHARS", 10)
    assert "xxxxxxxxxx … 29,990 more characters are in the file | end" in to_text("a.xlsx", data)


def test_of_a_long_output_of_a_notebook_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "x" * 10_000 in to_text("t.ipynb", made.notebook_file())
    monkeypatch.setattr(notebooks, "MOST_OUTPUT_CHARS", 100)
    assert "x … 9,900 more characters are in the file" in to_text("t.ipynb", made.notebook_file())


def test_of_a_long_attachment_of_a_chat_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"uuid": "1", "sender": "human", "text": "Read this", "created_at": "2026-03-02T10:00:00Z",
            "attachments": [{"file_name": "a.txt", "extracted_content": "y" * 200_000}]}  # fmt: skip
    export = json.dumps([{"name": "Talk", "chat_messages": [said]}])

    def text() -> str:
        return "".join(piece.text for section in sections_of("c.json", export) for piece in section.pieces)

    assert text().count("y") == 200_000
    monkeypatch.setattr(chat_messages, "MOST_ATTACHED_CHARS", 10)
    assert "yyyyyyyyyy … 199,990 more characters are in the file" in text()


def test_a_page_inside_a_form_is_read() -> None:
    page = b"<form><h1>Tickets</h1><p>All of the page is in one form.</p><select><option>no</select></form>"
    assert to_text("a.html", page) == "# Tickets\n\nAll of the page is in one form."
