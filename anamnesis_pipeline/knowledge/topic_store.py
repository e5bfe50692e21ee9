"""Topic files on this machine: where they are, and the only way to write one, which needs an approval.

A project's topics are in `memory/topics/` beside the logs that Claude Code keeps of it, if that memory exists; else in
`topics/<project>/` of the home. Both are crawled as documents with authority. What a file said before a write is kept
in `topics/.former/` of the home, since the archive has what a crawl read, which may be older.
"""

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from anamnesis_pipeline.errors import TopicChanged, TopicRefused
from anamnesis_pipeline.model import content_id
from anamnesis_pipeline.sources.discovery import PROJECTS

MEMORY = ("memory", "topics")
"""Path of the topics beside the logs of a project."""
INDEX = "MEMORY.md"
FORMER = ".former"
UNFINISHED = ".md.new"
"""End of the names of files that are being written."""
MAX_FORMER = 500
"""Former texts kept, the latest."""
MAX_BYTES = 1 << 20
"""Size of a topic file; a larger one is not read by the crawler."""
MAX_NAME = 60

_NOT_IN_NAME = re.compile(r"[^\w-]+")
_LONGEST = 240
"""Bytes of the name of a folder."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's decision, or that of a policy which a person set, on a proposal."""

    proposal_id: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Written:
    """Hashes of a file's text before and after; empty: there was, or is, no file."""

    former: str
    written: str


def topic_name(title: str) -> str:
    """Return the name of a topic's file without `.md`: the words of a title, in lower case, joined by `-`.

    :raises TopicRefused: it has no letter and no digit, or is that of the index.
    """
    name = plain_name(title)
    if not name or name == INDEX.removesuffix(".md").casefold():
        raise TopicRefused(f"{title!r} cannot be the name of a topic; name what it is about, e.g. deploys")
    return name


def plain_name(title: str) -> str:
    """Return the words of a title, in lower case, joined by `-`: equal for the same topic, however it is written."""
    return _NOT_IN_NAME.sub("-", title.casefold().removesuffix(".md")).strip("-_")[:MAX_NAME].strip("-_")


def project_folder(project: str) -> str:
    """Return the name of a project's folder; `urllib.parse.unquote` is the inverse.

    :raises TopicRefused: it is too long for a folder.
    """
    name = quote(project, safe=" ~+@=")
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    if not name or len(name) > _LONGEST:
        raise TopicRefused(
            f"the project {project[:80]!r} cannot have a folder of topics, as its name is empty or too long; merge it "
            "into another one with `anamnesis projects alias`"
        )
    return name


def hash_of(text: str | None) -> str:
    """Return the hash of a file's text; None, no file: empty."""
    return "" if text is None else content_id(text)


class TopicStore:
    """The folders with topics on this machine."""

    def __init__(self, folder: Path, log_roots: Sequence[Path]) -> None:
        """:param folder: of the topics in the home.
        :param log_roots: folders of logs; only those that Claude Code calls `projects` have memories beside them.
        """
        self.folder = folder
        self._roots = [root for root in log_roots if root.name == PROJECTS]

    def memory_of(self, logs: Sequence[tuple[str, str]]) -> Path | None:
        """Return the folder `memory` beside these logs of a project, the first that exists.

        :param logs: root and folder of each.
        """
        roots = {str(root) for root in self._roots}
        places = (Path(root, folder, MEMORY[0]) for root, folder in logs if root in roots)
        return next((place for place in places if place.is_dir()), None)

    def path_of(self, project: str, name: str, logs: Sequence[tuple[str, str]] = ()) -> Path:
        """Return the path of a project's topic: where it is, else where a new one goes.

        :param logs: root and folder of the project's logs on this machine, those used last first.
        :raises TopicRefused: the project or the topic has no valid name.
        """
        wanted, memory = topic_name(name), self.memory_of(logs)
        folders = [self.folder / project_folder(project), *([memory / MEMORY[1]] if memory else [])]
        there = (each for folder in folders for each in sorted(folder.glob("*.md")) if plain_name(each.stem) == wanted)
        return next(there, folders[-1] / f"{wanted}.md")

    def read(self, path: Path) -> str | None:
        """Return the text of a topic file, with its line ends and byte order mark; None: there is no file.

        :raises TopicRefused: it is no file of topics, too large, or not UTF-8.
        """
        return _read(self._checked(path))

    def write_topic(self, approval: Approval, path: Path, expected: str | None, new: str | None) -> Written:
        """Replace the text of a topic file, atomically; its former text can be read with `former`.

        :param expected: the text that the approval was given for; None: there is no file.
        :param new: None: the file is removed.
        :raises TopicChanged: the file says something else by now. Nothing is written.
        :raises TopicRefused: it is no place of topics, or the new text is too large.
        """
        if not approval.proposal_id or not approval.by:
            raise TopicRefused("a topic is written with an approval only; accept the proposal")
        target = self._checked(path)
        if new is not None and len(new.encode("utf-8", "surrogateescape")) > MAX_BYTES:
            raise TopicRefused(f"{path} would be larger than {MAX_BYTES:,} bytes; split the topic")
        with self._locked():
            present = _read(target)
            if present != expected:
                raise TopicChanged(
                    f"{path} was changed since {approval.proposal_id[:12]} was proposed; nothing was written: look at "
                    "the file, and at the proposal that is made from it"
                )
            if present is not None and present != new:
                self._keep(present)
            if new is None:
                target.unlink(missing_ok=True)
            elif new != present:
                _replace(target, new, is_new=present is None)
        return Written(hash_of(present), hash_of(new))

    def former(self, digest: str) -> str | None:
        """Return a text that a write replaced; empty, no file: None.

        :raises TopicRefused: it is not kept.
        """
        if not digest:
            return None
        kept = _read(self.folder / FORMER / f"{digest}.md") if digest.isalnum() else None
        if kept is None:
            raise TopicRefused(f"the former text {digest[:12]} is not kept any more; the archive has what was crawled")
        return kept

    def texts(self) -> Iterator[tuple[Path, str | None]]:
        """Yield every topic file, index and former text on this machine, with its text; None: it cannot be read."""
        found = [each for each in self.folder.glob("*/*.md") if each.parent.name != FORMER]
        for root in self._roots:
            found += [*root.glob(f"*/{'/'.join(MEMORY)}/*.md"), *root.glob(f"*/{MEMORY[0]}/{INDEX}")]
        for path in [*sorted(found), *sorted(self.folder.glob(f"{FORMER}/*.md"))]:
            try:
                is_kept = path.parent == self.folder / FORMER
                yield path, _read(path if is_kept else self._checked(path, is_index=path.name == INDEX))
            except TopicRefused:
                yield path, None

    def sweep(self) -> None:
        """Remove the unfinished files that a process left which was killed while it wrote."""
        with self._locked():
            left = list(self.folder.glob(f"*/.*{UNFINISHED}"))
            for root in self._roots:
                left += [
                    *root.glob(f"*/{'/'.join(MEMORY)}/.*{UNFINISHED}"),
                    *root.glob(f"*/{MEMORY[0]}/.*{UNFINISHED}"),
                ]
            for path in left:
                path.unlink(missing_ok=True)

    def drop_indexes(self, kept: Collection[Path] = ()) -> bool:
        """Remove the indexes in the home, which are made of what is stored, but for `kept`. Return whether there were
        any.
        """
        found = [each for each in self.folder.glob(f"*/{INDEX}") if each not in kept]
        for path in found:
            path.unlink(missing_ok=True)
        return bool(found)

    def read_index(self, memory: Path) -> str | None:
        """Return the text of `MEMORY.md` in a memory of Claude Code; None: there is no file. Raises as `read`."""
        return _read(self._checked(memory / INDEX, is_index=True))

    def write_index(self, project: str, text: str, memory: Path | None = None) -> Path:
        """Write the index of a project, which is derived from what is stored: no approval is needed.

        :param memory: Claude Code's memory of the project, if the index goes there; None: to the home.
        :param text: of the whole file.
        """
        target = self._checked((memory or self.folder / project_folder(project)) / INDEX, is_index=True)
        with self._locked():
            present = _read(target)
            if present is not None and present != text and memory is not None:
                self._keep(present)
            if present != text:
                _replace(target, text, is_new=present is None)
        return target

    def _checked(self, path: Path, *, is_index: bool = False) -> Path:
        """Return the path without links.

        :raises TopicRefused: it is outside of the folders with topics, or leads out of them.
        """
        real, home = Path(os.path.realpath(path)), Path(os.path.realpath(self.folder))
        is_named = real.name == INDEX if is_index else real.suffix == ".md" and real.name != INDEX
        if is_named and _is_in(real, home) and len(real.relative_to(home).parts) == 2:
            return real
        for root in self._roots:
            top = Path(os.path.realpath(root))
            below = real.relative_to(top).parts if _is_in(real, top) else ()
            if is_named and below[1:-1] == (MEMORY[:1] if is_index else MEMORY):
                return real
        raise TopicRefused(
            f"{path} is no place of topics, such as {self.folder}/PROJECT/NAME.md, or memory/topics/NAME.md beside logs"
        )

    def _keep(self, text: str) -> None:
        folder = self.folder / FORMER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = folder / f"{hash_of(text)}.md"
        _replace(kept, text, is_new=not kept.exists())
        every = sorted(folder.glob("*.md"), key=lambda each: each.stat().st_mtime_ns, reverse=True)
        for old in every[MAX_FORMER:]:
            old.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _is_in(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder) and not any(part.startswith(".") for part in path.relative_to(folder).parts)


def _read(path: Path) -> str | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise TopicRefused(f"{path} cannot be read: {exc.strerror}; give the user of Anamnesis permission") from exc
    if len(data) > MAX_BYTES:
        raise TopicRefused(f"{path} has {len(data):,} bytes, more than {MAX_BYTES:,}; split the topic")
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise TopicRefused(f"{path} is not UTF-8 (byte {exc.start}); save it as UTF-8") from exc


def _replace(target: Path, text: str, *, is_new: bool) -> None:
    """Write a file atomically; an existing one keeps its mode, and a new one takes the place of none."""
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}.", suffix=UNFINISHED, dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
                if not is_new:
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            if is_new:
                os.link(name, target)
            else:
                os.replace(name, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError as exc:
        raise TopicChanged(f"{target} was made by another program meanwhile; nothing was written") from exc
    except OSError as exc:
        raise TopicRefused(
            f"{target} cannot be written: {exc.strerror}; give the user of Anamnesis permission"
        ) from exc
