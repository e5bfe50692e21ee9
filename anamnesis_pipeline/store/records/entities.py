"""What sessions, notes and texts touch and name, what people call it, and whose mentions are to be found again.

Mentions are stored as they were found. What people call things is applied when they are read.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from anamnesis_pipeline.errors import EntityConflict
from anamnesis_pipeline.store.entity_model import Entity, EntityKind, EntityName, Mention, Names, Relation
from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Tables, batches
from anamnesis_pipeline.store.records.observations import UNLINKED, Unobserved, note_all, waiting
from anamnesis_pipeline.store.records.settings import names_of, read_aliases, store_name
from anamnesis_pipeline.store.values import LAST_CHARACTER, clean, instant, moment, sought

MAX_NAMES = 5_000
"""Decisions on names in a store."""
MAX_ALIASES = 100
"""Other names of one thing whose mentions are looked for."""


class EntityRecords:
    """Mentions by what they name. They go with their episode."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def unlinked(self, limit: int, sources: Collection[str] = (), after: str = "") -> list[Unobserved]:
        """Return the sessions, notes and texts of some or all sources whose mentions are to be found, by id.

        :param after: only those behind this id.
        """
        return waiting(self._gateway, UNLINKED, limit, sources, after)

    def unlinked_count(self) -> int:
        """Count the sessions, notes and texts whose mentions are to be found."""
        with self._gateway.read() as tables:
            return tables[UNLINKED].count({})

    def note_all(self) -> None:
        """Let all mentions be found again: the rules are others now."""
        note_all(self._gateway, UNLINKED)

    def settle(self, of: Unobserved, found: Sequence[Mention]) -> int:
        """Write what was found in a session, note or text in place of what was found there before. What is the same
        keeps its number. Return how many mentions are new. It stays to be read if it changed meanwhile.

        :param found: of episodes of this session, or of this note or text.
        """

        def work(tables: Tables) -> int:
            of_it = {"$or": [{"session_id": of.origin}, {"episode_id": of.origin}]}
            held = {_content(row): row["number"] for row in tables["mentions"].find(of_it)}
            wanted = {_content(row): row for row in map(_row, found)}
            present = tables["episodes"].among("episode_id", {r["episode_id"] for r in wanted.values()}, ["episode_id"])
            stored = {row["episode_id"] for row in present}
            for batch in batches([number for content, number in held.items() if content not in wanted]):
                tables["mentions"].delete({"number": {"$in": list(batch)}})
            new = [row for key, row in wanted.items() if key not in held and row["episode_id"] in stored]
            for rows in batches(new):
                tables["mentions"].insert(rows)
            tables[UNLINKED].delete({"origin": of.origin, "noted": of.noted})
            return len(new)

        return self._gateway.write(work)

    def named(
        self, kind: EntityKind, leaf: str, limit: int, *, projects: Collection[str] = (), before: int = 0
    ) -> list[Mention]:
        """Return mentions of things of a kind, the newest stored first.

        :param leaf: as `leaf_of` returns it.
        :param projects: names as stored; empty: all.
        :param before: only those stored before this number; 0: all.
        """
        with self._gateway.read() as tables:
            names = read_names(tables)
            ends: list[Match] = [{"kind": kind.value, "leaf": sought(leaf)}]
            ends += [
                _end(each.entity) for each in names.all() if _is_end(names.of(each.project, each.entity), kind, leaf)
            ]
            found = self._read(tables, names, _either(ends), ["-number"], limit, projects, before)
        return [each for each in found if _is_end(each.entity, kind, leaf)]

    def beginning(
        self,
        kind: EntityKind,
        beginnings: Collection[str],
        limit: int,
        *,
        projects: Collection[str] = (),
        of: str = "leaf",
    ) -> list[Mention]:
        """Return mentions of things of a kind whose lookup name, or another field `of` them, begins so, as they were
        found: what people call them does not count.

        :param projects: names as stored; empty: all.
        """
        match: dict[str, object] = {"kind": kind.value}
        match["$or"] = [{of: {"$gte": sought(each), "$lt": sought(each) + LAST_CHARACTER}} for each in beginnings]
        with self._gateway.read() as tables:
            return self._read(tables, read_names(tables), match, [], limit, projects) if beginnings else []

    def of_entity(self, entity: Entity, limit: int, *, projects: Collection[str] = ()) -> list[Mention]:
        """Return mentions of a thing under all of its names, the newest stored first.

        :param projects: names as stored; empty: all.
        """
        with self._gateway.read() as tables:
            names = read_names(tables)
            own = [_end(entity) | {"name": sought(entity.name)}]
            for each in names.aliases(entity)[:MAX_ALIASES]:
                spelled = tables["mentions"].sums(_end(each.entity), by=["name"])
                same = [row["name"] for row in spelled if row["name"].lower() == each.entity.name.lower()]
                own += [_end(each.entity) | {"name": name} for name in same]
            found = self._read(tables, names, _either(own), ["-number"], limit, projects)
        return [each for each in found if each.entity == entity]

    def known(self, name: str, *, projects: Collection[str] = ()) -> dict[tuple[str, Entity], int]:
        """Return project and thing -> mentions, of the things that may be meant by a name: those that have it, end with
        it, or are called so by a person.

        :param projects: names as stored; empty: all.
        """
        ends: list[Match] = [{"kind": kind.value, "leaf": sought(leaf_of(kind, name))} for kind in EntityKind]
        with self._gateway.read() as tables:
            names = read_names(tables)
            led = [(each, names.of(each.project, each.entity)) for each in names.all()]
            meant = {its for _, its in led if _is_end(its, its.kind, leaf_of(its.kind, name))}
            meant |= {names.of(each.project, each.entity) for each in names.called(name)}
            ends += map(_end, [*meant, *(each.entity for each, its in led if its in meant)][: 2 * MAX_ALIASES])
            rows = tables["mentions"].sums(self._of(tables, _either(ends), projects), by=["project", "kind", "name"])
            return _added(rows, names, read_aliases(tables))

    def tally(self, *, projects: Collection[str] = (), sources: Collection[str] = ()) -> dict[tuple[str, Entity], int]:
        """Return project and thing -> mentions.

        :param projects: names as stored; empty: all.
        :param sources: keys; only what is mentioned in episodes of these; empty: all.
        """
        with self._gateway.read() as tables:
            match, by = self._of(tables, {}, projects), ["project", "kind", "name"]
            if sources:
                ids = [
                    row["episode_id"]
                    for row in tables["episodes"].each({"source": {"$in": sorted(sources)}}, ["episode_id"])
                ]
                rows: Iterable[Row] = (
                    row | {"rows": 1} for row in tables["mentions"].among("episode_id", ids, by, **match)
                )
            else:
                rows = tables["mentions"].sums(match, by=by)
            return _added(rows, read_names(tables), read_aliases(tables))

    def ran(self, limit: int, *, projects: Collection[str] = ()) -> list[Mention]:
        """Return the commands that succeeded or failed, the newest stored first.

        :param projects: names as stored; empty: all.
        """
        match = {"kind": EntityKind.COMMAND.value, "relation": {"$in": ["failed", "ran"]}}
        with self._gateway.read() as tables:
            return self._read(tables, read_names(tables), match, ["-number"], limit, projects)

    def recent(self, limit: int, *, projects: Collection[str] = ()) -> list[Mention]:
        """Return mentions, the newest stored first.

        :param projects: names as stored; empty: all.
        """
        with self._gateway.read() as tables:
            return self._read(tables, read_names(tables), {}, ["-number"], limit, projects)

    def of_episodes(self, episode_ids: Collection[str]) -> list[Mention]:
        """Return the mentions in these episodes, in order."""
        with self._gateway.read() as tables:
            rows = list(tables["mentions"].among("episode_id", episode_ids))
            names, aliases = read_names(tables), read_aliases(tables)
        return [_mention(row, aliases, names) for row in sorted(rows, key=lambda row: row["number"])]

    def of_session(self, session_id: str, limit: int, *, kinds: Collection[EntityKind] = ()) -> list[Mention]:
        """Return the mentions in a session, in order."""
        match: dict[str, object] = {"session_id": sought(session_id)}
        with self._gateway.read() as tables:
            names = read_names(tables)
            if kinds:
                match["kind"] = {"$in": sorted(names.kinds(kinds))}
            found = self._read(tables, names, match, ["place", "number"], limit)
        return [each for each in found if not kinds or each.kind in kinds]

    def edited(self, session_ids: Collection[str], most: int) -> dict[str, dict[str, datetime]]:
        """Return session -> file -> when it was edited there last, for those sessions that edited any.

        :param most: maximum number of edits of each session, the last ones.
        """
        found: dict[str, dict[str, datetime]] = {}
        match = {"kind": EntityKind.FILE.value, "relation": Relation.EDITED.value}
        with self._gateway.read() as tables:
            for session in session_ids:
                its = {"session_id": sought(session), **match}
                for row in tables["mentions"].find(its, ["name", "at"], order=["-place", "-number"], limit=most):
                    if row["at"]:
                        found.setdefault(session, {}).setdefault(row["name"], moment(row["at"]))
        return found

    def counted(self, project: str, kinds: Collection[EntityKind]) -> list[tuple[EntityKind, str, Relation, int]]:
        """Return kind, name, relation and number of mentions, for each thing of a project."""
        with self._gateway.read() as tables:
            names, aliases = read_names(tables), read_aliases(tables)
            match = self._of(tables, {"kind": {"$in": sorted(names.kinds(kinds))}}, [project])
            rows = tables["mentions"].sums(match, by=["project", "kind", "name", "relation"])
        found: Counter[tuple[EntityKind, str, Relation]] = Counter()
        for row in rows:
            its = names.of(store_name(aliases, row["project"]), Entity(EntityKind(row["kind"]), row["name"]))
            found[its.kind, its.name, Relation(row["relation"])] += row["rows"]
        return [(*key, rows) for key, rows in found.items() if key[0] in kinds]

    # --- what people call things

    def names(self) -> Names:
        """Return all that people decided on names."""
        with self._gateway.read() as tables:
            return read_names(tables)

    def name(self, given: EntityName) -> None:
        """Let a name of a project lead to another thing than before.

        :raises EntityConflict: that thing leads to it, or there are MAX_NAMES names.
        """

        def work(tables: Tables) -> None:
            names = read_names(tables)
            own = _folded(given.entity)
            if own in map(_folded, names.path(given.project, given.canonical)):
                raise EntityConflict("the other thing has this name already; delete that alias first")
            row = _name_row(given)
            if len(names.all()) >= MAX_NAMES and not tables["entity_names"].has(
                {key: row[key] for key in ("project", "kind", "folded")}
            ):
                raise EntityConflict(f"{MAX_NAMES} names are stored, and no more are kept; delete some aliases first")
            tables["entity_names"].put([row])

        self._gateway.write(work)

    def unname(self, project: str, entity: Entity) -> bool:
        """Let a name of a project lead to nothing else any more. Return whether it did."""

        def work(tables: Tables) -> bool:
            own = {"kind": entity.kind.value, "folded": sought(entity.name.lower())}
            return tables["entity_names"].delete(self._of(tables, own, [project])) > 0

        return self._gateway.write(work)

    # --- within a transaction

    def _of(self, tables: Tables, match: Match, projects: Collection[str]) -> dict[str, object]:
        if not projects:
            return {**match}
        aliases = read_aliases(tables)
        return {**match, "project": {"$in": sorted({name for each in projects for name in names_of(aliases, each)})}}

    def _read(
        self,
        tables: Tables,
        names: Names,
        match: Match,
        order: Sequence[str],
        limit: int,
        projects: Collection[str] = (),
        before: int = 0,
    ) -> list[Mention]:
        whole = self._of(tables, match, projects) | ({"number": {"$lt": before}} if before else {})
        rows = tables["mentions"].find(whole, order=order, limit=limit)
        aliases = read_aliases(tables)
        return [_mention(row, aliases, names) for row in rows]


def leaf_of(kind: EntityKind, name: str) -> str:
    """Return what lookups of a thing begin with: the last piece of a path, the program of a command, else the name, in
    small letters.
    """
    if kind in {EntityKind.FILE, EntityKind.SYMBOL}:
        return name.rstrip("/").replace("::", "/").rpartition("/")[2].lower()
    return name.partition(" ")[0].lower() if kind is EntityKind.COMMAND else name.lower()


# --- within a transaction --------------------------------------------------------------------------------


def forget_mentions(tables: Tables, episode_ids: Collection[str]) -> None:
    """Remove what was found in episodes that are removed."""
    ids = sorted(episode_ids)
    tables["mentions"].delete({"episode_id": {"$in": ids}})
    tables[UNLINKED].delete({"origin": {"$in": ids}})


def read_names(tables: Tables) -> Names:
    """Return all that people decided on names, projects by what they are called."""
    aliases = read_aliases(tables)
    return Names(
        EntityName(
            store_name(aliases, row["project"]),
            Entity(EntityKind(row["kind"]), row["name"]),
            Entity(EntityKind(row["canonical_kind"]), row["canonical"]),
            moment(row["at"]),
        )
        for row in tables["entity_names"].find({})
    )


def _name_row(of: EntityName) -> Row:
    return {
        "project": of.project,
        "kind": of.entity.kind.value,
        "folded": clean(of.entity.name.lower()),
        "name": clean(of.entity.name),
        "canonical": clean(of.canonical.name),
        "canonical_kind": of.canonical.kind.value,
        "at": instant(of.at),
    }


def _folded(entity: Entity) -> tuple[EntityKind, str]:
    return entity.kind, entity.name.lower()


def _end(entity: Entity) -> dict[str, object]:
    return {"kind": entity.kind.value, "leaf": sought(leaf_of(entity.kind, entity.name))}


def _is_end(entity: Entity, kind: EntityKind, leaf: str) -> bool:
    return entity.kind is kind and leaf_of(kind, entity.name) == leaf


def _either(ends: Sequence[Match]) -> Match:
    return ends[0] if len(ends) == 1 else {"$or": list(ends)}


def _added(rows: Iterable[Row], names: Names, aliases: Mapping[str, str]) -> dict[tuple[str, Entity], int]:
    """Return project and thing -> mentions, of counts by project, kind and name as stored."""
    found: Counter[tuple[str, Entity]] = Counter()
    for row in rows:
        project = store_name(aliases, row["project"])
        found[project, names.of(project, Entity(EntityKind(row["kind"]), row["name"]))] += row["rows"]
    return dict(found)


def _row(of: Mention) -> Row:
    return {
        "kind": of.kind.value,
        "name": of.name,
        "leaf": leaf_of(of.kind, of.name),
        "relation": of.relation.value,
        "other": of.other,
        "project": of.project,
        "session_id": of.session_id,
        "episode_id": of.episode_id,
        "message_id": of.message_id,
        "at": instant(of.at) if of.at else "",
        "place": of.place,
        "detail": of.detail,
        "folder": of.folder,
    }


def _content(row: Row) -> tuple[str, ...]:
    fields = ("kind", "name", "relation", "other", "project", "episode_id", "place", "detail")
    return tuple(str(row[name]) for name in fields)


def _mention(row: Row, aliases: Mapping[str, str], names: Names) -> Mention:
    project, relation = store_name(aliases, row["project"]), Relation(row["relation"])
    entity = names.of(project, Entity(EntityKind(row["kind"]), row["name"]))
    other = row["other"]
    if relation is Relation.FIXED:
        other = names.of(project, Entity(EntityKind.ERROR, other)).name
    return Mention(
        entity.kind,
        entity.name,
        relation,
        row["episode_id"],
        project=project,
        session_id=row["session_id"],
        message_id=row["message_id"],
        at=moment(row["at"]) if row["at"] else None,
        place=row["place"],
        other=other,
        detail=row["detail"],
        folder=row["folder"],
    )
