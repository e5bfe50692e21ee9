"""Which parts an LLM may be asked about, and what the asking may cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from anamnesis_pipeline.exchanges.projects import project_label
from anamnesis_pipeline.exchanges.value import MIN_VALUE, WEIGHTS, value_of
from anamnesis_pipeline.model import Part
from anamnesis_pipeline.steps.projects import project_aliases, project_labels
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.project_names import store_name
from anamnesis_pipeline.summary_model import LlmBudget

AGAINST = {
    "no LLM": "no LLM is set; see the setting summarizer",
    "low value": "too little is said for an LLM to be asked; see the setting summary_min_value",
    "private": "the text may not leave this machine; see the settings local_only and private_projects",
}
"""Why no LLM is asked about a part."""


@dataclass(frozen=True, slots=True)
class LlmRules:
    """Which parts an LLM may see, and how much it may cost; see the settings of these names.

    `private_projects`: a bare name also means `acme/name`. `weights`: points of every rule of the value.
    """

    min_value: float = MIN_VALUE
    weights: Mapping[str, float] = field(default_factory=lambda: WEIGHTS)
    budget: LlmBudget = field(default_factory=LlmBudget)
    requests_per_minute: int = 50
    batch_min: int = 100
    private_projects: tuple[str, ...] = ()
    local_only: bool = False


def is_private(project: str, names: Sequence[str]) -> bool:
    """Whether a project is one of those whose text stays here; `api` also means `acme/api`."""
    label = project.casefold()
    return any(label == name.casefold() or label.endswith("/" + name.casefold()) for name in names)


class LlmChoice:
    """Which parts an LLM may be asked about."""

    def __init__(self, store: Store, rules: LlmRules, *, is_local: bool) -> None:
        """:param is_local: the LLM's text stays on this machine."""
        self._rules = rules
        self._is_local = is_local
        self._session_start = store.ingest.session_start
        self._aliases = project_aliases(store)
        self._label = project_labels(store.settings)

    def against(self, part: Part) -> str:
        """Why no LLM is asked about a part, `low value` or `private`; empty: one may be."""
        if value_of(part, self._rules.weights).score < self._rules.min_value:
            return "low value"
        if not self._is_local and (self._rules.local_only or self._is_private(part)):
            return "private"
        return ""

    def _is_private(self, part: Part) -> bool:
        """By the project that its session began in, by that of its own directory, or by a folder around that one. So is
        a subagent's if its session is, or if nothing is known of that.
        """
        names = {part.project, *self._names(part.cwd)}
        if part.agent_id and self._rules.private_projects:
            start = self._session_start(part.session_id)
            if start is None:
                return True
            names |= {start[0], *self._names(start[1])}
        names |= {store_name(self._aliases, name) for name in names}
        return any(is_private(name, self._rules.private_projects) for name in names)

    def _names(self, cwd: str) -> set[str]:
        """What a project may be called for the sake of a directory."""
        directory = PurePosixPath(project_label(cwd))
        return {self._label(cwd), *map(str, (directory, *directory.parents))}
