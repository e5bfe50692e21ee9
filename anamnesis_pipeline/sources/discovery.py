"""Find the sources: one per Claude project folder under each log root, and one per `history.jsonl` above it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.parsing.text.file_names import HISTORY
from anamnesis_pipeline.sources.base import SourceHost

PROJECTS = "projects"
"""Folder of a Claude configuration that holds the logs, one folder per project."""

COWORK = "local-agent-mode-sessions"
"""Folder in which the desktop app keeps the sessions of Cowork, one folder per organisation."""

_NOT_IN_A_KEY = re.compile(r"[^A-Za-z0-9.-]")


@dataclass(frozen=True, slots=True)
class Discovery:
    """The sources found, by key, and the roots that could not be listed, with the reason."""

    sources: tuple[Source, ...]
    problems: tuple[str, ...] = ()


def source_key(machine: str, root: str, folder: str) -> str:
    """Return `<machine>--<folder, at most 80>--<8 hex>`, with only `A-Z a-z 0-9 . _ -`; other characters become `_`.

    The hash covers machine, root and folder, so that folders with similar names keep distinct keys.
    """
    digest = blake2b("\x1f".join((machine, root, folder)).encode("utf-8", "surrogateescape"), digest_size=4)
    name = root.rstrip("/").rpartition("/")[2] if folder == "." else folder
    return f"{_NOT_IN_A_KEY.sub('_', machine)}--{_NOT_IN_A_KEY.sub('_', name)[:80]}--{digest.hexdigest()}"


def discover(host: SourceHost, roots: Sequence[str]) -> Discovery:
    """Find every project folder under `roots` (absolute paths). A root may itself be a project folder, or the folder
    that holds `projects`, such as `~/.claude`. One named `projects` has its history beside it.

    A missing or unreadable root is reported and does not hide the others.
    """
    found: dict[str, Source] = {}
    problems: list[str] = []
    for named in dict.fromkeys(root.rstrip("/") or "/" for root in roots):
        try:
            root, folders = _folders(host, named)
        except SourceUnreadable as problem:
            problems.append(str(problem))
            continue
        if "." in folders:  # the folders in a project folder are its sessions, not projects
            folders = ["."]
        for folder in folders:
            key = source_key(host.machine, root, folder)
            found[key] = Source(key, host.machine, root, folder)
        parent, _, name = root.rpartition("/")
        above = parent or "/"
        if name == PROJECTS and host.file(above, HISTORY) is not None:
            key = source_key(host.machine, above, HISTORY)
            found[key] = Source(key, host.machine, above, ".", "claude_history")
    return Discovery(tuple(found[key] for key in sorted(found)), tuple(problems))


def log_root(host: SourceHost, root: str) -> str:
    """Return the folder that holds the project folders of a configured root: `projects` in Claude's own folder. A root
    that cannot be listed is returned unchanged.
    """
    try:
        return _folders(host, root)[0]
    except SourceUnreadable:
        return root


def _folders(host: SourceHost, root: str) -> tuple[str, list[str]]:
    """Find the folders with logs under `root`, or in the `projects` folder of Claude's own folder.

    :returns: the root that contains them, and their paths relative to it.
    """
    folders = host.folders(root)
    if PROJECTS not in folders or "." in folders:
        return root, folders
    inner = f"{root.rstrip('/')}/{PROJECTS}"
    inside = host.folders(inner)
    return (root, folders) if "." in inside else (inner, inside)
