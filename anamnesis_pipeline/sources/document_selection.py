"""Select the documents to read from a survey, with a reason for each file left out. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.sources.base import IGNORE_FILES, Survey, is_archived
from anamnesis_pipeline.sources.ignore_patterns import IgnoreFiles, Patterns
from anamnesis_pipeline.sources.selection import Names
from anamnesis_pipeline.sources.specs import SourceSpec

LARGER = 50
"""Factor by which a file of another format may exceed the limit of a text."""
EXAMPLES = 5
"""Files named for each reason."""
HIDDEN_BUT_READ = frozenset({".claude", ".github"})
_CLAUDE = ".claude"
_NOT_OF_CLAUDE = frozenset({"plugins", "file-history", "shell-snapshots", "todos", "debug", "cache", "worktrees"})
"""Folders of Claude Code with no text written for readers."""
_EXPORTS = frozenset({"conversations.json"})
"""Names of exports of all chats: texts without a size limit."""
_EVERY_NAME = ""
_GLOB = frozenset("*?[")

Excluded = Callable[[str], str | None]
"""Path relative to the root -> the reason of an exclusion rule; None: not excluded."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Selection settings beside the source itself. `format_of`: path -> format; None: not read. `large` formats may
    exceed the size limit. Folders whose name matches a glob of `skip` are not entered.
    """

    format_of: Callable[[str], str | None]
    large: Collection[str] = ()
    skip: tuple[str, ...] = ()
    excluded: Excluded = lambda path: None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files to read, the number of files and folders left out for each reason, and the first few of each.
    `too_large`: paths left out only for their size; content read while they were smaller stays.
    """

    files: tuple[FileStat, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    too_large: frozenset[str] = frozenset()


def chosen(survey: Survey, spec: SourceSpec, rules: Rules) -> Chosen:
    """Return the documents among the files of a survey, in its order. `.gitignore` counts as in git at every level; a
    nested repository uses only its own. `.anamnesisignore` has the same syntax and wins; an empty one excludes
    everything in its folder. A link is read if its target would be.
    """
    reason = _Reasons(survey, spec, rules)
    files: list[FileStat] = []
    left_out: Counter[str] = Counter()
    examples: dict[str, tuple[str, ...]] = {}
    too_large: set[str] = set()

    def leave_out(why: str, path: str) -> None:
        left_out[why] += 1
        if left_out[why] <= EXAMPLES:
            examples[why] = (*examples.get(why, ()), path)

    for folder in survey.skipped:
        leave_out(reason.of_skipped(folder), f"{folder}/")
    for file in survey.files or ():
        target = survey.links.get(file.path)
        why = reason(file) or (reason(replace(file, path=target)) if target is not None else None)
        if why is None:
            files.append(file)
            continue
        leave_out(why, file.path)
        if file.size > spec.max_file_bytes and reason(replace(file, path=target or file.path, size=1)) is None:
            too_large.add(file.path)
    return Chosen(tuple(files), dict(left_out.most_common()), examples, frozenset(too_large))


def names_of(spec: SourceSpec) -> tuple[str, ...]:
    """Return name globs, one of which every file included by `spec` matches; empty: any name may be included."""
    names = [_name_of(pattern) for pattern in spec.include if not pattern.startswith(("!", "#")) and pattern.strip()]
    return () if _EVERY_NAME in names else tuple(dict.fromkeys(names))


def _name_of(pattern: str) -> str:
    """Return the last segment of a pattern, unless the pattern may also match a folder and the files below it."""
    last = pattern.rstrip().rpartition("/")[2]
    is_plain = not _GLOB & set(last)
    may_be_folder = is_plain and "." not in last
    return _EVERY_NAME if last in {"", "*", "**"} or may_be_folder or "\\" in last or "[" in last else last


class _Reasons:
    """Reasons for leaving files out; None: a file is not left out."""

    def __init__(self, survey: Survey, spec: SourceSpec, rules: Rules) -> None:
        self._spec, self._rules = spec, rules
        self._include = Patterns(spec.include) if spec.include else None
        self._exclude = Patterns(spec.exclude) if spec.exclude else None
        self._ignores = IgnoreFiles(survey.ignores, survey.repositories)
        self._skip = Names(rules.skip, is_exact=True)
        self._of_folder = lru_cache(maxsize=None)(self._why_not_folder)

    def __call__(self, file: FileStat) -> str | None:
        path = file.path
        folder, _, name = path.rpartition("/")
        if folder and (why := self._of_folder(folder)):
            return why
        if self._include is not None and not self._include.cover(path):
            return "not included by a pattern"
        if why := self._of_file(file, folder, name):
            return why
        if self._exclude is not None and self._exclude.cover(path):
            return "excluded by a pattern"
        if why := self._ignores.why(path):
            return why
        rule = self._rules.excluded(path)
        return f"excluded: {rule}" if rule is not None else None

    def _of_file(self, file: FileStat, folder: str, name: str) -> str | None:
        """Return the reason that lies in the format or the size."""
        path, rules = file.path, self._rules
        if is_archived(path) or path.endswith(".jsonl"):
            return "a log, which is read as one"
        if rules.format_of(path) is None or name in IGNORE_FILES:
            return "of no format that is read, or a key, lock or minified file"
        if _CLAUDE in folder.split("/") and not path.lower().endswith(".md"):
            return "Claude Code's own, but no Markdown"
        is_large = rules.format_of(name) in rules.large or name in _EXPORTS
        most = self._spec.max_file_bytes * (LARGER if is_large else 1)
        if file.size > most:
            return f"larger than {most / (1 << 20):,.4g} MiB"
        return None if file.size else "empty"

    def of_skipped(self, folder: str) -> str:
        """Return why a folder was not entered."""
        is_named = folder.rpartition("/")[2] in self._skip
        return "folders that `crawl_skip` names, not looked into" if is_named else "hidden folders, not looked into"

    def _why_not_folder(self, folder: str) -> str | None:
        """Return the reason for the folder itself or a folder around it."""
        above, _, name = folder.rpartition("/")
        if above and (why := self._of_folder(above)):
            return why
        if name in self._skip or name == ".git":
            return "in a folder that is skipped"
        if name.startswith(".") and name not in HIDDEN_BUT_READ:
            return "in a hidden folder"
        if name in _NOT_OF_CLAUDE and _CLAUDE in above.split("/"):
            return "Claude Code's own, but no Markdown"
        return self._ignores.why(f"{folder}/")
