"""Metadata of document versions, stored by the crawl for the parsing step. Pure."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import PurePosixPath

from anamnesis_pipeline.model import FileCursor, Source
from anamnesis_pipeline.parsing.claude_logs.message_keys import place_of
from anamnesis_pipeline.pipeline.projects import Label


@dataclass(frozen=True, slots=True)
class Version:
    """One generation of a file. `mtime_ns`: the file's time; `skew_ns`: maximum error of its machine's clock.

    `place` identifies the document (`message_keys.place_of`). `inside` is its path from the top of its repository, the
    same in every clone; empty outside of one with a remote. `title` replaces its name; `tags` are added to its own;
    `instance` replaces that of its source in its episodes.
    """

    generation: int
    mtime_ns: int
    skew_ns: int = 0
    project: str = ""
    place: str = ""
    cwd: str = ""
    title: str = ""
    tags: tuple[str, ...] = ()
    instance: str = ""
    inside: str = ""


_FIELDS = tuple(field.name for field in fields(Version))
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def waiting(cursor: FileCursor) -> list[Version]:
    """Return the versions of a file that are not parsed yet, in order."""
    if not cursor.parser_state:
        return []
    return [Version(**{**row, "tags": tuple(row["tags"])}) for row in json.loads(cursor.parser_state)]


def noted(versions: Sequence[Version]) -> str:
    """Return the inverse of `waiting`, for `FileCursor.parser_state`."""
    rows = [{name: getattr(version, name) for name in _FIELDS} for version in versions]
    return _ENCODER.encode(rows) if rows else ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Project, `place`, folder and path in the repository (see `Version`) of a document."""

    project: str
    place: str
    cwd: str
    inside: str = ""


def origins(
    source: Source,
    root: str,
    repositories: Sequence[str],
    label: Label,
    project_named: Callable[[str], str] = lambda path: "",
) -> Callable[[str], Origin]:
    """Return a function: path relative to `root` -> origin.

    A file in a repository with a remote is identified by the remote and its path in the repository, on every machine
    and in every worktree; any other file by its machine and path.

    :param repositories: folders with a `.git`, relative to `root`; `.` is `root` itself.
    :param label: absolute folder on the source's machine -> project.
    :param project_named: absolute path -> configured project of the file; empty: it is detected.
    """
    tops = frozenset(repositories)

    @lru_cache(maxsize=10_000)
    def placed(below: str) -> tuple[str, str, str | None]:
        """Return a folder's project and absolute path, and its path in the repository if this has a remote."""
        folder, absolute = PurePosixPath(below), PurePosixPath(root, below)
        inside = next((f for f in (folder, *folder.parents) if str(f) in tops), None)
        top = str(PurePosixPath(root, inside)) if inside is not None else ""
        identity, top = (label(top), top) if top else _around(root, label)
        return identity, str(absolute), str(absolute.relative_to(top)) if is_remote(identity) else None

    def origin(path: str) -> Origin:
        below, _, name = path.rpartition("/")
        identity, folder, inside = placed(below)
        at = _joined(folder, name)
        project = project_named(at) or identity
        if inside is None:
            return Origin(project, place_of("machine", source.machine, at), folder)
        way = _joined(inside, name)
        return Origin(project, place_of("repository", identity, way), folder, way)

    return origin


def _joined(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder.rstrip('/')}/{name}"


def _around(root: str, label: Label) -> tuple[str, str]:
    """Return project and top folder of a root without its own repository: there may be one around it."""
    identity, top = label(root), PurePosixPath(root)
    if is_remote(identity):
        while top.parent != top and label(str(top.parent)) == identity:
            top = top.parent
    return identity, str(top)


def is_remote(project: str) -> bool:
    """Return whether a project is named by a repository's remote, and not by a path."""
    return "/" in project and not project.startswith(("~", "/")) and project[1:2] != ":"
