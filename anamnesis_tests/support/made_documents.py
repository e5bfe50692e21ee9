"""Real documents of every format, as bytes. Libraries write those they can write; the others are written by hand."""

import ctypes
import io
import json
import struct
import zipfile
from collections.abc import Sequence
from email.message import EmailMessage
from typing import Any

import docx
import odfdo
import pypdfium2
from pypdfium2 import raw as pdfium

Rows = Sequence[Sequence[str | float]]


def zipped(members: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def docx_file() -> bytes:
    document = docx.Document()
    document.add_heading("Operations manual", 0)
    document.add_paragraph("Everything that the night shift must know about the turbines.")
    document.add_heading("Cooling", 1)
    document.add_paragraph("The pump starts at seventy degrees and stops at fifty.")
    document.add_paragraph("Check the valve", style="List Bullet")
    _add_table(document, [("Pump", "Power", "Room"), ("P7", "400 W", "B12")])
    wide = document.add_table(rows=1, cols=2)
    wide.cell(0, 0).merge(wide.cell(0, 1)).text = "merged"
    document.add_heading("After the table", 2)
    document.add_paragraph("# is no heading here, and what follows stands behind the table.")
    return _saved(document)


def docx_table_file(rows: Sequence[Sequence[str]]) -> bytes:
    document = docx.Document()
    _add_table(document, rows)
    return _saved(document)


def _add_table(document: Any, rows: Sequence[Sequence[str]]) -> None:
    table = document.add_table(rows=len(rows), cols=len(rows[0]))
    for row, words in enumerate(rows):
        for column, word in enumerate(words):
            table.cell(row, column).text = word


def docx_with(members: dict[str, str], body: str, document: str = "") -> bytes:
    """A .docx of raw XML: `body` inside `w:body`, or the whole `document`, and parts such as `footnotes`, `header1`."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kinds = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    names = (
        f'xmlns:w="{word}" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
        'xmlns:v="urn:schemas-microsoft-com:vml" xmlns:wps="urn:wps"'
    )
    types, links = "", ""
    document = document or f"<w:document {names}><w:body>{body}</w:body></w:document>"
    files: dict[str, str | bytes] = {"word/document.xml": document}
    for number, (name, xml) in enumerate(members.items(), 1):
        kind = name.rstrip("0123456789")
        root = {"header": "hdr", "footer": "ftr"}.get(kind, kind)
        types += f'<Override PartName="/word/{name}.xml" ContentType="{kinds}.{kind}+xml"/>'
        links += f'<Relationship Id="r{number}" Type="{office}/{kind}" Target="{name}.xml"/>'
        files[f"word/{name}.xml"] = f"<w:{root} {names}>{xml}</w:{root}>"
    return zipped(
        files
        | {
            "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{kinds}.document.main+xml"/>{types}</Types>',
            "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r0" '
            f'Type="{office}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}/relationships">{links}</Relationships>',
        }
    )


def odt_with(body: str, edges: str = "") -> bytes:
    """An .odt of raw XML: `body` inside `office:text`, `edges` inside the master page of its styles."""
    schema = "urn:oasis:names:tc:opendocument:xmlns"
    kinds = {"office": "office", "text": "text", "table": "table", "draw": "drawing", "style": "style"}
    names = " ".join(f'xmlns:{name}="{schema}:{kind}:1.0"' for name, kind in kinds.items())
    names += ' xmlns:dc="http://purl.org/dc/elements/1.1/"'
    return zipped(
        {
            "META-INF/manifest.xml": "<x/>",
            "content.xml": f"<office:document-content {names}><office:body><office:text>{body}</office:text>"
            "</office:body></office:document-content>",
            "styles.xml": f"<office:document-styles {names}><office:master-styles><style:master-page>{edges}"
            "</style:master-page></office:master-styles></office:document-styles>",
        }
    )


def pdf_file(pages: Sequence[Sequence[str]]) -> bytes:
    """A PDF with a line of Helvetica per string."""
    document = pypdfium2.PdfDocument.new()
    for lines in pages:
        page = document.new_page(595, 842)
        for number, line in enumerate(lines):
            text = pdfium.FPDFPageObj_NewTextObj(document, b"Helvetica", 12.0)
            wide = (line + "\0").encode("utf-16-le")
            pdfium.FPDFText_SetText(text, ctypes.cast(ctypes.create_string_buffer(wide), pdfium.FPDF_WIDESTRING))
            pdfium.FPDFPageObj_Transform(text, 1, 0, 0, 1, 50, 800 - 20 * number)
            pdfium.FPDFPage_InsertObject(page, text)
        pdfium.FPDFPage_GenerateContent(page)
        page.close()
    return _saved(document)


def annotated_pdf_file() -> bytes:
    """A page with a line, a comment, a field of a form that is filled in and one that is not."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [6 0 R 7 0 R] >> >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Annots [5 0 R 6 0 R 7 0 R]"
        b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length 47 >>\nstream\nBT /F1 12 Tf 50 800 Td (Order of the shop.) Tj ET \nendstream",
        b"<< /Type /Annot /Subtype /Text /Rect [10 10 20 20] /Contents (Who signed this?) >>",
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (customer) /V (Ada & Sons) /Rect [30 30 90 50] >>",
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (phone) /Rect [30 60 90 80] >>",
    ]
    data, places = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 8\n0000000000 65535 f \n%btrailer << /Size 8 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF"
    return data + end % (table, len(data))


def encrypted_pdf_file() -> bytes:
    """A PDF whose password nobody knows."""
    plain = pdf_file([["A secret page."]])
    lock = (
        b"/Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -4"
        b" /O <" + b"ab" * 32 + b"> /U <" + b"cd" * 32 + b"> >>"
        b" /ID [<" + b"01" * 16 + b"> <" + b"01" * 16 + b">]"
    )
    head, found, tail = plain.rpartition(b"/Root")
    assert found
    return head + lock + b" /Root" + tail


def odt_file() -> bytes:
    document = odfdo.Document("text")
    body = document.body
    body.clear()
    body.append(odfdo.Header(1, "Garden plan"))
    body.append(odfdo.Paragraph("The apple trees stand in the north, where the wind comes from."))
    body.append(odfdo.Header(2, "Tools"))
    body.append(odfdo.List(["A spade for the holes", "A saw for the branches"]))
    table = odfdo.Table("tools", width=2, height=1)
    table.set_value("A1", "spade")
    table.set_value("B1", "shed 4")
    body.append(table)
    return _saved(document)


def odt_table_file(rows: Sequence[Sequence[str]]) -> bytes:
    document = odfdo.Document("text")
    document.body.clear()
    table = odfdo.Table("t", width=len(rows[0]), height=len(rows))
    for row, words in enumerate(rows):
        for column, word in enumerate(words):
            table.set_value((column, row), word)
    document.body.append(table)
    return _saved(document)


HARVEST: Rows = (["fruit", "kilograms"], ["apples", 412.5], ["pears", 96])


def ods_file(rows: Rows = HARVEST) -> bytes:
    document = odfdo.Document("spreadsheet")
    document.body.clear()
    table = odfdo.Table("Harvest")
    for row in rows:
        table.append_row(odfdo.Row())
        for column, value in enumerate(row):
            table.set_value((column, table.height - 1), value)
    document.body.append(table)
    return _saved(document)


def _saved(document: Any) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def pages_file(preview: bool = True) -> bytes:
    if preview:
        page = pdf_file([["Minutes of the meeting about the new roof."]])
        return zipped({"Index/Document.iwa": b"\0\1", "QuickLook/Preview.pdf": page})
    return zipped({"index.xml": "<sl:document xmlns:sl='x'><sl:p>Minutes of the meeting in 2008.</sl:p></sl:document>"})


def rtf_file() -> bytes:
    picture = "{\\pict\\pngblip " + "89504e470d0a1a0a" * 2000 + "}"
    return (
        "{\\rtf1\\ansi\\ansicpg1252{\\fonttbl{\\f0 Arial;}}\\f0\\fs24 The heating"
        " of the caf\\'e9 is serviced in May.\\par " + picture + " Second paragraph about the boiler.\\par}"
    ).encode("ascii")


def mail(subject: str = "Broken lift in house 4", html: bool = False) -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Ada <ada@example.org>"
    message["To"] = "Bob <bob@example.org>"
    message["Subject"] = subject
    message["Date"] = "Mon, 02 Mar 2026 10:00:00 +0100"
    if html:
        message.set_content(
            "<h1>Lift</h1><p>The lift is <b>stuck</b> on floor 3.</p><script>x()</script>", subtype="html"
        )
    else:
        message.set_content("The lift is stuck on floor 3.\n# this is no heading\nPlease call Müller.")
    return message


def eml_file() -> bytes:
    message = mail("Fwd: lift")
    message.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename="offer.pdf")
    message.add_attachment(mail("Original complaint"))
    return bytes(message)


def mbox_file(mails: Sequence[EmailMessage]) -> bytes:
    return b"\n".join(b"From ada@example.org Mon Mar  2 10:00:00 2026\n" + bytes(message) for message in mails)


def xlsx_file(sheets: dict[str, Rows]) -> bytes:
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    names = "".join(f'<sheet name="{n}" sheetId="{i}" r:id="rId{i}"/>' for i, n in enumerate(sheets, 1))
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{office}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i in range(1, len(sheets) + 1)
    )
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kinds}.sheet.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="rId1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">{links}</Relationships>',
    }
    for number, rows in enumerate(sheets.values(), 1):
        members[f"xl/worksheets/sheet{number}.xml"] = sheet_xml(main, rows)
    return zipped(members)


def sheet_xml(namespace: str, rows: Rows) -> str:
    lines = []
    for number, row in enumerate(rows, 1):
        cells = "".join(
            f'<c r="{chr(65 + column)}{number}" t="inlineStr"><is><t>{value}</t></is></c>'
            if isinstance(value, str)
            else f'<c r="{chr(65 + column)}{number}"><v>{value}</v></c>'
            for column, value in enumerate(row)
        )
        lines.append(f'<row r="{number}">{cells}</row>')
    return f'<worksheet xmlns="{namespace}"><sheetData>{"".join(lines)}</sheetData></worksheet>'


# --- the older formats of Office -------------------------------------------------------------------------


def compound_file(streams: dict[str, bytes]) -> bytes:
    """An OLE compound file (512-byte sectors), each stream padded to at least 4,096 bytes so that no mini stream is."""
    bodies = {name: data.ljust(max(4096, -(-len(data) // 512) * 512), b"\0") for name, data in streams.items()}
    fat = [0xFFFFFFFD, 0xFFFFFFFE]  # sector 0 holds the table itself, sector 1 the directory
    entries = [_directory_entry("Root Entry", 5, 0xFFFFFFFE, 0, child=1)]
    for number, (name, body) in enumerate(bodies.items(), 1):
        start, sectors = len(fat), len(body) // 512
        fat += [*range(start + 1, start + sectors), 0xFFFFFFFE]
        right = number + 1 if number < len(bodies) else 0xFFFFFFFF
        entries.append(_directory_entry(name, 2, start, len(body), right=right))
    header = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16) + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, 0xFFFFFFFE, 0, 0xFFFFFFFE, 0)
    header += struct.pack("<I", 0) + b"\xff" * (108 * 4)
    table = struct.pack(f"<{len(fat)}I", *fat).ljust(512, b"\xff")
    return header + table + b"".join(entries).ljust(512, b"\0") + b"".join(bodies.values())


def _directory_entry(
    name: str, kind: int, start: int, size: int, right: int = 0xFFFFFFFF, child: int = 0xFFFFFFFF
) -> bytes:
    wide = (name + "\0").encode("utf-16-le")
    links = struct.pack("<BBIII", kind, 1, 0xFFFFFFFF, right, child)
    return wide.ljust(64, b"\0") + struct.pack("<H", len(wide)) + links + bytes(36) + struct.pack("<IQ", start, size)


def xls_file(rows: Rows) -> bytes:
    """A workbook of Excel 97 with one sheet, `Stock`."""

    def record(kind: int, body: bytes) -> bytes:
        return struct.pack("<HH", kind, len(body)) + body

    def words(text: str) -> bytes:
        return struct.pack("<HB", len(text), 1) + text.encode("utf-16-le")

    begins = struct.pack("<HHHHII", 0x600, 5, 0x0DBB, 1996, 0, 6)
    sheet = record(0x809, struct.pack("<HHHHII", 0x600, 0x10, 0x0DBB, 1996, 0, 6))
    for row, values in enumerate(rows):
        for column, value in enumerate(values):
            place = struct.pack("<HHH", row, column, 0)
            sheet += (
                record(0x204, place + words(value))
                if isinstance(value, str)
                else record(0x203, place + struct.pack("<d", value))
            )
    sheet += record(0x0A, b"")
    name = b"Stock"
    head = record(0x809, begins) + record(0x42, struct.pack("<H", 1200))
    start = len(head) + 4 + 8 + len(name) + 4
    bound = record(0x85, struct.pack("<IBBBB", start, 0, 0, len(name), 0) + name)
    return compound_file({"Workbook": head + bound + record(0x0A, b"") + sheet})


def doc_file(text: str) -> bytes:
    """A document of Word 97 in one piece of 8-bit text."""
    body = text.replace("\n", "\r").encode("cp1252") + b"\r"
    fib = bytearray(0x400)
    struct.pack_into("<HHHHH", fib, 0, 0xA5EC, 0xC1, 0, 0x409, 0)
    struct.pack_into("<H", fib, 0x0A, 0x0200)  # the tables are in the stream 1Table
    struct.pack_into("<II", fib, 0x18, 0x400, 0x400 + len(body))
    struct.pack_into("<I", fib, 0x4C, len(body))
    pieces = struct.pack("<II", 0, len(body)) + struct.pack("<HIH", 0, 0x40000000 | (0x400 * 2), 0)
    clx = b"\x02" + struct.pack("<I", len(pieces)) + pieces
    styles = struct.pack("<HHH", 18, 0, 10) + bytes(26)
    struct.pack_into("<II", fib, 0x1A2, 0, len(clx))
    struct.pack_into("<II", fib, 0xA2, len(clx), len(styles))
    return compound_file({"WordDocument": bytes(fib) + body, "1Table": clx + styles})


# --- others ----------------------------------------------------------------------------------------------


HTML = """<!doctype html><html><head><title>Handbook</title><style>p {color: red}</style></head><body>
<nav><a href="/">Home</a></nav><h1>Backups</h1><p>Every night at <b>two</b>, see <a href="http://x.example/">here</a>.</p>
<script>alert('never read')</script><h2>Restore</h2><ul><li>stop</li><li>copy</li></ul>
<table><tr><th>Disk</th><th>Size</th></tr><tr><td>sda</td><td>4 TB</td></tr></table>
<img src="http://x.example/tracker.png" alt="a picture of a disk"></body></html>"""


def notebook_file() -> bytes:
    cells = [
        {"cell_type": "markdown", "source": ["# Study of tides\n", "The moon is the cause of most of it."]},
        {
            "cell_type": "code",
            "source": "# no heading\nprint(height)",
            "outputs": [
                {"output_type": "stream", "text": ["4.2 metres\n"]},
                {"output_type": "display_data", "data": {"image/png": "iVBOR" * 1000}},
                {"output_type": "error", "ename": "ValueError", "evalue": "no water", "traceback": []},
                {"output_type": "execute_result", "data": {"text/plain": "x" * 10_000}},
            ],
        },
        "no cell",
    ]
    return json.dumps({"cells": cells, "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4}).encode()
