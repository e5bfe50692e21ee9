"""Files of this machine."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from anamnesis_pipeline.errors import SourceMissing, SourceUnreadable
from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.parsing.text.file_names import bytes_of, name_of
from anamnesis_pipeline.sources.base import (
    IGNORE_BYTES,
    IGNORE_FILES,
    REPOSITORY,
    TOOL_RESULTS,
    Listing,
    Read,
    Survey,
    Wanted,
    files_above,
    is_archived,
    is_log,
    target_inside,
)
from anamnesis_pipeline.sources.selection import Names
from anamnesis_pipeline.sources.specs import DOCUMENTS

MAX_DEPTH = 12
"""Claude Code nests five deep; deeper folders come from a misplaced link."""
MAX_LINKED_FOLDERS = 10_000
"""Limit of folders entered behind links in one folder of logs; more are not logs."""
LEADS_UP = "a link to a folder above the logs, not followed"


class LocalHost:
    """Local folders. In logs, links to folders are followed once, so that a loop ends."""

    def __init__(self, machine: str) -> None:
        self._machine = machine

    @property
    def machine(self) -> str:
        """Return the machine's name in results."""
        return self._machine

    def clock_skew_s(self) -> float | None:
        """Return 0: it is this machine's own clock."""
        return 0.0

    def home(self) -> str:
        """Return the home of the user who runs this process."""
        return name_of(os.fsencode(os.path.expanduser("~")))

    def folders(self, root: str) -> list[str]:
        """Return the names of the folders directly under `root`, sorted; `.` first if `root` itself holds logs.

        :raises SourceUnreadable: `root` is missing or cannot be listed.
        """
        try:
            with os.scandir(bytes_of(root)) as entries:
                found = [(name_of(entry.name), entry) for entry in entries]
        except (OSError, ValueError) as problem:
            raise _unreadable("folder", root, problem) from problem
        here = ["."] if any(is_log(name) for name, _ in found) else []
        return here + sorted(name for name, entry in found if entry.is_dir() and not name.startswith("."))

    def list_files(self, root: str) -> Listing:
        """List every log, subagent description and tool output at or below `root`. Folders that cannot be listed are
        skipped and reported.

        :raises SourceUnreadable: `root` itself is missing or cannot be listed, or is a link to a folder above it.
        """
        own = root.rstrip("/")
        try:
            leads_up = os.path.islink(bytes_of(own)) and holds(_real(own), _real(os.path.dirname(own)))
            walk = _LogWalk(root)
        except ValueError as problem:
            raise _unreadable("folder", root, problem) from problem
        if leads_up:
            raise _unreadable("folder", root, OSError("it is a link to a folder above it, and not followed"))
        files = sorted(walk.files(), key=lambda file: file.path)
        return Listing(tuple(files), tuple(walk.problems))

    def file(self, root: str, name: str) -> FileStat | None:
        """Return the file `name` directly in `root`; None if it is missing or cannot be seen."""
        try:
            status = os.stat(bytes_of(os.path.join(root, name)))
        except (OSError, ValueError):
            return None
        return _file_stat(name, status) if stat.S_ISREG(status.st_mode) else None

    def survey(self, wanted: Sequence[Wanted]) -> list[Survey | SourceUnreadable]:
        """Survey each, in order. A root that cannot be listed gives an error in its place."""
        found: list[Survey | SourceUnreadable] = []
        for each in wanted:
            try:
                found.append(self._survey(each))
            except SourceUnreadable as problem:
                found.append(problem)
        return found

    def fetching(self, files: Sequence[tuple[str, int]]) -> AbstractContextManager[Read]:
        """Return `read`: reading ahead gains nothing here."""
        del files
        return nullcontext(self.read)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return at most `length` bytes of a file; empty at its end.

        :raises SourceUnreadable: the file is missing, not a regular file, or cannot be read.
        """
        try:
            handle = os.open(bytes_of(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO would block
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError("not a regular file")
                return os.pread(handle, length, offset)
            finally:
                os.close(handle)
        except (OSError, ValueError) as problem:
            raise _unreadable("file", path, problem) from problem

    def _survey(self, wanted: Wanted) -> Survey:
        home = self.home()
        root = home + wanted.root[1:] if wanted.root == "~" or wanted.root.startswith("~/") else wanted.root
        if wanted.kind == DOCUMENTS:
            found = _documents(root, wanted)
        else:
            listing = self.list_files(root)
            places = (path.rpartition("/") for path in files_above(root))
            above = filter(None, (self.file(folder or "/", name) for folder, _, name in places))
            files = [*listing.files, *(replace(file, path=f"../{file.path}") for file in above)]
            found = _Found(files, [*listing.problems])
        state = _state(found)
        if state == wanted.known:
            return Survey(root, None, state)
        return Survey(
            root,
            tuple(sorted(found.files, key=lambda file: file.path)),
            state,
            tuple(found.problems),
            found.ignores,
            tuple(sorted(found.repositories)),
            found.links,
            tuple(sorted(found.skipped)) if wanted.names_skipped else (),
        )


@dataclass(slots=True)
class _Found:
    """State of a walk. `folders` are still to be entered; `real` is the root without links."""

    files: list[FileStat] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ignores: dict[str, str] = field(default_factory=dict)
    repositories: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    real: str = ""


class _LogWalk:
    """One walk through a folder of logs. Links to folders are followed once, but not to a folder that contains the
    root, such as `/`; at most `MAX_LINKED_FOLDERS` folders behind the others are entered.
    """

    def __init__(self, root: str) -> None:
        self.problems: list[str] = []
        self._root, self._real = root, _real(root)
        self._seen: set[tuple[int, int]] = set()
        self._linked = 0

    def files(self, below: str = "", depth: int = MAX_DEPTH, *, linked: bool = False) -> Iterator[FileStat]:
        """Yield the wanted files at or below a path in the root.

        :raises SourceUnreadable: the root itself cannot be listed.
        """
        folder = os.path.join(self._root, below) if below else self._root
        try:
            status = os.stat(bytes_of(folder))
            if (status.st_dev, status.st_ino) in self._seen:
                return
            self._seen.add((status.st_dev, status.st_ino))
            with os.scandir(bytes_of(folder)) as entries:
                named = [(name_of(entry.name), entry) for entry in entries]
            found = sorted(named, key=lambda each: walk_order(each[0], is_link=each[1].is_symlink()))
        except (OSError, ValueError) as problem:
            if not below:
                raise _unreadable("folder", folder, problem) from problem
            self.problems.append(f"{folder}: {_reason(problem)}")
            return
        for name, entry in found:
            path = f"{below}/{name}" if below else name
            try:
                if is_archived(path) and entry.is_file():
                    yield _file_stat(path, entry.stat())
                elif entry.is_dir():
                    linked_now = linked or entry.is_symlink()
                    if self._may_enter(f"{folder}/{name}", depth, linked=linked_now, is_link=entry.is_symlink()):
                        yield from self.files(path, depth - 1, linked=linked_now)
            except OSError as problem:
                self.problems.append(f"{folder}/{name}: {_reason(problem)}")

    def _may_enter(self, folder: str, depth: int, *, linked: bool, is_link: bool) -> bool:
        if depth <= 1:
            self.problems.append(f"{folder}: deeper than {MAX_DEPTH} folders, not read")
            return False
        if is_link and holds(_real(folder), self._real):
            if _real(folder) != self._real:
                self.problems.append(f"{folder}: {LEADS_UP}")
            return False
        self._linked += linked
        if self._linked == MAX_LINKED_FOLDERS + 1:
            self.problems.append(f"{folder}: more than {MAX_LINKED_FOLDERS:,} folders behind links, the rest not read")
        return self._linked <= MAX_LINKED_FOLDERS


def holds(folder: str, path: str) -> bool:
    """Return whether a folder is or contains a path; both are without links."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def walk_order(name: str, *, is_link: bool) -> tuple[bool, bool, bool, str]:
    """Return the sort key of an entry in a folder of logs.

    Log sizes are taken before the folders with tool outputs are listed, so that no record in a log is later than that.
    Links come late, so that a folder is listed under its own name.
    """
    return not is_log(name), name == TOOL_RESULTS, is_link, name


def _documents(root: str, wanted: Wanted) -> _Found:
    found = _Found(folders=[""], real=_real(root))
    names, skip = Names(wanted.names), Names(wanted.skip, is_exact=True)
    while found.folders:
        below = found.folders.pop()
        folder = os.path.join(root, below) if below else root
        try:
            with os.scandir(bytes_of(folder)) as entries:
                for entry in entries:
                    _document(found, entry, (folder, below), names, skip)
        except (OSError, ValueError) as problem:
            if not below:
                raise _unreadable("folder", folder, problem) from problem
            found.problems.append(f"{folder}: {_reason(problem)}")
    return found


def _document(found: _Found, entry: os.DirEntry[bytes], place: tuple[str, str], names: Names, skip: Names) -> None:
    """Add one entry of the folder `place`: (its path, its path below the root)."""
    folder, below = place
    name = name_of(entry.name)
    path = f"{below}/{name}" if below else name
    try:
        if name == REPOSITORY:
            found.repositories.append(below or ".")
        elif entry.is_dir(follow_symlinks=False):
            (found.skipped if name in skip else found.folders).append(path)
        elif (name in names or name in IGNORE_FILES) and entry.is_file():
            target = target_inside(found.real, _real(name_of(entry.path))) if entry.is_symlink() else None
            if name in names and (target is not None or not entry.is_symlink()):
                found.files.append(_file_stat(path, entry.stat()))
                if target is not None:
                    found.links[path] = target
            if name in IGNORE_FILES:
                with open(entry.path, "rb") as file:
                    text = file.read(IGNORE_BYTES + 1)
                if len(text) > IGNORE_BYTES:
                    found.problems.append(f"{name_of(entry.path)}: larger than {IGNORE_BYTES >> 10} KB, not obeyed")
                else:
                    found.ignores[path] = name_of(text)
    except OSError as problem:
        found.problems.append(f"{folder}/{name}: {_reason(problem)}")


def _real(path: str) -> str:
    return name_of(os.path.realpath(bytes_of(path)))


def _state(found: _Found) -> str:
    """Return a digest of everything found: 64 hex characters."""
    files = [f"{file.path}\0{file.size}\0{file.mtime_ns}\0{file.device}\0{file.inode}" for file in found.files]
    texts = [f"{path}\0{text}" for path, text in (*found.ignores.items(), *found.links.items())]
    digest = hashlib.sha256()
    for lines in (files, texts, found.problems, found.repositories):
        for line in sorted(lines):
            digest.update(line.encode() + b"\0\0")
        digest.update(b"\0\0\0")
    return digest.hexdigest()


def _file_stat(path: str, status: os.stat_result) -> FileStat:
    return FileStat(path, status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino)


def _reason(problem: OSError | ValueError) -> str:
    text = problem.strerror if isinstance(problem, OSError) else None
    return (text or str(problem) or type(problem).__name__).lower()


def _unreadable(what: str, path: str, problem: OSError | ValueError) -> SourceUnreadable:
    is_missing = isinstance(problem, FileNotFoundError) and not os.path.lexists(bytes_of(path))
    is_file = isinstance(problem, NotADirectoryError) and os.path.isfile(bytes_of(path))
    reason = "it is a file, not a directory" if is_file else _reason(problem)
    return (SourceMissing if is_missing else SourceUnreadable)(
        f"cannot read the {what} {path}: {reason}; check the path and that this user may read it"
    )
