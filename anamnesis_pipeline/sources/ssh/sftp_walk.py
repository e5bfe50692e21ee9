"""Walk the folders of a host over SFTP, where it has no GNU find: many round trips, the same entries."""

from collections.abc import Callable
from dataclasses import dataclass, field

from anamnesis_pipeline.errors import SourceMissing, SourceUnreadable
from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.parsing.text.file_names import name_of
from anamnesis_pipeline.sources.base import (
    IGNORE_BYTES,
    IGNORE_FILES,
    REPOSITORY,
    TOOL_RESULTS,
    Wanted,
    files_above,
    is_archived,
)
from anamnesis_pipeline.sources.local import MAX_DEPTH, holds
from anamnesis_pipeline.sources.selection import Names
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.sources.ssh.answers import state_of
from anamnesis_pipeline.sources.ssh.questions import Answer, Entry
from anamnesis_pipeline.sources.ssh.sftp import Attributes, Sftp


@dataclass(frozen=True, slots=True)
class _Folder:
    """A pending folder: its path below the root, its depth, and its path without links."""

    below: str
    depth: int
    real: str


@dataclass(slots=True)
class _Walk:
    sftp: Sftp
    answer: Answer
    wanted: Wanted
    waiting: list[_Folder] = field(default_factory=list)
    linked: list[_Folder] = field(default_factory=list)
    """Links to folders are followed when no folder is left, so that each is listed under its own name."""
    later: list[_Folder] = field(default_factory=list)
    """Folders with tool outputs: they are listed after the logs."""
    seen: set[str] = field(default_factory=set)
    """Folders by their path without links."""


def look_through(sftp: Sftp, wanted: Wanted, home: str) -> Answer:
    """Return the entries at or below a root.

    :param home: the path of `~`; empty: the folder in which SFTP begins.
    """
    root = wanted.root
    if root == "~" or root.startswith("~/"):
        root = (home or sftp.real_path(".")).rstrip("/") + root[1:]
    root = root.rstrip("/") or "/"
    answer = Answer(root, _error_of(sftp, root))
    if answer.error:
        return answer
    answer.entries = []
    walk = _Walk(sftp, answer, wanted)
    walk.waiting.append(_Folder("", 0, sftp.real_path(root)))
    answer.real = walk.waiting[0].real
    walk.seen.add(answer.real)
    visit = _visit_documents if wanted.kind == DOCUMENTS else _visit_logs
    while queue := walk.waiting or walk.linked or walk.later:
        _list(walk, queue.pop(), visit)
    if wanted.kind != DOCUMENTS:
        for path in files_above(walk.answer.root):
            if found := file_there(walk.sftp, path, f"../{path.rpartition('/')[2]}"):
                _note(walk, "f", found)
    answer.state = state_of(answer)
    return answer


def file_there(sftp: Sftp, path: str, name: str) -> FileStat | None:
    """Return a regular file, or a link's target; None: it is missing or cannot be seen."""
    try:
        found = sftp.stat(path)
    except SourceUnreadable:
        return None
    return _stat(name, found) if found.is_file else None


def folders_there(sftp: Sftp, root: str) -> Answer:
    """Return the entries directly in a folder."""
    answer = Answer(root, _error_of(sftp, root))
    if not answer.error:
        answer.entries = []
        for name, found in sftp.folder(root):
            attributes = _followed(sftp, f"{root}/{name}", found)
            if attributes is not None:
                answer.entries.append(Entry("d" if attributes.is_folder else "f", _stat(name, attributes)))
    return answer


def _error_of(sftp: Sftp, root: str) -> str:
    try:
        if not sftp.stat(root).is_folder:
            return "n"
        sftp.folder(root)
    except SourceMissing:
        return "m"
    except SourceUnreadable:
        return "p"
    return ""


def _list(walk: _Walk, folder: _Folder, visit: Callable[[_Walk, _Folder, str, Attributes], None]) -> None:
    path = f"{walk.answer.root}/{folder.below}".rstrip("/")
    try:
        entries = walk.sftp.folder(path or "/")
    except SourceUnreadable:
        _note(walk, "x", FileStat(folder.below, 0, 0, 0, 0))
        return
    for name, attributes in sorted(entries, key=lambda entry: entry[0]):
        visit(walk, folder, name, attributes)


def _visit_logs(walk: _Walk, folder: _Folder, name: str, found: Attributes) -> None:
    path = f"{folder.below}/{name}".lstrip("/")
    attributes = _followed(walk.sftp, f"{walk.answer.root}/{path}", found)
    if attributes is None:
        return
    if attributes.is_folder:
        real = walk.sftp.real_path(f"{walk.answer.root}/{path}") if found.is_link else f"{folder.real}/{name}"
        if found.is_link and real != walk.answer.real and holds(real, walk.answer.real):
            _note(walk, "u", FileStat(path, 0, 0, 0, 0))
        else:
            _enter(walk, path, folder.depth + 1, real, "l" if found.is_link else "d")
    elif attributes.is_file and is_archived(path):
        _note(walk, "f", _stat(path, attributes))


def _enter(walk: _Walk, path: str, depth: int, real: str, kind: str) -> None:
    if real in walk.seen:
        return
    walk.seen.add(real)
    _note(walk, kind, FileStat(path, 0, 0, 0, len(walk.seen)))
    if depth < MAX_DEPTH:
        is_output = path.rpartition("/")[2] == TOOL_RESULTS
        queue = walk.later if is_output else walk.linked if kind == "l" else walk.waiting
        queue.append(_Folder(path, depth, real))


def _visit_documents(walk: _Walk, folder: _Folder, name: str, found: Attributes) -> None:
    path = f"{folder.below}/{name}".lstrip("/")
    if name == REPOSITORY:
        _note(walk, "g", FileStat(path, 0, 0, 0, 0))
    elif found.is_folder:
        if name not in Names(walk.wanted.skip, is_exact=True):
            walk.waiting.append(_Folder(path, folder.depth + 1, ""))
        elif walk.wanted.names_skipped:
            _note(walk, "o", FileStat(path, 0, 0, 0, 0))
    elif name in Names(walk.wanted.names) or name in IGNORE_FILES:
        attributes = _followed(walk.sftp, f"{walk.answer.root}/{path}", found)
        if attributes is not None and attributes.is_file:
            _note(walk, "s" if found.is_link else "f", _stat(path, attributes))
            if found.is_link:
                walk.answer.targets[path] = walk.sftp.real_path(f"{walk.answer.root}/{path}")
            if name in IGNORE_FILES and not found.is_link and attributes.size <= IGNORE_BYTES:
                walk.answer.ignores[path] = _text(walk, f"{walk.answer.root}/{path}")


def _followed(sftp: Sftp, path: str, found: Attributes) -> Attributes | None:
    """Return the attributes of a link's target; None: it is broken."""
    if not found.is_link:
        return found
    try:
        return sftp.stat(path)
    except SourceUnreadable:
        return None


def _text(walk: _Walk, path: str) -> str:
    try:
        handle = walk.sftp.open(path)
        try:
            return name_of(walk.sftp.read(handle, path, 0, IGNORE_BYTES))
        finally:
            walk.sftp.close(handle)
    except SourceUnreadable as problem:
        walk.answer.problems.append(str(problem))
        return ""


def _note(walk: _Walk, kind: str, stat: FileStat) -> None:
    entries = walk.answer.entries
    assert entries is not None
    entries.append(Entry(kind, stat))


def _stat(path: str, attributes: Attributes) -> FileStat:
    """Convert the attributes. SFTP sends neither nanoseconds nor the identity of a file."""
    return FileStat(path, attributes.size, attributes.mtime_s * 10**9, 0, 0)
