"""What sessions, notes and texts touch and name, and whose mentions are to be found again."""

from collections.abc import Collection, Mapping, Sequence

from anamnesis_pipeline.store.entity_model import EntityKind, Mention, Relation
from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Tables, batches, write_all
from anamnesis_pipeline.store.records.observations import ORIGIN_FIELDS, Unobserved, note_unlinked, origin_of
from anamnesis_pipeline.store.records.settings import names_of, read_aliases, store_name
from anamnesis_pipeline.store.values import instant, moment, sought

QUEUE = "unlinked"


class EntityRecords:
    """Mentions by what they name. They go with their episode."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def unlinked(self, limit: int, sources: Collection[str] = (), after: str = "") -> list[Unobserved]:
        """Return the sessions, notes and texts of some or all sources whose mentions are to be found, by id.

        :param after: only those behind this id.
        """
        match: dict[str, object] = {"origin": {"$gt": after}}
        if sources:
            match["source"] = {"$in": sorted(sources)}
        with self._gateway.read() as tables:
            rows = tables[QUEUE].find(match, ["origin", "noted"], order=["origin"], limit=limit)
        return [Unobserved(**row) for row in rows]

    def unlinked_count(self) -> int:
        """Count the sessions, notes and texts whose mentions are to be found."""
        with self._gateway.read() as tables:
            return tables[QUEUE].count({})

    def note_all(self) -> None:
        """Let all mentions be found again: the rules are others now."""
        with self._gateway.read() as tables:
            rows = tables["episodes"].each({}, ORIGIN_FIELDS)
            sources = {origin: row["source"] for row in rows if (origin := origin_of(row))}
        write_all(self._gateway, sorted(sources.items()), note_unlinked)

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
            tables[QUEUE].delete({"origin": of.origin, "noted": of.noted})
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
        match: dict[str, object] = {"kind": kind.value, "leaf": sought(leaf)}
        if before:
            match["number"] = {"$lt": before}
        if projects:
            match |= self._of_projects(projects)
        return self._found(match, order=["-number"], limit=limit)

    def ran(self, limit: int, *, projects: Collection[str] = ()) -> list[Mention]:
        """Return the commands that succeeded or failed, the newest stored first.

        :param projects: names as stored; empty: all.
        """
        match: dict[str, object] = {"kind": EntityKind.COMMAND.value, "relation": {"$in": ["failed", "ran"]}}
        match |= self._of_projects(projects) if projects else {}
        return self._found(match, order=["-number"], limit=limit)

    def of_episodes(self, episode_ids: Collection[str]) -> list[Mention]:
        """Return the mentions in these episodes, in order."""
        with self._gateway.read() as tables:
            rows = list(tables["mentions"].among("episode_id", episode_ids))
            aliases = read_aliases(tables)
        return [_mention(row, aliases) for row in sorted(rows, key=lambda row: row["number"])]

    def of_session(self, session_id: str, limit: int, *, kinds: Collection[EntityKind] = ()) -> list[Mention]:
        """Return the mentions in a session, in order."""
        match: dict[str, object] = {"session_id": sought(session_id)}
        if kinds:
            match["kind"] = {"$in": sorted(kinds)}
        return self._found(match, order=["place", "number"], limit=limit)

    def counted(self, project: str, kinds: Collection[EntityKind]) -> list[tuple[EntityKind, str, Relation, int]]:
        """Return kind, name, relation and number of mentions, for each thing of a project."""
        match = self._of_projects([project]) | {"kind": {"$in": sorted(kinds)}}
        with self._gateway.read() as tables:
            rows = tables["mentions"].sums(match, by=["kind", "name", "relation"])
        return [(EntityKind(row["kind"]), row["name"], Relation(row["relation"]), row["rows"]) for row in rows]

    def _of_projects(self, projects: Collection[str]) -> dict[str, object]:
        with self._gateway.read() as tables:
            aliases = read_aliases(tables)
        return {"project": {"$in": sorted({name for each in projects for name in names_of(aliases, each)})}}

    def _found(self, match: Match, order: Sequence[str], limit: int) -> list[Mention]:
        with self._gateway.read() as tables:
            rows = tables["mentions"].find(match, order=order, limit=limit)
            aliases = read_aliases(tables)
        return [_mention(row, aliases) for row in rows]


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
    tables[QUEUE].delete({"origin": {"$in": ids}})


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


def _mention(row: Row, aliases: Mapping[str, str]) -> Mention:
    return Mention(
        EntityKind(row["kind"]),
        row["name"],
        Relation(row["relation"]),
        row["episode_id"],
        project=store_name(aliases, row["project"]),
        session_id=row["session_id"],
        message_id=row["message_id"],
        at=moment(row["at"]) if row["at"] else None,
        place=row["place"],
        other=row["other"],
        detail=row["detail"],
        folder=row["folder"],
    )
