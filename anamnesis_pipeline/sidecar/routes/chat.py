"""The chat: streamed answers, stored conversations, feedback, and what the backends offer."""

import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from anamnesis_pipeline.errors import BadSetting, LlmRefused
from anamnesis_pipeline.llm.factory import Offer, offers, open_chat
from anamnesis_pipeline.model import TITLE_CHARS, ChatMessage, ChatSession
from anamnesis_pipeline.pipeline import publish as episodes
from anamnesis_pipeline.runtime.llm_wiring import (
    backend_options,
    configured_model,
    default_choice,
    offered_choice,
    wanted_choice,
)
from anamnesis_pipeline.search.project_labels import labels_of
from anamnesis_pipeline.services.chat import Attachment, check_leave, leaning_on_private
from anamnesis_pipeline.services.fields import Name
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.chat_running import Chats
from anamnesis_pipeline.sidecar.chat_schemas import (
    BalanceOut,
    ChatIn,
    ChatSessionOut,
    ChatSessionsOut,
    FeedbackCountsOut,
    FeedbackIn,
    FeedbackOut,
    OfferOut,
    OffersOut,
    StoppedChatOut,
    TitleIn,
    WholeSessionOut,
    as_markdown,
    message_body,
    rated_line,
    session_body,
)
from anamnesis_pipeline.sidecar.chat_stream import Event, Turn, TurnStream
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.episodes import Limit
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.store.values import CURSOR_PATTERN

RATED_AT_ONCE = 50
MAX_MESSAGES = 1_000
"""Of a conversation."""
_OF_A_CLIENT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The id of a conversation that begins: clients may choose a UUID, in its usual form."""
_NOT_IN_NAMES = re.compile(r"[\s/\\:*?\"<>|\x00-\x1f]+")
"""Of files: white space, and what some system takes for something else."""
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events, each `data: {json}`", "content": {"text/event-stream": {"schema": {}}}}
}

router = APIRouter(prefix="/api/chat", tags=["chat"], responses=PROBLEMS)

SessionId = Annotated[Name, Path(description="Id of a conversation")]
MessageId = Annotated[Name, Path(description="Id of an answer")]
ExportFormat = Annotated[Literal["markdown", "json"], Query(description="Format of the file")]


@router.post("/stream", response_class=StreamingResponse, responses=_STREAM)
async def stream(wish: ChatIn, request: Request, services: Uses) -> Response:
    """Answer a message with what the memory has on it, as server-sent events: `session`, `citations`, then `token` by
    `token`, `status` each second, `error` if something fails, and `done`.

    A client that closes the connection, or reads nothing for 30 seconds, ends the answer; what was said so far is
    kept. An answer takes 30 minutes at most. 8 answers run at once, one per conversation. A conversation holds 1,000
    messages.
    """
    chats: Chats = request.app.state.chats
    session_id = wish.session_id or uuid.uuid4().hex
    chats.claim(session_id)
    try:
        begun = await run_in_threadpool(_begun, services, wish, session_id)
        if not begun.is_chosen:  # looking takes seconds, after which all may be different
            begun = await run_in_threadpool(_begun, services, await _with_default(begun), session_id)
        turn = await run_in_threadpool(_turn, services, begun, session_id)
        state = request.app.state
        made = TurnStream(
            turn,
            services,
            state.admission,
            state.chat_records,
            state.metrics.chat_failures,
            state.undo.waiting,
            state.chat_known,
        )
        chats.begin(session_id, made.begin())
    except BaseException:
        chats.release(session_id)
        raise
    return _Answering(made)


@router.get("/sessions", response_model=ChatSessionsOut)
def list_sessions(
    services: Uses,
    limit: Limit = 20,
    cursor: Annotated[str | None, Query(pattern=CURSOR_PATTERN, description="`next_cursor` of the page before")] = None,
    q: Annotated[str, Query(max_length=200, description="Only those whose title contains this")] = "",
) -> Response:
    """List conversations without their messages, most recently used first."""
    page = services.store.chat.sessions(limit, cursor, q)
    return json_reply({"sessions": [session_body(each) for each in page.items], "next_cursor": page.next_cursor})


@router.get("/sessions/{session_id}", response_model=WholeSessionOut)
def get_session(session_id: SessionId, services: Uses) -> Response:
    """Return a conversation with all messages and the episodes that each answer used."""
    session = _session(services, session_id)
    messages = [message_body(each) for each in services.store.chat.messages(session_id)]
    return json_reply({**session_body(session), "messages": messages})


@router.get("/sessions/{session_id}/export", response_model=WholeSessionOut)
def export_session(session_id: SessionId, services: Uses, format: ExportFormat = "markdown") -> Response:
    """Return a conversation as a file, in Markdown or JSON."""
    session = _session(services, session_id)
    messages = services.store.chat.messages(session_id)
    named = {"Content-Disposition": _attachment(session.title, "md" if format == "markdown" else "json")}
    if format == "json":
        return json_reply(
            {**session_body(session), "messages": [message_body(each) for each in messages]}, headers=named
        )
    return Response(as_markdown(session, messages), headers=named, media_type="text/markdown; charset=utf-8")


@router.patch("/sessions/{session_id}/title", response_model=ChatSessionOut)
def rename_session(session_id: SessionId, wish: TitleIn, services: Uses) -> Response:
    """Change the title; `name_history` keeps former ones with their times."""
    title = services.poster.masked(" ".join(wish.title.split()))
    services.store.chat.rename(session_id, title, datetime.now(UTC))
    return json_reply(session_body(_session(services, session_id)))


@router.delete("/sessions/{session_id}", status_code=204)
@router.delete("/sessions/{session_id}/delete", status_code=204)
async def delete_session(
    session_id: SessionId,
    request: Request,
    services: Uses,
    with_episodes: Annotated[bool, Query(alias="episodes", description="Remove its episodes too")] = False,
) -> Response:
    """Remove a conversation; its episodes stay unless `episodes=true`."""
    await request.app.state.chats.stopped(session_id)
    await run_in_threadpool(delete_conversation, services, session_id, with_episodes=with_episodes)
    return Response(status_code=204)


@router.delete("/session/{session_id}", status_code=204)
async def clear_session(session_id: SessionId, request: Request, services: Uses) -> Response:
    """Free the memory of a conversation: end the answer that is being written. Stored messages stay."""
    await run_in_threadpool(_session, services, session_id)
    await request.app.state.chats.stopped(session_id)
    return Response(status_code=204)


@router.post("/sessions/{session_id}/stop", response_model=StoppedChatOut)
async def stop_answer(session_id: SessionId, request: Request) -> Response:
    """End the answer that is being written; what was said so far is kept."""
    chats: Chats = request.app.state.chats
    return json_reply({"stopped": chats.stop(session_id)})


@router.post("/messages/{message_id}/feedback", response_model=FeedbackOut)
def rate_answer(message_id: MessageId, wish: FeedbackIn, services: Uses) -> Response:
    """Store the rating of an answer, with the episodes that it used."""
    if not services.store.chat.rate(message_id, wish.value):
        raise HTTPException(404, "there is no such answer")
    return json_reply({"message_id": message_id, "value": wish.value})


@router.get("/feedback", response_model=FeedbackCountsOut)
def feedback(services: Uses) -> Response:
    """Return the numbers of answers rated good and bad."""
    counts = services.store.chat.feedback()
    return json_reply({"up": counts.up, "down": counts.down})


@router.get("/feedback/export", response_class=Response, responses={200: {"content": {"application/jsonl": {}}}})
def export_feedback(services: Uses) -> Response:
    """Return rated answers with their questions as JSON lines, newest first, without conversations of private projects
    and answers that used private text.
    """
    first = services.store.chat.rated(RATED_AT_ONCE)  # report a store that does not answer before the stream begins
    return StreamingResponse(_rated_lines(services, first), media_type="application/jsonl")


def _rated_lines(services: Services, rated: Sequence[ChatMessage]) -> Iterator[str]:
    """All of them, some at a time; of each conversation among these the messages are read once."""
    store, private = services.store, services.engine.private()
    while rated:
        said = {session_id: store.chat.messages(session_id) for session_id in {each.session_id for each in rated}}
        sessions = {session_id: store.chat.session(session_id) for session_id in said}
        of_open = {name for name, session in sessions.items() if session and not private.is_of(session.project)}
        secret = {one for each in said.values() for one in leaning_on_private(each, private, store.episodes.heads)}
        for each in rated:
            if each.session_id not in of_open or each.message_id in secret:
                continue
            asked = [m.text for m in said[each.session_id] if m.role == "user" and m.at <= each.at]
            yield json.dumps(rated_line(each, asked[-1] if asked else ""), ensure_ascii=False) + "\n"
        rated = store.chat.rated(RATED_AT_ONCE, rated[-1])


@router.get("/models", response_model=OffersOut)
@router.get("/inference-resources", response_model=OffersOut)
async def list_models(services: Uses) -> Response:
    """List the backends that answer now, checked in parallel and not cached, with their models and how they are paid.
    `any_model`: a model that is not listed may be named. `default` and `default_model` answer if none is named.
    """
    settings = await run_in_threadpool(effective_settings, services.store)
    found = await offers(backend_options(settings))
    default = default_choice(settings, found)
    return json_reply(
        {
            "backends": [offer_body(each) for each in found],
            "default": default.backend,
            "default_model": default.model,
        }
    )


@router.get("/balance", response_model=BalanceOut)
def balance(services: Uses) -> Response:
    """Return what all LLM calls used today (UTC), open ones at their booked maximum, and the daily budget."""
    settings, now = effective_settings(services.store), datetime.now(UTC)
    budget = {"tokens": settings.llm_daily_tokens, "dollars": settings.llm_daily_dollars}
    return json_reply({"used_today": asdict(services.store.llm.used(f"{now:%Y-%m-%d}")), "budget": budget})


def offer_body(offer: Offer) -> OfferOut:
    """As JSON."""
    body: OfferOut = {
        "backend": offer.backend,
        "reachable": offer.reachable,
        "models": list(offer.models),
        "any_model": offer.any_model,
        "cost": offer.cost,
    }
    if offer.problem:
        body["problem"] = offer.problem
    if offer.worker_url:
        body["worker_url"] = offer.worker_url
    return body


class _Answering(StreamingResponse):
    """The events of a turn, which ends with the response, however that ends."""

    def __init__(self, made: TurnStream) -> None:
        super().__init__(
            _frames(made.events()),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"},
        )
        self._made = made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._made.end()


async def _frames(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    async for event in events:
        # as ASCII: a service may cut a character into halves, which no encoding has
        yield b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


@dataclass(frozen=True, slots=True)
class _Begun:
    """A request and its conversation, if there is one. `is_chosen`: it is known, now or from
    before, which model answers.
    """

    wish: ChatIn
    settings: Settings
    known: ChatSession | None
    is_chosen: bool


def _begun(services: Services, wish: ChatIn, session_id: str) -> _Begun:
    """:raises HTTPException: there is no such conversation, or it is full."""
    settings, known = effective_settings(services.store), services.store.chat.session(session_id)
    if known is None and wish.session_id and (wish.goes_on or not _OF_A_CLIENT.fullmatch(session_id)):
        raise _unknown()
    if known and known.messages >= MAX_MESSAGES:
        raise HTTPException(409, f"a conversation holds {MAX_MESSAGES:,} messages at most; begin a new one")
    is_chosen = bool(wish.backend or wish.model or (known and known.backend) or settings.summarizer != "none")
    return _Begun(wish, settings, known, is_chosen)


async def _with_default(begun: _Begun) -> ChatIn:
    """The request with a model that answers now; unchanged if none does."""
    found = offered_choice(begun.settings, await offers(backend_options(begun.settings)))
    if found is None:
        return begun.wish
    return begun.wish.model_copy(update={"backend": found.backend, "model": found.model})


def _turn(services: Services, begun: _Begun, session_id: str) -> Turn:
    """What is to be answered; the question is stored from here on."""
    wish, settings, known, store = begun.wish, begun.settings, begun.known, services.store
    kind = wish.backend or (known and known.backend) or wanted_choice(settings).backend
    named = wish.model or (known.model if known and kind == known.backend else configured_model(settings, kind))
    worker = worker_of(wish, known, kind)
    project = known.project if known else wish.project or ""
    try:
        backend = open_chat(kind, named, backend_options(settings), worker)
        private = services.engine.private()
        check_leave(settings, backend, private, lambda: [project, *labels_of(project, store.projects.all())])
    except (BadSetting, LlmRefused) as exc:
        raise HTTPException(409, f"{kind} cannot answer: {exc}") from exc
    masked, now = services.poster.masked, datetime.now(UTC)
    text = masked(wish.message)
    session = known or ChatSession(session_id, _title(text), kind, backend.model, project, now, now)
    session = replace(session, backend=kind, model=backend.model, worker_url=worker, updated_at=now)
    store.chat.put_session(session if begun.is_chosen else replace(session, backend="", model="", worker_url=""))
    files = [Attachment(masked(each.name), masked(each.text)) for each in wish.attachments]
    asked = ChatMessage(
        uuid.uuid4().hex, session.session_id, "user", text, now, files=tuple(each.name for each in files)
    )
    asked, answer_id, history = asked_again(asked, store.chat.messages(session.session_id))
    store.chat.add(asked)
    secret = leaning_on_private(history, private, store.episodes.heads)
    shown = [each for each in history if backend.is_local or each.message_id not in secret]
    is_private = backend.is_local and bool(secret)
    return Turn(session, shown, asked, files, backend, settings, private, is_private, answer_id)


def asked_again(asked: ChatMessage, history: list[ChatMessage]) -> tuple[ChatMessage, str, list[ChatMessage]]:
    """A question, the id that its answer gets, and what was said before. Where the last that was said is the same
    question, without an answer or with one that was cut off, both are replaced instead of being stored twice.
    Pure.
    """
    rest, answer_id = list(history), uuid.uuid4().hex
    if rest and rest[-1].is_cut_off:
        answer_id = rest.pop().message_id
    if rest and (rest[-1].role, rest[-1].text) == ("user", asked.text):
        return replace(asked, message_id=rest[-1].message_id), answer_id, rest[:-1]
    return asked, uuid.uuid4().hex, history


def worker_of(wish: ChatIn, known: ChatSession | None, kind: str) -> str:
    """The server that is to answer alone: the one that was chosen, or was before where nothing else is. Pure."""
    if wish.worker_url is not None:
        return wish.worker_url
    is_as_before = known is not None and kind == known.backend and wish.model in (None, known.model)
    return known.worker_url if known and is_as_before else ""


def _attachment(title: str, ending: str) -> str:
    """A file that is named as the conversation, in any script (RFC 6266)."""
    name = _NOT_IN_NAMES.sub("-", title).strip("-.")[:80] or "conversation"
    return f"attachment; filename=\"conversation.{ending}\"; filename*=UTF-8''{quote(name)}.{ending}"


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


def _session(services: Services, session_id: str) -> ChatSession:
    found = services.store.chat.session(session_id)
    if found is None:
        raise _unknown()
    return found


def delete_conversation(services: Services, session_id: str, *, with_episodes: bool) -> None:
    """Remove a conversation, and on demand what the memory has of it, which goes first: cut off, it can be done again.

    :raises HTTPException: 404, there is none.
    """
    _session(services, session_id)
    made = {each.episode_id for each in services.store.chat.messages(session_id) if each.episode_id}
    for episode_id in sorted(made) if with_episodes else ():
        episodes.delete_episode(services.store, episode_id, tombstone=True)
    services.store.chat.delete(session_id)


def _unknown() -> HTTPException:
    return HTTPException(404, "there is no such conversation")
