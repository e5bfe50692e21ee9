import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.parsing.documents.formats import to_text
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.parsing.redaction.table_secrets import AT_ONCE, tables_masked
from anamnesis_tests.support import made_documents as made

SECRET = "hK29vvQp8Zt41"
ROWS = [["host", "DB Password", "room"], ["db1", SECRET, "cellar"], ["db2", "see the safe", "attic"]]

mask = Redactor(bytes(32)).mask_text


def masked(path: str, text: str) -> str:
    return tables_masked(path, text, mask)[0]


def html_file(rows: Sequence[Sequence[str]]) -> bytes:
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<p>These are ours:</p><table>{lines}</table>".encode()


FILES: dict[str, Callable[[Sequence[Sequence[str]]], bytes]] = {
    "a.docx": made.docx_table_file,
    "a.odt": made.odt_table_file,
    "a.ods": made.ods_file,
    "a.xlsx": lambda rows: made.xlsx_file({"Logins": rows}),
    "a.xls": made.xls_file,
    "a.html": html_file,
    "a.csv": lambda rows: "\n".join(",".join(row) for row in rows).encode(),
    "a.tsv": lambda rows: "\n".join("\t".join(row) for row in rows).encode(),
    "a.md": lambda rows: "\n".join(f"| {' | '.join(row)} |" for row in rows).encode(),
}


BESIDE = [["host", "db1"], ["API key (prod)", SECRET], ["room", "cellar"]]


@pytest.mark.parametrize("rows", [ROWS, BESIDE], ids=["under its heading", "behind its name"])
@pytest.mark.parametrize("path", FILES)
def test_a_secret_in_a_table_is_masked(path: str, rows: list[list[str]]) -> None:
    text = masked(path, to_text(path, FILES[path](rows)))
    assert SECRET not in text
    assert text.count("[REDACTED:") == 1
    assert all(word in text for row in rows for word in row if word != SECRET)


def test_headings_under_a_title_count_and_end_with_their_table() -> None:
    text = f"Logins | of the shop\nuser | token\nbob | {SECRET}\n\nuser | colour\nann | {SECRET}1\n"
    assert masked("a.md", text).count("REDACTED") == 1


def test_cells_of_csv_in_quotes_are_known_by_their_column() -> None:
    text = f'user;note;secret\nbob;"one;\ntwo;{SECRET}";"{SECRET};x"\nann;none;{SECRET}\n'
    told = masked("a.csv", text).split("\n")
    assert told[1:3] == ['bob;"one;', f'two;{SECRET}";"{told[2].split(chr(34))[2]}"']
    assert SECRET not in told[2].split('"')[2]
    assert SECRET not in told[3]


def test_a_secret_with_a_bar_in_it_is_one_cell() -> None:
    rows = [["host", "password"], ["db1", "hK29|vQp8Zt41"]]
    text = masked("a.docx", to_text("a.docx", made.docx_table_file(rows)))
    assert "vQp8" not in text
    assert "hK29" not in text


@pytest.mark.parametrize("path", ["a.py", "a.yaml", "a.json", "a.sh", "unknown"])
def test_what_has_no_tables_is_left_alone(path: str) -> None:
    text = f"password | note\n{SECRET} | x\n"
    assert tables_masked(path, text, mask) == (text, {})


def test_plain_words_and_what_is_masked_already_stay() -> None:
    text = "user | token\nbob | none\nann | [REDACTED:token:0badf00d]\n"
    assert masked("a.txt", text) == text


@given(st.text("ab|,;\t\"'\n\\ -:*`", max_size=200), st.sampled_from(["a.md", "a.csv", "a.tsv"]))
def test_no_text_gains_or_loses_a_line(text: str, path: str) -> None:
    head = "password|password,password\n"
    assert masked(path, head + text).count("\n") == (head + text).count("\n")
    assert masked(path, text) == text


def test_fifty_thousand_rows_are_no_burden() -> None:
    """Measured: 0.8 s without a secret, and 3.8 s with 50,000 of them, which is what so many masks cost."""
    rows = [f"{number},name{number % 977},town,{number / 7:.4f},2026-01-02" for number in range(50_000)]
    began = time.perf_counter()
    tables_masked("a.csv", "\n".join(["id,name,city,amount,day", *rows]), mask)
    assert time.perf_counter() - began < 60


def test_every_batch_of_cells_is_masked() -> None:
    rows = [f"user{number},{SECRET}{number:05}" for number in range(AT_ONCE + 10)]
    text, found = tables_masked("a.csv", "\n".join(["user,password", *rows]), mask)
    assert SECRET not in text
    assert found == {"password": AT_ONCE + 10}
