"""Walk the folders of a host over SFTP, where it has no GNU find: many round trips, the same entries."""

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
    entries: list[Entry]
    waiting: list[_Folder]
    linked: list[_Folder] = field(default_factory=list)
    """Links to folders are followed when no folder is left, so that each is listed under its own name."""
    later: list[_Folder] = field(default_factory=list)
    """Folders with tool outputs: they are listed after the logs."""
    seen: set[str] = field(default_factory=set)
    """Folders by their path without links."""

    def go(self) -> None:
        """List every folder that is found."""
        while queue := self.waiting or self.linked or self.later:
            folder = queue.pop()
            try:
                entries = self.sftp.folder(f"{self.answer.root}/{folder.below}".rstrip("/") or "/")
            except SourceUnreadable:
                self.note("x", folder.below)
                continue
            for name, found in sorted(entries, key=lambda entry: entry[0]):
                path = f"{folder.below}/{name}".lstrip("/")
                if self.wanted.kind == DOCUMENTS:
                    self.visit_document(folder, path, name, found)
                else:
                    self.visit_log(folder, path, name, found)

    def visit_log(self, folder: _Folder, path: str, name: str, found: Attributes) -> None:
        attributes = _followed(self.sftp, f"{self.answer.root}/{path}", found)
        if attributes is None:
            return
        if attributes.is_file and is_archived(path):
            self.entries.append(Entry("f", _stat(path, attributes)))
        if not attributes.is_folder:
            return
        real = f"{folder.real}/{name}"
        if found.is_link:
            real = self.sftp.real_path(f"{self.answer.root}/{path}")
            if real != self.answer.real and holds(real, self.answer.real):
                self.note("u", path)
                return
        if real in self.seen:
            return
        self.seen.add(real)
        self.note("l" if found.is_link else "d", path, len(self.seen))
        if folder.depth + 1 < MAX_DEPTH:
            queue = self.later if name == TOOL_RESULTS else self.linked if found.is_link else self.waiting
            queue.append(_Folder(path, folder.depth + 1, real))

    def visit_document(self, folder: _Folder, path: str, name: str, found: Attributes) -> None:
        if name == REPOSITORY:
            self.note("g", path)
        elif found.is_folder:
            if name not in Names(self.wanted.skip, is_exact=True):
                self.waiting.append(_Folder(path, folder.depth + 1, ""))
            elif self.wanted.names_skipped:
                self.note("o", path)
        elif name in Names(self.wanted.names) or name in IGNORE_FILES:
            absolute = f"{self.answer.root}/{path}"
            attributes = _followed(self.sftp, absolute, found)
            if attributes is None or not attributes.is_file:
                return
            self.entries.append(Entry("s" if found.is_link else "f", _stat(path, attributes)))
            if found.is_link:
                self.answer.targets[path] = self.sftp.real_path(absolute)
            elif name in IGNORE_FILES and attributes.size <= IGNORE_BYTES:
                self.answer.ignores[path] = self.text(absolute)

    def text(self, path: str) -> str:
        try:
            handle = self.sftp.open(path)
            try:
                return name_of(self.sftp.read(handle, path, 0, IGNORE_BYTES))
            finally:
                self.sftp.close(handle)
        except SourceUnreadable as problem:
            self.answer.problems.append(str(problem))
            return ""

    def note(self, kind: str, path: str, inode: int = 0) -> None:
        """Add an entry of which only the path is known; `inode` stands for a folder's identity."""
        self.entries.append(Entry(kind, FileStat(path, 0, 0, 0, inode)))


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
    answer.real = sftp.real_path(root)
    walk = _Walk(sftp, answer, wanted, answer.entries, [_Folder("", 0, answer.real)], seen={answer.real})
    walk.go()
    if wanted.kind != DOCUMENTS:
        for path in files_above(root):
            if found := file_there(sftp, path, f"../{path.rpartition('/')[2]}"):
                answer.entries.append(Entry("f", found))
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


def _followed(sftp: Sftp, path: str, found: Attributes) -> Attributes | None:
    """Return the attributes of a link's target; None: it is broken."""
    if not found.is_link:
        return found
    try:
        return sftp.stat(path)
    except SourceUnreadable:
        return None


def _stat(path: str, attributes: Attributes) -> FileStat:
    """Convert the attributes. SFTP sends neither nanoseconds nor the identity of a file."""
    return FileStat(path, attributes.size, attributes.mtime_s * 10**9, 0, 0)
