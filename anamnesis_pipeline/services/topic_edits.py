"""Put what was accepted into a topic file of this machine, and take it out again."""

from datetime import UTC, datetime
from pathlib import Path

from anamnesis_pipeline.errors import ProposalConflict, TopicChanged
from anamnesis_pipeline.knowledge.topic_files import ref, without_entry
from anamnesis_pipeline.knowledge.topic_store import Approval, TopicStore, hash_of
from anamnesis_pipeline.services.topics import TopicChange, change_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Proposal, TopicEdit

MAX_UNFINISHED = 100


class TopicEdits:
    """The edits of topic files that proposals ask for.

    :param machine: name of this one.
    """

    def __init__(self, store: Store, topics: TopicStore, machine: str) -> None:
        self._store = store
        self._topics = topics
        self._machine = machine

    def change(self, proposal: Proposal, edit: TopicEdit) -> TopicChange:
        """Return what a proposal changes in a file.

        :raises TopicRefused: it cannot be written there.
        """
        sources = [ref(each.episode_id, each.at) for each in proposal.evidence]
        return change_of(self._store, self._topics, self._machine, proposal.project, edit, list(dict.fromkeys(sources)))

    def change_here(self, proposal: Proposal, edit: TopicEdit) -> TopicChange:
        """Return as `change`, of a file on this machine.

        :raises ProposalConflict: it is on another machine.
        """
        change = self.change(proposal, edit)
        if not change.is_here:
            raise ProposalConflict(
                f"the topic is on {change.machine}, {change.path}; apply the diff there, which `anamnesis dream show "
                f"{proposal.proposal_id[:12]}` prints"
            )
        return change

    def write(self, proposal: Proposal, edit: TopicEdit) -> Proposal:
        """Write the file of a proposal that was accepted, unless it holds the entry already.

        :return: the proposal, finished.
        :raises TopicChanged: the file is otherwise than when it was proposed; nothing is written.
        :raises ProposalConflict: it is on another machine.
        """
        change = self.change_here(proposal, edit)
        present = hash_of(change.former)
        if change.new == change.former:  # it was written before the process ended
            return self._store.proposals.finish(proposal.proposal_id, edit.former, "")
        if present != edit.former:
            raise TopicChanged(f"{change.path} was changed since this was proposed")
        approval = Approval(proposal.proposal_id, proposal.decided_by, proposal.decided_at or datetime.now(UTC))
        done = self._topics.write_topic(approval, change.path, change.former, change.new)
        return self._store.proposals.finish(proposal.proposal_id, done.former, done.written)

    def undo(self, proposal: Proposal, edit: TopicEdit, by: str) -> None:
        """Take the entry out of its file: the file is as before, or without this entry where it changed since.

        :raises TopicRefused: the file cannot be written.
        """
        if proposal.applied is None or not proposal.applied.path:
            return
        path = Path(proposal.applied.path)
        present = self._topics.read(path)
        if hash_of(present) == proposal.applied.written:
            former = self._topics.former(proposal.applied.former)
        else:
            former = without_entry(present or "", edit.entry)
        if former != present:
            self._topics.write_topic(Approval(proposal.proposal_id, by, datetime.now(UTC)), path, present, former)
