"""API reference page: `/openapi.json` for people. FastAPI's own page would load scripts of another host into the origin
where the login cookie counts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.sidecar.web.html import fragment, page, page_router

PATH = "/docs"
METHODS = ("get", "post", "put", "patch", "delete")
MOST_VALUES = 12
"""Max allowed values listed per field; the others are counted."""
_END_OF_TITLE = re.compile(r"[.;:](?=\s|$)|\n\n")

Schema = Mapping[str, Any]

router = page_router()


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a part of a body. `place` is path, query, or empty for a body."""

    name: str
    place: str
    type: str
    shapes: tuple[str, ...]
    is_required: bool
    about: str


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of one path. `shapes` are the schema names of its success response."""

    method: str
    path: str
    title: str
    about: str
    fields: tuple[Field, ...]
    answer: str
    shapes: tuple[str, ...]


@router.get(PATH)
async def interface_page(request: Request) -> Response:
    """Show all paths by subject."""
    app: FastAPI = request.app
    return page(request, "interface.html", "HTTP interface", groups=groups_of(app.openapi()))


@router.get(f"{PATH}/shapes")
async def show_shapes(request: Request) -> Response:
    """Show the schemas, which are half of the document."""
    app: FastAPI = request.app
    return fragment("interface_shapes.html", shapes=shapes_of(app.openapi()))


def groups_of(document: Mapping[str, Any]) -> dict[str, list[Operation]]:
    """Group operations by subject, in the order of the document. Pure.

    :param document: OpenAPI 3.1.
    """
    groups: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method in METHODS:
            if told := methods.get(method):
                subject = (told.get("tags") or ["service"])[0]
                groups.setdefault(subject, []).append(_operation(document, method, path, told))
    return groups


def shapes_of(document: Mapping[str, Any]) -> dict[str, tuple[str, list[Field]]]:
    """Return schema name -> (description, fields). Pure."""
    schemas = document["components"]["schemas"]
    return {name: (schema.get("description", ""), list(_fields(schema))) for name, schema in sorted(schemas.items())}


def type_of(schema: Schema) -> str:
    """Describe a type: `list of text`, `integer of 1 to 100`, `one of hybrid, exact`. Pure."""
    if name := _name(schema):
        return name
    if "const" in schema or "enum" in schema:
        return _values(schema.get("enum", [schema.get("const")]))
    if several := _several(schema):
        return " or ".join(dict.fromkeys(type_of(each) for each in several)) or "null"
    kind = schema.get("type")
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {type_of(schema['additionalProperties'])}"
    plain = {"string": "text", "null": "null", None: "any JSON"}.get(kind, str(kind))
    return plain + _bounds(schema)


def _operation(document: Mapping[str, Any], method: str, path: str, told: Schema) -> Operation:
    parameters = [
        Field(
            each["name"],
            each["in"],
            type_of(each["schema"]),
            tuple(_names(each["schema"])),
            each.get("required", False),
            each.get("description", ""),
        )
        for each in told.get("parameters", ())
    ]
    body = _content(told.get("requestBody", {}))
    inner = document["components"]["schemas"].get(_name(body), body)
    answer = next((_content(reply) for status, reply in told["responses"].items() if status.startswith("2")), {})
    about = told.get("description") or told.get("summary", "")
    return Operation(
        method.upper(),
        path,
        _title(about),
        about,
        (*parameters, *_fields(inner)),
        type_of(answer) if answer else "no JSON",
        tuple(_names(answer)),
    )


def _title(about: str) -> str:
    """Return the text before the first stop, on one line."""
    return " ".join(_END_OF_TITLE.split(about, 1)[0].split())


def _content(holder: Mapping[str, Any]) -> Schema:
    """Return the schema of a body, preferring JSON."""
    content: Mapping[str, Any] = holder.get("content", {})
    media: Mapping[str, Any] = content.get("application/json") or next(iter(content.values()), {})
    found: Schema = media.get("schema", {})
    return found


def _fields(schema: Schema) -> Iterator[Field]:
    required = set(schema.get("required", ()))
    for name, each in schema.get("properties", {}).items():
        about = each.get("description", "")
        if "default" in each and each["default"] not in ("", None, [], {}):
            about = f"{about}; default {each['default']}".lstrip("; ")
        yield Field(name, "", type_of(each), tuple(_names(each)), name in required, about)


def _several(schema: Schema) -> Sequence[Schema]:
    found: Sequence[Schema] = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or ()
    return found if "properties" not in schema else ()


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _names(schema: Schema) -> Iterator[str]:
    """Yield the names of the schemas that a schema references."""
    if name := _name(schema):
        yield name
    for each in (*_several(schema), schema.get("items", {}), schema.get("additionalProperties", {})):
        if isinstance(each, Mapping) and each:
            yield from _names(each)


def _values(values: Sequence[Any]) -> str:
    shown = ", ".join(map(str, values[:MOST_VALUES]))
    return f"one of {shown}" + (f" and {len(values) - MOST_VALUES} more" if len(values) > MOST_VALUES else "")


def _bounds(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f" of {least:g} to {most:g}"
    return f" up to {schema['maxLength']:,} characters" if "maxLength" in schema else ""
