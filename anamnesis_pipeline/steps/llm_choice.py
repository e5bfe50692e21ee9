"""The configured LLM, which parts it may be asked about, and what the asking may cost."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath

from anamnesis_pipeline.exchanges.projects import project_label
from anamnesis_pipeline.exchanges.value import MIN_VALUE, WEIGHTS, value_of
from anamnesis_pipeline.model import Part
from anamnesis_pipeline.search.project_labels import is_private
from anamnesis_pipeline.steps.crawl import Mask
from anamnesis_pipeline.steps.projects import GUESSED, project_aliases, project_labels
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import store_name
from anamnesis_pipeline.summaries.base import SummaryBackend
from anamnesis_pipeline.summary_model import LlmBudget

AGAINST = {
    "no LLM": "no LLM is set; see the setting summarizer",
    "short": "the text is short enough to be its own summary; see the setting summary_min_chars",
    "low value": "too little is said for an LLM to be asked; see the setting summary_min_value",
    "code": "of code the outline says what an LLM would",
    "private": "the text may not leave this machine; see the settings local_only and private_projects, and the "
    "private sources",
}
"""Why no LLM is asked about a part."""


@dataclass(frozen=True, slots=True)
class LlmRules:
    """Which parts an LLM may see, and how much it may cost; see the settings of these names.

    `min_chars`: of a part's text. `weights`: points of every rule of the value. `private_projects`: a bare name also
    means `acme/name`.
    """

    min_chars: int = 0
    min_value: float = MIN_VALUE
    weights: Mapping[str, float] = field(default_factory=lambda: WEIGHTS)
    budget: LlmBudget = field(default_factory=LlmBudget)
    requests_per_minute: int = 50
    batch_min: int = 100
    private_projects: tuple[str, ...] = ()
    local_only: bool = False


@dataclass(frozen=True, slots=True)
class Llm:
    """The configured LLM. `open` is called only when there is something to ask; None: there is no LLM.

    `open` raises BadSetting or LlmRefused for what is missing. `mask` takes the secrets out of each reply.
    """

    open: Callable[[], SummaryBackend] | None = None
    rules: LlmRules = field(default_factory=LlmRules)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    mask: Mask = lambda reply: (reply, Counter())
    private_sources: Callable[[], frozenset[str]] = frozenset
    """Keys of the sources whose text stays here."""


def length_of(part: Part) -> int:
    """Characters of all that was said and done in a part."""
    return sum(len(segment.text) for segment in part.segments)


def doubtful_private(store: Store, names: Sequence[str]) -> list[str]:
    """A warning for each of `private_projects` that no known project is called by, nor lies in: maybe a slip."""
    known = [name.casefold() for name in (*store.projects.all(), *project_aliases(store))]
    return [
        f"private_projects: nothing that was read so far is of {name!r}; anamnesis projects lists what is"
        for name in names
        if known and not any(is_private(label, [name]) or label.startswith(f"{name.casefold()}/") for label in known)
    ]


class LlmChoice:
    """Which parts an LLM may be asked about."""

    def __init__(
        self, store: Store, rules: LlmRules, *, is_local: bool, private_sources: frozenset[str] = frozenset()
    ) -> None:
        """:param is_local: the LLM's text stays on this machine.
        :param private_sources: keys of sources whose text may not leave it.
        """
        self._private_sources = private_sources
        self._documents = store.documents
        self._occurrences_of = store.messages.occurrences_of
        self._rules = rules
        self._is_local = is_local
        self._session_start = store.projects.session_start
        self._projects_of = store.projects.projects_of
        self._aliases = project_aliases(store)
        self._label = project_labels(store.settings)
        self._guesses = frozenset(map(str, store.settings.all(GUESSED).values()))

    def against(self, part: Part) -> str:
        """Why no LLM is asked about a part, `code`, `short`, `low value` or `private`; empty: one may be."""
        if part.kind == "code":
            return "code"
        if length_of(part) < self._rules.min_chars:
            return "short"
        if value_of(part, self._rules.weights).score < self._rules.min_value:
            return "low value"
        if not self._is_local and (self._rules.local_only or self._is_private(part)):
            return "private"
        return ""

    def _is_private(self, part: Part) -> bool:
        """By its source, or one that holds the same text; by the project that its session began in, by the one that
        somebody gave it, or a copy of it, since; by that of its own directory, or by a folder around that one; where
        any project is private, also if its machine could not be asked for its project yet. So is a subagent's if its
        session is, or if nothing is known of that.
        """
        if self._is_of_private_source(part):
            return True
        if not self._rules.private_projects:
            return False
        if part.project in self._guesses:
            return True
        copies = self._documents.same_text([part.part_id]) if part.section else ()
        names = {part.project, *self._names(part.cwd), *self._projects_of([part.part_id, *copies])}
        if part.agent_id:
            start = self._session_start(part.session_id)
            if start is None:
                return True
            names |= {start[0], *self._names(start[1])}
        names |= {store_name(self._aliases, name) for name in names}
        return any(is_private(name, self._rules.private_projects) for name in names)

    def _is_of_private_source(self, part: Part) -> bool:
        if not self._private_sources:
            return False
        if part.section:
            copies = self._documents.files_of([part.part_id, *self._documents.same_text([part.part_id])])
            return bool(self._private_sources & {part.source, *(source for source, _ in copies)})
        seen = self._occurrences_of([segment.message_key for segment in part.segments])
        return bool(self._private_sources & {part.source, *(source for source, _ in seen)})

    def _names(self, cwd: str) -> set[str]:
        """What a project may be called for the sake of a directory."""
        directory = PurePosixPath(project_label(cwd))
        return {self._label(cwd), *map(str, (directory, *directory.parents))}
