"""What every machine that holds logs must offer, and which of its files are archived."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.file_names import log_name
from anamnesis_pipeline.model import FileStat

CONNECT_TIMEOUT_S = 10.0
"""For each of: connection, greeting, log-in, a new channel of another machine."""
COMMAND_TIMEOUT_S = 60.0
"""For a survey of another machine."""
READ_TIMEOUT_S = 20.0
"""For each piece of a file of another machine."""

HISTORY = "history.jsonl"
"""Every prompt that was typed, in the folder above the log root `projects`."""

_DESCRIPTION = ".meta.json"
_SESSION = r"local_(?:[a-z]+_)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_SESSION_RECORD = re.compile(rf"{_SESSION}\.json")
_IN_SESSION = re.compile(rf"(.*/{_SESSION})(?:/.*)?", re.DOTALL)

TOOL_RESULTS = "tool-results"
"""Folder of a session, in its own folder, with the outputs that Claude Code moved out of the transcript."""
_OUTPUT = re.compile(rf"(?:.*[/\\])?([^/\\]+)[/\\]{TOOL_RESULTS}[/\\]([^/\\]+\.(?:txt|json))", re.DOTALL)


IGNORE_FILES = (".gitignore", ".anamnesisignore")
IGNORE_BYTES = 256 << 10
"""A larger file of patterns is a problem, not read."""
REPOSITORY = ".git"
"""A folder, or the file of a worktree. Never entered."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a survey is asked for.

    `kind`, as that of a `SourceSpec`: `documents`, else logs (every archived file at or below `root`, and those of
    `files_above` it). `root` may begin with `~/`. `known` is the `state` of an
    earlier survey of the same. For documents: `names` are globs of file names, whatever their case (none: every file),
    and folders whose name matches a glob of `skip` are not entered, but named if `names_skipped`.
    """

    kind: str
    root: str
    known: str = ""
    names: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    names_skipped: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """What a survey found of one `Wanted`.

    `root` is absolute. `state` is a digest of all that is here, so that the next survey can say in a few bytes that
    nothing changed. `files` is None if `state` equals `known`; all else is empty then, whatever there was. `paths` are
    relative to `root`, those of `files_above` it `../<name>`. Of documents, `ignores` holds the texts of the files
    `.gitignore` and `.anamnesisignore` by path, and `repositories` the folders with a `.git` (`.`: the root itself).
    Links to files are files, with the size and time of their target. Of documents, those whose target lies outside of
    `root` are left out, `links` has the paths of the targets of the others, and links to folders are not followed.
    `skipped`: the folders that were not entered for their name, where they are asked for.
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
    """The path below `root` of what a link leads to; both absolute and without links. None: it lies elsewhere."""
    above = root.rstrip("/") + "/"
    return target.removeprefix(above) if target.startswith(above) else None


Read = Callable[[str, int, int], bytes]
"""(absolute path, offset, length) -> bytes, empty at the end; raises SourceUnreadable."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a walk found: files by path relative to the root, and what it could not see (name and reason)."""

    files: tuple[FileStat, ...]
    problems: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[FileStat]:
        """The files, without the problems."""
        return iter(self.files)


class SourceHost(Protocol):
    """Read-only access to the files of one machine. Safe to share between threads.

    Paths are texts by `file_names.name_of`, so that each can be stored, whatever its bytes. Any call may raise
    `HostUnreachable` (no connection, or no answer in time) and `HostRefused` (its key is unknown or another one, or it
    lets nobody in).
    """

    @property
    def machine(self) -> str:
        """The name of the machine in results."""

    def folders(self, root: str) -> list[str]:
        """The folders directly under `root`, by name, sorted; `.` comes first if `root` itself holds logs.

        :raises SourceUnreadable: `root` is missing or cannot be listed.
        """

    def list_files(self, root: str) -> Listing:
        """Every log at or below `root`, the descriptions of subagents and the outputs of tools. Folders that cannot be
        listed are skipped and named.

        An output is there before the record that refers to it: where a log is listed with the record, so is the output.

        :raises SourceMissing: there is no `root`, nor a link of that name.
        :raises SourceUnreadable: `root` itself cannot be listed.
        """

    def file(self, root: str, name: str) -> FileStat | None:
        """The one file `name` directly in `root`; None when it is not there or cannot be seen."""

    def survey(self, wanted: Sequence[Wanted]) -> list[Survey | SourceUnreadable]:
        """What is there of each, in order, all in one round trip where the host can; one that cannot be listed is an
        error in its place.
        """

    def clock_skew_s(self) -> float | None:
        """Seconds that the host's clock is ahead of this machine's, as last measured; None: not yet."""

    def home(self) -> str:
        """The absolute path that `~` stands for there."""

    def fetching(self, files: Sequence[tuple[str, int]]) -> AbstractContextManager[Read]:
        """A way to read files that will be read whole and in this order: (absolute path, size) each. A host far away
        sends them together; memory is bounded, whatever their number. Other files can be read as well, and read ones
        again.
        """

    def read(self, path: str, offset: int, length: int) -> bytes:
        """At most `length` bytes of the file at the absolute `path`; empty at its end.

        :raises SourceUnreadable: the file is missing or cannot be read.
        """


def is_log(path: str) -> bool:
    """Whether a path names a Claude Code transcript, at any depth, also one that was set aside.

    Workflow journals and other JSONL files are none.
    """
    return log_name(path) is not None


def is_agent_description(path: str) -> bool:
    """Whether a path names what Claude Code writes beside a subagent's transcript: `agent-*.meta.json`."""
    name = PurePosixPath(path).name
    return name.startswith("agent-") and name.endswith(_DESCRIPTION)


def is_session_record(path: str) -> bool:
    """Whether a path names what the desktop app writes beside the folder of a Cowork session: `local_<uuid>.json`."""
    return _SESSION_RECORD.fullmatch(PurePosixPath(path).name) is not None


def record_above(folder: str) -> str:
    """Path of the record of the Cowork session whose folder is `folder` or holds it; empty: its path names none."""
    found = _IN_SESSION.fullmatch(folder)
    return f"{found[1]}.json" if found else ""


def files_above(root: str) -> list[str]:
    """Paths of the files outside of a root of logs that belong to it: the history beside a root that is called
    `projects`, and the record of the Cowork session that holds the root.
    """
    parent, _, name = root.rstrip("/").rpartition("/")
    history = [f"{parent}/{HISTORY}"] if name == "projects" else []
    return [*history, *filter(None, [record_above(root)])]


def is_description(path: str) -> bool:
    """Whether a file is one JSON object that says something of transcripts."""
    return is_agent_description(path) or is_session_record(path)


def output_name(path: str) -> str | None:
    """What an output of a tool is called wherever its session lies: `<session>/tool-results/<id>.txt`. None for the
    path of anything else; `path` may be of Windows.
    """
    found = _OUTPUT.fullmatch(path)
    return f"{found[1]}/{TOOL_RESULTS}/{found[2]}" if found else None


def is_tool_output(path: str) -> bool:
    """Whether a path names a text file, no lines of JSON, with what a tool put out."""
    return output_name(path) is not None


def is_archived(path: str) -> bool:
    """Whether a file is one of those that are kept."""
    return is_log(path) or is_description(path) or is_tool_output(path)


def described_log(path: str) -> str:
    """The transcript that a description is of."""
    return path.removesuffix(_DESCRIPTION) + ".jsonl"
