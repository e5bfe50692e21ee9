"""Split chunks and posted episodes into the passages that are embedded and indexed. Pure."""

import itertools
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from anamnesis_pipeline.embeddings.pieces import PieceCounter, Span
from anamnesis_pipeline.model import Episode, Part, Passage, Segment, SegmentKind

BODY_PIECES = 160
"""Word pieces of a passage's text without context. Shorter passages are more precise: on the development questions over
real logs, hit@5 was .70 at 160, .67 at 200 and .59 at 230 (four lists fused)."""
TOTAL_PIECES = 220
"""Word pieces of context and text together; the context is shortened first."""
HEADER_PIECES = 40
BODY_CHARS = 1_000
"""Limit for text with few word pieces: runs of spaces, or unbroken words that count as one unknown piece."""
SMALL_PIECES = 40
"""A shorter segment shares a passage with its neighbour: alone it has too little text to be found."""
MAX_MESSAGE_IDS = 12
TOPIC = "topic"
"""Tag of topics. Each entry of their lists is a separate passage: beside others it is found for 10 of 24 prompts that
call for it, alone for 20 (benchmarks/skills.py)."""

_ENTRY = re.compile(r"^(?:[-*+]|\d{1,9}[.)])\s", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?;]\s")
_SPEAKS = (
    SegmentKind.PROMPT,
    SegmentKind.STEERING,
    SegmentKind.AGENT_PROMPT,
    SegmentKind.STATEMENT,
    SegmentKind.CHANNEL,
    SegmentKind.PEER,
    SegmentKind.MACHINE_PROMPT,
)


@dataclass(slots=True)
class _Block:
    """A passage under construction. `is_entry`: it shares with no other."""

    text: str
    pieces: int
    header: str
    lead: str
    uuids: list[str] = field(default_factory=list)
    is_entry: bool = False


def cut_text(text: str, spans: Sequence[Span], max_pieces: int = BODY_PIECES) -> list[Span]:
    """Return consecutive (start, end) that cover a text, each at most `max_pieces` and BODY_CHARS long.

    Spans end at the last line break of the last 40% of a run, else at a sentence's end, else at a space.
    """
    fine = _fine_spans(spans)
    cuts: list[Span] = []
    start = 0
    while start < len(text):
        end = _end_of_run(text, fine, start, max_pieces)
        cuts.append((start, end))
        start = end
    return cuts


def _end_of_run(text: str, fine: Sequence[Span], start: int, max_pieces: int) -> int:
    """Return the end of the run that begins at `start`. It always advances, even through text without any piece."""
    first = bisect_left(fine, start, key=_begin)
    stop = min(first + max_pieces, len(fine))
    while stop > first and fine[stop - 1][1] > start + BODY_CHARS:
        stop -= 1
    limit = min(fine[stop][0] if stop < len(fine) else len(text), start + BODY_CHARS)
    if limit == len(text):
        return limit
    low = fine[first + (stop - first) * 6 // 10][0] if stop > first else start
    return _seam(text, low, max(limit, start + 1))


def _begin(span: Span) -> int:
    return span[0]


def _fine_spans(spans: Sequence[Span]) -> list[Span]:
    """Return the spans with unbroken runs that count as one piece (a long hash, base64) split every 4 characters."""
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
    """Return the passages of one chunk, in order. Small segments share one; every other segment is split separately.
    For code, the outline is searched instead of the code, if there is one.

    A growing chunk changes only its last passages: a passage depends only on preceding text.
    """
    blocks: list[_Block] = []
    lead, since = part.lead, None
    is_topic = part.section is not None and TOPIC in part.section.tags
    segments = _searched(part.segments)
    spans = pieces.spans([segment.text for segment in segments])
    for segment, segment_spans in zip(segments, spans, strict=True):
        since = since or segment.timestamp
        header = _header(since, part.project, part.prompt)
        fine = _fine_spans(segment_spans)
        entries = [found.start() for found in _ENTRY.finditer(segment.text)] if is_topic else []
        for start, end in _cut_at(entries, segment.text, segment_spans):
            body = segment.text[start:end].strip("\n")
            count = bisect_left(fine, end, key=_begin) - bisect_left(fine, start, key=_begin)
            is_entry = bool(entries) and start >= entries[0]
            _append(blocks, _Block(body, count, header, lead, [segment.uuid] if segment.uuid else [], is_entry))
            if segment.kind in _SPEAKS and body.strip():
                lead = body
    contexts = _contexts([(block.header, block.lead, block.pieces) for block in blocks], pieces)
    return [
        Passage(ordinal, block.text, context, tuple(block.uuids[:MAX_MESSAGE_IDS]))
        for ordinal, (block, context) in enumerate(zip(blocks, contexts, strict=True))
    ]


def _cut_at(begins: Sequence[int], text: str, spans: Sequence[Span]) -> list[Span]:
    """Return the spans of `cut_text` of each piece of a text.

    :param begins: where a piece begins, in order, besides the first.
    """
    bounds = sorted({0, *begins, len(text)})
    cuts = list[Span]()
    for begin, end in itertools.pairwise(bounds):
        its = [(first - begin, last - begin) for first, last in spans if begin <= first < end]
        cuts += [(begin + first, begin + last) for first, last in cut_text(text[begin:end], its)]
    return cuts


def _searched(segments: Sequence[Segment]) -> Sequence[Segment]:
    without_code = [segment for segment in segments if segment.kind is not SegmentKind.CODE]
    return without_code or segments


def _append(blocks: list[_Block], new: _Block) -> None:
    if not new.text.strip():
        return
    if not blocks or new.is_entry or not _fits(blocks[-1], new):
        blocks.append(new)
        return
    last = blocks[-1]
    last.text += "\n" + new.text
    last.pieces += new.pieces
    last.uuids += [uuid for uuid in new.uuids if uuid not in last.uuids]


def _fits(last: _Block, new: _Block) -> bool:
    """Return whether two blocks share a passage: one of them is small, and together they are not too large."""
    return (
        not last.is_entry
        and min(last.pieces, new.pieces) < SMALL_PIECES
        and last.pieces + new.pieces <= BODY_PIECES
        and len(last.text) + len(new.text) < BODY_CHARS
        and len(last.uuids) < MAX_MESSAGE_IDS
    )


def passages_of_posted(episode: Episode, preceding: Sequence[str], pieces: PieceCounter) -> list[Passage]:
    """Return the passages of a posted episode: its summary, then its raw text if that has more.

    :param preceding: summaries of the episodes just before it, oldest first: its context, now final.
    """
    summary, raw = episode.summary, episode.raw_exchange
    of_summary = _bodies(summary, pieces)
    of_raw = [] if _same_words(summary, raw) else _bodies(raw, pieces)
    bodies = of_summary + of_raw
    leads = ["\n".join(preceding), *of_summary[:-1], *(summary for _ in of_raw)]
    header = _header(episode.timestamp, episode.project, "")
    counts = [len(_fine_spans(spans)) for spans in pieces.spans(bodies)]
    contexts = _contexts([(header, lead, count) for lead, count in zip(leads, counts, strict=True)], pieces)
    return [Passage(n, body, context) for n, (body, context) in enumerate(zip(bodies, contexts, strict=True))]


def _bodies(text: str, pieces: PieceCounter) -> list[str]:
    cuts = cut_text(text, pieces.spans([text])[0])
    return [text[start:end].strip("\n") for start, end in cuts if text[start:end].strip()]


def _same_words(summary: str, raw: str) -> bool:
    return not raw.strip() or " ".join(raw.split()) == summary


def _header(when: datetime | None, project: str, prompt: str) -> str:
    date = f"{when:%Y-%m-%d}" if when is not None else ""
    return " ".join(piece for piece in (date, project.rsplit("/", 1)[-1], " ".join(prompt.split())) if piece)


def _contexts(wanted: Sequence[tuple[str, str, int]], pieces: PieceCounter) -> list[str]:
    """Return for each (header, lead, pieces of the text) the header's start and as much of the lead's end as fits."""
    texts = list(dict.fromkeys(text for header, lead, _ in wanted for text in (header, lead)))
    spans = {text: _fine_spans(found) for text, found in zip(texts, pieces.spans(texts), strict=True)}
    contexts = []
    for header, lead, count in wanted:
        of_header = spans[header][:HEADER_PIECES]
        room = max(0, min(len(spans[lead]), TOTAL_PIECES - count - len(of_header)))
        head = header[: of_header[-1][1]] if of_header else ""
        tail = lead[spans[lead][-room][0] :][-BODY_CHARS:] if room else ""
        contexts.append("\n".join(piece for piece in (head, tail.strip()) if piece))
    return contexts
