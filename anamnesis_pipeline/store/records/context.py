"""The episodes that sessions were shown, and the newest of a project."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from anamnesis_pipeline.model import HOLDING, Episode
from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Tables
from anamnesis_pipeline.store.values import EPISODE_FIELDS, clean, episode_of, indexed, instant, moment

SESSIONS_KEPT = 2_000
"""Sessions of which it is known what they were shown; of more, those that asked last."""
SHOWN_KEPT = 300
"""Items remembered of one session, the latest ones."""
SESSION_EXPIRES = timedelta(days=30)
"""What was shown to a session that did not ask for so long is forgotten."""
TAGGED_AMONG = 2_000
"""Episodes of a tag that are looked through for those of one project, the latest that were stored: what a read costs
does not grow with what is stored."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An item that a session has seen. `passage_id`: the passage that it showed; None: it showed something else."""

    episode_id: str
    passage_id: int | None = None


@dataclass(frozen=True, slots=True)
class SessionMemory:
    """What a session was shown, oldest first, and when it lost what it had before (a compaction); None: never."""

    shown: tuple[Shown, ...] = ()
    restarted_at: datetime | None = None


class ContextRecords:
    """What sessions were shown, and the newest episodes of a project. Bounded by the constants above."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def session(self, session_id: str) -> SessionMemory:
        """Return what this session was shown since it began, or was restarted."""
        of_session = {"session_id": clean(session_id)}
        with self._gateway.snapshot() as tables:
            known = tables["context_sessions"].one(of_session, ["restarted_at"])
            shown = tables["context_shown"].find(of_session, ["episode_id", "passage_id"], order=["number"])
        return SessionMemory(
            tuple(Shown(row["episode_id"], row["passage_id"]) for row in shown),
            moment(known["restarted_at"]) if known and known["restarted_at"] else None,
        )

    def show(self, session_id: str, items: Sequence[Shown], when: datetime) -> set[str]:
        """Note that a session sees these now. Return the ids of those that it had not seen; of two calls at once, one
        returns an id. The oldest beyond the bounds are removed.
        """
        session_id, wanted = clean(session_id), dict[str, Shown]()
        for item in items:
            wanted.setdefault(clean(item.episode_id), item)

        def work(tables: Tables) -> set[str]:
            row = {"session_id": session_id, "seen_at": instant(when), "restarted_at": None}
            tables["context_sessions"].put([row], keep=["restarted_at"])
            shown = tables["context_shown"]
            seen = {each["episode_id"]: each["number"] for each in shown.find({"session_id": session_id})}
            last = max(seen.values(), default=0)
            new = [(episode_id, item) for episode_id, item in wanted.items() if episode_id not in seen]
            shown.insert(
                [
                    {"session_id": session_id, "episode_id": key, "number": number, "passage_id": item.passage_id}
                    for number, (key, item) in enumerate(new, last + 1)
                ]
            )
            shown.delete({"session_id": session_id, "number": {"$lte": last + len(new) - SHOWN_KEPT}})
            _expire(tables, when)
            return {item.episode_id for _, item in new}

        return self._gateway.write(work)

    def restart(self, session_id: str, when: datetime) -> None:
        """Remove what a session was shown: its context was emptied."""
        now = instant(when)
        row = {"session_id": clean(session_id), "seen_at": now, "restarted_at": now}

        def work(tables: Tables) -> None:
            tables["context_sessions"].put([row])
            tables["context_shown"].delete({"session_id": row["session_id"]})
            _expire(tables, when)

        self._gateway.write(work)

    def has_project(self, project: str) -> bool:
        """Tell whether there is an episode of a project, superseded or not; cheap."""
        with self._gateway.read() as tables:
            return tables["episodes"].has({"project": indexed(project)})

    def newest(self, project: str, kind: str, limit: int, before: datetime | None = None) -> list[Episode]:
        """Return the newest active episodes of one project and kind, by (timestamp, id), newest first; `before` is
        exclusive. The cost grows with the episodes returned, not with those stored.
        """
        earlier = {"timestamp": {"$lt": instant(before)}} if before is not None else {}
        match = {"project": indexed(project), "kind": clean(kind), **earlier}
        with self._gateway.read() as tables:
            return _newest(tables, match, limit)

    def newest_tagged(self, project: str, tag: str, limit: int) -> list[Episode]:
        """Return the newest active episodes of a project with this tag, newest first, among the TAGGED_AMONG episodes
        of the tag that were stored last.
        """
        tagged = {"tags": {"$has": clean(tag)}}
        wanted = {"project": indexed(project)}
        with self._gateway.snapshot() as tables:
            episodes = tables["episodes"]
            beyond = episodes.find(tagged, ["number"], order=["-number"], skip=TAGGED_AMONG, limit=1)
            lately = {"number": {"$gt": beyond[0]["number"]}} if beyond else {}
            return _newest(tables, {**tagged, **wanted, **lately}, limit)


def _newest(tables: Tables, match: Match, limit: int) -> list[Episode]:
    """Return the newest that hold. Each status is read on its own, in the order of its index."""
    found: list[Row] = []
    for status in HOLDING:
        wanted = {**match, "status": status}
        found += tables["episodes"].find(wanted, EPISODE_FIELDS, order=["-timestamp", "-episode_id"], limit=limit)
    found.sort(key=lambda row: (row["timestamp"], row["episode_id"]), reverse=True)
    return [episode_of(row) for row in found[:limit]]


def _expire(tables: Tables, when: datetime) -> None:
    sessions = tables["context_sessions"]
    old = sessions.find({"seen_at": {"$lt": instant(when - SESSION_EXPIRES)}}, ["session_id"])
    more = sessions.find({}, ["session_id"], order=["-seen_at"], skip=SESSIONS_KEPT)
    if gone := sorted({row["session_id"] for row in (*old, *more)}):
        for name in ("context_sessions", "context_shown"):
            tables[name].delete({"session_id": {"$in": gone}})
