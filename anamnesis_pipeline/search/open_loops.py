"""Find open items and decisions with their reasons in a text. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from anamnesis_pipeline.parsing.text.sentences import beginning
from anamnesis_pipeline.search.reports import Topic, Unit, of_topic, told, units_of

MAX_LINES = 4
"""Limit per text."""
MAX_LINE_CHARS = 300
MIN_CHARS = 12
"""Minimum length of a decision."""
QUESTION_UNITS = 10
"""Sentences and items at the end of a message that are searched for its question."""

_DECIDED = re.compile(
    r"\b(?:we|i|you|they|it was|was|team|user)(?:'ve| have| has)? (?:decided|agreed|settled|opted|chose|picked)\b"
    r"|\bwent with\b|\bdecision\s*:|\b(?:let's|let us|we'll|we will|i'll|i will|we are|we're|i'm) (?:go|going) with\b"
    r"|\bi (?:need|have|had) to (?:rewrite|switch|fall back|work around|replace)\b"
    r"|\bseems like the best fit\b|\bis the (?:best|right|better) (?:fit|choice|option|approach)\b"
    r"|\b(?:kept|keeping|chose|switched|switching|moved|changed|replaced|used|using|rewrote|rewrite|opted)\b[^?]{3,120}"
    r"\b(?:instead|rather than)\b"
    r"|\b(?:kept|left|leaving|keeping) [^?]{3,80}\b(?:as (?:it )?is|unchanged|as (?:they|it) (?:are|was|were))\b",
    re.IGNORECASE,
)
_MAY_DECIDE = re.compile("deci|choice|agreed", re.IGNORECASE)
_WISHED = re.compile(
    r"\blet'?s (?:use|go|do|keep|start|stick|solve|not|make|switch|drop)\b"
    r"|\bwe (?:explicitly |really )?(?:do|don'?t|want|prefer)\b"
    r"|\bi(?:'d| would)(?: much)? (?:rather|prefer|love|like)\b|\binstead of\b|\brather than\b"
    r"|\bi think (?:we|that|the|it)\b[^?\n]{0,80}\b(?:should|needs?|wants?|must|same|enough)\b"
    r"|\bneeds? to be\b|\bit should\b|\bmust (?:not )?(?:be|have|stay|use)\b|^(?:don'?t|never|always|please use) \w+",
    re.IGNORECASE,
)
"""A person's wish; only where a person speaks."""
_WHY = re.compile(
    r"\b(?:because|since|so that|so we|otherwise|in order to|to (?:avoid|keep|prevent|make|ensure)|due to|as it"
    r"|reasons?|why)\b",
    re.IGNORECASE,
)
_IS_REASON = re.compile(
    r"(?:because|since|otherwise|this (?:way|keeps|avoids|means|makes|is)|that (?:way|keeps|avoids|makes|is)|it "
    r"(?:avoids|keeps|is|makes)|reason|why)\b",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"\b(?:not|never|cannot|fails?|failed|failing|broke|breaks|broken|missing|wrong|too \w+|only|bug)\b|n't\b",
    re.IGNORECASE,
)
_OFFERS = re.compile(r"\b(?:you|your|options?|questions?|which|shall|should|choose)\b", re.IGNORECASE)
"""A question to the user, or a heading over the user's options."""
_QUESTION = re.compile(
    r'"question":\s?"((?:[^"\\\n]|\\.){1,600})"|^questions\[\d{1,3}\]\.question: ([^\n]{1,600})', re.MULTILINE
)
_ANSWER = re.compile(r'"(?P<question>[^"\n]{1,600})"="(?P<answer>[^"\n]{1,600})"')
_TODOS = re.compile(r"^todos: (?P<todos>\[.*\])$", re.MULTILINE)
_TODO_VALUE = re.compile(r"^todos\[(\d{1,4})\]\.(content|status): ([^\n]{0,2000})", re.MULTILINE)
_TASK_MADE = re.compile(r"Task #(?P<number>\w+) created successfully: (?P<subject>[^\n]{1,300})")
_TASK_CHANGED = re.compile(r"^taskId: \"?(?P<number>\w+)\"?$", re.MULTILINE)
_TASK_STATUS = re.compile(r"^status: \"?(?P<status>\w+)\"?$", re.MULTILINE)
_ENDED = frozenset({"completed", "deleted", "cancelled"})


def open_loops(text: str, most: int = MAX_LINES) -> list[str]:
    """Return the lines with open items: those under a heading such as `Next steps`, unchecked boxes, and lines about
    something to do, blocked, unresolved, remaining or to be followed up. Checked boxes are left out.
    """
    return [beginning(unit.text, MAX_LINE_CHARS) for unit in left_open(units_of(text), most)]


def left_open(units: Sequence[Unit], most: int = MAX_LINES) -> list[Unit]:
    """Return the units of a message with open items."""
    return list(of_topic(units, Topic.OPEN))[:most]


def question_at_the_end(units: Sequence[Unit]) -> list[Unit]:
    """Return the question at the end of a message, with its options; empty: it does not end with a question."""
    last = units[-QUESTION_UNITS:]
    asks = [number for number, unit in enumerate(last) if unit.text.rstrip('"\u201d)*_ ').endswith(("?", "\uff1f"))]
    if not asks or asks[-1] < len(last) - (QUESTION_UNITS if _OFFERS.search(last[asks[-1]].text) else 2):
        return []
    leads = [n for n, unit in enumerate(last[: asks[-1]]) if unit.text.endswith(":") or _OFFERS.search(unit.label)]
    if not leads:
        return list(last[asks[-1] :])
    label = last[leads[-1]].label
    begin = next((n for n, unit in enumerate(last) if label and unit.label == label), leads[-1])
    return list(last[begin:])


def decisions_in(text: str, most: int = MAX_LINES, *, by_person: bool = False) -> list[str]:
    """Return the sentences with a decision, each with the reason beside it.

    :param by_person: a person speaks, whose wishes are decisions.
    """
    if not (_MAY_DECIDE.search(text) or _DECIDED.search(text) or (by_person and _WISHED.search(text))):
        return []
    units, found = units_of(text), list[str]()
    for number, unit in enumerate(units):
        is_wish = by_person and _WISHED.search(unit.text) is not None
        if not (unit.topic is Topic.DECIDED or is_wish or _DECIDED.search(unit.text)) or len(unit.text) < MIN_CHARS:
            continue
        if unit.text.endswith("?") and not by_person:
            continue
        reasoned = [each for each in _with_reason(units, number) if not any(each.text in other for other in found)]
        said = told(Unit(beginning(each.text, MAX_LINE_CHARS)) for each in reasoned)
        if unit in reasoned:
            found.append(said)
        if len(found) == most:
            break
    return found


def _with_reason(units: Sequence[Unit], number: int) -> Sequence[Unit]:
    """Return a decision with the next sentence if it gives the reason, or the previous one if it names the problem."""
    before, unit, behind = units[:number][-1:], units[number], units[number + 1 : number + 2]
    if unit.text.endswith(":"):
        return [unit, *takewhile(lambda each: each.is_item, units[number + 1 : number + 1 + MAX_LINES])]
    if _WHY.search(unit.text):
        return [unit]
    if behind and (_IS_REASON.match(behind[0].text) or _IS_REASON.fullmatch(behind[0].label)):
        return [unit, *behind]
    is_trouble = bool(before) and before[0].label == unit.label and _TROUBLE.search(before[0].text) is not None
    return [*before, unit] if is_trouble and unit.topic is not Topic.DECIDED else [unit]


def questions_in(text: str) -> list[str]:
    """Return the questions that Claude asks with its tool for that."""
    return [found[1] or found[2] for found in _QUESTION.finditer(text)] if is_question(text) else []


def is_question(text: str) -> bool:
    """Return whether the input of a tool asks the user."""
    return text.startswith("AskUserQuestion\n")


def answers_in(text: str) -> list[str]:
    """Return the questions that a person answered with an option, each with it, from the result of that tool."""
    return [f"{found['question']} {found['answer']}" for found in _ANSWER.finditer(text)]


def todos_left(texts: Iterable[str]) -> list[str]:
    """Return the open items in the to-do list of a session.

    :param texts: the inputs and results of its tools, oldest first.
    """
    found: dict[str, str] = {}
    """Number of a task, or its place in the list -> its text."""
    for text in texts:
        if text.startswith("TodoWrite\n"):
            found = {str(number): todo for number, todo in enumerate(_todos_open(text))}
        elif made := _TASK_MADE.match(text):
            found[made["number"]] = made["subject"].strip()
        elif text.startswith("TaskUpdate\n"):
            number, status = _TASK_CHANGED.search(text), _TASK_STATUS.search(text)
            if number and status and status["status"] in _ENDED:
                found.pop(number["number"], None)
    return [beginning(todo, MAX_LINE_CHARS) for todo in found.values()]


def _todos_open(text: str) -> Iterator[str]:
    """Yield the open items of a list, in either form of a tool's input: JSON, or one value per line."""
    values: dict[str, dict[str, str]] = {}
    for number, name, value in _TODO_VALUE.findall(text):
        values.setdefault(number, {})[name] = value
    listed: list[Any] = list(values.values())
    if found := _TODOS.search(text):
        try:
            listed = json.loads(found["todos"])
        except ValueError:
            return
    for todo in listed:
        if isinstance(todo, dict) and isinstance(todo.get("content"), str) and todo.get("status") not in _ENDED:
            yield todo["content"]
