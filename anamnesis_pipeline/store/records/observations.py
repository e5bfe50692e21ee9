"""Observations, and what is to be observed: the sessions of logs, and the notes and texts, that came or changed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Tables, batches, beyond, write_all
from anamnesis_pipeline.store.knowledge_model import EVIDENCE, Observation, Signal
from anamnesis_pipeline.store.records.session_notes import is_of_log
from anamnesis_pipeline.store.records.settings import names_of, read_aliases, store_name
from anamnesis_pipeline.store.values import instant, moment, sought

_UNSEEN_KINDS = frozenset({"code", "session", "rolling"})
"""Kinds of episodes that repeat others, or hold no statement."""
_BY_TIME = ("at", "number")
_ORIGIN_FIELDS = ("episode_id", "source", "session_id", "kind")
UNOBSERVED, UNLINKED = "unobserved", "unlinked"
"""Tables of what is to be observed, and of what is to be read for the things that it touches."""


@dataclass(frozen=True, slots=True)
class Unobserved:
    """A session of a log, or an episode that is of none, in which something changed; `noted` grows with each change."""

    origin: str
    noted: int


def waiting(
    gateway: Gateway, queue: str, limit: int, sources: Collection[str] = (), after: str = ""
) -> list[Unobserved]:
    """Return the sessions, notes and texts of some or all sources that wait in a queue, by id, behind `after`."""
    match: dict[str, object] = {"origin": {"$gt": after}}
    if sources:
        match["source"] = {"$in": sorted(sources)}
    with gateway.read() as tables:
        rows = tables[queue].find(match, ["origin", "noted"], order=["origin"], limit=limit)
    return [Unobserved(**row) for row in rows]


def note_all(gateway: Gateway, queue: str) -> None:
    """Put every session, note and text into a queue: the rules by which it is read are others now."""
    with gateway.read() as tables:
        sources = _sources_of(tables["episodes"].each({}, _ORIGIN_FIELDS))
    write_all(gateway, sorted(sources.items()), partial(_note, queue=queue))


class ObservationRecords:
    """Observations by what they are about. They go with their episode, and with its text when this becomes another."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def unobserved(self, limit: int, sources: Collection[str] = (), after: str = "") -> list[Unobserved]:
        """Return the sessions, notes and texts of some or all sources that are to be observed, by id.

        :param after: only those behind this id.
        """
        return waiting(self._gateway, UNOBSERVED, limit, sources, after)

    def unobserved_count(self) -> int:
        """Count the sessions, notes and texts to be observed."""
        with self._gateway.read() as tables:
            return tables[UNOBSERVED].count({})

    def note_all(self) -> None:
        """Let everything be observed again: the rules are others now."""
        note_all(self._gateway, UNOBSERVED)

    def settle(self, of: Unobserved, found: Sequence[Observation]) -> int:
        """Write what was observed in a session, note or text in place of what was observed there before. What is the
        same keeps its number. Return how many are new. It stays to be observed if it changed meanwhile.
        """

        def work(tables: Tables) -> int:
            held = {_content(row): row["number"] for row in tables["observations"].find({"origin": of.origin})}
            wanted = {_content(row): row for row in (_row(of.origin, each) for each in found)}
            present = tables["episodes"].among("episode_id", {r["episode_id"] for r in wanted.values()}, ["episode_id"])
            stored = {row["episode_id"] for row in present}
            gone = [number for content, number in held.items() if content not in wanted]
            for batch in batches(gone):
                tables["observations"].delete({"number": {"$in": list(batch)}})
            new = [row for key, row in wanted.items() if key not in held and row["episode_id"] in stored]
            tables["observations"].insert(new)
            tables[UNOBSERVED].delete({"origin": of.origin, "noted": of.noted})
            return len(new)

        return self._gateway.write(work)

    def settle_silent(self, silent: Sequence[Unobserved]) -> None:
        """Write at once that nothing is observed in these, as `settle` does for one."""
        noted: dict[int, list[str]] = {}
        for each in silent:
            noted.setdefault(each.noted, []).append(each.origin)

        def work(tables: Tables, origins: Sequence[str], number: int) -> None:
            tables["observations"].delete({"origin": {"$in": list(origins)}})
            tables[UNOBSERVED].delete({"origin": {"$in": list(origins)}, "noted": number})

        for number, origins in noted.items():
            write_all(self._gateway, origins, partial(work, number=number))

    def after(self, signals: Collection[Signal], number: int, limit: int) -> list[Observation]:
        """Return observations in the order in which they were stored, behind `number`."""
        match = {"signal": {"$in": sorted(signals)}, "number": {"$gt": number}}
        return self._found(match, order=["number"], limit=limit)

    def fresh(self, signals: Collection[Signal], number: int) -> tuple[int, list[str]]:
        """Return the greatest number of observations of these signals behind `number`, or `number`, and the projects
        in which those are, by name.
        """
        match = {"signal": {"$in": sorted(signals)}, "number": {"$gt": number}}
        with self._gateway.read() as tables:
            last = tables["observations"].one(match, ["number"], order=["-number"])
            aliases = read_aliases(tables)
            names = {store_name(aliases, row["project"]) for row in tables["observations"].sums(match, by=["project"])}
        return (last["number"], sorted(names)) if last else (number, [])

    def of_project_after(
        self, signals: Collection[Signal], project: str, number: int, until: int, limit: int
    ) -> list[Observation]:
        """Return observations of a project behind `number` up to `until`, in the order in which they were stored."""
        with self._gateway.read() as tables:
            names = names_of(read_aliases(tables), project)
        match = {
            "signal": {"$in": sorted(signals)},
            "project": {"$in": sorted(names)},
            "number": {"$gt": number, "$lte": until},
        }
        return self._found(match, order=["number"], limit=limit)

    def between(self, signals: Collection[Signal], after: tuple[str, int], until: str, limit: int) -> list[Observation]:
        """Return observations of a time, the oldest first, those of one instant in the order in which they were stored.

        :param after: instant, as `values.instant` writes it, and number of the one that they follow; empty and 0: none.
        :param until: inclusive.
        """
        match = {"signal": {"$in": sorted(signals)}, "at": {"$gt": "", "$lte": until}, **beyond(_BY_TIME, after)}
        return self._found(match, order=_BY_TIME, limit=limit)

    def same(self, signal: Signal, key: str, limit: int) -> list[Observation]:
        """Return the observations of one thing, the oldest stored first."""
        return self._found({"signal": signal.value, "key": sought(key)}, order=["number"], limit=limit)

    def of_project(self, signals: Collection[Signal], project: str, limit: int) -> list[Observation]:
        """Return the newest observations of a project, the newest first. Names are those of projects as stored."""
        with self._gateway.read() as tables:
            aliases = read_aliases(tables)
        match = {"signal": {"$in": sorted(signals)}, "project": {"$in": sorted(names_of(aliases, project))}}
        return self._found(match, order=["-number"], limit=limit)

    def of_episode(self, episode_id: str) -> list[Observation]:
        """Return what was observed in an episode."""
        return self._found({"episode_id": sought(episode_id)}, order=["number"], limit=1_000)

    def counts(self) -> dict[str, int]:
        """Return signal -> the number of its observations."""
        with self._gateway.read() as tables:
            return {row["signal"]: row["rows"] for row in tables["observations"].sums({}, by=["signal"])}

    def _found(self, match: Match, order: Sequence[str], limit: int) -> list[Observation]:
        with self._gateway.read() as tables:
            rows = tables["observations"].find(match, order=order, limit=limit)
            aliases = read_aliases(tables)
        return [_observation(row, aliases) for row in rows]


# --- within a transaction --------------------------------------------------------------------------------


def note_changed(tables: Tables, rows: Iterable[Row]) -> None:
    """Let the sessions, notes and texts of these rows of episodes be observed again, and what they touch be found."""
    sources = sorted(_sources_of(rows).items())
    for queue in (UNOBSERVED, UNLINKED):
        _note(tables, sources, queue)


def forget_evidence(tables: Tables, episode_ids: Collection[str]) -> list[str]:
    """Remove what was observed in episodes that are removed, and the proposals that quote them. Return the ids of the
    notes that accepting these posted, which are to go, too.
    """
    ids = sorted(episode_ids)
    tables["observations"].delete({"$or": [{"episode_id": {"$in": ids}}, {"answer_id": {"$in": ids}}]})
    tables[UNOBSERVED].delete({"origin": {"$in": ids}})
    return _drop(tables, {row["proposal_id"] for row in tables["proposal_evidence"].among("episode_id", ids)})


def drop_unfounded(tables: Tables, texts: Mapping[str, str]) -> list[str]:
    """Remove what was observed in episodes whose text becomes another, and the proposals that quote words which are
    there no longer. Return as `forget_evidence`.

    :param texts: episode -> all its new text.
    """
    ids = sorted(texts)
    tables["observations"].delete({"$or": [{"episode_id": {"$in": ids}}, {"answer_id": {"$in": ids}}]})
    quoting = {row["proposal_id"] for row in tables["proposal_evidence"].among("episode_id", ids)}
    unfounded: set[str] = set()
    for row in tables["proposals"].among("proposal_id", quoting, ["proposal_id", "evidence"]):
        evidence = EVIDENCE.validate_json(row["evidence"])
        if any(each.episode_id in texts and each.quote not in texts[each.episode_id] for each in evidence):
            unfounded.add(row["proposal_id"])
    return _drop(tables, unfounded)


def _drop(tables: Tables, proposal_ids: Collection[str]) -> list[str]:
    if not proposal_ids:
        return []
    match = {"proposal_id": {"$in": sorted(proposal_ids)}}
    posted = [row["record_id"] for row in tables["proposals"].find(match, ["record_id"]) if row["record_id"]]
    tables["proposals"].delete(match)
    tables["proposal_evidence"].delete(match)
    return posted


def _note(tables: Tables, sources: Sequence[tuple[str, str]], queue: str) -> None:
    """Put sessions, notes and texts (origin, source) into a queue."""
    if sources:
        match = {"origin": {"$in": [origin for origin, _ in sources]}}
        if tables[queue].update(match, {}, add={"noted": 1}) < len(sources):
            tables[queue].add([{"origin": each, "source": source, "noted": 1} for each, source in sources])


def _sources_of(rows: Iterable[Row]) -> dict[str, str]:
    """Return the sessions, notes and texts of these rows of episodes, each with its source."""
    return {origin: row["source"] for row in rows if (origin := _origin_of(row))}


def _origin_of(row: Mapping[str, str]) -> str:
    """Return the session of an episode of a log, the episode's own id if it is of none, or nothing if it is not
    observed.
    """
    if row["kind"] in _UNSEEN_KINDS:
        return ""
    return row["session_id"] if is_of_log(row["source"], row["session_id"]) else row["episode_id"]


def _row(origin: str, of: Observation) -> Row:
    return {
        "origin": origin,
        "signal": of.signal.value,
        "key": of.key,
        "project": of.project,
        "session_id": of.session_id,
        "episode_id": of.episode_id,
        "message_id": of.message_id,
        "at": instant(of.at) if of.at else "",
        "quote": of.quote,
        "answer": of.answer,
        "answer_id": of.answer_id,
    }


def _content(row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("signal", "key", "project", "episode_id", "message_id", "quote", "answer"))


def _observation(row: Row, aliases: Mapping[str, str]) -> Observation:
    return Observation(
        Signal(row["signal"]),
        row["key"],
        row["episode_id"],
        row["quote"],
        project=store_name(aliases, row["project"]),
        session_id=row["session_id"],
        message_id=row["message_id"],
        at=moment(row["at"]) if row["at"] else None,
        answer=row["answer"],
        answer_id=row["answer_id"],
        number=row["number"],
    )
