"""To which project parts belong: where sessions began, and the parts of their subagents, which are of the same."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anamnesis_pipeline.model import record_id
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.mongo import typed
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.episode_docs import read_aliases, set_fields
from anamnesis_pipeline.store.mongo.episode_writes import drop_session_records
from anamnesis_pipeline.store.mongo.parts import change_parts, part_change
from anamnesis_pipeline.store.project_names import store_name
from anamnesis_pipeline.summary_model import MAX_RECORDS

_AGENTS = {"$gt": ""}
_EARLIEST = (("started_at", 1), ("part_id", 1))
_ASKED_ANEW = {"summary_due": {"$cond": [{"$eq": ["$summarized_hash", None]}, "$summary_due", ""]}}


def session_start(tables: Tables, session_id: str) -> tuple[str, str] | None:
    """See `IngestRecords.session_start`."""
    found = tables["parts"].one({"session_id": session_id, "agent_id": ""}, ["project", "cwd"], order=_EARLIEST)
    return None if found is None else (found["project"], found["cwd"])


def place_agents(tables: Tables, session_ids: Iterable[str]) -> None:
    """Give the parts of these sessions' subagents the project of their session, where that is known."""
    projects = _agents_projects(tables, set(session_ids) - {""})
    started = _projects_of_starts(tables, projects)
    tables["parts"].write([
        part_change(
            {"session_id": session_id, "agent_id": _AGENTS, "project": {"$ne": project}}, *_moved(project)
        )
        for session_id, project in sorted(started.items())
        if project and projects[session_id] != {project}
    ])  # fmt: skip


def _agents_projects(tables: Tables, session_ids: Iterable[str]) -> dict[str, set[str]]:
    """Session -> projects of its subagents' parts, for those that have some. Reads an index."""
    if not (ids := sorted(session_ids)):
        return {}
    found = tables["parts"].aggregate([
        {"$match": {"session_id": {"$in": ids}, "agent_id": _AGENTS}},
        {"$group": {"_id": "$session_id", "projects": {"$addToSet": "$project"}}},
    ])  # fmt: skip
    return {group["_id"]: set(group["projects"]) for group in found}


def _projects_of_starts(tables: Tables, session_ids: Iterable[str]) -> dict[str, str]:
    """Session -> project in which it began, for those of which that is known. Reads an index."""
    if not (ids := sorted(session_ids)):
        return {}
    found = tables["parts"].aggregate([
        {"$match": {"session_id": {"$in": ids}, "agent_id": ""}},
        {"$sort": {"session_id": 1, "agent_id": 1, "started_at": 1, "part_id": 1}},
        {"$group": {"_id": "$session_id", "project": {"$first": "$project"}}},
    ])  # fmt: skip
    return {group["_id"]: group["project"] for group in found}


def _moved(project: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Their episodes are then written anew, and whether an LLM may summarize them is asked anew."""
    return {"project": project, "published_hash": None}, _ASKED_ANEW


def move_parts(tables: Tables, source: str, paths: Sequence[str], cwd: str, before: str, after: str) -> int:
    """Some of what `IngestRecords.move_parts` is asked for; fewer than `MAX_ROWS_PER_WRITE`: that was all."""
    places: list[Mapping[str, Any]] = [{"path": {"$in": list(paths)}}]
    if source in typed.histories(tables):
        places.append({"cwd": cwd})
    moved = tables["parts"].find(
        {"source": source, "project": before, "$or": places}, ["part_id", "session_id"], limit=MAX_ROWS_PER_WRITE
    )
    part_ids = [part["part_id"] for part in moved]
    change_parts(tables, {"part_id": {"$in": part_ids}}, *_moved(after))
    sessions = {part["session_id"] for part in moved} - {""}
    place_agents(tables, sessions)
    drop_session_records(tables, [(source, session_id) for session_id in sessions])
    agents = tables["parts"].among("session_id", sessions, ["part_id"], agent_id=_AGENTS, project=after)
    _move_episodes(tables, [*part_ids, *(part["part_id"] for part in agents)], before, after)
    return len(part_ids)


def _move_episodes(tables: Tables, part_ids: Sequence[str], before: str, after: str) -> None:
    """Of what an edited episode is, writing it anew would leave the project as it was."""
    fields = {"own_project": after, "project": store_name(read_aliases(tables), after)}
    for batch in batches(_episodes_of(part_ids)):
        set_fields(tables, {"_id": {"$in": list(batch)}, "own_project": before}, fields)


def projects_of(tables: Tables, part_ids: Sequence[str]) -> set[str]:
    """See `IngestRecords.projects_of`."""
    parts = tables["parts"].among("part_id", part_ids, ["project"])
    episodes = tables["episodes"].among("_id", _episodes_of(part_ids), ["project", "own_project"])
    return {found["project"] for found in parts} | {name for found in episodes for name in found.values()}


def _episodes_of(part_ids: Sequence[str]) -> list[str]:
    """Ids of the episodes of parts, and of those of their records."""
    return [*part_ids, *(record_id(part_id, number) for part_id in part_ids for number in range(MAX_RECORDS))]
