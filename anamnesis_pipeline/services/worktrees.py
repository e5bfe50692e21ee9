"""Projects that seem to be worktrees of one repository whose folders are gone, and joining them on request.

An existing worktree resolves to its repository. Of a deleted one only its path, branch and edited files are known: they
suggest a repository, and nothing is joined without a request.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import EpisodeFilter, SegmentKind
from anamnesis_pipeline.pipeline.projects import add_alias, project_aliases, project_rows, remove_alias
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import store_name
from anamnesis_pipeline.store.session_model import SESSION_KIND, of_episode

JOINED = "projects.joined"
"""Settings key: repository -> the projects joined to it, for undoing."""
MAX_PROJECTS = 2_000
"""Max projects checked, the largest first."""
MAX_SIBLINGS = 40
"""Max pairs of sibling folders whose branches and files are compared."""
EXCHANGES = 60
"""Newest exchanges of a project whose files are compared."""
SESSIONS = 5
MIN_COMMON = 3
COMMON_SHARE = 0.5
"""Minimum share of common files, of the project with fewer."""

_IS_PATH = re.compile(r"~|/|[A-Za-z]:")
_INSIDE = re.compile(
    r"(?P<repository>.*?[^/])(?:/\.worktrees|/\.claude/worktrees|/worktrees|[-_.]worktrees?)/(?P<name>[^/]+)(?:/.*)?"
)
_GATHERED = re.compile(r".*/\.?(?:[\w-]+/)?\.?[\w-]*worktrees/(?P<base>[^/]+)/[^/]+(?:/.*)?")
"""Worktrees of many repositories in one folder: `~/.claude-worktrees/shop/fix`."""
_FILE = re.compile(r"^(?:file_path|notebook_path|path): (?P<path>[^\n]{1,1000})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Offer:
    """Projects that seem to be worktrees of one repository, with reasons. `target`: their proposed name."""

    target: str
    projects: Mapping[str, str]


def offers(store: Store, private: Private, machine: str) -> list[Offer]:
    """Return the repositories whose worktrees may be joined. Private projects are neither offered nor repositories.

    :param machine: this machine, whose folders are visible.
    """
    names = [
        row.name for row in project_rows(store)[:MAX_PROJECTS] if row.name and not _is_private(store, private, row.name)
    ]
    found: dict[str, dict[str, str]] = {}
    for name, repository in _by_path(names).items():
        if not private.is_of(repository):
            reason = "by its path" if repository_of(name) == repository else "by the name of its repository"
            found.setdefault(repository, {})[name] = reason
    taken = {name for projects in found.values() for name in projects}
    for name, repository, reason in _by_content(store, [name for name in names if name not in taken]):
        found.setdefault(repository, {}).setdefault(name, reason)
    gone = {
        target: {name: reason for name, reason in projects.items() if not _is_there(store, name, machine)}
        for target, projects in found.items()
    }
    return [
        Offer(target, projects)
        for target, projects in sorted(gone.items())
        if len(projects) > (0 if target in names else 1)
    ]


def join(store: Store, private: Private, machine: str, target: str) -> tuple[Offer, int]:
    """Alias the worktrees offered for a repository to its name. Return them, and how many episodes changed.

    :param target: the repository, or a unique part of its name.
    :raises BadSetting: none are offered for it, or several repositories match.
    """
    offered = {offer.target: offer for offer in offers(store, private, machine)}
    meant = _meant(target, offered)
    if not meant:
        known = ", ".join(offered) or "none"
        raise BadSetting(f"no worktrees of {target!r} are known; repositories with some: {known}")
    offer, target = offered[meant], meant
    joined = dict(store.settings.get(JOINED, {}))
    store.settings.set(JOINED, joined | {target: sorted({*joined.get(target, ()), *offer.projects})})
    return offer, sum(add_alias(store, name, target) for name in offer.projects)


def part(store: Store, target: str) -> tuple[list[str], int]:
    """Undo a join. Return the projects, and how many episodes changed.

    :param target: the repository, or a unique part of its name.
    :raises BadSetting: nothing was joined to it, or several repositories match.
    """
    joined = dict(store.settings.get(JOINED, {}))
    meant = _meant(target, joined)
    if not meant:
        raise BadSetting(
            f"nothing was joined to {target!r}; repositories with joined worktrees: {', '.join(joined) or 'none'}"
        )
    aliases = project_aliases(store)
    names = [name for name in joined.pop(meant) if aliases.get(name) == meant]
    changed = sum(remove_alias(store, name) for name in names)
    store.settings.set(JOINED, joined or None)
    return names, changed


def joined_now(store: Store) -> dict[str, list[str]]:
    """Return repository -> the projects joined to it."""
    aliases = project_aliases(store)
    kept = {
        target: [n for n in names if aliases.get(n) == target]
        for target, names in store.settings.get(JOINED, {}).items()
    }
    return {target: names for target, names in sorted(kept.items()) if names}


def require_not_exposed(store: Store, private: Private, name: str, target: str) -> None:
    """:raises BadSetting: `name` is private and `target` is not: search would expose its text unasked."""
    called = store_name(project_aliases(store), target)
    if private.is_of(name) and not private.is_of(called):
        raise BadSetting(f"{name!r} is private and {called!r} is not; make {called!r} private first")


def repository_of(name: str) -> str:
    """Return the repository path that a worktree's path contains; empty: none."""
    inside = _INSIDE.fullmatch(name) if _IS_PATH.match(name) else None
    repository = inside["repository"] if inside is not None else ""
    return "" if repository.rsplit("/", 1)[-1].startswith((".", "~")) else repository


def _meant(text: str, names: Iterable[str]) -> str:
    """Return the name equal to this text, or the only one that contains it; empty: none.

    :raises BadSetting: several contain it.
    """
    names = list(names)
    found = [name for name in names if name == text] or [name for name in names if text.casefold() in name.casefold()]
    if len(found) > 1:
        raise BadSetting(f"{text!r} may be several repositories: {', '.join(found)}")
    return found[0] if found else ""


def _by_path(names: Sequence[str]) -> dict[str, str]:
    """Return worktree -> repository: the stored project of its path, the only one of that name, or the path."""
    mains = [name for name in names if not repository_of(name) and not _GATHERED.fullmatch(name)]
    by_base: dict[str, list[str]] = {}
    for name in mains:
        by_base.setdefault(name.rsplit("/", 1)[-1], []).append(name)
    found = dict[str, str]()
    for name in names:
        path = repository_of(name)
        gathered = _GATHERED.fullmatch(name) if _IS_PATH.match(name) and path not in mains else None
        bases = [base for base in (gathered["base"] if gathered else "", path.rsplit("/", 1)[-1]) if base]
        same = next((by_base[base] for base in bases if len(by_base.get(base, ())) == 1), [])
        if path in mains or (path and not same):
            found[name] = path
        elif same:
            found[name] = same[0]
    return found


def _by_content(store: Store, names: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    """Yield (name, repository, reason) of folders `<repository>-<name>` beside a repository, on the branch of that name
    or with its files.
    """
    known, pairs = set(names), 0
    for name in names:
        folder, _, base = name.rpartition("/")
        stems = [base[: mark.start()] for mark in re.finditer(r"[-_.]", base) if mark.start()]
        repository = next((f"{folder}/{stem}" for stem in reversed(stems) if f"{folder}/{stem}" in known), "")
        if not _IS_PATH.match(name) or not repository or pairs == MAX_SIBLINGS:
            continue
        pairs += 1
        rest = base[len(repository.rsplit("/", 1)[-1]) + 1 :]
        mine, theirs = _files_of(store, name), _files_of(store, repository)
        common = mine & theirs
        records = filter(None, map(of_episode, store.context.newest(name, SESSION_KIND, SESSIONS)))
        if any(record.branch and _slug(record.branch).endswith(_slug(rest)) for record in records):
            yield name, repository, "by its branch"
        elif len(common) >= MIN_COMMON and len(common) >= COMMON_SHARE * min(len(mine), len(theirs)):
            yield name, repository, f"by {len(common)} files that both worked on"


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text).strip("-").casefold()


def _files_of(store: Store, project: str) -> set[str]:
    """Return the files in a project's tool calls, relative to the session's folder."""
    episodes = {
        e.episode_id: str(e.metadata.get("cwd", "")) for e in store.context.newest(project, "exchange", EXCHANGES)
    }
    found = set[str]()
    for each in store.forgetting.parts(list(episodes)):
        root = f"{episodes[each.part_id].rstrip('/')}/"
        inputs = (segment.text for segment in each.segments if segment.kind is SegmentKind.TOOL_INPUT)
        paths = (match["path"] for text in inputs for match in _FILE.finditer(text[:5_000]))
        found |= {path.removeprefix(root) for path in paths if path.startswith(root)}
    return found


def _is_there(store: Store, project: str, machine: str) -> bool:
    """Return whether the folder of a project's newest session is still on this machine."""
    newest = store.context.newest(project, "exchange", 1)
    return any(e.machine == machine and os.path.isdir(str(e.metadata.get("cwd") or "\0")) for e in newest)


def _is_private(store: Store, private: Private, project: str) -> bool:
    held = (EpisodeFilter(projects=(project,), source=key, include_superseded=True) for key in private.keys)
    return private.is_of(project) or any(map(store.episodes.count, held))
