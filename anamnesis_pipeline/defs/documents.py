"""Asset: archived versions of documents as titled sections."""

import dagster as dg

from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import ROWS, counted, per_second, watermark
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.pipeline.documents import holds_documents


@dg.asset(partitions_def=SOURCES, deps=["crawled_files"], group_name="ingest", kinds={"python"})
def documents(context: dg.AssetExecutionContext, memory: MemoryResource) -> dg.MaterializeResult[None]:
    """Sections of documents, each text once even if the file has copies. Log sources have none."""
    source = memory.source(context.partition_key)
    report = memory.pipeline.parse_documents(source)
    for problem in report.problems:
        context.log.warning(problem)
    counts = memory.store.overview.counts(source.key)
    if not holds_documents(source):
        return dg.MaterializeResult(
            data_version=dg.DataVersion("none"), metadata={ROWS: 0, "state": "a source of logs has no documents"}
        )
    return dg.MaterializeResult(
        data_version=watermark(counts, "files", "files_gone", "parts", "unparsed_lines"),
        metadata={
            ROWS: counts.parts,
            "versions parsed": report.versions,
            "sections in them": report.sections,
            "sections written": report.written,
            "files gone": report.gone,
            "formats": counted(report.formats),
            "files per second": per_second(report.versions, report.seconds),
            "left to another run": report.overtaken,
            "problems": len(report.problems),
            "sections in all": counts.parts,
        },
    )
