"""Archive what was read of a document as a version of its file, with masked secrets."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.model import ArchiveBase, FileCursor, FileStat, Source, content_id
from anamnesis_pipeline.parsing.documents.formats import to_text
from anamnesis_pipeline.parsing.redaction.table_secrets import tables_masked
from anamnesis_pipeline.pipeline.archive import Archive, NewGeneration
from anamnesis_pipeline.pipeline.crawl import Mask
from anamnesis_pipeline.pipeline.document_versions import Version, noted, waiting
from anamnesis_pipeline.pipeline.forgotten_sections import without_forgotten_sections
from anamnesis_pipeline.pipeline.section_tombstones import SectionTombstones
from anamnesis_pipeline.store.base import Store


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """One scanned file: its cursor before and after, and the lines of a new version."""

    before: FileCursor | None
    after: FileCursor
    lines: list[str] | None = None

    @property
    def characters(self) -> int:
        """Return the number of characters to archive."""
        return sum(map(len, self.lines or ()))


def tombstones_of(store: Store, source: str) -> SectionTombstones | None:
    """Return the tombstones of a source's documents; None if there are none, which saves searching for them."""
    found = SectionTombstones(store, source)
    return None if found.is_empty else found


def masked_lines(
    tombstones: SectionTombstones | None, mask: Mask, path: str, version: Version, text: str, masked: Counter[str]
) -> list[str]:
    """Return the lines of a document with masked secrets, and empty lines for forgotten sections.

    :param masked: counts the secrets.
    :raises DocumentUnreadable: it cannot be split into sections, so forgotten ones cannot be found.
    """
    text, found = mask(text)
    text, of_tables = tables_masked(path, text, mask)
    masked.update(found + of_tables)
    lines = text.removesuffix("\n").split("\n")
    if tombstones is None:
        return lines
    return without_forgotten_sections(version.inside or path, lines, partial(tombstones.going, path, version.place))


def versioned(
    source: Source, file: FileStat, before: FileCursor | None, lines: list[str], version: Version
) -> ReadDocument:
    """Return the result of reading a file: a new version, or only a new modification time.

    :param version: with any generation.
    """
    cursor = before or FileCursor(source.key, file.path, first_mtime_ns=file.mtime_ns)
    digest = content_id("\n".join(lines))
    is_known = bool(cursor.lines) and cursor.head_hash == digest
    generation = cursor.generation if is_known or not cursor.lines else cursor.generation + 1
    parsed, state = cursor.parsed_lines, cursor.parser_state
    if not is_known or cursor.gone:  # the sections of a file that was gone may have been retired
        here = version if version.generation == generation else replace(version, generation=generation)
        parsed, state = -1, noted([*waiting(cursor), here])
    after = replace(
        cursor,
        device=file.device,
        inode=file.inode,
        size=file.size,
        mtime_ns=file.mtime_ns,
        offset=file.size,
        head_hash=digest,
        gone=False,
        version=cursor.version + 1,
        unread="",
        generation=generation,
        lines=cursor.lines if is_known else len(lines),
        parsed_lines=parsed,
        parser_state=state,
    )
    return ReadDocument(before, after, None if is_known else lines)


def parsed_again(before: FileCursor | None, seen: FileCursor, version: Version) -> ReadDocument:
    """Return the archived text as pending, to be parsed once more."""
    again = [*waiting(seen), replace(version, generation=seen.generation)]
    return ReadDocument(before, replace(seen, parsed_lines=-1, parser_state=noted(again)))


def unread(source: Source, file: FileStat, before: FileCursor | None, reason: str) -> ReadDocument:
    """Record why a file was not read; what was read of it before stays."""
    cursor = before or FileCursor(source.key, file.path, first_mtime_ns=file.mtime_ns)
    tried = replace(
        cursor,
        device=file.device,
        inode=file.inode,
        size=file.size,
        mtime_ns=file.mtime_ns,
        gone=False,
        version=cursor.version + 1,
        unread=reason,
    )
    return ReadDocument(before, tried)


def archive_versions(
    store: Store, archive: Archive, source: Source, batch: Sequence[ReadDocument], writers: Executor | None = None
) -> list[bool]:
    """Archive and commit some files. Return False for those that another run committed first. The caller must hold
    `archive.writing`.

    :param writers: see `Archive.add_generations`.
    """
    new = [
        NewGeneration(
            each.after.path,
            each.after.generation,
            each.lines,
            _base(store, each.after, len(each.lines)),
            _mark(each.after),
        )
        for each in batch
        if each.lines is not None
    ]
    frames = {written.path: written.frame for written in archive.add_generations(source.key, new, writers)}
    return store.files.commit_crawls([(each.before, each.after, frames.get(each.after.path)) for each in batch])


def _base(store: Store, after: FileCursor, lines: int) -> ArchiveBase | None:
    """Return an earlier version of the file."""
    if not after.generation:
        return None
    return store.archive.archive_base(after.source, after.path, after.generation, _mark(after), 0, lines)


def _mark(cursor: FileCursor) -> str:
    """Return the mark that all versions of a file share."""
    return content_id("document", cursor.source, cursor.path)


def add_version(
    store: Store, archive: Archive, source: Source, path: str, data: bytes, mask: Mask, version: Version
) -> None:
    """Archive one uploaded document as a version of the file `path` of `source`.

    :param version: with any generation.
    :raises DocumentUnreadable: the bytes do not have the format of the name.
    :raises StoreBusy: another process keeps writing the same document.
    :raises StoreFull: the disk is full.
    """
    text = to_text(path, data)
    lines = masked_lines(tombstones_of(store, source.key), mask, path, version, text, Counter())
    file = FileStat(path, len(data), version.mtime_ns, 0, 0)
    with archive.writing(source.key):
        read = versioned(source, file, store.files.cursor(source.key, path), lines, version)
        if not all(archive_versions(store, archive, source, [read])):
            raise StoreBusy(f"{path.rpartition('/')[2]} is being written by another process; send it again")
