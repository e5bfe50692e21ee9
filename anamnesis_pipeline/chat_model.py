"""Stored chat conversations."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Role = Literal["user", "assistant"]
TITLE_CHARS = 60
"""Characters of the first message that form the title until a user sets one."""
FORGOTTEN = "(forgotten)"
"""Placeholder for a message, a title or a citation whose episode was forgotten."""
SUMMARY_CHARS = 200
"""Characters shown of a cited episode's summary."""


@dataclass(frozen=True, slots=True)
class EarlierName:
    """A former title of a session, used until `until`."""

    title: str
    until: datetime


@dataclass(frozen=True, slots=True)
class ChatSession:
    """A conversation without its messages. `backend` and `model` answer it; both are empty if none was chosen or
    available. `worker_url`: the chosen server if there are several. `project` may be empty.
    """

    session_id: str
    title: str
    backend: str
    model: str
    project: str
    created_at: datetime
    updated_at: datetime
    messages: int = 0
    name_history: tuple[EarlierName, ...] = ()
    worker_url: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """An episode given to the model. `score`: the search score, in [0, 1]. `standing`: found only by the standing
    queries. Summary and project are the episode's current ones; for a deleted one the summary is `FORGOTTEN` and the
    project empty.
    """

    episode_id: str
    summary: str
    project: str
    timestamp: datetime
    score: float
    standing: bool = False

    @property
    def is_forgotten(self) -> bool:
        """Whether the episode no longer exists."""
        return self.summary == FORGOTTEN


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message, masked. `files`: names of files sent with a question. Answers also have model, citations and cost.
    `stopped`: a user ended it. `problem`: why it is incomplete; its text may be empty. `episode_id`: of the stored
    exchange. `feedback`: 1, -1, or 0 for none.
    """

    message_id: str
    session_id: str
    role: Role
    text: str
    at: datetime
    citations: tuple[Citation, ...] = ()
    backend: str = ""
    model: str = ""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    stopped: bool = False
    problem: str = ""
    episode_id: str = ""
    feedback: int = 0
    files: tuple[str, ...] = ()

    @property
    def is_wordless(self) -> bool:
        """Whether it is an answer that failed or was stopped before its first word."""
        return self.role == "assistant" and not self.text.strip()

    @property
    def is_cut_off(self) -> bool:
        """Whether it is an answer that failed or was stopped at any point."""
        return self.is_wordless or (self.role == "assistant" and (self.stopped or bool(self.problem)))
