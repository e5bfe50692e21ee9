"""What is known of a project's files: from its folder on this disk, read only, or from what was crawled of it."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.claude_logs.projects import project_label, resolved_project
from anamnesis_pipeline.parsing.documents.languages import CODE_FORMATS, CONFIG_FORMATS, format_of
from anamnesis_pipeline.parsing.text.file_names import composed
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.projects import SEEN, project_aliases
from anamnesis_pipeline.pipeline.publish import SECTION_KINDS
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import store_name

MAX_FILES = 60_000
MAX_FILE_BYTES = 1 << 19
MAX_READ_BYTES = 64 << 20
"""Of the code and configuration of one folder."""
MAX_SECTIONS = 20_000
"""Crawled sections of a project that are read, the newest."""
PAGE = 500
MAX_ROOTS = 4
"""Folders of a project that are looked at."""
NOT_WALKED = frozenset(
    ".git .hg .svn node_modules .venv venv __pycache__ .mypy_cache .ruff_cache .pytest_cache .tox .nox "
    ".hypothesis".split()
)
PRODUCED = NOT_WALKED | frozenset(
    "dist build out target coverage htmlcov tmp temp logs log .cache site bin obj data".split()
)
"""Folders whose content comes and goes; nothing in them is said to be missing."""
_OUTER = frozenset({"", "/", "~", "/home", "/Users", "/tmp"})  # noqa: S108
_WORD = re.compile(r"[A-Za-z_]\w*")
_PACKAGE = re.compile(r"@?[A-Za-z][\w.-]*(?:/[\w.-]+)?")
_TARGET = re.compile(r"^([\w.%/ -]+?)\s*:(?![=])", re.MULTILINE)
_RECIPE = re.compile(r"^([A-Za-z_][\w-]*)[^:=\n]*:(?!=)", re.MULTILINE)
_MANIFESTS = re.compile(
    r"pyproject\.toml|package\.json|requirements[\w.-]*\.(?:txt|in)|setup\.(?:py|cfg)|Cargo\.toml|go\.mod|Gemfile|Pipfile|environment\.ya?ml"
)
_MAKEFILES = frozenset({"makefile", "gnumakefile", "justfile"})


@dataclass(frozen=True, slots=True)
class Tree:
    """The known files of a project in one folder of one machine; paths are relative to `root`.

    `places`: files and folders, by name. `gone`: files that were there. `is_whole`: every file is listed. `words`: of
    its code and configuration; None: not all of that is known. `scripts`, `targets`, `packages`: None: no file that
    declares them is known, or one cannot be understood.
    """

    machine: str
    root: str
    files: frozenset[str]
    places: Mapping[str, tuple[str, ...]]
    gone: frozenset[str]
    is_whole: bool
    words: frozenset[str] | None
    scripts: frozenset[str] | None
    targets: frozenset[str] | None
    packages: frozenset[str] | None
    ignored: tuple[str, ...]

    @property
    def stems(self) -> frozenset[str]:
        """Return the names of its files of code, without extensions, and of their folders."""
        code = [path for path in self.files if format_of(path) in CODE_FORMATS]
        return frozenset(each.split(".")[0] for path in code for each in path.split("/")[-2:])

    def inside(self, path: str) -> str | None:
        """Return a path as seen from the root; None: it is outside."""
        if not path.startswith("/"):
            own = self.root.rstrip("/").rpartition("/")[2]
            return path.removeprefix(f"{own}/") if not self.ends(path) else path
        return path.removeprefix(f"{self.root}/") if path.startswith(f"{self.root}/") else None

    def ends(self, path: str) -> list[str]:
        """Return the files and folders with this path, or with one that ends so."""
        path = path.rstrip("/")
        places = self.places.get(path.rpartition("/")[2], ())
        return [each for each in places if each == path or each.endswith(f"/{path}")]

    def ignores(self, path: str) -> bool:
        """Return whether a path may come and go: it is in a produced folder, or version control ignores it."""
        parts = path.strip("/").split("/")
        if PRODUCED.intersection(parts):
            return True
        return any(fnmatchcase(part, pattern) for pattern in self.ignored for part in (*parts, "/".join(parts)))


def tree_of(
    machine: str,
    root: str,
    files: Iterable[str],
    texts: Iterable[tuple[str, str]],
    *,
    gone: Iterable[str] = (),
    is_whole: bool,
    is_read: bool = True,
) -> Tree:
    """Return what files and their texts say. Pure.

    :param texts: path and text of code, configuration and manifests; a file may come in several pieces.
    :param is_read: no code is left out of them.
    """
    known = frozenset(files)
    places: dict[str, list[str]] = {}
    for path in known | {each[:at] for each in known for at, sign in enumerate(each) if sign == "/"}:
        places.setdefault(path.rpartition("/")[2], []).append(path)
    words, scripts, targets, packages, ignored = set[str](), set[str](), set[str](), set[str](), list[str]()
    seen = {"code": False, "scripts": False, "targets": False, "packages": False}
    is_opaque = False
    for path, text in texts:
        name = path.rpartition("/")[2]
        if format_of(path) in CODE_FORMATS:
            seen["code"] = True
        if name == ".gitignore":
            lines = (line.strip().rstrip("/").removeprefix("**/").lstrip("/") for line in text.splitlines())
            ignored += [line for line in lines if line and not line.startswith(("#", "!"))][:500]
            continue
        words.update(_WORD.findall(text))
        if name == "package.json" and (found := _scripts(text)) is not None:
            seen["scripts"] = True
            scripts |= found
        if name.lower() in _MAKEFILES or name.endswith(".mk"):
            seen["targets"] = True
            is_opaque |= (
                "%" in "".join(_TARGET.findall(text)) or re.search(r"^-?s?include\b|\$\(eval", text, re.M) is not None
            )
            targets |= {word for line in _TARGET.findall(text) for word in line.split()} | set(_RECIPE.findall(text))
        if _MANIFESTS.fullmatch(name):
            seen["packages"] = True
            packages |= {normal(each) for each in _PACKAGE.findall(text)}
    return Tree(
        machine,
        root.rstrip("/") or "/",
        known,
        {name: tuple(its) for name, its in places.items()},
        frozenset(gone) - known,
        is_whole,
        frozenset(words) if is_read and seen["code"] else None,
        frozenset(scripts) if seen["scripts"] else None,
        frozenset(targets) if seen["targets"] and not is_opaque else None,
        frozenset(packages) if seen["packages"] else None,
        tuple(ignored),
    )


def normal(package: str) -> str:
    """Return a package's name as names are compared."""
    return re.sub(r"[-_.]+", "-", package.lower())


def _scripts(text: str) -> set[str] | None:
    try:
        scripts = json.loads(text).get("scripts", {})
        return set(map(str, scripts))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None


def _is_told(path: str) -> bool:
    """Return whether a file's text tells of functions, commands, variables or packages."""
    name, form = path.rpartition("/")[2], format_of(path)
    return (
        form in CODE_FORMATS | CONFIG_FORMATS
        or name == ".gitignore"
        or bool(_MANIFESTS.fullmatch(name))
        or name.endswith(".mk")
    )


# --- on this disk ----------------------------------------------------------------------------------------


def disk_tree(root: str) -> Tree:
    """Return what is in a folder of this machine; links are not followed. Unchanged files are not read again."""
    files: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if each not in NOT_WALKED)
        inside = os.path.relpath(folder, root)
        files += [name if inside == "." else f"{inside}/{name}" for name in names]
        if len(files) > MAX_FILES:
            break
    told = (path for path in files if _is_told(path))
    return _read_tree(root, tuple(files), tuple(_stamp(f"{root}/{path}") for path in told))


def _stamp(path: str) -> tuple[int, int]:
    """Return what tells that a file changed: its size, and its time in nanoseconds."""
    try:
        facts = os.lstat(path)
    except OSError:
        return -1, 0
    return facts.st_size, facts.st_mtime_ns


@lru_cache(maxsize=8)
def _read_tree(root: str, files: tuple[str, ...], _stamps: tuple[tuple[int, int], ...]) -> Tree:
    read = _Reader(root, files)
    texts = list(read)
    return tree_of("", root, files, texts, is_whole=len(files) <= MAX_FILES, is_read=read.is_complete)


class _Reader:
    """Reads the files of a folder that tell something, up to a limit."""

    def __init__(self, root: str, files: Iterable[str]) -> None:
        self._root, self._files, self.is_complete = root, [each for each in files if _is_told(each)], True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield path and text of each."""
        left = MAX_READ_BYTES
        for path in self._files:
            try:
                with (Path(self._root) / path).open("rb") as file:
                    data = file.read(MAX_FILE_BYTES + 1)
            except OSError:
                self.is_complete = False
                continue
            left -= len(data)
            if left < 0:
                self.is_complete = False
                return
            self.is_complete &= len(data) <= MAX_FILE_BYTES
            yield path, data.decode("utf-8", "replace")


# --- as crawled ------------------------------------------------------------------------------------------


def crawled_tree(store: Store, where: EpisodeFilter, machine: str, root: str) -> Tree:
    """Return what was crawled of a project's folder on a machine.

    :param where: filter by this project, without what is hidden.
    """
    files, gone, is_read = list[str](), list[str](), True
    for source in store.files.sources():
        folder = folder_of(source).rstrip("/")
        is_near = f"{root}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{root}/")
        is_hidden = source.key in where.hidden_sources
        if source.kind != DOCUMENTS or source.machine != machine or not is_near or is_hidden:
            continue
        for cursor in store.files.cursors(source.key).values():
            path = f"{folder}/{cursor.path}"
            if path.startswith(f"{root}/"):
                (gone if cursor.gone else files).append(path.removeprefix(f"{root}/"))
                is_read &= cursor.gone or not cursor.unread
    texts = list(_crawled_texts(store, where, machine, root))
    is_read &= len(texts) < MAX_SECTIONS
    return tree_of(machine, root, files, texts, gone=gone, is_whole=False, is_read=is_read)


def _crawled_texts(store: Store, where: EpisodeFilter, machine: str, root: str) -> Iterator[tuple[str, str]]:
    cursor, read = None, 0
    while read < MAX_SECTIONS:
        page = store.episodes.page(replace(where, kinds=SECTION_KINDS), PAGE, cursor)
        for each in page.items:
            if each.machine == machine and each.path.startswith(f"{root}/") and _is_told(each.path):
                yield each.path.removeprefix(f"{root}/"), each.raw_exchange
        read, cursor = read + len(page.items), page.next_cursor
        if cursor is None:
            return


# --- where a project is ----------------------------------------------------------------------------------


class ProjectFolders:
    """The folders of projects on all machines, as the memory has seen them; each is looked at once."""

    def __init__(self, store: Store, where: EpisodeFilter) -> None:
        """:param where: filter without what is hidden."""
        self._store, self._where, self._trees = store, where, dict[tuple[str, str, str], Tree | None]()
        hidden = (each for each in store.files.sources() if each.key in where.hidden_sources)
        self._hidden = tuple(f"{folder_of(each).rstrip('/')}/" for each in hidden)
        aliases = project_aliases(store)
        self._folders: dict[str, set[tuple[str, str]]] = {}
        self._given: dict[str, tuple[str, str]] = {}
        for name, label in store.settings.all(SEEN).items():
            machine, _, folder = name.removeprefix(SEEN).partition("/")
            project = store_name(aliases, composed(str(label)))
            if folder and project_label(f"/{folder}") not in _OUTER:
                self._folders.setdefault(project, set()).add((machine.removesuffix(":"), f"/{folder}"))

    def use(self, project: str, root: str) -> None:
        """Take a folder of this machine for the only one of a project."""
        self._given[project] = ("", root)
        self._trees[(project, "", root)] = disk_tree(root)

    def around(self, project: str, machine: str, path: str) -> list[Tree]:
        """Return the tree that a file of a machine is in; if it is in none, all of the project."""
        roots = self._roots(project)
        for of, root in roots:
            if path.startswith(f"{root}/") and of in {"", machine}:
                own = self._tree(project, of, root, machine)
                return [own] if own else []
        found = (self._tree(project, of, root, of or machine) for of, root in roots[:MAX_ROOTS])
        return [each for each in found if each is not None]

    def names(self, tree: Tree, path: str) -> bool:
        """Return whether a file may be named: it is in no hidden source."""
        return not f"{tree.root}/{path}".startswith(self._hidden)

    def _roots(self, project: str) -> list[tuple[str, str]]:
        """Return machine (empty: this one) and folder of the outermost folders of a project."""
        if project in self._given:
            return [self._given[project]]
        folders = set(self._folders.get(project, ()))
        if project.startswith("/") and project not in _OUTER:
            folders.add(("", project))
        tops = {(of, _top(folder) if not of else folder) for of, folder in folders}
        outer = [each for each in tops if not any(_is_in(each, other) for other in tops)]
        return sorted(outer, key=lambda each: (not os.path.isdir(each[1]) or each[0] != "", len(each[1]), each))

    def _tree(self, project: str, of: str, root: str, machine: str) -> Tree | None:
        key = (project, of or machine, root) if of or not os.path.isdir(root) else (project, "", root)
        if key not in self._trees:
            where = replace(self._where, projects=(project,))
            found = crawled_tree(self._store, where, key[1], root) if key[1] else disk_tree(root)
            self._trees[key] = found if found.files else None
        return self._trees[key]


def _is_in(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return one[0] == other[0] and one[1].startswith(f"{other[1]}/")


def _top(folder: str) -> str:
    """Return the top of the repository that a folder of this machine is in; else the folder."""
    if not os.path.isdir(folder) or resolved_project(folder) is None:
        return folder
    tops = (each for each in (Path(folder), *Path(folder).parents) if (each / ".git").exists())
    return str(next(tops, folder))
