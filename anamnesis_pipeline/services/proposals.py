"""Decide on proposals: list, accept, reject and undo them, by a person or by the policy that a person set."""

import logging
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import cast

from pydantic import TypeAdapter

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.errors import (
    AnamnesisError,
    IdAmbiguous,
    ProposalConflict,
    ProposalNotFound,
    TopicChanged,
    TopicRefused,
)
from anamnesis_pipeline.knowledge.detecting import Detector
from anamnesis_pipeline.knowledge.dream import DETECTORS, MAX_TRIES, found_by, name_of, observe
from anamnesis_pipeline.knowledge.topic_store import hash_of
from anamnesis_pipeline.model import Episode, Passage
from anamnesis_pipeline.search.project_labels import Private, labels_of
from anamnesis_pipeline.services.posted import note_of
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.schemas import TypeName
from anamnesis_pipeline.services.topic_edits import TopicEdits
from anamnesis_pipeline.services.topics import TopicChange
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Kind, Proposal, State
from anamnesis_pipeline.store.memory_layers import PINNED
from anamnesis_pipeline.store.records.proposals import Proposed
from anamnesis_pipeline.store.values import instant

log = logging.getLogger(__name__)

LAST_RUN = "dream.last_run"
"""Stored setting: what the last run did."""
POLICY = "policy"
"""Who decides where a policy does."""
FILE_CHANGED = "its topic file was changed since it was proposed; the next dream proposes it for the present text"
KIND_OFF = "`dream_off` names its kind; it is open again once that names it no longer"
TRIED_AGAIN = f"what fails is tried in {MAX_TRIES} runs, and then when it changes; the log tells why"
MAX_AUTOMATIC = 500
"""Proposals that one run accepts by policy; the next goes on."""
SHORTEST_ID = 4


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits for a decision. `since`: when the oldest was made; `dreamt_at`: when detectors last ran."""

    open: int
    since: datetime | None
    dreamt_at: datetime | None


@dataclass(frozen=True, slots=True)
class DreamReport:
    """What a run did. `observed`: sessions, notes and texts that no ingest had observed; `waiting`: those left;
    `observations`: new ones.
    `problems`: detector -> why it failed.
    """

    observed: int = 0
    waiting: int = 0
    observations: int = 0
    proposed: dict[str, Proposed] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    started_at: str = ""
    seconds: float = 0.0


_REPORT = TypeAdapter(DreamReport)


def last_run(store: Store) -> DreamReport | None:
    """Return what the last run did; None: there was none yet."""
    stored = store.settings.get(LAST_RUN)
    return _REPORT.validate_python(stored) if stored else None


def waiting_of(store: Store, private: Private) -> Waiting:
    """Return what waits for a decision, without what is private."""
    last = last_run(store)
    dreamt_at = datetime.fromisoformat(last.started_at) if last and last.started_at else None
    if not private:
        number = sum(store.proposals.counts(State.OPEN).values())
        return Waiting(number, store.proposals.oldest(State.OPEN), dreamt_at)
    opened = store.proposals.page(MAX_COUNTED)
    heads = store.episodes.heads(sorted({key for each in opened for key in each.episode_ids}))
    hidden = {key for key, head in heads.items() if private.holds(head)}
    opened = [each for each in opened if not private.is_of(each.project) and hidden.isdisjoint(each.episode_ids)]
    return Waiting(len(opened), min((each.created_at for each in opened), default=None), dreamt_at)


class Proposals:
    """The proposals of a store.

    :param writer: posts the notes that accepting makes; `topics` writes their topic files.
    :param private: of what is private nothing is listed, unless its project is named.
    """

    def __init__(self, store: Store, writer: EpisodeWriter, topics: TopicEdits, private: Private) -> None:
        self._store = store
        self._topics = topics
        self._writer = writer
        self._private = private

    def listed(
        self,
        state: State | None = State.OPEN,
        kind: Kind | None = None,
        project: str = "",
        limit: int = 50,
        after: Proposal | None = None,
    ) -> list[Proposal]:
        """Return proposals, the newest first.

        :param project: only of this one; empty: of all that are not private.
        :param after: the one that the page follows.
        """
        projects: Collection[str] | None = None
        if project:
            projects = {project, *labels_of(project, self._store.projects.all())}
        elif self._private:
            projects = self._private.open_projects(self._store)
        found: list[Proposal] = []
        while len(found) < limit:
            place = (after.state.value, instant(after.created_at), after.proposal_id) if after else None
            wanted = limit - len(found)
            page = self._store.proposals.page(wanted, state, kind, projects, place)
            found += page if project else self.without_private(page)
            if len(page) < wanted:
                break
            after = page[-1]
        return found

    def without_private(self, found: Sequence[Proposal]) -> list[Proposal]:
        """Return those that are not private: of no private project, and without a quote of a private source."""
        return [each for each in found if not self._is_private(each)]

    def find(self, text: str) -> Proposal:
        """Return the proposal whose id is or begins with `text`.

        :raises IdAmbiguous: there are several.
        :raises ProposalNotFound: there is none.
        """
        if len(text) < SHORTEST_ID:
            raise ProposalNotFound(f"{text!r} is too short for an id; give its first {SHORTEST_ID} characters or more")
        found = self._store.proposals.beginning_with(text, 2)
        if len(found) > 1 and found[0] != text:
            raise IdAmbiguous(
                f"several proposals begin with {text!r}, such as {found[0]} and {found[1]}; give more of it"
            )
        return self._store.proposals.get(found[0] if found else text)

    def file_change(self, proposal: Proposal) -> TopicChange | None:
        """Return what an open proposal changes in a topic file; None: nothing, or it cannot be written."""
        if proposal.state is not State.OPEN or proposal.change.topic is None:
            return None
        try:
            return self._topics.change(proposal, proposal.change.topic)
        except TopicRefused:
            return None

    def accept(self, text: str, by: str, reason: str = "", entry: str | None = None) -> Proposal:
        """Accept an open proposal.

        :param entry: the text to write in place of the proposed one.
        :return: it; expired, if what it would change is otherwise by now.
        :raises ProposalConflict: it is not open.
        """
        proposal = self.find(text)
        proposal = proposal if entry is None else proposal.saying(entry)
        edit, path, machine = proposal.change.topic, "", ""
        if edit is not None:
            change = self._topics.change_here(proposal, edit)
            path, machine = str(change.path), change.machine
            if hash_of(change.former) != edit.former:
                return self._changed(proposal, by)
        if proposal.change.record is not None and self._quotes_private_source(proposal):
            raise ProposalConflict("it quotes a private source, which a note would make open; reject it")
        record = self._record(proposal, by)
        done = self._store.proposals.accept(
            proposal.proposal_id, by, datetime.now(UTC), reason, record, path, entry, machine
        )
        return self._write(done) if done.state is State.ACCEPTED else done

    def reject(self, text: str, by: str, reason: str = "") -> Proposal:
        """Reject an open proposal: it returns with new evidence only.

        :raises ProposalConflict: it is not open.
        """
        proposal = self.find(text)
        return self._store.proposals.close(proposal.proposal_id, State.REJECTED, by, datetime.now(UTC), reason)

    def undo(self, text: str, by: str, reason: str = "") -> Proposal:
        """Take back what accepting a proposal changed, or open a rejected one again.

        :return: it, with the reason if there was nothing to undo; expired, if its topic file was changed so that it
            does not have the entry any more.
        :raises ProposalConflict: it is neither accepted nor rejected, or its topic file is on another machine.
        """
        proposal, state, why = self.find(text), State.UNDONE, ""
        if proposal.state is State.ACCEPTED and proposal.change.topic is not None:
            state, why = self._topics.undo(proposal, proposal.change.topic, by)
        told = "; ".join(filter(None, (reason, why)))
        return self._store.proposals.undo(proposal.proposal_id, by, datetime.now(UTC), told, state)

    def waiting(self) -> Waiting:
        """Return what waits for a decision, without what is private."""
        return waiting_of(self._store, self._private)

    def open_counts(self) -> dict[tuple[Kind, str], int]:
        """Return (kind, project) -> number of open proposals, without what is private."""
        if self._private:
            return dict(Counter((each.kind, each.project) for each in self.listed(limit=MAX_COUNTED)))
        counted = self._store.proposals.counts(State.OPEN)
        return {(Kind(kind), project): number for (_, kind, project), number in counted.items()}

    def dream(self, settings: Settings, embedder: Embedder | None = None) -> DreamReport:
        """Observe what no ingest has observed, then run the detectors. One that fails stops no other.

        :param embedder: compares meanings; None: words alone are compared.
        """
        started = time.monotonic()
        report = self.observe()
        for detector in DETECTORS:
            report = self.detect(detector, settings, embedder)
        report = replace(report, seconds=round(time.monotonic() - started, 3))
        self._store.settings.set(LAST_RUN, asdict(report))
        return report

    def observe(self) -> DreamReport:
        """Begin a run: observe what no ingest has observed. It finishes what a process that ended left, and opens
        proposals again whose topic file was changed.
        """
        self._topics.sweep()
        for proposal in self._store.proposals.unfinished(MAX_AUTOMATIC):
            try:
                self._write(proposal)
            except (TopicRefused, ProposalConflict) as exc:  # the other proposals go on; the check of Dagster names it
                log.warning(f"The topic file of proposal {proposal.proposal_id[:12]} is not written: {exc}")
        for proposal in self._store.proposals.page(MAX_AUTOMATIC, State.EXPIRED, reason=FILE_CHANGED):
            self._renew(proposal)
        seen = observe(self._store)
        report = DreamReport(seen.observed, seen.waiting, seen.observations, started_at=datetime.now(UTC).isoformat())
        if seen.unread:
            why = f"{len(seen.unread)} could not be read, such as {seen.unread[0]}; {TRIED_AGAIN}"
            report = replace(report, problems={"Observations": why})
        self._store.settings.set(LAST_RUN, asdict(report))
        return report

    def detect(self, detector: Detector, settings: Settings, embedder: Embedder | None = None) -> DreamReport:
        """Run one detector, unless its kind is off, and accept what the policy says. Return what the run did so far."""
        report = last_run(self._store) or DreamReport(started_at=datetime.now(UTC).isoformat())
        if detector.kind in settings.dream_off:
            self._turn_off(detector.kind)
            return report
        self._turn_on(detector.kind)
        name = name_of(detector)
        try:
            found = self._found(detector, embedder)
        except (AnamnesisError, ValueError, TypeError, LookupError, AttributeError) as exc:
            log.warning(f"Detector {name} failed; the next run goes on: {exc}", exc_info=True)
            report = replace(report, problems={**report.problems, name: str(exc)})
        else:
            report = replace(report, proposed={**report.proposed, name: found})
            if detector.kind in settings.dream_auto:
                self._accept_by_policy(detector.kind)
        self._store.settings.set(LAST_RUN, asdict(report))
        return report

    def _turn_off(self, kind: Kind) -> None:
        """Let what was proposed before its kind was turned off expire."""
        for proposal in self._store.proposals.page(MAX_AUTOMATIC, State.OPEN, kind):
            with suppress(ProposalConflict):  # it was decided on meanwhile
                self._store.proposals.close(proposal.proposal_id, State.EXPIRED, POLICY, datetime.now(UTC), KIND_OFF)

    def _turn_on(self, kind: Kind) -> None:
        """Open again what expired only because its kind was off."""
        for proposal in self._store.proposals.page(MAX_AUTOMATIC, State.EXPIRED, kind):
            if proposal.reason == KIND_OFF:
                self._renew(proposal)

    def _renew(self, proposal: Proposal) -> None:
        topic = self._over_present(proposal).change.topic
        with suppress(ProposalConflict):  # another run opened it meanwhile
            self._store.proposals.renew(proposal.proposal_id, topic.former if topic else "")

    def _found(self, detector: Detector, embedder: Embedder | None) -> Proposed:
        """Store what a detector finds, each with the present hash of the topic file that it changes."""
        total = Proposed()
        for batch in found_by(self._store, detector, datetime.now(UTC), embedder):
            for proposal in batch:
                total += self._store.proposals.propose(self._over_present(proposal))
        return total

    def _over_present(self, proposal: Proposal) -> Proposal:
        if proposal.change.topic is None:
            return proposal
        try:
            return proposal.over(hash_of(self._topics.change(proposal, proposal.change.topic).former))
        except TopicRefused:  # it cannot be written here, which accepting says
            return proposal

    def _accept_by_policy(self, kind: Kind) -> None:
        for proposal in self._store.proposals.page(MAX_AUTOMATIC, State.OPEN, kind):
            changed = self._store.episodes.heads([edit.episode_id for edit in proposal.change.statuses])
            if any(PINNED in head.tags for head in changed.values()):
                continue  # what is pinned is for a person to decide
            if self._quotes_private_source(proposal):
                continue
            with suppress(ProposalConflict):  # it was decided on meanwhile
                self._store.proposals.accept(proposal.proposal_id, POLICY, datetime.now(UTC), f"policy of {kind}: auto")

    def _quotes_private_source(self, proposal: Proposal) -> bool:
        """Return whether text of a private source would change what is open."""
        return not self._private.is_of(proposal.project) and self._is_private(proposal)

    def _is_private(self, proposal: Proposal) -> bool:
        heads = self._store.episodes.heads(proposal.episode_ids) if self._private else {}
        return self._private.is_of(proposal.project) or any(map(self._private.holds, heads.values()))

    def _write(self, proposal: Proposal) -> Proposal:
        """Write the topic file of an accepted proposal, if it has one."""
        if proposal.change.topic is None:
            return proposal
        try:
            return self._topics.write(proposal, proposal.change.topic)
        except TopicChanged:
            return self._changed(proposal, proposal.decided_by, unfinished=True)

    def _changed(self, proposal: Proposal, by: str, *, unfinished: bool = False) -> Proposal:
        return self._store.proposals.close(
            proposal.proposal_id, State.EXPIRED, by, datetime.now(UTC), FILE_CHANGED, unfinished=unfinished
        )

    def _record(self, proposal: Proposal, by: str) -> tuple[Episode, list[Passage]] | None:
        """Return the episode that accepting posts, masked and in passages."""
        record = proposal.change.record
        if record is None:
            return None
        tags = (*record.tags, "accepted")
        note = note_of(record.text, project=proposal.project, instance=by, type=cast(TypeName, record.type), tags=tags)
        return self._writer.prepared(note.draft())


MAX_COUNTED = 1_000
"""Proposals that are counted where some are private; more are as good as so many."""
