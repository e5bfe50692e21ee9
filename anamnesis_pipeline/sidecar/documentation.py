"""Parts of the OpenAPI document that the routes' signatures do not contain."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from typing_extensions import override

from anamnesis_pipeline.services.fields import JSON_VALUE_SCHEMA
from anamnesis_pipeline.services.schemas import MAX_BULK_EPISODES, Problem
from anamnesis_pipeline.sidecar.problems import MEDIA_TYPE

_REF = "#/components/schemas/"

DESCRIPTION = """Lasting episodic memory for Claude: post episodes, search everything that was said and done.

Requests and replies are JSON; errors are `application/problem+json` (RFC 9457). `/docs` and `/openapi.json` of a
running service describe every field, replies included. With `ANAMNESIS_API_TOKEN`, every route but `/health` requires
`Authorization: Bearer <token>`.

A call that starts work in Dagster answers 202 with a link to its backfill or run, 409 while another re-embed is under
way (one that was launched in the Dagster UI included), and 503 if Dagster does not answer; nothing has changed then. An
unknown model or core is 422, with the choices.

Text of private projects and sources is left out of replies unless `project` or `include_private` names it. Times are
ISO 8601, a day or a moment, in UTC if without a zone: `since` is inclusive, `until` is exclusive.
"""
"""Of the whole interface."""

TAGS = [
    {"name": "search", "description": "Search by words and by meaning, similar episodes, and how searches fared."},
    {"name": "things", "description": "Questions by thing: who changed a file, what ended an error, how to run it."},
    {"name": "episodes", "description": "Episodes: store, read, list, change and delete."},
    {"name": "sessions", "description": "Sessions of Claude Code, each from its first prompt to its outcome."},
    {"name": "proposals", "description": "Changes of what holds: proposed by detectors, decided by people."},
    {"name": "topics", "description": "What holds: topics, lessons, pinned preferences and pointers."},
    {"name": "entities", "description": "Files, commands, errors and other things, and what they have in common."},
    {"name": "context", "description": "What a session receives: quotes for its prompt, or the state of its project."},
    {"name": "memory", "description": "Pairs of a question and its answer, from any client."},
    {"name": "projects", "description": "Projects and their folders."},
    {"name": "chat", "description": "Conversations with a model that searches the memory before it answers."},
    {"name": "uploads", "description": "Single documents: files, texts and web pages."},
    {"name": "sources", "description": "What is crawled, on this machine and over SSH, and how the crawler is doing."},
    {"name": "logs", "description": "Ingest of Claude Code's logs and documents: runs, settings, LLMs."},
    {"name": "embedding", "description": "Embedding model, cores, spaces of vectors, and re-embedding."},
    {"name": "consolidation", "description": "Episodes that repeat others: superseded, merged, and brought back."},
    {"name": "forget", "description": "Remove for good what filters select."},
    {"name": "blocklist", "description": "Rules that keep files, sessions, projects and texts away."},
    {"name": "service", "description": "Health, metrics, figures and logs of the service."},
]
"""Resources, in the order of the reference page."""


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_REF}Problem"}}}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _problem("Malformed request"),
    401: _problem("Missing or wrong token"),
    404: _problem("No such episode, space or address"),
    409: _problem("Conflict: the id has other content, a rule forbids it, or a re-embed is under way"),
    413: _problem("The body is too large"),
    422: _problem("A field has an invalid value"),
    429: _problem("Too many requests; wait for Retry-After"),
    503: _problem("Not ready; wait for Retry-After"),
    "default": _problem("Any other error"),
}
"""Error responses of every route."""

UPLOAD_PROBLEMS: dict[int | str, dict[str, Any]] = {
    408: _problem("The body does not end in time"),
    415: _problem("Unsupported type of document"),
    502: _problem("The web server does not answer"),
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
"""The route parses this body itself, in a thread."""


class DocumentedApp(FastAPI):
    """An application whose OpenAPI document also has the schemas that are referenced by name only."""

    @override
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title,
                version=self.version,
                description=self.description,
                tags=self.openapi_tags,
                routes=self.routes,
            )
            problem = TypeAdapter(Problem).json_schema(ref_template=_REF + "{model}")
            schemas = document["components"]["schemas"]
            schemas.update(problem.pop("$defs"), Problem=problem, JsonValue=JSON_VALUE_SCHEMA)
            self.openapi_schema = document
        return self.openapi_schema
