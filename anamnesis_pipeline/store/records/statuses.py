"""The status of episodes, and the history of its changes, written in the transaction of each change."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from anamnesis_pipeline.model import HOLDING, Status
from anamnesis_pipeline.store.gateway import Gateway, Row, Tables, by_rows
from anamnesis_pipeline.store.values import instant, moment, sought

STATUS_FIELDS = ("number", "episode_id", "status", "superseded_by", "superseded_at")

Standing = tuple[str, str | None]
"""A `Status`, and the episode that stands for it, if any."""
STANDS_ITSELF: Standing = (Status.ACTIVE.value, None)


@dataclass(frozen=True, slots=True)
class Cause:
    """Who changes a status, a person, a client or the name of a rule, and why."""

    by: str
    reason: str = ""


EDITED = Cause("request")
"""Of a change that says no more of itself."""


@dataclass(frozen=True, slots=True)
class StatusChange:
    """One change of the status of an episode. `successor`: the episode that stands for it from then on."""

    episode_id: str
    former: str
    status: str
    successor: str | None
    by: str
    reason: str
    at: datetime


class StatusRecords:
    """The history of statuses."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def history(self, episode_id: str, limit: int) -> list[StatusChange]:
        """Return the newest changes of an episode's status, oldest first."""
        with self._gateway.read() as tables:
            rows = tables["status_history"].find({"episode_id": sought(episode_id)}, order=["-number"], limit=limit)
        return list(map(_change, reversed(rows)))

    def histories(self, episode_ids: Collection[str], limit: int) -> dict[str, list[StatusChange]]:
        """Return id -> the newest changes of an episode's status, oldest first, for those that have one."""
        with self._gateway.read() as tables:
            rows = list(tables["status_history"].among("episode_id", sorted(episode_ids)))
        found: dict[str, list[StatusChange]] = {}
        for row in sorted(rows, key=lambda row: int(row["number"])):
            found.setdefault(row["episode_id"], []).append(_change(row))
        return {episode_id: changes[-limit:] for episode_id, changes in found.items()}

    def restore(self, changes: Sequence[StatusChange], since: Mapping[str, datetime]) -> None:
        """Give episodes the history that they had in another store, those that have one already excepted. Their status
        stays the same.

        :param changes: oldest first.
        :param since: id -> since when an episode holds no longer; for those of `changes` and others.
        """
        told: dict[str, list[StatusChange]] = {episode_id: [] for episode_id in since}
        for change in changes:
            told.setdefault(change.episode_id, []).append(change)
        for batch in by_rows(list(told.items()), lambda each: 1 + len(each[1])):
            self._gateway.write(partial(_restore, told=dict(batch), since=since))


def _restore(tables: Tables, told: Mapping[str, Sequence[StatusChange]], since: Mapping[str, datetime]) -> None:
    known = {row["episode_id"] for row in tables["status_history"].among("episode_id", told, ["episode_id"])}
    rows = tables["episodes"].among("episode_id", told, STATUS_FIELDS)
    held = {row["episode_id"]: row for row in rows if row["episode_id"] not in known}
    dated = [
        {"number": row["number"], "superseded_at": instant(since[episode_id])}
        for episode_id, row in held.items()
        if episode_id in since and row["status"] not in HOLDING and row["superseded_at"] is None
    ]
    if dated:
        tables["episodes"].put(dated)
    if changes := [_row(change) for episode_id in held for change in told[episode_id]]:
        tables["status_history"].insert(changes)


def _change(row: Row) -> StatusChange:
    return StatusChange(
        row["episode_id"],
        row["former"],
        row["status"],
        row["successor"],
        row["actor"],
        row["reason"],
        moment(row["at"]),
    )


def _row(change: StatusChange) -> Row:
    return {
        "episode_id": change.episode_id,
        "former": change.former,
        "status": change.status,
        "successor": change.successor,
        "actor": change.by,
        "reason": change.reason,
        "at": instant(change.at),
    }


def set_status(tables: Tables, rows: Sequence[Row], standing_of: Mapping[str, Standing], cause: Cause) -> None:
    """Let episodes, of rows with `STATUS_FIELDS`, stand so, and note each that stood otherwise. What holds no longer
    keeps the time since when.
    """
    at = datetime.now(UTC)
    now = instant(at)
    changed: list[Row] = []
    noted: list[Row] = []
    for row in rows:
        status, successor = standing_of[row["episode_id"]]
        if (row["status"], row["superseded_by"]) == (status, successor):
            continue
        since = None if status in HOLDING else row["superseded_at"] or now
        number = {"number": row["number"]}
        changed.append({**number, "status": status, "superseded_by": successor, "superseded_at": since})
        noted.append(
            _row(StatusChange(row["episode_id"], row["status"], status, successor, cause.by, cause.reason, at))
        )
    if changed:
        tables["episodes"].put(changed)
        tables["status_history"].insert(noted)


def revive(tables: Tables, canonical_of: Mapping[str, str], cause: Cause) -> set[str]:
    """Let the episodes for which these stood be active, but for those for which something else stands by now. Return
    the ids of those that are active now.
    """
    rows = [
        row
        for row in tables["episodes"].among("episode_id", canonical_of, STATUS_FIELDS)
        if row["superseded_by"] == canonical_of[row["episode_id"]]
    ]
    revived = {row["episode_id"] for row in rows}
    set_status(tables, rows, dict.fromkeys(revived, STANDS_ITSELF), cause)
    return revived


def forget_history(tables: Tables, episode_ids: Collection[str]) -> None:
    """Remove the history of episodes that are removed."""
    tables["status_history"].delete({"episode_id": {"$in": sorted(episode_ids)}})
