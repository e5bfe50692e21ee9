"""What a session, note or text says and does that may hold beyond it: observations, with verbatim quotes. Pure.

Only what a person says tells what the person wants; what tools, files and web pages say tells what was seen.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from anamnesis_pipeline.knowledge.error_signatures import error_line, is_error_of_program, signature_of
from anamnesis_pipeline.knowledge.utterances import Utterance
from anamnesis_pipeline.knowledge.wording import (
    ANNOUNCES,
    ASIDES,
    CHANGES,
    CHOOSES,
    CORRECTS,
    DECIDES,
    DECLARES,
    FIXED,
    FORBIDS,
    GIVES_REASON,
    GROUNDS,
    HEDGED,
    IDLE,
    NARRATES,
    ORDERS,
    OURS,
    PASSING,
    PAST,
    PLANS,
    PREFERS,
    REASONS,
    RECALLS,
    REPEATS,
    REPORTED,
    STATES,
    TELLS,
    TELLS_FIX,
    TENTATIVE,
    UNSOLVED,
    WE,
    WISHES,
)
from anamnesis_pipeline.model import RECORD_KIND, Episode, SegmentKind, content_id
from anamnesis_pipeline.parsing.claude_logs import commands
from anamnesis_pipeline.parsing.claude_logs.message_keys import call_of
from anamnesis_pipeline.parsing.text.plain_text import FENCE, is_prose
from anamnesis_pipeline.parsing.text.sentences import sentence_spans
from anamnesis_pipeline.store.knowledge_model import Observation, Signal

RULES = 11
"""Number of these rules; raised when they change, so that everything is observed again."""
NOTE_TYPES = frozenset({"decision", "preference", "fact", "lesson", "error", "procedure"})
MAX_QUOTE_CHARS = 400
MAX_REQUEST_CHARS = 200
MAX_PER_EPISODE = 40
MAX_PENDING = 8
"""Errors that wait for what fixes them, and calls that wait for their results, the latest ones."""
MIN_FIX_CHARS = 20
FIX_WITHIN = 60
"""Messages after an error in which its fix is looked for."""
STEPS = 3
"""Commands that make a sequence; longer ones are several of these."""

PERSONS = frozenset({SegmentKind.PROMPT, SegmentKind.STEERING, SegmentKind.CHANNEL})
_RESULTS = frozenset({SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})

CLAUDE = "claude"
"""Key of what Claude says, not a person."""
LOGS = re.compile(r"\b(?:docker|kubectl|podman|journalctl|systemctl status|gh run|heroku|flyctl|pm2)\b")
"""Commands that print what other programs just said, which may have failed."""
_EDITS = re.compile(r"(?:Multi|Notebook)?Edit\n|Write\n|str_replace\w*\n")
_EDITED = re.compile(r"^(?:file_path|notebook_path|path): [^\n]+", re.MULTILINE)
_AMOUNT = re.compile(r"\d")
_SELF = re.compile(
    r"\b(?:i|i['’]\w+|me|my|we|let|you|your|ich|wir|du|sie|je|nous|vous|yo|nosotros)\b|[^.]$", re.IGNORECASE
)
"""A sentence about who speaks or listens, or no whole one, tells of no state."""
_NAME = re.compile(r"[\w./:-]{5,}")
_LEAD = re.compile(
    r"^(?:(?:hey|hi|hm+|oh|ah|so|and|also|but|well|ok(?:ay)?|right|und|aber|y|et|mais)\b,? )+", re.IGNORECASE
)
"""Words in front of a sentence that tell nothing."""
MIN_TOLD = 4
"""Least words of what a person tells."""
_QUOTED_LINE = re.compile(r"^\s*>.*$", re.MULTILINE)
_QUOTED = re.compile(r"[\"“„«][^\"“”»]*[\"”“»]")
"""What is quoted is not what a person says."""
_MESSAGE = re.compile(r"-\w*m|--message.*")
"""The option after which a commit's message follows."""


@dataclass(slots=True)
class _Error:
    """An error that waits for what fixes it."""

    observation: Observation
    script: str
    since: int
    acted: Utterance | None = None
    is_gone: bool = False
    """The command that failed has worked since then."""
    told: tuple[Utterance, str] | None = None
    """What Claude said first after it had done something about it."""


@dataclass(slots=True)
class _Session:
    """What is open while a session is read."""

    found: list[Observation] = field(default_factory=list)
    errors: list[_Error] = field(default_factory=list)
    calls: dict[str, Utterance] = field(default_factory=dict)
    """Key of its message -> a call without a result."""
    ran: list[tuple[str, Utterance]] = field(default_factory=list)
    """Key of its message, and the call, for each command in order; one without output has no result."""
    failed: set[str] = field(default_factory=set)
    """Keys of the calls that failed."""
    is_begun: bool = False
    """Claude said or did something."""


def observations_of_session(utterances: Iterable[Utterance]) -> list[Observation]:
    """Return what is observed in a session.

    :param utterances: in order.
    """
    session = _Session()
    for place, said in enumerate(utterances):
        if said.kind in PERSONS and not said.is_agents:
            session.found += _of_person(said, is_begun=session.is_begun)
            _answered(session, said)
            _pasted(session, said, place)
            continue
        session.is_begun = True
        if said.kind is SegmentKind.STATEMENT:
            _explain(session, said, place)
            if not said.is_agents:
                session.found += _told_by_claude(said)
        elif said.kind is SegmentKind.TOOL_INPUT:
            _called(session, said)
        elif said.kind in _RESULTS:
            _returned(session, said, place)
    for error in list(session.errors):
        _end(session, error)
    session.found += _sequences(session)
    return _bounded(session.found)


def observations_of_note(episode: Episode) -> list[Observation]:
    """Return what a note or record says: all of it, if it is short."""
    text = (episode.raw_exchange or episode.summary).strip()
    quote = text if len(text) <= MAX_QUOTE_CHARS else ""
    if not quote and episode.summary and episode.summary in text[: MAX_QUOTE_CHARS * 2]:
        quote = episode.summary
    if not quote:
        return []
    kind = next((tag for tag in episode.tags if tag in NOTE_TYPES), "") if episode.kind == RECORD_KIND else episode.kind
    return [_observed(Signal.NOTE, kind, quote, episode)]


def observations_of_text(episode: Episode) -> list[Observation]:
    """Return the sentences of a text with authority."""
    found = [
        _observed(Signal.TOPIC, "", sentence, episode)
        for sentence in _sentences(episode.raw_exchange)
        if 12 <= len(sentence) <= MAX_QUOTE_CHARS
    ]
    return found[:MAX_PER_EPISODE]


def _observed(signal: Signal, key: str, quote: str, of: Episode) -> Observation:
    return Observation(signal, key, of.episode_id, quote, of.project, of.session_id, "", of.timestamp)


# --- what people and Claude say --------------------------------------------------------------------------


def _of_person(said: Utterance, *, is_begun: bool) -> Iterator[Observation]:
    spoken = list(_sentences(_QUOTED_LINE.sub("", FENCE.sub("\n", said.text))))
    for number, sentence in enumerate(spoken):
        if not 8 <= len(sentence) <= MAX_QUOTE_CHARS or IDLE.search(sentence) or sentence not in said.text:
            continue
        following = spoken[number + 1] if number + 1 < len(spoken) else ""
        reason = sentence if REASONS.search(sentence) else following if GIVES_REASON.match(following) else ""
        signal = _signal_of(_QUOTED.sub("", sentence), spoken[number - 1] if number else "", is_reasoned=bool(reason))
        if signal is Signal.CORRECTION and not is_begun and FORBIDS.match(_LEAD.sub("", sentence)):
            signal = Signal.PREFERENCE  # there is nothing to correct yet
        if signal is Signal.DECISION and not reason and GROUNDS.search(sentence):
            reason = sentence
        if signal is not Signal.REQUEST or len(sentence) <= MAX_REQUEST_CHARS:
            yield _said(signal, sentence, said, reason)


def _told_in(sentence: str) -> str:
    """Return what a sentence tells that says it is to be remembered; empty: it does not say so."""
    found = STATES.search(sentence)
    if found is None:
        return ""
    told = sentence[found.end() :] or sentence[: found.start()]
    is_aside = ASIDES.search(found[0]) is not None
    return "" if is_aside and (PASSING.search(told) or not DECLARES.search(told)) else told


def _signal_of(sentence: str, before: str, *, is_reasoned: bool) -> Signal:
    """Return what a person does by saying a sentence, by its form.

    :param before: the sentence before it.
    """
    told = _told_in(sentence) or (sentence if ANNOUNCES.search(before) else "")
    sentence = _LEAD.sub("", sentence)
    is_others = REPORTED.search(sentence) or HEDGED.search(sentence)
    is_passing = PASSING.search(sentence)
    is_told = len(told.split()) >= MIN_TOLD and not ORDERS.match(told)
    if not is_others and (is_told or (TELLS.search(sentence) and not (is_passing or CHANGES.search(sentence)))):
        return Signal.FACT
    is_corrected = CORRECTS.search(sentence)
    if is_corrected and is_corrected.start() == 0 and not is_reasoned:
        return Signal.CORRECTION
    is_grounded = is_reasoned or GROUNDS.search(sentence) is not None
    is_order = not OURS.search(sentence)
    is_chosen = (
        (DECIDES.search(sentence) and not (is_order and is_passing))
        or (is_grounded and (PLANS.search(sentence) or (CHOOSES.search(sentence) and not is_passing)))
        or (is_reasoned and WE.match(sentence) and not PAST.match(sentence))
    )
    if is_chosen and not TENTATIVE.search(sentence) and not is_others:
        return Signal.DECISION
    if is_corrected:
        return Signal.CORRECTION
    is_general = PREFERS.search(sentence) or (WISHES.search(sentence) and not ORDERS.match(sentence))
    is_wanted = is_general and not is_others and not (is_passing and not REPEATS.search(sentence))
    return Signal.PREFERENCE if is_wanted else Signal.REQUEST


def _told_by_claude(said: Utterance) -> Iterator[Observation]:
    """Yield what Claude tells of how something is now, and its decisions with their reason."""
    for sentence in _sentences(FENCE.sub("\n", said.text)):
        if not 20 <= len(sentence) <= MAX_QUOTE_CHARS or sentence not in said.text:
            continue
        if NARRATES.match(sentence) or IDLE.search(sentence):
            continue
        is_state = len(sentence) <= MAX_REQUEST_CHARS and (_AMOUNT.search(sentence) or not _SELF.search(sentence))
        if REASONS.search(sentence) and DECIDES.search(sentence) and is_prose(sentence):
            yield _said(Signal.DECISION, sentence, said, sentence, key=CLAUDE)
        elif (is_state or CHANGES.search(sentence)) and is_prose(sentence):
            yield _said(Signal.CHANGE, sentence, said, key=CLAUDE)


def _said(signal: Signal, quote: str, said: Utterance, reason: str = "", key: str = "") -> Observation:
    answer = reason if reason in said.text else ""
    return Observation(
        signal,
        key,
        said.episode_id,
        quote,
        said.project,
        said.session_id,
        said.message_id,
        said.at,
        answer,
        said.episode_id if answer else "",
    )


def _sentences(text: str) -> Iterator[str]:
    for start, end in sentence_spans(text):
        sentence = text[start:end].strip().lstrip("-*•> ").strip()
        if any(map(str.isalpha, sentence)):
            yield sentence


# --- what was done ---------------------------------------------------------------------------------------


def _called(session: _Session, call: Utterance) -> None:
    key = call.key.rpartition(":")[2]
    session.calls[key] = call
    if commands.script_of(call.text):
        session.ran.append((key, call))
    if len(session.calls) > MAX_PENDING:
        del session.calls[next(iter(session.calls))]


def _pasted(session: _Session, said: Utterance, place: int) -> None:
    """Take an error that a person shows: output stands in separate lines."""
    head, _, shown = said.text.partition("\n")
    line = error_line(shown) or (error_line(head) if is_error_of_program(head) else "")
    if line and len(line) <= MAX_QUOTE_CHARS and line in said.text:
        _failed(session, said, line, "", place)


def _answered(session: _Session, said: Utterance) -> None:
    """Take what was done, or else what Claude told last, for the fix of an error, unless a person says it is none."""
    for error in list(session.errors):
        if error.is_gone:
            _end(session, error)
        elif error.told is not None and not (UNSOLVED.search(said.text) or CORRECTS.search(said.text)):
            _settle(session, error, *error.told)
        else:
            error.acted = error.told = None


def _failed(session: _Session, said: Utterance, line: str, script: str, place: int) -> None:
    """Wait for what fixes an error; if it is one that has come before, nothing has yet."""
    key = signature_of(line)
    repeated = next((each for each in session.errors if each.observation.key == key), None)
    if repeated is not None:
        repeated.acted, repeated.told, repeated.since = None, None, place
        return
    session.errors.append(_Error(_said(Signal.ERROR, line, said, key=key), script, place))
    if len(session.errors) > MAX_PENDING:
        _end(session, session.errors[0])


def _returned(session: _Session, result: Utterance, place: int) -> None:
    """Take the result of a call: an error, or a success that may have fixed one."""
    call = session.calls.pop(_call_key(result), None)
    script = commands.script_of(call.text) if call is not None else ""
    may_fail = result.kind is SegmentKind.TOOL_ERROR or commands.matters(script) or LOGS.search(script)
    line = error_line(result.text) if may_fail else ""
    if line:
        session.failed.add(_call_key(result))
        _failed(session, result, line, script, place)
    elif result.kind is SegmentKind.TOOL_ERROR:
        session.failed.add(_call_key(result))
    elif call is not None:
        is_act = commands.matters(script) or _EDITS.match(call.text) is not None
        for error in session.errors:
            if script and script == error.script and error.acted is not None:
                error.is_gone = True
            elif not error.is_gone and place - error.since <= FIX_WITHIN and is_act:
                error.acted = call


def _call_key(result: Utterance) -> str:
    call = call_of(result.key.removeprefix("f:"))
    return content_id("tool_use", call) if call else ""


def _act_in(text: str) -> str:
    """Return, verbatim, what a call did: its script, or the file that it wrote."""
    found = _EDITED.search(text)
    return commands.script_of(text)[:MAX_QUOTE_CHARS] or (found[0].strip() if found else "")


def _explain(session: _Session, said: Utterance, place: int) -> None:
    """Take what Claude says after an error for its fix, where it says so."""
    for error in list(session.errors):
        names = set(_NAME.findall(error.observation.quote.lower()))
        for sentence in _sentences(FENCE.sub("\n", said.text)) if place - error.since <= FIX_WITHIN else ():
            if len(sentence) > MAX_QUOTE_CHARS or sentence not in said.text:
                continue
            is_about = error.acted is not None or not names.isdisjoint(_NAME.findall(sentence.lower()))
            is_known = RECALLS.search(sentence) is not None and len(sentence) >= MIN_FIX_CHARS
            is_fix = TELLS_FIX.search(sentence) or is_known or (is_about and FIXED.search(sentence))
            if is_fix and not UNSOLVED.search(sentence):
                _settle(session, error, said, sentence)
                break
            is_whole = len(sentence) >= MIN_FIX_CHARS and not (IDLE.search(sentence) or NARRATES.match(sentence))
            if error.acted is not None and error.told is None and is_whole and not UNSOLVED.search(sentence):
                error.told = said, sentence


def _settle(session: _Session, error: _Error, fixed: Utterance, answer: str) -> None:
    session.errors.remove(error)
    answer_id = fixed.episode_id if answer else ""
    session.found.append(replace(error.observation, answer=answer, answer_id=answer_id))


def _end(session: _Session, error: _Error) -> None:
    """Take what was done before the command worked again, or else what Claude told, for the fix."""
    if error.is_gone and error.acted is not None:
        _settle(session, error, error.acted, _act_in(error.acted.text))
    elif error.told is not None:
        _settle(session, error, *error.told)
    else:
        session.errors.remove(error)
        session.found.append(error.observation)


def steps_of(script: str) -> list[str]:
    """Return the commands of a script that change, build or test something, each as its program and what it does,
    without the names that it is done with.
    """
    found = []
    for name, rest, words in commands.commands_of(script):
        whole = " ".join(map(shlex.quote, words))
        if commands.matters(whole) or _CHECKS.match(whole):
            args = list(takewhile(lambda each: not _MESSAGE.fullmatch(each), rest))
            told = [
                word
                for before, word in zip(["", *args], args, strict=False)
                if word[:1] not in {"", "-", "/"} and not _TAKES_VALUE.fullmatch(before)
            ]
            most = 2 if told and told[0] in _GROUPS else 1
            found.append(" ".join([name, *(word for word in told[:most] if name in _RUNNERS or _DOES.fullmatch(word))]))
    return found


_CHECKS = re.compile(r"(?:curl|wget|http)\b.*(?:health|ready|status|ping|version)")
"""A request that asks whether a service works: the last step of many procedures."""
_TAKES_VALUE = re.compile(r"-[a-zA-Z]|--[\w-]+")
"""An option; what follows it is its value, not what the program does."""
_DOES = re.compile(r"[A-Za-z][\w:-]*")
_RUNNERS = frozenset("python python3 node ruby bash sh perl deno bun".split())
_GROUPS = frozenset("run rollout compose exec repo release pr image container stack config service migrate db".split())
"""Commands whose next word says what they do, as in `npm run build`."""


def _sequences(session: _Session) -> Iterator[Observation]:
    """Yield each few commands that succeeded one after the other."""
    done: list[tuple[str, Utterance]] = []
    for key, call in session.ran:
        steps = steps_of(commands.script_of(call.text))
        done += [("", call)] if key in session.failed else [(step, call) for step in steps]
    for start in range(len(done) - STEPS + 1):
        run = done[start : start + STEPS]
        names = [step for step, _ in run]
        if all(names) and len(set(names)) == STEPS:
            first, last = run[0][1], run[-1][1]
            quote, answer = (commands.script_of(each.text)[:MAX_QUOTE_CHARS] for each in (first, last))
            yield replace(
                _said(Signal.STEPS, quote, first, key=" && ".join(names)), answer=answer, answer_id=last.episode_id
            )


def _bounded(found: Sequence[Observation]) -> list[Observation]:
    """Return each once, at most so many of an episode."""
    counts: dict[str, int] = {}
    kept: dict[tuple[str, str, str, str], Observation] = {}
    for each in found:
        counts[each.episode_id] = counts.get(each.episode_id, 0) + 1
        if counts[each.episode_id] <= MAX_PER_EPISODE:
            kept.setdefault((each.signal, each.key, each.episode_id, each.quote), each)
    return list(kept.values())
