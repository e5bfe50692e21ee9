"""Which project a working directory belongs to: its git repository, wherever the worktree; else its path."""

import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import Protocol

from anamnesis_pipeline.file_names import bytes_of, composed, name_of

_HOME = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:/Users/[^/]+)(?=/|$)")
_WSL_SHARE = re.compile(r"//(?:wsl\$|wsl\.localhost)/[^/]+(?=/|$)", re.IGNORECASE)
_WSL_DRIVE = re.compile(r"/mnt/([a-z])(?=/|$)")
_DRIVE = re.compile(r"[a-z]:(?=/|$)")
_REMOTE = re.compile(r"(?:[a-z+]+://(?:[^/@]*@)?([^/@:]+|\[[^/\]]*\])(?::\d*)?/|(?:[^/@:]+@)?([^/:@]{2,}):(?!//))(.+)")
_GITHUB = frozenset({"github.com", "www.github.com", "ssh.github.com"})
"""Names of the one host whose repositories are called by their path alone."""


class Disk(Protocol):
    """The disk of a machine, as far as it takes to find a repository. Paths are absolute texts by `name_of`."""

    def mode(self, path: str) -> int | None:
        """The `st_mode` of what is there, behind links; None: nothing.

        :raises OSError: it cannot be seen.
        """

    def text(self, path: str) -> str:
        """A small file's text, invalid UTF-8 replaced.

        :raises OSError: it cannot be read.
        """

    def real_path(self, path: str) -> str:
        """The path without links and dots, also where nothing is there.

        :raises OSError: the links go round in circles.
        """

    def home(self) -> str:
        """The home of the user who looks."""


class LocalDisk:
    """The disk of this machine."""

    def mode(self, path: str) -> int | None:
        """The `st_mode` of what is there, behind links; None: nothing.

        :raises OSError: it cannot be seen.
        """
        try:
            return os.stat(bytes_of(path)).st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def text(self, path: str) -> str:
        """A small file's text, invalid UTF-8 replaced.

        :raises OSError: it cannot be read.
        """
        if not stat.S_ISREG(os.stat(bytes_of(path)).st_mode):  # a pipe would wait for ever
            raise OSError(f"{path} is no regular file")
        with open(bytes_of(path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def real_path(self, path: str) -> str:
        """The path without links and dots, also where nothing is there."""
        return name_of(os.path.realpath(bytes_of(path)))

    def home(self) -> str:
        """The home of the user who runs this."""
        return name_of(os.fsencode(Path.home()))


LOCAL_DISK = LocalDisk()


def resolved_project(cwd: str, disk: Disk = LOCAL_DISK) -> str | None:
    """What a machine's disk says of a directory: its repository, or where a link leads. None: nothing, or it is gone
    and no repository is left around it. Reads files under it, so callers ask once per directory.
    """
    if (identity := git_identity(cwd, disk)) is not None:
        return identity
    try:
        is_there = PurePosixPath(cwd).is_absolute() and _is_folder(disk, cwd)
        return project_label(disk.real_path(cwd)) if is_there else None
    except (OSError, ValueError):
        return None


def project_label(cwd: str) -> str:
    r"""The path with `/` for every separator and `~` for anybody's home.

    Windows and WSL name one folder in several ways: `C:\x`, `c:/x` and `/mnt/c/x` are one project, and so are
    `\\wsl$\Ubuntu\home\ann\x` and `/home/ann/x`.
    """
    path = composed(cwd.replace("\\", "/") if _is_windows(cwd) else cwd)
    path = _WSL_SHARE.sub("", path, count=1) or "/"
    path = _WSL_DRIVE.sub(lambda drive: f"{drive[1]}:", path, count=1) if path.startswith("/mnt/") else path
    path = path[0].upper() + path[1:] if _DRIVE.match(path) else path
    if not cwd:
        return ""
    return _HOME.sub("~", path.rstrip("/") or path, count=1) if _HOME.match(path) else path.rstrip("/") or path


def _is_windows(cwd: str) -> bool:
    """Whether backslashes in a path divide it; on other systems they may belong to a name."""
    return cwd.startswith("\\\\") or cwd[1:2] == ":"


def git_identity(cwd: str, disk: Disk = LOCAL_DISK) -> str | None:
    """`owner/repo` of the remote `origin` on GitHub, `host/owner/repo` of one elsewhere, without a remote the label of
    the main worktree; None outside a repository.

    Only files are read. A directory that is gone belongs to the repository that is left around it, unless that is one
    of the whole home; one that was never on this machine belongs to none.
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
    """Whether a directory is somebody's home, or a folder above one."""
    home = PurePosixPath(disk.real_path(disk.home()))
    return project_label(str(directory)) in {"~", "/", "/home", "/Users"} or directory in (home, *home.parents)


def _identity(worktree: PurePosixPath, disk: Disk) -> str:
    git_dir = _git_dir(worktree, disk)
    common = f"{git_dir}/commondir"
    is_linked = _is_file(disk, common)
    shared = _resolved(disk, git_dir, disk.text(common).strip()) if is_linked else git_dir
    remote = _origin(f"{shared}/config", disk)
    if remote is not None:
        return remote
    main = shared.parent if shared.name == ".git" else shared if is_linked else worktree
    return project_label(str(main))


def _git_dir(worktree: PurePosixPath, disk: Disk) -> PurePosixPath:
    entry = worktree / ".git"
    if _is_folder(disk, str(entry)):
        return entry
    return _resolved(disk, worktree, disk.text(str(entry)).partition("gitdir:")[2].strip())


def _resolved(disk: Disk, folder: PurePosixPath, path: str) -> PurePosixPath:
    return PurePosixPath(disk.real_path(str(folder / path)))


def _origin(config: str, disk: Disk) -> str | None:
    """Host and path of the remote `origin` without credentials, port and `.git`; None for none or a local one."""
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
