"""Check exclusion rules, always in their current state."""

from collections.abc import Collection
from datetime import datetime

from anamnesis_pipeline.errors import Excluded
from anamnesis_pipeline.model import EXCLUDED, Episode, FileCursor, content_id
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, RuleSet
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES, SettingsRecords

RULES = "exclude."
"""Prefix of the stored settings with one rule each."""
MAX_NAMED = 3
"""Maximum entries that a sentence names."""
STAMP = "exclusion.stamp"
"""Setting whose value changes with every change of the rules."""


class Exclusions:
    """The rules, current at each call, which costs one read of the store. Safe to share."""

    def __init__(self, store: Store) -> None:
        self._settings = store.settings
        self._held: tuple[str, RuleSet] | None = None

    @property
    def stamp(self) -> str:
        """Return a value that changes with every change of the rules; empty: there never was one."""
        return str(self._settings.get(STAMP, ""))

    @property
    def noted(self) -> str:
        """Return the text stored for a file excluded by its project or content (`FileCursor.unread`). It changes with
        every change of the rules, and of project names.
        """
        aliases = self._settings.get(PROJECT_ALIASES, {})
        return f"{EXCLUDED} ({content_id(self.stamp, repr(sorted(aliases.items())))})"

    def of_path(self, machine: str, path: str) -> Rule | None:
        """Return the rule that excludes a file of a machine; `path` is absolute."""
        return self.now().of_path(machine, path)

    def of_project(self, project: str) -> Rule | None:
        """Return the rule that excludes a project, under any of its names."""
        return self.now().of_project(project)

    def of_session(self, session: str) -> Rule | None:
        """Return the rule that excludes a session."""
        return self.now().of_session(session)

    def of_content(self, text: str) -> Rule | None:
        """Return the rule that excludes a text."""
        return self.now().of_content(text)

    def of_bytes(self, data: bytes) -> Rule | None:
        """Return the rule that excludes a file with these bytes."""
        return self.now().of_bytes(data)

    def reason(self, machine: str, path: str, project: str = "") -> str | None:
        """Return why a file is excluded, as a sentence; None: it is not."""
        rules = self.now()
        rule = rules.of_path(machine, path) or (rules.of_project(project) if project else None)
        return sentence(rule) if rule else None

    def of_episode(self, episode: Episode) -> Rule | None:
        """Return the rule that excludes a posted episode."""
        return rule_of(self.now(), episode)

    def now(self) -> RuleSet:
        """Return the current rules, for callers with many questions at once."""
        stamp = self.stamp
        aliases = self._settings.get(PROJECT_ALIASES, {}) if stamp else {}
        if self._held is None or self._held[0] != stamp or self._held[1].aliases != aliases:
            self._held = stamp, RuleSet(tuple(stored_rules(self._settings)) if stamp else (), aliases)
        return self._held[1]


def rule_of(rules: RuleSet, episode: Episode) -> Rule | None:
    """Return the rule that excludes a posted episode. Pure."""
    return (
        rules.of_project(episode.project) or rules.of_content(content_of(episode)) or rules.of_content(episode.summary)
    )


def is_due_again(cursor: FileCursor, noted: str) -> bool:
    """Return whether a file was excluded by rules that have changed; `noted` is today's `Exclusions.noted`. Pure."""
    return cursor.unread.startswith(EXCLUDED) and cursor.unread != noted


def stored_rules(settings: SettingsRecords) -> list[Rule]:
    """Return all rules, the newest first."""
    rules = [
        Rule(**{**body, "kind": RuleKind(body["kind"]), "added_at": datetime.fromisoformat(body["added_at"])})
        for body in settings.all(RULES).values()
    ]
    return sorted(rules, key=lambda rule: (rule.added_at, rule.rule_id), reverse=True)


def sentence(rule: Rule) -> str:
    """Describe a rule for users."""
    where = f" on {rule.machine}" if rule.machine else ""
    shown = f"its {rule.kind}" if rule.kind in {RuleKind.CONTENT, RuleKind.CONTENT_PATTERN} else f"the {rule.kind} "
    value = "" if rule.kind in {RuleKind.CONTENT, RuleKind.CONTENT_PATTERN} else repr(rule.value)
    why = f": {rule.reason}" if rule.reason else ""
    return f"{shown}{value}{where} is excluded{why} ({rule.rule_id})"


def refuse(rule: Rule | None) -> None:
    """:raises Excluded: there is a rule."""
    if rule:
        raise Excluded(f"{sentence(rule)}; to lift it: anamnesis exclude remove, or DELETE /api/blocklist")


def kept_away_by(store: Store, ids: Collection[str]) -> str:
    """Return the commands that let the content of these ids in again, for users; empty: none of them is excluded."""
    entries = sorted(set(store.exclusion.entries_of(sorted(ids)).values()))
    more = f", and {len(entries) - MAX_NAMED:,} more" if len(entries) > MAX_NAMED else ""
    commands = " ".join(entries[:MAX_NAMED])
    return f"to let it in: anamnesis exclude remove {commands}{more}" if entries else ""


def content_of(episode: Episode) -> str:
    """Return the text that content rules compare."""
    return episode.raw_exchange or episode.summary
