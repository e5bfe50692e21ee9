"""Today's rules applied to everything that is stored. Ids stay; what is masked already stays as it is.

Each piece is written by itself and masking is idempotent, so a run that dies is repeated without harm.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anamnesis_pipeline.model import Episode, Part, Passage, Summary, Where
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.steps.crawl import Mask
from anamnesis_pipeline.steps.forget import JOB, rewrite_generation
from anamnesis_pipeline.store.base import Store

BATCH = 100
NOT_MASKED = ("config.", "projects.", JOB)
"""Settings by which the system works: a mask in them would break it."""
_PLACES = ("archive lines", "parts", "summaries", "episodes", "cached replies", "cursors", "settings")


@dataclass(frozen=True, slots=True)
class RescanReport:
    """Secrets by kind, and how many of each sort of row hold some. Of one secret each copy counts."""

    dry_run: bool
    masked: dict[str, int]
    changed: dict[str, int]
    problems: list[str] = field(default_factory=list)


class Rescan:
    """One run over a home.

    :param mask_text: for texts; `mask_line` for raw log lines and other JSON.
    """

    def __init__(self, store: Store, archive: Archive, mask_text: Mask, mask_line: Mask, *, dry_run: bool) -> None:
        self._store, self._archive, self._dry_run = store, archive, dry_run
        self._mask_text, self._mask_line = mask_text, mask_line
        self._masked: Counter[str] = Counter()
        self._changed: Counter[str] = Counter()

    def run(self) -> RescanReport:
        """Everything, the archive first: what is read from it later is masked then.

        :raises StoreFull: no room for a rewritten archive file; run it again with more.
        """
        steps: Sequence[Callable[[], None]] = (
            self._archives, self._parts, self._episodes, self._replies, self._cursors, self._settings,
        )  # fmt: skip
        for step in steps:
            step()
        is_clean = self._dry_run or not self._changed
        problems = [] if is_clean else self._store.forgetting.scrub()
        return RescanReport(
            self._dry_run, dict(self._masked), {place: self._changed[place] for place in _PLACES}, problems
        )

    def _text(self, text: str) -> str:
        masked, found = self._mask_text(text)
        self._masked += found
        return masked

    def _line(self, line: str) -> str:
        masked, found = self._mask_line(line)
        self._masked += found
        return masked

    def _value(self, value: Any) -> Any:
        """A JSON value with its strings masked."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self._text(str(key)): self._value(item) for key, item in value.items()}
        return [self._value(item) for item in value] if isinstance(value, list | tuple) else value

    def _archives(self) -> None:
        for source in self._store.ingest.sources():
            for path, cursor in self._store.ingest.cursors(source.key).items():
                for generation in range(cursor.generation + 1):
                    self._changed["archive lines"] += self._generation(source.key, path, generation)

    def _generation(self, source: str, path: str, generation: int) -> int:
        counted = self._count_lines(source, path, generation)
        if self._dry_run or not counted:
            return counted
        with self._archive.writing(source):
            return rewrite_generation(
                self._store,
                self._archive,
                source,
                path,
                generation,
                lambda lines: [self._mask_line(x)[0] for x in lines],
            )

    def _count_lines(self, source: str, path: str, generation: int) -> int:
        frames = self._store.ingest.frames(source, path, generation)
        return sum(self._line(line) != line for line in self._archive.lines(source, path, frames))

    def _parts(self) -> None:
        for part in self._all_parts():
            masked = self._masked_part(part)
            if masked != part:
                self._changed["parts"] += 1
                if not self._dry_run:
                    self._store.forgetting.replace_parts([masked])
            self._summary(masked)

    def _all_parts(self) -> Iterator[Part]:
        last = ""
        while batch := self._store.forgetting.parts_after(last, BATCH):
            yield from batch
            last = batch[-1].part_id

    def _masked_part(self, part: Part) -> Part:
        return replace(
            part, prompt=self._text(part.prompt), lead=self._text(part.lead), agent_type=self._text(part.agent_type),
            segments=tuple(replace(segment, text=self._text(segment.text)) for segment in part.segments),
        )  # fmt: skip

    def _summary(self, part: Part) -> None:
        summary = self._store.ingest.summary(part.part_id)
        if summary is None:
            return
        masked = self._masked_summary(summary)
        if masked != summary:
            self._changed["summaries"] += 1
            if not self._dry_run:
                self._store.ingest.put_summaries([masked])

    def _masked_summary(self, summary: Summary) -> Summary:
        return replace(
            summary, text=self._text(summary.text), tags=tuple(map(self._text, summary.tags)),
            records=tuple(replace(r, text=self._text(r.text), why=self._text(r.why)) for r in summary.records),
        )  # fmt: skip

    def _episodes(self) -> None:
        cursor = None
        while True:
            page = self._store.episodes.page(Where(include_superseded=True), BATCH, cursor)
            for episode in page.items:
                self._episode(episode)
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    def _episode(self, episode: Episode) -> None:
        held = [stored.passage for stored in self._store.episodes.passages_of(episode.episode_id)]
        masked = replace(
            episode, summary=self._text(episode.summary), raw_exchange=self._text(episode.raw_exchange),
            tags=tuple(map(self._text, episode.tags)), metadata=self._value(dict(episode.metadata)),
        )  # fmt: skip
        passages = [self._passage(passage) for passage in held]
        if masked != episode or passages != held:
            self._changed["episodes"] += 1
            if not self._dry_run:
                self._store.forgetting.rewrite_episode(masked, passages)

    def _passage(self, passage: Passage) -> Passage:
        return replace(passage, text=self._text(passage.text), context=self._text(passage.context))

    def _replies(self) -> None:
        last = ""
        while batch := self._store.forgetting.replies_after(last, BATCH):
            last = batch[-1].key
            for reply in batch:
                masked = self._line(reply.reply)
                if masked != reply.reply:
                    self._changed["cached replies"] += 1
                    if not self._dry_run:
                        self._store.llm.forget_replies([reply.key])
                        self._store.llm.put_reply(reply.key, masked, reply.backend, reply.model)

    def _cursors(self) -> None:
        """What the parser remembers of a file. A cursor that moves on meanwhile was written from masked lines."""
        for source in self._store.ingest.sources():
            for cursor in self._store.ingest.cursors(source.key).values():
                masked = self._line(cursor.parser_state) if cursor.parser_state else ""
                if masked != cursor.parser_state:
                    self._changed["cursors"] += 1
                    if not self._dry_run:
                        after = replace(cursor, parser_state=masked, version=cursor.version + 1)
                        self._store.ingest.commit_crawl(cursor, after, None)

    def _settings(self) -> None:
        for name, value in self._store.settings.all().items():
            masked = value if name.startswith(NOT_MASKED) else self._value(value)
            if masked != value:
                self._changed["settings"] += 1
                if not self._dry_run:
                    self._store.settings.set(name, masked)
