"""What a store keeps of the logs before they are episodes: sources, files, archive, message keys, parts, summaries."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from anamnesis_pipeline.archive_model import ArchiveBase, ArchiveFrame, DeadLetter
from anamnesis_pipeline.model import FileCursor, Occurrence, Part, Source
from anamnesis_pipeline.summary_model import Summary

LINE_BREAK_BYTES = 2
"""The most that a file has behind its last line when all of it is read."""


@dataclass(frozen=True, slots=True)
class ParsedChunk:
    """What one transaction of the parser writes. `after.version` is ignored; the store sets it.

    `keys` are the message keys (aliases included) that this chunk adds, owned by (source, path); `parts` are new or
    grown; `dead` lines of it could not be read; `revived` ones, dead before, now can. `aliases` leads from those of
    `keys` that are further keys of a message to its own. `claims` does so from keys that a message takes if nobody has
    them, or only what gives way: the history (`claude_history`), whose part then goes, since a transcript's prompt
    wins, also over the nearest that was typed about then (`typed_near`); or a subagent's file, out of whose part the
    message goes, since its session owns the answer.
    """

    before: FileCursor
    after: FileCursor
    keys: Sequence[str] = ()
    occurrences: Sequence[Occurrence] = ()
    parts: Sequence[Part] = ()
    dead: Sequence[DeadLetter] = ()
    revived: Sequence[DeadLetter] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """Row counts of one source (or of all): the watermark of its stages."""

    files: int = 0
    files_gone: int = 0
    files_unread: int = 0
    """Those there are that the last attempt could not read, but for what a rule keeps away."""
    bytes: int = 0
    lines: int = 0
    unparsed_lines: int = 0
    messages: int = 0
    occurrences: int = 0
    dead_letters: int = 0
    exchanges: int = 0
    parts: int = 0
    open_parts: int = 0
    kept_away: int = 0
    """Parts that are no episodes on purpose: a rule holds them, or their episode was deleted."""
    summaries: int = 0
    episodes: int = 0
    passages: int = 0


class IngestRecords(Protocol):
    """Sources, file cursors, archive frames, message keys, parts and summaries."""

    def put_sources(self, sources: Sequence[Source]) -> int:
        """Add or update; returns how many were new."""

    def sources(self) -> list[Source]:
        """All sources, reserved ones included, by key."""

    def cursors(self, source: str) -> dict[str, FileCursor]:
        """Path -> cursor, gone files included."""

    def cursor(self, source: str, path: str) -> FileCursor | None:
        """What is known of one file."""

    def incomplete_files(self) -> list[FileCursor]:
        """Files of all sources that are there and not read to their end, by source and path: the last attempt could not
        read them, but for what a rule keeps away, or there is more behind their last line than a line break.
        """

    def commit_crawl(self, before: FileCursor | None, after: FileCursor, frame: ArchiveFrame | None) -> bool:
        """Compare-and-set: write `after` and `frame` if the stored cursor is still `before` (None: absent).

        Returns False, having written nothing, when another run was faster, or the frame's base was rewritten
        or may be none any more (`archive_base`).
        """

    def commit_crawls(self, crawled: Sequence[tuple[FileCursor | None, FileCursor, ArchiveFrame | None]]) -> list[bool]:
        """`commit_crawl` of many files, each for itself, in few transactions. No file comes twice."""

    def mark_gone(self, source: str, paths: Iterable[str]) -> int:
        """Flag files that vanished; their episodes stay. Returns how many were newly flagged."""

    def frames(self, source: str, path: str, generation: int, from_line: int = 0) -> list[ArchiveFrame]:
        """The archive frames that hold lines >= `from_line`, in order."""

    def replace_frames(
        self, source: str, path: str, generation: int, revision: int, frames: Sequence[ArchiveFrame]
    ) -> bool:
        """Let `frames`, of revision `revision` + 1, stand for all of a generation, in one transaction.

        The lines stay numbered as they were. False, having written nothing, when the generation is of another revision,
        or has other lines, by now, or is a base of other frames (`leaning`).
        """

    def archive_base(
        self, source: str, path: str, generation: int, mark: str, first_line: int, lines: int
    ) -> ArchiveBase | None:
        """Where the lines of these numbers lie in another generation that begins with the same mark and leans on none
        itself; of several, in one that has most of them. None for a generation that others lean on: what leans is no
        base, so that all can be rewritten.

        :param mark: of the generation; empty: that of its first frame.
        """

    def leaning(self, source: str, path: str, generation: int) -> list[tuple[str, str, int]]:
        """(source, path, generation) of those with frames whose base is this one, in any revision."""

    def dead_letters(self, source: str | None = None, limit: int = 1_000) -> list[DeadLetter]:
        """Lines that could not be read, by source, path and line."""

    def occurrences_of(self, keys: Sequence[str]) -> list[tuple[str, Occurrence]]:
        """(source, occurrence) of the copies of these messages."""

    def owners(self, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Message key -> (source, path) that owns it, for those that are known."""

    def known_keys(self, keys: Sequence[str], reader: tuple[str, str] | None = None) -> set[str]:
        """Those of `keys` that some file already owns, or that a tombstone forbids.

        :param reader: source and path of the file that has them: what a younger file of another source owns
            (`FileCursor.first_mtime_ns`) is not known to it, and becomes its own with `commit_parsed`. Nothing passes
            so to or from the history or a subagent's file.
        """

    def claims_near(self, entries: Sequence[str]) -> dict[str, dict[str, str]]:
        """Key of an entry of the history -> further key -> message, for the transcripts' prompts of the same text that
        were sent about then (`typed_near`), and that no entry is known of.
        """

    def part(self, part_id: str) -> Part | None:
        """One part with its segments; None when there is none, or when its episode was deleted with a tombstone:
        what follows then begins a new part, so that nothing said later is lost with it.
        """

    def commit_parsed(self, chunk: ParsedChunk) -> bool:
        """Compare-and-set on `chunk.before.version`, atomically with everything the chunk adds.

        A part is written by id: a grown part replaces its row. A subagent's has the project of its session instead of
        its own as soon as that is known (`session_start`), whichever comes first. Returns False when another run was
        faster.
        """

    def session_start(self, session_id: str) -> tuple[str, str] | None:
        """Project and directory in which a session began, by the earliest of its parts that is no subagent's; None:
        there is none.
        """

    def projects_of(self, part_ids: Sequence[str]) -> set[str]:
        """Projects of these parts, and those that their episodes and records were given since."""

    def move_parts(self, source: str, paths: Sequence[str], cwd: str, before: str, after: str) -> int:
        """Let parts of a source that have `before` as their project have `after`: those of some files, and those of the
        history that were typed in `cwd`; their sessions' subagents with them. Their episodes are of it at once, edited
        ones too, but for those that somebody gave another project, and are then written anew. Returns how many parts
        changed.
        """

    def name_agent(self, source: str, path: str, agent_type: str, origin: str) -> int:
        """Set the type and origin of every part of a subagent's file; their episodes are then written anew. Returns how
        many changed.
        """

    def renew_session(self, session_id: str) -> int:
        """Let the episodes of a session, those of its subagents too, be written again; returns how many."""

    def link_agents(self, source: str) -> int:
        """Set the origin of subagents' parts that have none, where a tool's result names their agent (`agent_key`);
        their episodes are then written anew. Returns how many changed.
        """

    def close_idle_parts(self, source: str, ended_before: datetime) -> int:
        """Close open parts whose last segment is older; returns how many."""

    def unfinished_sources(self, ended_before: datetime) -> set[str]:
        """Sources with archived lines that are not parsed, parts that `parts_to_publish` lists, or open parts that
        `close_idle_parts` would close, sessions at rest whose record is to be written, or with sections of documents of
        which it is to be decided what is current: what an `ingest` that ended early left to do.
        """

    def unread_sources(self) -> set[str]:
        """Sources of logs that are not read to their end: not looked at yet, with archived lines that are not parsed,
        or with parts that `parts_to_publish` lists.
        """

    def parts_to_summarize(
        self, source: str, now: datetime, limit: int, project: str | None = None, *, after: Part | None = None
    ) -> list[Part]:
        """Closed parts (of one project, by any of its names and aliases) without a summary of their present content,
        whatever wrote it, or whose summary is to be tried again by `now` (`Summary.retry_at`) or was asked for anew,
        newest first: by the time of their last segment, then id. `after`: only those behind this one, the last of the
        page before, whatever has become of it. None that is held (`ExclusionRecords.hold`).
        """

    def sources_to_summarize(self, now: datetime) -> set[str]:
        """Sources for which `parts_to_summarize` lists something."""

    def want_summaries(
        self,
        except_model: str,
        *,
        source: str | None = None,
        project: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        accepts: Callable[[Part], bool] = lambda part: True,
    ) -> dict[str, int]:
        """Ask for new summaries of closed parts (of one source; of one project, by any of its names and aliases) that
        something other than `except_model` summarized and that `accepts` takes, newest first; what is there stays until
        then. Source -> how many.
        """

    def put_summaries(self, summaries: Sequence[Summary]) -> int:
        """Write by part id; returns how many changed. Not written is one of a part that is not there any more, of a
        text that is neither its present one nor that of the summary there is, or that was read from a reply that may
        not be kept (`LlmRecords.put_reply`).
        """

    def summary(self, part_id: str) -> Summary | None:
        """The summary of a part, of whatever version of it."""

    def summary_counts(self) -> dict[str, int]:
        """Model -> summaries it wrote, but under `problem` those that stand in for an LLM's, and under `skip` parts in
        which an LLM found nothing worth remembering.
        """

    def last_summary_problem(self) -> str:
        """Why an LLM did not write the summary that was flagged last; empty when none is."""

    def parts_to_publish(self, source: str, limit: int) -> list[tuple[Part, Summary | None]]:
        """Parts whose episode is missing or older than the part or its summary, newest first.

        A part whose message keys or id are tombstoned, or that is held (`ExclusionRecords.hold`), is never listed.
        """

    def counts(self, source: str | None = None) -> SourceCounts:
        """Row counts of a source, or of everything."""


def log_sources(ingest: IngestRecords) -> list[Source]:
    """The sources of logs, by key: all but the reserved ones. These are what is counted as sources."""
    return [source for source in ingest.sources() if source.kind != "reserved"]
