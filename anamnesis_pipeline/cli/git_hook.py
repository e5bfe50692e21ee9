"""A git hook that tells the drift of a project after each commit."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from anamnesis_pipeline.errors import GiveUp

BEGIN, END = "# >>> anamnesis drift >>>", "# <<< anamnesis drift <<<"
SHEBANG = "#!/bin/sh\n"
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def hook_file(folder: Path) -> Path:
    """Return the file of the hook `post-commit` of the repository around a folder.

    :raises GiveUp: there is no repository, or no git.
    """
    command = ["git", "-C", str(folder), "rev-parse", "--path-format=absolute", "--git-path", "hooks/post-commit"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as exc:
        raise GiveUp(f"{folder} is in no git repository, or git is not installed; go to the repository") from exc
    return Path(done.stdout.strip())


def with_block(hook: str, home: Path) -> str:
    """Return a hook with our lines first, since it may end early; what else it does is unchanged. Pure.

    :param hook: empty: there is none.
    :raises GiveUp: it is no shell script.
    """
    first, _, rest = (without_block(hook) or SHEBANG).partition("\n")
    words = first.removeprefix("#!").split()
    if not first.startswith("#!") or not any(word.rpartition("/")[2] in _SHELLS for word in words):
        raise GiveUp(f"the hook post-commit is no shell script but {first[:60]!r}; call there: anamnesis drift --hook")
    return f"{first}\n{_block(home)}{rest}"


def without_block(hook: str) -> str:
    """Return a hook without our lines; empty if nothing else is in it. Pure."""
    before, begin, rest = hook.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(f"{END}\n")
    left = before + after if begin and end else hook
    return "" if left == SHEBANG else left


def _block(home: Path) -> str:
    python = f"{shlex.quote(sys.executable)} -m anamnesis_pipeline"
    root = '"$(git rev-parse --show-toplevel)"'
    call = f"ANAMNESIS_HOME={shlex.quote(str(home))} {python} drift --hook --root {root} </dev/null 2>/dev/null || true"
    return f"{BEGIN}\n{call}\n{END}\n"


def change_hook(folder: Path, home: Path, *, install: bool, dry_run: bool) -> str:
    """Add our lines to the hook `post-commit` of the repository around a folder, or remove them; return what to say.

    :raises GiveUp: see `hook_file` and `with_block`; or the file cannot be read or written.
    """
    file = hook_file(folder)
    try:
        former = file.read_text(encoding="utf-8") if file.exists() else ""
        wanted = with_block(former, home) if install else without_block(former)
        if wanted == former:
            return f"{file} has {'our lines' if install else 'no lines of ours'} already"
        if dry_run:
            return f"{file} would be:\n{wanted}" if wanted else f"{file} would be removed"
        if not wanted:
            file.unlink()
            return f"{file} is removed"
        mode = file.stat().st_mode & 0o777 if file.exists() else 0o755
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.anamnesis")
        draft.write_text(wanted, encoding="utf-8")
        draft.chmod(mode | 0o100)
        os.replace(draft, file)
    except (OSError, UnicodeDecodeError) as exc:
        raise GiveUp(f"{file} cannot be read or written ({type(exc).__name__}); nothing is changed") from exc
    return f"{file} tells the drift after each commit" if install else f"{file} has no lines of ours any more"
