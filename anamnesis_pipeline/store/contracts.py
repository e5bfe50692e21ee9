"""What engines do natively, each in its own form: full text, vectors, and pages and counts by a filter."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import EpisodeFilter, ScoredPassage, StoredPassage, Variant
from anamnesis_pipeline.store.gateway import Row

Vectors = NDArray[np.float32]
"""Shape (n, dim), unit length."""

# --- full text -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextProblem:
    """Why full text does not agree with the texts it is made of. `damaged`: it stays so until it is repaired. An
    index that a separate process keeps may be `down`, and answers nothing, or `behind`; neither harms a text.
    """

    text: str
    state: Literal["damaged", "down", "behind"] = "damaged"


class TextIndex(Protocol):
    """Full text over passages, maintained with them in the same transaction."""

    def matching(
        self,
        words: Sequence[str],
        k: int,
        where: EpisodeFilter,
        *,
        analyzer: str = "stem",
        variant: Variant = Variant.TEXT,
    ) -> list[ScoredPassage]:
        """Passages that contain any of `words`, best first by BM25, filters applied before the cut to k.

        `stem`: words are stemmed and folded; `exact`: literal tokens, case folded, each with its outer
        punctuation trimmed and its pieces at ``. _ - / :`` indexed as well. Words are data, never query syntax.
        `exact` knows only Variant.TEXT. Very common words may be left out of the candidates when others are rare.
        """

    def with_all(
        self, words: Sequence[str], k: int, where: EpisodeFilter, *, analyzer: str = "stem"
    ) -> list[ScoredPassage]:
        """Passages whose own text has all of `words`, best first by BM25. Marks are no words, and not asked for.

        :param analyzer: how words are compared, as in `matching`.
        """

    def held_by_few(self, words: Sequence[str], most: int, where: EpisodeFilter) -> list[list[ScoredPassage]]:
        """For each of `words`, as `exact` compares them, the passages that have it and pass, best first; none where
        they are more than `most`.
        """

    def unknown(self, words: Sequence[str]) -> list[str]:
        """Those of `words` that no passage's own text has, in their order; compared as `stem` does. Marks are no words,
        and never unknown.
        """

    def check(self) -> list[TextProblem]:
        """What keeps the index from agreeing with the texts; empty when sound."""

    def rebuild(self) -> Iterator[tuple[int, int]]:
        """Make the index again from the stored passages; yield (passages done, all passages). Searches use the former
        one until the new one is complete.

        :raises GiveUp: a separate process keeps the index, so there is nothing to make.
        """


# --- vectors ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PendingEpisode:
    """An episode with passages that lack a vector in a space."""

    episode_id: str
    source: str
    passages: tuple[StoredPassage, ...]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """State of a space's search index. `dead`: vectors in it that are not stored any more, as far as that is known."""

    space: str
    vectors: int
    indexed: int
    dead: int
    rebuilt: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class IndexState:
    """How searches of a space use its index.

    :param recall: share of the ten nearest that it found when it was last compared with an exact search, in [0, 1].
    :param is_exact: that is too little, so searches compare every vector.
    :param is_lost: it is damaged or gone, so searches read every vector until it is built again.
    """

    recall: float | None = None
    is_exact: bool = False
    is_lost: bool = False

    @property
    def problem(self) -> str:
        """What is wrong with the index, and what searches do instead; empty: nothing."""
        if self.is_lost:
            return "the vector index is damaged or gone: every vector is compared until it is built again"
        if self.is_exact:
            return f"the vector index finds {self.recall:.0%} of what is nearest: every vector is compared instead"
        return ""


def sign_value(dims: int) -> int:
    """What the sign of a number of a token vector reads back as, 127 being 1.0: so much that the product with a unit
    vector comes to their cosine. The numbers of a random unit vector are sqrt(2 / pi / dims) on average.
    """
    return min(63, max(1, round(127 * math.sqrt(math.pi / 2 / max(1, dims)))))


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Token vectors of several passages, one after the other, as bits: an eighth of the room that their numbers take.

    The rows of `passage_ids[n]`, at least one, begin at `starts[n]` and end where the next ones begin. `bits` has
    shape (rows, bytes of one row).
    """

    passage_ids: tuple[int, ...]
    starts: NDArray[np.intp]
    bits: NDArray[np.uint8]
    dims: int

    def numbers(self, start: int = 0, end: int | None = None) -> NDArray[np.int8]:
        """Some rows, shape (end - start, dims): `sign_value` or its negative, where 127 is 1.0."""
        found = np.unpackbits(self.bits[start:end], axis=1, count=self.dims).view(np.int8)
        found *= np.int8(2 * sign_value(self.dims))
        found -= np.int8(sign_value(self.dims))
        return found


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


@dataclass(frozen=True, slots=True)
class EpisodeMiddles:
    """Of some episodes that have vectors, in the order in which they came. `passage_ids`: the first passage of each
    that has one. `vectors`: shape (episodes, dim), unit length, or nothing but zeros where the passages cancel out.
    `after`: behind which number to ask on; None: there are no more episodes.
    """

    episode_ids: tuple[str, ...]
    projects: tuple[str, ...]
    passage_ids: tuple[int, ...]
    vectors: Vectors
    after: int | None


class VectorIndex(Protocol):
    """Vectors and token vectors of passages, per space and variant."""

    def put(self, space: str, variant: Variant, passage_ids: Sequence[int], vectors: Vectors) -> int:
        """Write by (space, variant, passage id); passages deleted meanwhile are skipped. Returns rows written.

        :raises DimensionMismatch: `vectors` has another width than the space.
        """
        return self.put_all(space, passage_ids, {variant: vectors})

    def put_all(
        self,
        space: str,
        passage_ids: Sequence[int],
        vectors: Mapping[Variant, Vectors],
        tokens: Sequence[NDArray[np.int8]] | None = None,
    ) -> int:
        """As `put`, for several variants: each transaction holds all of them for its passages. Row n of every variant
        belongs to passage n. Returns rows of `vectors` written.

        :param tokens: of each passage, shape (tokens, token_dims), at least one; in the same transaction. Of their
            numbers the signs are kept; 0 counts as negative.
        :raises DimensionMismatch: some have another width than the space, or the space has no token vectors.
        """

    def get(self, space: str, variant: Variant, passage_ids: Sequence[int]) -> dict[int, Vectors]:
        """Passage id -> vector of shape (dim,)."""

    def nearest(
        self, space: str, variant: Variant, vector: Vectors, k: int, where: EpisodeFilter
    ) -> list[ScoredPassage]:
        """The k passages with the highest cosine that pass the filter, best first; exact for filters that leave
        few rows, and never fewer than k while k rows pass. `vector` has shape (dim,).

        :raises DimensionMismatch: `vector` has another width than the space.
        """

    def tokens(self, space: str, passage_ids: Sequence[int]) -> TokenRows:
        """Token vectors of those of these passages that have some, in no particular order."""

    def token_bytes(self, space: str) -> int:
        """Bytes of all token vectors of a space. Looks at each passage once: some 0.1 s for a million."""

    def vector_bytes(self, space: str) -> int:
        """About how many bytes the vectors of its passages take, with the files that make them fast to search; without
        token vectors.
        """

    def pending(self, space: str, sources: Sequence[str], episodes: int) -> list[PendingEpisode]:
        """Up to `episodes` episodes of these sources with passages that lack a vector of any of the space's variants,
        or the token vectors that the space has, the newest of all sources first.
        """

    def pending_sources(self, space: str) -> dict[str, int]:
        """Source -> number of passages that lack a vector or token vectors in this space; only sources that lack
        some.
        """

    def count(self, space: str) -> int:
        """Live passages that have the vectors of all the space's variants, and token vectors where it has those."""
        return self.progress(space).passages_done

    def progress(self, space: str) -> SpaceProgress:
        """How far the space is embedded; cheap at any size."""

    def build(self, space: str, *, force: bool = False, within_s: float = math.inf) -> IndexReport:
        """Make the space fast to search: bring its index up to date when too much is new or dead, atomically. Searches
        go on meanwhile.

        :param force: also when little is new, and from nothing rather than from the index that is there.
        :param within_s: so long it waits, at most, for what a server builds; what is computed here takes its time.
        :raises StoreBusy: a server has not built it in time, and goes on.
        """

    def middles(self, space: str, variant: Variant, where: EpisodeFilter, after: int, limit: int) -> EpisodeMiddles:
        """What up to `limit` episodes that pass the filter say on the whole, in the order in which they came, behind
        number `after`, which begins with 0. Those without a vector in the space are left out, so that there may be
        fewer although more follow.
        """

    def recall(self, space: str, k: int = 10, samples: int = 100) -> float:
        """Share of the true k nearest (exact scan) that `nearest` finds without filter, over sampled stored vectors
        of every variant that are not alike, in [0, 1]; 1.0 for a space without vectors. Where a server's index finds
        too little, searches compare every vector from then on, until one of these measurements finds enough.
        """

    def index_state(self, space: str) -> IndexState:
        """How searches use the space's index; cheap: with what was found when it was built, or measured."""


# --- filters ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lacking:
    """An episode that was written, and its passages: the keys of `old` ones, which may have vectors, and how many `new`
    ones, which have none.
    """

    number: int
    episode_id: str
    source: str
    timestamp: str
    old: Sequence[int]
    new: int


class Native(Protocol):
    """Work within the transaction of `tables`, which are those of the engine."""

    def page(
        self,
        tables: Any,
        where: EpisodeFilter,
        limit: int,
        after: tuple[str, str] | None = None,
        skip: int = 0,
        *,
        oldest_first: bool = False,
    ) -> list[Row]:
        """Return rows with `EPISODE_FIELDS` of episodes that pass a filter, by (timestamp, id), newest first unless
        asked otherwise. `after`: only those that follow this place.
        """

    def count(self, tables: Any, where: EpisodeFilter) -> int:
        """Count the episodes that pass a filter."""

    def projects(self, tables: Any) -> list[str]:
        """Return the projects of episodes, sorted. Searches ask this, so it costs what there are projects."""

    def note_lacking(self, tables: Any, written: Sequence[Lacking]) -> None:
        """Count what these episodes lack in every space."""

    def prepare(self, texts: Iterable[str]) -> None:
        """Work out what is made of the texts of passages that a transaction will write, before it begins. An engine
        that has nothing to work out does not ask for them, since that reads the store.
        """
