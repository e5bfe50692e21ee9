"""The contract of what a store keeps of sessions beside their episodes: which have no record of their present text, and
which are one record together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from anamnesis_pipeline.model import RESERVED_SOURCES, Episode, Passage
from anamnesis_pipeline.session_model import SESSION_KIND

File = tuple[str, str]
"""Source and path of a log."""
_MADE_OF_OTHERS = (SESSION_KIND, "record")
"""Kinds of episodes that no record of a session tells of."""


def is_of_log(source: str, session_id: str) -> bool:
    """Whether this is a session of a log."""
    return bool(session_id) and source not in RESERVED_SOURCES


def is_told(kind: str) -> bool:
    """Whether the record of a session tells of its episodes of this kind."""
    return kind not in _MADE_OF_OTHERS


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session as far as one source has it.

    `noted` counts what came, changed or went since its record was written; 0: nothing. `root` is the session in which
    the record begins that it is in; empty: it is in none yet. `revision` is the last one written of the record that
    begins in this very session, and `until` when that ended (an instant as stores write it); 0 and empty: there was
    none. `is_open`: a part of it still grows.
    """

    source: str
    session_id: str
    noted: int
    root: str = ""
    revision: int = 0
    until: str = ""
    branch: str = ""
    is_open: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.source, self.session_id


@dataclass(frozen=True, slots=True)
class NewRecord:
    """The record of some sessions to be written: its episode, the root of its record, its revision and end."""

    episode: Episode
    passages: Sequence[Passage]
    root: SessionState
    revision: int
    until: str


class SessionRecords(Protocol):
    """Sessions of logs. Each episode of a log that is written or removed notes its session. Where one is removed, its
    text is edited, or its part is masked again or moved to another project, every revision of the record of its session
    goes in the same transaction, and so do replies of an LLM about it: none of its text stays.
    """

    def changed(self, source: str, after: str, limit: int) -> list[str]:
        """Sessions of a source that are noted, by id, behind `after`; those of which a part still grows wait."""

    def states(self, session_ids: Iterable[str]) -> list[SessionState]:
        """What is known of these sessions, and of all that are in a record with them, in every source; by source and
        id.
        """

    def told(self, source: str, session_id: str) -> list[str]:
        """Ids of the parts of a session that are episodes, in the order in which they began; none whose text a client
        edited, or that a rule holds.
        """

    def copied(self, files: Iterable[File], limit: int) -> list[str]:
        """Up to `limit` keys of messages that these logs hold as copies and that only one session can have said."""

    def sessions_of(self, files: Iterable[File]) -> dict[File, set[str]]:
        """Log -> sessions with parts of it, without those of subagents."""

    def note_branches(self, source: str, branches: Mapping[str, str]) -> None:
        """Session -> git branch that it is on now."""

    def join(self, members: Sequence[SessionState], root: str) -> bool:
        """Let these be one record, which begins in the session `root`. Records of theirs that hold others, which are no
        members now, go, and these are noted. False, having written nothing, when one of the members is another by now.
        """

    def settle(self, members: Sequence[SessionState], record: NewRecord | None, gone: Sequence[SessionState]) -> bool:
        """Write the record of `members`, which are joined, in place of all that there are of them, and note that
        nothing is to be done; former revisions stay, superseded by it. None: the one there is will do. One that was
        deleted with a tombstone stays away. `gone` are sessions of which nothing is left: they are not known any more.
        False, having written nothing, when one of all these is another by now.
        """
