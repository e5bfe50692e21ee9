"""Detectors of what happens again in another session: errors with their fix, corrections, and steps that worked."""

from collections.abc import Iterator, Sequence

from anamnesis_pipeline.knowledge.detecting import Memory, quoted, sessions_in
from anamnesis_pipeline.knowledge.topic_files import LESSONS, Lesson, lesson_entry
from anamnesis_pipeline.store.knowledge_model import (
    Change,
    Evidence,
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
TITLE_CHARS = 100
ERRORS = "Errors"
"""Heading of lessons about errors."""
TRIVIAL = frozenset(
    """git mkdir rm mv cp touch chmod kill pkill cat echo sleep cd source export pytest curl tar unzip ssh scp code open
    """.split()
)
"""Programs that everyone runs: a sequence of these alone is no procedure."""


class RepeatedErrors:
    """The same error in two separate sessions, with what fixed it in one of them."""

    kind = Kind.LESSON
    signals = (Signal.ERROR,)

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield a lesson for each error that has come again."""
        for of in {(each.project, each.key): each for each in fresh if each.key}.values():
            found = memory.same(of)
            fixed = [each for each in found if each.answer]
            if len(sessions_in(found)) < 2 or not fixed:
                continue
            shown = _one_of_each_session(found)
            fix = max(fixed, key=lambda each: str(each.at))
            evidence = dated([piece for each in (*shown, fix) for piece in quoted(each)])
            lesson = Lesson(of.quote, fixed_by=fix.answer, check=f"met in {len(sessions_in(found))} sessions")
            yield Proposal(
                self.kind,
                of.project,
                f"lesson {of.project} {of.key}",
                f"Repeated error: {of.quote}"[:TITLE_CHARS],
                Change(topic=TopicEdit(LESSONS, ERRORS, lesson_entry(lesson))),
                tuple(dict.fromkeys(evidence)),
                min(0.95, 0.7 + 0.1 * (len(sessions_in(found)) - 1) + 0.1 * (len(fixed) > 1)),
                "repeated_errors",
                memory.now,
            )


class RepeatedSteps:
    """The same commands, one after the other, that succeeded in two separate sessions."""

    kind = Kind.PATTERN
    signals = (Signal.STEPS,)

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield a procedure for each sequence that came again and is not stored as one."""
        done: set[tuple[str, str]] = set()
        for of in fresh:
            names = of.key.split(" && ")
            is_own = sum(name.split(" ")[0] not in TRIVIAL for name in names) >= 2
            if not is_own or (of.project, of.key) in done:
                continue
            done.add((of.project, of.key))
            found = memory.same(of)
            if len(sessions_in(found)) < 2:
                continue
            shown = _one_of_each_session(found)
            text = "Steps that worked in {} sessions:\n{}".format(
                len(sessions_in(found)), "\n".join(f"{n}. `{name}`" for n, name in enumerate(names, 1))
            )
            yield Proposal(
                self.kind,
                of.project,
                f"pattern {of.project} {of.key}",
                f"Procedure: {', '.join(names)}"[:TITLE_CHARS],
                Change(record=NewRecord("procedure", text)),
                tuple(dict.fromkeys(_of_steps(shown))),
                0.9,
                "repeated_steps",
                memory.now,
            )


def _of_steps(shown: Sequence[Observation]) -> list[Evidence]:
    return [Evidence(each.episode_id, each.quote, each.message_id, each.at) for each in shown]


def _one_of_each_session(found: Sequence[Observation]) -> list[Observation]:
    """Return the last of each session, the oldest session first, at most a few of them: the first and the latest."""
    by_session = {each.session_id or each.episode_id: each for each in sorted(found, key=lambda each: str(each.at))}
    each_once = list(by_session.values())
    return [*each_once[:1], *each_once[1:][-MAX_QUOTED + 1 :]]
