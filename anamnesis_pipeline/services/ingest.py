"""The whole pipeline in one process, without Dagster: what `anamnesis ingest` does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.entities.linking import Linked, link
from anamnesis_pipeline.errors import HostRefused, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.knowledge.dream import Observed, observe
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.model import RESERVED_SOURCES, Source
from anamnesis_pipeline.parsing.claude_logs.message_keys import place_of
from anamnesis_pipeline.parsing.claude_logs.observers import ObserverRules
from anamnesis_pipeline.parsing.claude_logs.value import WEIGHTS
from anamnesis_pipeline.parsing.text.transcripts import transcript
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archive_catalog import write_catalog
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.crawl import CrawlReport, Mask, crawl_source, folder_of
from anamnesis_pipeline.pipeline.crawl_documents import DocumentRules, DocumentSelection, crawl_documents
from anamnesis_pipeline.pipeline.document_archive import add_version
from anamnesis_pipeline.pipeline.document_versions import Version
from anamnesis_pipeline.pipeline.documents import DocumentReport, holds_documents, parse_documents, settle_source
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.pipeline.host_clock import note_read, write_problems
from anamnesis_pipeline.pipeline.llm_choice import Llm
from anamnesis_pipeline.pipeline.parse import ParseReport, open_context, parse_source
from anamnesis_pipeline.pipeline.parse_again import is_asked_again, parse_again
from anamnesis_pipeline.pipeline.projects import Labels, merge_spellings, right_guesses
from anamnesis_pipeline.pipeline.publish import EpisodeReport, publish_source
from anamnesis_pipeline.pipeline.session_summaries import SessionReport, summarize_sessions
from anamnesis_pipeline.pipeline.sessions import renew_odd_times
from anamnesis_pipeline.pipeline.summarize import SummaryReport, summarize_source
from anamnesis_pipeline.pipeline.survey import Hosts
from anamnesis_pipeline.pipeline.tag_patterns import stored_patterns
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services.forget import Forgetter
from anamnesis_pipeline.services.topic_traces import TopicTraces
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.store.base import Store

_PAGE = 200
"""Chunks compared with the exclusion rules at once."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Dependencies of the source steps, opened once."""

    store: Store
    hosts: Hosts
    archive: Archive
    mask: Mask
    archive_lines: ArchivedLines
    labels: Labels
    pieces: PieceCounter
    idle_minutes: int
    llm: Llm
    selection: DocumentSelection
    sure_labels: Labels | None = None
    """As `labels`, but raises if the machine is unreachable; None: no machine ever is."""
    observers: ObserverRules | None = None
    """Rules for sessions of other memory tools; None: this package's."""

    def forgetter(self, private: Private = NOTHING_PRIVATE, topics: TopicTraces | None = None) -> Forgetter:
        """Return the forgetter, which removes text for good.

        :param private: as of `Forgetter`, as is `topics`.
        """
        return Forgetter(self.store, self.archive, self.pieces, self.publish, self.hosts.specs, private, topics)

    def crawl(self, source: Source) -> CrawlReport:
        """Crawl new lines or document versions into the archive; a reserved source has no files. An unreachable machine
        is a problem of the report, and does not stop later steps. The status shows the problems.
        """
        if source.kind == "reserved":
            return CrawlReport()
        started = datetime.now(UTC)
        report = self._crawled(source)
        if report.lines or (report.files and not self.archive.catalog_of(source.key).exists()):
            write_catalog(self.store, self.archive, source)
        write_problems(self.store.settings, source.key, report.problems)
        if not report.problems:
            note_read(self.store.settings, source.key, started)
        return report

    def _crawled(self, source: Source) -> CrawlReport:
        try:
            if source.kind == DOCUMENTS:
                return self._crawl_documents(source)
            return crawl_source(self.store, self.hosts.of_source(source), self.archive, source, self.mask)
        except (HostUnreachable, HostRefused, SourceUnreadable) as problem:
            return CrawlReport(problems=[str(problem)])

    def parse(self, source: Source) -> ParseReport:
        """Parse archived log lines into chunks. First assign projects to chunks parsed while the machine was
        unreachable. Parse again what was parsed before if `ask_again` asked for that.
        """
        if holds_documents(source):
            return ParseReport()
        merge_spellings(self.store)
        renew_odd_times(self.store)
        if self.sure_labels is not None:
            right_guesses(self.store, source.machine, self.sure_labels.of(source))
        label = self.labels.of(source)
        report = parse_source(
            self.store,
            self.archive_lines,
            source,
            now=datetime.now(UTC),
            idle_minutes=self.idle_minutes,
            label=label,
            observers=self.observers,
        )
        if not is_asked_again(self.store, source.key):
            return report
        context = open_context(self.store, self.archive_lines, source, self.idle_minutes, label, self.observers)
        again = parse_again(context)
        self.store.parts.link_agents(source.key)
        return replace(report, again=again)

    def parse_documents(self, source: Source) -> DocumentReport:
        """Parse archived document versions into sections; log sources have none."""
        if not holds_documents(source):
            return DocumentReport()
        return parse_documents(self.store, self.archive_lines, source, stored_patterns(self.store.settings))

    def add_document(
        self,
        source_key: str,
        path: str,
        data: bytes,
        *,
        project: str = "",
        instance: str = "",
        tags: Sequence[str] = (),
        title: str = "",
        when: datetime | None = None,
    ) -> list[str]:
        """Store one document as the file `path` of a reserved source; keyword search finds it at once. An existing
        document at that path becomes its former version.

        :param instance: owner of the memory; empty: this machine's.
        :param title: replaces the file name.
        :param when: time of the document; None: now.
        :returns: the ids of its episodes, in document order.
        :raises DocumentUnreadable: the bytes are not of the format that the name says.
        """
        source = next(source for source in self.store.files.sources() if source.key == source_key)
        mtime_ns = round((when or datetime.now(UTC)).timestamp() * 1e9)
        version = Version(0, mtime_ns, 0, project, place_of(source_key, path), "", title, tuple(tags), instance)
        add_version(self.store, self.archive, source, path, data, self.mask, version)
        write_catalog(self.store, self.archive, source)
        self.parse_documents(source)
        self.publish(source)
        return [s.part_id for s in self.store.documents.sightings_of(source_key, path) if s.present]

    def _crawl_documents(self, source: Source) -> CrawlReport:
        rules = self._rules_of(source)
        if rules is None:
            return CrawlReport()
        return crawl_documents(
            self.store, self.hosts.of_source(source), self.archive, source, rules, self.mask, self.labels.of(source)
        )

    def _rules_of(self, source: Source) -> DocumentRules | None:
        """Return the rules of a document source; None: it is no longer configured."""
        spec = self.hosts.spec_of(source)
        return None if spec is None else self.selection.document_rules(spec)

    def summarize_parts(
        self,
        source: Source,
        *,
        again: bool = False,
        by_hand: bool = False,
        asked_at: datetime | None = None,
        project: str | None = None,
        limit: int | None = None,
    ) -> SummaryReport:
        """Summarize closed chunks that no rule excludes; see `summarize_source`.

        :param again: also chunks whose summary an LLM would replace now; the present summaries stay until then.
        """
        hold_excluded(self.store, source)
        if again:
            self.store.summaries.want_summaries("", source=source.key, project=project)
        return summarize_source(
            self.store, source, self.llm, by_hand=by_hand, asked_at=asked_at, project=project, limit=limit
        )

    def publish(self, source: Source) -> EpisodeReport:
        """Write chunks and summaries that no rule excludes as episodes, then reconcile superseded episodes."""
        hold_excluded(self.store, source)
        self._value_again(source)
        rules = self._rules_of(source) if source.kind == DOCUMENTS else None
        report = publish_source(
            self.store,
            source,
            self.pieces,
            extractive.summarize,
            self.llm.rules.weights,
            instance=rules.spec.instance if rules else "",
        )
        return replace(report, settled=settle_source(self.store, source))

    def _value_again(self, source: Source) -> None:
        """Let the source's episodes be written again if the points of the value's rules changed since they were."""
        name, weights = VALUED_BY + source.key, dict(self.llm.rules.weights)
        if self.store.settings.get(name, dict(WEIGHTS)) != weights:
            self.store.parts.renew_source(source.key)
            self.store.settings.set(name, weights)

    def summarize_sessions(self, source: Source) -> SessionReport:
        """Write the records of changed log sessions; see `summarize_sessions`."""
        if source.kind == "reserved" or holds_documents(source):
            return SessionReport()
        return summarize_sessions(self.store, source, self.llm, self.pieces)


VALUED_BY = "value.weights."
"""Stored setting per source: the points by which its episodes have their value; none: the defaults."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Result of `ingest_source` for one source."""

    source: Source
    crawl: CrawlReport
    parse: ParseReport
    documents: DocumentReport
    summaries: SummaryReport
    episodes: EpisodeReport
    sessions: SessionReport
    linked: Linked
    observed: Observed


def ingest_source(pipeline: Pipeline, source: Source) -> SourceReport:
    """Run all steps of one source, in order."""
    read = [source.key, *RESERVED_SOURCES]
    return SourceReport(
        source,
        pipeline.crawl(source),
        pipeline.parse(source),
        pipeline.parse_documents(source),
        pipeline.summarize_parts(source),
        pipeline.publish(source),
        pipeline.summarize_sessions(source),
        link(pipeline.store, read),
        observe(pipeline.store, read),
    )


def ingest_all(
    pipeline: Pipeline, sources: Sequence[Source], on_source: Callable[[SourceReport], None] = lambda report: None
) -> list[SourceReport]:
    """Ingest all sources in turn; call `on_source` after each. First finish forgetting that an earlier run began."""
    pipeline.forgetter().resume()
    pipeline.store.files.put_sources(sources)
    reports = []
    for source in sources:
        report = ingest_source(pipeline, source)
        on_source(report)
        reports.append(report)
    return reports


def hold_excluded(store: Store, source: Source) -> int:
    """Quarantine the unpublished chunks of a source that a rule matches: they are neither summarized nor found while
    the rule exists. Return their number. Published ones stay.
    """
    exclusions = Exclusions(store)
    held, after = 0, ""
    while exclusions.stamp and (parts := store.exclusion.waiting(source.key, after, _PAGE)):
        after = parts[-1].part_id
        rules = {
            part.part_id: exclusions.of_project(part.project)
            or exclusions.of_session(part.session_id)
            or exclusions.of_path(source.machine, f"{folder_of(source)}/{part.path}")
            or exclusions.of_content(transcript(part.segments))
            or exclusions.of_content("\n\n".join(segment.text for segment in part.segments))
            for part in parts
        }
        held += store.exclusion.hold({part_id: rule.rule_id for part_id, rule in rules.items() if rule})
    return held
