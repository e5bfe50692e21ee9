"""Which project a working directory belongs to: its git repository, wherever the worktree; else its path."""

import re
from pathlib import Path

_HOME = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:/Users/[^/]+)(?=/|$)")
_REMOTE_PATH = re.compile(r"^(?:[a-z+]+://(?:[^/@]*@)?[^/]+/|(?:[^/@:]+@)?[^/:@]{2,}:(?!//))(.+)$")


def project_of(cwd: str) -> str:
    """The project of a working directory. Reads files under it, so callers ask once per directory."""
    return git_identity(cwd) or project_label(cwd)


def project_label(cwd: str) -> str:
    """The path with `/` for every separator and `~` for anybody's home."""
    path = cwd.replace("\\", "/")
    return _HOME.sub("~", path.rstrip("/") or path, count=1) if _HOME.match(path) else path.rstrip("/") or path


def git_identity(cwd: str) -> str | None:
    """`owner/repo` of the remote `origin`, else the label of the main worktree; None outside a repository.

    Only files are read. A directory that is not on this machine belongs to no repository here.
    """
    directory = Path(cwd)
    try:
        if not directory.is_absolute() or not directory.is_dir():
            return None
        worktree = next((d for d in (directory, *directory.parents) if (d / ".git").exists()), None)
        return None if worktree is None else _identity(worktree)
    except (OSError, ValueError):
        return None


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
    """Path of the remote `origin` without host, credentials and `.git`; None for none or a local one."""
    if not config.is_file():
        return None
    in_origin = False
    for line in config.read_text(encoding="utf-8", errors="replace").splitlines():
        entry = line.strip()
        if entry.startswith("["):
            in_origin = entry.replace(" ", "").lower() == '[remote"origin"]'
        elif in_origin and entry.partition("=")[0].strip().lower() == "url":
            path = _REMOTE_PATH.match(entry.partition("=")[2].strip().strip('"'))
            return (path[1].strip("/").removesuffix(".git") or None) if path else None
    return None
