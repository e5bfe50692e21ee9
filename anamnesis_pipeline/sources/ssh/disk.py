"""The disk of a remote host, as far as finding the repository of a folder needs it."""

from collections.abc import Callable

from anamnesis_pipeline.errors import SourceMissing, SourceUnreadable
from anamnesis_pipeline.sources.base import Read
from anamnesis_pipeline.sources.ssh.sftp import Attributes

TEXT_BYTES = 1 << 20
"""A longer file does not describe a repository."""


class SshDisk:
    """Disk access within the host's permissions. Every method may also raise `HostUnreachable` and `HostRefused`."""

    def __init__(
        self, stat: Callable[[str], Attributes], real_path: Callable[[str], str], read: Read, home: Callable[[], str]
    ) -> None:
        """:param stat: returns the attributes of a path, following links.
        :param real_path: returns a path without links and dots.
        :param home: returns the path of `~`.
        """
        self._stat = stat
        self._real_path = real_path
        self._read = read
        self._home = home

    def mode(self, path: str) -> int | None:
        """Return the `st_mode` of a path, following links; None: nothing is there.

        :raises OSError: it cannot be seen.
        """
        try:
            return self._stat(path).mode
        except SourceMissing:
            return None
        except SourceUnreadable as problem:
            raise OSError(str(problem)) from problem

    def text(self, path: str) -> str:
        """Return a small file's text, invalid UTF-8 replaced; a larger file is truncated.

        :raises OSError: it cannot be read.
        """
        try:
            return self._read(path, 0, TEXT_BYTES).decode("utf-8", "replace")
        except SourceUnreadable as problem:
            raise OSError(str(problem)) from problem

    def real_path(self, path: str) -> str:
        """Return the path without links and dots, even if nothing is there.

        :raises OSError: the host does not answer.
        """
        try:
            return self._real_path(path)
        except SourceUnreadable as problem:
            raise OSError(str(problem)) from problem

    def home(self) -> str:
        """Return the home of the login user."""
        return self._home()
