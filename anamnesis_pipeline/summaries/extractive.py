"""Summaries without an LLM: SumBasic over what was said, tool calls by name where nothing was said. Pure.

Nenkova and Vanderwende, "The Impact of Frequency on Summarization", MSR-TR-2005-101: take the sentence whose words
are most probable in the text, square the probability of the words it used, repeat.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import fsum

from anamnesis_pipeline.model import Part, Segment, SegmentKind

MODEL = "extractive-sumbasic-1"
"""Recorded with each summary; a change of the method changes it."""
MAX_SENTENCES = 3
MAX_CHARS = 480
PROMPT_CHARS = 200
SENTENCE_CHARS = 240
TOOL_CHARS = 90

_SENTENCE = re.compile(r"[^\n.!?]+(?:[.!?](?!\s|$)[^\n.!?]*)*[.!?]*")
_ASKING = (SegmentKind.PROMPT, SegmentKind.CHANNEL, SegmentKind.AGENT_PROMPT)
_WORD = re.compile(r"[a-zA-Z_]\w{3,}")
"""Shorter words are mostly function words, which are frequent everywhere and would decide which sentence tells most."""


def summarize(part: Part) -> str:
    """2 to 4 sentences on a part: what was asked, then the most telling sentences said; of a section of a document the
    way to it and how it begins. At most MAX_CHARS.
    """
    if part.section is not None and part.kind in {"document", "code"}:
        return _section_head(part)
    asked = next((s for s in part.segments if s.kind in _ASKING), None)
    lines = [_shorten(asked.text, PROMPT_CHARS)] if asked else []
    lines += telling_sentences(_said(part.segments), MAX_SENTENCES)
    if len(lines) < 2:
        lines += _done(part.segments)
    if not lines:
        lines = [segment.text for segment in part.segments[:1]]
    return _shorten(" ".join(lines), MAX_CHARS) or _shorten(part.prompt, PROMPT_CHARS) or part.kind


def telling_sentences(text: str, most: int) -> list[str]:
    """Up to `most` sentences, in their order in the text, chosen by SumBasic.

    Sums are exact: those of a set's words would else depend on their order, which is another in each process.
    """
    sentences = [s for s in (_shorten(m.group(), SENTENCE_CHARS) for m in _SENTENCE.finditer(text)) if len(s) >= 20]
    bags = [frozenset(word.lower() for word in _WORD.findall(sentence)) for sentence in sentences]
    frequency = Counter(word for bag in bags for word in bag)
    total = sum(frequency.values())
    probability = {word: count / total for word, count in frequency.items()}
    chosen: list[int] = []
    while len(chosen) < min(most, len(sentences)):
        rest = [n for n in range(len(sentences)) if n not in chosen]
        pick = max(rest, key=lambda n: (fsum(probability[w] for w in bags[n]) / max(len(bags[n]), 1), -n))
        chosen.append(pick)
        for word in bags[pick]:
            probability[word] **= 2
    return [sentences[n] for n in sorted(chosen)]


def _section_head(part: Part) -> str:
    """Title and beginning; of code that of the outline, which comes first."""
    text = part.segments[0].text if part.segments else ""
    first, _, rest = text.lstrip().partition("\n")
    body = rest if first.startswith("#") else text
    return _shorten(f"{part.prompt}: {body}", MAX_CHARS) if body.strip() else _shorten(part.prompt, MAX_CHARS)


def _said(segments: Sequence[Segment]) -> str:
    said = [s.text for s in segments if s.kind is SegmentKind.STATEMENT]
    return "\n".join(said or [s.text for s in segments if s.kind in (SegmentKind.THINKING, SegmentKind.STEERING)])


def _done(segments: Sequence[Segment]) -> list[str]:
    return [_shorten(s.text, TOOL_CHARS) for s in segments if s.kind is SegmentKind.TOOL_INPUT][:3]


def _shorten(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1].rsplit(" ", 1)[0] + "…"
