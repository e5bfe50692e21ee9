"""JSON bodies of episodes and answers. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal, cast

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.parsing.text.titles import title_of
from anamnesis_pipeline.search.best_sentences import best_run, excerpt_of
from anamnesis_pipeline.search.floor import Confidence
from anamnesis_pipeline.search.query import Hit, SearchAnswer
from anamnesis_pipeline.search.trust import authority_of, tier_of
from anamnesis_pipeline.services.ground import Origin
from anamnesis_pipeline.services.schemas import (
    EpisodeOut,
    HistoryOut,
    HitOut,
    OriginOut,
    SearchOut,
    SourceOut,
    StatusName,
)
from anamnesis_pipeline.store.records.statuses import StatusChange
from anamnesis_pipeline.store.statements import statement_of

EXCERPT_CHARS = 850
"""With 1,200 an answer is 5% longer, and one more quote of 23 is in it."""
HIT_MESSAGE_IDS = 12
NO_IDS: Mapping[str, str] = {}
NO_ORIGINS: Mapping[str, Origin] = {}


def episode_body(episode: Episode, include: Collection[str], short: Mapping[str, str] = NO_IDS) -> EpisodeOut:
    """Return one episode, without its text unless `raw` is in `include`.

    :param short: maps ids to short ids, where an episode has one.
    """
    body: EpisodeOut = {
        "episode_id": episode.episode_id,
        "timestamp": utc_text(episode.timestamp),
        "instance": episode.instance,
        "project": episode.project,
        "kind": episode.kind,
        "title": title_of(episode),
        "summary": episode.summary,
        "tags": list(episode.tags),
        "retrieval_count": episode.retrieval_count,
        "last_retrieved": utc_text(episode.last_retrieved) if episode.last_retrieved else None,
        "status": cast(StatusName, episode.status),
        "superseded_by": episode.superseded_by,
        "superseded_at": utc_text(episode.superseded_at) if episode.superseded_at else None,
        "authority": authority_of(episode, is_whole="raw" in include).value,
        "source": _source(episode, episode.message_ids),
        "metadata": dict(episode.metadata),
    }
    if subject := statement_of(episode.metadata).subject:
        body["subject"] = subject
    for name, when in _bounds(episode):
        body[name] = utc_text(when)
    if episode.episode_id in short:
        body["short_id"] = short[episode.episode_id]
    if "raw" in include:
        body["raw_exchange"] = episode.raw_exchange
    return body


def answer_body(
    answer: SearchAnswer,
    include: Collection[str],
    explain: bool,
    quote_tokens: int = 0,
    short: Mapping[str, str] = NO_IDS,
    origins: Mapping[str, Origin] = NO_ORIGINS,
) -> SearchOut:
    """Return a whole answer.

    :param quote_tokens: limit of the sentences quoted per hit; 0: no quotes.
    :param short: as in `episode_body`.
    :param origins: of the sessions of the hits.
    """
    hits = [_hit_body(hit, include, explain, quote_tokens, short) for hit in answer.hits]
    for hit in hits:
        origin = origins.get(hit["source"]["session_id"], Origin())
        hit["source"] = {**hit["source"], **origin_body(origin)}
    body: SearchOut = {
        "results": hits,
        "weak": answer.weak,
        "took_ms": round(answer.took_ms, 2),
        "model_id": answer.model_id,
        "degraded": list(answer.degraded),
        "total_tokens": answer.total_tokens,
    }
    if explain:
        body["explanation"] = answer.explanation
    return body


def origin_body(origin: Origin) -> OriginOut:
    """Return what is known of a session's origin."""
    body: OriginOut = {}
    if origin.folder:
        body["folder"] = origin.folder
    if origin.command:
        body["resume"] = origin.command
    if origin.ground is not None:
        body["ground"] = origin.ground
    return body


def history_body(changes: Iterable[StatusChange]) -> HistoryOut:
    """Return the changes of an episode's status."""
    return {
        "items": [
            {
                "episode_id": change.episode_id,
                "former": cast(StatusName, change.former),
                "status": cast(StatusName, change.status),
                "superseded_by": change.successor,
                "reason": change.reason,
                "by": change.by,
                "at": utc_text(change.at),
            }
            for change in changes
        ]
    }


def utc_text(moment: datetime) -> str:
    """Format as ISO 8601 with `Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _hit_body(hit: Hit, include: Collection[str], explain: bool, quote_tokens: int, short: Mapping[str, str]) -> HitOut:
    episode, (excerpt, message_ids) = hit.episode, excerpt_of(hit.passages)
    body: HitOut = {
        "episode_id": episode.episode_id,
        "score": round(hit.score, 4),
        "confidence": hit.confidence.value,
        "weak": hit.confidence is Confidence.WEAK,
        "similarity_score": None if hit.similarity is None else round(hit.similarity, 4),
        "boosted_score": round(hit.score, 4),
        "priority_multiplier": round(hit.factor, 4),
        "timestamp": utc_text(episode.timestamp),
        "instance": episode.instance,
        "project": episode.project,
        "kind": episode.kind,
        "title": title_of(episode),
        "summary": episode.summary,
        "excerpt": excerpt[:EXCERPT_CHARS],
        "tags": list(episode.tags),
        "retrieval_count": episode.retrieval_count,
        "status": cast(StatusName, episode.status),
        "superseded_by": episode.superseded_by,
        "superseded_at": utc_text(episode.superseded_at) if episode.superseded_at else None,
        "consolidated_from": _names(episode.metadata.get("consolidated_from")),
        "authority": authority_of(episode, is_whole="raw" in include).value,
        "layer": hit.layer.value,
        "source": _source(episode, message_ids[:HIT_MESSAGE_IDS]),
        "also": list(hit.also),
    }
    if subject := statement_of(episode.metadata).subject:
        body["subject"] = subject
    for name, when in _bounds(episode):
        body[name] = utc_text(when)
    if episode.episode_id in short:
        body["short_id"] = short[episode.episode_id]
    if quote_tokens:
        body["quote"] = " ".join(sentence.text for sentence in best_run(hit.runs, quote_tokens))
    if "raw" in include:
        body["raw_exchange"] = episode.raw_exchange
    if explain:
        body["explanation"] = hit.explanation
    return body


def _bounds(episode: Episode) -> Iterator[tuple[Literal["valid_from", "valid_until"], datetime]]:
    """Yield from and until when it holds, where that is bounded."""
    statement = statement_of(episode.metadata)
    if statement.valid_from is not None:
        yield "valid_from", statement.valid_from
    if statement.valid_until is not None:
        yield "valid_until", statement.valid_until


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _source(episode: Episode, message_ids: Collection[str]) -> SourceOut:
    source: SourceOut = {
        "machine": episode.machine,
        "path": episode.path,
        "session_id": episode.session_id,
        "message_ids": list(message_ids),
    }
    if isinstance(lines := episode.metadata.get("lines"), list):
        source["lines"] = lines
    if isinstance(title := episode.metadata.get("title"), list) and all(isinstance(piece, str) for piece in title):
        source["title"] = title
    if isinstance(later := episode.metadata.get("continued_in"), str):
        source["continued_in"] = later
    if episode.metadata.get("session_log") == "missing":
        source["session_log"] = "missing"
    if tier := tier_of(episode):
        source["trust"] = cast(Literal["curated", "file", "transcript", "chat"], tier)
    return source
