import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import Section, SegmentKind
from anamnesis_pipeline.parsing.code.sections import outline_without
from anamnesis_pipeline.parsing.documents.sections import sections_of

PACKAGE = Path(__file__).parents[3] / "anamnesis_pipeline"

PYTHON = '''"""Reads the meters. More is in the manual."""

import json

import httpx

LIMIT = 5
_secret = 1


@app.get("/meters")
def meters(first: int, *, last: int = 3) -> list[int]:
    """Every meter between two.

    A second paragraph.
    """
    return [first, last]


# Turned off in winter.
def boiler(): ...


class Store(Base):
    """Keeps what was read."""

    size: int = 0

    def put(self, value: int) -> None:
        """Add one value. It is kept."""
        self.values.append(value)

    def _drop(self): ...


AFTER = 1
'''


def outline(section: Section) -> str:
    return "\n".join(piece.text for piece in section.pieces if piece.kind is SegmentKind.OUTLINE)


def code(section: Section) -> str:
    return "\n".join(piece.text for piece in section.pieces if piece.kind is SegmentKind.CODE)


def by_anchor(path: str, text: str) -> dict[str, Section]:
    return {section.anchor: section for section in sections_of(path, text)}


def test_a_file_of_code_has_a_head_and_a_section_per_function_and_class() -> None:
    found = by_anchor("src/meters.py", PYTHON)
    assert list(found) == ["~top", "meters", "boiler", "Store"]
    assert outline(found["~top"]) == ("src/meters.py\nReads the meters\nimports httpx\nconstants LIMIT, AFTER")
    assert outline(found["meters"]) == '@app.get("/meters") meters(first, last): Every meter between two'
    assert outline(found["boiler"]) == "boiler(): Turned off in winter"
    assert outline(found["Store"]) == "class Store(Base): Keeps what was read\nput: Add one value"
    assert {section.kind for section in found.values()} == {"code"}
    assert {section.language for section in found.values()} == {"python"}


def test_an_outline_omits_what_is_private_and_has_its_own_section() -> None:
    text = 'def _shown(value):\n    """As one line."""\n    return str(value)\n\n\ndef a(): ...\n'
    found = by_anchor("a.py", text)
    assert outline(found["_shown"]) == "_shown"
    assert outline(found["~top"]) == "a.py\ndefines a"
    documented = by_anchor("a.py", f'"""What is shown."""\n\n\n{text}')
    assert outline(documented["~top"]) == "a.py\nWhat is shown\ndefines a"
    undocumented = "def first(value):\n    return str(value)\n\n\ndef second(value):\n    return str(value)\n"
    assert outline(by_anchor("a.py", undocumented)["~top"]) == "a.py\ndefines first, second"


def test_the_code_of_a_section_is_verbatim_with_its_lines() -> None:
    found = by_anchor("meters.py", PYTHON)
    lines = PYTHON.split("\n")
    for anchor in ("meters", "boiler", "Store"):
        section = found[anchor]
        assert code(section) == "\n".join(lines[section.first_line - 1 : section.last_line])
    assert code(found["boiler"]).startswith("# Turned off")
    assert "AFTER = 1" in code(found["~top"])


@pytest.fixture(scope="module")
def own() -> dict[Path, list[Section]]:
    """The sections of every file of ours."""
    paths = PACKAGE.rglob("*.py")
    return {path: sections_of(path.relative_to(PACKAGE.parent).as_posix(), path.read_text()) for path in paths}


def test_no_line_of_code_is_lost(own: dict[Path, list[Section]]) -> None:
    for path, found in own.items():
        text = path.read_text()
        kept = {line.strip() for section in found for piece in section.pieces for line in piece.text.split("\n")}
        assert {line.strip() for line in text.split("\n")} - kept <= {""} or len(text) < 60, path


def test_long_methods_of_a_long_class_are_sections_of_their_own() -> None:
    long = "".join(f"        x{n} = {n}\n" for n in range(20))
    methods = "".join(f'    def m{n}(self, a):\n        """Does {n}."""\n{long}' for n in range(10))
    found = by_anchor(
        "a.py", f'import x\n\n\nclass Long:\n    """Doc."""\n\n    def short(self):\n        return 1\n\n{methods}'
    )
    assert list(found) == ["~top", "Long", *(f"Long.m{n}" for n in range(10))]
    assert outline(found["Long.m3"]) == "Long.m3(a): Does 3"
    assert found["Long.m3"].title == ("a.py", "Long", "m3")
    assert "x7" not in code(found["Long"])
    assert "def short" in code(found["Long"])


def test_a_function_keeps_its_anchor_and_outline_when_others_move() -> None:
    one, two = (f"def {name}(a):\n    return a + 1_000_000\n" for name in ("one", "two"))
    before, after = by_anchor("a.py", f"{one}\n\n{two}"), by_anchor("a.py", f"import x\n\n\n{two}\n\n{one}")
    assert {anchor: (outline(before[anchor]), code(before[anchor])) for anchor in ("one", "two")} == {
        anchor: (outline(after[anchor]), code(after[anchor])) for anchor in ("one", "two")
    }


LANGUAGES = {
    "a.js": (
        "// Doc f.\nexport function f(a) { return 1 }\nconst g = (b) => { return 2 }\n"
        "class A extends B { m(x) {} }\nmodule.exports.z = function(q) { return 1 }\n",
        {"f", "g", "A", "module.exports.z"},
    ),
    "a.ts": (
        "export interface I { m(): void }\nexport abstract class A<T> { q(x: number): void {} }\n"
        "namespace N { export function inner() {} }\nexport const g = async (a: number) => {};\n",
        {"I", "A", "N.inner", "g"},
    ),
    "a.tsx": ("export const C = memo(() => { return <div/> })\nfunction D({ a }) { return <p/> }\n", {"C", "D"}),
    "A.java": (
        "package p;\nimport q.R;\n/** Doc. */\npublic class A { /** d */ public int m(int x) { return 1; } }\n"
        "enum E { X }\n",
        {"A", "E"},
    ),
    "a.go": (
        "package p\n// F does.\nfunc F(a int) error { return nil }\nfunc (s *S) M() {}\ntype S struct { a int }\n",
        {"F", "S.M", "S"},
    ),
    "a.rs": (
        "/// Doc.\npub fn f(a: i32) -> i32 { 1 }\npub struct S { a: i32 }\nimpl T for S { fn q(&self) {} }\n"
        "mod m { pub fn inner() {} }\n",
        {"f", "S", "T for S", "m.inner"},
    ),
    "a.c": (
        "#ifndef X\n#include <a.h>\n/* Doc. */\nint f(int a, char *b) { return 1; }\n"
        "static char *g(void) { return 0; }\nstruct s { int a; };\n#endif\n",
        {"f", "g", "s"},
    ),
    "a.cpp": (
        "namespace n { class A : public B { public: int m() { return 1; } }; }\nvoid A::q() {}\n",
        {"n.A", "A::q"},
    ),
    "blink.ino": ("#include <Servo.h>\nvoid setup() { pinMode(13, OUTPUT); }\nvoid loop() { }\n", {"setup", "loop"}),
    "a.cs": (
        "using X;\nnamespace N { public class A : B { public int M(int a) { return 1; } }\n"
        "interface I { void X(); } }\n",
        {"N.A", "N.I"},
    ),
    "a.sh": ("#!/bin/bash\n# Doc f.\nf() { echo; }\nfunction g { echo; }\n", {"f", "g"}),
    "a.rb": ("module M\n  class A < B\n    def m(x); 1; end\n  end\nend\ndef top; end\n", {"M.A", "top"}),
    "a.php": ("<?php\n/** Doc. */\nfunction f($a) { return 1; }\nclass A { public function m() {} }\n", {"f", "A"}),
    "a.swift": ("/// Doc.\npublic func f(a: Int) -> Int {\n  return 1\n}\nstruct S {\n  let a: Int\n}\n", {"f", "S"}),
    "a.kt": (
        "package p\n\nfun f(a: Int): Int {\n    return 1\n}\n\n/** Doc. */\nclass A(val x: Int) : B() {\n"
        "    fun m() {\n    }\n}\n",
        {"f", "A"},
    ),
    "a.scala": ("object O { def f(a: Int): Int = 1 }\nclass A extends B { def m(): Unit = {} }\n", {"O", "A"}),
    "a.lua": ("-- Doc.\nfunction f(a) return 1 end\nlocal function g() end\nfunction M.x() end\n", {"f", "g", "M.x"}),
}


@pytest.mark.parametrize("path", LANGUAGES)
def test_functions_and_classes_of_each_language_are_found(path: str) -> None:
    text, names = LANGUAGES[path]
    found = by_anchor(path, text)
    outlines = "\n".join(outline(section) for section in found.values())
    assert all(name in found or name.rsplit(".", 1)[-1] in outline(found["~top"]) for name in names)
    assert {*found} <= {*names, "~top"}
    if "Doc" in text:
        assert "Doc" in outlines


@pytest.mark.parametrize("path", ["a.py", "a.ts", "a.java", "a.vue", "a.zig"])
def test_what_no_grammar_reads_is_text(path: str) -> None:
    text = "%%% (((( this is { no language ]] of any kind, but it is written down all the same ===\n" * 3
    found = sections_of(path, text)
    assert [piece.kind for section in found for piece in section.pieces] == [SegmentKind.DOCUMENT]


@pytest.mark.parametrize(
    ("path", "text", "keys"),
    [
        (
            "docker-compose.yml",
            "services:\n  grafana:\n    image: x\n    ports: [3000]\nvolumes:\n  data:\n",
            ["services", "grafana", "volumes"],
        ),
        ("pyproject.toml", '[project]\nname = "x"\n[tool.ruff]\nline-length = 120\n', ["[project]", "[tool.ruff]"]),
        ("app.ini", "[server]\nport = 80\n; a comment about it all\n", ["[server]", "port"]),
        (
            "Dockerfile",
            "FROM python:3.11\nRUN pip install x\nEXPOSE 3010\nCMD run\n",
            ["FROM python:3.11", "EXPOSE 3010"],
        ),
        ("Makefile", "build: deps\n\tgcc a.c\ntest:\n\tpytest and more\n", ["build", "test"]),
        (".env.example", "# all that is needed\nexport API_URL=http://x\nTOKEN=\n", ["API_URL", "TOKEN"]),
    ],
)
def test_a_configuration_file_is_one_section_that_names_its_keys(path: str, text: str, keys: list[str]) -> None:
    (found,) = sections_of(f"deploy/{path}", text)
    assert outline(found).startswith(f"deploy/{path} (")
    assert all(key in outline(found) for key in keys)
    assert found.pieces[1].text == text.strip("\n")


def test_a_long_configuration_file_is_read_but_searched_by_its_keys() -> None:
    text = "".join(f"key{n}: value {n}\n" for n in range(200))
    (found,) = sections_of("a.yaml", text)
    assert [piece.kind for piece in found.pieces] == [SegmentKind.OUTLINE, SegmentKind.CODE]
    assert len(outline(found)) < 700


@pytest.mark.slow
@pytest.mark.parametrize("language", ["py", "js", "cpp", "rb", "rs", "sh", "php", "swift", "kt"])
@pytest.mark.parametrize(
    "text", ["{" * 200_000, "def f(" * 40_000, "if (a) { " * 20_000, "x = [" * 50_000, "\"'`" * 60_000]
)
def test_code_that_nests_without_end_stalls_nothing(language: str, text: str) -> None:
    began = time.process_time()
    sections_of(f"a.{language}", text)
    assert time.process_time() - began < 20


def test_text_that_a_grammar_cannot_end_is_given_up_and_read_as_text() -> None:
    began = time.process_time()
    found = sections_of("a.sh", "def f(" * 40_000)
    assert time.process_time() - began < 20
    assert found[0].pieces[0].kind is SegmentKind.DOCUMENT


def test_outlines_name_all_public_in_a_tenth_of_the_tokens(own: dict[Path, list[Section]]) -> None:
    texts = {path: path.read_text() for path in own}
    told = "\n".join(outline(section) for sections in own.values() for section in sections)
    assert {name for text in texts.values() for name in public(ast.parse(text)) if name not in told} == set()
    sample = sorted(own)[::4]
    code = [texts[path] for path in sample]
    outlines = [outline(section) for path in sample for section in own[path]]
    tokens = [sum(map(len, minilm_pieces().spans(each))) for each in (code, outlines)]
    assert tokens[1] * 10 <= tokens[0]


def public(parent: ast.Module | ast.ClassDef) -> Iterator[str]:
    """What can be called from outside: not what is private, or lives inside a function."""
    for node in parent.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def test_an_outline_names_nothing_that_is_gone() -> None:
    gone = {("walrus",), ("Harbour",), ("Shed", "load")}
    head = "a/b.py\nimports os\ndefines walrus, pelican, Harbour, …"
    assert outline_without(head, ("b.py",), gone) == "a/b.py\nimports os\ndefines pelican, …"
    assert outline_without("b.py\ndefines walrus", ("b.py",), gone) == "b.py"
    assert outline_without("Harbour.Shed.load(a): x", ("b.py", "Harbour", "Shed", "load"), gone) == "Shed.load(a): x"
    members = "class Shed: for boats\nload\nload_all: of them\nwalrus"
    assert outline_without(members, ("b.py", "Shed"), gone) == "class Shed: for boats\nload_all: of them\nwalrus"
