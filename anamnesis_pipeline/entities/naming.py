"""Names under which a thing is known, so that clones, worktrees and machines agree. Pure."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from anamnesis_pipeline.knowledge.claims import path_of
from anamnesis_pipeline.parsing.claude_logs.commands import commands_of
from anamnesis_pipeline.parsing.claude_logs.projects import project_label

MAX_NAME_CHARS = 300

_WORKTREE = re.compile(r"^.*/(?:\.claude/worktrees|\.?(?:[\w.-]+-)?worktrees)/[^/]+(?=/|$)")
"""A folder in which tools put linked worktrees of a repository."""
_GIVEN = re.compile(r"[A-Za-z_]\w*(?==)|--?[A-Za-z][\w-]*")
_DOES = re.compile(r"[A-Za-z][\w:.-]*")
_RUNNERS = frozenset("python python3 node ruby bash sh perl php deno bun tsx ts-node".split())
_WRAPPED = {"mvnw": "mvn", "gradlew": "gradle"}
"""A repository's own copy of a program."""
_ENTRIES = frozenset("manage.py artisan console rails rake".split())
"""Scripts whose next word says what they do."""
_GROUPS = frozenset(
    "run rollout compose exec repo release pr issue image container stack config service migrate db remote stash "
    "workspace tool pip".split()
)
"""Subcommands whose next word says what they do, as in `npm run build`."""
_SWITCHES = frozenset(
    "-q -v -vv -y -s -x -B -U -it -i -t -d --silent --quiet --verbose --yes --strict --user --release --all".split()
)
"""Options after which no value follows; the word after another one may be its value."""
_DATA = re.compile(r"\.(?:json|zip|ya?ml|toml|txt|csv|xml|lock|conf|tar|gz|html|db|sql)$")
_MODULES = frozenset({"-m"})


def root_of(project: str, folders: Sequence[str]) -> str:
    """Return the root of a project's working copy, as `project_label` writes it; empty: unknown.

    :param folders: working directories, that in which the session began first.
    """
    name = project.rstrip("/").rpartition("/")[2].lower()
    for folder in map(project_label, filter(None, folders)):
        if (worktree := _WORKTREE.match(folder)) is not None:
            return worktree[0]
        place = PurePosixPath(folder)
        named = [each for each in (place, *place.parents) if each.name.lower() == name]
        if named:
            return str(named[-1])
    return project_label(next(filter(None, folders), ""))


def file_name(path: str, folder: str, root: str) -> str:
    """Return the name of a file: its path below the root of its working copy, else its absolute path.

    :param path: absolute, or relative to the working directory `folder`.
    :param root: as `root_of` returns it.
    """
    path = path.strip().strip("\"'")
    is_absolute = path.startswith(("/", "~", "\\\\")) or path[1:2] == ":"
    whole = project_label(path if is_absolute else f"{folder.rstrip('/')}/{path}" if folder else path)
    pieces: list[str] = []
    for piece in whole.split("/"):
        if piece == ".." and pieces and pieces[-1] not in {"", ".."}:
            pieces.pop()
        elif piece != ".":
            pieces.append(piece)
    whole = "/".join(pieces)
    below = f"{root.rstrip('/')}/"
    if root and whole.startswith(below):
        whole = whole.removeprefix(below)
    elif (worktree := _WORKTREE.match(whole)) is not None:
        whole = whole[worktree.end() :].lstrip("/")
    return whole[:MAX_NAME_CHARS]


def is_same_file(name: str, asked: str) -> bool:
    """Return whether a file's name is that which a person asks for: either ends with the other, at a `/`."""
    one, other = f"/{name.lower()}", f"/{asked.lower().removeprefix('./').lstrip('/')}"
    return one.endswith(other) or (other.endswith(one) and one.count("/") > 1)


def leaf_of(name: str) -> str:
    """Return the last piece of a name, in small letters: what a lookup by a piece of a path begins with."""
    return name.rstrip("/").rpartition("/")[2].lower()


def command_names(script: str) -> list[tuple[str, str]]:
    """Return, for each command of a script, its name and its program."""
    found = []
    for program, rest, _ in commands_of(script):
        if not _DOES.fullmatch(program):
            continue
        program = _WRAPPED.get(program, program)
        found.append((" ".join([program, *_subcommand(program, rest)])[:MAX_NAME_CHARS], program))
    return found


def form_of(script: str) -> tuple[tuple[str, ...], ...]:
    """Return of each command of a script its name, and the variables and options that it is given, without values."""
    return tuple(
        (
            " ".join([_WRAPPED.get(program, program), *_subcommand(program, rest)]),
            *sorted({found[0] for word in words if (found := _GIVEN.match(word)) is not None}),
        )
        for program, rest, words in commands_of(script)
    )


def _subcommand(program: str, rest: Sequence[str]) -> list[str]:
    """Return the words that say what a program does: a subcommand, a module, or the script that it runs."""
    if program in _RUNNERS:
        for word, following in zip(rest, [*rest[1:], ""], strict=True):
            if word in _MODULES:
                return ["-m", following] if following else []
            if not word.startswith("-"):
                name = PurePosixPath(word).name
                told = [name] if "." in word or name in _ENTRIES else []
                return [*told, following] if name in _ENTRIES and _DOES.fullmatch(following) else told
        return []
    told = [word for before, word in pairwise(["", *rest]) if not word.startswith("-") and not _takes_value(before)]
    if not told or program in _WITH_OPERANDS:
        return []
    most = 2 if told[0] in _GROUPS else 1
    return [word for word in told[:most] if _DOES.fullmatch(word) and not path_of(word) and not _DATA.search(word)]


def _takes_value(option: str) -> bool:
    return option.startswith("-") and "=" not in option and option not in _SWITCHES


_WITH_OPERANDS = frozenset(
    """pytest vitest jest mocha ruff mypy black eslint prettier tsc gcc g++ clang sed awk curl wget ssh scp rsync psql
    mysql sqlite3 redis-cli tar zip unzip gzip mv cp rm mkdir chmod chown touch ln find xargs tee dig open code sudo
    jq kill pkill systemd-run timeout file patch diff pandoc ffmpeg convert""".split()
)
"""Programs whose words are what they work on, not what they do."""
