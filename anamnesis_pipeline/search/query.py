"""What can be asked of the memory, and what comes back. Frozen values, no behaviour."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from anamnesis_pipeline.memory_layers import Layer
from anamnesis_pipeline.model import Episode, StoredPassage, Where
from anamnesis_pipeline.search.best_sentences import Run
from anamnesis_pipeline.search.floor import Confidence
from anamnesis_pipeline.search.profiles import PROFILES, Profile


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

    :param top_k: most episodes to return, 1 to 100.
    :param min_score: cosine below which a hit is dropped; None or 0: no floor.
    :param max_tokens: budget for summaries and excerpts together (4 characters count as one token).
    """

    text: str
    top_k: int = 5
    mode: Mode = Mode.HYBRID
    where: Where = field(default_factory=Where)
    min_score: float | None = None
    max_tokens: int | None = None
    fold: bool = True
    track: bool = True
    explain: bool = False
    include_private: tuple[str, ...] = ()
    """Private projects and sources that are searched although `where` names none; `*`: all."""
    weak: bool = False
    """Whether the nearest are wanted where nothing answers well; else nothing is found."""
    profile: Profile = PROFILES["default"]
    now: datetime | None = None
    """What age is counted to; None: the clock."""
    sentences: int = 0
    """So many of the first hits tell how well each of their sentences answers."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One episode of an answer.

    `score` is in [0, 1] and compares within one answer; `similarity` is the cosine of the best passage (None when
    the dense part did not answer). `passage` is the one whose text is the excerpt. `also` lists the ids of folded
    near-duplicates. `explanation` holds each list's rank and score when asked for. `factor` is what the score was
    multiplied with, for what the episode is worth and how far it may be relied on. `second`: another passage of the
    episode that answers, and is shown as well. `layer` is where the episode was when it was asked for.
    `confidence`: how sure it is that it answers. `runs`: the sentences of both passages and around them, if the query
    wants them.
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
        """What the excerpt is made of."""
        return (self.passage,) if self.second is None else (self.passage, self.second)


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Hits, best first. `degraded` names the parts that did not answer and why, e.g. `dense: model is loading`, and how
    many passages have no vectors yet; without hits also what is still to be read. `explanation`, if asked for: what
    each list proposed, and how much the floor and folding left out. `weak`: nothing answers well, and these are the
    nearest.
    """

    hits: list[Hit]
    took_ms: float
    model_id: str | None
    degraded: list[str]
    total_tokens: int
    explanation: dict[str, object] | None = None
    weak: bool = False
