"""Bodies of the chat, and how what is stored becomes one. Pure."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from anamnesis_pipeline.model import ChatMessage, ChatSession, Citation, ProviderName
from anamnesis_pipeline.services.fields import TEXT_PATTERN, WORDED_PATTERN, Name
from anamnesis_pipeline.services.log_ingest import BudgetOut, UseOut
from anamnesis_pipeline.services.rendering import utc_text

MAX_CHARS = 32_000
MAX_FILES = 5


class AttachmentIn(BaseModel):
    """A text that goes with this message alone; of a longer one than 200 KB the beginning."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=WORDED_PATTERN, description="File name")]
    text: Annotated[str, Field(max_length=1_000_000, pattern=TEXT_PATTERN, description="Its text; 200 KB are used")]


class ChatIn(BaseModel):
    """A message. Without `session_id` a conversation begins; backend and model stay those of the conversation unless
    others are named, and no other model answers in their place.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    message: Annotated[str, Field(max_length=MAX_CHARS, pattern=WORDED_PATTERN, description="The message")]
    session_id: Annotated[
        Name | None, Field(description="Conversation to continue, or a UUID of yours for a new one")
    ] = None
    goes_on: Annotated[bool, Field(description="Continue only: 404 if there is no such conversation")] = False
    backend: Annotated[
        ProviderName | None,
        Field(description="Default: the setting `summarizer`; if that is none, one that answers now, Ollama first"),
    ] = None
    model: Annotated[Name | None, Field(description="Model; default: that of the backend")] = None
    worker_url: Annotated[
        str | None,
        Field(max_length=500, description="The one of `ollama_urls` that answers, and no other"),
    ] = None
    project: Annotated[
        Name | None, Field(description="Project of a new conversation, whose memories are preferred")
    ] = None
    attachments: Annotated[
        list[AttachmentIn], Field(max_length=MAX_FILES, description="Texts for this message only")
    ] = []


class TitleIn(BaseModel):
    """Another title."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: Annotated[str, Field(max_length=200, pattern=WORDED_PATTERN, description="New title")]


class FeedbackIn(BaseModel):
    """1: good, -1: bad, 0: neither."""

    model_config = ConfigDict(extra="forbid", strict=True)

    value: Annotated[Literal[1, -1, 0], Field(description="1: good, -1: bad, 0: no rating")]


class EarlierNameOut(TypedDict):
    """A title, and until when it was the session's."""

    title: str
    until: str


class ChatSessionOut(TypedDict):
    """A conversation without its messages. `worker_url`: the one of several servers that was chosen to answer."""

    session_id: str
    title: str
    backend: str
    model: str
    worker_url: str
    project: str
    created_at: str
    updated_at: str
    message_count: int
    name_history: list[EarlierNameOut]


class CitationOut(TypedDict):
    """An episode that the model was shown. `standing`: only what is asked before every answer found it."""

    episode_id: str
    summary: str
    project: str
    timestamp: str
    score: float
    standing: bool


class MessageOut(TypedDict):
    """One message. `stopped`: the user ended it; `problem`: why it is not whole; of an answer that failed or was
    stopped before its first word `text` is empty. `files`: names of what went with a question. `feedback`: 1, -1, or 0.
    `dollars`: what a subscription paid would have cost so much by the token.
    """

    message_id: str
    role: Literal["user", "assistant"]
    text: str
    timestamp: str
    citations: list[CitationOut]
    backend: str
    model: str
    seconds: float
    input_tokens: int
    output_tokens: int
    dollars: float
    stopped: bool
    problem: str
    episode_id: str
    feedback: int
    files: list[str]


class WholeSessionOut(ChatSessionOut):
    """A conversation."""

    messages: list[MessageOut]


class ChatSessionsOut(TypedDict):
    """One page, the conversation that was used last first."""

    sessions: list[ChatSessionOut]
    next_cursor: str | None


class StoppedChatOut(TypedDict):
    """Whether an answer was being written."""

    stopped: bool


class FeedbackOut(TypedDict):
    """What was kept."""

    message_id: str
    value: int


class FeedbackCountsOut(TypedDict):
    """Answers that were found good, and bad."""

    up: int
    down: int


class OfferOut(TypedDict):
    """A backend: whether it is there, its models, how it is paid, and what keeps it away; `worker_url`: which of
    several servers this is; `any_model`: a message may name another model than these, too.
    """

    backend: str
    reachable: bool
    models: list[str]
    any_model: bool
    cost: str
    problem: NotRequired[str]
    worker_url: NotRequired[str]


class OffersOut(TypedDict):
    """All backends, as they are now; `default` with `default_model` answers where none is named."""

    backends: list[OfferOut]
    default: str
    default_model: str


class BalanceOut(TypedDict):
    """What calls of LLMs cost."""

    used_today: UseOut
    budget: BudgetOut


def session_head(session: ChatSession) -> dict[str, str]:
    """What a stream says first."""
    return {
        "session_id": session.session_id,
        "title": session.title,
        "backend": session.backend,
        "model": session.model,
        "worker_url": session.worker_url,
    }


def session_body(session: ChatSession) -> ChatSessionOut:
    """Without messages."""
    return {
        "session_id": session.session_id,
        "title": session.title,
        "backend": session.backend,
        "model": session.model,
        "worker_url": session.worker_url,
        "project": session.project,
        "created_at": utc_text(session.created_at),
        "updated_at": utc_text(session.updated_at),
        "message_count": session.messages,
        "name_history": [{"title": name.title, "until": utc_text(name.until)} for name in session.name_history],
    }


def citation_body(cited: Citation) -> CitationOut:
    """One of an answer's."""
    return {
        "episode_id": cited.episode_id,
        "summary": cited.summary,
        "project": cited.project,
        "timestamp": utc_text(cited.timestamp),
        "score": cited.score,
        "standing": cited.standing,
    }


def message_body(message: ChatMessage) -> MessageOut:
    """One message."""
    return {
        "message_id": message.message_id,
        "role": message.role,
        "text": message.text,
        "timestamp": utc_text(message.at),
        "citations": [citation_body(each) for each in message.citations],
        "backend": message.backend,
        "model": message.model,
        "seconds": message.seconds,
        "input_tokens": message.input_tokens,
        "output_tokens": message.output_tokens,
        "dollars": message.dollars,
        "stopped": message.stopped,
        "problem": message.problem,
        "episode_id": message.episode_id,
        "feedback": message.feedback,
        "files": list(message.files),
    }


def as_markdown(session: ChatSession, messages: list[ChatMessage]) -> str:
    """A conversation to be read anywhere."""
    lines = [f"# {session.title}", ""]
    for each in messages:
        who = "You" if each.role == "user" else f"{each.backend} {each.model}".strip()
        lines += [f"## {who}, {utc_text(each.at)}", ""]
        ended = "Stopped." if each.stopped else f"Not whole: {each.problem}" if each.problem else ""
        files = f"Attached: {', '.join(each.files)}" if each.files else ""
        lines += [line for said in (each.text, files, ended) if said for line in (said, "")]
        cited = [f"- {hit.timestamp:%Y-%m-%d} [{hit.episode_id}] {hit.summary}" for hit in each.citations]
        lines += ["Memories used:", "", *cited, ""] if cited else []
    return "\n".join(lines)


def rated_line(message: ChatMessage, asked: str) -> dict[str, Any]:
    """A rated answer as one example to learn from."""
    return {
        "messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": message.text}],
        "value": message.feedback,
        "backend": message.backend,
        "model": message.model,
        "episodes": [each.episode_id for each in message.citations],
        "timestamp": utc_text(message.at),
    }
