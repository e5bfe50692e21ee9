"""What the asset `summaries` does: one summary per closed part that has none."""

from collections.abc import Callable
from dataclasses import dataclass

from anamnesis_pipeline.model import Part, Source, Summary
from anamnesis_pipeline.store.base import Store

BATCH = 200


@dataclass(frozen=True, slots=True)
class SummaryReport:
    """What one run wrote."""

    written: int
    model: str


def summarize_source(store: Store, source: Source, model: str, summarize: Callable[[Part], str]) -> SummaryReport:
    """Summarize the closed parts of a source whose present content has no summary.

    :param model: recorded with each summary.
    """
    written = 0
    while parts := store.ingest.parts_to_summarize(source.key, model, BATCH):
        summaries = [Summary(part.part_id, part.content_hash, summarize(part), model) for part in parts]
        changed = store.ingest.put_summaries(summaries)
        written += changed
        if not changed:
            break  # another run wrote the same ones
    return SummaryReport(written, model)
