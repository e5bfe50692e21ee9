"""Asset: the archive of a source's log lines or document versions."""

import dagster as dg

from anamnesis_pipeline.defs.checks import ARCHIVE_CHECK, archive_is_there
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import ROWS, counted, per_second, watermark
from anamnesis_pipeline.defs.resources import MemoryResource, SshResource


@dg.asset(partitions_def=SOURCES, group_name="ingest", kinds={"jsonl", "zstd"}, check_specs=[ARCHIVE_CHECK])
def crawled_files(context: dg.AssetExecutionContext, memory: MemoryResource, ssh: SshResource) -> dg.MaterializeResult:  # type: ignore[type-arg]  # with a check, Dagster reads no parameter
    """New lines of logs, or new versions of documents, secrets masked, in the compressed archive. Reads only what is
    new.
    """
    if memory.pipeline.forgetter().resume():
        context.log.info("finished to forget what an earlier run had begun with")
    source = memory.source(context.partition_key)
    report = ssh.pipeline(memory).crawl(source)
    for problem in report.problems:
        context.log.warning(problem)
    counts = memory.store.overview.counts(context.partition_key)
    return dg.MaterializeResult(
        data_version=watermark(counts, "files", "bytes", "lines"),
        metadata={
            ROWS: counts.lines,
            "files": report.files,
            "new lines": report.lines,
            "bytes read": report.bytes_read,
            "MB per second": per_second(report.bytes_read / 1e6, report.seconds),
            "what happened to files": counted(
                {name: getattr(report, name) for name in ("new", "grown", "replaced", "gone", "unchanged")}
            ),
            "secrets masked": counted(report.masked),
            "left out": counted(report.left_out),
            "machine": source.machine or "none",
            "problems": len(report.problems),
            "the first problems": "; ".join(report.problems[:5]) or "none",
            "archived lines in all": counts.lines,
            "bytes in all": counts.bytes,
        },
        check_results=[archive_is_there(memory, source.key)],
    )
