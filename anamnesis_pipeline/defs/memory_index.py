"""Asset: the index of every project's memory."""

from collections.abc import Iterator

import dagster as dg

from anamnesis_pipeline.defs.reporting import ROWS, table
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.knowledge.memory_index import MAX_LINES
from anamnesis_pipeline.model import content_id
from anamnesis_pipeline.search.project_labels import ALL, PRIVATE
from anamnesis_pipeline.services.topics import held_of, indexed, open_topics, write_indexes
from anamnesis_pipeline.services.wiring import what_is_private

INDEX_CHECK = dg.AssetCheckSpec(
    "index_has_200_lines_at_most",
    asset="memory_index",
    blocking=True,
    description="No index has more lines than Claude Code reads.",
)


@dg.asset(deps=["episodes"], group_name="knowledge", kinds={"python"}, check_specs=[INDEX_CHECK])
def memory_index(memory: MemoryResource) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """One `MEMORY.md` per project: which topics there are, what each is for and where to read it, lessons, pinned
    preferences, pointers. No content. In the home; `anamnesis topics --write-index` writes it for Claude Code.
    """
    settings = memory.settings
    private = what_is_private(memory.store)
    held = held_of(memory.store, private, "")
    found = indexed(memory.store, private, "", [ALL])
    paths = write_indexes(memory.store, open_topics(settings), settings.machine, found, into_memory=False)
    texts = {project: path.read_text(encoding="utf-8") for project, path in paths.items()}
    lines = {project: len(text.splitlines()) for project, text in texts.items()}
    yield dg.MaterializeResult(
        data_version=dg.DataVersion(content_id(*(piece for each in sorted(texts.items()) for piece in each))),
        metadata={
            ROWS: len(texts),
            "topics": len(held.topics),
            "files with lessons": len(held.lessons),
            "pinned preferences": len(held.pinned),
            "pointers": len(held.pointers),
            "indexes": table(
                [
                    {"project": name, "lines": lines[name], "file": str(paths[name])}
                    for name in sorted(lines)
                    if not private.is_of(name)
                ]
            ),
        },
    )
    long = sorted(PRIVATE if private.is_of(name) else name for name, number in lines.items() if number > MAX_LINES)
    yield dg.AssetCheckResult(
        check_name=INDEX_CHECK.name,
        passed=not long,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={"longest": max(lines.values(), default=0), "too long": ", ".join(long) or "none"},
    )
