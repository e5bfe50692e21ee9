"""Word's documents: .docx, .doc and .rtf."""

import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

from anamnesis_pipeline.documents import packed
from anamnesis_pipeline.documents.plain import as_markdown, heading, row, tidy
from anamnesis_pipeline.errors import DocumentUnreadable

if TYPE_CHECKING:
    from docx.table import Table
    from docx.text.paragraph import Paragraph

ANTIWORD_S = 30
"""How long antiword may take for one document."""
MOST_RTF_BYTES = 16 << 20

_HEADING = re.compile(r"(?:heading|title)\s*(\d*)", re.IGNORECASE)


def docx_text(data: bytes) -> str:
    """The paragraphs, headings and tables of a .docx, in order, as Markdown."""
    import docx
    import docx.table

    packed.opened(data).close()
    document = docx.Document(io.BytesIO(data))
    blocks = (
        _table(part) if isinstance(part, docx.table.Table) else _paragraph(part)
        for part in document.iter_inner_content()
    )
    return tidy("\n\n".join(blocks))


def _paragraph(paragraph: "Paragraph") -> str:
    text = paragraph.text
    style = paragraph.style.name if paragraph.style is not None else ""
    found = _HEADING.fullmatch((style or "").strip())
    if found and text.strip():
        return heading(int(found.group(1) or 1), text)
    return f"- {as_markdown(text)}" if (style or "").startswith("List") and text.strip() else as_markdown(text)


def _table(table: "Table") -> str:
    return "\n".join(line for line in _rows(table) if line)


def _rows(table: "Table") -> Iterator[str]:
    for table_row in table.rows:
        cells: list[str] = []
        last = None
        for cell in table_row.cells:
            if cell._tc is not last:  # a merged cell comes once for each column it spans
                cells.append(cell.text)
            last = cell._tc
        yield as_markdown(row(cells))


def doc_text(data: bytes) -> str:
    """The text of a .doc, which antiword reads; what merely has that name is read as what it is."""
    if data.lstrip().startswith(b"{\\rtf"):
        return rtf_text(data)
    if data.startswith(b"PK"):
        return docx_text(data)
    antiword = shutil.which("antiword")
    if not antiword:
        raise DocumentUnreadable("the command antiword, which reads .doc, is not installed")
    with tempfile.NamedTemporaryFile(suffix=".doc") as copy:
        copy.write(data)
        copy.flush()
        command = [antiword, "-m", "UTF-8.txt", "-w", "0", copy.name]
        try:
            done = subprocess.run(command, capture_output=True, timeout=ANTIWORD_S, check=False)
        except subprocess.TimeoutExpired as exc:
            raise DocumentUnreadable(f"antiword did not read it within {ANTIWORD_S} s") from exc
    if done.returncode or not done.stdout.strip():
        problem = (done.stderr or done.stdout).decode("utf-8", "replace").replace(copy.name, "it").strip()
        raise DocumentUnreadable(f"antiword cannot read it: {problem[:200]}")
    return tidy(done.stdout.decode("utf-8", "replace"))


def rtf_text(data: bytes) -> str:
    """The text of an .rtf, without its pictures."""
    if not data.lstrip().startswith(b"{\\rtf"):
        raise DocumentUnreadable("it does not begin as RTF does")
    from striprtf.striprtf import rtf_to_text

    data = re.sub(rb"[0-9a-fA-F\r\n]{2000,}", b"", data)  # pictures
    if len(data) > MOST_RTF_BYTES:
        raise DocumentUnreadable(f"it has {len(data)} bytes without its pictures; at most {MOST_RTF_BYTES} are read")
    text: str = rtf_to_text(data.decode("latin-1"), errors="ignore")  # type: ignore[no-untyped-call]
    return tidy(text)
