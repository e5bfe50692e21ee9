"""Chat pages: list of conversations, one conversation, and its actions. `chat.js` streams answers."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Form, Query
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.llm.factory import LABELS, Offer, offers
from anamnesis_pipeline.model import ChatMessage, ChatSession
from anamnesis_pipeline.runtime.llm_wiring import backend_options, offered_choice, wanted_choice
from anamnesis_pipeline.services.chat import asked_ahead, last_reply
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.chat_background import KnownAnswers
from anamnesis_pipeline.sidecar.chat_running import Chats
from anamnesis_pipeline.sidecar.chat_schemas import MAX_CHARS, MAX_FILES
from anamnesis_pipeline.sidecar.routes.chat import delete_conversation
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web.asking import names_offered
from anamnesis_pipeline.sidecar.web.chat_view import SUMMARY_CHARS, UNANSWERED, latest, turn_of, turns_of, without
from anamnesis_pipeline.sidecar.web.html import HEADERS, fragment, page, page_router
from anamnesis_pipeline.sidecar.web.undo import undo_of

PATH = "/chat"
SESSIONS_SHOWN = 25
TITLE_CHARS = 200

router = page_router()

Words = Annotated[str, Query(max_length=200)]
SessionId = Annotated[str, Query(max_length=200)]


@router.get(PATH)
def new_page(request: Request, services: Uses, q: Words = "", deleted: bool = False) -> Response:
    """Show a new conversation, and the list."""
    shown = page(
        request,
        "chat.html",
        "Chat",
        **_head(None, deleted=deleted),
        **_sessions(services, q),
        **_turns([]),
        **_writing(services, None),
        projects=names_offered(services)["projects"],
    )
    shown.background = BackgroundTask(_look_ahead, request.app.state, "", "")
    return shown


@router.get(PATH + "/parts/sessions")
def session_list(services: Uses, q: Words = "", open: SessionId = "", cursor: str | None = None) -> Response:
    """Show the conversations whose title contains `q`, with the `open` one marked."""
    return fragment("chat_sessions.html", **_sessions(services, q, open, cursor))


@router.get(PATH + "/parts/models")
async def models(services: Uses, open: SessionId = "") -> Response:
    """Show the models available now; loaded after the page."""
    settings = await run_in_threadpool(effective_settings, services.store)
    session = await run_in_threadpool(services.store.chat.session, open) if open else None
    found = await offers(backend_options(settings))
    labels = {each: label_of(each) for each in found}
    first = None if session and session.backend else await run_in_threadpool(offered_choice, settings, found)
    kept = f"Default: {LABELS[first.backend]} · {first.model}" if first else _kept(settings, session)
    value = [first.backend, first.model, ""] if first else None
    return fragment("chat_models.html", offers=found, labels=labels, kept=kept, first=value)


@router.get(PATH + "/{session_id}")
def session_page(session_id: str, request: Request, services: Uses, q: Words = "") -> Response:
    """Show one conversation, starting with its latest messages."""
    session, messages = _session(services, session_id), _messages(request, services, session_id)
    shown = page(
        request,
        "chat.html",
        session.title,
        **_head(session),
        **_sessions(services, q, session_id),
        **_turns(messages, is_written=_is_written(request, session_id)),
        **_writing(services, session),
    )
    shown.background = BackgroundTask(_look_ahead, request.app.state, session.project, last_reply(messages))
    return shown


@router.get(PATH + "/{session_id}/head")
def head(session_id: str, services: Uses) -> Response:
    """Show title and actions of a conversation that has just begun."""
    return fragment("chat_head.html", **_head(_session(services, session_id), is_part=True))


@router.get(PATH + "/{session_id}/earlier")
def earlier(session_id: str, request: Request, services: Uses, before: SessionId) -> Response:
    """Show the messages before one."""
    session = _session(services, session_id)
    return fragment("chat_turns.html", session=session, **_turns(_messages(request, services, session_id), before))


@router.get(PATH + "/{session_id}/answer")
def answer(session_id: str, request: Request, services: Uses, known: bool = False) -> Response:
    """Show the answer once it is stored; until then a placeholder, or 204 if that is `known`: its Stop button must not
    be replaced during a click.
    """
    session, is_written = _session(services, session_id), _is_written(request, session_id)
    messages = _messages(request, services, session_id)
    if messages and messages[-1].role == "assistant":
        return fragment("chat_turn.html", turn=turn_of(messages[-1], is_last=True), most=SUMMARY_CHARS)
    if known and is_written:
        return Response(status_code=204, headers=HEADERS)
    return fragment("chat_answer.html", session=session, **_turns(messages, is_written=is_written))


@router.get(PATH + "/messages/{message_id}")
def message(message_id: str, request: Request, services: Uses) -> Response:
    """Show one new message."""
    shown = without(_message(services, message_id), undo_of(request).waiting())
    return fragment("chat_turn.html", turn=turn_of(shown, is_last=True), most=SUMMARY_CHARS)


@router.get(PATH + "/messages/{message_id}/text")
def text(message_id: str, services: Uses) -> Response:
    """Return a message's source text for copying: an answer in Markdown."""
    said = _message(services, message_id).text
    return Response(said, headers=HEADERS, media_type="text/plain; charset=utf-8")


@router.post(PATH + "/{session_id}/title")
def rename(session_id: str, services: Uses, title: Annotated[str, Form(max_length=TITLE_CHARS)]) -> Response:
    """Change the title; former titles are kept."""
    name = " ".join(title.split())
    if not name:
        raise HTTPException(422, "Write a title first.")
    services.store.chat.rename(session_id, services.poster.masked(name), datetime.now(UTC))
    return fragment("chat_head.html", toast="Renamed.", **_head(_session(services, session_id), is_part=True))


@router.post(PATH + "/{session_id}/delete")
async def delete(
    session_id: str, request: Request, services: Uses, episodes: Annotated[bool, Form()] = False
) -> Response:
    """Delete the conversation, optionally with its episodes, and redirect to a new one."""
    await request.app.state.chats.stopped(session_id)
    await run_in_threadpool(delete_conversation, services, session_id, with_episodes=episodes)
    return Response(headers={**HEADERS, "HX-Redirect": PATH + "?deleted=true"})


@router.post(PATH + "/messages/{message_id}/feedback")
def rate(message_id: str, services: Uses, value: Annotated[Literal["1", "-1", "0"], Form()]) -> Response:
    """Store the rating of an answer."""
    if not services.store.chat.rate(message_id, int(value)):
        raise HTTPException(404, "There is no such answer; its conversation may have been deleted.")
    told = {"1": "Kept: a good answer.", "-1": "Kept: a bad answer.", "0": "Your rating is taken back."}
    return fragment("chat_feedback.html", toast=told[value], turn=turn_of(_message(services, message_id)))


def label_of(offer: Offer) -> str:
    """Return the name of a backend; with the address if it is one of several servers. Pure."""
    return " · ".join(filter(None, (LABELS[offer.backend], address_of(offer.worker_url))))


def address_of(url: str) -> str:
    """Shorten the address of a server. Pure."""
    return url.partition("://")[2] or url


def _session(services: Services, session_id: str) -> ChatSession:
    session = services.store.chat.session(session_id)
    if session is None:
        raise HTTPException(404, "There is no such conversation; it may have been deleted.")
    return session


async def _look_ahead(state: State, project: str, last: str) -> None:
    """Prefetch the searches that a message in this conversation will need."""
    known: KnownAnswers = state.chat_known
    known.look_ahead(asked_ahead(project, last))


def _messages(request: Request, services: Services, session_id: str) -> list[ChatMessage]:
    """Return all messages of a conversation, without citations of episodes scheduled for deletion."""
    waiting = undo_of(request).waiting()
    return [without(each, waiting) for each in services.store.chat.messages(session_id)]


def _message(services: Services, message_id: str) -> ChatMessage:
    found = services.store.chat.message(message_id)
    if found is None:
        raise HTTPException(404, "There is no such message; its conversation may have been deleted.")
    return found


def _head(session: ChatSession | None, *, deleted: bool = False, is_part: bool = False) -> dict[str, Any]:
    return {"session": session, "deleted": deleted, "title_chars": TITLE_CHARS, "is_part": is_part}


def _writing(services: Services, session: ChatSession | None) -> dict[str, Any]:
    kept = _kept(effective_settings(services.store), session)
    return {"most_files": MAX_FILES, "most_chars": MAX_CHARS, "kept": kept}


def _kept(settings: Settings, session: ChatSession | None) -> str:
    """Describe the model that answers by default."""
    if session is None or not session.backend:
        return f"Default: {LABELS[wanted_choice(settings).backend]}"
    return " · ".join(filter(None, (session.backend, session.model, address_of(session.worker_url))))


def _sessions(services: Services, words: str, open_id: str = "", cursor: str | None = None) -> dict[str, Any]:
    shown = services.store.chat.sessions(SESSIONS_SHOWN, cursor or None, words.strip())
    return {
        "sessions": shown.items,
        "next_cursor": shown.next_cursor,
        "cursor": cursor,
        "q": words,
        "open_id": open_id,
    }


def _turns(messages: list[ChatMessage], before: str = "", *, is_written: bool = False) -> dict[str, Any]:
    """:param is_written: whether the answer to the last message is in progress, here or in another window."""
    shown, earlier_ones = latest(messages, before)
    is_unanswered = bool(shown) and not before and shown[-1].role == "user"
    return {
        "turns": turns_of(shown),
        "earlier": earlier_ones,
        "unanswered": UNANSWERED if is_unanswered else "",
        "is_written": is_unanswered and is_written,
        "most": SUMMARY_CHARS,
    }


def _is_written(request: Request, session_id: str) -> bool:
    chats: Chats = request.app.state.chats
    return chats.is_answering(session_id)
