"""The interface of every machine that holds logs, and which of its files are archived."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.parsing.text.file_names import HISTORY, log_name

CONNECT_TIMEOUT_S = 10.0
"""For each of: connection, greeting, login, a new channel of another machine."""
COMMAND_TIMEOUT_S = 60.0
"""For a survey of another machine."""
READ_TIMEOUT_S = 20.0
"""For each piece of a file of another machine."""

_DESCRIPTION = ".meta.json"
_SESSION = r"local_(?:[a-z]+_)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_SESSION_RECORD = re.compile(rf"{_SESSION}\.json")
_IN_SESSION = re.compile(rf"(.*/{_SESSION})(?:/.*)?", re.DOTALL)

TOOL_RESULTS = "tool-results"
"""Folder of a session, in the session's own folder, with the outputs that Claude Code moved out of the transcript."""
_OUTPUT = re.compile(rf"(?:.*[/\\])?([^/\\]+)[/\\]{TOOL_RESULTS}[/\\]([^/\\]+\.(?:txt|json))", re.DOTALL)


IGNORE_FILES = (".gitignore", ".anamnesisignore")
IGNORE_BYTES = 256 << 10
"""A larger ignore file is reported as a problem and not read."""
REPOSITORY = ".git"
"""A folder, or the file of a worktree. Never entered."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request of a survey.

    `kind` is that of a `SourceSpec`: `documents`, else logs (every archived file at or below `root`, and those of
    `files_above` it). `root` may begin with `~/`. `known` is the `state` of an earlier survey of the same request. For
    documents, `names` are case-insensitive globs of file names (none: every file). Folders whose name matches a glob of
    `skip` are not entered; they are listed if `names_skipped`.
    """

    kind: str
    root: str
    known: str = ""
    names: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    names_skipped: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of a survey for one `Wanted`.

    `root` is absolute. `state` is a digest of the result, so that the next survey can report in a few bytes that
    nothing changed. `files` is None if `state` equals `known`; every other field is empty then. `paths` are relative to
    `root`, those of `files_above` it are `../<name>`. For documents, `ignores` maps paths of `.gitignore` and
    `.anamnesisignore` to their texts, and `repositories` are the folders with a `.git` (`.`: the root itself). Links to
    files count as files, with the size and time of their target. For documents, links whose target is outside of `root`
    are left out, `links` has the target paths of the others, and links to folders are not followed. `skipped`: folders
    not entered because of their name, if requested.
    """

    root: str
    files: tuple[FileStat, ...] | None
    state: str = ""
    problems: tuple[str, ...] = ()
    ignores: Mapping[str, str] = field(default_factory=dict)
    repositories: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()


def target_inside(root: str, target: str) -> str | None:
    """Return the path of a link's target below `root`; None if it is outside. Both are absolute and without links."""
    above = root.rstrip("/") + "/"
    return target.removeprefix(above) if target.startswith(above) else None


Read = Callable[[str, int, int], bytes]
"""(absolute path, offset, length) -> bytes, empty at the end; raises SourceUnreadable."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The result of a walk: files by path relative to the root, and unreadable folders (name and reason)."""

    files: tuple[FileStat, ...]
    problems: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[FileStat]:
        """Yield the files, without the problems."""
        return iter(self.files)


class SourceHost(Protocol):
    """Read-only access to the files of one machine. Thread-safe.

    Paths are texts by `file_names.name_of`, so that any bytes can be stored. Any call may raise `HostUnreachable` (no
    connection, or no answer in time) and `HostRefused` (unknown or changed host key, or login refused).
    """

    @property
    def machine(self) -> str:
        """Return the machine's name in results."""

    def folders(self, root: str) -> list[str]:
        """Return the names of the folders directly under `root`, sorted; `.` comes first if `root` itself holds logs.

        :raises SourceUnreadable: `root` is missing or cannot be listed.
        """

    def list_files(self, root: str) -> Listing:
        """List every log at or below `root`, the descriptions of subagents and the tool outputs. Folders that cannot be
        listed are skipped and reported.

        An output is written before the record that refers to it: a listing with that record has the output, too.

        :raises SourceMissing: `root` does not exist, not even as a link.
        :raises SourceUnreadable: `root` itself cannot be listed.
        """

    def file(self, root: str, name: str) -> FileStat | None:
        """Return the file `name` directly in `root`; None if it is missing or cannot be seen."""

    def survey(self, wanted: Sequence[Wanted]) -> list[Survey | SourceUnreadable]:
        """Survey each, in order, in one round trip where the host supports it. A root that cannot be listed gives an
        error in its place.
        """

    def clock_skew_s(self) -> float | None:
        """Return the seconds that the host's clock is ahead, as last measured; None: not measured yet."""

    def home(self) -> str:
        """Return the absolute path of `~` on the host."""

    def fetching(self, files: Sequence[tuple[str, int]]) -> AbstractContextManager[Read]:
        """Return a reader for files that will be read whole and in this order: (absolute path, size) each. A remote
        host sends them together, in bounded memory. Other files can be read as well, and the same file again.
        """

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return at most `length` bytes of the file at the absolute `path`; empty at its end.

        :raises SourceUnreadable: the file is missing or cannot be read.
        """


def is_log(path: str) -> bool:
    """Return whether a path names a Claude Code transcript, at any depth, including one that was set aside.

    Workflow journals and other JSONL files do not count.
    """
    return log_name(path) is not None


def is_agent_description(path: str) -> bool:
    """Return whether a path is Claude Code's description beside a subagent's transcript: `agent-*.meta.json`."""
    name = PurePosixPath(path).name
    return name.startswith("agent-") and name.endswith(_DESCRIPTION)


def is_session_record(path: str) -> bool:
    """Return whether a path is a Cowork session's record beside its folder, by the desktop app: `local_<uuid>.json`."""
    return _SESSION_RECORD.fullmatch(PurePosixPath(path).name) is not None


def record_above(folder: str) -> str:
    """Return the path of the record of the Cowork session whose folder is or contains `folder`; else empty."""
    found = _IN_SESSION.fullmatch(folder)
    return f"{found[1]}.json" if found else ""


def files_above(root: str) -> list[str]:
    """Return the paths of the files outside of a log root that belong to it: the history beside a root called
    `projects`, and the record of the Cowork session that contains the root.
    """
    parent, _, name = root.rstrip("/").rpartition("/")
    history = [f"{parent}/{HISTORY}"] if name == "projects" else []
    return [*history, *filter(None, [record_above(root)])]


def is_description(path: str) -> bool:
    """Return whether a file is one JSON object that describes transcripts."""
    return is_agent_description(path) or is_session_record(path)


def output_name(path: str) -> str | None:
    """Return the name of a tool output, independent of its session's folder: `<session>/tool-results/<id>.txt`. None
    for any other path; `path` may be a Windows path.
    """
    found = _OUTPUT.fullmatch(path)
    return f"{found[1]}/{TOOL_RESULTS}/{found[2]}" if found else None


def is_tool_output(path: str) -> bool:
    """Return whether a path names a tool output: a text file, not JSON lines."""
    return output_name(path) is not None


def is_archived(path: str) -> bool:
    """Return whether a file is archived."""
    return is_log(path) or is_description(path) or is_tool_output(path)


def described_log(path: str) -> str:
    """Return the transcript that a description belongs to."""
    return path.removesuffix(_DESCRIPTION) + ".jsonl"
