"""The parts of the OpenAPI document that the routes' signatures do not say."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from anamnesis_pipeline.sidecar.fields import JSON_VALUE_SCHEMA
from anamnesis_pipeline.sidecar.problems import MEDIA_TYPE
from anamnesis_pipeline.sidecar.schemas import MAX_BULK_EPISODES, Problem

_REF = "#/components/schemas/"


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_REF}Problem"}}}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _problem("Malformed request"),
    401: _problem("No token, or a wrong one"),
    404: _problem("No such episode, space or address"),
    409: _problem("The id exists with other content, or a re-embed is under way"),
    413: _problem("The body is too large"),
    422: _problem("A field has a value it cannot have"),
    429: _problem("Too busy; see Retry-After"),
    503: _problem("Not ready; see Retry-After"),
    "default": _problem("Any other error"),
}
"""Replies that every route may give."""

UPLOAD_PROBLEMS: dict[int | str, dict[str, Any]] = {
    408: _problem("The body does not come to an end"),
    415: _problem("A type of document that is not read"),
    502: _problem("A web server does not answer"),
}

BULK_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["episodes"],
                    "additionalProperties": False,
                    "properties": {
                        "episodes": {
                            "type": "array",
                            "maxItems": MAX_BULK_EPISODES,
                            "description": "Episodes; one that is not valid is listed in `failed`",
                            "items": {"anyOf": [{"$ref": f"{_REF}EpisodeIn"}, {}]},
                        }
                    },
                }
            }
        },
    }
}
"""The route reads this body itself, in a thread."""


def openapi_of(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """A replacement for `app.openapi` that adds the schemas only named above."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            problem = TypeAdapter(Problem).json_schema(ref_template=_REF + "{model}")
            schemas = document["components"]["schemas"]
            schemas.update(problem.pop("$defs"), Problem=problem, JsonValue=JSON_VALUE_SCHEMA)
            app.openapi_schema = document
        return app.openapi_schema

    return openapi
