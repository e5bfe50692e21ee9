"""The configured LLM, the chunks that it may see, and its budget."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath

from anamnesis_pipeline.llm.provider import Provider
from anamnesis_pipeline.model import LlmBudget, Part
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.parsing.claude_logs.value import MIN_VALUE, WEIGHTS, value_of
from anamnesis_pipeline.pipeline.crawl import Mask
from anamnesis_pipeline.pipeline.projects import GUESSED, project_aliases, project_labels
from anamnesis_pipeline.search.project_labels import is_private
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import store_name

AGAINST = {
    "no LLM": "no LLM is set; see the setting summarizer",
    "short": "the text is short enough to be its own summary; see the setting summary_min_chars",
    "low value": "too little is said for an LLM to be asked; see the setting summary_min_value",
    "code": "of code the outline says what an LLM would",
    "private": "the text may not leave this machine; see the settings local_only and private_projects, and the "
    "private sources",
}
"""Why no LLM is asked about a chunk."""


@dataclass(frozen=True, slots=True)
class LlmRules:
    """Which chunks an LLM may see, and its budget; see the settings of these names.

    `min_chars`: of a chunk's text. `weights`: points of each value rule. `private_projects`: a bare name also means
    `acme/name`.
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
    """The configured LLM. `open` is called only when needed; None: no LLM.

    `open` raises BadSetting or LlmRefused. `mask` removes the secrets from each reply.
    """

    open: Callable[[], Provider] | None = None
    rules: LlmRules = field(default_factory=LlmRules)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    mask: Mask = lambda reply: (reply, Counter())
    private_sources: Callable[[], frozenset[str]] = frozenset
    """Keys of private sources, whose text stays on this machine."""


def length_of(part: Part) -> int:
    """Return the number of characters in a chunk's segments."""
    return sum(len(segment.text) for segment in part.segments)


def doubtful_private(store: Store, names: Sequence[str]) -> list[str]:
    """Return a warning for each of `private_projects` that matches no known project or folder: maybe a typo."""
    known = [name.casefold() for name in (*store.projects.all(), *project_aliases(store))]
    return [
        f"private_projects: nothing that was read so far is of {name!r}; anamnesis projects lists what is"
        for name in names
        if known and not any(is_private(label, [name]) or label.startswith(f"{name.casefold()}/") for label in known)
    ]


class LlmChoice:
    """Decides which chunks an LLM may see."""

    def __init__(
        self, store: Store, rules: LlmRules, *, is_local: bool, private_sources: frozenset[str] = frozenset()
    ) -> None:
        """:param is_local: text sent to the LLM stays on this machine.
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
        """Return why no LLM may see a chunk: `code`, `short`, `low value` or `private`; empty: it may."""
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
        """Return whether a chunk is private: by its source, or a source of the same text; by the project in which its
        session began, the one assigned to it or a copy since, that of its directory, or a folder above. If any project
        is private, a chunk whose machine could not be asked for its project is private, too. A subagent's chunk is
        private if its session is or is unknown.
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
        """Return the names that a project in a directory may have."""
        directory = PurePosixPath(project_label(cwd))
        return {self._label(cwd), *map(str, (directory, *directory.parents))}
