"""Forget for good: delete episodes, their source content, the archived lines, and every copy of these.

The job in progress is recorded in the store (ids only), and every step can be repeated: `resume`, called first by every
later run and every ingest, finishes a run that died. The chunks' texts are needed to find copies, so they go last.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.embeddings.passages import passages_of_part
from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.errors import DocumentUnreadable, StoreBusy, StoreCorrupt
from anamnesis_pipeline.model import (
    MAX_RECORDS,
    RECORD_KIND,
    Episode,
    EpisodeFilter,
    Part,
    SectionFacts,
    Source,
    record_id,
)
from anamnesis_pipeline.parsing.text.file_names import log_stem
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archive_catalog import write_catalog
from anamnesis_pipeline.pipeline.archived import Damage, archived_lines
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.dead_letters import EVERY_LETTER
from anamnesis_pipeline.pipeline.documents import UPLOADS, holds_documents
from anamnesis_pipeline.pipeline.forgotten_lines import EMPTY_LINE, LineRule
from anamnesis_pipeline.pipeline.forgotten_sections import without_sections
from anamnesis_pipeline.pipeline.section_tombstones import bury_sections
from anamnesis_pipeline.pipeline.sessions import forget_sessions
from anamnesis_pipeline.pipeline.tool_outputs import NO_LINE, names_on_line, output_key
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services.extract import Change, names, rewrite_generation
from anamnesis_pipeline.services.forget_target import (
    Choice,
    File,
    ForgetRequest,
    Target,
    cleared_state,
    messages_to_forget,
)
from anamnesis_pipeline.services.forgotten_uploads import drop_uploads, remove_forgotten_files
from anamnesis_pipeline.services.posting import CONTEXT_WITHIN, posted_passages
from anamnesis_pipeline.services.query_log import forget_questions, marks_of
from anamnesis_pipeline.services.store_copies import COPIED_FROM
from anamnesis_pipeline.services.topic_traces import TopicTraces
from anamnesis_pipeline.sources.base import TOOL_RESULTS, is_tool_output, output_name
from anamnesis_pipeline.sources.specs import SourceSpec
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.forgetting import Selection
from anamnesis_pipeline.store.records.messages import ParsedChunk

_LAST, _CONTEXT_UNTIL = datetime.max.replace(tzinfo=UTC), CONTEXT_WITHIN + timedelta(microseconds=1)
JOB = "forget.job"
"""Setting with the job in progress."""
FORGOTTEN = "forgotten"
"""Reason of the tombstones."""
SHOWN = 50
"""Maximum episodes that a report describes."""
NAMED_FILES = 3
"""Files named per machine; the others are counted."""
TRIES = 5


@dataclass(frozen=True, slots=True)
class Shown:
    """An episode as reports show it."""

    episode_id: str
    timestamp: str
    machine: str
    project: str
    kind: str
    summary: str


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """What is or was removed: `messages` of logs and of chats here, `sections` of documents, archived `lines` in
    `files`. `remains`: other places that may still hold it; `problems`: what could not be done now; `spared`: pinned
    episodes that match and stay.
    """

    dry_run: bool
    episodes: int
    messages: int
    sections: int
    lines: int
    files: int
    shown: list[Shown]
    remains: list[str]
    problems: list[str] = field(default_factory=list)
    spared: int = 0


def is_forgetting(store: Store) -> bool:
    """Return whether a job is in progress, or was left by a run that died."""
    return store.settings.get(JOB) is not None


class Forgetter:
    """Forget in one home.

    :param publish: writes the episodes of a source's changed chunks.
    :param specs: the configured sources, to resolve their names.
    :param private: neither text nor files of it are in reports, unless the request names it.
    :param topics: finds the lines of topic files that were written from what is forgotten; None: they are not named.
    """

    def __init__(
        self,
        store: Store,
        archive: Archive,
        pieces: PieceCounter,
        publish: Callable[[Source], object],
        specs: Sequence[SourceSpec] = (),
        private: Private = NOTHING_PRIVATE,
        topics: TopicTraces | None = None,
    ) -> None:
        self._store, self._archive, self._pieces, self._publish = store, archive, pieces, publish
        self._sources = {source.key: source for source in store.files.sources()}
        self._private = private
        self._topics = topics
        self._choice = Choice(store, self._sources.values(), specs)
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        """Return what the last call could not do, and why."""
        return list(self._problems)

    def preview(self, request: ForgetRequest) -> ForgetReport:
        """Return what `forget` would remove. Reads the archived files that it would rewrite.

        :raises GiveUp: the request is empty.
        """
        self._problems = {}
        target = self._target(request)
        return self._report(target, self._lines_to_go(target), request, dry_run=True)

    def forget(self, request: ForgetRequest, rule_id: str = "") -> ForgetReport:
        """Remove what the request means, everywhere, after finishing an earlier run's job. A damaged archive file stays
        unchanged, and is a problem of the report.

        :param rule_id: the rule that excludes the content too: its tombstones are no separate entries, and are lifted
            with the rule.
        :raises GiveUp: the request is empty.
        :raises StoreFull: no space for a rewritten archive file; the next run does the rest.
        """
        self._problems = {}
        with self._archive.alone():
            self._finish()
            target = self._target(request)
            report = self._report(target, self._lines_to_go(target), request, dry_run=False)
            self._store.settings.set(
                JOB,
                {
                    "ids": sorted(target.ids),
                    "whole": sorted(target.whole),
                    "kept": sorted(target.kept),
                    "chat": sorted(target.chat),
                    "rule": rule_id,
                },
            )
            has_indexes = self._topics is not None and self._topics.drop_indexes(target.ids)
            self._carry_out(target, rule_id)
            if self._topics is not None and has_indexes:
                self._problems |= dict.fromkeys(self._topics.write_indexes(self._private))
            return replace(report, problems=self.problems)

    def resume(self) -> bool:
        """Finish a job left by a run that died; False when there is none. Waits for one in progress."""
        self._problems = {}
        if not is_forgetting(self._store):
            return False
        with self._archive.alone():
            return self._finish()

    def remove_leftovers(self) -> None:
        """Remove leftovers of deleted uploads that have no episode."""
        with self._archive.alone():
            remove_forgotten_files(self._store, self._archive)
            self._store.forgetting.scrub()

    def _finish(self) -> bool:
        job = self._store.settings.get(JOB)
        if job is None:
            return False
        whole = [(source, path) for source, path in job["whole"]]
        self._carry_out(Target(self._store, job["ids"], whole, job["kept"], job["chat"]), job["rule"], is_resumed=True)
        return True

    def _target(self, request: ForgetRequest) -> Target:
        found = self._choice.target(request)
        messages = messages_to_forget(self._store, request, self._choice.chosen(request), found.ids)
        return Target(self._store, found.ids, found.whole, found.kept, messages, found.spared)

    # --- reports ---

    def _report(
        self, target: Target, lines: Mapping[File, int], request: ForgetRequest, *, dry_run: bool
    ) -> ForgetReport:
        private = NOTHING_PRIVATE if request.names_something else self._private
        episodes = sorted(
            self._store.episodes.get(sorted(target.ids)).values(), key=lambda e: e.timestamp, reverse=True
        )
        files = [file for file, count in lines.items() if count]
        unnamed = {(part.source, part.path) for part in target.parts if private.is_of(part.project)}
        kept = [f"an archive whose database was lost: {file}" for file in self._archive.kept_aside()]
        if origin := self._store.settings.get(COPIED_FROM):
            kept.append(f"{origin}, from which this memory was copied")
        return ForgetReport(
            dry_run=dry_run,
            episodes=len(episodes),
            messages=len({s.message_key for part in target.parts if part.section is None for s in part.segments})
            + len(target.chat),
            sections=sum(part.section is not None for part in target.parts),
            lines=sum(lines.values()),
            files=sum(map(bool, lines.values())),
            shown=[_shown(episode) for episode in episodes if not private.holds(episode)][:SHOWN],
            remains=[
                *self._shared_lines(lines, request.session_id),
                *self._origins(files, private, unnamed),
                *(self._topics.remains(episodes, private) if self._topics else ()),
                *kept,
                *self._store.forgetting.keeps(),
                "backups of this home, and of the logs",
                "what was restored, exported or copied from here, and answers that Claude got from it",
            ],
            problems=self.problems,
            spared=len(target.spared),
        )

    def _shared_lines(self, lines: Mapping[File, int], session_id: str) -> list[str]:
        """Describe the lines in a copied or forked session's logs that other sessions own."""
        found = []
        for file, going in lines.items():
            kept = sum(line not in {EMPTY_LINE, NO_LINE} for line in self._lines(file)) - going
            if session_id and kept > 0 and names(file[1], session_id):
                found.append(
                    f"{kept:,} archived lines of {file[1]}: what it copied belongs to the session it is a copy of"
                )
        return found

    def _origins(self, files: Sequence[File], private: Private, unnamed: Set[File]) -> list[str]:
        """Return the original places of archived files that still exist: per machine the first few, and a count."""
        there: dict[str, list[str]] = {}
        for key, path in files:
            cursor = self._store.files.cursor(key, path)
            if cursor is not None and not cursor.gone:
                source = self._sources[key]
                what = "file" if holds_documents(source) else "log"
                origin = f"the {what} itself, on {source.machine}: {folder_of(source)}/{path}"
                if key == UPLOADS:
                    origin = f"the file that was uploaded, where it was sent from: {path.rpartition('/')[2]}"
                is_named = (key, path) not in unnamed
                origin = private.file_shown(key, origin) if is_named else "a file of a private project"
                there.setdefault(source.machine, []).append(origin)
        found = []
        for machine, origins in there.items():
            more = len(origins) - NAMED_FILES
            found += origins[:NAMED_FILES]
            found += [f"{counted(more, 'more file')}, on {machine or 'no known machine'}"] if more > 0 else []
        return found

    def _lines_to_go(self, target: Target) -> dict[File, int]:
        logs = {file: sum(map(self._rule(target, file).goes, self._lines(file))) for file in target.logs}
        documents = {file: self._document_lines_to_go(target, file) for file in target.documents}
        outputs = {file: sum(line != NO_LINE for line in self._lines(file)) for file in self._outputs(target)}
        return logs | documents | outputs

    def _document_lines_to_go(self, target: Target, file: File) -> int:
        change, going = self._document_change(target, file), 0
        for generation in self._generations(file):
            lines = list(self._readable(file, generation))
            going += sum(old != new for old, new in zip(lines, change(lines), strict=True))
        return going

    def _lines(self, file: File) -> Iterator[str]:
        """Yield the archived lines of every generation."""
        for generation in self._generations(file):
            yield from self._readable(file, generation)

    def _readable(self, file: File, generation: int, from_line: int = 0) -> Iterator[str]:
        """Yield the archived lines of a generation, up to the first unreadable one."""
        try:
            yield from archived_lines(self._store, self._archive, *file, generation, from_line)
        except StoreCorrupt as problem:
            self._note_damage(file, generation, problem)

    def _note_damage(self, file: File, generation: int, problem: StoreCorrupt) -> None:
        damage = Damage(*file, generation, str(problem))
        self._problems[f"{damage}, and forget again; or delete that archive file: nothing was removed from it"] = None

    def _outputs(self, target: Target) -> list[File]:
        """Return the output files to remove: of results on removed lines, and of whole sessions."""
        names = {
            name
            for file in target.logs
            for rule in [self._rule(target, file)]
            for line in self._lines(file)
            if TOOL_RESULTS in line and rule.goes(line)
            for name in names_on_line(line)
        }
        named = {
            (source, path)
            for source in self._sources
            for path in self._store.files.cursors(source)
            if names and output_name(path) in names
        }
        return sorted(named | {file for file in target.whole if is_tool_output(file[1])})

    # --- execution ---

    def _carry_out(self, target: Target, rule_id: str, *, is_resumed: bool = False) -> None:
        """Run every step in order; each may be repeated. What could not be done is a problem.

        :param is_resumed: some of the texts may be gone, so the queries that quote them cannot be identified.
        """
        marks = None if is_resumed else self._marks(target)
        self._renew_contexts_of_posted(target)
        outputs = self._outputs(target)
        graves = target.tombstones | {key: [key] for key in (output_key(p) for _, p in outputs)}
        self._store.forgetting.bury(graves)
        bury_sections(self._store, target.parts)
        for episode_id in self._store.episodes.get(sorted(target.ids)):
            self._store.episodes.delete(episode_id, tombstone=not target.kept)  # else bury() did, without kept keys
        self._store.chat.forget(target.chat)
        # most of these ids are of records that never existed: the blocklist hides them
        records = {record_id(key, number): key for key in target.ids for number in range(MAX_RECORDS)}
        self._store.exclusion.explain(
            FORGOTTEN, target.ids, dict.fromkeys(graves if rule_id else (), rule_id) | records
        )
        for file in outputs:  # before the lines that name these outputs
            self._rewrite(file, lambda lines: [NO_LINE] * len(lines))
        for file in target.logs:
            self._rewrite(file, self._rule(target, file).changed)
        for file in target.documents:
            self._rewrite(file, self._document_change(target, file))
        self._store.documents.remove(sorted(target.ids))
        for source, path in sorted({*target.files} - {*target.documents}):
            self._clear_state(target, source, path)
        self._renew_neighbours(target)  # no new chunk can carry some of it any more
        named = {part.session_id for part in target.parts} | {log_stem(path) for _, path in target.whole}
        emptied = {
            session
            for session in named - {""}
            if target.ids.issuperset(self._store.forgetting.matching(Selection(session_id=session)))
        }
        forget_sessions(self._store, emptied, self._publish)
        drop_uploads(self._store, target.ids, target.keys_of)
        self._store.forgetting.remove_parts(sorted(target.ids))
        remove_forgotten_files(self._store, self._archive)
        if marks is None:
            self._store.queries.clear()  # any query may hold some of the text
        else:
            forget_questions(self._store, marks)
        self._store.events.clear()  # they name forgotten episodes and their projects
        for key in sorted({key for key, _ in (*target.logs, *target.documents, *outputs)}):
            write_catalog(self._store, self._archive, self._sources[key], after_removal=True)
        self._problems |= dict.fromkeys(self._store.forgetting.scrub())
        self._store.settings.set(JOB, None)

    def _marks(self, target: Target) -> set[str] | None:
        """Return the marks of queries that may quote removed text; None: unknown, as when chat turns are removed."""
        if target.chat:
            return None
        texts: list[str] = []
        for part in target.parts:
            facts = part.section or SectionFacts((), 0, 0)
            texts += [part.path, part.cwd, part.project, part.prompt, *(s.text for s in part.segments)]
            texts += [*facts.title, *facts.tags]
        for episode in self._store.episodes.get(sorted(target.ids)).values():
            texts += [episode.path, episode.project, episode.summary, episode.raw_exchange, *episode.tags]
            texts.append(str(dict(episode.metadata)))
        marks = marks_of(texts)
        for file in target.whole:
            marks |= marks_of([file[1], *self._lines(file)])
        return marks

    def _rule(self, target: Target, file: File) -> LineRule:
        is_history = self._sources[file[0]].kind == "claude_history"
        return LineRule(target.keys, target.said, self._store.messages.known_keys, is_history, file in target.emptied)

    def _document_change(self, target: Target, file: File) -> Change:
        """Return the change of a document version's lines, all of which are in one frame."""
        if file in target.whole:
            return lambda lines: [NO_LINE] * len(lines)

        def changed(lines: list[str]) -> list[str]:
            try:
                return without_sections(file[1], lines, target.keys)
            except DocumentUnreadable as problem:
                place = f"{folder_of(self._sources[file[0]])}/{file[1]}"
                told = f"a version of {problem}; it stays in the archive as it was, and goes as a whole with"
                self._problems[f"{told}: anamnesis forget --path {shlex.quote(place)} --yes"] = None
                return lines

        return changed

    def _generations(self, file: File) -> range:
        cursor = self._store.files.cursor(*file)
        return range(cursor.generation + 1) if cursor else range(0)

    def _rewrite(self, file: File, change: Change) -> None:
        """Replace removed archive lines with empty ones, in a new revision; remove files of former revisions."""
        source, path = file
        for generation in self._generations(file):
            try:
                rewrite_generation(self._store, self._archive, source, path, generation, change)
            except StoreCorrupt as problem:
                self._note_damage(file, generation, problem)

    def _renew_neighbours(self, target: Target) -> None:
        """Remove forgotten text that remaining chunks carry, and their summaries, which may repeat it. Always rewrites
        their episodes, since a run may have died in between.
        """
        self._store.forgetting.replace_parts([target.without_context(p) for p in target.neighbours], resummarize=True)
        for source in sorted({source for source, _ in target.files}):
            self._publish(self._sources[source])
        for part in self._store.forgetting.parts_of_files(target.files):
            if part.part_id not in target.ids:
                self._clear_edited(target, part)

    def _clear_edited(self, target: Target, part: Part) -> None:
        """Remove a forgotten prompt from an edited episode: publishing keeps clients' edits, metadata included."""
        episode = self._store.episodes.get([part.part_id]).get(part.part_id)
        if episode is None or not target.said.holds(str(episode.metadata.get("prompt", ""))):
            return
        metadata = {name: value for name, value in episode.metadata.items() if name != "prompt"}
        self._store.forgetting.rewrite_episode(
            replace(episode, metadata=metadata), passages_of_part(part, self._pieces)
        )

    def _renew_contexts_of_posted(self, target: Target) -> None:
        """Rebuild the context of episodes posted soon after a removed one: it has that one's summary."""
        for episode in self._store.episodes.get(sorted(target.ids)).values():
            if episode.source != "direct":
                continue
            where = EpisodeFilter(
                projects=(episode.project,),
                instance=episode.instance,
                source="direct",
                since=episode.timestamp,
                until=min(episode.timestamp, _LAST - _CONTEXT_UNTIL) + _CONTEXT_UNTIL,
                include_superseded=True,
            )
            for later in self._store.episodes.page(where, 1_000).items:
                if later.episode_id not in target.ids and later.kind != RECORD_KIND:
                    passages = posted_passages(self._store, later, self._pieces, without=target.ids)
                    self._store.forgetting.rewrite_episode(later, passages)

    def _clear_state(self, target: Target, source: str, path: str) -> None:
        """Clear the parser's state of a file, which holds the beginning of a prompt and the end of the last text.
        Removes dead letters of lines that are empty now.
        """
        letters = [
            letter
            for letter in self._store.messages.dead_letters(source, EVERY_LETTER)
            if letter.path == path
            and next(self._readable((source, path), letter.generation, letter.line), "") == EMPTY_LINE
        ]
        for _ in range(TRIES):
            cursor = self._store.files.cursor(source, path)
            if cursor is None:
                return
            state = cleared_state(cursor, target) if cursor.parser_state else ""
            if state == cursor.parser_state and not letters:
                return
            after = replace(cursor, parser_state=state)
            if self._store.messages.commit_parsed(ParsedChunk(cursor, after, revived=letters)):
                return
        raise StoreBusy(f"{path} is being read all the time; forget once more when the ingest is done")


def _shown(episode: Episode) -> Shown:
    head = " ".join(episode.summary.split())[:100]
    time = episode.timestamp.isoformat()
    return Shown(episode.episode_id, time, episode.machine, episode.project, episode.kind, head)
