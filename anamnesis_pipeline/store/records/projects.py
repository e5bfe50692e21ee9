"""Of which project parts and episodes are, and what projects are called."""

from collections.abc import Sequence

from anamnesis_pipeline.model import MAX_RECORDS, record_id
from anamnesis_pipeline.store.contracts import Native
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE, Gateway, Match, Tables, batches, until_done
from anamnesis_pipeline.store.records.episodes import drop_session_records
from anamnesis_pipeline.store.records.parts import place_agents, set_project
from anamnesis_pipeline.store.records.settings import read_aliases, store_name
from anamnesis_pipeline.store.tables import NOT_EMPTY
from anamnesis_pipeline.store.values import clean


class ProjectRecords:
    """Of which project parts and episodes are, and what projects are called."""

    _AT_ONCE = 100
    """Episodes that one transaction gives another project: an engine may have to write their passages and vectors."""

    def __init__(self, gateway: Gateway, native: Native) -> None:
        self._gateway = gateway
        self._native = native

    def all(self) -> list[str]:
        """Return the distinct projects, sorted."""
        with self._gateway.read() as tables:
            return self._native.projects(tables)

    def names(self) -> list[tuple[str, str, int]]:
        """Return (a project's own name, what it is called, episodes of both), sorted."""
        with self._gateway.read() as tables:
            rows = tables["episodes"].sums({"own_project": {"$gte": ""}}, by=["own_project", "project"])
        return sorted((row["own_project"], row["project"], row["rows"]) for row in rows)

    def call(self, own: str, name: str) -> int:
        """Let episodes whose project is `own` itself be of project `name`. Return how many changed."""
        return self._set("project", own, name)

    def rename(self, own: str, name: str) -> int:
        """Let episodes whose project is `own` itself have `name` as its own name; what it is called stays. Return how
        many changed.
        """
        return self._set("own_project", own, name)

    def session_start(self, session_id: str) -> tuple[str, str] | None:
        """Return project and directory in which a session began, by the earliest of its parts that is no subagent's;
        None: there is none.
        """
        match = {"session_id": session_id, "agent_id": ""}
        with self._gateway.read() as tables:
            found = tables["parts"].one(match, ["project", "cwd"], order=["started_at", "part_id"])
        return None if found is None else (found["project"], found["cwd"])

    def projects_of(self, part_ids: Sequence[str]) -> set[str]:
        """Return the projects of these parts, and those that their episodes and records were given since."""
        with self._gateway.snapshot() as tables:
            found = {row["project"] for row in tables["parts"].among("part_id", part_ids, ["project"])}
            names = ("project", "own_project")
            for row in tables["episodes"].among("episode_id", _episodes_of(part_ids), names):
                found |= {row[name] for name in names}
        return found

    def move_parts(self, source: str, paths: Sequence[str], cwd: str, before: str, after: str) -> int:
        """Let parts of a source that have `before` as their project have `after`: those of some files, and those of the
        history that were typed in `cwd`; their sessions' subagents with them. Their episodes are of it at once, edited
        ones too, but for those that a user gave another project, and are then written again. Return how many parts
        changed.
        """
        if before == after:
            return 0
        before, after = clean(before), clean(after)

        def move(tables: Tables) -> int:
            places: list[Match] = [{"path": {"$in": list(paths)}}]
            if tables["sources"].has({"key": source, "kind": "claude_history"}):
                places.append({"cwd": cwd})
            match = {"source": source, "project": before, "$or": places}
            moved = tables["parts"].find(match, ["part_id", "session_id"], limit=MAX_ROWS_PER_WRITE)
            part_ids = [row["part_id"] for row in moved]
            set_project(tables, {"part_id": {"$in": part_ids}}, after)
            sessions = {row["session_id"] for row in moved} - {""}
            place_agents(tables, sessions)
            drop_session_records(tables, self._native, [(source, session_id) for session_id in sessions])
            agents = tables["parts"].among("session_id", sessions, ["part_id"], agent_id=NOT_EMPTY, project=after)
            moved_ids = [*part_ids, *(row["part_id"] for row in agents)]
            # writing an edited episode again would leave its project as it was
            change = {"own_project": after, "project": store_name(read_aliases(tables), after)}
            for batch in batches(_episodes_of(moved_ids)):
                tables["episodes"].update({"episode_id": {"$in": list(batch)}, "own_project": before}, change)
            return len(part_ids)

        return until_done(self._gateway, move)

    def _set(self, field: str, own: str, name: str) -> int:
        def work(tables: Tables) -> int:
            others = {"$and": [{"own_project": own}, {field: {"$ne": name}}]}
            rows = tables["episodes"].find(others, ["number"], limit=self._AT_ONCE)
            numbers = [row["number"] for row in rows]
            return tables["episodes"].update({"number": {"$in": numbers}}, {field: name}) if numbers else 0

        return until_done(self._gateway, work, self._AT_ONCE)


def _episodes_of(part_ids: Sequence[str]) -> list[str]:
    """Return the ids of the episodes of parts, and of those of their records."""
    return [*part_ids, *(record_id(part_id, number) for part_id in part_ids for number in range(MAX_RECORDS))]
