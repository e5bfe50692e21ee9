"""Files of this machine."""

import os
from collections.abc import Iterator

from anamnesis_pipeline.errors import SourceMissing, SourceUnreadable
from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.sources.base import TOOL_RESULTS, Listing, is_archived, is_log

MAX_DEPTH = 12
"""Claude Code nests five deep; more is a link that went astray."""


class LocalHost:
    """Local folders. Links to folders are followed once, so that a loop ends."""

    def __init__(self, machine: str) -> None:
        self._machine = machine

    @property
    def machine(self) -> str:
        """The name of the machine in results."""
        return self._machine

    def folders(self, root: str) -> list[str]:
        """The folders directly under `root`, sorted; `.` first if `root` itself holds logs.

        :raises SourceUnreadable: `root` is missing or cannot be listed.
        """
        try:
            with os.scandir(root) as entries:
                found = list(entries)
        except OSError as problem:
            raise _unreadable("log folder", root, problem) from problem
        here = ["."] if any(is_log(entry.name) for entry in found) else []
        return here + sorted(entry.name for entry in found if entry.is_dir() and not entry.name.startswith("."))

    def list_files(self, root: str) -> Listing:
        """Every log, subagent's description and tool's output at or below `root`; folders that cannot be listed are
        skipped and named.

        :raises SourceUnreadable: `root` itself is missing or cannot be listed.
        """
        problems: list[str] = []
        files = sorted(_walk(root, "", MAX_DEPTH, set(), problems), key=lambda file: file.path)
        return Listing(tuple(files), tuple(problems))

    def file(self, root: str, name: str) -> FileStat | None:
        """The one file `name` directly in `root`; None when it is not there or cannot be seen."""
        path = os.path.join(root, name)
        try:
            return _file_stat(name, os.stat(path)) if os.path.isfile(path) else None
        except OSError:
            return None

    def read(self, path: str, offset: int, length: int) -> bytes:
        """At most `length` bytes of a file; empty at its end.

        :raises SourceUnreadable: the file is missing or cannot be read.
        """
        try:
            with open(path, "rb", buffering=0) as file:
                return os.pread(file.fileno(), length, offset)
        except OSError as problem:
            raise _unreadable("file", path, problem) from problem


def _walk(root: str, below: str, depth: int, seen: set[tuple[int, int]], problems: list[str]) -> Iterator[FileStat]:
    folder = os.path.join(root, below) if below else root
    try:
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(folder) as entries:
            found = sorted(entries, key=_outputs_last)
    except OSError as problem:
        if not below:
            raise _unreadable("folder", folder, problem) from problem
        problems.append(f"{folder}: {_reason(problem)}")
        return
    for entry in found:
        path = f"{below}/{entry.name}" if below else entry.name
        try:
            if is_archived(path) and entry.is_file():
                yield _file_stat(path, entry.stat())
            elif entry.is_dir():
                if depth > 1:
                    yield from _walk(root, path, depth - 1, seen, problems)
                else:
                    problems.append(f"{folder}/{entry.name}: deeper than {MAX_DEPTH} folders, not read")
        except OSError as problem:
            problems.append(f"{folder}/{entry.name}: {_reason(problem)}")


def _outputs_last(entry: os.DirEntry[str]) -> tuple[bool, bool]:
    """Sizes of logs are taken before the folders with outputs of tools are listed, so that no record in a log was
    written later than that.
    """
    return not is_log(entry.name), entry.name == TOOL_RESULTS


def _file_stat(path: str, status: os.stat_result) -> FileStat:
    return FileStat(path, status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino)


def _reason(problem: OSError) -> str:
    return (problem.strerror or type(problem).__name__).lower()


def _unreadable(what: str, path: str, problem: OSError) -> SourceUnreadable:
    is_missing = isinstance(problem, FileNotFoundError) and not os.path.lexists(path)
    return (SourceMissing if is_missing else SourceUnreadable)(
        f"cannot read the {what} {path}: {_reason(problem)}; check the path and that this user may read it"
    )
