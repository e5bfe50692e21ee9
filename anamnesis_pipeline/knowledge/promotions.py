"""Detectors of what belongs into a topic: explicit facts, decisions with their reason, preferences and corrections that
came again, and topics that sessions have gone beyond.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from anamnesis_pipeline.knowledge.detecting import Memory, Near, quoted, sessions_in
from anamnesis_pipeline.knowledge.observing import CLAUDE
from anamnesis_pipeline.knowledge.statements import Claim, claim_of, conflicts
from anamnesis_pipeline.knowledge.topic_files import LESSONS
from anamnesis_pipeline.knowledge.wording import CHANGES, CORRECTION, DECLARES, ORDERS, REASONS, TROUBLE, WORK
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
"""Least cosine of two sentences in which a person wants the same."""
AGAIN_SHARED, AGAIN_ALIKE = 0.6, 0.3
"""The same by words alone: least share of the shorter one's, and of those of both."""
_DECIDED = frozenset({"decision", "preference"})
STALE = timedelta(days=60)
"""A topic's age from which on sessions that extend its subject make it stale."""
EXTENDS = 0.35
MIN_EXTENSIONS, MAX_EXTENSIONS = 2, 6
MIN_SHARED = 2
TOPIC_TAG = "topic"
TITLE_CHARS = 100
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
        """Yield one for each."""
        for of in memory.holding(fresh):
            is_reasoned = bool(of.answer) or REASONS.search(of.quote) is not None
            if of.key == CLAUDE or (of.signal in (Signal.DECISION, Signal.NOTE) and not is_reasoned):
                continue
            if of.signal is Signal.NOTE and not (of.key in _DECIDED or CORRECTION.match(of.quote)):
                continue
            if of.signal is Signal.REQUEST and (ORDERS.match(of.quote) or not DECLARES.search(of.quote)):
                continue
            statements = memory.statements(of.project)
            if any(_says(near) for near in statements.near(of, [Signal.TOPIC])):
                continue
            shown = [of]
            if of.signal in (Signal.PREFERENCE, Signal.REQUEST):
                wanted = [Signal.PREFERENCE, Signal.CORRECTION] if of.signal is Signal.PREFERENCE else [Signal.REQUEST]
                again = [near.observation for near in statements.near(of, wanted) if _wants_same(of, near)]
                shown = sorted([*again, of], key=lambda each: str(each.at))
                if len(sessions_in(shown)) < 2:
                    continue
            name, heading = TOPICS[of.signal]
            yield _entry(self.kind, shown, name, heading, "promotions", memory)


class RepeatedCorrections:
    """A person corrects the same in two separate sessions."""

    kind = Kind.LESSON
    signals = (Signal.CORRECTION,)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield a lesson for each."""
        for of in memory.holding(fresh):
            near = memory.statements(of.project).near(of, [Signal.CORRECTION, Signal.PREFERENCE])
            again = [each.observation for each in near if _wants_same(of, each)]
            shown = sorted([*again, of], key=lambda each: str(each.at))
            if len(sessions_in(shown)) >= 2:
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
                f"Topic untouched since {topic.at:%Y-%m-%d}: {topic.quote}"[:TITLE_CHARS],
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


def _wants_same(of: Observation, near: Near) -> bool:
    is_worded = near.shared >= AGAIN_SHARED and near.alike >= AGAIN_ALIKE
    is_akin = is_worded or (near.cosine is not None and near.cosine >= AGAIN)
    claim, is_other = claim_of(of.quote), near.observation.session_id != of.session_id
    return is_akin and is_other and near.claim.numbers == claim.numbers and not conflicts(near.claim, claim)


def _entry(
    kind: Kind, shown: Sequence[Observation], name: str, heading: str, detector: str, memory: Memory
) -> Proposal:
    latest = shown[-1]
    text = latest.quote if latest.answer in ("", latest.quote) else f"{latest.quote} {latest.answer}"
    return Proposal(
        kind,
        latest.project,
        f"{kind} {latest.project} {' '.join(sorted(claim_of(latest.quote).stems))}",
        latest.quote[:TITLE_CHARS],
        Change(topic=TopicEdit(name, heading, text)),
        dated([piece for each in shown for piece in quoted(each)]),
        min(0.95, 0.7 + 0.1 * len(sessions_in(shown))),
        detector,
        memory.now,
    )
