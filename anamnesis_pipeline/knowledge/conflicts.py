"""Detectors of statements that cannot both hold: superseded notes, contradictions, and doubts about old ones."""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

from anamnesis_pipeline.knowledge.detecting import TITLE_CHARS, Memory, Near, headline
from anamnesis_pipeline.knowledge.observing import CLAUDE
from anamnesis_pipeline.knowledge.opposing import ASKS, DENIES, TAKES_UP, ends_name, lacks, opposes
from anamnesis_pipeline.knowledge.statements import claim_of, conflicts, narrows
from anamnesis_pipeline.knowledge.wording import CORRECTION, ORDERS, PASSING, REASONS, REJECTED, TENTATIVE, WORK
from anamnesis_pipeline.model import Status
from anamnesis_pipeline.store.knowledge_model import (
    Change,
    Evidence,
    Kind,
    Observation,
    Proposal,
    Signal,
    StatusEdit,
    dated,
)

SHARED = 0.45
"""Least share of the shorter statement's words that both have."""
AKIN = 0.55
"""Least cosine of two statements on the same subject."""
TAKEN_UP = 0.35
"""Both, where the newer one wants what the older one turned down, or says that it is a correction."""
SAME_THING = 0.9
"""Least sum of both for what is opposed: few shared words need a near meaning, and models know few languages."""
SAME_WORDS = 0.7
"""The same where it is opposed in the words of the older one."""
OLD = timedelta(days=30)
"""Age from which on a statement is doubted when something newer speaks against it."""
_REMOVES = re.compile(
    r"\b(?:remove|delete|drop|get rid|clean up|entferne|lösche|quita|borra|supprime)\b", re.IGNORECASE
)
"""A request to remove something states nothing of it."""
_WANTED = frozenset({"decision", "preference"})
"""Types of notes that say how a person wants it."""
_SAID = (Signal.DECISION, Signal.PREFERENCE, Signal.FACT, Signal.CORRECTION, Signal.REQUEST)


_HELD = (Signal.TOPIC, Signal.NOTE, Signal.DECISION, Signal.PREFERENCE, Signal.CORRECTION, Signal.REQUEST)
_ASKED = (Signal.PREFERENCE, Signal.CORRECTION, Signal.REQUEST)
_CLAUSES = re.compile(r"[,;:.]\s+")
NAMED = 0.15
"""Least share of the shorter statement's words, and least cosine, where a name that the older one has is no more."""
ASKED_BACK, WANTED_AGAIN = 0.15, 0.25
"""Least share, where a person turns down what a person asked for, and where one asks for what was turned down."""


class SupersededNotes:
    """A newer note, or decision with its reason, that says something else on the subject of an older one."""

    kind = Kind.SUPERSEDE
    signals = (Signal.NOTE, Signal.DECISION, Signal.FACT)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each older statement that a newer one corrects; either may be the new one here."""
        for of in memory.holding(fresh):
            for near in memory.statements(of.project).near(of, self.signals):
                older, newer = sorted((of, near.observation), key=lambda each: str(each.at))
                if why := supersedes(newer, older, near):
                    # of a session all else that was said still holds
                    status = Status.SUPERSEDED if older.signal is Signal.NOTE else Status.CHALLENGED
                    change = Change((StatusEdit(older.episode_id, status, newer.episode_id),))
                    yield _proposal(self.kind, older, newer, change, near, memory, "superseded_notes", why)


def supersedes(newer: Observation, older: Observation, near: Near) -> str:
    """Return why a later note, fact or reasoned decision takes the place of an earlier one; empty: it does not."""
    is_reasoned = newer.signal is not Signal.DECISION or newer.answer or REASONS.search(newer.quote)
    is_later = str(older.at) < str(newer.at) and older.episode_id != newer.episode_id
    if CLAUDE in (older.key, newer.key) or not is_reasoned or not is_later:
        return ""
    return _conflict(older, newer, near)


class Contradictions:
    """A session states the opposite of a topic, a decision or a preference, without saying why."""

    kind = Kind.CONTRADICTION
    signals = _SAID
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each older statement that a person contradicts."""
        for of in memory.holding(fresh):
            told = [each for each in _CLAUSES.split(of.quote) if not _REMOVES.search(each)]
            is_removal = (
                of.signal is Signal.REQUEST and _REMOVES.search(of.quote) and not any(map(REJECTED.search, told))
            )
            if not _is_bare(of) or is_removal:
                continue
            for each in memory.statements(of.project).near(of, _HELD):
                older = each.observation
                is_before = older.at is not None and of.at is not None and older.at < of.at
                if not is_before or older.session_id == of.session_id != "" or older.key == CLAUDE:
                    continue
                if _is_plain(older) and not WORK.match(of.quote):
                    continue  # that is a doubt
                why = "" if older.signal in (Signal.CORRECTION, Signal.REQUEST) else _opposition(older, of, each)
                if why := why or (_taken_back(older, of, each) if older.signal in _ASKED else ""):
                    change = Change(
                        tuple(StatusEdit(name, Status.CHALLENGED) for name in sorted({older.episode_id, of.episode_id}))
                    )
                    yield _proposal(self.kind, older, of, change, each, memory, "contradictions", why)
                    break


class Doubts:
    """An old note that what was said or done later speaks against."""

    kind = Kind.DOUBT
    signals = (Signal.FACT, Signal.CHANGE, Signal.DECISION, Signal.REQUEST, Signal.CORRECTION, Signal.ERROR)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each old note. What only asks for work speaks against none, and what a person decided is for
        a contradiction.
        """
        for of in memory.holding(fresh):
            if of.signal is Signal.REQUEST and WORK.match(of.quote):
                continue
            for near in memory.statements(of.project).near(of, [Signal.NOTE, Signal.TOPIC]):
                older = near.observation
                is_old = older.at is not None and of.at is not None and of.at - older.at >= OLD
                is_wanted = not _is_plain(older) and (_is_bare(of) or _is_asked_for(of, older, memory))
                if is_old and not is_wanted and (why := _opposition(older, of, near)):
                    change = Change((StatusEdit(older.episode_id, Status.CHALLENGED),))
                    yield _proposal(self.kind, older, of, change, near, memory, "doubts", why)
                    break


def _is_bare(of: Observation) -> bool:
    """Return whether a person says it without a reason."""
    return of.key != CLAUDE and not of.answer and REASONS.search(of.quote) is None


def _is_plain(older: Observation) -> bool:
    """Return whether a note says how something is, and not how a person wants it."""
    return older.signal is Signal.NOTE and older.key not in _WANTED


def _is_asked_for(of: Observation, older: Observation, memory: Memory) -> bool:
    """Return whether a person of the same session said so before Claude did."""
    near = memory.statements(of.project).near(older, _SAID) if of.key == CLAUDE else ()
    asked = [each.claim for each in near if each.observation.session_id == of.session_id]
    return any(opposes(claim_of(older.quote), claim) for claim in asked)


def _opposition(older: Observation, newer: Observation, near: Near) -> str:
    """Return why the newer one speaks against the older one on the same subject; empty: it does not."""
    if newer.signal is Signal.ERROR:
        return "" if newer.answer else lacks(older.quote, newer.quote)
    why = "" if older.quote.startswith("#") else opposes(claim_of(older.quote), claim_of(newer.quote))
    if near.shared >= NAMED and (near.cosine is None or near.cosine >= NAMED) and not older.quote.startswith("#"):
        ended = ends_name(claim_of(older.quote), claim_of(newer.quote))
        if ended:
            return why or ended
    is_worded = why in {ASKS, DENIES} or why.startswith(TAKES_UP)
    least, both = (TAKEN_UP, SAME_WORDS) if is_worded else (SHARED, SAME_THING)
    if not why or near.shared < least:
        return ""
    akin = near.shared if near.cosine is None else near.cosine
    return why if near.shared + akin >= both else ""


def _taken_back(older: Observation, newer: Observation, near: Near) -> str:
    """Return why a person wants the opposite of what a person wanted in general; empty: it is not."""
    before, after = claim_of(older.quote), claim_of(newer.quote)
    is_once = any(PASSING.search(each.quote) or TENTATIVE.search(each.quote) for each in (older, newer))
    if is_once or narrows(before, after) or newer.signal not in _ASKED or near.shared < ASKED_BACK:
        return ""
    why = opposes(before, after)
    is_work = older.signal is Signal.REQUEST and ORDERS.match(older.quote) is not None
    is_general = newer.signal is not Signal.REQUEST or bool(after.rejected)
    if why.startswith("turns down") and is_general and not is_work:
        return why
    is_order = newer.signal is Signal.REQUEST and ORDERS.match(newer.quote) is not None
    return why if why.startswith(TAKES_UP) and near.shared >= WANTED_AGAIN and not is_order else ""


def _conflict(older: Observation, newer: Observation, near: Near) -> str:
    """Return why the newer one says something else on the same subject; empty: it does not."""
    why = conflicts(claim_of(older.quote), claim_of(newer.quote))
    is_plain = why.startswith("takes up") or CORRECTION.match(newer.quote) is not None
    shared, akin = (TAKEN_UP, TAKEN_UP) if is_plain else (SHARED, AKIN)
    if not why or near.shared < shared:
        return ""
    return why if near.cosine is None or near.cosine >= akin else ""


def _proposal(
    kind: Kind, older: Observation, newer: Observation, change: Change, near: Near, memory: Memory, name: str, why: str
) -> Proposal:
    evidence = [Evidence(each.episode_id, each.quote, each.message_id, each.at) for each in (older, newer)]
    certain = near.shared if near.cosine is None else (near.shared + near.cosine) / 2
    return Proposal(
        kind,
        older.project,
        f"{kind} {older.episode_id} {older.quote}",
        f"{headline(newer.quote, TITLE_CHARS - len(why) - 3)} ({why})",
        change,
        dated(evidence),
        round(min(0.95, certain), 2),
        name,
        memory.now,
    )
