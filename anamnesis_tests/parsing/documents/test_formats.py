import subprocess
import sys

import pytest

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents import formats
from anamnesis_pipeline.parsing.documents.formats import MAX_TEXT_CHARS, format_of, to_text


@pytest.mark.parametrize(
    ("path", "fmt"),
    [
        ("CLAUDE.md", "markdown"),
        ("a/B.MARKDOWN", "markdown"),
        ("docs/index.rst", "rst"),
        ("notes.txt", "text"),
        ("report.DOCX", "docx"),
        ("sheet.xlsm", "xlsx"),
        ("src/app.py", "python"),
        ("firmware/main.ino", "cpp"),
        ("web/App.tsx", "tsx"),
        ("web/app.ts", "typescript"),
        ("build.gradle", "groovy"),
        ("Dockerfile", "dockerfile"),
        ("docker/Dockerfile.gpu", "dockerfile"),
        ("Makefile", "makefile"),
        ("docker-compose.yml", "yaml"),
        ("C:\\work\\setup.cfg", "ini"),
        ("env-example", "dotenv"),
        (".env.example", "dotenv"),
        ("README", "text"),
    ],
)
def test_a_file_is_known_by_its_name_in_any_case(path: str, fmt: str) -> None:
    assert format_of(path) == fmt


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".env.production",
        "prod.env",
        "id_rsa",
        "id_ed25519.pub",
        "server.pem",
        "tls.key",
        "credentials.json",
        ".credentials.json",
        "service-account-prod.json",
        ".npmrc",
        "secrets.yaml",
        "terraform.tfvars",
        "package-lock.json",
        "yarn.lock",
        "poetry.lock",
        "pnpm-lock.yaml",
        "uv.lock",
        "npm-shrinkwrap.json",
        "app.min.js",
        "app.js.map",
        "picture.png",
        "a.jsonl",
        "noextension",
        ".py",
        "~$report.docx",
        "x.pyc",
    ],
)
def test_secrets_locks_and_what_tools_write_are_no_documents(path: str) -> None:
    assert format_of(path) is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Grüße\r\nzwei\rdrei".encode(), "Grüße\nzwei\ndrei"),
        (b"\xef\xbb\xbf# Title", "# Title"),
        ("Grüße aus Köln".encode("utf-16"), "Grüße aus Köln"),
        ("A plain text in wide letters".encode("utf-16-le"), "A plain text in wide letters"),
        ("A plain text in wide letters".encode("utf-16-be"), "A plain text in wide letters"),
        (
            "Der Käse läßt sich für die Gäste öffnen, müßte aber kühl gelagert werden.".encode("cp1252"),
            "Der Käse läßt sich für die Gäste öffnen, müßte aber kühl gelagert werden.",
        ),
        (
            "Съешь же ещё этих мягких французских булок, да выпей чаю. Широкая электрификация.".encode("cp1251"),
            "Съешь же ещё этих мягких французских булок, да выпей чаю. Широкая электрификация.",
        ),
        ("Größe und Länge, ".encode() * 200 + b"\xc3", "Größe und Länge, " * 200 + "\ufffd"),
    ],
)
def test_a_text_is_read_in_the_charset_it_was_written_in(data: bytes, text: str) -> None:
    assert to_text("a.txt", data) == text


@pytest.mark.parametrize("data", [b"", b" \n\t ", b"\x7fELF\x02\x01\x01\x00\x00binary", b"text with \0 in it"])
def test_empty_and_binary_files_are_refused_with_their_path(data: bytes) -> None:
    with pytest.raises(DocumentUnreadable, match=r"^a/b\.txt: "):
        to_text("a/b.txt", data)


def test_of_a_very_long_text_the_end_is_left_out_and_a_note_says_so() -> None:
    text = to_text("a.txt", b"x" * (MAX_TEXT_CHARS + 7))
    assert text.endswith("\n\n[7 more characters of this document were left out]\n")
    assert len(text) < MAX_TEXT_CHARS + 100


def test_json_is_whole_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_JSON_CHARS", 20)
    assert to_text("a.json", b'{"a": 1}') == '{"a": 1}'
    with pytest.raises(DocumentUnreadable, match=r"split it"):
        to_text("a.json", b'{"a": "' + b"x" * 20 + b'"}')


def test_no_parser_is_imported_before_a_document_needs_it() -> None:
    modules = "formats, sections, trust"
    parsers = "bs4 charset_normalizer docx lxml markdown_it pypdfium2 python_calamine re2 striprtf tree_sitter"
    code = (
        f"import sys; from anamnesis_pipeline.parsing.documents import {modules}; "
        f"print([name for name in {parsers.split()} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
