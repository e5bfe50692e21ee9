"""What detectors are, and what they see of the memory."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.knowledge.statements import Claim, Weights, claim_of
from anamnesis_pipeline.model import HOLDING, EpisodeHead
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Evidence, Kind, Observation, Proposal, Signal

MAX_SAME = 200
"""Observations of one thing that are compared."""
MAX_STATEMENTS = 20_000
"""Statements of a project that are compared, the newest ones: some 10 MB."""
MAX_ERRORS = 500
"""Errors of a project that are compared, the newest ones."""
MAX_PROJECTS = 4
"""Projects whose statements are in memory at once."""
MAX_HAVING = 500
"""Statements that may share a word which finds others; one that more have says nothing of the subject."""
MAX_NEAR = 12
ROUNDING = 1e-9
"""By which sums of the same weights differ."""
TITLE_CHARS = 100
MAX_KEPT = 20_000
"""Episodes, without their texts, that are in memory at once."""
STATED = (
    Signal.NOTE,
    Signal.TOPIC,
    Signal.DECISION,
    Signal.PREFERENCE,
    Signal.FACT,
    Signal.CORRECTION,
    Signal.CHANGE,
    Signal.REQUEST,
)
"""Signals of what states something, or asks for it; requests say nothing of which words are rare."""


class Meanings:
    """Cosines of a sentence to others like it. All are embedded when the first is asked for, since many detectors ask
    for none.
    """

    def __init__(self, text: str, others: Sequence[str], vectors: dict[str, NDArray[np.float32]], by: Embedder) -> None:
        """:param vectors: of sentences that were embedded before; gets those of these."""
        self._text, self._others, self._vectors, self._embedder = text, others, vectors, by

    def cosine(self, other: str) -> float:
        """Return the cosine of the sentence and one of the others."""
        texts = dict.fromkeys([self._text, *self._others])
        if lacking := [each for each in texts if each not in self._vectors]:
            self._vectors |= dict(zip(lacking, self._embedder.embed(lacking, "passage"), strict=True))
        return float(self._vectors[self._text] @ self._vectors[other])


@dataclass(frozen=True, slots=True)
class Near:
    """A statement like another one. `alike`: by words, in [0, 1]."""

    observation: Observation
    claim: Claim
    alike: float
    shared: float
    meanings: Meanings | None

    @property
    def cosine(self) -> float | None:
        """Return how alike they are by meaning, in [0, 1], if meanings are compared."""
        return self.meanings.cosine(self.claim.text) if self.meanings is not None else None


class Statements:
    """What was stated in a project, by the words that it has."""

    def __init__(self, found: Sequence[Observation], embedder: Embedder | None) -> None:
        self._observations = list(found)
        self._claims = [claim_of(each.quote) for each in found]
        stated = zip(self._observations, self._claims, strict=True)
        self._weights = Weights([claim for each, claim in stated if each.signal is not Signal.REQUEST])
        having: dict[str, list[int]] = {}
        for place, claim in enumerate(self._claims):
            for stem in claim.stems:
                having.setdefault(stem, []).append(place)
        self._having = {stem: np.array(places) for stem, places in having.items()}
        self._totals = np.array([self._weights.of(claim.stems) for claim in self._claims])
        self._signals = np.array([each.signal.value for each in found])
        self._embedder = embedder
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def near(self, of: Observation, signals: Collection[Signal], most: int = MAX_NEAR) -> list[Near]:
        """Return statements of these signals that share words with one, but for itself, the most alike first."""
        claim = claim_of(of.quote)
        rated = sorted(
            (
                (self._weights.alike(claim, self._claims[place]), place)
                for place in self._foremost(of, claim, signals, most)
            ),
            key=lambda each: (-each[0], each[1]),
        )[:most]
        found = [(self._observations[place], self._claims[place], alike) for alike, place in rated]
        meanings = None
        if self._embedder is not None:
            meanings = Meanings(of.quote, [other.text for _, other, _ in found], self._vectors, self._embedder)
        return [
            Near(observation, other, alike, self._weights.shared(claim, other), meanings)
            for observation, other, alike in found
        ]

    def _foremost(self, of: Observation, claim: Claim, signals: Collection[Signal], most: int) -> list[int]:
        """Return the places of the most alike statements: `most`, and more if the last of them are equally alike.

        The sums are those of `Weights.alike`, over all statements at once, and equal to it but for rounding.
        """
        having = {stem: self._having[stem] for stem in claim.stems if stem in self._having}
        telling = [places for places in having.values() if len(places) <= MAX_HAVING]
        places = np.unique(np.concatenate(telling)) if telling else np.array([], int)
        places = places[np.isin(self._signals[places], [signal.value for signal in signals])]
        places = np.array([place for place in places if self._observations[place].number != of.number], int)
        if len(places) <= most:
            return list(places)
        common = np.zeros(len(self._claims))
        for stem, its in having.items():
            common[its] += self._weights.of([stem])
        alike = common[places] / (self._weights.of(claim.stems) + self._totals[places] - common[places])
        return list(places[alike >= np.partition(alike, -most)[-most] - ROUNDING])


@dataclass(slots=True)
class Memory:
    """The memory as a run of detectors sees it; what it reads is kept for the run.

    `embedder`: compares meanings; None: words alone are compared.
    """

    store: Store
    now: datetime
    embedder: Embedder | None = None
    checked: set[str] = field(default_factory=set)
    """Projects that were looked at as a whole in this run."""
    _episodes: dict[str, EpisodeHead] = field(default_factory=dict)
    _statements: dict[str, Statements] = field(default_factory=dict)
    _errors: dict[str, list[Observation]] = field(default_factory=dict)

    def same(self, of: Observation) -> list[Observation]:
        """Return the observations of the same thing in its project, in episodes that hold."""
        found = self.store.observations.same(of.signal, of.key, MAX_SAME)
        return self.holding([each for each in found if each.project == of.project])

    def errors(self, project: str) -> list[Observation]:
        """Return the errors of a project that were seen last, in episodes that hold."""
        if project not in self._errors:
            if len(self._errors) >= MAX_PROJECTS:
                self._errors.clear()
            self._errors[project] = self.store.observations.of_project([Signal.ERROR], project, MAX_ERRORS)
        return self.holding(self._errors[project])

    def statements(self, project: str) -> Statements:
        """Return what was stated in a project, in episodes that hold."""
        if project not in self._statements:
            if len(self._statements) >= MAX_PROJECTS:
                self._statements.clear()
            found = self.store.observations.of_project(STATED, project, MAX_STATEMENTS)
            self._statements[project] = Statements(self.holding(found), self.embedder)
        return self._statements[project]

    def holding(self, found: Sequence[Observation]) -> list[Observation]:
        """Return those that are in episodes that hold."""
        episodes = self.episodes({each.episode_id for each in found})
        return [each for each in found if each.episode_id in episodes and episodes[each.episode_id].status in HOLDING]

    def episodes(self, ids: Collection[str]) -> dict[str, EpisodeHead]:
        """Return id -> episode, for those that exist."""
        if len(self._episodes) > MAX_KEPT:
            self._episodes.clear()
        self._episodes |= self.store.episodes.heads([each for each in ids if each not in self._episodes])
        return {each: self._episodes[each] for each in ids if each in self._episodes}


class Detector(Protocol):
    """Finds proposals of one kind."""

    @property
    def kind(self) -> Kind:
        """The kind of its proposals."""

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What it looks at."""

    @property
    def looks_back(self) -> timedelta | None:
        """Age at which an observation is looked at once more; None: never."""

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield the proposals that new observations give reason for."""


def quoted(observation: Observation) -> list[Evidence]:
    """Return its quote, and its answer where that is in another place."""
    own = Evidence(observation.episode_id, observation.quote, observation.message_id, observation.at)
    if not observation.answer or observation.answer == observation.quote:
        return [own]
    return [own, Evidence(observation.answer_id, observation.answer, "", observation.at)]


def headline(text: str, most: int = TITLE_CHARS) -> str:
    """Return a text as a title of at most so many characters: one line that ends with a whole word."""
    plain = " ".join(text.split())
    first = plain.split(" ", 1)[0].rstrip(",.:;!")
    plain = plain[:1].upper() + plain[1:] if first.isalpha() and first.islower() else plain
    if len(plain) <= most:
        return plain
    cut = plain[: most - 1].rsplit(" ", 1)[0][: most - 2]
    return f"{cut.rstrip(',.:; ')} …"


def sessions_in(found: Sequence[Observation]) -> set[str]:
    """Return the sessions in which these were observed."""
    return {each.session_id or each.episode_id for each in found}
