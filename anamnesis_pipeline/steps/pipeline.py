"""The whole pipeline in one process, without Dagster: what `anamnesis ingest` does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.errors import HostRefused, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.model import FileCursor, Part, Source
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.sources.base import SourceHost
from anamnesis_pipeline.steps.crawl import CrawlReport, Mask, crawl_source
from anamnesis_pipeline.steps.episodes import EpisodeReport, publish_source
from anamnesis_pipeline.steps.exchanges import ParseReport, parse_source
from anamnesis_pipeline.steps.forget import Forgetter
from anamnesis_pipeline.steps.llm_choice import Llm
from anamnesis_pipeline.steps.summaries import SummaryReport, summarize_source
from anamnesis_pipeline.store.base import Store


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything that the source steps need, opened once."""

    store: Store
    host_of: Callable[[Source], SourceHost]
    """The machine that a source is on."""
    archive: Archive
    mask: Mask
    archive_lines: Callable[[FileCursor, int], Iterator[str]]
    label_of: Callable[[Source], Callable[[str], str]]
    """Of a source: working directory on its machine -> project."""
    pieces: PieceCounter
    idle_minutes: int
    llm: Llm
    headline: Callable[[Part], str]
    """Stands in for the summary of a part that is still open."""

    def forgetter(self) -> Forgetter:
        """What removes text for good."""
        return Forgetter(self.store, self.archive, self.pieces, self.publish)

    def crawl(self, source: Source) -> CrawlReport:
        """New lines into the archive; a reserved source has no files. A machine that is away is a problem of the
        report, and what was read of it before is worked on.
        """
        if source.kind == "reserved":
            return CrawlReport()
        try:
            return crawl_source(self.store, self.host_of(source), self.archive, source, self.mask)
        except (HostUnreachable, HostRefused, SourceUnreadable) as problem:
            return CrawlReport(problems=[str(problem)])

    def parse(self, source: Source) -> ParseReport:
        """Archived lines into parts."""
        return parse_source(
            self.store, self.archive_lines, source, now=datetime.now(UTC), idle_minutes=self.idle_minutes,
            label=self.label_of(source),
        )  # fmt: skip

    def summarize_parts(
        self,
        source: Source,
        *,
        by_hand: bool = False,
        asked_at: datetime | None = None,
        project: str | None = None,
        limit: int | None = None,
    ) -> SummaryReport:
        """Closed parts into summaries; see `summarize_source`."""
        return summarize_source(
            self.store, source, self.llm, by_hand=by_hand, asked_at=asked_at, project=project, limit=limit
        )

    def publish(self, source: Source) -> EpisodeReport:
        """Parts and summaries into episodes."""
        return publish_source(self.store, source, self.pieces, self.headline, self.llm.rules.weights)


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What `ingest_source` did with one source."""

    source: Source
    crawl: CrawlReport
    parse: ParseReport
    summaries: SummaryReport
    episodes: EpisodeReport


def ingest_source(pipeline: Pipeline, source: Source) -> SourceReport:
    """All steps of one source, in order."""
    return SourceReport(
        source,
        pipeline.crawl(source),
        pipeline.parse(source),
        pipeline.summarize_parts(source),
        pipeline.publish(source),
    )


def ingest_all(
    pipeline: Pipeline, sources: Sequence[Source], on_source: Callable[[SourceReport], None] = lambda report: None
) -> list[SourceReport]:
    """Every source, one after the other; `on_source` is told of each as it is done. What was being forgotten when a run
    died is finished first.
    """
    pipeline.forgetter().resume()
    pipeline.store.ingest.put_sources(sources)
    reports = []
    for source in sources:
        report = ingest_source(pipeline, source)
        on_source(report)
        reports.append(report)
    return reports
