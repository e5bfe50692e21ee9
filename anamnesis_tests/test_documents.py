"""The documents say what the code does: settings, routes, commands, targets, links and example calls."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from pydantic import BaseModel, SecretStr

from anamnesis_pipeline.cli import app as command_line
from anamnesis_pipeline.setting_places import ENV_PREFIX
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.crawler_schemas import SourceTestIn
from anamnesis_pipeline.sidecar.schemas import EpisodeIn, SearchIn
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.steps.source_specs import SpecFields

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "plugin/**/*.md", "examples/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
OF_THE_MACHINE = {
    "home": "~/.local/share/anamnesis", "log_roots": "~/.claude/projects", "machine": "the host name",
    "model": "ANAMNESIS_DEFAULT_MODEL",
}  # fmt: skip
"""Defaults that differ from machine to machine, as the README words them."""
OF_THE_TESTS = {"test_mongo_uri", "test_stores", "test_url"}
"""Variables that the tests alone read."""

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading of the README, without its two head rows."""
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table, f"no table under {heading!r}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def code_of(text: str) -> str:
    """Everything that a document marks as code."""
    fenced = re.compile(r"^(`{3,})[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
    blocks = [block for _, block in fenced.findall(text)]
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", fenced.sub("", text))])


def default_of(name: str) -> str:
    """The default as the README's table shows it."""
    if name in OF_THE_MACHINE:
        return OF_THE_MACHINE[name] if name == "machine" else f"`{OF_THE_MACHINE[name]}`"
    value = Settings.model_fields[name].default
    if value in (None, (), {}):
        return "none"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def test_the_settings_table_is_the_settings_file() -> None:
    described = {name: [default_of(name), field.description or ""] for name, field in Settings.model_fields.items()}
    table = {row[0].strip("`").removeprefix(ENV_PREFIX).lower(): row[1:] for row in rows_of("Settings")}
    assert table == described


def test_the_defaults_of_folders_are_where_the_table_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "ANAMNESIS_HOME", "ANAMNESIS_LOG_ROOTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = Settings()
    assert settings.home == Path(OF_THE_MACHINE["home"]).expanduser()
    assert settings.log_roots == (Path(OF_THE_MACHINE["log_roots"]).expanduser(),)


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


def test_the_table_of_routes_is_the_openapi_document() -> None:
    # The document depends on nothing but the settings.
    paths = create_app(cast(Services, SimpleNamespace(settings=Settings()))).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert {row[0].strip("`") for row in rows_of("HTTP API")} == routes


def commands(command: Any, name: str) -> Iterator[str]:
    """Full names of a command and everything below it; a group that only lists its commands is none itself."""
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield name
    for inner_name, inner in below.items():
        yield from commands(inner, f"{name} {inner_name}")


def test_the_table_of_commands_is_the_command_line() -> None:
    known = set(commands(typer.main.get_command(command_line), "anamnesis"))
    assert {row[0].strip("`").split(" [")[0].split(" <")[0] for row in rows_of("Commands")} == known


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


def example_calls() -> list[tuple[str, str]]:
    """(path, JSON body) of every curl call with a body."""
    call = re.compile(
        r"curl (?:(?!curl)[^{}])*?http://127\.0\.0\.1:3010(/[\w/]+)(?:(?!curl)[^{}])*?-d '(\{.*?\})'", re.S
    )
    return [found for document in DOCUMENTS for found in call.findall(code_of(document.read_text(encoding="utf-8")))]


def test_the_example_calls_are_ones_that_the_service_accepts() -> None:
    bodies: dict[str, type[BaseModel]] = {
        "/api/episodes/search": SearchIn, "/api/episodes": EpisodeIn, "/api/sources/test": SourceTestIn,
        "/api/sources/code": SpecFields,
    }  # fmt: skip
    calls = example_calls()
    assert {path for path, _ in calls} == set(bodies)
    for path, body in calls:
        bodies[path].model_validate_json(body)
