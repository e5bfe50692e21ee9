"""Things that sessions, notes and documents touch or name: files, commands, errors, hosts and others. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
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
    """A thing by kind and name. `line`: of an error, how one of its mentions tells it, verbatim."""

    kind: EntityKind
    name: str
    line: str = field(default="", compare=False)


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
        return Entity(self.kind, self.name, self.detail if self.kind is EntityKind.ERROR else "")


@dataclass(frozen=True, slots=True)
class EntityName:
    """What a person decided: in a project, `entity` is another name, or another kind, of `canonical`."""

    project: str
    entity: Entity
    canonical: Entity
    at: datetime


class Names:
    """What things are called, by what people decided. Names are compared in any case."""

    def __init__(self, given: Iterable[EntityName] = ()) -> None:
        self._canonical = {_key(each.project, each.entity): each for each in sorted(given, key=lambda each: each.at)}

    def all(self) -> list[EntityName]:
        """Return the decisions, by project, kind and name."""
        return sorted(self._canonical.values(), key=lambda each: (each.project, each.entity.kind, each.entity.name))

    def of(self, project: str, entity: Entity) -> Entity:
        """Return the thing that a name leads to, its own if no person decided on it.

        Names of projects that were merged can lead in a circle: all of these are the first of it by kind and name.
        """
        if not self._canonical or _key(project, entity) not in self._canonical:
            return entity  # as of nearly all, of which lists ask for very many
        path = self.path(project, entity)
        if path[-1] in path[:-1]:
            return min(path[path.index(path[-1]) :], key=lambda each: (each.kind, each.name))
        return path[-1]

    def path(self, project: str, entity: Entity) -> list[Entity]:
        """Return a thing and those that its name leads to, in order; the last of a circle is in it twice."""
        path = [entity]
        while (decided := self._canonical.get(_key(project, path[-1]))) is not None:
            path.append(decided.canonical)
            if path[-1] in path[:-1]:
                break
        return path

    def aliases(self, entity: Entity) -> list[EntityName]:
        """Return the decisions by which other names lead to a thing, in any project."""
        return [each for each in self.all() if self.of(each.project, each.entity) == entity]

    def called(self, name: str) -> list[EntityName]:
        """Return the decisions on a name, of any project and kind."""
        return [each for each in self.all() if each.entity.name.lower() == name.lower()]

    def kinds(self, kinds: Collection[EntityKind]) -> set[EntityKind]:
        """Return these kinds, and those whose things may be of these kinds by decision."""
        return {*kinds, *(each.entity.kind for each in self.all() if self.of(each.project, each.entity).kind in kinds)}


def _key(project: str, entity: Entity) -> tuple[str, EntityKind, str]:
    return project, entity.kind, entity.name.lower()
