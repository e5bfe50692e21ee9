"""The value of a chunk for memory, with its reasons: separates routine from lessons. Pure.

Some signals are words, in English; the others work for any language: turns, failures, changes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from anamnesis_pipeline.model import Part, Segment, SegmentKind

WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "correction": 3.0,
        "one_error": 1.0,
        "errors": 2.0,
        "one_decision": 0.5,
        "decisions": 2.0,
        "tool_error": 1.5,
        "fix": 1.0,
        "interruption": 1.0,
        "edits": 0.5,
        "long": 0.5,
        "longer": 0.5,
        "turns": 1.0,
    }
)
"""Points of each rule unless settings change them. `errors` and `decisions` need two or more, `long` more than
LONG_CHARS, and `longer`, for more than LONGER_CHARS, is added on top.
"""
MIN_VALUE = 0.5
"""An exchange with a lower value is routine, unless settings change this."""
LONG_CHARS, LONGER_CHARS = 2_000, 5_000
MANY_TURNS = 4
WRITTEN_DOWN, CURATED = 1.0, 4.0
"""Points of a section of a document, which is no routine, and of a curated one."""
TOOL_CHARS = 500
"""Characters of one tool's input or output that count as length: a long listing is no long conversation."""
SHORT_TURN_CHARS = 200
"""A user turn of at most this length that begins with a negation corrects the previous statement."""

EXPLANATIONS = {
    "correction": "the user corrected what Claude had said or done",
    "errors": "errors were talked about or shown",
    "decisions": "something was decided",
    "tool_error": "a tool failed",
    "fix": "something was changed after a tool failed, and it worked then",
    "interruption": "the user interrupted Claude, or refused a tool",
    "edits": "files were changed",
    "length": "there is much text",
    "document": "it is a section of a document",
    "curated": "it was written down to be remembered: a CLAUDE.md, a memory file, a handoff",
    "turns": f"Claude spoke or acted at least {MANY_TURNS} times",
}
"""Meaning of each signal, as `anamnesis value` prints it."""

_USER = frozenset({SegmentKind.PROMPT, SegmentKind.STEERING, SegmentKind.CHANNEL})
_SAID = _USER | {SegmentKind.STATEMENT}
_ACTS = frozenset({SegmentKind.STATEMENT, SegmentKind.TOOL_INPUT})
_TOOL = frozenset({SegmentKind.TOOL_INPUT, SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})
_NOT_CONTENT = frozenset(
    {
        SegmentKind.COMPACT_SUMMARY,
        SegmentKind.RECAP,
        SegmentKind.NOTIFICATION,
        SegmentKind.COMMAND,
        SegmentKind.SKILL,
    }
)

_EDIT_TOOLS = ("Edit\n", "MultiEdit\n", "Write\n", "NotebookEdit\n")
_ASKING_TOOLS = ("AskUserQuestion\n", "ExitPlanMode\n")
_INTERRUPTED = "[Request interrupted by user"
_REFUSED = "The user doesn't want to proceed with this tool use"

_CORRECTING = re.compile(
    r"\b(?:that(?:'s| is| was) (?:not|wrong|incorrect)|(?:that|this|it) (?:is|was)n't what|not what I|"
    r"I (?:said|told you|meant)|you (?:forgot|missed|misunderstood|broke|should(?:n't)? have|were supposed)|"
    r"don't do that|(?:please )?(?:undo|revert) (?:that|this|it|your)|"
    r"still (?:doesn't|does not|isn't|not|fails?|failing|broken)|"
    r"instead of (?:that|what you))\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\s*(?:no|nope|wrong|stop|wait|don't|do not|never|actually|not|"  # English
    r"nein|nicht|falsch|halt|non|pas|faux|arrête|no es|mal|não|errado|niet|fout|nej|inte|fel|ikke|ei|"
    r"nie|źle|ne|нет|не|неправильно|ні|hayır|yanlış|không|tidak|salah|"
    r"いいえ|違|ちがう|やめて|不|没|錯|错|別|别|아니|틀렸|لا|خطأ|לא|नहीं|गलत|όχι|λάθος)(?![A-Za-zÀ-ÿА-я])",
    re.IGNORECASE,
)
_ERROR_WORDS = re.compile(
    r"\b(?:bugs?|errors?|exceptions?|tracebacks?|crash(?:ed|es)?|fail(?:s|ed|ing|ures?)?|broken|root cause|"
    r"regressions?|(?:does|did)(?:n't| not) work|segfaults?|deadlocks?|race conditions?)\b",
    re.IGNORECASE,
)
_ERROR_OUTPUT = re.compile(
    r"^(?:Traceback \(most recent call last\)|[\w.]*(?:Error|Exception)\b: |panic: |fatal: |FAILED\b|"
    r"\s+at \S+\(.*:\d+\)$)|\bexit(?:ed with)? (?:code|status):? [1-9]",
    re.MULTILINE,
)
_DECISION_WORDS = re.compile(
    r"\b(?:decid(?:ed?|ing)|decisions?|let's (?:go with|use|keep|do|not)|"
    r"(?:we|I)(?:'ll| will| should) (?:use|go with|keep|switch)|rather than|"
    r"instead of|chose|opted|trade-?offs?|prefer(?:red|ably)?|agreed|from now on|always use|never use)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Value:
    """The sum of the signals' points; `signals` holds those that counted, in points each."""

    score: float
    signals: Mapping[str, float]


def value_of(part: Part, weights: Mapping[str, float] = WEIGHTS) -> Value:
    """Return the value of a chunk: 0 for pure machinery, above 10 for a corrected, long and failing one.

    :param weights: points of every rule in `WEIGHTS`; 0 turns it off.
    """
    if part.section is not None and part.kind in {"document", "code"}:
        name, worth = ("curated", CURATED) if part.section.trust == "curated" else ("document", WRITTEN_DOWN)
        return Value(worth, {name: worth})
    segments = [segment for segment in part.segments if segment.kind not in _NOT_CONTENT]
    length = sum(min(len(s.text), TOOL_CHARS) if s.kind in _TOOL else len(s.text) for s in segments)
    points = {
        "correction": weights["correction"] if _is_corrected(segments, bool(part.lead)) else 0.0,
        "errors": _of_count(_errors(segments), weights["one_error"], weights["errors"]),
        "decisions": _of_count(_decisions(segments), weights["one_decision"], weights["decisions"]),
        "tool_error": weights["tool_error"] if any(s.kind is SegmentKind.TOOL_ERROR for s in segments) else 0.0,
        "fix": weights["fix"] if _is_fixed(segments) else 0.0,
        "interruption": weights["interruption"] if _is_interrupted(part.segments) else 0.0,
        "edits": weights["edits"] if any(_is_edit(s) for s in segments) else 0.0,
        "length": weights["long"] * (length > LONG_CHARS) + weights["longer"] * (length > LONGER_CHARS),
        "turns": weights["turns"] if len({s.message_key for s in segments if s.kind in _ACTS}) >= MANY_TURNS else 0.0,
    }
    signals = {name: worth for name, worth in points.items() if worth}
    return Value(sum(signals.values()), signals)


def _of_count(count: int, one: float, more: float) -> float:
    return more if count > 1 else one if count else 0.0


def _is_corrected(segments: Sequence[Segment], has_lead: bool) -> bool:
    """Return whether a user turn takes back the previous statement."""
    answers_something = has_lead
    for segment in segments:
        if segment.kind in _USER and not segment.start:
            is_reply = answers_something or segment.kind is SegmentKind.STEERING
            is_short_no = len(segment.text) <= SHORT_TURN_CHARS and _NEGATION.match(segment.text)
            if is_reply and (is_short_no or _CORRECTING.search(segment.text)):
                return True
        answers_something = answers_something or segment.kind in _ACTS
    return False


def _errors(segments: Iterable[Segment]) -> int:
    return sum(
        len(_ERROR_WORDS.findall(s.text)) if s.kind in _SAID else len(_ERROR_OUTPUT.findall(s.text))
        for s in segments
        if s.kind in _SAID or s.kind in (SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR)
    )


def _decisions(segments: Iterable[Segment]) -> int:
    return sum(
        len(_DECISION_WORDS.findall(s.text)) if s.kind in _SAID else s.text.startswith(_ASKING_TOOLS)
        for s in segments
        if s.kind in _SAID or s.kind is SegmentKind.TOOL_INPUT
    )


def _is_edit(segment: Segment) -> bool:
    return segment.kind is SegmentKind.TOOL_INPUT and not segment.start and segment.text.startswith(_EDIT_TOOLS)


def _is_fixed(segments: Iterable[Segment]) -> bool:
    """Return whether a tool failed, something was edited later, and then a tool succeeded."""
    step = 0
    for segment in segments:
        if segment.kind is SegmentKind.TOOL_ERROR:
            step = 1
        elif step == 1 and _is_edit(segment):
            step = 2
        elif step == 2 and segment.kind is SegmentKind.TOOL_RESULT:
            return True
    return False


def _is_interrupted(segments: Iterable[Segment]) -> bool:
    return any(
        (s.kind is SegmentKind.NOTIFICATION and s.text.startswith(_INTERRUPTED))
        or (s.kind is SegmentKind.TOOL_ERROR and s.text.startswith(_REFUSED))
        for s in segments
    )
