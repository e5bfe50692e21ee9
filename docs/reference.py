"""Write the reference pages of docs/reference from the code: settings, commands, HTTP API, MCP tools, errors.

`python docs/reference.py` writes them; with `--check` it only compares, and exits with status 1 if one is stale.
All words come from the code: descriptions of settings, help of commands, docstrings of routes, tools and errors.
"""

import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast, get_args, get_origin

import typer
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from anamnesis_pipeline import errors, settings
from anamnesis_pipeline.cli import app as cli
from anamnesis_pipeline.settings import ENV_PREFIX, NOT_STORABLE, LlmSettings, Settings
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.mcp import definitions
from anamnesis_pipeline.sidecar.problems import status_of
from anamnesis_pipeline.sidecar.services import Services

FOLDER = Path(__file__).parent / "reference"
MADE = "<!-- Made by docs/reference.py from the code; run `make reference` after a change there. -->"
DEFAULTS_OF_THE_MACHINE = {
    "home": "`~/.local/share/anamnesis`",
    "log_roots": "`~/.claude/projects`",
    "machine": "the host name",
    "model": "`ANAMNESIS_DEFAULT_MODEL`",
    "ranking": "[the measured numbers](#ranking)",
}
"""Defaults that differ from machine to machine, or are listed elsewhere."""


def main() -> int:
    """Write the pages, or compare them; returns the exit status."""
    stale = [name for name, text in pages().items() if not is_current(FOLDER / name, text)]
    if "--check" in sys.argv[1:]:
        sys.stderr.write("".join(f"docs/reference/{name} is stale; run `make reference`\n" for name in stale))
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).write_text(pages()[name], encoding="utf-8")
    return 0


def is_current(path: Path, text: str) -> bool:
    """Whether a page is as the code has it now."""
    return path.is_file() and path.read_text(encoding="utf-8") == text


def pages() -> dict[str, str]:
    """Name of each generated page -> its text."""
    made = {
        "settings.md": settings_page(),
        "cli.md": cli_page(),
        "http.md": http_page(),
        "mcp.md": mcp_page(),
        "errors.md": errors_page(),
    }
    return {name: f"{MADE}\n\n" + "\n".join(lines).rstrip() + "\n" for name, lines in made.items()}


def settings_page() -> Iterator[str]:
    """Every setting: variable, default, values, whether it can be stored, words."""
    yield from ("# Settings", "", intro(settings), "")
    groups = {"Memory, processes, crawling and search": Settings, "LLMs and services": LlmSettings}
    for title, owner in groups.items():
        fields = {
            name: field
            for name, field in Settings.model_fields.items()
            if (name in LlmSettings.model_fields) == (owner is LlmSettings)
        }
        rows = [
            [
                f"`{ENV_PREFIX}{name.upper()}`",
                default_of(name, field),
                values_of(field),
                "no" if name in NOT_STORABLE else "yes",
                field.description or "",
            ]
            for name, field in fields.items()
        ]
        yield from (f"## {title}", "", *table(["Variable", "Default", "Values", "Stored", "Meaning"], rows), "")
    rows = [
        [f"`{name}`", default_of(name, field), values_of(field), field.description or ""]
        for name, field in settings.Ranking.model_fields.items()
    ]
    told = "In the table `[ranking]` of `config.toml`, or in `ANAMNESIS_RANKING`. The defaults are the measured ones."
    yield from ("## Ranking", "", told, "", *table(["Number", "Default", "Values", "Meaning"], rows), "")


def default_of(name: str, field: FieldInfo) -> str:
    """A default as the table shows it."""
    if name in DEFAULTS_OF_THE_MACHINE:
        return DEFAULTS_OF_THE_MACHINE[name]
    value = field.default
    if value in (None, (), {}, ""):
        return "none"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = ",".join(value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def values_of(field: FieldInfo) -> str:
    """The values that a setting can have, where its type or its bounds say."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    if field.annotation is bool:
        return "`true`, `false`"
    bounds = {
        key: value for each in field.metadata for key in ("ge", "le") if (value := getattr(each, key, None)) is not None
    }
    if {"ge", "le"} <= bounds.keys():
        return f"{bounds['ge']:,} to {bounds['le']:,}"
    return f"{bounds['ge']:,} or more" if "ge" in bounds else ""


def cli_page() -> Iterator[str]:
    """Every command with its arguments and options, as `--help` has them."""
    yield from ("# Commands", "", intro(cli), "")
    root: Any = typer.main.get_command(cli.app)
    for name, command in sorted(root.commands.items()):
        yield from command_lines(command, typer.Context(command, info_name=f"anamnesis {name}"), "##")


def command_lines(command: Any, context: typer.Context, heading: str) -> Iterator[str]:
    """A command, then those below it."""
    below = getattr(command, "commands", {})
    yield from (f"{heading} {context.info_name}", "")
    if not below or command.invoke_without_command:
        usage = command.get_usage(context).split(":", 1)[1]
        yield from ("```text", " ".join(usage.split()), "```", "", inspect.cleandoc(command.help), "")
        records = [param.get_help_record(context) for param in command.get_params(context) if param.name != "help"]
        rows = [[f"`{' '.join(left.split())}`", right] for left, right in filter(None, records)]
        if rows:
            yield from (*table(["Argument or option", "Meaning"], rows), "")
    else:
        yield from (inspect.cleandoc(command.help), "")
    for name, inner in below.items():
        yield from command_lines(inner, typer.Context(inner, info_name=f"{context.info_name} {name}"), f"{heading}#")


def http_page() -> Iterator[str]:
    """Every route by resource, from the OpenAPI document, which depends on nothing but the settings."""
    document = create_app(cast(Services, SimpleNamespace(settings=Settings.model_construct(api_token=None)))).openapi()
    yield from ("# HTTP API", "", document["info"]["description"].strip(), "", "## Errors of every route", "")
    rows = [[f"`{status}`", reply["description"]] for status, reply in PROBLEMS.items() if status != "default"]
    yield from (*table(["Status", "Meaning"], rows), "")
    for tag in document["tags"]:
        yield from (f"## {tag['name'].capitalize()}", "", tag["description"], "")
        for path, methods in document["paths"].items():
            for method, route in methods.items():
                if tag["name"] in route["tags"]:
                    yield from route_lines(method.upper(), path, route, document["components"]["schemas"])


def route_lines(method: str, path: str, route: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    """A route with its parameters, the fields of its body and its own status codes."""
    yield from (f"### {method} {path}", "", inspect.cleandoc(route["description"]), "")
    if parameters := route.get("parameters"):
        rows = [
            [
                f"`{each['name']}`",
                each["in"],
                type_of(each["schema"], schemas),
                default_in(each["schema"], each["required"]),
                each.get("description") or described(each["schema"], schemas),
            ]
            for each in parameters
        ]
        yield from (*table(["Parameter", "In", "Type", "Default", "Meaning"], rows), "")
    for media, content in route.get("requestBody", {}).get("content", {}).items():
        rows = [list(row) for row in field_rows(content["schema"], schemas)]
        yield from (f"Body, `{media}`:", "", *table(["Field", "Type", "Default", "Meaning"], rows), "")
    replies = {status: reply for status, reply in route["responses"].items() if is_own(status)}
    rows = [[f"`{status}`", reply_words(status, reply, schemas)] for status, reply in sorted(replies.items())]
    yield from (*table(["Status", "Reply"], rows), "")


def is_own(status: str) -> bool:
    """Whether a reply is of this route, and not one that every route may give."""
    return status != "default" and int(status) not in PROBLEMS


def reply_words(status: str, reply: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """What a reply says, with the names of its fields."""
    words = reply["description"]
    words = HTTPStatus(int(status)).phrase if words == "Successful Response" else words
    for media, content in reply.get("content", {}).items():
        schema = resolved(content.get("schema", {}), schemas)
        if media == "application/json" and schema.get("properties"):
            words += f". {description_of(schema)} Fields: {', '.join(f'`{name}`' for name in schema['properties'])}"
        elif media not in ("application/json", "application/problem+json"):
            words += f" (`{media}`)"
    return words


def field_rows(
    schema: Mapping[str, Any], schemas: Mapping[str, Any], prefix: str = "", above: tuple[str, ...] = ()
) -> Iterator[Sequence[str]]:
    """The fields of an object, and of the objects in them, as `outer.inner` or `list[].inner`."""
    optional = (kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null")
    fields = resolved(next(optional, schema), schemas)
    for name, field in fields.get("properties", {}).items():
        required = name in fields.get("required", ())
        yield f"`{prefix}{name}`", type_of(field, schemas), default_in(field, required), described(field, schemas)
        inner, between = field, "."
        if field.get("type") == "array":
            inner, between = field["items"], "[]."
        for kind in inner.get("anyOf", [inner]):
            title = resolved(kind, schemas).get("title", "")
            if "properties" in resolved(kind, schemas) and title not in above:
                yield from field_rows(kind, schemas, f"{prefix}{name}{between}", (*above, title))


def resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a reference names."""
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    return schema


def type_of(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """A type in words: `string`, `integer 1 to 100`, `list of ...`, or the values that are allowed."""
    schema = resolved(schema, schemas)
    if "anyOf" in schema:
        kinds = [type_of(kind, schemas) for kind in schema["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    if kind == "array":
        most = f"list (max {schema['maxItems']:,})" if "maxItems" in schema else "list"
        return f"{most} of {type_of(schema['items'], schemas)}"
    if kind == "string":
        most = f" (max {schema['maxLength']:,} characters)" if "maxLength" in schema else ""
        example = f", e.g. {schema['examples'][0]}" if "examples" in schema else ""
        return f"{schema.get('format', kind)}{most}{example}"
    least, greatest = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if least is None or greatest is None:
        return str(kind)
    return f"{kind}, {'more than ' if 'exclusiveMinimum' in schema else ''}{least:,g} to {greatest:,.0f}"


def default_in(schema: Mapping[str, Any], required: bool) -> str:
    """A default as JSON, or that a value is required."""
    if required:
        return "required"
    default = schema.get("default")
    return "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"


def described(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """What a field means, by its own words or those of its type."""
    kinds = [schema, *schema.get("anyOf", ())]
    return next(
        (words for kind in kinds if (words := description_of(kind) or description_of(resolved(kind, schemas)))), ""
    )


def description_of(schema: Mapping[str, Any]) -> str:
    """The description of a schema on one line."""
    return " ".join(schema.get("description", "").split())


def mcp_page() -> Iterator[str]:
    """Every MCP tool with its arguments, as a client sees them."""
    yield from ("# MCP tools", "", intro(definitions), "")
    for tool in definitions.definitions():
        yield from (f"## {tool['name']}", "", inspect.cleandoc(tool["description"]), "")
        schema = tool["inputSchema"]
        rows = [
            [
                f"`{name}`",
                type_of(field, {}),
                default_in(field, name in schema.get("required", ())),
                description_of(field),
            ]
            for name, field in schema["properties"].items()
        ]
        yield from (*table(["Argument", "Type", "Default", "Meaning"], rows), "")


def errors_page() -> Iterator[str]:
    """The tree of errors, then each one: what it means, what to do, its HTTP status."""
    yield from ("# Errors", "", intro(errors), "")
    yield from ("```text", *tree_lines(errors.AnamnesisError), "```", "")
    for branch in (errors.RetryLater, errors.GiveUp):
        yield from (f"## {branch.__name__}", "", inspect.getdoc(branch) or "", "")
        rows = []
        for kind in below(branch):
            means, _, todo = (inspect.getdoc(kind) or "").partition("\n\n")
            todo = todo.partition(":param")[0]
            status = status_of(kind)
            shown = "" if status == HTTPStatus.INTERNAL_SERVER_ERROR else f"`{status}`"
            rows.append([f"`{kind.__name__}`", means, shown, todo])
        yield from (*table(["Error", "Meaning", "HTTP status", "What to do"], rows), "")


def below(kind: type[errors.AnamnesisError]) -> Iterator[type[errors.AnamnesisError]]:
    """Every error of this kind, in the order of errors.py."""
    for inner in subclasses(kind):
        yield inner
        yield from below(inner)


def tree_lines(kind: type[errors.AnamnesisError], depth: int = 0) -> Iterator[str]:
    """The tree of errors, a line each."""
    yield f"{'    ' * depth}{kind.__name__}"
    for inner in subclasses(kind):
        yield from tree_lines(inner, depth + 1)


def subclasses(kind: type[errors.AnamnesisError]) -> list[type[errors.AnamnesisError]]:
    """The errors directly below one; not those that another module defines for itself."""
    return [inner for inner in kind.__subclasses__() if inner.__module__ == errors.__name__]


def intro(module: Any) -> str:
    """What the docstring of a module says after its first paragraph."""
    return (inspect.getdoc(module) or "").partition("\n\n")[2]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; columns that are empty in every row are left out."""
    kept = [number for number in range(len(head)) if any(row[number] for row in rows)]
    lines = [[head[number] for number in kept], ["---"] * len(kept)]
    lines += [[" ".join(row[number].replace("|", "\\|").split()) for number in kept] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


if __name__ == "__main__":
    sys.exit(main())
