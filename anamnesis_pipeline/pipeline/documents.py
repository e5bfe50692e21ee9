"""Implement the asset `documents`: archived versions of documents become titled sections, each text stored once."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.model import (
    FileCursor,
    Part,
    Section,
    SectionFacts,
    Segment,
    Source,
    Trust,
    content_id,
    source_tag,
)
from anamnesis_pipeline.parsing.claude_logs.message_keys import section_part_id
from anamnesis_pipeline.parsing.documents.anchors import unnumbered
from anamnesis_pipeline.parsing.documents.chat_messages import slack_people
from anamnesis_pipeline.parsing.documents.chats import is_chat_export
from anamnesis_pipeline.parsing.documents.formats import format_of
from anamnesis_pipeline.parsing.documents.sections import sections_of
from anamnesis_pipeline.parsing.documents.trust import TagPattern, has_authority, tags_of, trust_of
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.document_versions import Version, noted, waiting
from anamnesis_pipeline.pipeline.forgotten_sections import key_of
from anamnesis_pipeline.sources.specs import DOCUMENTS, MEMORY, TOPICS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.records.documents import ParsedDocument, SectionOccurrence, Settled, Unsettled, Verdict

UPLOADS = "uploads"
"""Key of the reserved source of uploaded documents."""
PEOPLE = "users.json"
"""The list of people in a Slack export."""
BETWEEN_TITLES = " › "
BATCH_CHARS = 8 << 20
SETTLED_AT_ONCE = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DocumentReport:
    """Result of `parse_documents`. `versions` parsed, with `sections`, of which `written` are new; `formats` counts
    versions; `gone` files hold no section any more. `overtaken` files were left to another run.
    """

    versions: int = 0
    sections: int = 0
    written: int = 0
    gone: int = 0
    overtaken: int = 0
    formats: Mapping[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class _Tally:
    versions: int = 0
    sections: int = 0
    written: int = 0
    overtaken: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def holds_documents(source: Source) -> bool:
    """Return whether the files of a source are documents, and not logs."""
    return source.kind == DOCUMENTS or source.key == UPLOADS


def parse_documents(
    store: Store, archive_lines: ArchivedLines, source: Source, patterns: Sequence[TagPattern] = ()
) -> DocumentReport:
    """Parse every pending archived version into sections, in order, and mark the sections of deleted files as absent.
    Later, when the episodes exist, `settle_source` decides which are current.

    An interrupted run resumes; a file that another run changes in the meantime is left to that run.

    :param patterns: give documents further tags.
    """
    started, tally = time.perf_counter(), _Tally()
    parser = _Parser(store, archive_lines, source, patterns, tally)
    for cursor in store.files.cursors(source.key).values():
        if cursor.parsed_lines < cursor.lines:
            parser.parse(cursor)
    parser.flush()
    gone = [ParsedDocument(cursor, cursor, ()) for cursor in store.documents.vanished(source.key)]
    left = sum(done is not None for done in store.documents.commit(gone))
    return DocumentReport(
        tally.versions,
        tally.sections,
        tally.written,
        left,
        tally.overtaken,
        dict(tally.formats),
        tally.problems,
        time.perf_counter() - started,
    )


class _Parser:
    """Parse the files of a source, committing many at a time."""

    def __init__(
        self,
        store: Store,
        archive_lines: ArchivedLines,
        source: Source,
        patterns: Sequence[TagPattern],
        tally: _Tally,
    ) -> None:
        self.store, self.source = store, source
        self._archive_lines, self._patterns, self._tally = archive_lines, patterns, tally
        self._batch: list[ParsedDocument] = []
        self._rows = self._characters = 0
        self._known_people: dict[str, dict[str, str]] = {}

    def parse(self, cursor: FileCursor) -> None:
        """Parse every pending version of a file. Each is committed before the next begins."""
        versions = waiting(cursor)
        for number, version in enumerate(versions):
            left = versions[number + 1 :]
            after = replace(cursor, parsed_lines=-1 if left else cursor.lines, parser_state=noted(left))
            if not self._parse_version(cursor, after, version):
                return
            if left:
                self.flush()
                stored = self.store.files.cursor(cursor.source, cursor.path)
                if stored is None or stored.version != cursor.version + 1:
                    return
                cursor = stored

    def _parse_version(self, before: FileCursor, after: FileCursor, version: Version) -> bool:
        lines = list(self._archive_lines.read(replace(before, generation=version.generation), 0))
        text = "\n".join(lines)
        try:
            found = sections_of(version.inside or before.path, text, self._people(before.path, text))
        except Exception as problem:  # a parser failure in one file does not stop the others
            self._give_up(before, after, f"{before.path}: no sections could be made of it: {problem!r}")
            return False
        parts = parts_of(self.source, before.path, text, version, found, self._patterns)
        self._tally.versions += 1
        self._tally.sections += len(parts)
        self._tally.formats[format_of(before.path) or "text"] += 1
        self._batch.append(ParsedDocument(before, after, parts))
        self._rows += 1 + 2 * len(parts)
        self._characters += len(text)
        if self._rows >= MAX_ROWS_PER_WRITE or self._characters > BATCH_CHARS:
            self.flush()
        return True

    def _people(self, path: str, text: str) -> Mapping[str, str]:
        """Return the people of a Slack export by its `users.json`: beside the file, or in the folder above."""
        folder = path.rpartition("/")[0]
        if format_of(path) != "json" or not is_chat_export(text):
            return {}
        for above in dict.fromkeys((folder, folder.rpartition("/")[0])):
            file = f"{above}/{PEOPLE}" if above else PEOPLE
            if file not in self._known_people:
                self._known_people[file] = self._read_people(file)
            if self._known_people[file]:
                return self._known_people[file]
        return {}

    def _read_people(self, file: str) -> dict[str, str]:
        cursor = self.store.files.cursor(self.source.key, file)
        if cursor is None or cursor.gone or not cursor.lines:
            return {}
        try:
            return slack_people(json.loads("\n".join(self._archive_lines.read(cursor, 0))))
        except (ValueError, RecursionError):
            return {}

    def _give_up(self, before: FileCursor, after: FileCursor, problem: str) -> None:
        """Keep the sections unchanged; the next crawl reports the file as unreadable."""
        self._tally.problems.append(problem)
        noted_so = replace(after, parsed_lines=after.lines, parser_state="", unread=problem, version=before.version + 1)
        self.store.files.commit_crawl(before, noted_so, None)

    def flush(self) -> None:
        """Commit the documents parsed so far."""
        for written in self.store.documents.commit(self._batch):
            self._tally.overtaken += written is None
            self._tally.written += written or 0
        self._batch, self._rows, self._characters = [], 0, 0


# --- sections into chunks ----------------------------------------------------------------------------------


def parts_of(
    source: Source,
    path: str,
    text: str,
    version: Version,
    sections: Iterable[Section],
    patterns: Sequence[TagPattern] = (),
) -> list[tuple[Part, SectionOccurrence]]:
    """Return the chunks of one version of a document, with their occurrences in it. Pure.

    :param text: the whole document.
    :param version: when it was seen, and its identity.
    """
    full_path = f"{version.cwd}/{path.rpartition('/')[2]}" if version.cwd else path
    form, seen = format_of(path) or "text", _EPOCH + timedelta(microseconds=version.mtime_ns // 1_000)
    is_topic, is_of_claude = source.spec == TOPICS, source.spec.startswith(MEMORY)
    is_named = is_topic or is_of_claude or has_authority(source, path)
    known_as = f"/.claude/{path}" if is_of_claude else full_path
    tags = [
        *tags_of(known_as, form, patterns, text, is_named=is_named, is_topic=is_topic),
        *version.tags,
        *([source_tag(source.spec)] if source.spec else []),
    ]
    facts = SectionFacts(
        (),
        0,
        0,
        format=form,
        trust=str(Trust.CURATED if is_topic else trust_of(known_as) if is_named else Trust.FILE),
        tags=tuple(dict.fromkeys(tags)),
        seen=seen,
        instance=version.instance,
    )
    found: dict[str, tuple[Part, SectionOccurrence]] = {}
    for ordinal, section in enumerate(sections):
        part = _part(source, path, version, section, ordinal, facts)
        found.setdefault(part.part_id, (part, _sighting(part, version, section)))
    return list(found.values())


def _part(source: Source, path: str, version: Version, section: Section, ordinal: int, facts: SectionFacts) -> Part:
    title = (version.title, *section.title[1:]) if version.title else section.title
    return Part(
        part_id=section_part_id(version.place, unnumbered(section.anchor), (piece.text for piece in section.pieces)),
        source=source.key,
        path=path,
        session_id=section.session,
        exchange_id=content_id("document", version.place),
        ordinal=ordinal,
        kind=section.kind,
        project=version.project,
        cwd=version.cwd,
        prompt=BETWEEN_TITLES.join(title),
        segments=tuple(
            Segment(key_of(section, piece), piece.message_id, piece.kind, 0, piece.text, piece.timestamp or facts.seen)
            for piece in section.pieces
        ),
        closed=True,
        section=replace(
            facts, title=title, first_line=section.first_line, last_line=section.last_line, language=section.language
        ),
    )


def _sighting(part: Part, version: Version, section: Section) -> SectionOccurrence:
    texts = [piece.text for piece in section.pieces]
    bodies = [_body(text) for text in texts]
    return SectionOccurrence(
        source=part.source,
        path=part.path,
        part_id=part.part_id,
        place=version.place,
        anchor=content_id(unnumbered(section.anchor)),
        ordinal=part.ordinal,
        first_line=section.first_line,
        last_line=section.last_line,
        since_ns=version.mtime_ns,
        skew_ns=version.skew_ns,
        text=content_id(*texts),
        body=content_id(*bodies) if any(body.strip() for body in bodies) else part.part_id,
        cwd=version.cwd,
    )


def _body(text: str) -> str:
    """Return a text without its leading heading."""
    first, _, rest = text.lstrip().partition("\n")
    return rest.strip() if first.startswith("#") else text


# --- which text is current ---------------------------------------------------------------------------------


def settle_source(store: Store, source: Source) -> Settled:
    """Reconcile every section with an added or removed occurrence: decide which text is current. Episodes of other
    texts are superseded; those of a text that came back are active again.
    """
    total, machines = Settled(), {each.key: each.machine for each in store.files.sources()}
    last: list[Unsettled] = []
    while (sections := store.documents.unsettled(source.key, SETTLED_AT_ONCE)) and sections != last:
        last = sections
        done = settle(store, sections, machines)
        total = Settled(total.superseded + done.superseded, total.retired + done.retired, total.revived + done.revived)
    return total


def settle(store: Store, sections: Sequence[Unsettled], machines: Mapping[str, str]) -> Settled:
    """Reconcile some sections.

    :param machines: of every source.
    """
    sightings = store.documents.sightings_at([(section.place, section.anchor) for section in sections])
    by_section: dict[tuple[str, str], list[SectionOccurrence]] = {}
    for sighting in sightings:
        by_section.setdefault((sighting.place, sighting.anchor), []).append(sighting)
    verdicts = {part_id: v for found in by_section.values() for part_id, v in verdicts_on(found, machines).items()}
    return store.documents.settle(sections, verdicts)


def verdicts_on(sightings: Sequence[SectionOccurrence], machines: Mapping[str, str]) -> dict[str, Verdict]:
    """Return the verdict on each text under one heading, or under equal ones, of one document. Pure.

    Current are the newest text that is present, and all texts in the same files. So is a text whose time differs from
    the newest one's by no more than the clocks' error. An absent text is superseded by the text that took its place in
    its file, else by the only current text if that is from another file, else by none.

    :param machines: source -> its machine; sources of one machine share one clock.
    """
    present = [s for s in sightings if s.present]
    newest = max(present, key=lambda s: (s.since_ns, s.part_id), default=None)
    files = {(s.source, s.path) for s in present if newest and s.part_id == newest.part_id}
    current = {
        s.part_id
        for s in present
        if newest and ((s.source, s.path) in files or newest.since_ns - s.since_ns <= _doubt_ns(s, newest, machines))
    }
    successors = _successors(sightings, current)
    return {s.part_id: Verdict(s.part_id in current, successors.get(s.part_id)) for s in sightings}


def _successors(sightings: Sequence[SectionOccurrence], current: set[str]) -> dict[str, str]:
    """Return chunk that is not current -> the chunk that supersedes it."""
    files: dict[str, set[tuple[str, str]]] = {}
    for s in sightings:
        files.setdefault(s.part_id, set()).add((s.source, s.path))
    became = {s.part_id: s.became for s in sorted(sightings, key=lambda s: s.since_ns) if s.became}
    only = next(iter(current)) if len(current) == 1 else ""
    found = {}
    for part_id in files.keys() - current:
        follower, passed = became.get(part_id, ""), {part_id}
        while follower in files and follower not in current:
            passed.add(follower)
            follower = became.get(follower, "")
            follower = "" if follower in passed else follower
        if not follower and only and not files[part_id] & files[only]:
            follower = only
        if follower:
            found[part_id] = follower
    return found


def _doubt_ns(one: SectionOccurrence, other: SectionOccurrence, machines: Mapping[str, str]) -> int:
    is_one_clock = machines.get(one.source, one.source) == machines.get(other.source, other.source)
    return 0 if is_one_clock else one.skew_ns + other.skew_ns
