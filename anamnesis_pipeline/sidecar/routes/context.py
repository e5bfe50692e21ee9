"""What a session receives from the memory."""

from collections.abc import Iterable, Set
from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.errors import InvalidEpisode
from anamnesis_pipeline.parsing.text.sentences import beginning
from anamnesis_pipeline.search.context_items import Item, SourceClass
from anamnesis_pipeline.search.handoff import MAX_ITEMS
from anamnesis_pipeline.search.trust import tier_of
from anamnesis_pipeline.services.before_action import MAX_TOKENS as ACTION_TOKENS
from anamnesis_pipeline.services.before_action import ActionRequest, BeforeAction
from anamnesis_pipeline.services.context import ContextAnswer, ContextMaker, ContextRequest
from anamnesis_pipeline.services.fields import WHOLE, WORDED_PATTERN, Name, QueryText
from anamnesis_pipeline.services.folder_project import projects_called
from anamnesis_pipeline.services.handoff import HANDOFF_TOKENS
from anamnesis_pipeline.services.reminder import Reminder
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.skills import MAX_SKILLS, NONE_KNOWN, Place, Skills, skills_for
from anamnesis_pipeline.services.wiring import open_pieces
from anamnesis_pipeline.settings import sidecar_url
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services, Uses

MAX_TOKENS = 8_000
MAX_ITEM_CHARS = 1_200

router = APIRouter(tags=["context"], responses=PROBLEMS)

Folder = Annotated[str, Field(max_length=4_096, pattern=WORDED_PATTERN)]
Prompt = Annotated[str, Field(max_length=200_000, pattern=WORDED_PATTERN)]


class ContextIn(BaseModel):
    """What is known of a session. Without `query` it starts."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: Annotated[Prompt | None, Field(description="Prompt of the user; omit it at the start of a session")] = None
    cwd: Annotated[Folder | None, Field(description="Working directory of the session, which names the project")] = None
    project: Annotated[
        Name | None, Field(description="Name of the project in place of `cwd`, also without its owner")
    ] = None
    machine: Annotated[Name | None, Field(description="Machine of `cwd`; default: the setting `machine`")] = None
    session_id: Annotated[Name | None, Field(description="Id of the session; nothing is shown to it twice")] = None
    source: Annotated[
        Literal["startup", "resume", "clear", "compact", "fork"] | None,
        Field(description="Start of the session; after `clear` and `compact` everything may be shown again"),
    ] = None
    max_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS, description="Max tokens of `text`; 0: nothing"), WHOLE] = 800

    def request(self) -> ContextRequest:
        """The same as the maker takes it."""
        return ContextRequest(
            query=self.query or "",
            cwd=self.cwd or "",
            project=self.project or "",
            machine=self.machine or "",
            session_id=self.session_id or "",
            source=self.source or "",
            max_tokens=self.max_tokens,
        )


class SkippedOut(TypedDict):
    """Quotes left out: shown to the session before, too much for `max_tokens`, not telling enough."""

    shown: int
    budget: int
    floor: int


class ContextOut(TypedDict):
    """What to put into the session, word for word; empty when there is nothing to say. `episodes`: what is quoted, to
    read more. `projects`: what the session was taken to be about. `no_skills`: why no lesson and no procedure is in
    it; null: some answer the prompt, or there is none.
    """

    text: str
    tokens: int
    episodes: list[str]
    projects: list[str]
    skipped: SkippedOut
    no_skills: str | None


@router.post("/api/context", response_model=ContextOut)
async def make_context(wanted: ContextIn, request: Request, services: Uses) -> Response:
    """Return what the memory has to say to a session, as one block of dated quotes within `max_tokens`: on its prompt
    (`query`), with lessons and procedures for it, or on the state of its project if it starts. Once a day a start also
    says that proposals wait.

    The text is empty if nothing is relevant enough. Within a `session_id` nothing is repeated. Ingest recognizes the
    block and does not store it.
    """
    admission: Admission = request.app.state.admission

    def answer() -> Response:
        return json_reply(_body(maker_of(services).make(wanted.request(), datetime.now(UTC))))

    return await admission.run(answer)


Changed = Annotated[str, Field(max_length=20_000)]


class ActionIn(BaseModel):
    """What a session is about to do: an edit of `path`, or a `command`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"oneOf": [{"required": ["path"]}, {"required": ["command"]}]},
    )

    path: Annotated[Folder, Field(default="", description="File to be edited, absolute or in `cwd`")]
    command: Annotated[Changed, Field(default="", pattern=WORDED_PATTERN, description="Shell command to be run")]
    before: Annotated[Changed, Field(description="Text that the edit replaces")] = ""
    after: Annotated[Changed, Field(description="Text that the edit writes")] = ""
    cwd: Annotated[Folder | None, Field(description="Working directory of the session, which names the project")] = None
    machine: Annotated[Name | None, Field(description="Machine of `cwd`; default: the setting `machine`")] = None
    session_id: Annotated[Name | None, Field(description="Id of the session; it hears nothing twice")] = None
    max_tokens: Annotated[int, Field(ge=0, le=ACTION_TOKENS, description="Max tokens of `text`; 0: nothing"), WHOLE] = (
        ACTION_TOKENS
    )

    @model_validator(mode="after")
    def _one_action(self) -> Self:
        if len(self.model_fields_set & {"path", "command"}) != 1:
            raise ValueError("give either path or command")
        return self


class ActionOut(TypedDict):
    """What to tell the session, word for word; empty when nothing is known. `episodes`: what is quoted."""

    text: str
    tokens: int
    episodes: list[str]


@router.post("/api/context/action", response_model=ActionOut)
async def make_action_context(wanted: ActionIn, request: Request, services: Uses) -> Response:
    """Return what is known of the very file or command that a session is about to edit or run: a decision, preference
    or correction of a person, a lesson or procedure, or the last failure and what ended it, as a block of dated quotes.

    The text is empty if nothing names it; that it was touched before is not enough. Within a `session_id` nothing is
    repeated.
    """
    admission: Admission = request.app.state.admission

    def answer() -> Response:
        teller = BeforeAction(services.store, services.engine.private(), open_pieces(), services.settings.machine)
        asked = ActionRequest(
            wanted.path,
            wanted.before,
            wanted.after,
            wanted.command,
            wanted.cwd or "",
            wanted.machine or "",
            wanted.session_id or "",
            wanted.max_tokens,
        )
        block = teller.tell(asked, datetime.now(UTC))
        ids = [item.episode.episode_id for item in block.items]
        return json_reply({"text": block.text, "tokens": block.tokens, "episodes": list(dict.fromkeys(ids))})

    return await admission.run(answer)


class SkillOut(TypedDict):
    """A lesson or procedure. `confidence` in [0, 1] that it applies, as far as its nearness says; `why` names the words
    that it shares with the question.
    """

    episode_id: str
    type: str
    text: str
    confidence: float
    why: str
    timestamp: str
    project: str


class SkillsOut(TypedDict):
    """At most three, the most certain first. `reason`: why there is none; null: there are some."""

    items: list[SkillOut]
    reason: str | None


@router.get("/api/skills", response_model=SkillsOut)
async def get_skills(
    *,
    request: Request,
    services: Uses,
    query: Annotated[QueryText, Query(description="What is to be done, as a prompt says it")],
    project: Annotated[Name | None, Query(description="Project, also without its owner; default: all")] = None,
    most: Annotated[int, Query(alias="max", ge=1, le=MAX_SKILLS, description="Max items")] = MAX_SKILLS,
) -> Response:
    """Return the lessons and procedures that a prompt calls for: notes of these types, records that an LLM drew, and
    the entries of `lessons.md`. None, with the reason, unless one is as near as unrequested context must be.
    """
    admission: Admission = request.app.state.admission

    def answer() -> Response:
        projects = projects_called(services.store, project) if project else ()
        if project and not projects:
            return json_reply(_skills_body(Skills(reason=NONE_KNOWN)))
        return json_reply(_skills_body(skills_for(services.store, services.engine, query, Place(projects), most)))

    return await admission.run(answer)


def _skills_body(found: Skills) -> SkillsOut:
    return {
        "items": [
            {
                "episode_id": skill.item.episode.episode_id,
                "type": skill.item.called,
                "text": beginning(skill.item.text, MAX_ITEM_CHARS),
                "confidence": skill.confidence,
                "why": skill.why,
                "timestamp": utc_text(skill.item.episode.timestamp),
                "project": skill.item.episode.project,
            }
            for skill in found.found
        ],
        "reason": found.reason or None,
    }


class ItemOut(TypedDict):
    """A quote: `source_class` says whose words it is, `trust` how far it may be relied on, if that is known."""

    episode_id: str
    timestamp: str
    project: str
    machine: str
    session_id: str
    kind: str
    source_class: SourceClass
    trust: str
    text: str


class SearchedOut(TypedDict):
    """A question that was asked of the memory, and when last."""

    query: str
    asked_at: str


class HandoffOut(TypedDict):
    """Where a project stands. `text` is the same as one block of quotes, as far as it fits. `topics`: what holds, one
    line for each topic, without its content; `entries`: the latest of what they say. `searched`: what sessions asked
    the memory of the project lately.
    """

    projects: list[str]
    text: str
    tokens: int
    topics: list[ItemOut]
    entries: list[ItemOut]
    pinned: list[ItemOut]
    lessons: list[ItemOut]
    state: list[ItemOut]
    decisions: list[ItemOut]
    open_loops: list[ItemOut]
    failing: list[ItemOut]
    new: list[ItemOut]
    recent: list[ItemOut]
    facts: list[ItemOut]
    searched: list[SearchedOut]


@router.get("/api/handoff", response_model=HandoffOut)
def get_handoff(
    *,
    services: Uses,
    project: Annotated[Name | None, Query(description="Name of the project, also without its owner")] = None,
    cwd: Annotated[Folder | None, Query(description="Working directory, instead of `project`")] = None,
    machine: Annotated[Name | None, Query(description="Machine of `cwd`; default: the setting `machine`")] = None,
    max_tokens: Annotated[int, Query(ge=0, le=HANDOFF_TOKENS, description="Max tokens of `text`")] = HANDOFF_TOKENS,
) -> Response:
    """Return the present state of a `project`, or of that of `cwd`: its topics, their latest entries, pinned
    preferences, latest lessons, last reports, decisions, open loops, tests that failed last, what came in since the
    last session, recent work, curated facts, and searches; at most five each, and ten topics and pointers. Both as JSON
    and as `text`.
    """
    if project is None and cwd is None:
        raise InvalidEpisode("project", "name a project, or a cwd")
    asked = ContextRequest(project=project or "", cwd=cwd or "", machine=machine or "", max_tokens=max_tokens)
    projects, handoff, block = maker_of(services).handoff(asked)
    searched = services.store.queries.latest(projects, MAX_ITEMS)
    return json_reply(
        {
            "projects": list(projects),
            "text": block.text,
            "tokens": block.tokens,
            "topics": _items(handoff.topics),
            "entries": _items(handoff.entries),
            "pinned": _items(handoff.pinned),
            "lessons": _items(handoff.lessons),
            "state": _items(handoff.state),
            "failing": _items(handoff.failing),
            "decisions": _items(handoff.decisions),
            "open_loops": _items(handoff.open_loops),
            "new": _items(handoff.new),
            "recent": _items(handoff.recent),
            "facts": _items(handoff.facts),
            "searched": [{"query": q.query, "asked_at": utc_text(q.asked_at)} for q in searched],
        }
    )


def _items(items: Iterable[Item]) -> list[ItemOut]:
    return [
        {
            "episode_id": item.episode.episode_id,
            "timestamp": utc_text(item.episode.timestamp),
            "project": item.episode.project,
            "machine": item.episode.machine or item.episode.instance,
            "session_id": item.episode.session_id,
            "kind": item.episode.kind,
            "source_class": item.said_by,
            "trust": tier_of(item.episode),
            "text": beginning(item.text, MAX_ITEM_CHARS),
        }
        for item in items
    ]


def maker_of(services: Services, hidden: Set[str] = frozenset()) -> ContextMaker:
    """What makes contexts with these services; `hidden` as of `ContextMaker`."""
    page = f"{services.settings.service_link or sidecar_url(services.settings)}/dashboard/review"
    reminder = Reminder(services.store, services.engine.private(), page)
    return ContextMaker(services.store, services.engine, open_pieces(), services.settings.machine, hidden, reminder)


def _body(answer: ContextAnswer) -> ContextOut:
    return {
        "text": answer.text,
        "tokens": answer.tokens,
        "episodes": list(answer.episodes),
        "projects": list(answer.projects),
        "skipped": {
            "shown": answer.skipped["shown"],
            "budget": answer.skipped["budget"],
            "floor": answer.skipped["floor"],
        },
        "no_skills": answer.no_skills or None,
    }
