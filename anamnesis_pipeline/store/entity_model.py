"""Things that sessions, notes and documents touch or name: files, commands, errors, hosts and others. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class EntityKind(StrEnum):
    """What a thing is, and what its name looks like."""

    FILE = "file"
    """Its path in the repository, with `/`; absolute outside of it."""
    SYMBOL = "symbol"
    """A function, class or type that was edited or is named as code."""
    COMMAND = "command"
    """A program with its subcommand, such as `npm run build`."""
    ERROR = "error"
    """The signature of an error."""
    HOST = "host"
    URL = "url"
    PACKAGE = "package"
    TOOL = "tool"
    """A program, or a tool of an MCP server."""
    TICKET = "ticket"
    PERSON = "person"
    """An e-mail address, or the name before one."""
    DATE = "date"
    """A day that a text names, as `2026-03-01`."""


class Relation(StrEnum):
    """What an episode has to do with a thing."""

    EDITED = "edited"
    RAN = "ran"
    """The command succeeded; the error's command, too, where nothing tells otherwise."""
    FAILED = "failed"
    """The command failed, or the error occurred."""
    FIXED = "fixed"
    """The thing was edited or run between the error `other` and the success of what had failed."""
    DEPENDS_ON = "depends_on"
    """A package was installed, or a text says that the thing `other` depends on or uses this one."""
    MENTIONED = "mentioned"


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing by kind and name."""

    kind: EntityKind
    name: str


@dataclass(frozen=True, slots=True)
class Mention:
    """A thing in an episode.

    `other`: the name of a second thing, where the relation has one; of a command: what Claude said that it does.
    `detail`: verbatim; the script of a command, the line of an error. `folder`: where a command ran. `place`: order
    within the session.
    """

    kind: EntityKind
    name: str
    relation: Relation
    episode_id: str
    project: str = ""
    session_id: str = ""
    message_id: str = ""
    at: datetime | None = None
    place: int = 0
    other: str = ""
    detail: str = ""
    folder: str = ""

    @property
    def entity(self) -> Entity:
        """The thing itself."""
        return Entity(self.kind, self.name)
