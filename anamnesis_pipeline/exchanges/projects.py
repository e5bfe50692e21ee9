"""Which project a working directory belongs to: its git repository, wherever the worktree; else its path."""

import re
from pathlib import Path

_HOME = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:/Users/[^/]+)(?=/|$)")
_WSL_SHARE = re.compile(r"//(?:wsl\$|wsl\.localhost)/[^/]+(?=/|$)", re.IGNORECASE)
_WSL_DRIVE = re.compile(r"/mnt/([a-z])(?=/|$)")
_DRIVE = re.compile(r"[a-z]:(?=/|$)")
_REMOTE = re.compile(r"(?:[a-z+]+://(?:[^/@]*@)?([^/@:]+|\[[^/\]]*\])(?::\d*)?/|(?:[^/@:]+@)?([^/:@]{2,}):(?!//))(.+)")
_GITHUB = frozenset({"github.com", "www.github.com", "ssh.github.com"})
"""Names of the one host whose repositories are called by their path alone."""


def project_of(cwd: str) -> str:
    """The project of a working directory. Reads files under it, so callers ask once per directory."""
    return resolved_project(cwd) or project_label(cwd)


def resolved_project(cwd: str) -> str | None:
    """What this machine's disk says of a directory: its repository, or where a link leads. None: nothing, or it is gone
    and no repository is left around it.
    """
    if (identity := git_identity(cwd)) is not None:
        return identity
    try:
        directory = Path(cwd)
        return project_label(str(directory.resolve())) if directory.is_absolute() and directory.is_dir() else None
    except (OSError, ValueError):
        return None


def project_label(cwd: str) -> str:
    r"""The path with `/` for every separator and `~` for anybody's home.

    Windows and WSL name one folder in several ways: `C:\x`, `c:/x` and `/mnt/c/x` are one project, and so are
    `\\wsl$\Ubuntu\home\ann\x` and `/home/ann/x`.
    """
    path = cwd.replace("\\", "/") if _is_windows(cwd) else cwd
    path = _WSL_SHARE.sub("", path, count=1) or "/"
    path = _WSL_DRIVE.sub(lambda drive: f"{drive[1]}:", path, count=1) if path.startswith("/mnt/") else path
    path = path[0].upper() + path[1:] if _DRIVE.match(path) else path
    if not cwd:
        return ""
    return _HOME.sub("~", path.rstrip("/") or path, count=1) if _HOME.match(path) else path.rstrip("/") or path


def _is_windows(cwd: str) -> bool:
    """Whether backslashes in a path divide it; on other systems they may belong to a name."""
    return cwd.startswith("\\\\") or cwd[1:2] == ":"


def git_identity(cwd: str) -> str | None:
    """`owner/repo` of the remote `origin` on GitHub, `host/owner/repo` of one elsewhere, without a remote the label of
    the main worktree; None outside a repository.

    Only files are read. A directory that is gone belongs to the repository that is left around it, unless that is one
    of the whole home; one that was never on this machine belongs to none.
    """
    directory = Path(cwd)
    try:
        if not directory.is_absolute():
            return None
        left = next(d for d in (directory, *directory.parents) if d.is_dir())
        place = left.resolve()
        worktree = next((d for d in (place, *place.parents) if (d / ".git").exists()), None)
        if worktree is None or (left != directory and _holds_homes(worktree)):
            return None
        return _identity(worktree)
    except (OSError, ValueError, RuntimeError):
        return None


def _holds_homes(directory: Path) -> bool:
    """Whether a directory is somebody's home, or a folder above one."""
    home = Path.home().resolve()
    return project_label(str(directory)) in {"~", "/", "/home", "/Users"} or directory in (home, *home.parents)


def _identity(worktree: Path) -> str:
    git_dir = _git_dir(worktree)
    common = git_dir / "commondir"
    shared = (git_dir / common.read_text(encoding="utf-8").strip()).resolve() if common.is_file() else git_dir
    remote = _origin(shared / "config")
    if remote is not None:
        return remote
    main = shared.parent if shared.name == ".git" else shared if common.is_file() else worktree
    return project_label(str(main))


def _git_dir(worktree: Path) -> Path:
    entry = worktree / ".git"
    if entry.is_dir():
        return entry
    return (worktree / entry.read_text(encoding="utf-8").partition("gitdir:")[2].strip()).resolve()


def _origin(config: Path) -> str | None:
    """Host and path of the remote `origin` without credentials, port and `.git`; None for none or a local one."""
    if not config.is_file():
        return None
    in_origin = False
    for line in config.read_text(encoding="utf-8", errors="replace").splitlines():
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
