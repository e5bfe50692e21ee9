"""A far host's disk, as far as it takes to find which repository a folder there belongs to."""

from collections.abc import Callable

from anamnesis_pipeline.errors import SourceMissing, SourceUnreadable
from anamnesis_pipeline.sources.base import Read
from anamnesis_pipeline.sources.sftp import Attributes

TEXT_BYTES = 1 << 20
"""A longer file is no description of a repository."""


class SshDisk:
    """Looks as the host lets it. Besides what is said below, everything raises `HostUnreachable` and `HostRefused`."""

    def __init__(
        self, stat: Callable[[str], Attributes], real_path: Callable[[str], str], read: Read, home: Callable[[], str]
    ) -> None:  # fmt: skip
        """:param stat: of what is at a path, behind links.

        :param real_path: a path without links and dots.
        :param home: where `~` is there.
        """
        self._stat = stat
        self._real_path = real_path
        self._read = read
        self._home = home

    def mode(self, path: str) -> int | None:
        """The `st_mode` of what is there, behind links; None: nothing.

        :raises OSError: it cannot be seen.
        """
        try:
            return self._stat(path).mode
        except SourceMissing:
            return None
        except SourceUnreadable as problem:
            raise OSError(str(problem)) from problem

    def text(self, path: str) -> str:
        """A small file's text, invalid UTF-8 replaced; cut where it is no small one.

        :raises OSError: it cannot be read.
        """
        try:
            return self._read(path, 0, TEXT_BYTES).decode("utf-8", "replace")
        except SourceUnreadable as problem:
            raise OSError(str(problem)) from problem

    def real_path(self, path: str) -> str:
        """The path without links and dots, also where nothing is there.

        :raises OSError: the host does not say.
        """
        try:
            return self._real_path(path)
        except SourceUnreadable as problem:
            raise OSError(str(problem)) from problem

    def home(self) -> str:
        """The home of the user who looks."""
        return self._home()
