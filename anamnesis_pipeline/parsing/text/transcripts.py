"""Transcripts: conversations with a speaker line above each message, written and read back. Pure."""

import re
from collections.abc import Sequence
from enum import StrEnum

from anamnesis_pipeline.model import Segment, SegmentKind
from anamnesis_pipeline.parsing.text.sentences import sentence_spans

ASSISTANT = "Claude"
SPEAKERS = {
    SegmentKind.PROMPT: "User",
    SegmentKind.STEERING: "User, while Claude was working",
    SegmentKind.STATEMENT: ASSISTANT,
    SegmentKind.THINKING: "Claude, thinking",
    SegmentKind.TOOL_INPUT: "Tool call",
    SegmentKind.TOOL_RESULT: "Tool result",
    SegmentKind.TOOL_ERROR: "Tool error",
    SegmentKind.AGENT_PROMPT: "Task for the subagent",
    SegmentKind.NOTIFICATION: "Notification",
    SegmentKind.CHANNEL: "User, through a channel",
    SegmentKind.PEER: "Message of another session or agent",
    SegmentKind.MACHINE_PROMPT: "Prompt sent by Claude Code",
    SegmentKind.PLAN: "Plan of Claude, accepted by the user",
    SegmentKind.SKILL: "Instructions of a skill",
    SegmentKind.RECAP: "Recap made by Claude Code",
    SegmentKind.COMMAND: "Command",
    SegmentKind.COMPACT_SUMMARY: "Summary made by Claude Code",
    SegmentKind.DOCUMENT: "Text",
    SegmentKind.OUTLINE: "Outline",
    SegmentKind.CODE: "Code",
}
_NAMES = "|".join(map(re.escape, SPEAKERS.values()))
_MARK = re.compile(rf"\n\n\[({_NAMES})(?: \([^\n]*\))?(, continued)?\]\n")
"""Matched after two line breaks, also at the start: a literal prefix is found fast."""
_KINDS = {speaker: kind for kind, speaker in SPEAKERS.items()}
_OF_TOOLS = frozenset({SegmentKind.TOOL_INPUT, SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})
ANNOUNCEMENT_CHARS = 80
"""Max characters of a sentence that may announce a tool call: `Now run the tests:`."""
_PLANS = re.compile(
    r"\W*(?:now|next|then|first|step \d|let me|let's|let us|i'll|i will|i'm going|jetzt|als nächstes|ich werde)\b",
    re.IGNORECASE,
)


class Voice(StrEnum):
    """Speaker of a run of a transcript."""

    PERSON = "person"
    CONCLUSION = "conclusion"
    """Claude's last statement before the user's next message or the end of the chunk."""
    STATEMENT = "statement"
    OTHER = "other"
    """Thinking, tool calls and output, announcements of calls, notices, and text sent by programs."""


_VOICES = {
    SegmentKind.PROMPT: Voice.PERSON,
    SegmentKind.STEERING: Voice.PERSON,
    SegmentKind.CHANNEL: Voice.PERSON,
    SegmentKind.STATEMENT: Voice.STATEMENT,
    SegmentKind.PLAN: Voice.STATEMENT,
}


def transcript(segments: Sequence[Segment], assistant: str = ASSISTANT) -> str:
    """Return the verbatim text of a chunk, each message below a line with its speaker.

    :param assistant: the name of the model that answered.
    """
    speakers, blocks = SPEAKERS | {SegmentKind.STATEMENT: assistant}, []
    for segment in segments:
        continued = ", continued" if segment.start else ""
        sender = f" ({segment.sender})" if segment.sender else ""
        blocks.append(f"[{speakers[segment.kind]}{sender}{continued}]\n{segment.text}")
    return "\n\n".join(blocks)


def voices_in(text: str) -> list[tuple[Voice, str]]:
    """Return the runs of a transcript in order, each with its voice; empty without speaker lines."""
    text = f"\n\n{text}"
    marks = list(_MARK.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
    runs: list[tuple[Voice, str]] = []
    is_last = True  # whether no tool runs between this run and the end of the turn
    for mark, end in zip(reversed(marks), reversed(ends), strict=True):
        kind = _KINDS[mark[1]]
        voice = _VOICES.get(kind, Voice.OTHER)
        if kind not in (SegmentKind.STATEMENT, SegmentKind.THINKING):
            is_last = kind not in _OF_TOOLS
        said = text[mark.end() : end].strip("\n")
        if voice is Voice.STATEMENT and is_last:
            voice = Voice.CONCLUSION
        elif kind is SegmentKind.STATEMENT and not mark[2] and _announces(said):
            voice = Voice.OTHER
        runs.append((voice, said))
    return runs[::-1]


def _announces(said: str) -> bool:
    """Return whether a statement before a tool call only announces it."""
    if len(said) >= ANNOUNCEMENT_CHARS or not (said.rstrip("*_` ").endswith(":") or _PLANS.match(said)):
        return False
    return len(sentence_spans(said)) == 1


def voice_shares(text: str, runs: Sequence[tuple[Voice, str]]) -> dict[Voice, float]:
    """Return each voice's share of a passage, by characters of its lines; empty if no run contains it.

    :param runs: of the transcript from which the passage was chunked.
    """
    for voice, run in runs:
        if text in run:
            return {voice: 1.0}
    lines = [(voice, frozenset(run.split("\n"))) for voice, run in runs]
    counts: dict[Voice, int] = {}
    for line in text.split("\n"):
        of_line = next((voice for voice, known in lines if line in known), None)
        if of_line is not None and line.strip():
            counts[of_line] = counts.get(of_line, 0) + len(line)
    whole = sum(counts.values())
    return {voice: count / whole for voice, count in counts.items()} if whole else {}
