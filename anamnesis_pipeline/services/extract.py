"""Restore logs and document versions from the archive, line by line."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from anamnesis_pipeline.errors import GiveUp, StoreBusy, StoreCorrupt
from anamnesis_pipeline.model import BEGINS_LONG, GOES_ON, FileCursor
from anamnesis_pipeline.parsing.documents.languages import CONVERTED, format_of
from anamnesis_pipeline.parsing.text.file_names import log_name, log_stem
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archived import Damage, archived_lines
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.documents import holds_documents
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.forgetting import Selection

EVERY = -1
"""Requests every generation of a file, not only the latest."""


@dataclass(frozen=True, slots=True)
class Extractable:
    """One generation of an archived file, and its target relative to the output folder."""

    cursor: FileCursor
    generation: int
    target: str


@dataclass(frozen=True, slots=True)
class ExtractReport:
    """What was written, and the damaged archived files, which were skipped."""

    files: int
    lines: int
    bytes: int
    damaged: list[Damage] = field(default_factory=list)


def extractable(
    store: Store,
    *,
    session_id: str = "",
    keys: Collection[str] | None = None,
    path: str = "",
    generation: int | None = None,
) -> list[Extractable]:
    """Return the archived files of a session, of sources by key, or at or below a path on the source's machine; all
    without filters.

    Files get the source's layout: `<project folder>/<path>`, below the source's key where two sources have a folder of
    the same name. Former generations, if requested, get `.generation-<N>` before their suffix.

    :param generation: None: the latest of each file that has lines; `EVERY`; or the number.
    """
    sources = {s.key: s for s in store.files.sources() if keys is None or s.key in keys}
    documents = {key for key, found in sources.items() if holds_documents(found)}
    # output folder by source: its own, unless two sources have one of that name
    folders = {k: s.folder if s.folder not in {"", "."} else PurePosixPath(s.root).name for k, s in sources.items()}
    shared = Counter(folders.values())
    labels = {key: folder if folder and shared[folder] == 1 else key for key, folder in folders.items()}
    parts = store.forgetting.matching(Selection(session_id=session_id)) if session_id else []
    of_session = {(part.source, part.path) for part in store.forgetting.parts(parts)}
    wanted = (
        cursor
        for source in sources.values()
        for cursor in store.files.cursors(source.key).values()
        if (not session_id or (cursor.source, cursor.path) in of_session or names(cursor.path, session_id))
        and (not path or is_below(f"{folder_of(source)}/{cursor.path}", path))
    )
    return [
        Extractable(cursor, number, _target(labels[cursor.source], name, number, latest))
        for cursor in wanted
        # a document that is no text file is archived as text only
        for is_text in [cursor.source in documents and format_of(cursor.path) in CONVERTED]
        for name in [f"{cursor.path}.md" if is_text else cursor.path]
        if (present := [n for n in range(cursor.generation + 1) if store.archive.frames(cursor.source, cursor.path, n)])
        for latest in [present[-1]]
        for number in present
        if generation in (EVERY, number) or (generation is None and number == latest)
    ]


def without_private(store: Store, private: Private, wanted: Sequence[Extractable], path: str = "") -> list[Extractable]:
    """Drop files of private sources and projects. A file that holds some of a private project is private, and so are
    the outputs of its session.

    :param path: the requested path; one inside a private source, or inside a project's folder, names it.
    """
    sources = {source.key: source for source in store.files.sources()}
    hidden = {source.key for source in private.sources if not (path and is_below(path, source.root))}
    projects = tuple(project for project in store.projects.all() if private.is_of(project))
    ids = store.forgetting.matching(Selection(projects=projects)) if projects else []
    files = {
        (part.source, part.path)
        for part in store.forgetting.parts(ids)
        if not (path and is_below(path, folder_of(sources[part.source])))
    }
    sessions = {(source, log_stem(name)) for source, name in files if log_name(name)}
    return [
        item
        for item in wanted
        for key, name in [(item.cursor.source, item.cursor.path)]
        if key not in hidden
        and (key, name) not in files
        and sessions.isdisjoint((key, part) for part in PurePosixPath(name).parts)
    ]


def extract(store: Store, archive: Archive, wanted: Sequence[Extractable], to: Path, *, force: bool) -> ExtractReport:
    """Write files below `to`, each in one step. Nothing is written if a file exists already, unless `force`. A file
    that is damaged in the archive stops no other.

    :raises GiveUp: a file exists already or cannot be written, or a name leads out of `to`.
    """
    if outside := next((item.target for item in wanted if ".." in PurePosixPath(item.target).parts), ""):
        raise GiveUp(f"{outside!r} leads out of {to}; extract this source alone and look at its paths")
    targets = [to / item.target for item in wanted]
    present = [target for target in targets if target.exists()]
    if present and not force:
        raise GiveUp(
            f"{len(present)} of {len(targets)} files are there already, e.g. {present[0]}; nothing was written. "
            f"Choose another folder, or overwrite them with --force"
        )
    lines = size = 0
    damaged = []
    for item, target in zip(wanted, targets, strict=True):
        try:
            count, length = _write(store, archive, item, target)
        except StoreCorrupt as exc:
            damaged.append(Damage(item.cursor.source, item.cursor.path, item.generation, str(exc)))
            continue
        lines, size = lines + count, size + length
    return ExtractReport(len(targets) - len(damaged), lines, size, damaged)


def names(path: str, session_id: str) -> bool:
    """Return whether a log's path shows that it belongs to a session: its own file, or one in its folder."""
    parts = PurePosixPath(path).parts
    return session_id in parts or log_stem(parts[-1]) == session_id


def is_below(path: str, place: str) -> bool:
    """Return whether `path` is the file `place`, or is in the folder `place`."""
    return path == place or path.startswith(f"{place.rstrip('/')}/")


def _target(folder: str, path: str, generation: int, latest: int) -> str:
    place = PurePosixPath(folder, path)
    return str(place if generation == latest else place.with_suffix(f".generation-{generation}{place.suffix}"))


def _write(store: Store, archive: Archive, item: Extractable, target: Path) -> tuple[int, int]:
    """Write one file. Return lines and bytes written."""
    draft, count = target.with_name(f"{target.name}.extracting"), 0
    archived = archived_lines(store, archive, item.cursor.source, item.cursor.path, item.generation)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # for the owner only, as Claude Code does with its logs: a log may hold anything
        private = partial(os.open, mode=0o600)
        with open(draft, "w", encoding="utf-8", errors="surrogatepass", newline="\n", opener=private) as out:
            for count, line in enumerate(archived, start=1):
                out.write("\n" if count > 1 and not line.startswith(GOES_ON) else "")
                out.write(line.lstrip(BEGINS_LONG))
            out.write("\n" if count else "")
            size = out.tell()
        draft.replace(target)
    except OSError as problem:
        raise GiveUp(
            f"{target} cannot be written: {problem.strerror}; free some room, or choose another folder"
        ) from problem
    finally:
        draft.unlink(missing_ok=True)
    return count, size


# --- rewriting -------------------------------------------------------------------------------------------

# Rewriting of archived lines, with lines removed or masked.

Change = Callable[[list[str]], list[str]]
"""Lines of a frame -> the same number of lines."""


def rewrite_generation(store: Store, archive: Archive, source: str, path: str, generation: int, change: Change) -> int:
    """Rewrite one archived generation if `change` changes a line. Return the number of changed lines.

    Generations that depend on its lines are rewritten unchanged first. Leftovers of former revisions are removed. The
    caller must hold `archive.alone`.

    :raises StoreBusy: a crawl used the generation as a base, or added lines, just now.
    :raises StoreFull: no disk space for the new file.
    """
    with archive.writing(source):  # crawls that began before the change have ended
        frames = store.archive.frames(source, path, generation)
        changed = 0
        for frame in frames:
            lines = list(archive.lines(source, path, [frame]))
            changed += sum(old != new for old, new in zip(lines, change(lines), strict=True))

        if frames and not changed:
            archive.remove_former(source, path, generation, frames[0].revision)
    if changed:
        for leaning in store.archive.leaning(source, path, generation):
            _write_anew(store, archive, *leaning, list)
        _write_anew(store, archive, source, path, generation, change)
    return changed


def _write_anew(store: Store, archive: Archive, source: str, path: str, generation: int, change: Change) -> None:
    with archive.writing(source):
        frames = store.archive.frames(source, path, generation)
        new = archive.rewrite(source, path, frames, change)
        if not store.archive.replace_frames(source, path, generation, frames[0].revision, new):
            raise StoreBusy(f"the archive of {path} changed meanwhile; try again")
        archive.remove_former(source, path, generation, new[0].revision)
