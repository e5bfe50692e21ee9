"""Implement the asset `episodes`: chunks and summaries become searchable episodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.embeddings.passages import passages_of_part, passages_of_posted
from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.model import (
    MAX_RECORDS,
    RECORD_KIND,
    Episode,
    Part,
    Passage,
    SectionFacts,
    Segment,
    SegmentKind,
    Source,
    Summary,
    TypedRecord,
    record_id,
    said_at,
)
from anamnesis_pipeline.parsing.claude_logs.value import WEIGHTS, Value, value_of
from anamnesis_pipeline.parsing.redaction.masking import masks_in
from anamnesis_pipeline.parsing.text.file_names import log_name
from anamnesis_pipeline.parsing.text.transcripts import transcript
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.forgotten_sections import body_keys_of
from anamnesis_pipeline.pipeline.section_tombstones import bury_sections
from anamnesis_pipeline.pipeline.sessions import SessionFacts
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.documents import Settled
from anamnesis_pipeline.store.records.episodes import Publication, PutReport

BATCH = 50
FORMER_TAG = "former-version"
"""Tag of episodes found only in a former transcript of a session, which Claude Code set aside."""
SECTION_KINDS = ("document", "code")
"""Kinds of written chunks, as opposed to spoken ones."""


@dataclass(frozen=True, slots=True)
class EpisodeReport:
    """What one run wrote."""

    put: PutReport
    passages: int
    records: int = 0
    """Typed records among the episodes written."""
    problem: str = ""
    """Why some chunks have no episode of their stored text; empty: all have."""
    settled: Settled = field(default_factory=Settled)
    """Documents: episodes superseded now, or current again."""


def publish_source(
    store: Store,
    source: Source,
    pieces: PieceCounter,
    headline: Callable[[Part], str],
    weights: Mapping[str, float] = WEIGHTS,
    instance: str = "",
) -> EpisodeReport:
    """Write the episode of every chunk that has none, or an outdated one.

    End with a problem when the same chunks come back unchanged.

    :param headline: replaces the summary of a chunk that is still open.
    :param weights: points of every rule of the value.
    :param instance: of the episodes whose chunk names none; empty: the source's machine.
    """
    total, passages, records, problem = PutReport(), 0, 0, ""
    last: list[tuple[Part, Summary | None]] = []
    sessions = SessionFacts(store, source)
    sessions.renew()
    while pairs := store.parts.parts_to_publish(source.key, BATCH):
        if pairs == last:
            problem = (
                f"parts have no episode of their present text, {len(pairs)} or more, such as {pairs[0][0].part_id}: "
                "what the store notes of them does not fit what it holds; run `anamnesis doctor`, and report it"
            )
            break
        made = [
            _publication(part, summary, source, pieces, headline, weights, instance, sessions.of(part))
            for part, summary in pairs
        ]
        total = _add(total, store.episodes.publish(made))
        passages += sum(len(found) for each in made for _, found in each.episodes)
        records += sum(len(each.episodes) - 1 for each in made)
        last = pairs
    return EpisodeReport(total, passages, records, problem)


def _publication(
    part: Part,
    summary: Summary | None,
    source: Source,
    pieces: PieceCounter,
    headline: Callable[[Part], str],
    weights: Mapping[str, float],
    instance: str,
    of_session: Mapping[str, str],
) -> Publication:
    shown = summary or Summary(part.part_id, part.content_hash, headline(part), "")  # provisional
    episode = episode_of(part, source, shown, weights)
    own = part.section.instance if part.section else ""
    metadata = {**episode.metadata, **of_session}
    episode = replace(episode, instance=own or instance or episode.instance, metadata=metadata)
    drawn = episodes_of_records(part, episode, summary.records if summary else (), pieces)
    passages = passages_of_part(part, pieces)
    return Publication(part, summary, [(episode, passages), *drawn], surplus_records(part, summary))


def delete_episode(store: Store, episode_id: str, *, tombstone: bool = True, reason: str = "") -> bool:
    """Remove an episode and its typed records. Return False when there is no such id.

    :param reason: shown in the blocklist.
    """
    if tombstone and store.episodes.get([episode_id]):
        parts = store.forgetting.parts([episode_id])
        bury_sections(store, parts)
        store.forgetting.bury({part.part_id: keys for part in parts if (keys := body_keys_of(part))})
    deleted = store.episodes.delete(episode_id, tombstone=tombstone)
    records = [record_id(episode_id, number) for number in range(MAX_RECORDS)]
    for record in store.episodes.get(records):
        store.episodes.delete(record, tombstone=tombstone)
    if deleted and tombstone:
        store.exclusion.explain(reason, [episode_id], dict.fromkeys(records, episode_id))
    return deleted


def surplus_records(part: Part, summary: Summary | None) -> list[str]:
    """Return ids of records that an earlier summary may have had and this one has not. They leave no tombstone, since a
    later summary may have them again.
    """
    first = len(summary.records) if summary else 0
    return [record_id(part.part_id, number) for number in range(first, MAX_RECORDS)]


def episodes_of_records(
    part: Part, episode: Episode, records: Sequence[TypedRecord], pieces: PieceCounter
) -> list[tuple[Episode, list[Passage]]]:
    """Return the episodes of a chunk's typed records, with their passages.

    :param episode: the chunk's own.
    """
    found = []
    for number, record in enumerate(records[:MAX_RECORDS]):
        drawn = _record_episode(part, episode, record, number)
        worded = replace(drawn, summary=" ".join(drawn.raw_exchange.split()), raw_exchange="")
        passages = passages_of_posted(worded, [part.prompt] if part.prompt else [], pieces)
        found.append((drawn, [replace(passage, message_ids=record.message_ids) for passage in passages]))
    return found


def _record_episode(part: Part, episode: Episode, record: TypedRecord, number: int) -> Episode:
    """Return a record's episode, with the time and ids of the messages it was drawn from.

    It has no message keys: deleting it deletes nothing of the exchange.
    """
    drawn_from = tuple(s for s in part.segments if s.uuid in record.message_ids) or part.segments
    return replace(
        episode,
        episode_id=record_id(part.part_id, number),
        timestamp=_first_time(drawn_from),
        kind=RECORD_KIND,
        summary=record.text,
        raw_exchange=f"{record.text}\n\nWhy: {record.why}" if record.why else record.text,
        tags=tuple(dict.fromkeys((str(record.type), *episode.tags))),
        message_ids=record.message_ids,
        message_keys=(),
        metadata={"type": str(record.type), "why": record.why, "part_id": part.part_id},
    )


def episode_of(part: Part, source: Source, summary: Summary, weights: Mapping[str, float] = WEIGHTS) -> Episode:
    """Return the episode of a chunk. Its id is the chunk's, so a growing chunk stays one episode."""
    value = value_of(part, weights)
    text = verbatim(part)
    named = log_name(part.path)
    set_aside = named.set_aside if named else ""
    former = (FORMER_TAG,) if set_aside else ()
    metadata = {
        "value": round(value.score, 2),
        "value_signals": dict(value.signals),
        "skip": summary.skip or "",
        "agent_id": part.agent_id,
        "agent_type": part.agent_type,
        "cwd": part.cwd,
        "exchange_id": part.exchange_id,
        "ordinal": part.ordinal,
        "origin": part.origin,
        "prompt": part.prompt,
        "masked": dict(masks_in(text)) or "",
        "set_aside": set_aside,
        **_metadata_of(part.section),
    }
    return Episode(
        episode_id=part.part_id,
        source=source.key,
        timestamp=_first_time(part.segments),
        instance=source.machine,
        project=part.project,
        kind=part.kind,
        summary=summary.text,
        raw_exchange=text,
        tags=tuple(
            dict.fromkeys((*(part.section.tags if part.section else ()), *former, *_told_by(value), *summary.tags))
        ),
        machine=source.machine,
        path=f"{folder_of(source)}/{part.path}" if source.kind != "reserved" else part.path,
        session_id=part.session_id,
        message_ids=tuple(dict.fromkeys(segment.uuid for segment in part.segments if segment.uuid)),
        message_keys=tuple(dict.fromkeys(segment.message_key for segment in part.segments)),
        metadata={name: value for name, value in metadata.items() if value != ""},
    )


def _told_by(value: Value) -> tuple[str, ...]:
    """Return the tag of an exchange in which the user corrects a statement or an action; needs no LLM summary."""
    return ("correction",) if "correction" in value.signals else ()


def _metadata_of(section: SectionFacts | None) -> dict[str, Any]:
    """Return the metadata of a section's episode."""
    if section is None:
        return {}
    return {
        "title": list(section.title),
        "lines": [section.first_line, section.last_line],
        "format": section.format,
        "language": section.language,
        "trust": section.trust,
        "seen": section.seen.isoformat() if section.seen else "",
    }


def verbatim(part: Part) -> str:
    """Return the text of a chunk as said or written: for code, the file's text without its outline."""
    if part.section is None or part.kind not in SECTION_KINDS:
        return transcript(part.segments)
    written = [s.text for s in part.segments if s.kind is not SegmentKind.OUTLINE]
    return "\n".join(written or [s.text for s in part.segments])


def _first_time(segments: tuple[Segment, ...]) -> datetime:
    known = (when for segment in segments if (when := said_at(segment.timestamp)) is not None)
    return next(known, datetime.fromtimestamp(0, UTC))


def _add(a: PutReport, b: PutReport) -> PutReport:
    return PutReport(
        a.created + b.created, a.updated + b.updated, a.unchanged + b.unchanged, a.tombstoned + b.tombstoned
    )
