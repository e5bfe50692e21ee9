"""The documents say what the code does: reference pages, settings, commands, targets, links and example calls."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from anamnesis_pipeline.cli.app import app as command_line
from anamnesis_pipeline.pipeline.source_specs import SpecFields
from anamnesis_pipeline.services.crawler_control import SourceTestIn
from anamnesis_pipeline.services.editing import BulkEditIn
from anamnesis_pipeline.services.pointers import PointerIn
from anamnesis_pipeline.services.schemas import EpisodeIn, SearchIn
from anamnesis_pipeline.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "plugin/**/*.md", "examples/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
OF_THE_TESTS = {"test_mongo_uri", "test_stores", "test_url"}
"""Variables that the tests alone read."""

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def code_of(text: str) -> str:
    """Everything that a document marks as code."""
    fenced = re.compile(r"^(`{3,})[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
    blocks = [block for _, block in fenced.findall(text)]
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", fenced.sub("", text))])


@pytest.fixture(scope="module")
def reference() -> Any:
    """The script that writes the reference pages."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs/reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["settings.md", "cli.md", "http.md", "mcp.md", "errors.md"])
def test_reference_page_is_as_the_code_has_it(reference: Any, name: str) -> None:
    assert reference.is_current(ROOT / "docs/reference" / name, reference.pages()[name]), "run `make reference`"


def test_reference_check_names_stale_page(reference: Any, monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference.py"])
    assert reference.main() == 0
    (tmp_path / "cli.md").write_text("# Commands\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["reference.py", "--check"])
    assert reference.main() == 1
    assert capsys.readouterr().err == "docs/reference/cli.md is stale; run `make reference`\n"


def test_reference_says_the_meaning_of_everything(reference: Any) -> None:
    """A setting, command, option, error, route or field without words would leave its cell or paragraph empty."""
    pages = reference.pages()
    tables = "".join(pages[name] for name in ("settings.md", "cli.md", "errors.md", "http.md"))
    assert [line for line in tables.splitlines() if re.search(r"\|(?: \[required\])? +\|$", line)] == []
    assert re.findall(r"^(#+ .+)\n\n```text\n.+\n```\n\n\n", pages["cli.md"], re.MULTILINE) == []
    assert re.findall(r"^(### .+)\n\n(?:\n|\|)", pages["http.md"], re.MULTILINE) == []


def test_reference_needs_no_dagster() -> None:
    script = "import runpy, sys; runpy.run_path('docs/reference.py'); sys.exit('dagster' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_default_folders_are_as_the_reference_words_them(
    reference: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "ANAMNESIS_HOME", "ANAMNESIS_LOG_ROOTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    settings, words = Settings(), reference.DEFAULTS_OF_THE_MACHINE
    assert settings.home == Path(words["home"].strip("`")).expanduser()
    assert settings.log_roots == (Path(words["log_roots"].strip("`")).expanduser(),)


@each_document
def test_every_variable_in_a_document_is_a_setting(document: Path) -> None:
    named = set(re.findall(rf"\b{ENV_PREFIX}([A-Z_]+)\b", document.read_text(encoding="utf-8")))
    of_compose = re.findall(rf"\b{ENV_PREFIX}([A-Z_]+)=", (ROOT / "deploy/example.env").read_text(encoding="utf-8"))
    known = {*Settings.model_fields, *variables_of_the_hooks(), *OF_THE_TESTS, *map(str.lower, of_compose)}
    assert {name.lower() for name in named} <= known


def variables_of_the_hooks() -> set[str]:
    """What the hook script, which knows no settings, reads from the environment by itself."""
    script = (ROOT / "plugin/hooks/anamnesis_hook.py").read_text(encoding="utf-8")
    return {name.lower() for name in re.findall(rf"\b{ENV_PREFIX}([A-Z_]+)\b", script)}


def commands_of(document: Path) -> list[str]:
    """Every call of `anamnesis` in a shell block of a document, without comments and continuation lines."""
    text = document.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:bash|sh|console|shell)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if re.match(r"\s*(?:\$ )?anamnesis\b", line)]


@each_document
def test_every_command_that_a_document_shows_parses(document: Path) -> None:
    for line in commands_of(document):
        words = shlex.split(re.split(r" (?:[|>&]|&&|;) ?", line.removeprefix("$ "))[0], comments=True)
        assert parse_error(words) == "", line


@each_document
def test_every_command_that_a_sentence_names_exists(document: Path) -> None:
    for name in re.findall(r"`anamnesis ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", document.read_text(encoding="utf-8")):
        command: Any = typer.main.get_command(command_line)
        for word in name.split():
            if below := getattr(command, "commands", {}):
                assert word in below, f"anamnesis {name}"
                command = below[word]


def parse_error(words: list[str]) -> str:
    """Why the command line refuses these words; empty if it takes them. Nothing is run."""
    command: Any = typer.main.get_command(command_line)
    name, *words = words
    while words and (below := getattr(command, "commands", {})):
        if words[0] not in below:
            return f"no command {words[0]!r} in {name}"
        command, name, words = below[words[0]], f"{name} {words[0]}", words[1:]
    try:
        command.make_context(name, words)
    except typer.TyperException as exc:
        return str(exc)
    return ""


def test_parse_error_finds_wrong_commands() -> None:
    assert parse_error(["anamnesis", "search", "relay board", "--top-k", "3"]) == ""
    assert parse_error(["anamnesis", "sources", "ad", "x"]) == "no command 'ad' in anamnesis sources"
    assert "--topk" in parse_error(["anamnesis", "search", "x", "--topk", "3"])


def make_targets() -> set[str]:
    return set(re.findall(r"^\.PHONY: ([a-z-]+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@each_document
def test_every_make_target_in_a_document_exists(document: Path) -> None:
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", code_of(document.read_text(encoding="utf-8"))))
    assert named <= make_targets()


def test_every_make_target_is_explained_to_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert make_targets() <= set(re.findall(r"\bmake ([a-z][a-z-]*)", code_of(text)))


def anchors_of(document: Path) -> set[str]:
    """What `#...` links into a document may name."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_document
def test_every_link_inside_the_repository_leads_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@each_document
def test_every_file_that_a_document_names_exists(document: Path) -> None:
    code = code_of(document.read_text(encoding="utf-8"))
    named = re.findall(r"\b((?:anamnesis_pipeline|anamnesis_tests|benchmarks|docs|examples|plugin)/[\w./-]+)", code)
    assert [name for name in named if "/X" not in name and not (ROOT / name).exists()] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as `make check` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_link_of_the_site_resolves(site: Path) -> None:
    broken = []
    for page in site.rglob("*.html"):
        for link in re.findall(r' (?:href|src)="?([^" >]+)', page.read_text(encoding="utf-8")):
            path = link.partition("#")[0]
            if path and not re.match(r"[a-z]+:|/", path) and not (page.parent / path).exists():
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_site_loads_nothing_from_other_hosts(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|iframe)[^>]+src=.?https?:[^ >]+|<link[^>]+href=.?https?:[^ >]+")
    assert [found for page in site.rglob("*.html") for found in loaded.findall(page.read_text(encoding="utf-8"))] == []


def test_site_holds_files_that_pages_link_to_outside_docs(site: Path) -> None:
    assert "<h1" in (site / "repository/SECURITY.html").read_text(encoding="utf-8")
    assert "repository/SECURITY.html" in (site / "explanation/security.html").read_text(encoding="utf-8")


def example_calls() -> list[tuple[str, str]]:
    """(path, JSON body) of every curl call with a body."""
    call = re.compile(
        r"curl (?:(?!curl)[^{}])*?http://127\.0\.0\.1:3010(/[\w/]+)(?:(?!curl)[^{}])*?-d '(\{.*?\})'", re.S
    )
    return [found for document in DOCUMENTS for found in call.findall(code_of(document.read_text(encoding="utf-8")))]


def test_the_example_calls_are_ones_that_the_service_accepts() -> None:
    bodies: dict[str, type[BaseModel]] = {
        "/api/episodes/search": SearchIn,
        "/api/episodes": EpisodeIn,
        "/api/pointers": PointerIn,
        "/api/episodes/bulk/edit": BulkEditIn,
        "/api/sources/test": SourceTestIn,
        "/api/sources/code": SpecFields,
    }
    calls = example_calls()
    assert {path for path, _ in calls} == set(bodies)
    for path, body in calls:
        bodies[path].model_validate_json(body)
