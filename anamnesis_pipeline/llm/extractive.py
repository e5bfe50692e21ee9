"""Summaries without an LLM: SumBasic over statements, else a description of the tool calls. Pure.

Nenkova and Vanderwende, "The Impact of Frequency on Summarization", MSR-TR-2005-101: take the sentence whose words are
most probable in the text, square the probability of the words it used, repeat.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from math import fsum

from anamnesis_pipeline.model import Part, Segment, SegmentKind
from anamnesis_pipeline.parsing.text.plain_text import plain, prose, shortened
from anamnesis_pipeline.parsing.text.titles import actions, output_title, title_of_sentences

FAMILY = "extractive-"
"""Prefix of the names of all such methods."""
MODEL = f"{FAMILY}sumbasic-2"
"""Stored with each summary; changes with the method. Summaries by an earlier one stay unchanged."""
MAX_SENTENCES = 3
MAX_CHARS = 480
PROMPT_CHARS = 200
SENTENCE_CHARS = 240
MIN_SENTENCE = 20
"""Minimum characters of a meaningful sentence."""

_ASKING = (SegmentKind.PROMPT, SegmentKind.CHANNEL, SegmentKind.AGENT_PROMPT)
_WORD = re.compile(r"[a-zA-Z_]\w{3,}")
"""Shorter words are mostly function words, which are frequent everywhere and would dominate the ranking."""


def is_extractive(model: str) -> bool:
    """Return whether a summary was made without an LLM, by this method or an earlier one."""
    return model.startswith(FAMILY)


def summarize(part: Part) -> str:
    """Return 2 to 4 sentences on a chunk: the prompt, then the most informative statements, without markdown, code and
    tool output; for a document section, its heading path and beginning. At most MAX_CHARS.
    """
    if part.section is not None and part.kind in {"document", "code"}:
        return _section_head(part)
    asked = next((s for s in part.segments if s.kind in _ASKING), None)
    lines = [_asked(asked.text)] if asked else []
    lines += telling_sentences(_said(part.segments), MAX_SENTENCES)
    if len(lines) < 2:
        lines.append(actions([s.text for s in part.segments if s.kind is SegmentKind.TOOL_INPUT]))
    printed = [s.text for s in part.segments if s.text.strip()]
    if printed and not any(lines):
        lines = [output_title(printed, part.prompt), *telling_sentences(prose("\n\n".join(printed)), MAX_SENTENCES - 1)]
    return shortened(" ".join(filter(None, lines)), MAX_CHARS) or shortened(part.prompt, PROMPT_CHARS) or part.kind


def _asked(text: str) -> str:
    """Return a prompt without the code beside it, unless there is little else."""
    said = prose(text)
    return shortened(" ".join(said) if title_of_sentences(said) else plain(" ".join(text.split())), PROMPT_CHARS)


def telling_sentences(said: Sequence[str], most: int) -> list[str]:
    """Return up to `most` of these sentences, in their order, chosen by SumBasic.

    Sums are exact: otherwise they would depend on the order of a set, which differs between processes.
    """
    found = [shortened(sentence, SENTENCE_CHARS) for sentence in said if len(sentence) >= MIN_SENTENCE]
    bags = [frozenset(word.lower() for word in _WORD.findall(sentence)) for sentence in found]
    frequency = Counter(word for bag in bags for word in bag)
    total = sum(frequency.values())
    probability = {word: count / total for word, count in frequency.items()}
    chosen: list[int] = []
    while len(chosen) < min(most, len(found)):
        rest = [n for n in range(len(found)) if n not in chosen]
        pick = max(rest, key=lambda n: (fsum(probability[w] for w in bags[n]) / max(len(bags[n]), 1), -n))
        chosen.append(pick)
        for word in bags[pick]:
            probability[word] **= 2
    return [found[n] for n in sorted(chosen)]


def _section_head(part: Part) -> str:
    """Return title and beginning; for code the beginning of the outline, which comes first."""
    text = part.segments[0].text if part.segments else ""
    first, _, rest = text.lstrip().partition("\n")
    body = rest if first.startswith("#") else text
    if part.kind == "document":
        body = " ".join(prose(body)) or body
    return shortened(f"{part.prompt}: {body}", MAX_CHARS) if body.strip() else shortened(part.prompt, MAX_CHARS)


def _said(segments: Sequence[Segment]) -> list[str]:
    """Return the sentences of statements, else of thinking and steering."""

    def of(kinds: Collection[SegmentKind]) -> list[str]:
        return [sentence for segment in segments if segment.kind in kinds for sentence in prose(segment.text)]

    return of({SegmentKind.STATEMENT}) or of({SegmentKind.THINKING, SegmentKind.STEERING})
