"""The project of a working directory: its git repository, for any worktree; else its path."""

import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import Protocol

from anamnesis_pipeline.parsing.text.file_names import bytes_of, composed, name_of

_HOME = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:/Users/[^/]+)(?=/|$)")
_WSL_SHARE = re.compile(r"//(?:wsl\$|wsl\.localhost)/[^/]+(?=/|$)", re.IGNORECASE)
_WSL_DRIVE = re.compile(r"/mnt/([a-z])(?=/|$)")
_DRIVE = re.compile(r"[a-z]:(?=/|$)")
_REMOTE = re.compile(r"(?:[a-z+]+://(?:[^/@]*@)?([^/@:]+|\[[^/\]]*\])(?::\d*)?/|(?:[^/@:]+@)?([^/:@]{2,}):(?!//))(.+)")
_GITHUB = frozenset({"github.com", "www.github.com", "ssh.github.com"})
"""Names of the one host whose repositories are named by their path alone."""


class Disk(Protocol):
    """The disk of a machine, as far as finding a repository needs it. Paths are absolute texts by `name_of`."""

    def mode(self, path: str) -> int | None:
        """Return the `st_mode` of a path, following links; None: nothing is there.

        :raises OSError: it cannot be seen.
        """

    def text(self, path: str) -> str:
        """Return a small file's text, invalid UTF-8 replaced.

        :raises OSError: it cannot be read.
        """

    def real_path(self, path: str) -> str:
        """Return the path without links and dots, even if nothing is there.

        :raises OSError: the links form a loop.
        """

    def home(self) -> str:
        """Return the home of the login user."""


class LocalDisk:
    """The disk of this machine."""

    def mode(self, path: str) -> int | None:
        """Return the `st_mode` of a path, following links; None: nothing is there.

        :raises OSError: it cannot be seen.
        """
        try:
            return os.stat(bytes_of(path)).st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def text(self, path: str) -> str:
        """Return a small file's text, invalid UTF-8 replaced.

        :raises OSError: it cannot be read.
        """
        if not stat.S_ISREG(os.stat(bytes_of(path)).st_mode):  # opening a pipe would block
            raise OSError(f"{path} is no regular file")
        with open(bytes_of(path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def real_path(self, path: str) -> str:
        """Return the path without links and dots, even if nothing is there."""
        return name_of(os.path.realpath(bytes_of(path)))

    def home(self) -> str:
        """Return the home of the user who runs this process."""
        return name_of(os.fsencode(Path.home()))


LOCAL_DISK = LocalDisk()


def resolved_project(cwd: str, disk: Disk = LOCAL_DISK) -> str | None:
    """Return a directory's repository, or the target of a link, from a machine's disk. None: neither, or the directory
    is gone and no repository is left around it. Reads files under it, so callers ask once per directory.
    """
    if (identity := git_identity(cwd, disk)) is not None:
        return identity
    try:
        is_there = PurePosixPath(cwd).is_absolute() and _is_folder(disk, cwd)
        return project_label(disk.real_path(cwd)) if is_there else None
    except (OSError, ValueError):
        return None


def project_label(cwd: str) -> str:
    r"""Return the path with `/` as separator and `~` for any user's home.

    Windows and WSL name one folder in several ways: `C:\x`, `c:/x` and `/mnt/c/x` are one project, and so are
    `\\wsl$\Ubuntu\home\ann\x` and `/home/ann/x`.
    """
    is_windows = cwd.startswith("\\\\") or cwd[1:2] == ":"  # on other systems, backslashes may belong to a name
    path = composed(cwd.replace("\\", "/") if is_windows else cwd)
    path = _WSL_SHARE.sub("", path, count=1) or "/"
    path = _WSL_DRIVE.sub(lambda drive: f"{drive[1]}:", path, count=1) if path.startswith("/mnt/") else path
    path = path[0].upper() + path[1:] if _DRIVE.match(path) else path
    if not cwd:
        return ""
    return _HOME.sub("~", path.rstrip("/") or path, count=1) if _HOME.match(path) else path.rstrip("/") or path


def git_identity(cwd: str, disk: Disk = LOCAL_DISK) -> str | None:
    """Return `owner/repo` of the remote `origin` on GitHub, `host/owner/repo` of another host, without a remote the
    label of the main worktree; None outside a repository.

    Only files are read. A removed directory belongs to the remaining repository around it, unless that covers the whole
    home; a directory that was never on this machine belongs to none.
    """
    directory = PurePosixPath(cwd)
    try:
        if not directory.is_absolute():
            return None
        left = next(d for d in (directory, *directory.parents) if _is_folder(disk, str(d)))
        place = PurePosixPath(disk.real_path(str(left)))
        worktree = next((d for d in (place, *place.parents) if disk.mode(f"{d}/.git") is not None), None)
        if worktree is None or (left != directory and _holds_homes(worktree, disk)):
            return None
        return composed(_identity(worktree, disk))
    except (OSError, ValueError, StopIteration):
        return None


def _is_folder(disk: Disk, path: str) -> bool:
    return stat.S_ISDIR(disk.mode(path) or 0)


def _is_file(disk: Disk, path: str) -> bool:
    return stat.S_ISREG(disk.mode(path) or 0)


def _holds_homes(directory: PurePosixPath, disk: Disk) -> bool:
    """Return whether a directory is a user's home, or a folder above one."""
    home = PurePosixPath(disk.real_path(disk.home()))
    return project_label(str(directory)) in {"~", "/", "/home", "/Users"} or directory in (home, *home.parents)


def _identity(worktree: PurePosixPath, disk: Disk) -> str:
    git_dir = worktree / ".git"
    if not _is_folder(disk, str(git_dir)):  # a linked worktree has a file that names its folder
        git_dir = _resolved(disk, worktree, disk.text(str(git_dir)).partition("gitdir:")[2].strip())
    common = f"{git_dir}/commondir"
    is_linked = _is_file(disk, common)
    shared = _resolved(disk, git_dir, disk.text(common).strip()) if is_linked else git_dir
    remote = _origin(f"{shared}/config", disk)
    if remote is not None:
        return remote
    main = shared.parent if shared.name == ".git" else shared if is_linked else worktree
    return project_label(str(main))


def _resolved(disk: Disk, folder: PurePosixPath, path: str) -> PurePosixPath:
    return PurePosixPath(disk.real_path(str(folder / path)))


def _origin(config: str, disk: Disk) -> str | None:
    """Return host and path of the remote `origin` without credentials, port and `.git`; None if local or missing."""
    if not _is_file(disk, config):
        return None
    in_origin = False
    for line in disk.text(config).splitlines():
        entry = line.strip()
        if entry.startswith("["):
            in_origin = entry.replace(" ", "").lower() == '[remote"origin"]'
        elif in_origin and entry.partition("=")[0].strip().lower() == "url":
            return _repository(entry.partition("=")[2].strip().strip('"'))
    return None


def _repository(url: str) -> str | None:
    remote = _REMOTE.fullmatch(url)
    path = remote[3].strip("/").removesuffix(".git") if remote else ""
    if remote is None or not path:
        return None
    host = (remote[1] or remote[2]).casefold()
    return path if host in _GITHUB else f"{host}/{path}"
