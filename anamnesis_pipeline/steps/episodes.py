"""What the asset `episodes` does: parts and summaries become searchable episodes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from anamnesis_pipeline.embeddings.passages import passages_of_part
from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.model import Episode, Part, Segment, SegmentKind, Source
from anamnesis_pipeline.steps.crawl import folder_of
from anamnesis_pipeline.store.base import PutReport, Store

BATCH = 50

_SPEAKER = {
    SegmentKind.PROMPT: "User",
    SegmentKind.STEERING: "User, while Claude was working",
    SegmentKind.STATEMENT: "Claude",
    SegmentKind.THINKING: "Claude, thinking",
    SegmentKind.TOOL_INPUT: "Tool call",
    SegmentKind.TOOL_RESULT: "Tool result",
    SegmentKind.TOOL_ERROR: "Tool error",
    SegmentKind.AGENT_PROMPT: "Task for the subagent",
    SegmentKind.NOTIFICATION: "Notification",
    SegmentKind.COMMAND: "Command",
    SegmentKind.COMPACT_SUMMARY: "Summary made by Claude Code",
}


@dataclass(frozen=True, slots=True)
class EpisodeReport:
    """What one run wrote."""

    put: PutReport
    passages: int


def publish_source(
    store: Store, source: Source, pieces: PieceCounter, headline: Callable[[Part], str]
) -> EpisodeReport:
    """Write the episode of every part that has none, or an older one.

    :param headline: stands in for the summary of a part that is still open.
    """
    total, passages = PutReport(), 0
    while pairs := store.ingest.parts_to_publish(source.key, BATCH):
        batch = [
            (episode_of(part, source, summary.text if summary else headline(part)), passages_of_part(part, pieces))
            for part, summary in pairs
        ]
        total = _add(total, store.episodes.put(batch))
        passages += sum(len(found) for _, found in batch)
        store.ingest.mark_published(pairs)
    return EpisodeReport(total, passages)


def episode_of(part: Part, source: Source, summary: str) -> Episode:
    """The episode of a part. Its id is the part's, so a growing part stays one episode."""
    metadata = {
        "agent_id": part.agent_id, "agent_type": part.agent_type, "cwd": part.cwd,
        "exchange_id": part.exchange_id, "ordinal": part.ordinal, "prompt": part.prompt,
    }  # fmt: skip
    return Episode(
        episode_id=part.part_id,
        source=source.key,
        timestamp=_first_time(part.segments),
        instance=source.machine,
        project=part.project,
        kind=part.kind,
        summary=summary,
        raw_exchange=transcript(part.segments),
        machine=source.machine,
        path=f"{folder_of(source)}/{part.path}",
        session_id=part.session_id,
        message_ids=tuple(dict.fromkeys(segment.uuid for segment in part.segments if segment.uuid)),
        message_keys=tuple(dict.fromkeys(segment.message_key for segment in part.segments)),
        metadata={name: value for name, value in metadata.items() if value != ""},
    )


def transcript(segments: tuple[Segment, ...]) -> str:
    """The verbatim text of a part, each message under a line that says who speaks."""
    blocks = []
    for segment in segments:
        continued = ", continued" if segment.start else ""
        blocks.append(f"[{_SPEAKER[segment.kind]}{continued}]\n{segment.text}")
    return "\n\n".join(blocks)


def _first_time(segments: tuple[Segment, ...]) -> datetime:
    known = (segment.timestamp for segment in segments if segment.timestamp is not None)
    return next(known, datetime.fromtimestamp(0, UTC))


def _add(a: PutReport, b: PutReport) -> PutReport:
    return PutReport(
        a.created + b.created, a.updated + b.updated, a.unchanged + b.unchanged, a.tombstoned + b.tombstoned
    )
