"""Notes on pending files and passages, so that an early answer is not taken for a complete one."""

from anamnesis_pipeline.model import Space, Where
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.store.base import Store

EMBEDDING = "embedding: "
"""Prefix of a note on passages without vectors."""


def embedding_notes(store: Store, space: Space) -> list[str]:
    """Note the passages that only full-text search finds yet, for `SearchAnswer.degraded`; cheap while few wait."""
    waiting = sum(store.vectors.pending_sources(space.key).values())
    return [f"{EMBEDDING}no vectors yet of {counted(waiting, 'passage')}, found by words alone"] if waiting else []


def backlog_notes(store: Store, mode: Mode) -> list[str]:
    """Return one line each for `SearchAnswer.degraded` on what is not read or not embedded yet."""
    if not store.episodes.count(Where()):
        return ["reading: nothing is stored yet"]
    notes = []
    if unread := len(store.parts.unread_sources()):
        notes.append(
            f"reading: not finished in {unread:,} of {counted(len(store.files.log_sources()), 'source')} of logs"
        )
    space = store.spaces.active()
    if mode is not Mode.EXACT and space is not None:
        progress = store.vectors.progress(space.key)
        if missing := progress.passages - progress.passages_done:
            notes.append(f"{EMBEDDING}no vectors yet of {missing:,} of {counted(progress.passages, 'passage')}")
    return notes
