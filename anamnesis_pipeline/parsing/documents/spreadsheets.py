"""Spreadsheets: .xlsx, .xlsm and .xls."""

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents import packed
from anamnesis_pipeline.parsing.documents.plain import as_markdown, heading, row, shortened, tidy

MAX_CELLS = 500_000
MAX_CELL_CHARS = 100_000
"""Excel itself allows at most 32,767."""
MAX_AREA = 20_000_000
"""Limit of rows times columns of a sheet, which the library allocates in full."""

_CELL = re.compile(rb'<(?:\w+:)?(?:c|row)\b[^>]{0,200}?\br="([A-Z]{0,3})(\d{1,8})"')


def xlsx_text(data: bytes) -> str:
    """Return a heading per sheet and a line per row of an .xlsx or .xlsm."""
    with packed.opened(data) as archive:
        for name in archive.namelist():
            _check_area(archive, name)
    return xls_text(data)


def xls_text(data: bytes) -> str:
    """Return a heading per sheet and a line per row of any workbook."""
    from python_calamine import CalamineWorkbook, PasswordError

    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    except PasswordError as exc:
        raise DocumentUnreadable("it is protected by a password") from exc
    blocks: list[str] = []
    room = MAX_CELLS
    for name in book.sheet_names:
        lines = list(_lines(book.get_sheet_by_name(name).to_python(), room))
        room -= sum(line.count(" | ") + 1 for line in lines)
        if lines:
            blocks += [heading(1, name), "\n".join(lines)]
    if not blocks:
        raise DocumentUnreadable("its sheets are empty")
    return tidy("\n\n".join(blocks))


def _check_area(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse a sheet with a cell so far out that its layout would fill the memory. Reads every byte, which also detects
    a member that is larger than listed.
    """
    columns = rows = 1
    kept = b""
    for chunk in packed.chunks(archive, name):
        if "worksheets/" not in name:
            continue
        for letters, number in _CELL.findall(kept + chunk):
            columns, rows = max(columns, _column(letters)), max(rows, int(number))
        kept = chunk[-300:]
    if columns * rows > MAX_AREA:
        raise DocumentUnreadable(f"{name} has {rows} rows and {columns} columns, more than is read")


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number


def _lines(rows: Sequence[Sequence[object]], room: int) -> Iterator[str]:
    for cells in rows:
        line = row([shortened(_shown(cell), MAX_CELL_CHARS) for cell in cells])
        room -= line.count(" | ") + 1
        if room < 0:
            yield "[the rest of this sheet was left out]"
            return
        if line.strip(" |"):
            yield as_markdown(line)


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.15g}"
    return cell.isoformat() if isinstance(cell, (datetime, date, time)) else str(cell)
