"""Exchanges reported by clients: an episode each, with the typed records that an LLM finds in it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.errors import AnamnesisError, EpisodeConflict, EpisodeNotFound
from anamnesis_pipeline.model import (
    MAX_RECORDS,
    Episode,
    Part,
    Segment,
    SegmentKind,
    Summary,
    content_id,
    kind_of,
    record_id,
)
from anamnesis_pipeline.parsing.claude_logs.chunking import PROMPT_HEAD
from anamnesis_pipeline.parsing.text.transcripts import ASSISTANT, transcript
from anamnesis_pipeline.pipeline.llm_choice import Llm
from anamnesis_pipeline.pipeline.publish import episodes_of_records, surplus_records
from anamnesis_pipeline.pipeline.summarize import summarize_part
from anamnesis_pipeline.services.posting import EpisodeDraft, EpisodeWriter
from anamnesis_pipeline.store.base import Store

PAIR_KIND = "exchange"
OF_THE_LLM = "llm_summary"
"""Metadata key: hash of the summary and tags that an LLM gave a pair, to detect later edits by a client."""
RECORDS_DELETED = "records of this pair were deleted before, and stay away"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pair:
    """A user message and its answer. `timestamp` None: now. `source`: one of the reserved. `model`: which one answered;
    empty: Claude.
    """

    user: str
    assistant: str
    instance: str
    project: str = ""
    timestamp: datetime | None = None
    source: str = "direct"
    model: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The episode of a pair, its records in order, and why the LLM's are missing, if so."""

    episode: Episode
    records: tuple[Episode, ...]
    problem: str = ""


class Recorder:
    """Stores pairs, each once; no LLM is asked twice about a pair."""

    def __init__(
        self, store: Store, poster: EpisodeWriter, pieces: PieceCounter, llm: Llm, headline: Callable[[Part], str]
    ) -> None:
        """:param headline: chunk -> provisional summary."""
        self._store, self._poster, self._pieces, self._llm, self._headline = store, poster, pieces, llm, headline

    def keep(self, pair: Pair) -> tuple[Part, bool]:
        """Store the pair, masked, as an episode. Return its text as a chunk, and whether it is new."""
        user, assistant = self._poster.masked(pair.user), self._poster.masked(pair.assistant)
        said_at = pair.timestamp.isoformat() if pair.timestamp else ""
        pair_id = content_id("pair", pair.instance, pair.project, said_at, user, assistant)
        known = self._store.episodes.get([pair_id]).get(pair_id)
        when = known.timestamp if known else pair.timestamp or datetime.now(UTC)
        part = _part_of(pair_id, pair.source, pair.project, when, user, assistant)
        if known is not None:
            return part, False
        is_claude = pair.model.startswith("claude") or not pair.model
        draft = EpisodeDraft(
            self._headline(part),
            pair.instance,
            pair.project,
            transcript(part.segments, ASSISTANT if is_claude else f"Assistant: {pair.model}"),
            timestamp=part.segments[0].timestamp,
            episode_id=part.part_id,
            kind=kind_of(pair.source, PAIR_KIND),
            source=pair.source,
            metadata={"model": pair.model} if pair.model else {},
        )
        try:
            return part, self._poster.create(draft)[1]
        except EpisodeConflict:  # the same pair came twice at once
            return part, False

    @staticmethod
    def kept(episode: Episode, user: str, assistant: str) -> Part:
        """Return the chunk of a pair already stored as an episode, from its masked text."""
        return _part_of(episode.episode_id, episode.source, episode.project, episode.timestamp, user, assistant)

    def stored(self, part: Part, problem: str = "") -> Recorded:
        """Return the stored episodes of a pair.

        :raises EpisodeNotFound: it was deleted meanwhile.
        """
        ids = [record_id(part.part_id, number) for number in range(MAX_RECORDS)]
        found = self._store.episodes.get([part.part_id, *ids])
        if part.part_id not in found:
            raise EpisodeNotFound("the pair was deleted meanwhile")
        return Recorded(found[part.part_id], tuple(found[key] for key in ids if key in found), problem)

    def extract(self, part: Part) -> Recorded:
        """Have the LLM extract records, and store them; may take minutes. A failure becomes `problem`.

        :raises EpisodeNotFound: the pair was deleted meanwhile.
        """
        try:
            made = summarize_part(self._store, part, self._llm)
            problem = made.problem
            if not problem:
                drawn = episodes_of_records(part, self._summarized(part, made), made.records, self._pieces)
                for record in surplus_records(part, made):
                    self._store.episodes.delete(record, tombstone=False)
                report = self._store.episodes.put(drawn)
                self._poster.embed([record.episode_id for record, _ in drawn])
                problem = RECORDS_DELETED if report.tombstoned else ""
        except AnamnesisError as exc:
            log.warning("no records of a pair: %s", type(exc).__name__)
            problem = str(exc)
        return self.stored(part, problem)

    def _summarized(self, part: Part, made: Summary) -> Episode:
        """Return the pair's episode with this summary in place of the provisional one or an LLM's earlier one; a
        client's edit stays.
        """
        known = self.stored(part).episode
        stood_in = self._poster.cleaned({"summary": self._headline(part)})["summary"]
        is_provisional = (known.summary, known.tags) == (stood_in, ())
        former = _mark({"summary": known.summary, "tags": known.tags})
        if not is_provisional and known.metadata.get(OF_THE_LLM) != former:
            return known
        changes = {"summary": made.text, "tags": made.tags}
        mark = {OF_THE_LLM: _mark(self._poster.cleaned(changes))}
        try:
            return self._poster.patch(part.part_id, {**changes, "metadata": {**known.metadata, **mark}})
        except EpisodeConflict:
            return self.stored(part).episode


def _part_of(pair_id: str, source: str, project: str, when: datetime, user: str, assistant: str) -> Part:
    said = (
        Segment(f"{pair_id}:user", "", SegmentKind.PROMPT, 0, user, when),
        Segment(f"{pair_id}:assistant", "", SegmentKind.STATEMENT, 0, assistant, when),
    )
    return Part(pair_id, source, "", "", pair_id, 0, PAIR_KIND, project, "", user[:PROMPT_HEAD], said, closed=True)


def _mark(said: Mapping[str, Any]) -> str:
    return content_id(said["summary"], *said["tags"])
