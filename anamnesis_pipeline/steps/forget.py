"""Forgetting for good: episodes, what they were made of, the archived lines, and every copy of these.

What is under way is noted in the store (ids only), and every step can be repeated: a run that dies is finished by
`resume`, which every later run and every ingest begins with. The texts of the parts say what else to look for, so they
go last.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta

from anamnesis_pipeline.embeddings.passages import passages_of_part
from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.errors import GiveUp, StoreBusy
from anamnesis_pipeline.exchanges.parsing import FileState
from anamnesis_pipeline.model import DeadLetter, Episode, FileCursor, Part, Source, Where, record_id
from anamnesis_pipeline.search.engine import with_labels
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.sources.base import TOOL_RESULTS, is_agent_description, is_tool_output, output_name
from anamnesis_pipeline.steps.archived import archived_lines
from anamnesis_pipeline.steps.crawl import folder_of
from anamnesis_pipeline.steps.dead_letters import EVERY_LETTER
from anamnesis_pipeline.steps.documents import UPLOADS, holds_documents
from anamnesis_pipeline.steps.episodes import RECORD_KIND
from anamnesis_pipeline.steps.forget_target import File, ForgetRequest, Target
from anamnesis_pipeline.steps.forgotten_lines import EMPTY_LINE, LineRule
from anamnesis_pipeline.steps.forgotten_sections import without_sections
from anamnesis_pipeline.steps.forgotten_uploads import drop_uploads
from anamnesis_pipeline.steps.posting import CONTEXT_WITHIN, posted_passages
from anamnesis_pipeline.steps.restore import is_below, names
from anamnesis_pipeline.steps.rewriting import Change, rewrite_generation
from anamnesis_pipeline.steps.section_tombstones import bury_sections
from anamnesis_pipeline.steps.tool_outputs import NO_LINE, names_on_line, output_key
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.forget_base import Selection
from anamnesis_pipeline.store.ingest_base import ParsedChunk
from anamnesis_pipeline.summary_model import MAX_RECORDS

JOB = "forget.job"
"""Setting that names what is being forgotten."""
FORGOTTEN = "forgotten"
"""Reason of the tombstones."""
SHOWN = 50
"""Episodes that a report describes."""
MOST_HITS = 100_000
TRIES = 5


@dataclass(frozen=True, slots=True)
class Shown:
    """An episode, to be recognized by."""

    episode_id: str
    timestamp: str
    machine: str
    project: str
    kind: str
    summary: str


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """What goes, or went. `messages` of logs and `sections` of documents; `lines` of the archive in `files` of it;
    `remains` says where else it may still be, and `problems` what could not be done now.
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


def is_forgetting(store: Store) -> bool:
    """Whether something is being forgotten, or was when a run died."""
    return store.settings.get(JOB) is not None


class Forgetter:
    """Forgets in one home.

    :param publish: writes the episodes of a source's parts that changed.
    """

    def __init__(
        self, store: Store, archive: Archive, pieces: PieceCounter, publish: Callable[[Source], object]
    ) -> None:
        self._store, self._archive, self._pieces, self._publish = store, archive, pieces, publish
        self._sources = {source.key: source for source in store.ingest.sources()}

    def preview(self, request: ForgetRequest) -> ForgetReport:
        """What `forget` would remove. Reads the archived files that it would rewrite.

        :raises GiveUp: nothing is asked for.
        """
        target = self._target(request)
        return self._report(target, self._lines_to_go(target), request.session_id, dry_run=True)

    def forget(self, request: ForgetRequest, rule_id: str = "") -> ForgetReport:
        """Remove it, everywhere; what an earlier run left undone is finished first.

        :param rule_id: the rule that keeps it away as well: its tombstones are no entries of their own, and are lifted
            with the rule.
        :raises GiveUp: nothing is asked for.
        :raises StoreFull: no room for a rewritten archive file; what is left to do is done by the next run.
        """
        with self._archive.alone():
            self._finish()
            target = self._target(request)
            report = self._report(target, self._lines_to_go(target), request.session_id, dry_run=False)
            self._store.settings.set(
                JOB,
                {
                    "ids": sorted(target.ids), "whole": sorted(target.whole), "kept": sorted(target.kept),
                    "rule": rule_id,
                },
            )  # fmt: skip
            return replace(report, problems=self._carry_out(target, rule_id))

    def resume(self) -> bool:
        """Finish what was begun; False when nothing was. One that is under way is waited for."""
        if not is_forgetting(self._store):
            return False
        with self._archive.alone():
            return self._finish()

    def _finish(self) -> bool:
        job = self._store.settings.get(JOB)
        if job is None:
            return False
        whole = [(source, path) for source, path in job["whole"]]
        self._carry_out(Target(self._store, job["ids"], whole, job["kept"]), job["rule"])
        return True

    # --- what is asked for ---

    def _target(self, request: ForgetRequest) -> Target:
        if request.is_empty:
            raise GiveUp("say what to forget: an id, a session, a project, a path, a time or words to look for")
        projects = with_labels(self._store, Where(projects=(request.project,))).projects if request.project else ()
        ids = self._store.forgetting.matching(
            Selection(
                request.ids or None, request.session_id, request.path, self._chosen(request), projects, request.since,
                request.until,
            )
        )  # fmt: skip
        if request.query:
            hits = self._hits(request.query)
            ids = [key for key in ids if key in hits]
        whole = self._whole_files(request)
        own = {*ids, *self._store.documents.seen_in(sorted(whole))}
        same = self._store.documents.same_text(sorted(own))
        if not (request.machine or request.source or request.keeps_copies):
            return Target(self._store, self._with_records(sorted(own | same)), whole)
        own -= self._seen_elsewhere(own, whole, self._chosen(request))
        kept = {s.message_key for part in self._store.forgetting.parts(sorted(same - own)) for s in part.segments}
        return Target(self._store, self._with_records(sorted(own)), whole, kept)

    def _seen_elsewhere(self, ids: Set[str], whole: Set[File], chosen: Sequence[str] | None) -> set[str]:
        """Those of `ids` that stand in a document of another source too, such as another clone of a repository.

        :param chosen: the sources that are asked for, whichever clone's the parts are; None: those of the parts.
        """
        documents, sources = self._store.documents, {source for source, _ in whole} | set(chosen or ())
        if chosen is None:
            sources |= {part.source for part in self._store.forgetting.parts(sorted(ids))}
        others = {file for file in documents.files_of(sorted(ids)) if file[0] not in sources}
        return documents.seen_in(sorted(others)) & ids

    def _chosen(self, request: ForgetRequest) -> tuple[str, ...] | None:
        """Keys of the sources that are asked for; None: every one."""
        if not (request.machine or request.source):
            return None
        return tuple(
            key
            for key, source in self._sources.items()
            if request.machine in {"", source.machine} and request.source in {"", source.spec}
        )

    def _hits(self, query: str) -> set[str]:
        """Ids of the episodes that hold every word."""
        where = Where(include_superseded=True)
        found = [
            {hit.episode_id for hit in self._store.text.matching([word], MOST_HITS, where, analyzer="exact")}
            for word in query.split()
        ]
        return set.intersection(*found) if found else set()

    def _with_records(self, ids: Sequence[str]) -> set[str]:
        """The ids, with what records were drawn from, and every record that these may have or get."""
        episodes = self._store.episodes.get(ids)
        parts = {
            str(e.metadata["part_id"]) for e in episodes.values() if e.kind == "record" and "part_id" in e.metadata
        }
        every = {*ids, *parts}
        return every | {record_id(key, number) for key in every for number in range(MAX_RECORDS)}

    def _whole_files(self, request: ForgetRequest) -> set[File]:
        if not request.is_of_whole_files:
            return set()
        chosen = self._chosen(request)
        return {
            (source.key, path)
            for source in self._sources.values()
            if chosen is None or source.key in chosen
            for path in self._store.ingest.cursors(source.key)
            if (not request.session_id or names(path, request.session_id))
            and (not request.path or is_below(f"{folder_of(source)}/{path}", request.path))
        }

    # --- what is shown ---

    def _report(self, target: Target, lines: Mapping[File, int], session_id: str, *, dry_run: bool) -> ForgetReport:
        episodes = sorted(
            self._store.episodes.get(sorted(target.ids)).values(), key=lambda e: e.timestamp, reverse=True
        )
        return ForgetReport(
            dry_run=dry_run,
            episodes=len(episodes),
            messages=len({s.message_key for part in target.parts if part.section is None for s in part.segments}),
            sections=sum(part.section is not None for part in target.parts),
            lines=sum(lines.values()),
            files=sum(map(bool, lines.values())),
            shown=[_shown(episode) for episode in episodes[:SHOWN]],
            remains=[
                *self._shared_lines(lines, session_id),
                *self._remains([file for file, count in lines.items() if count]),
            ],
        )

    def _shared_lines(self, lines: Mapping[File, int], session_id: str) -> list[str]:
        """What the logs of a session, a copy or a fork, hold of others that own it."""
        found = []
        for file, going in lines.items():
            kept = sum(line not in {EMPTY_LINE, NO_LINE} for line in self._lines(file)) - going
            if session_id and kept > 0 and names(file[1], session_id):
                found.append(
                    f"{kept:,} archived lines of {file[1]}: what it copied belongs to the session it is a copy of"
                )
        return found

    def _remains(self, files: Sequence[File]) -> list[str]:
        """Places that are not ours to change, or that are not known."""
        logs = []
        for key, path in files:
            cursor = self._store.ingest.cursor(key, path)
            if cursor is not None and not cursor.gone:
                logs.append(_origin(self._sources[key], path))
        kept = [f"an archive whose database was lost: {file}" for file in self._archive.kept_aside()]
        return [
            *logs, *kept, "backups of this home, and of the logs",
            "what was restored, exported or copied from here, and answers that Claude got from it",
        ]  # fmt: skip

    def _lines_to_go(self, target: Target) -> dict[File, int]:
        logs = {file: sum(map(self._rule(target, file).goes, self._lines(file))) for file in target.logs}
        documents = {file: self._document_lines_to_go(target, file) for file in target.documents}
        outputs = {file: sum(line != NO_LINE for line in self._lines(file)) for file in self._outputs(target)}
        return logs | documents | outputs

    def _document_lines_to_go(self, target: Target, file: File) -> int:
        change, going = _document_change(target, file), 0
        for generation in self._generations(file):
            lines = list(archived_lines(self._store, self._archive, *file, generation))
            going += sum(old != new for old, new in zip(lines, change(lines), strict=True))
        return going

    def _lines(self, file: File) -> Iterator[str]:
        """The archived lines of every generation."""
        for generation in self._generations(file):
            yield from archived_lines(self._store, self._archive, *file, generation)

    def _outputs(self, target: Target) -> list[File]:
        """The files with outputs of tools that go: of the results on lines that do, and those of whole sessions."""
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
            for path in self._store.ingest.cursors(source)
            if names and output_name(path) in names
        }
        return sorted(named | {file for file in target.whole if is_tool_output(file[1])})

    # --- doing it ---

    def _carry_out(self, target: Target, rule_id: str) -> list[str]:
        """Every step in order; each may be repeated. Returns what could not be done."""
        self._renew_contexts_of_posted(target)
        outputs = self._outputs(target)
        graves = target.tombstones | {key: [key] for key in (output_key(p) for _, p in outputs)}
        self._store.forgetting.bury(graves)
        bury_sections(self._store, target.parts)
        for episode_id in self._store.episodes.get(sorted(target.ids)):
            self._store.episodes.delete(episode_id, tombstone=not target.kept)  # else it has one, without what is kept
        # most of these ids are of records that never were: nobody need see them
        records = {record_id(key, number): key for key in target.ids for number in range(MAX_RECORDS)}
        self._store.exclusion.explain(
            FORGOTTEN, target.ids, dict.fromkeys(graves if rule_id else (), rule_id) | records
        )
        for file in outputs:  # before the lines that say that they go
            self._rewrite(file, lambda lines: [NO_LINE] * len(lines))
        for file in target.logs:
            self._rewrite(file, self._rule(target, file).changed)
        for file in target.documents:
            self._rewrite(file, _document_change(target, file))
        self._store.documents.remove(sorted(target.ids))
        for source, path in sorted({*target.files} - {*target.documents}):
            self._clear_state(target, source, path)
        self._renew_neighbours(target)  # no part can come any more that carries some of it
        drop_uploads(self._store, target.ids, target.keys_of)
        self._store.forgetting.remove_parts(sorted(target.ids))
        problems = self._store.forgetting.scrub()
        self._store.settings.set(JOB, None)
        return problems

    def _rule(self, target: Target, file: File) -> LineRule:
        is_history = self._sources[file[0]].kind == "claude_history"
        return LineRule(target.keys, target.said, self._store.ingest.known_keys, is_history, file in target.emptied)

    def _generations(self, file: File) -> range:
        cursor = self._store.ingest.cursor(*file)
        return range(cursor.generation + 1) if cursor else range(0)

    def _rewrite(self, file: File, change: Change) -> None:
        """Archive lines that go become empty ones, in a new revision; files of former revisions are removed."""
        source, path = file
        for generation in self._generations(file):
            rewrite_generation(self._store, self._archive, source, path, generation, change)

    def _renew_neighbours(self, target: Target) -> None:
        """Parts that stay lose what they carry of the text, and their summaries, which may say it too. Their episodes
        are written in any case, since a run may have died in between.
        """
        said, neighbours = target.said, target.neighbours
        self._store.forgetting.replace_parts(
            [
                replace(p, lead="" if said.holds(p.lead) else p.lead, prompt="" if said.holds(p.prompt) else p.prompt)
                for p in neighbours
            ],
            resummarize=True,
        )
        for source in sorted({source for source, _ in target.files}):
            self._publish(self._sources[source])
        for part in self._store.forgetting.parts_of_files(target.files):
            if part.part_id not in target.ids:
                self._clear_edited(target, part)

    def _clear_edited(self, target: Target, part: Part) -> None:
        """Publishing leaves alone what a client edited, metadata among it."""
        episode = self._store.episodes.get([part.part_id]).get(part.part_id)
        if episode is None or not target.said.holds(str(episode.metadata.get("prompt", ""))):
            return
        metadata = {name: value for name, value in episode.metadata.items() if name != "prompt"}
        self._store.forgetting.rewrite_episode(
            replace(episode, metadata=metadata), passages_of_part(part, self._pieces)
        )

    def _renew_contexts_of_posted(self, target: Target) -> None:
        """Episodes posted soon after a posted one have its summary as their context."""
        for episode in self._store.episodes.get(sorted(target.ids)).values():
            if episode.source != "direct":
                continue
            where = Where(
                projects=(episode.project,), instance=episode.instance, source="direct", since=episode.timestamp,
                until=episode.timestamp + CONTEXT_WITHIN + timedelta(microseconds=1), include_superseded=True,
            )  # fmt: skip
            for later in self._store.episodes.page(where, 1_000).items:
                if later.episode_id not in target.ids and later.kind != RECORD_KIND:
                    passages = posted_passages(self._store, later, self._pieces, without=target.ids)
                    self._store.forgetting.rewrite_episode(later, passages)

    def _clear_state(self, target: Target, source: str, path: str) -> None:
        """What the parser remembers of a file holds the head of a prompt and the end of what was said last. A line that
        is empty now is no dead letter either.
        """
        letters = self._letters_of_nothing(source, path)
        for _ in range(TRIES):
            cursor = self._store.ingest.cursor(source, path)
            if cursor is None:
                return
            state = _cleared(cursor, target) if cursor.parser_state else ""
            if state == cursor.parser_state and not letters:
                return
            after = replace(cursor, parser_state=state)
            if self._store.ingest.commit_parsed(ParsedChunk(cursor, after, revived=letters)):
                return
        raise StoreBusy(f"{path} is being read all the time; forget once more when the ingest is done")

    def _letters_of_nothing(self, source: str, path: str) -> list[DeadLetter]:
        """The dead letters of a file whose line is empty."""
        letters = [found for found in self._store.ingest.dead_letters(source, EVERY_LETTER) if found.path == path]
        found = []
        for letter in letters:
            lines = archived_lines(self._store, self._archive, source, path, letter.generation, letter.line)
            if next(lines, "") == EMPTY_LINE:
                found.append(letter)
        return found


def _origin(source: Source, path: str) -> str:
    """Where an archived file is from, in words."""
    if source.key == UPLOADS:
        return f"the file that was uploaded, where it was sent from: {path.rpartition('/')[2]}"
    what = "file" if holds_documents(source) else "log"
    return f"the {what} itself, on {source.machine}: {folder_of(source)}/{path}"


def _document_change(target: Target, file: File) -> Change:
    """What becomes of the lines of a version of a document, all of which are in one frame."""
    if file in target.whole:
        return lambda lines: [NO_LINE] * len(lines)
    return lambda lines: without_sections(file[1], lines, target.keys)


def _cleared(cursor: FileCursor, target: Target) -> str:
    if is_agent_description(cursor.path):
        return EMPTY_LINE if (cursor.source, cursor.path) in target.whole else cursor.parser_state
    state = FileState.from_json(cursor.parser_state)
    if state is None:  # of another version: nobody reads it
        return FileState(generation=cursor.generation, line=max(cursor.parsed_lines, 0)).to_json()
    exchange, trail = state.exchange, state.trail
    if exchange is not None and target.said.holds(exchange.prompt):
        exchange = replace(exchange, prompt="")
    if target.said.holds(trail.lead):
        trail = replace(trail, lead="")
    return replace(state, exchange=exchange, trail=trail).to_json()


def _shown(episode: Episode) -> Shown:
    head = " ".join(episode.summary.split())[:100]
    time = episode.timestamp.isoformat()
    return Shown(episode.episode_id, time, episode.machine, episode.project, episode.kind, head)
