"""The tools that Claude sees: their names, arguments, and the words that say when to call them. No protocol here.

`anamnesis mcp` serves them over standard input and output, the running service at `/mcp` over HTTP. The words below are
those that Claude reads. Without `project` a tool means the project of the folder in which the client runs.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from anamnesis_pipeline.services import fields
from anamnesis_pipeline.services.schemas import TypeName
from anamnesis_pipeline.store.values import CURSOR_PATTERN


def _as_list(value: object) -> object:
    """One value where several may be given."""
    return [value] if isinstance(value, str) else value


def _number_as_text(value: object) -> object:
    """A year is a time as well: 2026."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Name = Annotated[fields.Name, Field(min_length=1)]
Names = Annotated[list[Name], BeforeValidator(_as_list), Field(max_length=10)]
Kinds = Annotated[list[fields.Kind], BeforeValidator(_as_list), Field(max_length=10)]
When = Annotated[str, BeforeValidator(_number_as_text), Field(max_length=40)]
Project = Annotated[Name | None, Field(description="left out: the current one; `all`: every one but private")]
Since = Annotated[When | None, Field(description="day, month or time: 2026-03-14, 2026-02, yesterday")]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Search(_Arguments):
    """Search the user's memory of past sessions, decisions, errors and documents. Call it before answering from \
nothing: what did we decide, have we seen this error, why is it so. Returns short quoted hits with ids for `read`, \
each strong, fair or weak; weak ones hardly answer. Without a query: the newest.
    """

    query: Annotated[
        str,
        Field(
            max_length=5_000,
            description="a question, literal text, or `blame: PATH` (who changed it), `fix: ERROR` (what ended it), "
            "`how: TASK` (how to run it)",
        ),
    ] = ""
    project: Project = None
    since: Since = None
    until: Annotated[When | None, Field(description="exclusive: 2026-02 to 2026-03 is February")] = None
    kind: Annotated[Kinds, Field(description="e.g. exchange, document, record")] = []
    limit: Annotated[int, Field(ge=1, le=20)] = 5
    mode: Annotated[
        Literal["hybrid", "semantic", "exact"], Field(description="exact: error texts, ids, paths, versions")
    ] = "hybrid"
    rank: Annotated[
        Literal["default", "facts", "recent"],
        Field(description="facts: what was written down first; recent: age counts"),
    ] = "default"
    type: Annotated[Kinds, Field(description="e.g. decision, fact, lesson")] = []
    session: Name | None = None
    as_of: Annotated[When | None, Field(description="what was known then")] = None


class Read(_Arguments):
    """Read records word for word, by ids (their beginnings will do), in pages; `around` also lists what came just \
before and after in the session.
    """

    ids: Annotated[Names, Field(min_length=1)]
    page: Annotated[int, Field(ge=1, le=10_000)] = 1
    around: Annotated[int, Field(ge=0, le=10, description="neighbours on either side")] = 0


class Timeline(_Arguments):
    """List what happened, in order of time, one line a session: what did I do yesterday, last week, since the \
release. With `session` all that was said in it.
    """

    project: Project = None
    session: Annotated[Name | None, Field(description="session id")] = None
    since: Since = None
    until: Annotated[When | None, Field(description="exclusive")] = None
    order: Literal["newest", "oldest"] = "newest"
    limit: Annotated[int, Field(ge=1, le=50)] = 20
    cursor: Annotated[str | None, Field(max_length=2_000, pattern=CURSOR_PATTERN, description="of the page before")] = (
        None
    )


class Remember(_Arguments):
    """Keep one thing for later sessions: a decision and its reason, a preference or correction of the user, the cause \
of a hard bug. One fact, with names and numbers, no secrets. Found at once.
    """

    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    type: TypeName = "note"
    why: Annotated[str, Field(max_length=5_000)] = ""
    tags: Names = []
    project: Annotated[Name | None, Field(description="left out: the current one")] = None
    subject: Annotated[Name | None, Field(description="supersedes the former note on it")] = None
    replaces: Annotated[Name | None, Field(description="id it supersedes")] = None


class Forget(_Arguments):
    """Remove records for good, when the user asks for it. Says what would go; only confirm=true, after the user \
agreed, removes it.
    """

    ids: Annotated[Names, Field(min_length=1)]
    confirm: bool = False


class Status(_Arguments):
    """How the memory is doing; with a project also its hand-off, to take up work where it was left: latest decisions, \
open loops, recent work.
    """

    project: Annotated[Name | None, Field(description="`current`, or a name")] = None
    ingest: Annotated[bool, Field(description="also read new logs now")] = False


ARGUMENTS: dict[str, type[_Arguments]] = {
    "search": Search,
    "read": Read,
    "timeline": Timeline,
    "remember": Remember,
    "forget": Forget,
    "status": Status,
}
READ_ONLY = frozenset({"search", "read", "timeline"})


def definitions() -> list[dict[str, Any]]:
    """Every tool as `{name, description, inputSchema, annotations}`, as small as a client understands it."""
    return [
        {
            "name": name,
            "description": (model.__doc__ or "").strip(),
            "inputSchema": compact_schema(model),
            "annotations": {
                "readOnlyHint": name in READ_ONLY,
                "destructiveHint": name == "forget",
                "openWorldHint": False,
            },
        }
        for name, model in ARGUMENTS.items()
    ]


def compact_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of some arguments without titles, bounds of length, and `or null`."""
    schema = model.model_json_schema()
    properties = {name: _compact(field) for name, field in schema["properties"].items()}
    required = {"required": schema["required"]} if "required" in schema else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


_NEEDLESS = frozenset({"title", "maxLength", "minLength", "maxItems", "minItems", "pattern", "anyOf"})


def _compact(field: dict[str, Any]) -> dict[str, Any]:
    chosen: dict[str, Any] = next((kind for kind in field.get("anyOf", ()) if kind.get("type") != "null"), {})
    kept = {name: value for name, value in {**chosen, **field}.items() if name not in _NEEDLESS}
    if kept.get("default", 0) in (None, "", [], False, 0):
        kept.pop("default", None)
    if "items" in kept:
        kept["items"] = _compact(kept["items"])
    return kept
