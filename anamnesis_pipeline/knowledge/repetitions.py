"""Detectors of what happens again in another session: errors with their fix, corrections, and steps that worked."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from anamnesis_pipeline.knowledge.detecting import Memory, headline, quoted, sessions_in
from anamnesis_pipeline.knowledge.error_signatures import is_like_error, is_same_error
from anamnesis_pipeline.knowledge.observing import STEPS
from anamnesis_pipeline.knowledge.statements import claim_of
from anamnesis_pipeline.knowledge.topic_files import LESSONS, Lesson, lesson_entry
from anamnesis_pipeline.knowledge.wording import RECALLS, TELLS_FIX
from anamnesis_pipeline.store.knowledge_model import (
    Change,
    Kind,
    NewRecord,
    Observation,
    Proposal,
    Signal,
    TopicEdit,
    dated,
)

MAX_QUOTED = 4
"""Sessions that a proposal quotes."""
ERRORS = "Errors"
"""Heading of lessons about errors."""
TRIVIAL = frozenset(
    """git mkdir rm mv cp touch chmod kill pkill cat echo sleep cd source export pytest curl tar unzip ssh scp code open
    """.split()
)
"""Programs that everyone runs: a sequence of these alone is no procedure."""
_QUOTED_NAME = re.compile(r"['\"`]([\w.@/:-]+)['\"`]")
SAME_FIX = 3
"""Words that tell that two fixes are the same."""
OWN_STEPS = 2
"""Different steps of other programs that a procedure has."""
TOLD = 0.75
"""Share of the steps that a text names, from which on it tells the procedure."""
_WORD = re.compile(r"[\w:./-]*\w")
JOIN = " && "
"""Between the commands in the key of a sequence."""


class RepeatedErrors:
    """The same error in two separate sessions, with what fixed it in one of them."""

    kind = Kind.LESSON
    signals = (Signal.ERROR,)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield a lesson for each error that has come again."""
        keyed = {(each.project, each.key): each for each in fresh if each.key}.values()
        first = {min(_again(memory, of), key=lambda each: each.number, default=of) for of in keyed}
        for of in sorted({(each.project, each.key): each for each in first}.values(), key=lambda each: each.number):
            found = _again(memory, of)
            fixed = [each for each in found if each.answer]
            if len(sessions_in(found)) < 2 or not fixed:
                continue
            shown = _one_of_each_session(found)
            fix = max(fixed, key=lambda each: (TELLS_FIX.search(each.answer) is not None, str(each.at)))
            evidence = dated([piece for each in (*shown, fix) for piece in quoted(each)])
            quote = shown[-1].quote  # it tells only what it quotes, so that it goes with what is forgotten
            lesson = Lesson(quote, fixed_by=fix.answer)
            yield Proposal(
                self.kind,
                of.project,
                f"lesson {of.project} {of.key}",
                headline(f"Repeated error: {quote}"),
                Change(topic=TopicEdit(LESSONS, ERRORS, lesson_entry(lesson))),
                tuple(dict.fromkeys(evidence)),
                min(0.95, 0.7 + 0.1 * (len(sessions_in(found)) - 1) + 0.1 * (len(fixed) > 1)),
                "repeated_errors",
                memory.now,
            )


def _again(memory: Memory, of: Observation) -> list[Observation]:
    """Return the observations of an error, in all its lines."""
    others = [each for each in memory.errors(of.project) if each.key != of.key and is_again(of, each)]
    return [*memory.same(of), *others]


def is_again(of: Observation, other: Observation) -> bool:
    """Return whether two errors, whose lines differ, are the same: one line says more, or most of their words are the
    same and so is what fixed them.
    """
    is_same = is_same_error(of.key, other.key)
    if not is_same and not is_like_error(of.key, other.key):
        return False
    quoted_names = [set(_QUOTED_NAME.findall(each.quote)) for each in (of, other)]
    if all(quoted_names) and quoted_names[0].isdisjoint(quoted_names[1]):
        return False  # one lacks this module, the other that
    fixes = [claim_of(each.answer).stems for each in (of, other)]
    is_known = any(RECALLS.search(each.answer) for each in (of, other))
    return is_same or is_known or len(fixes[0] & fixes[1]) >= SAME_FIX


class RepeatedSteps:
    """The same commands, one after the other, that succeeded in two separate sessions."""

    kind = Kind.PATTERN
    signals = (Signal.STEPS,)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield a procedure for each sequence that came again."""
        again: dict[str, list[Observation]] = {}
        for of in fresh:
            found = memory.same(of)
            if len(sessions_in(found)) >= 2:
                again.setdefault(of.session_id, []).append(of)
        done: set[tuple[str, str]] = set()
        for found in again.values():
            for run in _joined(found):
                steps = _steps_of(run)
                own = [step for step in dict.fromkeys(steps) if step.split(" ")[0] not in TRIVIAL]
                if len(own) >= OWN_STEPS and (run[0].project, run[0].key) not in done:
                    done.update((each.project, each.key) for each in run)
                    if not _is_told(memory, run[0], own):
                        yield self._procedure(memory, run, steps)

    def _procedure(self, memory: Memory, run: Sequence[Observation], steps: Sequence[str]) -> Proposal:
        shown = [each for of in (run[0], run[-1]) for each in _one_of_each_session(memory.same(of))]
        shown += run[STEPS:-1:STEPS]  # each step is quoted, and goes with what is forgotten
        lines = "\n".join(f"{number}. `{step}`" for number, step in enumerate(steps, 1))
        evidence = [quote for each in shown for quote in quoted(each)]
        return Proposal(
            self.kind,
            run[0].project,
            f"pattern {run[0].project} {' && '.join(steps)}",
            headline(f"Procedure: {', '.join(steps)}"),
            Change(record=NewRecord("procedure", f"Steps that worked in several sessions:\n{lines}")),
            tuple(dict.fromkeys(dated(evidence))),
            0.9,
            "repeated_steps",
            memory.now,
        )


def _is_told(memory: Memory, of: Observation, steps: Sequence[str]) -> bool:
    """Return whether a note or topic names nearly all of these steps already."""
    words: dict[str, set[str]] = {}
    for near in memory.statements(of.project).near(replace(of, quote=", ".join(steps)), [Signal.NOTE, Signal.TOPIC]):
        words.setdefault(near.observation.episode_id, set()).update(_WORD.findall(near.observation.quote.lower()))
    named = [set(step.lower().split()) for step in steps]
    return any(sum(each <= told for each in named) >= TOLD * len(named) for told in words.values())


def _joined(found: Sequence[Observation]) -> list[list[Observation]]:
    """Return the observations of a session in runs of which each goes on where the one before does."""
    runs: list[list[Observation]] = []
    for of in sorted(found, key=lambda each: each.number):
        if runs and runs[-1][-1].key.split(JOIN)[1:] == of.key.split(JOIN)[:-1]:
            runs[-1].append(of)
        else:
            runs.append([of])
    return runs


def _steps_of(run: Sequence[Observation]) -> list[str]:
    return [*run[0].key.split(JOIN), *(of.key.split(JOIN)[-1] for of in run[1:])]


def _one_of_each_session(found: Sequence[Observation]) -> list[Observation]:
    """Return the last of each session, the oldest session first, at most a few of them: the first and the latest."""
    by_session = {each.session_id or each.episode_id: each for each in sorted(found, key=lambda each: str(each.at))}
    each_once = list(by_session.values())
    return [*each_once[:1], *each_once[1:][-MAX_QUOTED + 1 :]]
