"""What is still on its way into the memory, so that an early answer is not taken for the last word."""

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.store.base import Store


def backlog_notes(store: Store, mode: Mode) -> list[str]:
    """One line each, in the words of `SearchAnswer.degraded`, on what is not read and not embedded yet."""
    if not store.episodes.count(Where()):
        return ["reading: nothing is stored yet"]
    notes = []
    if unread := len(store.ingest.unread_sources()):
        known = sum(source.kind != "reserved" for source in store.ingest.sources())
        notes.append(f"reading: not finished in {unread:,} of {known:,} sources")
    space = store.spaces.active()
    if mode is not Mode.EXACT and space is not None:
        progress = store.vectors.progress(space.key)
        if missing := progress.passages - progress.passages_done:
            notes.append(f"embedding: {missing:,} of {progress.passages:,} passages have no vectors yet")
    return notes
