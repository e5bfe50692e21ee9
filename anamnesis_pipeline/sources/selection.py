"""Compare a listing with the known state of its files. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate

from anamnesis_pipeline.model import FileCursor, FileStat
from anamnesis_pipeline.sources.base import Survey


@dataclass(frozen=True, slots=True)
class Selection:
    """What to do about each file of a source. A file is in one list only.

    `replaced` files shrank or are other files under the same path; `grown` ones look like a continuation until their
    first bytes prove otherwise; `gone` are paths.
    """

    new: tuple[FileStat, ...]
    grown: tuple[tuple[FileStat, FileCursor], ...]
    replaced: tuple[tuple[FileStat, FileCursor], ...]
    gone: tuple[str, ...]
    unchanged: int

    @property
    def changed(self) -> int:
        """Return the number of files to read."""
        return len(self.new) + len(self.grown) + len(self.replaced)


def select(
    listing: Iterable[FileStat], cursors: Mapping[str, FileCursor], *, complete: bool = True, retry: bool = True
) -> Selection:
    """Compare without reading a byte.

    :param complete: the listing saw every folder; otherwise no file counts as gone.
    :param retry: a file that could not be read last time counts as changed.
    """
    new: list[FileStat] = []
    grown: list[tuple[FileStat, FileCursor]] = []
    replaced: list[tuple[FileStat, FileCursor]] = []
    seen: set[str] = set()
    unchanged = 0
    for file in listing:
        seen.add(file.path)
        cursor = cursors.get(file.path)
        if cursor is None:
            new.append(file)
        elif is_unchanged(file, cursor) and not (retry and cursor.unread):
            unchanged += 1
        elif is_replaced(file, cursor):
            replaced.append((file, cursor))
        else:
            grown.append((file, cursor))
    gone = vanished(seen, cursors) if complete else ()
    return Selection(tuple(new), tuple(grown), tuple(replaced), gone, unchanged)


def is_unchanged(file: FileStat, cursor: FileCursor) -> bool:
    """Return whether size, time and identity are those of the last read, and the file was not gone meanwhile."""
    return (
        file.size == cursor.size
        and file.mtime_ns == cursor.mtime_ns
        and file.inode == cursor.inode
        and file.device == cursor.device
        and not cursor.gone
    )


def is_replaced(file: FileStat, cursor: FileCursor) -> bool:
    """Return whether it is another file, or shorter than what was read. A reboot may change the device number."""
    return file.size < cursor.offset or file.inode != cursor.inode


def changed_files(listing: Iterable[FileStat], cursors: Mapping[str, FileCursor], *, complete: bool = True) -> int:
    """Return the number of files that a crawl would handle, including vanished ones; reads nothing.

    Unreadable files that did not change since do not count: each tick would request a crawl.
    """
    selection = select(listing, cursors, complete=complete, retry=False)
    return selection.changed + len(selection.gone)


def vanished(seen: Collection[str], cursors: Mapping[str, FileCursor]) -> tuple[str, ...]:
    """Return the known paths that are missing from a complete listing."""
    return tuple(path for path, cursor in cursors.items() if not cursor.gone and path not in seen)


def with_emptied(survey: Survey, cursors: Mapping[str, FileCursor]) -> Survey:
    """Add a problem to an empty listing if files were known before, as for a folder with nothing mounted on it."""
    known = sum(not cursor.gone for cursor in cursors.values())
    if not known or survey.files is None or survey.files or survey.ignores or survey.repositories:
        return survey
    problem = (
        f"{survey.root} lists nothing where {known:,} file{'s' * (known > 1)} had been read, which stay as they were; "
        "if it was emptied on purpose, forget them"
    )
    return replace(survey, problems=(*survey.problems, problem))


# --- globs -----------------------------------------------------------------------------------------------

# Match names against a list of globs.


class Names:
    """The names that match one of some globs.

    :param globs: if empty, every name matches, but no name at all if `is_exact`.
    :param is_exact: matching is case-sensitive.
    """

    def __init__(self, globs: Sequence[str], *, is_exact: bool = False) -> None:
        self._all = not globs and not is_exact
        self._is_exact = is_exact
        pattern = "|".join(translate(_folded(glob, is_exact)) for glob in globs)
        self._pattern = re.compile(pattern if globs else "(?!)")

    def __contains__(self, name: str) -> bool:
        """Return whether the name matches."""
        return self._all or self._pattern.match(_folded(name, self._is_exact)) is not None


def _folded(name: str, is_exact: bool) -> str:
    """Lower the ASCII letters, as `find -iname` compares where no locale is set."""
    return name if is_exact else name.translate(_LOWER)


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
