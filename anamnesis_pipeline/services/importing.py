"""Mask and store episodes of an export, or of another program, once (docs/reference/export-format.md)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import BufferedIOBase
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.errors import Excluded, GiveUp, InvalidEpisode, TooLarge
from anamnesis_pipeline.model import Episode, Passage, content_id, said_at
from anamnesis_pipeline.pipeline.exclusion import Exclusions, refuse, rule_of
from anamnesis_pipeline.services.exporting import MAX_CHANGES
from anamnesis_pipeline.services.posting import EpisodeWriter, posted_passages, with_masks_counted
from anamnesis_pipeline.services.schemas import StatusName
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import PutReport
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES, store_name
from anamnesis_pipeline.store.records.statuses import StatusChange
from anamnesis_pipeline.store.values import storable

ODD_TIME = "timestamp_as_written"
"""Metadata key: the original timestamp, as text, of an episode whose time is implausible."""
YEARS = datetime(1970, 1, 1, tzinfo=UTC), datetime(2201, 1, 1, tzinfo=UTC)
"""Accepted times, [first, second), as for posted episodes."""
MAX_LINE_BYTES = 64 << 20
BATCH_LINES, BATCH_BYTES = 250, 8 << 20
"""Max lines imported in one transaction, and max bytes, so that memory stays bounded."""
SOURCE = "direct"
"""Source of imported episodes, until a log or document with the same text is read."""
MAX_PIECE_CHARS = 100_000
"""Limit for one passage; passages made here have a few hundred characters."""
MAX_REASON_CHARS = 10_000
Name = Annotated[str, Field(max_length=1_000)]


class Piece(BaseModel):
    """Fields of a passage in a line."""

    model_config = ConfigDict(extra="ignore", strict=True)

    text: Annotated[str, Field(min_length=1, max_length=MAX_PIECE_CHARS)]
    context: Annotated[str, Field(max_length=MAX_PIECE_CHARS)] = ""
    message_ids: list[Name] = []


class Change(BaseModel):
    """Fields of a change of the status in a line."""

    model_config = ConfigDict(extra="ignore", strict=True)

    former: StatusName
    status: StatusName
    at: Annotated[AwareDatetime, Field(strict=False)]
    successor: Name | None = None
    by: Name = ""
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS)] = ""


class Line(BaseModel):
    """Fields of a line. Unknown fields are ignored; only `summary` and `timestamp` are required."""

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
    status: StatusName = "active"
    superseded_by: Name | None = None
    superseded_at: Annotated[AwareDatetime, Field(strict=False)] | None = None
    status_history: Annotated[list[Change], Field(max_length=MAX_CHANGES)] = []
    machine: Name = ""
    path: str = ""
    session_id: Name = ""
    message_ids: list[Name] = []
    message_keys: list[Name] = []
    metadata: dict[str, Any] = {}
    passages: list[Piece] = []


@dataclass(slots=True)
class ImportReport:
    """Outcome of an import. `differing`: ids already stored with other content, which stays unchanged. `tombstoned`:
    deleted or forgotten here, and not imported. `problems`: unreadable lines, by number. `moved`: number of lines with
    an implausible time, which took that of a neighbour.
    """

    created: int = 0
    unchanged: int = 0
    tombstoned: int = 0
    differing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Numbered:
    """An episode with its line number. `passages` empty: they are made here. `changes`: of its status, oldest first."""

    number: int
    episode: Episode
    passages: list[Passage]
    changes: list[StatusChange] = field(default_factory=list)


Problems = dict[int, Exception]
"""Line number -> why it was not imported."""


class Importer:
    """Import lines, many in one transaction; one failing line does not stop the others."""

    def __init__(self, store: Store, poster: EpisodeWriter, pieces: PieceCounter) -> None:
        self._store, self._poster, self._pieces = store, poster, pieces
        self._exclusions = Exclusions(store)

    def take(self, content: BufferedIOBase, say: Callable[[int], None]) -> ImportReport:
        """Store every line's episode.

        :param say: receives the number of each line read.
        """
        report, masked = ImportReport(), self._poster.masked
        for batch in _batches(_lines(content), say):
            problems: Problems = {}
            run: dict[str, Numbered] = {}
            said: list[tuple[int, Line]] = []
            for number, line in batch:
                if not line:
                    problems[number] = _Unreadable(f"it has more than {MAX_LINE_BYTES >> 20} MiB")
                    continue
                try:
                    said.append((number, Line.model_validate_json(line)))
                except ValidationError as problem:
                    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
                    place = ".".join(str(piece) for piece in first["loc"])
                    told = str(first["msg"]).replace(" at line 1 column ", " at column ")  # the report names the line
                    problems[number] = _Unreadable(f"{place}: {told}" if place else told)
            times = _times([line for _, line in said])
            for (number, each), when in zip(said, times, strict=True):
                try:
                    episode = storable(self._episode(each, when))
                    passages = [
                        Passage(at, masked(piece.text), masked(piece.context), tuple(piece.message_ids))
                        for at, piece in enumerate(each.passages)
                    ]
                except _OF_ONE_LINE as problem:
                    problems[number] = problem
                    continue
                report.moved += said_at(each.timestamp, *YEARS) is None
                if episode.episode_id in run:  # write the first one before comparing
                    self._take(list(run.values()), report, problems)
                    run = {}
                run[episode.episode_id] = Numbered(number, episode, passages, self._changes(each, episode.episode_id))
            self._take(list(run.values()), report, problems)
            report.problems += [f"line {number}: {problems[number]}" for number in sorted(problems)]
        return report

    def _take(self, run: Sequence[Numbered], report: ImportReport, problems: Problems) -> None:
        """Import episodes with distinct ids."""
        rules = self._exclusions.now()
        new: list[Numbered] = []
        for each in self._without_stored(run, report):
            try:
                refuse(rule_of(rules, each.episode))
            except Excluded as problem:
                problems[each.number] = problem
            else:
                new.append(each)
        if new:
            try:
                done = self._store.episodes.put(self._with_passages(new), only_new=True)
            except GiveUp:
                self._write_each(new, report, problems)
            else:
                self._count(done, [each.episode for each in new], report)
        self._restore_statuses(run, {*report.differing, *(e.episode.episode_id for e in run if e.number in problems)})

    def _restore_statuses(self, run: Sequence[Numbered], without: Collection[str]) -> None:
        """Give the episodes of lines their histories; an import that was cut off after it wrote them did not."""
        taken = [each for each in run if each.episode.episode_id not in without]
        since = {e.episode.episode_id: at for e in taken if (at := e.episode.superseded_at) is not None}
        self._store.statuses.restore([change for each in taken for change in each.changes], since)

    def _changes(self, said: Line, episode_id: str) -> list[StatusChange]:
        masked = self._poster.masked
        return [
            StatusChange(
                episode_id, each.former, each.status, each.successor, masked(each.by), masked(each.reason), each.at
            )
            for each in said.status_history
        ]

    def _without_stored(self, run: Sequence[Numbered], report: ImportReport) -> list[Numbered]:
        """Return the episodes not stored yet; count stored ones as unchanged or differing."""
        known = self._store.episodes.get([each.episode.episode_id for each in run])
        for episode in (each.episode for each in run):
            if (stored := known.get(episode.episode_id)) is None:
                continue
            if stored.content_hash == episode.content_hash:
                report.unchanged += 1
            else:
                report.differing.append(episode.episode_id)
        return [each for each in run if each.episode.episode_id not in known]

    def _write_each(self, new: Sequence[Numbered], report: ImportReport, problems: Problems) -> None:
        """Write episodes singly after a joint write failed, which may have stored some of them."""
        written = self._store.episodes.get([each.episode.episode_id for each in new])
        for each in new:
            episode = each.episode
            if (stored := written.get(episode.episode_id)) and stored.content_hash == episode.content_hash:
                report.created += 1
                continue
            try:
                passages = each.passages or posted_passages(self._store, episode, self._pieces)
                done = self._store.episodes.put([(episode, passages)], only_new=True)
            except _OF_ONE_LINE as problem:
                problems[each.number] = problem
            else:
                self._count(done, [episode], report)

    def _count(self, done: PutReport, put: Sequence[Episode], report: ImportReport) -> None:
        """Count outcomes; another process may have written some since the lookup."""
        report.created += done.created
        report.tombstoned += done.tombstoned
        if done.unchanged:
            stored = self._store.episodes.get([episode.episode_id for episode in put])
            hashes = {key: found.content_hash for key, found in stored.items()}
            differing = [e.episode_id for e in put if hashes.get(e.episode_id, e.content_hash) != e.content_hash]
            report.differing += differing
            report.unchanged += done.unchanged - len(differing)

    def _with_passages(self, new: Sequence[Numbered]) -> list[tuple[Episode, list[Passage]]]:
        """Return each episode with its passages: those of its line, or those of a post. The context of a post is what
        will be stored before it.
        """
        aliases = self._store.settings.get(PROJECT_ALIASES, {})
        episodes = [each.episode for each in new]
        buried = self._store.exclusion.entries_of([episode.episode_id for episode in episodes])
        keys = self._store.forgetting.forgotten([key for episode in episodes for key in episode.message_keys])
        its_messages = {e.episode_id for e in episodes if e.message_keys and keys.issuperset(e.message_keys)}
        gone = buried.keys() | its_messages  # the store refuses these, so they are no context
        written: list[tuple[Episode, list[Passage]]] = []
        beside: list[Episode] = []
        for each in new:
            episode = each.episode
            made = each.passages or posted_passages(self._store, episode, self._pieces, beside=beside)
            written.append((episode, made))
            if episode.episode_id not in gone:
                beside.append(replace(episode, project=store_name(aliases, episode.project)))
        return written

    def _episode(self, said: Line, when: datetime) -> Episode:
        """Return the episode to store, secrets masked. Without an id it gets one made of its content."""
        if not said.summary.strip():
            raise InvalidEpisode("summary", "must say something; it is blank")
        odd = {} if said_at(said.timestamp, *YEARS) else {ODD_TIME: said.timestamp.isoformat()}
        cleaned = self._poster.cleaned(
            {
                "raw_exchange": said.raw_exchange,
                "tags": tuple(said.tags),
                "metadata": {**said.metadata, **odd},
                "timestamp": when,
                "instance": said.instance,
                "project": said.project,
                "kind": said.kind,
            }
        )
        masked = self._poster.masked
        episode = Episode(
            episode_id=said.episode_id or "",
            source=SOURCE,
            summary=masked(said.summary),
            status=said.status,
            superseded_by=said.superseded_by,
            superseded_at=said.superseded_at,
            machine=masked(said.machine),
            path=masked(said.path),
            session_id=said.session_id,
            message_ids=tuple(said.message_ids),
            message_keys=tuple(said.message_keys),
            **cleaned,
        )
        episode = with_masks_counted(episode)
        made_id = content_id("import", episode.content_hash)
        return episode if episode.episode_id else replace(episode, episode_id=made_id)


class _Unreadable(Exception):  # noqa: N818 - of one line
    """A line without a valid episode; the text says why."""


_OF_ONE_LINE = (InvalidEpisode, Excluded, TooLarge, _Unreadable)
"""Errors of a single line; the others are imported."""


def _times(lines: Sequence[Line]) -> list[datetime]:
    """Return the time of each line. An implausible one is replaced by that of its neighbour, in the same session if
    possible: the line before, else the next.
    """
    known = [(line.session_id, said_at(line.timestamp, *YEARS)) for line in lines]
    found: list[datetime] = []
    for at, (session_id, own) in enumerate(known):
        around = [*known[at::-1], *known[at:]]
        of_session = (when for session, when in around if session and session == session_id and when)
        near = next(of_session, None) or next((when for _, when in around if when), YEARS[0])
        found.append(own or near)
    return found


def _batches(lines: Iterator[tuple[int, bytes]], say: Callable[[int], None]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield batches of lines; call `say` with each line number."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    try:
        for number, line in lines:
            say(number)
            if batch and (len(batch) == BATCH_LINES or size + len(line) > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append((number, line))
            size += len(line)
    except Exception:  # the file is damaged here; import what came before
        yield batch
        raise
    yield batch


def _lines(content: BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Yield non-blank lines with their number from 1; an overlong line is yielded empty."""
    number = 0
    while line := content.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = content.readline(MAX_LINE_BYTES)
            line = b""
            yield number, line
        elif line.strip():
            yield number, line
