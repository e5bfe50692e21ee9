"""What every machine that holds logs must offer, and which of its files are logs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from anamnesis_pipeline.model import FileStat

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


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
        """Every log file at or below `root`. Folders that cannot be listed are skipped and named.

        :raises SourceUnreadable: `root` itself is missing or cannot be listed.
        """

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
        return iter(self.files)


def is_log(path: str) -> bool:
    """Whether a path names a Claude Code transcript: `<uuid>.jsonl` or `agent-*.jsonl`, at any depth.

    Workflow journals, files set aside as `.orphaned-*` and other JSONL files are none.
    """
    name = PurePosixPath(path).name
    stem, dot, extension = name.rpartition(".")
    return bool(dot) and extension == "jsonl" and (stem.startswith("agent-") or _UUID.fullmatch(stem) is not None)
