"""Conversations with a model that remembers, as they are stored."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Role = Literal["user", "assistant"]
TITLE_CHARS = 60
"""So much of the first message is the title, until somebody gives another one."""
FORGOTTEN = "(forgotten)"
"""Stands for a message, a title, or what an answer leaned on, whose episode was forgotten."""
SUMMARY_CHARS = 200
"""So much of a cited episode's summary is shown."""


@dataclass(frozen=True, slots=True)
class EarlierName:
    """A title that a session had until then."""

    title: str
    until: datetime


@dataclass(frozen=True, slots=True)
class ChatSession:
    """A conversation without its messages. `backend` and `model` answer it, both empty where nobody chose and none was
    there yet; `worker_url`: on this server alone, where there are several and one was chosen. Empty `project`: of none.
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
    """An episode that was put before the model. `score`: as the search gave it, in [0, 1]; `standing`: only what is
    asked before every answer found it. Summary and project are those of the episode as it is now; of one that is gone
    there is neither, and `FORGOTTEN` stands for its summary.
    """

    episode_id: str
    summary: str
    project: str
    timestamp: datetime
    score: float
    standing: bool = False

    @property
    def is_forgotten(self) -> bool:
        """Whether there is no such episode any more."""
        return self.summary == FORGOTTEN


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message, masked. `files`: names of what went with a question. Of answers: what answered, what it saw, what it
    cost. `stopped`: somebody ended it; `problem`: why it is not whole, in which case it may have no text; `episode_id`:
    of its round trip; `feedback`: 1, -1, or 0 for none.
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
        """Whether it is an answer that failed, or was stopped, before its first word."""
        return self.role == "assistant" and not self.text.strip()

    @property
    def is_cut_off(self) -> bool:
        """Whether it is an answer that failed or was stopped, before its first word or behind it."""
        return self.is_wordless or (self.role == "assistant" and (self.stopped or bool(self.problem)))
