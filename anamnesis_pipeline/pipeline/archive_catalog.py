"""The catalog beside the archived files of a source: what only the store would know of them otherwise.

    archive/<source>/catalog      zstd of lines of JSON: the source, then each file with its frames

The crawl writes it after new lines are committed. From it and the archived lines, a lost store is filled again: the
catalog brings sources, files and frames, and the ordinary ingest makes everything else of the lines. A catalog may be
older than the archive: lines behind it are still in the log that was crawled a moment ago, and a file that was
rewritten since (forgotten lines, new masks) has the same lines under its next revision.
"""

import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import zstandard

from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.model import ArchiveBase, ArchiveFrame, FileCursor, Source
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.document_versions import Version, noted, waiting
from anamnesis_pipeline.pipeline.documents import holds_documents
from anamnesis_pipeline.sources.base import is_tool_output
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.files import ArchivedFile

FORMAT = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Catalog:
    """A source and its archived files. `versions`: path of a document -> its versions, as far as they are known."""

    source: Source
    files: dict[str, ArchivedFile]
    versions: dict[str, str]


@dataclass(slots=True)
class AdoptReport:
    """Result of `adopt_archive`. `sources`: those with new files. `known`: files that the store has. `problems`: what
    could not be taken over, and why.
    """

    sources: list[Source] = field(default_factory=list)
    files: int = 0
    lines: int = 0
    known: int = 0
    problems: list[str] = field(default_factory=list)


def write_catalog(store: Store, archive: Archive, source: Source, *, after_removal: bool = False) -> None:
    """Write the catalog of a source. Files of a former catalog that the store does not know stay in it, and so do the
    versions of documents. That it cannot be written is logged: nothing else depends on it.

    :param after_removal: something was forgotten or masked again, so nothing is kept that the store does not tell.
    :raises GiveUp: another memory writes this archive.
    """
    file = archive.catalog_of(source.key)
    with archive.writing(source.key):
        former = Catalog(source, {}, {})
        with suppress(FileNotFoundError, StoreCorrupt):
            former = read_catalog(file)
        if after_removal:
            kept = (path for path in former.versions if store.documents.sightings_of(source.key, path))
            former = Catalog(source, {}, {path: former.versions[path] for path in kept})
        present = {each.cursor.path: each for each in store.archive.files(source.key)}
        unknown = {path: each for path, each in former.files.items() if path not in present}
        files = {path: each for path, each in unknown.items() if _present(archive, each).frames} | present
        rows = [json.dumps({"format": FORMAT, "source": asdict(source)})]
        for path, each in files.items():
            versions = _versions(store, source, each.cursor, former.versions.get(path, ""))
            cursor = replace(each.cursor, parser_state="", unread="")
            frames = [asdict(frame) for frame in each.frames]
            rows.append(json.dumps({"cursor": asdict(cursor), "frames": frames, "versions": versions}))
        draft = file.with_name(f".{file.name}")
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                out.write(zstandard.ZstdCompressor(write_checksum=True).compress("\n".join(rows).encode()))
                out.flush()
                os.fsync(out.fileno())
            draft.replace(file)
        except OSError as problem:
            log.warning("%s is not written: %s", file, problem.strerror)


def read_catalog(file: Path) -> Catalog:
    """Return a catalog.

    :raises FileNotFoundError: there is none.
    :raises StoreCorrupt: it is damaged, or of a newer version.
    """
    try:
        first, *rest = map(json.loads, zstandard.ZstdDecompressor().decompress(file.read_bytes()).splitlines())
        if first["format"] != FORMAT:
            raise StoreCorrupt(f"{file} is of format {first['format']}, not {FORMAT}; update anamnesis")
        found = Catalog(Source(**first["source"]), {}, {})
        for row in rest:
            cursor = FileCursor(**row["cursor"])
            frames = [ArchiveFrame(**{**each, "base": _base_of(each["base"])}) for each in row["frames"]]
            found.files[cursor.path] = ArchivedFile(cursor, frames)
            found.versions[cursor.path] = row["versions"]
    except (zstandard.ZstdError, ValueError, KeyError, TypeError) as exc:
        raise StoreCorrupt(f"{file} is damaged ({exc}); restore it from a backup of the home") from exc
    return found


def adopt_archive(store: Store, archive: Archive) -> AdoptReport:
    """Make the archived files known that the catalogs name and the store does not know, as files to parse. What the
    store knows stays unchanged.

    :raises GiveUp: another memory writes this archive.
    """
    report = AdoptReport()
    for file in archive.catalogs():
        try:
            catalog = read_catalog(file)
        except StoreCorrupt as exc:
            report.problems.append(str(exc))
            continue
        source = catalog.source
        with archive.writing(source.key):
            known = store.files.cursors(source.key)
            found = [each for path, each in catalog.files.items() if path not in known]
            report.known += len(catalog.files) - len(found)
            taken = []
            for each in found:
                if each.frames and not (present := _present(archive, each)).frames:
                    report.problems.append(f"{each.cursor.path} of {source.key}: its archived lines are missing")
                    continue
                try:
                    _read_whole(archive, present if each.frames else each)
                except StoreCorrupt as exc:  # known to the store, it would stop the ingest of its source each time
                    report.problems.append(f"{each.cursor.path} of {source.key}: {exc}")
                    continue
                taken.append(present if each.frames else each)
            if not taken:
                continue
            if source.kind != "reserved":
                store.files.put_sources([source])
            store.archive.adopt([replace(each, cursor=_unparsed(catalog, each.cursor)) for each in taken])
        report.sources.append(source)
        report.files += len(taken)
        report.lines += sum(frame.lines for each in taken for frame in each.frames)
    return report


def _versions(store: Store, source: Source, cursor: FileCursor, former: str) -> str:
    """Return the versions of a document: those of the former catalog, those that wait, else the present one as its
    sections tell of it.
    """
    if not holds_documents(source):
        return ""
    noted_so = [replace(cursor, parser_state=text) for text in (former, cursor.parser_state)]
    known = {version.generation: version for each in noted_so for version in waiting(each)}
    if cursor.generation not in known and cursor.lines:
        place = next((each.place for each in store.documents.sightings_of(source.key, cursor.path)), "")
        part = next(iter(store.forgetting.parts_of_files([(source.key, cursor.path)])), None)
        if place and part is not None and part.section is not None:
            facts = part.section
            known[cursor.generation] = Version(
                cursor.generation, cursor.mtime_ns, 0, part.project, place, part.cwd, instance=facts.instance
            )
    return noted([known[generation] for generation in sorted(known)])


def _unparsed(catalog: Catalog, cursor: FileCursor) -> FileCursor:
    """Return the cursor of a file whose archived lines are all still to be parsed."""
    if is_tool_output(cursor.path):
        return replace(cursor, parsed_lines=cursor.lines)
    state = catalog.versions.get(cursor.path, "")
    if not holds_documents(catalog.source):
        return replace(cursor, parsed_lines=-1 if cursor.generation else 0)
    if not state:  # where the file still exists, the crawl reads it again
        return replace(cursor, parsed_lines=cursor.lines, mtime_ns=0, size=0, inode=0)
    return replace(cursor, parsed_lines=0, parser_state=state)


def _present(archive: Archive, file: ArchivedFile) -> ArchivedFile:
    """Return a file with its frames as the archive has them now; without frames where some are missing."""
    source, path = file.cursor.source, file.cursor.path
    frames: list[ArchiveFrame] = []
    for generation in sorted({frame.generation for frame in file.frames}):
        own = [frame for frame in file.frames if frame.generation == generation]
        found = archive.revised(source, path, own) or own
        if any(archive.lacks(source, path, frame) for frame in found):
            return replace(file, frames=[])
        frames += found
    return replace(file, frames=frames)


def _read_whole(archive: Archive, file: ArchivedFile) -> None:
    """Read all archived lines of a file.

    :raises StoreCorrupt: a frame is missing or damaged.
    """
    for frame in file.frames:
        for _ in archive.lines(file.cursor.source, file.cursor.path, [frame]):
            pass


def _base_of(row: dict[str, object] | None) -> ArchiveBase | None:
    return None if row is None else ArchiveBase(**row)  # type: ignore[arg-type]
