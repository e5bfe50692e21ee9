"""Proposals: what detectors propose, and what deciding on it does to episodes, in one transaction each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from anamnesis_pipeline.errors import ProposalConflict, ProposalNotFound
from anamnesis_pipeline.model import HOLDING, Episode, Passage, Status
from anamnesis_pipeline.store.contracts import Native
from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Tables, beyond
from anamnesis_pipeline.store.knowledge_model import (
    APPLIED,
    CHANGE,
    EVIDENCE,
    Applied,
    Kind,
    Proposal,
    State,
    StatusEdit,
)
from anamnesis_pipeline.store.records import links
from anamnesis_pipeline.store.records.episodes import remove_episodes, write_episodes
from anamnesis_pipeline.store.records.links import Regime
from anamnesis_pipeline.store.records.settings import read_aliases, store_name
from anamnesis_pipeline.store.records.statuses import STATUS_FIELDS, Cause, Standing, set_status
from anamnesis_pipeline.store.values import (
    EPISODE_FIELDS,
    episode_of,
    instant,
    moment,
    passage_of,
    sought,
    storable,
    storable_passages,
)

Written = tuple[Episode, Sequence[Passage]]


@dataclass(frozen=True, slots=True)
class Proposed:
    """What became of what a detector found. `renewed`: more evidence took the place of an open proposal's; `reopened`:
    the same for a rejected one. `known`: proposed before, with any decision.
    """

    new: int = 0
    renewed: int = 0
    reopened: int = 0
    known: int = 0

    def __add__(self, other: "Proposed") -> "Proposed":
        """Return the sums."""
        return Proposed(
            self.new + other.new,
            self.renewed + other.renewed,
            self.reopened + other.reopened,
            self.known + other.known,
        )


class ProposalRecords:
    """Proposals with their evidence. One goes when an episode that it quotes is removed, or has its words no longer."""

    def __init__(self, gateway: Gateway, native: Native) -> None:
        self._gateway = gateway
        self._native = native

    def propose(self, proposal: Proposal) -> Proposed:
        """Store a proposal, unless it was made before, or another of its kind and target was decided on with all of
        this evidence. Nothing is stored when a quote is not found verbatim in its episode. What a statement supersedes
        is no longer for a topic: proposals to write it there expire.
        """

        def work(tables: Tables) -> Proposed:
            rows = tables["proposals"].find({"kind": proposal.kind.value, "target": sought(proposal.target)})
            if any(row["proposal_id"] == proposal.proposal_id for row in rows):
                return Proposed(known=1)
            episodes = tables["episodes"].among("episode_id", proposal.episode_ids, ["episode_id", *_TEXTS])
            texts = {row["episode_id"]: _text_of(row) for row in episodes}
            if not all(each.quote in texts.get(each.episode_id, "") for each in proposal.evidence):
                return Proposed()
            quotes = {(each.episode_id, each.quote) for each in proposal.evidence}
            former = [(row, {(e.episode_id, e.quote) for e in EVIDENCE.validate_json(row["evidence"])}) for row in rows]
            if any(row["state"] == State.ACCEPTED for row in rows):
                return Proposed(known=1)  # what it would change is changed
            decided = [(row, its) for row, its in former if row["state"] not in (State.OPEN, State.EXPIRED)]
            if any(quotes <= its for _, its in decided) or any(
                quotes <= its for row, its in former if row["state"] == State.OPEN
            ):
                return Proposed(known=1)
            rejected = [row["proposal_id"] for row, _ in decided if row["state"] == State.REJECTED]
            opened = [row["proposal_id"] for row in rows if row["state"] == State.OPEN]
            now = instant(datetime.now(UTC))
            change = {
                "state": State.EXPIRED.value,
                "decided_at": now,
                "reason": f"newer evidence: {proposal.proposal_id[:12]}",
            }
            tables["proposals"].update({"proposal_id": {"$in": opened}}, change)
            tables["proposals"].insert([_row(replace(proposal, reopens=rejected[-1] if rejected else ""))])
            pairs = [{"proposal_id": proposal.proposal_id, "episode_id": each} for each in proposal.episode_ids]
            tables["proposal_evidence"].add(pairs)
            if proposal.kind is Kind.SUPERSEDE:
                _expire_outdated(tables, proposal)
            return Proposed(renewed=1) if opened else Proposed(reopened=1) if rejected else Proposed(new=1)

        return self._gateway.write(work)

    def get(self, proposal_id: str) -> Proposal:
        """Return a proposal.

        :raises ProposalNotFound: there is none with this id.
        """
        with self._gateway.read() as tables:
            return _read(tables, proposal_id)

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        """Return the ids that begin with `prefix`, the first `limit`."""
        match = {"proposal_id": {"$gte": sought(prefix), "$lt": sought(prefix) + "g"}}
        with self._gateway.read() as tables:
            rows = tables["proposals"].find(match, ["proposal_id"], order=["proposal_id"], limit=limit)
        return [row["proposal_id"] for row in rows]

    def page(
        self,
        limit: int,
        state: State | None = State.OPEN,
        kind: Kind | None = None,
        projects: Collection[str] | None = None,
        after: tuple[str, str, str] | None = None,
        reason: str | None = None,
    ) -> list[Proposal]:
        """Return proposals of a state, newest first; None: of every state, by state.

        :param projects: only of these, as they are called; None: of all.
        :param reason: only those decided on with it; None: with any.
        :param after: state, time and id of the proposal that the page follows.
        """
        order = ["state", "-created_at", "proposal_id"]
        match: Match = {
            **({"state": state.value} if state else {}),
            **({"kind": kind.value} if kind else {}),
            **({"reason": reason} if reason is not None else {}),
            **(beyond(order, after) if after else {}),
        }
        found: list[Proposal] = []
        with self._gateway.read() as tables:
            aliases = read_aliases(tables)
            for row in tables["proposals"].each(match, order=order):
                proposal = _proposal(row, aliases)
                if projects is None or proposal.project in projects:
                    found.append(proposal)
                if len(found) == limit:
                    break
        return found

    def counts(self, state: State | None = None) -> dict[tuple[str, str, str], int]:
        """Return (state, kind, project) -> number of proposals, of one state or of all."""
        match: Match = {"state": state.value} if state else {}
        with self._gateway.read() as tables:
            aliases = read_aliases(tables)
            found: dict[tuple[str, str, str], int] = {}
            for row in tables["proposals"].sums(match, by=["state", "kind", "project"]):
                key = (row["state"], row["kind"], store_name(aliases, row["project"]))
                found[key] = found.get(key, 0) + row["rows"]
        return found

    def oldest(self, state: State) -> datetime | None:
        """Return when the oldest proposal of a state was made; None: there is none."""
        with self._gateway.read() as tables:
            row = tables["proposals"].one({"state": state.value}, ["created_at"], order=["created_at"])
        return moment(row["created_at"]) if row else None

    def of_episode(self, episode_id: str, limit: int) -> list[Proposal]:
        """Return the proposals that quote an episode, newest first."""
        with self._gateway.read() as tables:
            pairs = tables["proposal_evidence"].find({"episode_id": sought(episode_id)}, ["proposal_id"])
            rows = list(tables["proposals"].among("proposal_id", [row["proposal_id"] for row in pairs]))
            aliases = read_aliases(tables)
        newest = sorted(rows, key=lambda row: str(row["created_at"]), reverse=True)
        return [_proposal(row, aliases) for row in newest[:limit]]

    def accepted_from(self, episode_ids: Collection[str]) -> list[Proposal]:
        """Return the accepted proposals that quote any of these episodes."""
        with self._gateway.read() as tables:
            quoting = {row["proposal_id"] for row in tables["proposal_evidence"].among("episode_id", episode_ids)}
            rows = list(tables["proposals"].among("proposal_id", sorted(quoting), state=State.ACCEPTED.value))
            aliases = read_aliases(tables)
        return [_proposal(row, aliases) for row in rows]

    def accept(
        self,
        proposal_id: str,
        by: str,
        at: datetime,
        reason: str = "",
        record: Written | None = None,
        path: str = "",
        entry: str | None = None,
        machine: str = "",
    ) -> Proposal:
        """Do what an open proposal would change in the store, and note the approval. A topic file is to be written
        after this, and then `finish` called.

        :param record: the episode of its `NewRecord`.
        :param path: of the topic file that it changes, on `machine`.
        :param entry: the text in place of the proposed one.
        :return: it, accepted; or expired, if what it would change is otherwise by now.
        :raises ProposalNotFound: there is none with this id.
        :raises ProposalConflict: it is not open.
        """
        record = record and (storable(record[0]), storable_passages(record[1]))

        def work(tables: Tables) -> Proposal:
            proposal = _in_state(_read(tables, proposal_id), State.OPEN)
            proposal = proposal if entry is None else proposal.saying(entry)
            ids = [edit.episode_id for edit in proposal.change.statuses]
            rows = {row["episode_id"]: row for row in tables["episodes"].among("episode_id", ids, STATUS_FIELDS)}
            heirs = {edit.successor for edit in proposal.change.statuses if edit.successor}
            standing = [row["status"] for row in tables["episodes"].among("episode_id", heirs, ["status"])]
            standing += [row["status"] for row in rows.values()]
            if proposal.change.topic is not None:
                told = tables["episodes"].among("episode_id", [proposal.evidence[-1].episode_id], ["status"])
                standing += [row["status"] for row in told]
                heirs.add(proposal.evidence[-1].episode_id)
            if len(standing) < len({*ids}) + len(heirs) or any(each not in HOLDING for each in standing):
                expired = proposal.decided(State.EXPIRED, at, by, "an episode that it would change holds no longer")
                return _store(tables, expired)
            former = tuple(
                StatusEdit(row["episode_id"], Status(row["status"]), row["superseded_by"]) for row in rows.values()
            )
            cause = Cause(by, f"proposal {proposal_id[:12]} ({proposal.kind}) accepted{': ' * bool(reason)}{reason}")
            _set_statuses(tables, proposal.change.statuses, cause)
            tags, first_edits = _add_tags(tables, self._native, dict(proposal.change.tags))
            if record is not None:
                write_episodes(tables, self._native, [record])
            applied = Applied(
                former,
                tags,
                record[0].episode_id if record else "",
                path,
                is_done=proposal.change.topic is None,
                machine=machine,
                first_edits=first_edits,
            )
            return _store(tables, replace(proposal.decided(State.ACCEPTED, at, by, reason), applied=applied))

        return self._gateway.write(work)

    def finish(self, proposal_id: str, former: str, written: str) -> Proposal:
        """Note that the topic file of an accepted proposal is written. Open ones for the same file go on from its text.

        :param former: hash of its text before; empty: there was no file.
        :param written: hash of its text now; empty: it was written before, and may have been changed since.
        """

        def work(tables: Tables) -> Proposal:
            proposal = _in_state(_read(tables, proposal_id), State.ACCEPTED)
            applied = replace(proposal.applied or Applied(), former=former, written=written, is_done=True)
            aliases = read_aliases(tables)
            opened = tables["proposals"].find({"state": State.OPEN.value}) if written else []
            for other in (_proposal(row, aliases) for row in opened):
                if other.project == proposal.project and _file_of(other) == _file_of(proposal):
                    _store(tables, other.over(written))
            return _store(tables, replace(proposal, applied=applied))

        return self._gateway.write(work)

    def renew(self, proposal_id: str, former: str) -> Proposal:
        """Open a proposal again that expired because its topic file was changed, or its kind was off.

        :param former: hash of the file's present text.
        """

        def work(tables: Tables) -> Proposal:
            proposal = _in_state(_read(tables, proposal_id), State.EXPIRED)
            return _store(tables, replace(proposal.over(former), state=State.OPEN, decided_at=None, decided_by=""))

        return self._gateway.write(work)

    def unfinished(self, limit: int) -> list[Proposal]:
        """Return accepted proposals whose topic file was not written, because the process ended before."""
        accepted = self.page(limit, State.ACCEPTED, Kind.PROMOTE) + self.page(limit, State.ACCEPTED, Kind.LESSON)
        accepted += self.page(limit, State.ACCEPTED, Kind.STALE_TOPIC)
        return [each for each in accepted if each.applied and not each.applied.is_done]

    def close(
        self, proposal_id: str, state: State, by: str, at: datetime, reason: str = "", *, unfinished: bool = False
    ) -> Proposal:
        """Reject an open proposal, or let it expire; nothing is changed by it.

        :param unfinished: it is accepted, and its topic file is not written.
        :raises ProposalNotFound: there is none with this id.
        :raises ProposalConflict: it is neither.
        """

        def work(tables: Tables) -> Proposal:
            proposal = _read(tables, proposal_id)
            if not (unfinished and proposal.applied is not None and not proposal.applied.is_done):
                _in_state(proposal, State.OPEN)
            return _store(tables, replace(proposal.decided(state, at, by, reason), applied=None))

        return self._gateway.write(work)

    def undo(self, proposal_id: str, by: str, at: datetime, reason: str = "", state: State = State.UNDONE) -> Proposal:
        """Take an accepted proposal back: what it changed in the store is as before, where nothing else changed it
        since. A rejected one is open again.

        :param state: of one that was accepted, from then on.
        :raises ProposalNotFound: there is none with this id.
        :raises ProposalConflict: it is neither.
        """

        def work(tables: Tables) -> Proposal:
            proposal = _read(tables, proposal_id)
            if proposal.state is State.REJECTED:
                return _store(tables, replace(proposal.decided(State.OPEN, at, by, reason), decided_at=None))
            applied = _in_state(proposal, State.ACCEPTED).applied or Applied()
            set_by_it = {edit.episode_id: (edit.status, edit.successor) for edit in proposal.change.statuses}
            rows = list(tables["episodes"].among("episode_id", set_by_it, STATUS_FIELDS))
            same = [row for row in rows if (row["status"], row["superseded_by"]) == set_by_it[row["episode_id"]]]
            before: dict[str, Standing] = {e.episode_id: (e.status.value, e.successor) for e in applied.statuses}
            cause = Cause(by, f"proposal {proposal_id[:12]} ({proposal.kind}) undone{': ' * bool(reason)}{reason}")
            set_status(tables, same, before, cause)
            links.undo(tables, [row["episode_id"] for row in same])
            _take_tags(tables, self._native, dict(proposal.change.tags), applied)
            if applied.record_id:
                remove_episodes(tables, self._native, [applied.record_id])
            return _store(tables, proposal.decided(state, at, by, reason))

        return self._gateway.write(work)


# --- within a transaction --------------------------------------------------------------------------------

_TEXTS = ("summary", "raw_exchange")


def _text_of(row: Row) -> str:
    return f"{row['summary']}\n{row['raw_exchange']}"


def _in_state(proposal: Proposal, state: State) -> Proposal:
    if proposal.state is not state:
        decided = f" since {proposal.decided_at:%Y-%m-%d}" if proposal.decided_at else ""
        reason = f": {proposal.reason}" if proposal.reason else ""
        raise ProposalConflict(
            f"proposal {proposal.proposal_id} is {proposal.state}{decided}{reason}; it must be {state}"
        )
    return proposal


def _expire_outdated(tables: Tables, by: Proposal) -> None:
    """Let open proposals expire that would write into a topic what `by` says is superseded."""
    older = by.evidence[0]
    pairs = tables["proposal_evidence"].find({"episode_id": older.episode_id}, ["proposal_id"])
    for row in list(tables["proposals"].among("proposal_id", [pair["proposal_id"] for pair in pairs])):
        evidence = EVIDENCE.validate_json(row["evidence"])
        is_told = any((each.episode_id, each.quote) == (older.episode_id, older.quote) for each in evidence)
        if row["state"] == State.OPEN and row["kind"] == Kind.PROMOTE and is_told:
            change = {
                "state": State.EXPIRED.value,
                "decided_at": instant(datetime.now(UTC)),
                "reason": f"superseded by what proposal {by.proposal_id[:12]} quotes",
            }
            tables["proposals"].update({"proposal_id": row["proposal_id"]}, change)


def _file_of(proposal: Proposal) -> tuple[str, str] | None:
    topic = proposal.change.topic
    return (topic.name, topic.former) if topic else None


def _set_statuses(tables: Tables, edits: Sequence[StatusEdit], cause: Cause) -> None:
    standing_of: dict[str, Standing] = {each.episode_id: (each.status.value, each.successor) for each in edits}
    rows = list(tables["episodes"].among("episode_id", standing_of, STATUS_FIELDS))
    set_status(tables, rows, standing_of, cause)
    links.write_links(tables, {e.episode_id: e.successor for e in edits if e.successor}, Regime.STATEMENT)


def _add_tags(
    tables: Tables, native: Native, added: Mapping[str, Sequence[str]]
) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[tuple[str, str], ...]]:
    """Return the tags before, by episode, and the `Applied.first_edits`."""
    rows = {row["episode_id"]: row for row in tables["episodes"].among("episode_id", added, _TAGS)}
    held = {key: tuple(row["tags"]) for key, row in rows.items()}
    joined = {key: tuple(dict.fromkeys([*tags, *added[key]])) for key, tags in held.items()}
    _set_tags(tables, native, {key: tags for key, tags in joined.items() if tags != held[key]})
    first = [key for key, row in rows.items() if not row["edited"] and joined[key] != held[key]]
    hashes = {row["episode_id"]: row["content_hash"] for row in tables["episodes"].among("episode_id", first, _TAGS)}
    return tuple(held.items()), tuple(hashes.items())


_TAGS = ("episode_id", "tags", "edited", "content_hash")


def _take_tags(tables: Tables, native: Native, added: Mapping[str, Sequence[str]], applied: Applied) -> None:
    """Take off the tags that were added; those that came since stay."""
    before, hashes = dict(applied.tags), dict(applied.first_edits)
    gone = {key: set(tags) - set(before.get(key, ())) for key, tags in added.items()}
    rows = {row["episode_id"]: row for row in tables["episodes"].among("episode_id", gone, _TAGS)}
    left = {key: tuple(tag for tag in row["tags"] if tag not in gone[key]) for key, row in rows.items()}
    _set_tags(tables, native, {key: tags for key, tags in left.items() if tags != tuple(rows[key]["tags"])})
    same = [key for key, row in rows.items() if row["content_hash"] == hashes.get(key)]
    tables["episodes"].update({"episode_id": {"$in": sorted(same)}, "edited": 1}, {"edited": 0})


def _set_tags(tables: Tables, native: Native, tags_of: Mapping[str, tuple[str, ...]]) -> None:
    if not tags_of:
        return
    written: list[Written] = []
    for row in list(tables["episodes"].among("episode_id", tags_of, EPISODE_FIELDS)):
        episode = replace(episode_of(row), tags=tags_of[row["episode_id"]])
        stored = tables["passages"].find({"episode_id": episode.episode_id}, order=["ordinal"])
        written.append((episode, [passage_of(each).passage for each in stored]))
    write_episodes(tables, native, written)
    tables["episodes"].update({"episode_id": {"$in": sorted(tags_of)}, "edited": 0}, {"edited": 1})


def _read(tables: Tables, proposal_id: str) -> Proposal:
    row = tables["proposals"].one({"proposal_id": sought(proposal_id)})
    if row is None:
        raise ProposalNotFound(f"there is no proposal {proposal_id!r}; what it quoted may have been forgotten")
    return _proposal(row, read_aliases(tables))


def _store(tables: Tables, proposal: Proposal) -> Proposal:
    tables["proposals"].put([_row(proposal)], keep=["project"])
    return proposal


def _row(of: Proposal) -> Row:
    return {
        "proposal_id": of.proposal_id,
        "kind": of.kind.value,
        "project": of.project,
        "target": of.target,
        "title": of.title,
        "change": CHANGE.dump_json(of.change).decode(),
        "evidence": EVIDENCE.dump_json(of.evidence).decode(),
        "confidence": of.confidence,
        "detector": of.detector,
        "created_at": instant(of.created_at),
        "state": of.state.value,
        "decided_at": instant(of.decided_at) if of.decided_at else None,
        "decided_by": of.decided_by,
        "reason": of.reason,
        "reopens": of.reopens,
        "applied": APPLIED.dump_json(of.applied).decode() if of.applied else None,
        "record_id": of.applied.record_id if of.applied else "",
    }


def _proposal(row: Row, aliases: Mapping[str, str]) -> Proposal:
    return Proposal(
        Kind(row["kind"]),
        store_name(aliases, row["project"]),
        row["target"],
        row["title"],
        CHANGE.validate_json(row["change"]),
        EVIDENCE.validate_json(row["evidence"]),
        row["confidence"],
        row["detector"],
        moment(row["created_at"]),
        State(row["state"]),
        moment(row["decided_at"]) if row["decided_at"] else None,
        row["decided_by"],
        row["reason"],
        row["reopens"],
        APPLIED.validate_json(row["applied"]) if row["applied"] else None,
    )
