"""Search, as every way in asks it: the answer in the fields of the contract, and what is noted of it."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic_core import to_jsonable_python

from anamnesis_pipeline.errors import AnamnesisError, StoreFull
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import SearchAnswer
from anamnesis_pipeline.services.ground import Grounds
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.query_log import note_query
from anamnesis_pipeline.services.rendering import answer_body
from anamnesis_pipeline.services.schemas import SearchIn, SearchOut
from anamnesis_pipeline.services.short_ids import short_ids, whole_session_id
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.store.base import Store

_NOT_KEPT = {"query", "query_text", "track", "include", "explain", "quote_tokens"}

log = logging.getLogger(__name__)


def answer_question(store: Store, engine: Engine, question: SearchIn, here: str) -> tuple[SearchAnswer, SearchOut]:
    """Search, and return what was found with the same as a client reads it.

    :param here: the name of this machine.
    :raises EmbeddingQueueFull: this machine is overloaded.
    :raises IdAmbiguous: several sessions begin with `session_id`.
    """
    question = _with_whole_session(store, question)
    found = engine.search(question.question())
    ids = (hit.episode.episode_id for hit in found.hits)
    short = short_ids(store, ids) if "short_id" in question.include else {}
    origins = Grounds(store, engine.private(), here).of_episodes(hit.episode for hit in found.hits)
    return found, answer_body(found, question.include, question.explain, question.quote_tokens, short, origins)


def _with_whole_session(store: Store, question: SearchIn) -> SearchIn:
    if not question.session_id:
        return question
    return question.model_copy(update={"session_id": whole_session_id(store, question.session_id)})


def note_question(
    store: Store, engine: Engine, writer: EpisodeWriter, question: SearchIn, answer: SearchAnswer
) -> bool:
    """Note a question that was answered, unless the user wants none noted. Return False if the store is full; nothing
    else is an error, since the answer was sent. Without posts, this is the write that notices a full store.
    """
    try:
        if effective_settings(store).query_log:
            note_query(
                store,
                question.query or question.query_text,
                to_jsonable_python(question.model_dump(exclude=_NOT_KEPT, exclude_defaults=True)),
                [hit.episode for hit in answer.hits],
                is_answered=not answer.weak,
                mask=writer.masked,
                private=engine.private(),
                now=datetime.now(UTC),
            )
    except AnamnesisError as exc:
        log.warning("a question is not noted: %s", exc)
        return not isinstance(exc, StoreFull)
    return True


def count_opened(store: Store, episode_ids: Sequence[str]) -> None:
    """Count that a client opened or cited these episodes. Raises nothing: they are out."""
    try:
        store.episodes.track(episode_ids, datetime.now(UTC), read=True)
    except AnamnesisError as exc:
        log.warning("what was opened is not counted: %s", exc)


def note_reading(store: Store, episode_id: str) -> None:
    """Note that an episode was read. Raises nothing: it is out."""
    try:
        store.queries.use(episode_id, datetime.now(UTC))
    except AnamnesisError as exc:
        log.warning("what was read is not noted: %s", exc)
