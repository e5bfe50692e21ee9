"""Search queries and answers. Frozen values, no behaviour."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, get_args

from anamnesis_pipeline.model import Episode, EpisodeFilter, StoredPassage
from anamnesis_pipeline.search.best_sentences import Run
from anamnesis_pipeline.search.floor import Confidence
from anamnesis_pipeline.search.profiles import PROFILES, Profile
from anamnesis_pipeline.store.memory_layers import Layer

ListName = Literal["dense_text", "dense_context", "words_text", "words_context", "exact", "rare"]
LISTS: tuple[ListName, ...] = get_args(ListName)
"""Names of all candidate lists."""


class Mode(StrEnum):
    """Which rankings a search fuses."""

    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    """Dense vectors only."""
    EXACT = "exact"
    """Literal tokens only."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A question. `where.projects` may hold bare names: `api` also means `acme/api` and `~/code/api`.

    :param top_k: maximum number of episodes to return, 1 to 100.
    :param min_score: cosine below which a hit is dropped; None or 0: no threshold.
    :param max_tokens: budget for summaries and excerpts together (4 characters count as one token).
    """

    text: str
    top_k: int = 5
    mode: Mode = Mode.HYBRID
    where: EpisodeFilter = field(default_factory=EpisodeFilter)
    min_score: float | None = None
    max_tokens: int | None = None
    fold: bool = True
    track: bool = True
    explain: bool = False
    include_private: tuple[str, ...] = ()
    """Private projects and sources that are searched although `where` does not name them; `*`: all."""
    weak: bool = False
    """Whether to return the nearest hits where nothing answers well; else none are returned."""
    profile: Profile = PROFILES["default"]
    now: datetime | None = None
    """Reference time for age; None: the clock."""
    as_of: datetime | None = None
    """Answer as if it were then: without what was said later, with what was replaced later; None: now."""
    sentences: int = 0
    """Number of first hits whose sentences are scored as answers."""
    lists: tuple[str, ...] = ()
    """Names of the candidate lists to ask, of `LISTS`; empty: all of the mode."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One episode of an answer.

    `score` is in [0, 1], comparable within one answer; `similarity` is the cosine of the best passage (None when the
    dense part did not answer). `passage` is the source of the excerpt. `also` lists the IDs of collapsed
    near-duplicates. `explanation` holds each list's rank and score if requested. `factor` is the product of the boosts
    for value and trust in the score. `second`: another shown passage of the episode that answers. `layer` is the
    episode's layer at the time of the query. `confidence`: confidence that it answers. `runs`: the sentences in and
    around both passages, if the query requests them.
    """

    episode: Episode
    score: float
    similarity: float | None
    passage: StoredPassage
    also: tuple[str, ...] = ()
    explanation: dict[str, Any] | None = None
    factor: float = 1.0
    second: StoredPassage | None = None
    layer: Layer = Layer.EPISODIC
    confidence: Confidence = Confidence.FAIR
    runs: Sequence[Run] = ()

    @property
    def passages(self) -> tuple[StoredPassage, ...]:
        """Return the passages of the excerpt."""
        return (self.passage,) if self.second is None else (self.passage, self.second)


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Hits, best first. `degraded` names the parts that did not answer and why, e.g. `dense: model is loading`, and the
    number of passages without vectors; without hits also the pending files. `explanation`, if requested: the candidates
    of each list, and the number left out by the threshold and by near-duplicate collapsing. `weak`: nothing answers
    well, and these are the nearest.
    """

    hits: list[Hit]
    took_ms: float
    model_id: str | None
    degraded: list[str]
    total_tokens: int
    explanation: dict[str, object] | None = None
    weak: bool = False
