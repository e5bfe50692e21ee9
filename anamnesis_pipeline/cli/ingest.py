"""`anamnesis ingest` and `dead-letters`: reading everything once, and retrying lines that could not be read."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.cli.local_services import store_to_write
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.model import DeadLetter, Space
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.dead_letters import RetryReport, retry_dead_letters
from anamnesis_pipeline.pipeline.embed import EmbedReport, embed_sources
from anamnesis_pipeline.pipeline.index import index_space
from anamnesis_pipeline.pipeline.reembed_state import is_paused
from anamnesis_pipeline.pipeline.sessions import sources_to_summarize
from anamnesis_pipeline.pipeline.survey import Crawler, look
from anamnesis_pipeline.runtime.crawler_wiring import open_crawler
from anamnesis_pipeline.runtime.log_roots import examples_advice
from anamnesis_pipeline.runtime.progress import done_text, take_snapshot
from anamnesis_pipeline.runtime.up_lock import log_roots_in_use
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.ingest import SourceReport, ingest_all
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.store.base import Store

Say = Callable[[str], None]
LOOK_S = 120.0
"""All machines are waited for so long: no tick comes after this look that could have what they say late."""


def run_ingest(settings: Settings, say: Say) -> None:
    """Read, cut, summarize, publish and embed everything that is new in all sources; `say` gets progress lines.

    Safe beside a running `anamnesis up`: every commit is a compare-and-set.

    :raises UnknownModel: the logs were read, but the embedding model is not to be had.
    :raises GiveUp: the sidecar that runs searches another store.
    """
    with store_to_write(settings) as store:
        settings = wiring.effective_settings(store)
        settings = settings.model_copy(update={"log_roots": log_roots_in_use(settings)})
        crawler = open_crawler(settings, store, lasting=False)
        _read(settings, store, crawler, say)
        known = {spec.name for spec in crawler.specs}
        crawler = open_crawler(settings, store, lasting=False)
        if new := [spec for spec in crawler.specs if spec.name not in known]:  # that only the logs told of
            _read(settings, store, replace(crawler, hosts=replace(crawler.hosts, specs=new)), say)
        wanted = wiring.wanted_space(settings, store)
        active = store.spaces.active() or wanted
        for space in dict.fromkeys((active, wanted)):  # what is searched first
            background = space.key != active.key
            _embed_space(settings, store, space, say, background=background)
            index_space(store, space.key, switch=settings.switch == "auto", wanted_model=settings.model)
        snapshot = take_snapshot(store)
        nothing = f"There is nothing to remember yet; logs are looked for in {', '.join(map(str, settings.log_roots))}"
        say(done_text(snapshot) if snapshot.counts.files or snapshot.counts.episodes else nothing)
        if advice := examples_advice(settings.log_roots, settings.home):
            say(advice)


def _read(settings: Settings, store: Store, crawler: Crawler, say: Say) -> None:
    """Scan the sources of `crawler`, and ingest what is new."""
    found = look(crawler, now(), everything=True, budget_s=LOOK_S)
    for problem in found.problems:
        say(problem)
    pipeline = wiring.open_pipeline(settings, store)
    unfinished = store.parts.unfinished_sources(now() - timedelta(minutes=settings.idle_minutes))
    wanted = {*found.changed, *unfinished, *sources_to_summarize(store, now())}
    here = {source.key for source in found.sources if source.machine == settings.machine}
    sources = [source for source in store.files.sources() if source.key in wanted | here]
    ingest_all(pipeline, sources, lambda report: say(source_text(report)))


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def source_text(report: SourceReport) -> str:
    """Render one line per source. Pure."""
    masked, source = sum(report.crawl.masked.values()), report.source
    name = f"{source.machine} {source.folder}" if source.spec else source.folder
    if source.kind == DOCUMENTS or source.folder in {"", "."}:
        name = source.spec or source.key
    pieces = [
        f"{name}: {counted(report.crawl.files, 'file')}, {counted(report.crawl.lines, 'new line')}",
        f"{counted(report.episodes.put.created + report.episodes.put.updated, 'episode')} written",
    ]
    pieces += [f"{counted(masked, 'secret')} masked"] if masked else []
    pieces += [counted(report.parse.malformed, "malformed line")] if report.parse.malformed else []
    problems = [*report.crawl.problems, *([report.episodes.problem] if report.episodes.problem else [])]
    return "\n".join([", ".join(pieces), *(f"  {problem}" for problem in problems)])


def embedding_text(report: EmbedReport, total: int) -> str:
    """Render the embedding progress of `total` passages; later passages count too. Pure."""
    whole = counted(max(total, report.passages), "passage")
    return f"  {report.passages:,} of {whole}, {report.passages_per_s:,.0f}/s"


def _embed_space(settings: Settings, store: Store, space: Space, say: Say, *, background: bool) -> None:
    waiting = store.vectors.pending_sources(space.key)
    if not waiting or (background and is_paused(store)):
        return
    total = sum(waiting.values())
    say(f"Embedding {counted(total, 'passage')} with {space.model_id}")
    priority = Priority.BACKGROUND if background else Priority.LIVE

    def tell(report: EmbedReport) -> None:
        say(embedding_text(report, total))

    with closing(wiring.open_pool_of(store, space, priority=priority)) as pool:
        pool.load()
        embed_sources(
            store,
            space.key,
            sorted(waiting),
            pool,
            settings.checkpoint_every,
            on_checkpoint=tell,
            should_pause=lambda: background and is_paused(store),
        )


SHOWN = 200


def dead_letters(settings: Settings) -> tuple[list[DeadLetter], int, Private]:
    """Return the first dead letters, their total, and what is private."""
    if not settings.has_store:
        return [], 0, NOTHING_PRIVATE
    with closing(wiring.open_to_read(settings)) as store:
        found, total = store.messages.dead_letters(limit=SHOWN), store.overview.counts().dead_letters
        return found, total, wiring.what_is_private(store)


def retry_letters(settings: Settings, say: Callable[[str], None]) -> None:
    """Parse dead letters again with this version, and publish the results."""
    if not settings.has_store:
        say(render_retried(RetryReport()))
        return
    with store_to_write(settings) as store:
        settings = wiring.effective_settings(store)
        pipeline = wiring.open_pipeline(settings, store)
        report = retry_dead_letters(
            store, pipeline.archive_lines, labels=pipeline.labels, idle_minutes=settings.idle_minutes
        )
        for source in store.files.sources():
            if source.key in report.sources:
                pipeline.publish(source)
    say(render_retried(report))


def render_letters(found: Sequence[DeadLetter], total: int, private: Private = NOTHING_PRIVATE) -> str:
    """Render one line per letter, without its text, which may hold anything. Pure."""
    if not found:
        return "Every line of every log could be read."
    lines = [
        f"{private.file_shown(each.source, f'{each.source}/{each.path}')}, line {each.line + 1}: {each.reason}"
        for each in found
    ]
    more = [f"... and {total - len(found):,} more"] if total > len(found) else []
    return "\n".join([*lines, *more, "", "After an upgrade, try them again: anamnesis dead-letters retry"])


def render_retried(report: RetryReport) -> str:
    """Render the result of a retry. Pure."""
    return (
        f"{counted(report.letters, 'line')} read again: {counted(report.revived, 'is', 'are')} whole now, "
        f"{counted(report.messages, 'message is', 'messages are')} new, "
        f"{report.letters - report.revived:,} still cannot be read in full"
    )
