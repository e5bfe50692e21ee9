"""Rescan: apply the current masking rules to all stored data. Ids and existing masks stay unchanged.

Each item is written separately, and progress is noted after each file and page of rows. The next run continues an
interrupted one, unless the rules have changed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anamnesis_pipeline.errors import AnamnesisError, StoreBusy, StoreFull
from anamnesis_pipeline.model import EpisodeFilter, Part, Segment
from anamnesis_pipeline.parsing.claude_logs.message_keys import section_key
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archive_catalog import write_catalog
from anamnesis_pipeline.pipeline.crawl import Mask
from anamnesis_pipeline.pipeline.documents import holds_documents
from anamnesis_pipeline.pipeline.tool_outputs import masked_together
from anamnesis_pipeline.services.extract import rewrite_generation
from anamnesis_pipeline.services.forget import JOB
from anamnesis_pipeline.services.posting import with_masks_counted
from anamnesis_pipeline.sources.base import is_tool_output
from anamnesis_pipeline.store.base import Store

BATCH = 100
CHECKPOINT = "rescan.job"
"""Settings key: progress of a run."""
NOT_MASKED = ("config.", JOB, CHECKPOINT)
"""Settings that the system depends on; a mask would break them."""
_PLACES = (
    "archive lines",
    "parts",
    "summaries",
    "episodes",
    "cached replies",
    "cursors",
    "settings",
    "conversations",
)


Say = Callable[[str, bool], None]
"""Receives the progress of a run, and whether a step ends."""


@dataclass(frozen=True, slots=True)
class RescanReport:
    """Secrets by kind, and the number of changed rows by table. Each copy of a secret counts.

    `remains`: what was not scanned. `problems`: what failed.
    """

    dry_run: bool
    masked: dict[str, int]
    changed: dict[str, int]
    remains: list[str]
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rules:
    """Masks: `text` for texts, `line` for raw log lines and other JSON. `version` identifies the rules."""

    text: Mask
    line: Mask
    version: str


class Rescan:
    """One run over a home.

    :param say: receives the progress after each file and page of rows.
    """

    def __init__(
        self,
        store: Store,
        archive: Archive,
        rules: Rules,
        *,
        dry_run: bool,
        say: Say = lambda text, is_end: None,
    ) -> None:
        self._store, self._archive, self._dry_run, self._say = store, archive, dry_run, say
        self._mask_text, self._mask_line, self._version = rules.text, rules.line, rules.version
        self._of_documents = {source.key for source in store.files.sources() if holds_documents(source)}
        self._masked: Counter[str] = Counter()
        self._changed: Counter[str] = Counter()
        self._problems: list[str] = []

    def run(self) -> RescanReport:
        """Rescan everything, the archive first, since later reads are masked by then. Continue an interrupted run.

        :raises StoreFull: no disk space for a rewritten archive file; free some and run again.
        """
        if self._dry_run:
            self._carry_out("", None)
            return self._report([])
        with self._archive.alone():
            noted = self._store.settings.get(CHECKPOINT)
            if noted is None or noted["version"] != self._version:
                self._note("", None)
                self._carry_out("", None)
            else:
                self._masked.update(noted["masked"])
                self._changed.update(noted["changed"])
                self._say("going on where an earlier run was interrupted", False)
                self._carry_out(noted["step"], noted["mark"])
            self._store.queries.clear()  # masked by former rules
            self._store.events.clear()  # names of projects, too
            if noted or self._changed.total():
                for source in self._store.files.sources():
                    if self._archive.catalog_of(source.key).exists():
                        write_catalog(self._store, self._archive, source, after_removal=True)
            problems = self._store.forgetting.scrub() if noted or self._changed.total() else []
            self._store.settings.set(CHECKPOINT, None)
            return self._report(problems)

    def _report(self, problems: list[str]) -> RescanReport:
        changed = {place: self._changed[place] for place in _PLACES}
        problems = [*self._problems, *problems]
        remains = [
            f"{file}, the archive of a database that was lost; delete it if you do not want to keep it"
            for file in self._archive.kept_aside()
        ]
        remains += self._store.forgetting.keeps() if self._changed.total() else []
        return RescanReport(self._dry_run, dict(self._masked), changed, remains, problems)

    # --- how far it is ---

    def _note(self, step: str, mark: Any) -> None:
        counts = {"masked": dict(self._masked), "changed": dict(self._changed)}
        self._store.settings.set(CHECKPOINT, {"version": self._version, "step": step, "mark": mark, **counts})

    def _carry_out(self, first: str, behind: Any) -> None:
        """Run every step from `first` on, that one from behind the mark `behind`."""
        steps: Mapping[str, Callable[[Any], Iterator[Any]]] = {
            "archived files": self._archives,
            "settings": self._settings,
            "projects": self._projects,
            "parts": self._parts,
            "episodes": self._episodes,
            "cached replies": self._replies,
            "cursors": self._cursors,
            "conversations": self._conversations,
        }
        names = list(steps)
        for name in names[names.index(first) if first else 0 :]:
            text = ""
            for done, mark in enumerate(steps[name](behind if name == first else None), 1):
                text = f"{name}: {mark['file']}" if isinstance(mark, dict) else f"{name}: page {done:,}"
                self._say(text, False)
                if not self._dry_run:
                    self._note(name, mark)
            if text:
                self._say(text, True)

    # --- what is masked ---

    def _text(self, text: str) -> str:
        masked, found = self._mask_text(text)
        self._masked += found
        return masked

    def _line(self, line: str) -> str:
        masked, found = self._mask_line(line)
        self._masked += found
        return masked

    def _value(self, value: Any) -> Any:
        """Return a JSON value with its strings masked."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self._text(str(key)): self._value(item) for key, item in value.items()}
        return [self._value(item) for item in value] if isinstance(value, list | tuple) else value

    def _archives(self, behind: Any) -> Iterator[Any]:
        """Mask archived files. A mark holds a file's source and path, and a progress text."""
        files = [
            (source.key, path, cursor.generation)
            for source in self._store.files.sources()
            for path, cursor in self._store.files.cursors(source.key).items()
        ]
        for number, (source, path, last) in enumerate(sorted(files), 1):
            if behind is not None and [source, path] <= behind["behind"]:
                continue
            for generation in range(last + 1):
                try:
                    self._changed["archive lines"] += self._generation(source, path, generation)
                except (StoreFull, StoreBusy):
                    raise
                except Exception as exc:  # damage may raise anything
                    # the text of others may quote a secret
                    told = str(exc) if isinstance(exc, AnamnesisError) else type(exc).__name__
                    self._problems.append(
                        f"{path} of {source} could not be masked: {told}; it is as it was: forget it, or "
                        "repair the archive from a backup and run this again"
                    )
            yield {"behind": [source, path], "file": f"{number:,} of {len(files):,}"}

    def _generation(self, source: str, path: str, generation: int) -> int:
        changed = 0
        for frame in self._store.archive.frames(source, path, generation):
            lines = list(self._archive.lines(source, path, [frame]))
            masked, found = self._masked_lines(source, path, lines)
            changed += sum(old != new for old, new in zip(lines, masked, strict=True))
            self._masked += found
        if self._dry_run:
            return changed
        return rewrite_generation(  # even without changes: a killed run may have left the former file
            self._store,
            self._archive,
            source,
            path,
            generation,
            lambda lines: self._masked_lines(source, path, lines)[0],
        )

    def _masked_lines(self, source: str, path: str, lines: list[str]) -> tuple[list[str], Counter[str]]:
        """Return a frame's lines masked; of documents and outputs together, since a secret may span lines."""
        if is_tool_output(path) or source in self._of_documents:
            return masked_together(self._mask_line, lines)
        masked = [self._mask_line(line) for line in lines]
        return [line for line, _ in masked], sum((found for _, found in masked), Counter[str]())

    def _projects(self, _: Any) -> Iterator[Any]:
        """Mask the original names of aliased projects. The aliases are masked by then; episodes follow them."""
        for own, called, count in self._store.projects.names():
            masked = own if own == called else self._text(own)
            if masked != own:
                self._changed["episodes"] += count
                if not self._dry_run:
                    self._store.projects.rename(own, masked)
        yield None

    def _parts(self, behind: Any) -> Iterator[Any]:
        last = behind or ""
        while batch := self._store.forgetting.parts_after(last, BATCH):
            for part in batch:
                facts = part.section
                masked = replace(
                    part,
                    project=self._text(part.project),
                    cwd=self._text(part.cwd),
                    prompt=self._text(part.prompt),
                    lead=self._text(part.lead),
                    agent_type=self._text(part.agent_type),
                    segments=tuple(self._segment(part, segment) for segment in part.segments),
                    section=facts
                    and replace(
                        facts,
                        title=tuple(map(self._text, facts.title)),
                        tags=tuple(map(self._text, facts.tags)),
                        instance=self._text(facts.instance),
                    ),
                )
                if masked != part:
                    self._changed["parts"] += 1
                    if not self._dry_run:
                        self._store.forgetting.replace_parts([masked])
                self._summary(masked)
            last = batch[-1].part_id
            yield last

    def _segment(self, part: Part, segment: Segment) -> Segment:
        """Return a masked segment. Its key is made of the masked text for documents; messages keep their ids."""
        text = self._text(segment.text)
        is_other = part.section is not None and text != segment.text and not segment.uuid
        key = section_key(text) if is_other else segment.message_key
        return replace(segment, text=text, message_key=key, sender=self._text(segment.sender))

    def _summary(self, part: Part) -> None:
        summary = self._store.summaries.summary(part.part_id)
        if summary is None:
            return
        masked = replace(
            summary,
            text=self._text(summary.text),
            tags=tuple(map(self._text, summary.tags)),
            records=tuple(replace(r, text=self._text(r.text), why=self._text(r.why)) for r in summary.records),
        )
        if masked != summary:
            self._changed["summaries"] += 1
            if not self._dry_run:
                self._store.forgetting.rewrite_summary(summary, masked)  # False: a newer one, already masked

    def _episodes(self, behind: Any) -> Iterator[Any]:
        cursor = behind
        while True:
            page = self._store.episodes.page(EpisodeFilter(include_superseded=True), BATCH, cursor)
            for episode in page.items:
                held = [stored.passage for stored in self._store.episodes.passages_of(episode.episode_id)]
                masked = replace(
                    episode,
                    instance=self._text(episode.instance),
                    project=self._text(episode.project),
                    kind=self._text(episode.kind),
                    summary=self._text(episode.summary),
                    raw_exchange=self._text(episode.raw_exchange),
                    tags=tuple(map(self._text, episode.tags)),
                    metadata=self._value(dict(episode.metadata)),
                )
                passages = [replace(p, text=self._text(p.text), context=self._text(p.context)) for p in held]
                if masked != episode or passages != held:
                    self._changed["episodes"] += 1
                    if not self._dry_run:
                        self._store.forgetting.rewrite_episode(with_masks_counted(masked), passages)
            if page.next_cursor is None:
                return
            cursor = page.next_cursor
            yield cursor

    def _replies(self, behind: Any) -> Iterator[Any]:
        last = behind or ""
        while batch := self._store.llm.replies_after(last, BATCH):
            last = batch[-1].key
            for reply in batch:
                masked = self._line(reply.reply)
                if masked != reply.reply:
                    self._changed["cached replies"] += 1
                    if not self._dry_run:
                        self._store.llm.rewrite_reply(reply.key, reply.reply, masked)
            yield last

    def _cursors(self, _: Any) -> Iterator[Any]:
        """Mask the parser state of files. A cursor that advances meanwhile was written from masked lines."""
        for source in self._store.files.sources():
            for cursor in self._store.files.cursors(source.key).values():
                masked = self._line(cursor.parser_state) if cursor.parser_state else ""
                if masked != cursor.parser_state:
                    self._changed["cursors"] += 1
                    if not self._dry_run:
                        after = replace(cursor, parser_state=masked, version=cursor.version + 1)
                        self._store.files.commit_crawl(cursor, after, None)
            yield None

    def _conversations(self, behind: Any) -> Iterator[Any]:
        cursor = behind
        while True:
            page = self._store.chat.sessions(BATCH, cursor)
            for session in page.items:
                names = tuple(replace(each, title=self._text(each.title)) for each in session.name_history)
                masked = replace(
                    session, title=self._text(session.title), project=self._text(session.project), name_history=names
                )
                held = self._store.chat.messages(session.session_id)
                messages = [
                    replace(
                        each,
                        text=self._text(each.text),
                        problem=self._text(each.problem),
                        files=tuple(map(self._text, each.files)),
                    )
                    for each in held
                ]
                if not self._dry_run:
                    if masked != session:
                        self._store.chat.rewrite(masked)
                    for old, new in zip(held, messages, strict=True):
                        if new != old:
                            self._store.chat.add(new)
                self._changed["conversations"] += masked != session or messages != held
            if page.next_cursor is None:
                return
            cursor = page.next_cursor
            yield cursor

    def _settings(self, _: Any) -> Iterator[Any]:
        """Mask settings and their names, some of which hold a folder."""
        for name, value in self._store.settings.all().items():
            if name.startswith(NOT_MASKED):
                continue
            masked = {self._text(name): self._value(value)}
            if masked != {name: value}:
                self._changed["settings"] += 1
                if not self._dry_run:
                    for new_name, new in masked.items():
                        self._store.settings.set(new_name, new)
                    if name not in masked:
                        self._store.settings.set(name, None)
        yield None
