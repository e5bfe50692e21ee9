"""Detectors of what belongs into a topic: explicit facts, decisions with their reason, preferences and corrections that
came again, and topics that sessions have gone beyond.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from anamnesis_pipeline.knowledge.conflicts import supersedes
from anamnesis_pipeline.knowledge.detecting import Memory, Near, headline, quoted, sessions_in
from anamnesis_pipeline.knowledge.observing import CLAUDE
from anamnesis_pipeline.knowledge.statements import MIN_SAME, Claim, claim_of, conflicts, says_same_clause
from anamnesis_pipeline.knowledge.topic_files import LESSONS
from anamnesis_pipeline.knowledge.wording import (
    CHANGES,
    CORRECTION,
    DECLARES,
    ORDERS,
    PASSING,
    REASONS,
    REPEATS,
    TENTATIVE,
    TROUBLE,
    WORK,
)
from anamnesis_pipeline.store.knowledge_model import (
    Change,
    Kind,
    Observation,
    Proposal,
    Signal,
    TopicEdit,
    dated,
)

SAID_ALREADY = 0.75
"""Cosine with a sentence of a topic from which on it says that already."""
SAID_WORDS = 0.7
"""The same by shared words alone."""
AGAIN = 0.6
"""Least cosine of two sentences in which a person wants the same, if they share two words."""
SAME_FACT = 0.75
"""Least cosine of two sentences that tell the same fact, or decide the same."""
AGAIN_SHARED, AGAIN_ALIKE = 0.6, 0.3
"""The same by words alone: least share of the shorter one's, and of those of both."""
_DECIDED = frozenset({"decision", "preference"})
_TOLD = (Signal.FACT, Signal.DECISION, Signal.NOTE)
_ASKED = (Signal.PREFERENCE, Signal.CORRECTION, Signal.REQUEST)
STALE = timedelta(days=60)
"""A topic's age from which on sessions that extend its subject make it stale."""
EXTENDS = 0.35
MIN_EXTENSIONS, MAX_EXTENSIONS = 2, 6
MIN_SHARED = 2
TOPIC_TAG = "topic"
TOPICS = {
    Signal.FACT: ("facts", "Facts"),
    Signal.DECISION: ("decisions", "Decisions"),
    Signal.PREFERENCE: ("preferences", "Preferences"),
    Signal.NOTE: ("decisions", "Decisions"),
    Signal.REQUEST: ("facts", "Facts"),
}
"""Signal -> topic file and heading that it goes to."""


class Promotions:
    """Explicit facts, decisions with their reason, and preferences repeated in two sessions, that no topic says."""

    kind = Kind.PROMOTE
    signals = (Signal.FACT, Signal.DECISION, Signal.PREFERENCE, Signal.NOTE, Signal.REQUEST)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each; what was said in several sessions is the evidence of one."""
        for of in memory.holding(fresh):
            is_reasoned = bool(of.answer) or REASONS.search(of.quote) is not None
            if of.key == CLAUDE or (of.signal in (Signal.DECISION, Signal.NOTE) and not is_reasoned):
                continue
            if of.signal is Signal.NOTE and not (of.key in _DECIDED or CORRECTION.match(of.quote)):
                continue
            if of.signal is Signal.REQUEST and not _declares(of):
                continue
            statements = memory.statements(of.project)
            if any(_says(near) for near in statements.near(of, [Signal.TOPIC])):
                continue
            is_asked = of.signal in (Signal.PREFERENCE, Signal.REQUEST)
            near = statements.near(of, _ASKED if is_asked else _TOLD)
            if any(supersedes(each.observation, of, each) for each in near):
                continue
            again = [each.observation for each in near if (_wants_same if is_asked else _tells_same)(of, each)]
            shown = sorted([*again, of], key=lambda each: (str(each.at), each.number))
            is_corrected = any(each.signal is Signal.CORRECTION for each in shown)
            if is_asked and (len(sessions_in(shown)) < 2 or is_corrected):
                continue  # a correction that came again is a lesson
            name, heading = TOPICS[of.signal]
            yield _entry(self.kind, shown, name, heading, "promotions", memory)


class RepeatedCorrections:
    """A person wants the same in two separate sessions, in one of them as a correction."""

    kind = Kind.LESSON
    signals = (Signal.CORRECTION, Signal.PREFERENCE)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield a lesson for each."""
        for of in memory.holding(fresh):
            if TENTATIVE.search(of.quote):
                continue
            near = memory.statements(of.project).near(of, _ASKED)
            again = [each.observation for each in near if _wants_same(of, each)]
            shown = sorted([*again, of], key=lambda each: str(each.at))
            is_corrected = any(each.signal is Signal.CORRECTION for each in shown)
            if is_corrected and len(sessions_in(shown)) >= 2:
                yield _entry(self.kind, shown, LESSONS, "Corrections", "repeated_corrections", memory)


class StaleTopics:
    """A topic that was not touched for long, while sessions say more on its subject."""

    kind = Kind.STALE_TOPIC
    signals = (Signal.FACT, Signal.DECISION, Signal.CHANGE, Signal.PREFERENCE, Signal.REQUEST)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each topic text that new observations extend."""
        extended: dict[str, Observation] = {}
        for of in memory.holding(fresh):
            for near in memory.statements(of.project).near(of, [Signal.TOPIC]):
                topic = near.observation
                is_old = topic.at is not None and of.at is not None and of.at - topic.at >= STALE
                head = memory.episodes([topic.episode_id])[topic.episode_id]
                is_named = not claim_of(head.summary).stems.isdisjoint(claim_of(of.quote).stems)
                if is_old and TOPIC_TAG in head.tags and (near.shared >= EXTENDS or is_named):
                    extended.setdefault(topic.episode_id, topic)
                    break
        for episode_id, topic in extended.items():
            said = self._extensions(memory, topic)
            if len(said) < MIN_EXTENSIONS:
                continue
            entry = "\n".join(f"- {each.quote}" for each in said)
            yield Proposal(
                self.kind,
                topic.project,
                f"stale {episode_id}",
                headline(f"Topic untouched since {topic.at:%Y-%m-%d}: {topic.quote}"),
                Change(topic=TopicEdit(episode_id, "Since then", entry)),
                dated([piece for each in (topic, *said) for piece in quoted(each)]),
                0.8,
                "stale_topics",
                memory.now,
            )

    def _extensions(self, memory: Memory, topic: Observation) -> list[Observation]:
        """Return the latest that was said on the subject of a topic's text since it is stale, in any session."""
        head = memory.episodes([topic.episode_id])[topic.episode_id]
        named, found = claim_of(head.summary).stems, dict[int, Observation]()
        for said in memory.store.observations.of_episode(topic.episode_id):
            for near in memory.statements(topic.project).near(said, self.signals):
                of = near.observation
                is_since = topic.at is not None and of.at is not None and of.at - topic.at >= STALE
                is_about = near.shared >= EXTENDS or not named.isdisjoint(near.claim.stems)
                if is_since and is_about and _extends(of) and _adds(near, claim_of(said.quote)):
                    found[of.number] = of
        return [found[number] for number in sorted(found)][-MAX_EXTENSIONS:]


def _extends(of: Observation) -> bool:
    """Return whether it says how something is or has to be: it asks for no work alone, and reports no trouble."""
    is_work = of.signal in (Signal.REQUEST, Signal.PREFERENCE) and WORK.match(of.quote) is not None
    return not is_work and TROUBLE.search(of.quote) is None


def _adds(near: Near, said: Claim) -> bool:
    """Return whether it says more than a sentence of the topic; what Claude tells has to be about several of its words,
    unless it says that something changed.
    """
    of, claim = near.observation, near.claim
    is_close = of.key != CLAUDE or len(claim.stems & said.stems) >= MIN_SHARED or CHANGES.search(of.quote) is not None
    is_more = not (claim.stems <= said.stems and claim.numbers <= said.numbers and claim.values <= said.values)
    return is_close and is_more


def _says(near: Near) -> bool:
    return near.cosine >= SAID_ALREADY if near.cosine is not None else near.shared >= SAID_WORDS


def _declares(of: Observation) -> bool:
    """Return whether a request tells how something is to be, not what to do now."""
    if ORDERS.match(of.quote) or PASSING.search(of.quote):
        return False
    return DECLARES.search(of.quote) is not None or REPEATS.search(of.quote) is not None


def _wants_same(of: Observation, near: Near) -> bool:
    claim, other = claim_of(of.quote), near.observation
    common = claim.stems & near.claim.stems
    is_clear = not ORDERS.match(other.quote) or says_same_clause(of.quote, other.quote)
    is_repeated = REPEATS.search(of.quote) is not None and not ORDERS.match(of.quote) and is_clear
    is_order = other.signal is Signal.REQUEST and not _declares(other)
    if other.session_id == of.session_id or (is_order and not is_repeated):
        return False
    is_worded = near.shared >= AGAIN_SHARED and near.alike >= AGAIN_ALIKE
    is_known = len(common) >= MIN_SAME or claim.stems == near.claim.stems
    is_same = is_known and (is_worded or (near.cosine is not None and near.cosine >= AGAIN))
    if not is_same and not says_same_clause(of.quote, other.quote):
        return False
    if Signal.CORRECTION not in (of.signal, other.signal):
        return not conflicts(near.claim, claim)
    if claim.numbers and near.claim.numbers and claim.numbers != near.claim.numbers:
        return False
    if any(
        one is not Signal.CORRECTION and two.rejected & has.stems - has.rejected
        for one, has, two in ((of.signal, claim, near.claim), (other.signal, near.claim, claim))
    ):
        return False  # a correction of what a person wants is no second one
    # one may name what was done wrong, the other what is right instead
    return not (
        claim.rejected & near.claim.stems - near.claim.rejected and near.claim.rejected & claim.stems - claim.rejected
    )


def _tells_same(of: Observation, near: Near) -> bool:
    """Return whether another session tells the same fact or decides the same."""
    is_meant = near.shared >= AGAIN_SHARED and near.cosine is not None and near.cosine >= SAME_FACT
    is_same = is_meant or (near.cosine is None and near.alike >= SAID_WORDS)
    claim = claim_of(of.quote)
    is_equal = claim.numbers == near.claim.numbers and not conflicts(near.claim, claim)
    return is_same and is_equal and near.observation.session_id != of.session_id


def _entry(
    kind: Kind, shown: Sequence[Observation], name: str, heading: str, detector: str, memory: Memory
) -> Proposal:
    latest = next((each for each in reversed(shown) if not REPEATS.search(each.quote)), shown[-1])
    text = latest.quote if latest.answer in ("", latest.quote) else f"{latest.quote} {latest.answer}"
    return Proposal(
        kind,
        latest.project,
        f"{kind} {latest.project} {' '.join(sorted(claim_of(shown[0].quote).stems))}",
        headline(latest.quote),
        Change(topic=TopicEdit(name, heading, text)),
        dated([piece for each in shown for piece in quoted(each)]),
        min(0.95, 0.7 + 0.1 * len(sessions_in(shown))),
        detector,
        memory.now,
    )
