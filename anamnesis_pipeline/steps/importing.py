"""Episodes that an export, or another program, wrote as JSON lines (docs/export-format.md): masked, and stored once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC
from io import BufferedIOBase
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.errors import Excluded, InvalidEpisode, TooLarge
from anamnesis_pipeline.model import Episode, content_id
from anamnesis_pipeline.steps.exclusion import Exclusions, refuse
from anamnesis_pipeline.steps.posting import Poster, posted_passages, with_masks_counted
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.episode_values import storable

MOST_LINE_BYTES = 64 << 20
SOURCE = "direct"
"""Whose imported episodes are: what a log or document says is of its own source again when that is read."""
Name = Annotated[str, Field(max_length=1_000)]


class Line(BaseModel):
    """What a line may say. Fields that are not known are not looked at; of those that are, only `summary` and
    `timestamp` must be there.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    format: Literal["anamnesis.episode/1"] = Field("anamnesis.episode/1", alias="schema")
    summary: Annotated[str, Field(min_length=1)]
    timestamp: Annotated[AwareDatetime, Field(strict=False)]
    episode_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    instance: Name = ""
    project: Name = ""
    kind: Annotated[str, Field(min_length=1, max_length=100)] = "note"
    raw_exchange: str = ""
    tags: list[Name] = []
    status: Literal["active", "superseded"] = "active"
    superseded_by: Name | None = None
    machine: Name = ""
    path: str = ""
    session_id: Name = ""
    message_ids: list[Name] = []
    message_keys: list[Name] = []
    metadata: dict[str, Any] = {}


@dataclass(slots=True)
class ImportReport:
    """What became of the lines. `differing`: ids that are stored with other content, which stays as it is;
    `tombstoned`: deleted or forgotten here, and kept away; `problems`: lines that could not be read, by number.
    """

    created: int = 0
    unchanged: int = 0
    tombstoned: int = 0
    differing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Importer:
    """Takes lines in, one by one: what fails fails alone."""

    def __init__(self, store: Store, poster: Poster, pieces: PieceCounter) -> None:
        self._store, self._poster, self._pieces = store, poster, pieces
        self._exclusions = Exclusions(store)

    def take(self, content: BufferedIOBase, say: Callable[[int], None]) -> ImportReport:
        """Store every line's episode.

        :param say: told the number of each line that was read.
        """
        report = ImportReport()
        for number, line in _lines(content):
            try:
                self._take_one(line, report)
            except (InvalidEpisode, Excluded, TooLarge, _Unreadable) as problem:
                report.problems.append(f"line {number}: {problem}")
            say(number)
        return report

    def _take_one(self, line: bytes, report: ImportReport) -> None:
        episode = storable(self._episode(_parsed(line)))
        known = self._store.episodes.get([episode.episode_id]).get(episode.episode_id)
        if known is not None and known.content_hash == episode.content_hash:
            report.unchanged += 1
            return
        if known is not None:
            report.differing.append(episode.episode_id)
            return
        refuse(self._exclusions.of_episode(episode))
        done = self._store.episodes.put([(episode, posted_passages(self._store, episode, self._pieces))])
        report.created += done.created
        report.tombstoned += done.tombstoned

    def _episode(self, said: Line) -> Episode:
        """The episode as it is stored, secrets masked. One without an id gets one that is made of what it says."""
        if not said.summary.strip():
            raise InvalidEpisode("summary", "must say something; it is blank")
        cleaned = self._poster.cleaned(
            {
                "raw_exchange": said.raw_exchange, "tags": tuple(said.tags),
                "metadata": said.metadata, "timestamp": said.timestamp.astimezone(UTC), "instance": said.instance,
                "project": said.project, "kind": said.kind,
            }
        )  # fmt: skip
        masked = self._poster.masked
        episode = Episode(
            episode_id=said.episode_id or "", source=SOURCE, summary=masked(said.summary), status=said.status,
            superseded_by=said.superseded_by, machine=masked(said.machine), path=masked(said.path),
            session_id=said.session_id, message_ids=tuple(said.message_ids), message_keys=tuple(said.message_keys),
            **cleaned,
        )  # fmt: skip
        episode = with_masks_counted(episode)
        made_id = content_id("import", episode.content_hash)
        return episode if episode.episode_id else replace(episode, episode_id=made_id)


class _Unreadable(Exception):  # noqa: N818 - of one line
    """A line that is no episode; the text says why."""


def _lines(content: BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Lines that say something, by their number from 1."""
    number = 0
    while line := content.readline(MOST_LINE_BYTES + 1):
        number += 1
        if len(line) > MOST_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = content.readline(MOST_LINE_BYTES)
            line = b""
            yield number, line
        elif line.strip():
            yield number, line


def _parsed(line: bytes) -> Line:
    if not line:
        raise _Unreadable(f"it has more than {MOST_LINE_BYTES >> 20} MiB")
    try:
        return Line.model_validate_json(line)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(piece) for piece in first["loc"])
        raise _Unreadable(f"{place}: {first['msg']}" if place else str(first["msg"])) from problem
