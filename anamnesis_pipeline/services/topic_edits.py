"""Put what was accepted into a topic file of this machine, and take it out again."""

from datetime import UTC, datetime
from pathlib import Path

from anamnesis_pipeline.errors import ProposalConflict, TopicChanged, TopicRefused
from anamnesis_pipeline.knowledge.topic_files import Ref, ref, with_entry, without_entry
from anamnesis_pipeline.knowledge.topic_store import Approval, TopicStore, hash_of
from anamnesis_pipeline.services.topics import TopicChange, change_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Proposal, State, TopicEdit

NOTHING_TO_UNDO = "nothing to undo"


class TopicEdits:
    """The edits of topic files that proposals ask for.

    :param machine: name of this one.
    """

    def __init__(self, store: Store, topics: TopicStore, machine: str) -> None:
        self._store = store
        self._topics = topics
        self._machine = machine

    def sweep(self) -> None:
        """Remove unfinished files of topics, as `TopicStore.sweep` does."""
        self._topics.sweep()

    def change(self, proposal: Proposal, edit: TopicEdit) -> TopicChange:
        """Return what a proposal changes in a file.

        :raises TopicRefused: it cannot be written there.
        """
        return change_of(self._store, self._topics, self._machine, proposal.project, edit, _sources(proposal))

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
        self._check_machine(proposal)
        change = self.change_here(proposal, edit)
        present = hash_of(change.former)
        if change.new == change.former:  # it was there before, or was written before the process ended
            written = present if present == edit.former else self._written(proposal, edit, change.path, change.former)
            return self._store.proposals.finish(proposal.proposal_id, edit.former, written)
        if present != edit.former:
            raise TopicChanged(f"{change.path} was changed since this was proposed")
        approval = Approval(proposal.proposal_id, proposal.decided_by, proposal.decided_at or datetime.now(UTC))
        done = self._topics.write_topic(approval, change.path, change.former, change.new)
        return self._store.proposals.finish(proposal.proposal_id, done.former, done.written)

    def undo(self, proposal: Proposal, edit: TopicEdit, by: str) -> tuple[State, str]:
        """Take the entry out of its file: the file is as before, or without this entry where it changed since.

        :return: the proposal's state from then on, and why nothing was to undo, if so: EXPIRED, if a person edited or
            deleted the entry, so that the file is otherwise than before.
        :raises TopicRefused: the file cannot be written.
        :raises ProposalConflict: it was accepted on another machine.
        """
        applied = proposal.applied
        if applied is None or not applied.path:
            return State.UNDONE, ""
        path = Path(applied.path)
        present = self._topics.read(path)
        before = applied.former if applied.is_done else edit.former
        written = applied.written if applied.is_done else self._written(proposal, edit, path, present)
        if hash_of(present) == before:
            return State.UNDONE, f"{NOTHING_TO_UNDO}: {path} is as it was before"
        if written and written == before:
            return State.UNDONE, f"{NOTHING_TO_UNDO}: {path} had this entry before"
        former, is_kept = None, False
        if written and hash_of(present) == written:
            former, is_kept = self._former(before)
        if not is_kept:
            former = present and without_entry(present, edit.entry)
        if former == present:
            self._check_machine(proposal)
            what = "is not there any more" if present is None else "does not have this entry, or has it in other words"
            return State.EXPIRED if applied.is_done else State.UNDONE, f"{NOTHING_TO_UNDO}: {path} {what}"
        self._topics.write_topic(Approval(proposal.proposal_id, by, datetime.now(UTC)), path, present, former)
        return State.UNDONE, ""

    def _written(self, proposal: Proposal, edit: TopicEdit, path: Path, present: str | None) -> str:
        """Return the hash of a file's text if it is what writing the proposal gave; else nothing, since it is not known
        what of it a person wrote.
        """
        former, is_kept = self._former(edit.former)
        if not is_kept or with_entry(former or "", path.stem, edit.heading, edit.entry, _sources(proposal)) != present:
            return ""
        return hash_of(present)

    def _former(self, digest: str) -> tuple[str | None, bool]:
        """Return a former text, and whether it is kept still."""
        try:
            return self._topics.former(digest), True
        except TopicRefused:
            return None, False

    def _check_machine(self, proposal: Proposal) -> None:
        """Raise ProposalConflict if the proposal was accepted on another machine, which has its file."""
        if proposal.applied is not None and proposal.applied.machine not in {"", self._machine}:
            raise ProposalConflict(
                f"it was accepted on {proposal.applied.machine}, which has {proposal.applied.path}; decide on it there"
            )


def _sources(proposal: Proposal) -> list[Ref]:
    return list(dict.fromkeys(ref(each.episode_id, each.at) for each in proposal.evidence))
