"""Consolidation: which episodes stand for which others, and which sessions are to be settled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.model import Episode, Passage, Status
from anamnesis_pipeline.store.contracts import Native
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE, Gateway, Match, Tables, write_all
from anamnesis_pipeline.store.records import events
from anamnesis_pipeline.store.records.episodes import write_rows
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.links import (
    Link,
    Regime,
    behind_stored,
    hide,
    links_of,
    note_sessions,
    quoting,
    undo,
    write_links,
)
from anamnesis_pipeline.store.records.statuses import STATUS_FIELDS, Cause, revive, set_status
from anamnesis_pipeline.store.tables import NOT_EMPTY
from anamnesis_pipeline.store.values import storable, storable_passages

_SETTLED = Cause("consolidation", "no later episode of its session says the same any more")
_UNDONE = Cause("request", "consolidation was undone")


@dataclass(frozen=True, slots=True)
class ChangedSession:
    """A session in which something came, changed or went since it was last settled; `noted` grows with each change."""

    session_id: str
    noted: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """How many episodes one write superseded, and how many it made active again."""

    superseded: int = 0
    revived: int = 0


@dataclass(frozen=True, slots=True)
class Unsuperseded:
    """Ids of the episodes that are active again, and of the merged one that went for it; None: there was none."""

    restored: tuple[str, ...]
    retired: str | None = None


class ConsolidationRecords:
    """Links between episodes. They outlive the rows of the episodes that they hide: one that is written again is hidden
    again. When the episode that stands for others is removed, those are active again at once; when the text of one that
    was merged changes or goes, the merged episode, which quotes it, goes in the same transaction.
    """

    def __init__(self, gateway: Gateway, native: Native) -> None:
        self._gateway = gateway
        self._native = native

    def changed(self, limit: int) -> list[ChangedSession]:
        """Return sessions to settle, by id; those with an episode that lacks vectors in the active space wait."""
        ready: list[ChangedSession] = []
        match: Match = {}
        with self._gateway.read() as tables:
            active = tables["spaces"].one({"status": "active"}, ["space_id"])
            lacks = active if active and tables["pending"].has(active) else None
            while len(ready) < limit:
                found = tables["unconsolidated"].find(match, order=["session_id"], limit=MAX_ROWS_PER_WRITE)
                waiting: set[str] = set()
                if lacks:
                    ids = [row["session_id"] for row in found]
                    episodes = tables["episodes"].among("session_id", ids, ["number", "session_id"])
                    session_of = {row["number"]: row["session_id"] for row in episodes}
                    pending = tables["pending"].among("number", session_of, ["number"], **lacks)
                    waiting = {session_of[row["number"]] for row in pending}
                ready += [ChangedSession(**row) for row in found if row["session_id"] not in waiting]
                if len(found) < MAX_ROWS_PER_WRITE:
                    break
                match = {"session_id": {"$gt": found[-1]["session_id"]}}
        return ready[:limit]

    def changed_count(self) -> int:
        """Count the sessions to settle, those that wait included."""
        with self._gateway.read() as tables:
            return tables["unconsolidated"].count({})

    def note_all(self) -> None:
        """Let every session be settled again: the rule is another one now."""
        with self._gateway.read() as tables:
            rows = tables["episodes"].sums({"session_id": NOT_EMPTY}, by=["session_id"])
        write_all(self._gateway, sorted(row["session_id"] for row in rows), note_sessions)

    def links(self, episode_ids: Sequence[str]) -> dict[str, Link]:
        """Return episode id -> its link, undone ones included; for those that have one."""
        with self._gateway.read() as tables:
            return links_of(tables, episode_ids)

    def settle(self, session: ChangedSession, canonical_of: Mapping[str, str | None]) -> Settlement:
        """Write which episode of a session stands for each of these, None: none does any more. Links of other regimes,
        undone ones and episodes superseded otherwise stay as they are. The session is settled, unless something
        happened to it since `session` was read. One transaction, idempotent.
        """

        def work(tables: Tables) -> Settlement:
            to_hide, before, to_revive = {}, {}, {}
            links = links_of(tables, canonical_of)
            for episode_id, canonical in canonical_of.items():
                link = links.get(episode_id)
                if link is not None and (link.undone or link.regime is not Regime.SESSION):
                    continue
                if link is not None:
                    before[episode_id] = link.canonical
                if canonical is not None and canonical != before.get(episode_id):
                    to_hide[episode_id] = canonical
                elif canonical is None and link is not None:
                    to_revive[episode_id] = link.canonical
            possible = behind_stored(tables, to_hide)
            hidden = hide(tables, possible, before, Regime.SESSION)
            write_links(tables, {episode_id: possible[episode_id] for episode_id in sorted(hidden)}, Regime.SESSION)
            revived = revive(tables, to_revive, _SETTLED)
            if to_revive:
                tables["consolidated"].delete({"episode_id": {"$in": sorted(to_revive)}})
            moved = [episode_id for episode_id in canonical_of if episode_id in hidden | revived]
            events.note(tables, Happening.CONSOLIDATION, moved)
            tables["unconsolidated"].delete({"session_id": session.session_id, "noted": session.noted})
            return Settlement(len(hidden), len(revived))

        return self._gateway.write(work)

    def merge(self, merged: Episode, passages: Sequence[Passage], members: Sequence[Episode]) -> bool:
        """Write an episode that stands for `members`. Return False, with nothing written, when one of these is not
        active, or has another text than it had, or was unsuperseded before, or the id exists.
        """
        merged, passages = storable(merged), storable_passages(passages)
        canonical_of = {member.episode_id: merged.episode_id for member in members}
        texts = {member.episode_id: member.raw_exchange for member in members}

        def work(tables: Tables) -> bool:
            if links_of(tables, texts) or tables["episodes"].has({"episode_id": merged.episode_id}):
                return False
            rows = tables["episodes"].among("episode_id", texts, ["episode_id", "raw_exchange"], status="active")
            if {row["episode_id"]: row["raw_exchange"] for row in rows} != texts:
                return False
            write_rows(tables, self._native, [(merged, passages)])
            hide(tables, canonical_of, {}, Regime.MERGE)
            write_links(tables, canonical_of, Regime.MERGE)
            events.note(tables, Happening.CONSOLIDATION, [merged.episode_id, *canonical_of])
            return True

        return self._gateway.write(work)

    def unsupersede(self, episode_id: str) -> Unsuperseded:
        """Undo a link, for good: of an episode that another of its session or a newer statement stands for, that one;
        of a merged one, or of one of those that it was made of, all of the merge.

        :raises EpisodeNotFound: no such id, or nothing of it is superseded by consolidation.
        """

        def work(tables: Tables) -> Unsuperseded:
            link = links_of(tables, [episode_id]).get(episode_id)
            if link is not None and link.regime is not Regime.MERGE and not link.undone:
                revive(tables, {episode_id: link.canonical}, _UNDONE)
                undo(tables, [episode_id])
                events.note(tables, Happening.CONSOLIDATION, [episode_id])
                return Unsuperseded((episode_id,))
            merged = next(iter(quoting(tables, [episode_id])), episode_id)
            linked = tables["consolidated"].find({"canonical": merged, "undone": 0}, order=["episode_id"])
            members = [row["episode_id"] for row in linked if row["regime"] == Regime.MERGE]
            if not members:
                raise EpisodeNotFound(f"nothing was superseded by consolidation of an episode {episode_id!r}")
            revive(tables, dict.fromkeys(members, merged), _UNDONE)
            undo(tables, members)
            rows = tables["episodes"].find({"episode_id": merged}, STATUS_FIELDS)
            set_status(tables, rows, {merged: (Status.SUPERSEDED.value, None)}, _UNDONE)
            events.note(tables, Happening.CONSOLIDATION, [merged, *members])
            return Unsuperseded(tuple(members), merged)

        return self._gateway.write(work)

    def counts(self) -> dict[str, int]:
        """Return regime -> episodes that are hidden by it; `undone`: links undone by a user."""
        counts = dict.fromkeys([*map(str, Regime), "undone"], 0)
        with self._gateway.read() as tables:
            for row in tables["consolidated"].sums({}, by=["regime", "undone"]):
                counts["undone" if row["undone"] else row["regime"]] += row["rows"]
        return counts
