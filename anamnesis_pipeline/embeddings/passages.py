"""Which text is embedded and indexed: parts and posted episodes cut into passages. Pure."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from anamnesis_pipeline.embeddings.pieces import PieceCounter, Span
from anamnesis_pipeline.model import Episode, Part, Passage, Segment, SegmentKind

BODY_PIECES = 160
"""Word pieces of a passage's own text. Shorter ones are sharper: on the development questions over real logs,
hit@5 was .70 at 160, .67 at 200 and .59 at 230 (four lists fused)."""
TOTAL_PIECES = 220
"""Word pieces of context and text together; the context is cut first."""
HEADER_PIECES = 40
BODY_CHARS = 1_000
"""Bound for text that has few word pieces: runs of spaces, or unbroken words that count as one unknown piece."""
SMALL_PIECES = 40
"""A segment shorter than this shares a passage with its neighbour: alone it says too little to be found."""
MAX_MESSAGE_IDS = 12

_SENTENCE_END = re.compile(r"[.!?;]\s")
_SPEAKS = (SegmentKind.PROMPT, SegmentKind.STEERING, SegmentKind.AGENT_PROMPT, SegmentKind.STATEMENT)


@dataclass(slots=True)
class _Block:
    """A passage in the making."""

    text: str
    pieces: int
    lead: str
    uuids: list[str] = field(default_factory=list)


def cut_text(text: str, spans: Sequence[Span], max_pieces: int = BODY_PIECES) -> list[Span]:
    """Where to cut a text: consecutive (start, end) that cover it, each at most `max_pieces` and BODY_CHARS long.

    Cuts fall at the last line break of the last 40% of a run, else at a sentence's end, else at a space.
    """
    fine = _fine_spans(spans)
    cuts: list[Span] = []
    start = first = 0
    while first < len(fine):
        stop = min(first + max_pieces, len(fine))
        while stop > first + 1 and fine[stop - 1][1] - fine[first][0] > BODY_CHARS:
            stop -= 1
        end = len(text) if stop == len(fine) else _seam(text, fine[first + (stop - first) * 6 // 10][0], fine[stop][0])
        cuts.append((start, end))
        start = end
        first = bisect_left(fine, end, key=lambda span: span[0])
    return cuts


def _fine_spans(spans: Sequence[Span]) -> list[Span]:
    """The same spans, with unbroken runs that count as one piece (a long hash, base64) split every 4 characters."""
    fine: list[Span] = []
    for start, end in spans:
        if end - start <= 32:
            fine.append((start, end))
        else:
            fine.extend((at, min(at + 4, end)) for at in range(start, end, 4))
    return fine


def _seam(text: str, low: int, high: int) -> int:
    newline = text.rfind("\n", low, high)
    if newline >= 0:
        return newline + 1
    sentences = [match.end() for match in _SENTENCE_END.finditer(text, low, high)]
    if sentences:
        return sentences[-1]
    space = text.rfind(" ", low, high)
    return space + 1 if space >= 0 else high


def passages_of_part(part: Part, pieces: PieceCounter) -> list[Passage]:
    """Passages of one part, in order. Small segments share one; every other segment is cut by itself.

    A growing part changes only its last passages: a passage looks only at what precedes it.
    """
    blocks: list[_Block] = []
    lead = part.lead
    spans = pieces.spans([segment.text for segment in part.segments])
    for segment, segment_spans in zip(part.segments, spans, strict=True):
        fine = _fine_spans(segment_spans)
        for start, end in cut_text(segment.text, segment_spans):
            body = segment.text[start:end].strip("\n")
            count = bisect_left(fine, end, key=lambda s: s[0]) - bisect_left(fine, start, key=lambda s: s[0])
            _append(blocks, body, count, lead, segment.uuid)
            if segment.kind in _SPEAKS:
                lead = body
    header = _header(_first_time(part.segments), part.project, part.prompt)
    contexts = _contexts([(header, block.lead, block.pieces) for block in blocks], pieces)
    return [
        Passage(ordinal, block.text, context, tuple(block.uuids[:MAX_MESSAGE_IDS]))
        for ordinal, (block, context) in enumerate(zip(blocks, contexts, strict=True))
    ]


def _append(blocks: list[_Block], body: str, count: int, lead: str, uuid: str) -> None:
    if not body.strip():
        return
    last = blocks[-1] if blocks else None
    fits = last is not None and last.pieces + count <= BODY_PIECES and len(last.text) + len(body) < BODY_CHARS
    if last is not None and fits and min(last.pieces, count) < SMALL_PIECES and len(last.uuids) < MAX_MESSAGE_IDS:
        last.text += "\n" + body
        last.pieces += count
        if uuid not in last.uuids:
            last.uuids.append(uuid)
    else:
        blocks.append(_Block(body, count, lead, [uuid]))


def passages_of_posted(episode: Episode, preceding: Sequence[str], pieces: PieceCounter) -> list[Passage]:
    """Passages of an episode that a client posted: its summary, then its raw text where that says more.

    :param preceding: summaries of the episodes just before it, oldest first: its context, fixed now.
    """
    summary, raw = episode.summary, episode.raw_exchange
    texts = [summary] if _same_words(summary, raw) else [summary, raw]
    bodies = []
    for text, spans in zip(texts, pieces.spans(texts), strict=True):
        bodies += [text[a:b].strip("\n") for a, b in cut_text(text, spans) if text[a:b].strip()]
    counts = [len(_fine_spans(spans)) for spans in pieces.spans(bodies)]
    header = _header(episode.timestamp, episode.project, "")
    leads = ["\n".join(preceding)] + [summary] * (len(bodies) - 1)
    contexts = _contexts([(header, lead, count) for lead, count in zip(leads, counts, strict=True)], pieces)
    return [Passage(n, body, context) for n, (body, context) in enumerate(zip(bodies, contexts, strict=True))]


def _same_words(summary: str, raw: str) -> bool:
    return not raw.strip() or " ".join(raw.split()) == summary


def _first_time(segments: Sequence[Segment]) -> datetime | None:
    return next((s.timestamp for s in segments if s.timestamp is not None), None)


def _header(when: datetime | None, project: str, prompt: str) -> str:
    date = f"{when:%Y-%m-%d}" if when is not None else ""
    return " ".join(piece for piece in (date, project.rsplit("/", 1)[-1], " ".join(prompt.split())) if piece)


def _contexts(wanted: Sequence[tuple[str, str, int]], pieces: PieceCounter) -> list[str]:
    """For each (header, lead, pieces of the text): the header's start and as much of the lead's end as fits."""
    headers = [header for header, _, _ in wanted]
    leads = [lead for _, lead, _ in wanted]
    spans = pieces.spans([*headers, *leads])
    contexts = []
    for n, (header, lead, count) in enumerate(wanted):
        header_spans, lead_spans = _fine_spans(spans[n]), _fine_spans(spans[len(wanted) + n])
        header_pieces = min(len(header_spans), HEADER_PIECES)
        header = header[: header_spans[header_pieces - 1][1]] if header_pieces else ""
        room = max(0, min(len(lead_spans), TOTAL_PIECES - count - header_pieces))
        tail = lead[lead_spans[-room][0] :] if room else ""
        contexts.append("\n".join(piece for piece in (header, tail.strip()) if piece))
    return contexts
