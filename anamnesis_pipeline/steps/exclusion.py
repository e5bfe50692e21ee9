"""Rules that keep things away, asked as they are stored at that moment."""

from collections.abc import Collection
from datetime import datetime

from anamnesis_pipeline.errors import Excluded
from anamnesis_pipeline.model import EXCLUDED, Episode, FileCursor, content_id
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, RuleSet
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES, SettingsRecords

RULES = "exclude."
"""Prefix of the stored settings that hold a rule each."""
MOST_NAMED = 3
"""Entries that a sentence names."""
STAMP = "exclusion.stamp"
"""Setting that is another one after every change of the rules."""


class Exclusions:
    """The rules as they are at the moment of each question: asking costs one look at the store. Safe to share."""

    def __init__(self, store: Store) -> None:
        self._settings = store.settings
        self._held: tuple[str, RuleSet] | None = None

    @property
    def stamp(self) -> str:
        """Another one after every change of the rules; empty as long as there never was one."""
        return str(self._settings.get(STAMP, ""))

    @property
    def noted(self) -> str:
        """What is noted of a file that a rule keeps away by its project or its content (`FileCursor.unread`): another
        text after every change of the rules, and of what projects are called.
        """
        aliases = self._settings.get(PROJECT_ALIASES, {})
        return f"{EXCLUDED} ({content_id(self.stamp, repr(sorted(aliases.items())))})"

    def of_path(self, machine: str, path: str) -> Rule | None:
        """The rule that keeps a file of a machine away; `path` is absolute."""
        return self.now().of_path(machine, path)

    def of_project(self, project: str) -> Rule | None:
        """The rule that keeps a project away, whatever it is called."""
        return self.now().of_project(project)

    def of_session(self, session: str) -> Rule | None:
        """The rule that keeps a session away."""
        return self.now().of_session(session)

    def of_content(self, text: str) -> Rule | None:
        """The rule that keeps a text away."""
        return self.now().of_content(text)

    def of_bytes(self, data: bytes) -> Rule | None:
        """The rule that keeps a file with these bytes away."""
        return self.now().of_bytes(data)

    def reason(self, machine: str, path: str, project: str = "") -> str | None:
        """Why a file is kept away, as a sentence; None: it is not."""
        rules = self.now()
        rule = rules.of_path(machine, path) or (rules.of_project(project) if project else None)
        return sentence(rule) if rule else None

    def of_episode(self, episode: Episode) -> Rule | None:
        """The rule that keeps what a client posts away."""
        return rule_of(self.now(), episode)

    def now(self) -> RuleSet:
        """The rules of this moment, for who asks about many things at once."""
        stamp = self.stamp
        aliases = self._settings.get(PROJECT_ALIASES, {}) if stamp else {}
        if self._held is None or self._held[0] != stamp or self._held[1].aliases != aliases:
            self._held = stamp, RuleSet(tuple(stored_rules(self._settings)) if stamp else (), aliases)
        return self._held[1]


def rule_of(rules: RuleSet, episode: Episode) -> Rule | None:
    """The one of these rules that keeps what a client posts away. Pure."""
    return (
        rules.of_project(episode.project) or rules.of_content(content_of(episode)) or rules.of_content(episode.summary)
    )


def is_due_again(cursor: FileCursor, noted: str) -> bool:
    """Whether a rule kept a file away, and the rules are others by now; `noted` is today's `Exclusions.noted`. Pure."""
    return cursor.unread.startswith(EXCLUDED) and cursor.unread != noted


def stored_rules(settings: SettingsRecords) -> list[Rule]:
    """All rules, the newest first."""
    rules = [
        Rule(**{**body, "kind": RuleKind(body["kind"]), "added_at": datetime.fromisoformat(body["added_at"])})
        for body in settings.all(RULES).values()
    ]
    return sorted(rules, key=lambda rule: (rule.added_at, rule.rule_id), reverse=True)


def sentence(rule: Rule) -> str:
    """What a rule says, for people."""
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
    """The commands that let what these ids are of in again, for people; empty: nothing keeps any of them away."""
    entries = sorted(set(store.exclusion.entries_of(sorted(ids)).values()))
    more = f", and {len(entries) - MOST_NAMED:,} more" if len(entries) > MOST_NAMED else ""
    commands = " ".join(entries[:MOST_NAMED])
    return f"to let it in: anamnesis exclude remove {commands}{more}" if entries else ""


def content_of(episode: Episode) -> str:
    """What a rule by content tells an episode by."""
    return episode.raw_exchange or episode.summary
