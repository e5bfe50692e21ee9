"""Exclusion rules by path, session, project, glob and content: excluded items are never imported again. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

import re2

from anamnesis_pipeline.errors import RuleRefused
from anamnesis_pipeline.model import content_id
from anamnesis_pipeline.parsing.text.file_names import composed, log_stem
from anamnesis_pipeline.sources.ignore_patterns import expression_of

RULE_ID = "rule-"
"""Prefix of every rule ID; no episode ID of this system has it."""
MAX_CHARS = 4_096
_SHA256_CHARS = 64
_EPOCH = datetime.fromtimestamp(0, UTC)


class RuleKind(StrEnum):
    """Kind of an exclusion rule: by path, session, project, pattern of paths, pattern of texts, or hash of a file."""

    PATH = "path"
    """A file, or a folder with everything below it."""
    SESSION = "session"
    PROJECT = "project"
    """A project by any of its names and aliases; `api` also means `acme/api`."""
    PATTERN = "pattern"
    """Paths, in the syntax of one line of a `.gitignore`, from the root of the file system."""
    CONTENT_PATTERN = "content-pattern"
    """A regular expression (RE2) that matches in a text."""
    CONTENT = "content"
    """SHA-256 of a file's bytes, or of a text as UTF-8, in hex."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `machine` restricts path rules; empty: every machine. `episode_id`: the episode that it was made from;
    `label`: a readable name of that item, e.g. a file name.
    """

    kind: RuleKind
    value: str
    machine: str = ""
    reason: str = ""
    added_at: datetime = _EPOCH
    episode_id: str = ""
    label: str = ""

    @property
    def rule_id(self) -> str:
        """Return an ID that is the same for equal rules, independent of the reason."""
        return f"{RULE_ID}{content_id(self.kind, self.value, self.machine)}"


def checked(rule: Rule) -> Rule:
    """Return the rule in its stored form.

    :raises RuleRefused: the value is invalid for its kind.
    """
    value = rule.value if rule.kind is RuleKind.CONTENT_PATTERN else rule.value.strip()
    if not value.strip() or len(value) > MAX_CHARS or "\0" in value:
        raise RuleRefused(f"a rule by {rule.kind} needs 1 to {MAX_CHARS:,} characters that say something")
    if rule.kind is RuleKind.PATH:
        value = value.replace("\\", "/") if value[1:2] == ":" else value
        value = value.rstrip("/") or "/"
        if not (value.startswith("/") or value[1:3] == ":/"):
            raise RuleRefused(f"a path is absolute, as its machine names it; {value!r} is not; by name use a pattern")
    elif rule.kind is RuleKind.CONTENT:
        value = value.lower()
        if len(value) != _SHA256_CHARS or not all(c in "0123456789abcdef" for c in value):
            raise RuleRefused("a rule by content needs a SHA-256: 64 hexadecimal digits")
    elif rule.kind in {RuleKind.PATTERN, RuleKind.CONTENT_PATTERN}:
        _compiled(rule.kind, value)
    return Rule(rule.kind, value, rule.machine, rule.reason, rule.added_at, rule.episode_id, rule.label)


def sha256_of(data: bytes | str) -> str:
    """Return the digest by which a content rule identifies these bytes or this text."""
    return hashlib.sha256(data.encode("utf-8", "replace") if isinstance(data, str) else data).hexdigest()


@dataclass(frozen=True)
class RuleSet:
    """A compiled set of rules. If several match, the first kind in the order of `RuleKind` is reported.

    `aliases`: project -> its other names.
    """

    rules: tuple[Rule, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)

    def of_path(self, machine: str, path: str) -> Rule | None:
        """Return the rule that excludes a file of a machine; `path` is absolute."""
        path = composed(path)
        names: list[tuple[RuleKind, str]] = []
        if self._by_path:
            place = path
            while place:  # the path and every folder above it
                names.append((RuleKind.PATH, place))
                place = place.rpartition("/")[0]
            names += [(RuleKind.PATH, "/"), *((RuleKind.SESSION, log_stem(part)) for part in path.split("/"))]
        found = (rule for name in names for rule in self._by_path.get(name, ()) if rule.machine in {"", machine})
        if rule := next(found, None):
            return rule
        if not self._globs:
            return None
        inside = _plain(path).lstrip("/")
        if not self._any_glob.search(inside):
            return None
        return next((rule for rule, glob in self._globs if rule.machine in {"", machine} and glob.search(inside)), None)

    def of_project(self, project: str) -> Rule | None:
        """Return the rule that excludes a project under any of its names."""
        if not self._projects:
            return None
        name = _called(self.aliases, composed(project))
        tails = (name[at + 1 :] for at, char in enumerate(name) if char == "/")
        return next((rule for tail in (name, *tails) if (rule := self._projects.get(tail))), None)

    def of_session(self, session: str) -> Rule | None:
        """Return the rule that excludes a session; for an imported conversation, only its ID identifies it."""
        found = self._by_path.get((RuleKind.SESSION, session), ()) if session and self._by_path else ()
        return next((rule for rule in found if not rule.machine), None)

    def of_content(self, text: str) -> Rule | None:
        """Return the rule that excludes a text."""
        if self._contents and (rule := self._contents.get(sha256_of(text))):
            return rule
        if not self._expressions:
            return None
        plain = _plain(text)
        return next((rule for rule, expression in self._expressions if expression.search(plain)), None)

    def of_bytes(self, data: bytes) -> Rule | None:
        """Return the rule that excludes a file with these bytes."""
        return self._contents.get(sha256_of(data)) if self._contents else None

    def _of(self, kind: RuleKind) -> Iterable[Rule]:
        return (rule for rule in self.rules if rule.kind is kind)

    @cached_property
    def _by_path(self) -> dict[tuple[RuleKind, str], list[Rule]]:
        found: dict[tuple[RuleKind, str], list[Rule]] = {}
        for rule in (*self._of(RuleKind.PATH), *self._of(RuleKind.SESSION)):
            found.setdefault((rule.kind, composed(rule.value)), []).append(rule)
        return found

    @cached_property
    def _projects(self) -> dict[str, Rule]:
        return {_called(self.aliases, composed(rule.value)): rule for rule in self._of(RuleKind.PROJECT)}

    @cached_property
    def _contents(self) -> dict[str, Rule]:
        return {rule.value: rule for rule in self._of(RuleKind.CONTENT)}

    @cached_property
    def _globs(self) -> list[tuple[Rule, Any]]:
        return [(rule, _compiled(rule.kind, composed(rule.value))) for rule in self._of(RuleKind.PATTERN)]

    @cached_property
    def _any_glob(self) -> Any:
        """All globs in one expression, since most paths match none."""
        return re2.compile("|".join(f"(?:{_of_glob(composed(rule.value))})" for rule in self._of(RuleKind.PATTERN)))

    @cached_property
    def _expressions(self) -> list[tuple[Rule, Any]]:
        return [(rule, _compiled(rule.kind, rule.value)) for rule in self._of(RuleKind.CONTENT_PATTERN)]


def _called(aliases: Mapping[str, str], name: str) -> str:
    while name in aliases:
        name = aliases[name]
    return name


def _of_glob(pattern: str) -> str:
    """Return a `.gitignore` line as an expression for file paths without the leading `/`."""
    found = expression_of(pattern)
    if found is None or found.negated:
        raise RuleRefused(f"{pattern!r} names no path: a pattern is a line of a .gitignore without a leading ! or #")
    return f"(?s:^(?:{found.source}){'/.*' if found.folders_only else '(?:/.*)?'}$)"


def _plain(text: str) -> str:
    """Return the text in valid UTF-8: the bytes of a name that is not UTF-8 come as surrogates."""
    return text.encode("utf-8", "replace").decode()


def _compiled(kind: RuleKind, value: str) -> Any:
    """Compile an expression with RE2, whose run time is linear in the text for any expression."""
    if kind is RuleKind.PATTERN:
        value = _of_glob(value)
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(value, options)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else ""
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise RuleRefused(f"{kind} is no regular expression that RE2 knows: {reason}") from None
