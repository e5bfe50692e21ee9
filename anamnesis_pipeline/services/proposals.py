"""Decide on proposals: list, accept, reject and undo them, by a person or by the policy that a person set."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.errors import IdAmbiguous
from anamnesis_pipeline.knowledge.dream import DETECTORS, LAST_RUN, DreamReport, dream, stats_of
from anamnesis_pipeline.model import Episode, Passage
from anamnesis_pipeline.search.project_labels import Private, labels_of
from anamnesis_pipeline.services.posted import note_of
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.schemas import TypeName
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Kind, Proposal, State
from anamnesis_pipeline.store.values import instant

POLICY = "policy"
"""Who decides where a policy does."""
MAX_AUTOMATIC = 500
"""Proposals that one run accepts by policy; the next goes on."""
SHORTEST_ID = 4


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits for a decision. `since`: when the oldest was made; `dreamt_at`: when detectors last ran."""

    open: int
    since: datetime | None
    dreamt_at: datetime | None


class Proposals:
    """The proposals of a store.

    :param writer: posts the notes that accepting makes.
    :param private: of what is private nothing is listed, unless its project is named.
    """

    def __init__(self, store: Store, writer: EpisodeWriter, private: Private) -> None:
        self._store = store
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
        place = (after.state.value, instant(after.created_at), after.proposal_id) if after else None
        found = self._store.proposals.page(limit, state, kind, projects, place)
        return found if project else [each for each in found if not self._is_private(each)]

    def find(self, text: str) -> Proposal:
        """Return the proposal whose id is or begins with `text`.

        :raises IdAmbiguous: there are several.
        :raises ProposalNotFound: there is none.
        """
        found = self._store.proposals.beginning_with(text, 2) if len(text) >= SHORTEST_ID else []
        if len(found) > 1 and found[0] != text:
            raise IdAmbiguous(
                f"several proposals begin with {text!r}, such as {found[0]} and {found[1]}; give more of it"
            )
        return self._store.proposals.get(found[0] if found else text)

    def accept(self, text: str, by: str, reason: str = "", entry: str | None = None) -> Proposal:
        """Accept an open proposal.

        :param entry: the text to write in place of the proposed one.
        :return: it; expired, if what it would change is otherwise by now.
        :raises ProposalConflict: it is not open.
        """
        proposal = self.find(text)
        record = self._record(proposal, entry, by)
        return self._store.proposals.accept(proposal.proposal_id, by, datetime.now(UTC), reason, record)

    def reject(self, text: str, by: str, reason: str = "") -> Proposal:
        """Reject an open proposal: it returns with new evidence only.

        :raises ProposalConflict: it is not open.
        """
        proposal = self.find(text)
        return self._store.proposals.close(proposal.proposal_id, State.REJECTED, by, datetime.now(UTC), reason)

    def undo(self, text: str, by: str, reason: str = "") -> Proposal:
        """Take back what accepting a proposal changed, or open a rejected one again.

        :raises ProposalConflict: it is neither accepted nor rejected.
        """
        return self._store.proposals.undo(self.find(text).proposal_id, by, datetime.now(UTC), reason)

    def waiting(self) -> Waiting:
        """Return what waits for a decision, without what is private."""
        opened = self.listed(limit=MAX_COUNTED)
        last = self._store.settings.get(LAST_RUN) or {}
        dreamt_at = last.get("started_at")
        return Waiting(
            len(opened),
            min((each.created_at for each in opened), default=None),
            datetime.fromisoformat(dreamt_at) if dreamt_at else None,
        )

    def dream(self, settings: Settings, embedder: Embedder | None = None) -> DreamReport:
        """Run the detectors, but for those that are off, and accept what the policy says."""
        wanted = [each for each in DETECTORS if each.kind not in settings.dream_off]
        report = dream(self._store, datetime.now(UTC), embedder, wanted)
        for kind in map(Kind, settings.dream_auto):
            for proposal in self._store.proposals.page(MAX_AUTOMATIC, State.OPEN, kind):
                self._store.proposals.accept(proposal.proposal_id, POLICY, datetime.now(UTC), f"policy of {kind}: auto")
        self._store.settings.set(LAST_RUN, stats_of(report))
        return report

    def _is_private(self, proposal: Proposal) -> bool:
        heads = self._store.episodes.heads(proposal.episode_ids) if self._private else {}
        return self._private.is_of(proposal.project) or any(map(self._private.holds, heads.values()))

    def _record(self, proposal: Proposal, entry: str | None, by: str) -> tuple[Episode, list[Passage]] | None:
        """Return the episode that accepting posts, masked and in passages."""
        record = proposal.change.record
        if record is None:
            return None
        tags = (*record.tags, "accepted")
        note = note_of(
            entry or record.text, project=proposal.project, instance=by, type=cast(TypeName, record.type), tags=tags
        )
        return self._writer.prepared(note.draft())


MAX_COUNTED = 1_000
"""Proposals that are counted; more are as good as so many."""
