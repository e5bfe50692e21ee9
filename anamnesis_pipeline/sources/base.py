"""What every machine that holds logs must offer, and which of its files are archived."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from anamnesis_pipeline.model import FileStat

HISTORY = "history.jsonl"
"""Every prompt that was typed, in the folder above the log root `projects`."""

_LOG = re.compile(
    r"(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|agent-.*)\.jsonl(?:\.orphaned-\d+)?", re.DOTALL
)
_DESCRIPTION = ".meta.json"

TOOL_RESULTS = "tool-results"
"""Folder of a session, in its own folder, with the outputs that Claude Code moved out of the transcript."""
_OUTPUT = re.compile(rf"(?:.*[/\\])?([^/\\]+)[/\\]{TOOL_RESULTS}[/\\]([^/\\]+\.(?:txt|json))", re.DOTALL)


class SourceHost(Protocol):
    """Read-only access to the files of one machine. Safe to share between threads."""

    @property
    def machine(self) -> str:
        """The name of the machine in results."""

    def folders(self, root: str) -> list[str]:
        """The folders directly under `root`, by name, sorted; `.` comes first if `root` itself holds logs.

        :raises SourceUnreadable: `root` is missing or cannot be listed.
        """

    def list_files(self, root: str) -> "Listing":
        """Every log at or below `root`, the descriptions of subagents and the outputs of tools. Folders that cannot be
        listed are skipped and named.

        An output is there before the record that refers to it: where a log is listed with the record, so is the output.

        :raises SourceMissing: there is no `root`, nor a link of that name.
        :raises SourceUnreadable: `root` itself cannot be listed.
        """

    def file(self, root: str, name: str) -> FileStat | None:
        """The one file `name` directly in `root`; None when it is not there or cannot be seen."""

    def read(self, path: str, offset: int, length: int) -> bytes:
        """At most `length` bytes of the file at the absolute `path`; empty at its end.

        :raises SourceUnreadable: the file is missing or cannot be read.
        """


@dataclass(frozen=True, slots=True)
class Listing:
    """What a walk found: files by path relative to the root, and what it could not see (name and reason)."""

    files: tuple[FileStat, ...]
    problems: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[FileStat]:
        """The files, without the problems."""
        return iter(self.files)


def is_log(path: str) -> bool:
    """Whether a path names a Claude Code transcript, at any depth: `<uuid>.jsonl` or `agent-*.jsonl`, also where Claude
    Code set it aside as `*.jsonl.orphaned-<ms>`.

    Workflow journals and other JSONL files are none.
    """
    return _LOG.fullmatch(PurePosixPath(path).name) is not None


def is_agent_description(path: str) -> bool:
    """Whether a path names what Claude Code writes beside a subagent's transcript: `agent-*.meta.json`."""
    name = PurePosixPath(path).name
    return name.startswith("agent-") and name.endswith(_DESCRIPTION)


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
    return is_log(path) or is_agent_description(path) or is_tool_output(path)


def described_log(path: str) -> str:
    """The transcript that a description is of."""
    return path.removesuffix(_DESCRIPTION) + ".jsonl"
