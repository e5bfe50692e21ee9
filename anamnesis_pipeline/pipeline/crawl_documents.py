"""Copy the documents of a source into the archive: each version as masked text, only changed files read.

A version is one generation of its file. Formats other than text are converted first, since secrets must be masked
before anything is archived.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from anamnesis_pipeline.errors import DocumentUnreadable, HostRefused, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.model import EXCLUDED, FileCursor, FileStat, Source
from anamnesis_pipeline.parsing.documents.formats import to_text
from anamnesis_pipeline.parsing.documents.index_block import without_index
from anamnesis_pipeline.parsing.documents.languages import CONVERTED, format_of
from anamnesis_pipeline.pipeline.archive import WRITERS, Archive
from anamnesis_pipeline.pipeline.crawl import CrawlReport, Mask
from anamnesis_pipeline.pipeline.document_archive import (
    ReadDocument,
    archive_versions,
    masked_lines,
    parsed_again,
    tombstones_of,
    unread,
    versioned,
)
from anamnesis_pipeline.pipeline.document_versions import Origin, Version, origins
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.pipeline.projects import Label, misnamed, project_named
from anamnesis_pipeline.pipeline.section_tombstones import SectionTombstones
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.base import Read, SourceHost, Survey, Wanted
from anamnesis_pipeline.sources.document_selection import Chosen, Rules, chosen
from anamnesis_pipeline.sources.exclusion import RuleSet
from anamnesis_pipeline.sources.selection import Selection, is_unchanged, select, with_emptied
from anamnesis_pipeline.sources.specs import TOPICS, SourceSpec
from anamnesis_pipeline.sources.survey_split import wanted_of
from anamnesis_pipeline.store.base import Store

BATCH_FILES = 1_000
BATCH_CHARS = 8 << 20
"""A batch of files is archived, then committed, when it reaches this number of files or characters."""
RULES_FILES = 20
"""Files read with one snapshot of the rules: querying the store costs as much as reading a small file."""
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DocumentRules:
    """How a source of documents is scanned: the request to its host, and the selection of files to read."""

    spec: SourceSpec
    wanted: Wanted
    rules: Rules

    def choose(self, survey: Survey) -> Chosen:
        """Return the files of a survey to read."""
        return chosen(survey, self.spec, self.rules)


class DocumentSelection:
    """Which files of document sources are read."""

    def __init__(self, settings: Settings) -> None:
        self._home, self._skip = f"{settings.home}/", settings.crawl_skip

    def rules(self, spec: SourceSpec) -> Rules:
        """Return the rules that select the files of a source."""
        root = os.path.expanduser(spec.root).rstrip("/")

        def excluded(path: str) -> str | None:
            is_ours = not spec.host and spec.name != TOPICS and f"{root}/{path}".startswith(self._home)
            return "what Anamnesis itself keeps" if is_ours else None

        return Rules(format_of, frozenset(CONVERTED), self._skip, excluded)

    def document_rules(self, spec: SourceSpec) -> DocumentRules:
        """Return how a source is scanned."""
        return DocumentRules(spec, wanted_of(spec, self._skip), self.rules(spec))


@dataclass(slots=True)
class _Tally:
    new: int = 0
    replaced: int = 0
    bytes_read: int = 0
    lines: int = 0
    masked: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Crawl:
    """State shared by all documents of a crawl."""

    store: Store
    archive: Archive
    source: Source
    rules: DocumentRules
    mask: Mask
    origin: Callable[[str], Origin]
    root: str
    skew_ns: int
    tombstones: SectionTombstones | None
    tally: _Tally
    exclusions: Exclusions
    noted: str


def crawl_documents(
    store: Store,
    host: SourceHost,
    archive: Archive,
    source: Source,
    rules: DocumentRules,
    mask: Mask,
    label: Label,
) -> CrawlReport:
    """Archive the changed documents of a source. A file that cannot be read is reported and stops no other.

    Files count as deleted only after a complete listing: never while the root is missing, or the host does not answer.

    :param label: absolute folder on the source's machine -> project. Where it raises, new documents are left for the
        next run.
    :raises HostUnreachable, HostRefused: `label` did before any document was read.
    :raises StoreFull: the disk is full; what was committed before stays.
    """
    started = time.perf_counter()
    try:
        (survey,) = host.survey([replace(rules.wanted, known="")])
        if isinstance(survey, SourceUnreadable):
            raise survey
    except (SourceUnreadable, HostUnreachable, HostRefused) as problem:
        return CrawlReport(problems=[str(problem)], seconds=time.perf_counter() - started)
    chosen, exclusions = rules.choose(survey), Exclusions(store)
    named = project_named(store, source, rules.spec)
    crawl = _Crawl(
        store,
        archive,
        source,
        rules,
        mask,
        origins(source, survey.root, survey.repositories, label, named),
        survey.root,
        round(abs(host.clock_skew_s() or 0.0) * 1e9),
        tombstones_of(store, source.key),
        _Tally(),
        exclusions,
        exclusions.noted,
    )
    survey = with_emptied(survey, store.files.cursors(source.key))
    crawl.tally.problems += survey.problems
    with archive.writing(source.key):
        report = _crawl_chosen(crawl, host, chosen, named, complete=not survey.problems)
    if crawl.tombstones is not None:
        crawl.tally.problems += crawl.tombstones.told
    left_out = crawl.tally.left_out + Counter(chosen.left_out)
    return replace(report, left_out=dict(left_out.most_common()), seconds=time.perf_counter() - started)


def _crawl_chosen(
    crawl: _Crawl, host: SourceHost, chosen: Chosen, named: Callable[[str], str], *, complete: bool
) -> CrawlReport:
    files, key = crawl.store.files, crawl.source.key
    cursors = _without_outgrown(crawl, files.cursors(key), chosen.too_large)
    wanted = _wanted(crawl, chosen.files, cursors)
    selection = select(wanted.files, wanted.cursors, complete=complete)
    kept_away = [unread(crawl.source, file, cursors.get(file.path), crawl.noted) for file in wanted.kept_away]
    renamed = _renamed(crawl, wanted, named)
    files.commit_crawls([(each.before, each.after, None) for each in (*kept_away, *renamed)])
    try:
        _crawl_changed(crawl, host, selection)
    except (HostUnreachable, HostRefused) as problem:
        crawl.tally.problems.append(str(problem))
    gone = files.mark_gone(key, selection.gone) if selection.gone else 0
    return CrawlReport(
        files=len(wanted.files),
        new=crawl.tally.new,
        replaced=crawl.tally.replaced,
        gone=gone,
        unchanged=selection.unchanged,
        bytes_read=crawl.tally.bytes_read,
        lines=crawl.tally.lines,
        masked=dict(crawl.tally.masked),
        problems=crawl.tally.problems,
    )


def _without_outgrown(
    crawl: _Crawl, cursors: Mapping[str, FileCursor], too_large: Collection[str]
) -> dict[str, FileCursor]:
    """Return the cursors without files that grew too large: these still exist, so nothing of them is retired."""
    outgrown = sorted(path for path, cursor in cursors.items() if path in too_large and not cursor.gone)
    crawl.tally.problems += [f"{path}: too large by now, what was read of it stays as it was" for path in outgrown]
    return {path: cursor for path, cursor in cursors.items() if path not in too_large}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """`files` and `cursors` without excluded files; `kept_away`: excluded files to be recorded as such."""

    files: list[FileStat]
    cursors: dict[str, FileCursor]
    kept_away: list[FileStat]


def _wanted(crawl: _Crawl, files: Sequence[FileStat], cursors: Mapping[str, FileCursor]) -> _Wanted:
    """Drop excluded files: they are not read, and not treated as deleted while they exist. A rule by path leaves no
    trace; other exclusions are recorded, so that the next scan does not treat the file as new.
    """
    rules = crawl.exclusions.now()
    if not rules.rules:
        return _Wanted(list(files), dict(cursors), [])
    machine, root = crawl.source.machine, crawl.root.rstrip("/")
    by_path = {p for p in (*(file.path for file in files), *cursors) if rules.of_path(machine, f"{root}/{p}")}
    by_project = [f for f in files if f.path not in by_path and rules.of_project(crawl.origin(f.path).project)]
    noted = {f.path for f in files if _is_noted(cursors.get(f.path), f, crawl.noted)}
    left = by_path | {file.path for file in by_project} | noted
    wanted = [file for file in files if file.path not in left]
    crawl.tally.left_out[EXCLUDED] += len(files) - len(wanted)
    return _Wanted(
        wanted,
        {path: cursor for path, cursor in cursors.items() if path not in left},
        [file for file in by_project if file.path not in noted],
    )


def _renamed(crawl: _Crawl, wanted: _Wanted, named: Callable[[str], str]) -> list[ReadDocument]:
    """Return unchanged memories whose project has become known, to be parsed again under its name."""
    unchanged: dict[str, tuple[FileStat, FileCursor]] = {}
    for file in wanted.files:
        cursor = wanted.cursors.get(file.path)
        if cursor and is_unchanged(file, cursor) and not cursor.parser_state:
            unchanged[file.path] = file, cursor
    found = misnamed(crawl.store, crawl.source, crawl.root, unchanged, named)
    again = [unchanged[path] for path in sorted(found)]
    return [parsed_again(c, replace(c, version=c.version + 1), _version(crawl, file)) for file, c in again]


def _is_noted(cursor: FileCursor | None, file: FileStat, noted: str) -> bool:
    """Return whether a file is unchanged since it was recorded as excluded by today's rules."""
    return cursor is not None and cursor.unread == noted and is_unchanged(file, cursor)


def _crawl_changed(crawl: _Crawl, host: SourceHost, selection: Selection) -> None:
    changed: list[tuple[FileStat, FileCursor | None]] = [
        *((file, None) for file in selection.new),
        *selection.grown,
        *selection.replaced,
    ]
    if not changed:
        return
    with (
        host.fetching([(_absolute(crawl, file), file.size) for file, _ in changed]) as read,
        ThreadPoolExecutor(WRITERS) as writers,
        ThreadPoolExecutor(1) as committer,  # writes one batch while the next is read and masked
    ):
        last: Future[None] | None = None
        for batch in _batches(_looked_at_all(crawl, read, changed)):
            if last is not None:
                last.result()
            last = committer.submit(_archive, crawl, batch, writers)
        if last is not None:
            last.result()


def _absolute(crawl: _Crawl, file: FileStat) -> str:
    return f"{crawl.root.rstrip('/')}/{file.path}"


def _batches(found: Iterator[ReadDocument]) -> Iterator[list[ReadDocument]]:
    batch: list[ReadDocument] = []
    size = 0
    for each in found:
        batch.append(each)
        size += each.characters
        if len(batch) >= BATCH_FILES or size > BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _looked_at_all(
    crawl: _Crawl, read: Read, changed: Sequence[tuple[FileStat, FileCursor | None]]
) -> Iterator[ReadDocument]:
    """Yield what each file holds. Stop without error when the host is gone: the next run reads the other files."""
    for number, (file, before) in enumerate(changed):
        if number % RULES_FILES == 0:
            rules = crawl.exclusions.now()
        try:
            yield _looked_at(crawl, rules, read, file, before)
        except (HostUnreachable, HostRefused) as problem:
            crawl.tally.problems.append(str(problem))
            return


def _looked_at(crawl: _Crawl, rules: RuleSet, read: Read, file: FileStat, before: FileCursor | None) -> ReadDocument:
    try:
        data = _whole(read, _absolute(crawl, file), file.size)
        crawl.tally.bytes_read += len(data)
        if rules.of_bytes(data):
            # not recorded as read, so that the file is read once the rule is gone
            crawl.tally.left_out[EXCLUDED] += 1
            return unread(crawl.source, file, before, crawl.noted)
        text = without_index(to_text(file.path, data)) if data.strip() else ""  # empty files are frequent in code
        version = _version(crawl, file)
        lines = masked_lines(crawl.tombstones, crawl.mask, file.path, version, text, crawl.tally.masked)
    except (SourceUnreadable, DocumentUnreadable) as problem:
        crawl.tally.problems.append(str(problem))
        return unread(crawl.source, file, before, str(problem))
    return versioned(crawl.source, file, before, lines, version)


def _version(crawl: _Crawl, file: FileStat) -> Version:
    """Return the metadata of a file's current state; its generation is set later."""
    origin = crawl.origin(file.path)
    seen_ns = min(file.mtime_ns, time.time_ns())
    return Version(0, seen_ns, crawl.skew_ns, origin.project, origin.place, origin.cwd, inside=origin.inside)


def _whole(read: Read, path: str, size: int) -> bytes:
    """:raises SourceUnreadable: its size has changed; the next scan reads its new state."""
    data = bytearray()
    while len(data) < size and (block := read(path, len(data), min(READ_BYTES, size - len(data)))):
        data += block
    if len(data) != size:
        raise SourceUnreadable(f"{path} changed while it was read: {len(data):,} of {size:,} bytes; it is tried again")
    return bytes(data)


def _archive(crawl: _Crawl, batch: Sequence[ReadDocument], writers: Executor) -> None:
    archived = archive_versions(crawl.store, crawl.archive, crawl.source, batch, writers)
    for each, is_done in zip(batch, archived, strict=True):
        if is_done and each.lines is not None:
            crawl.tally.lines += len(each.lines)
            crawl.tally.new += each.before is None
            crawl.tally.replaced += each.before is not None
