"""The contract of a store. One deployment has one store; every backend passes `store/test_store_contract.py`.

A `Store` is a handle that bundles one object per subject. Every write is one short transaction, idempotent, and
visible to other processes when the call returns. Writes of more than `MAX_ROWS_PER_WRITE` rows are split.
Adapters raise `StoreBusy` (try again), `StoreFull`, `StoreCorrupt`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import (
    ArchiveFrame,
    DeadLetter,
    Episode,
    FileCursor,
    Occurrence,
    Part,
    Passage,
    ScoredPassage,
    Source,
    StoredPassage,
    Summary,
    Variant,
    Where,
)
from anamnesis_pipeline.store.forget_base import ForgetRecords
from anamnesis_pipeline.store.llm_base import LlmRecords
from anamnesis_pipeline.store.space_records import SpaceRecords

MAX_ROWS_PER_WRITE = 500

PROJECT_ALIASES = "projects.aliases"
"""Name of the stored setting {project: what to call it}. Every episode is written under the name it leads to; what it
was called itself is kept beside it.
"""

Vectors = NDArray[np.float32]
"""Shape (n, dim), unit length."""


# --- ingest ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParsedChunk:
    """What one transaction of the parser writes. `after.version` is ignored; the store sets it.

    `keys` are the message keys (aliases included) that this chunk adds, owned by (source, path); `parts` are new or
    grown; `dead` lines of it could not be read; `revived` ones, dead before, now can. `aliases` leads from those of
    `keys` that are further keys of a message to its own. `claims` does so from keys that a message takes if nobody has
    them, or only the history (`claude_history`), whose part then goes: a transcript's prompt wins.
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
    bytes: int = 0
    lines: int = 0
    unparsed_lines: int = 0
    messages: int = 0
    occurrences: int = 0
    dead_letters: int = 0
    exchanges: int = 0
    parts: int = 0
    open_parts: int = 0
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

    def commit_crawl(self, before: FileCursor | None, after: FileCursor, frame: ArchiveFrame | None) -> bool:
        """Compare-and-set: write `after` and `frame` if the stored cursor is still `before` (None: absent).

        Returns False, having written nothing, when another run was faster.
        """

    def mark_gone(self, source: str, paths: Iterable[str]) -> int:
        """Flag files that vanished; their episodes stay. Returns how many were newly flagged."""

    def frames(self, source: str, path: str, generation: int, from_line: int = 0) -> list[ArchiveFrame]:
        """The archive frames that hold lines >= `from_line`, in order."""

    def replace_frames(
        self, source: str, path: str, generation: int, revision: int, frames: Sequence[ArchiveFrame]
    ) -> bool:
        """Let `frames`, of revision `revision` + 1, stand for all of a generation, in one transaction.

        The lines stay numbered as they were. False, having written nothing, when the generation is of another revision,
        or has other lines, by now.
        """

    def dead_letters(self, source: str | None = None, limit: int = 1_000) -> list[DeadLetter]:
        """Lines that could not be read, by source, path and line."""

    def occurrences_of(self, keys: Sequence[str]) -> list[tuple[str, Occurrence]]:
        """(source, occurrence) of the copies of these messages."""

    def owners(self, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Message key -> (source, path) that owns it, for those that are known."""

    def known_keys(self, keys: Sequence[str]) -> set[str]:
        """Those of `keys` that some file already owns, or that a tombstone forbids."""

    def part(self, part_id: str) -> Part | None:
        """One part with its segments; None when there is none, or when its episode was deleted with a tombstone:
        what follows then begins a new part, so that nothing said later is lost with it.
        """

    def commit_parsed(self, chunk: ParsedChunk) -> bool:
        """Compare-and-set on `chunk.before.version`, atomically with everything the chunk adds.

        A part is written by id: a grown part replaces its row. Returns False when another run was faster.
        """

    def name_agent(self, source: str, path: str, agent_type: str, origin: str) -> int:
        """Set the type and origin of every part of a subagent's file; their episodes are then written anew. Returns how
        many changed.
        """

    def close_idle_parts(self, source: str, ended_before: datetime) -> int:
        """Close open parts whose last segment is older; returns how many."""

    def unfinished_sources(self, ended_before: datetime) -> set[str]:
        """Sources with archived lines that are not parsed, parts that `parts_to_publish` lists, or open parts that
        `close_idle_parts` would close: what an `ingest` that ended early left to do.
        """

    def parts_to_summarize(self, source: str, now: datetime, limit: int, project: str | None = None) -> list[Part]:
        """Closed parts (of one project) without a summary of their present content, whatever wrote it, or whose summary
        is to be tried again by `now` (`Summary.retry_at`) or was asked for anew, newest first.
        """

    def sources_to_summarize(self, now: datetime) -> set[str]:
        """Sources for which `parts_to_summarize` lists something."""

    def want_summaries(
        self, except_model: str, *, project: str | None = None, limit: int | None = None, dry_run: bool = False
    ) -> dict[str, int]:
        """Ask for new summaries of closed parts that something other than `except_model` summarized, newest first; what
        is there stays until then. Source -> how many.
        """

    def put_summaries(self, summaries: Sequence[Summary]) -> int:
        """Write by part id; returns how many changed."""

    def summary(self, part_id: str) -> Summary | None:
        """The summary of a part, of whatever version of it."""

    def summary_counts(self) -> dict[str, int]:
        """Model -> summaries it wrote, but under `problem` those that stand in for an LLM's, and under `skip` parts in
        which an LLM found nothing worth remembering.
        """

    def parts_to_publish(self, source: str, limit: int) -> list[tuple[Part, Summary | None]]:
        """Parts whose episode is missing or older than the part or its summary, newest first.

        A part whose message keys or id are tombstoned is never listed.
        """

    def mark_published(self, published: Sequence[tuple[Part, Summary | None]]) -> None:
        """Record that the episode of this very content and summary is written."""

    def counts(self, source: str | None = None) -> SourceCounts:
        """Row counts of a source, or of everything."""


# --- episodes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutReport:
    """What became of the episodes of one `put`."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    tombstoned: int = 0


@dataclass(frozen=True, slots=True)
class EpisodePage:
    """One page, newest first; `next_cursor` is opaque, None at the end."""

    items: list[Episode]
    next_cursor: str | None


class EpisodeRecords(Protocol):
    """Episodes with their passages and tombstones."""

    def put(self, episodes: Sequence[tuple[Episode, Sequence[Passage]]]) -> PutReport:
        """Create or replace by id. A passage whose ordinal, text, context and ids are unchanged keeps its key
        (and so its vectors); any other is deleted and, if wanted, inserted under a new key. Counters, status and
        `superseded_by` of an existing row stay as they are, and so does what `replace` edited: summary, tags,
        project, instance, kind, timestamp, metadata and passages without message ids. An episode whose
        `raw_exchange` was edited is not written any more. Tombstoned ids and episodes all of whose
        `message_keys` are tombstoned are counted and not written.
        """

    def create(self, episode: Episode, passages: Sequence[Passage]) -> bool:
        """Write a new episode; True when created, False when the id exists with an equal `content_hash`.

        :raises EpisodeConflict: the id exists with other content.
        An id that was deleted with a tombstone may be created again by this explicit call; it lifts the tombstone.
        """

    def replace(self, episode: Episode, passages: Sequence[Passage], expected_hash: str) -> None:
        """Write an edited episode (status and `superseded_by` included) if its stored hash is `expected_hash`.

        :raises EpisodeNotFound: no such id.
        :raises EpisodeConflict: it changed meanwhile.
        """

    def get(self, episode_ids: Sequence[str]) -> dict[str, Episode]:
        """Id -> episode, for those that exist."""

    def delete(self, episode_id: str, *, tombstone: bool = True) -> bool:
        """Remove episode, passages, full-text rows and vectors of every space; the tombstone keeps the id and its
        message keys away from later ingests. False when there is no such id.
        """

    def page(self, where: Where, limit: int, cursor: str | None = None, skip: int = 0) -> EpisodePage:
        """Newest first by (timestamp, id).

        :raises InvalidEpisode: the cursor is not one of ours.
        """

    def count(self, where: Where) -> int:
        """Episodes that pass the filter."""

    def projects(self) -> list[str]:
        """Distinct projects, sorted."""

    def project_names(self) -> list[tuple[str, str, int]]:
        """(a project's own name, what it is called, episodes of both)."""

    def call_project(self, own: str, name: str) -> int:
        """Let episodes whose project is `own` itself be of project `name`; returns how many changed."""

    def preceding(self, instance: str, project: str, before: datetime, since: datetime, limit: int) -> list[Episode]:
        """Active episodes of source `direct` of the same instance and project with since <= timestamp < before
        (by timestamp, then insertion), the nearest last.
        """

    def passages(self, passage_ids: Sequence[int]) -> dict[int, StoredPassage]:
        """Key -> passage, for those that are live."""

    def passages_of(self, episode_id: str) -> list[StoredPassage]:
        """All passages of one episode, by ordinal."""

    def track(self, episode_ids: Sequence[str], when: datetime) -> None:
        """Count one retrieval of each."""


# --- search ----------------------------------------------------------------------------------------------


class TextIndex(Protocol):
    """Full text over passages, maintained with them in the same transaction."""

    def matching(
        self, words: Sequence[str], k: int, where: Where, *, analyzer: str = "stem", variant: Variant = Variant.TEXT
    ) -> list[ScoredPassage]:
        """Passages that contain any of `words`, best first by BM25, filters applied before the cut to k.

        `stem`: words are stemmed and folded; `exact`: literal tokens, case folded, each with its outer
        punctuation trimmed and its pieces at ``. _ - / :`` indexed as well. Words are data, never query syntax.
        `exact` knows only Variant.TEXT. Very common words may be left out of the candidates when others are rare.
        """

    def check(self) -> list[str]:
        """Problems found by the engine's own integrity check; empty when sound."""


@dataclass(frozen=True, slots=True)
class PendingEpisode:
    """An episode with passages that lack a vector in a space."""

    episode_id: str
    source: str
    passages: tuple[StoredPassage, ...]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """State of a space's search index."""

    space: str
    vectors: int
    indexed: int
    dead: int
    rebuilt: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class SpaceProgress:
    """How far a space is embedded: the checkpoint of a re-embed. Written with the vectors, in their transaction.

    `last_episode` is the last episode that a write left lacking nothing, and `written_at` when; None before the first.
    """

    episodes: int
    episodes_done: int
    passages: int
    passages_done: int
    last_episode: str | None
    written_at: datetime | None


class VectorIndex(Protocol):
    """Vectors and token vectors of passages, per space and variant."""

    def put(self, space: str, variant: Variant, passage_ids: Sequence[int], vectors: Vectors) -> int:
        """Write by (space, variant, passage id); passages deleted meanwhile are skipped. Returns rows written.

        :raises DimensionMismatch: `vectors` has another width than the space.
        """

    def put_all(self, space: str, passage_ids: Sequence[int], vectors: Mapping[Variant, Vectors]) -> int:
        """As `put`, for several variants: each transaction holds all of them for its passages. Row n of every variant
        belongs to passage n. Returns rows written.

        :raises DimensionMismatch: some have another width than the space.
        """

    def get(self, space: str, variant: Variant, passage_ids: Sequence[int]) -> dict[int, Vectors]:
        """Passage id -> vector of shape (dim,)."""

    def nearest(self, space: str, variant: Variant, vector: Vectors, k: int, where: Where) -> list[ScoredPassage]:
        """The k passages with the highest cosine that pass the filter, best first; exact for filters that leave
        few rows, and never fewer than k while k rows pass. `vector` has shape (dim,).

        :raises DimensionMismatch: `vector` has another width than the space.
        """

    def put_tokens(self, space: str, tokens: Mapping[int, NDArray[np.int8]]) -> int:
        """Token vectors of passages, shape (tokens, dims) each, int8; returns rows written."""

    def tokens(self, space: str, passage_ids: Sequence[int]) -> dict[int, NDArray[np.int8]]:
        """Passage id -> token vectors, for those that have some."""

    def pending(self, space: str, sources: Sequence[str], episodes: int) -> list[PendingEpisode]:
        """Up to `episodes` episodes of these sources with passages that lack a vector of any of the space's variants,
        the newest of all sources first.
        """

    def pending_sources(self, space: str) -> dict[str, int]:
        """Source -> number of passages that lack a vector in this space; only sources that lack some."""

    def count(self, space: str) -> int:
        """Live passages that have the vectors of all the space's variants."""

    def progress(self, space: str) -> SpaceProgress:
        """How far the space is embedded; cheap, whatever is stored."""

    def build(self, space: str, *, force: bool = False) -> IndexReport:
        """Make the space fast to search: bring its index file up to date when too much is new or dead, atomically.

        :param force: also when little is new, and from nothing rather than from the file that is there.
        """

    def recall(self, space: str, k: int = 10, samples: int = 100) -> float:
        """Share of the true k nearest (exact scan) that `nearest` finds without filter, over sampled stored vectors
        of every variant, in [0, 1]; 1.0 for a space without vectors.
        """


class SettingsRecords(Protocol):
    """Small JSON values by name: stored settings, checkpoints, statistics."""

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or `default`."""

    def set(self, name: str, value: Any) -> None:
        """Write; None removes."""

    def all(self, prefix: str = "") -> dict[str, Any]:
        """Name -> value for names that begin with `prefix`."""


@dataclass(frozen=True, slots=True)
class Store:
    """An open store. Safe to share between threads; every process opens its own."""

    ingest: IngestRecords
    episodes: EpisodeRecords
    text: TextIndex
    vectors: VectorIndex
    spaces: SpaceRecords
    llm: LlmRecords
    settings: SettingsRecords
    forgetting: ForgetRecords
    close: "Closer"


class Closer(Protocol):
    """Closes a store's connections."""

    def __call__(self) -> None:
        """Close; calling twice is harmless."""
