"""Of one project and subject one statement holds: which a new one replaces."""

from collections.abc import Collection, Sequence

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.model import HOLDING, RESERVED_SOURCES, Episode, Status
from anamnesis_pipeline.store.gateway import Row, Tables
from anamnesis_pipeline.store.memory_layers import PINNED
from anamnesis_pipeline.store.records.links import Regime, write_links
from anamnesis_pipeline.store.records.settings import read_aliases, store_name
from anamnesis_pipeline.store.records.statuses import STATUS_FIELDS, Cause, set_status
from anamnesis_pipeline.store.statements import statement_of, subject_key
from anamnesis_pipeline.store.values import instant, sought

_FIELDS = (*STATUS_FIELDS, "project", "timestamp", "tags")


def note_subjects(tables: Tables, written: Sequence[Episode], known: Collection[str]) -> None:
    """Note the subject of each of these that states something.

    :param known: ids of those that were stored before, and may have had another one.
    """
    subject_of = {e.episode_id: subject_key(statement_of(e.metadata).subject) for e in written}
    posted = [e.episode_id for e in written if e.source in RESERVED_SOURCES]
    if gone := [key for key in posted if key in known and not subject_of[key]]:
        tables["subjects"].delete({"episode_id": {"$in": gone}})
    if rows := [{"episode_id": key, "subject": subject} for key, subject in subject_of.items() if subject]:
        tables["subjects"].put(rows)


def forget_subjects(tables: Tables, episode_ids: Collection[str]) -> None:
    """Remove the subjects of episodes that are removed."""
    tables["subjects"].delete({"episode_id": {"$in": sorted(episode_ids)}})


def settle_statement(tables: Tables, episode: Episode, replaces: str | None, by: str) -> None:
    """Let an episode that was just written stand for the former statements of its project and subject, and for the one
    that it `replaces`. If a later statement of the subject is stored already, that one stands for it. A pinned former
    statement stays, `challenged`: only a person, or `replaces`, takes its place.

    :raises EpisodeNotFound: there is no other episode with the id `replaces`.
    """
    if replaces is not None:
        _replace(tables, _named(tables, episode, replaces), episode.episode_id, Cause(by, "replaced by name"))
    rows = _of_subject(tables, episode)
    if not rows:
        return
    cause = Cause(by, f"a newer statement on its subject: {statement_of(episode.metadata).subject}")
    own = tables["episodes"].find({"episode_id": episode.episode_id}, _FIELDS)
    newest = max([*rows, *own], key=lambda row: (row["timestamp"], row["number"]))
    former = [row for row in (*rows, *own) if row is not newest]
    _replace(tables, [row for row in former if PINNED not in row["tags"]], newest["episode_id"], cause)
    pinned = [row for row in former if PINNED in row["tags"]]
    doubted = {row["episode_id"]: (Status.CHALLENGED.value, None) for row in pinned}
    set_status(tables, pinned, doubted, Cause(by, f"pinned, so it stays beside {cause.reason}"))


def replaced_ids(tables: Tables, episode: Episode, replaces: str | None) -> list[str]:
    """Return the ids of those whose place `settle_statement` would give to an episode that is not written yet.

    :raises EpisodeNotFound: as there.
    """
    named = [row["episode_id"] for row in _named(tables, episode, replaces)] if replaces is not None else []
    rows = _of_subject(tables, episode)
    is_newest = all(row["timestamp"] <= instant(episode.timestamp) for row in rows)
    return sorted({*named, *(row["episode_id"] for row in rows if is_newest and PINNED not in row["tags"])})


def pinned_ids(tables: Tables, episode: Episode) -> list[str]:
    """Return the ids of the pinned former statements that hold on its project and subject, beside an episode."""
    rows, at = _of_subject(tables, episode), instant(episode.timestamp)
    return sorted(row["episode_id"] for row in rows if PINNED in row["tags"] and row["timestamp"] <= at)


def _named(tables: Tables, episode: Episode, replaces: str) -> list[Row]:
    rows = tables["episodes"].find({"episode_id": sought(replaces)}, _FIELDS)
    if not rows or replaces == episode.episode_id:
        raise EpisodeNotFound(f"there is no other episode {replaces!r} that this one could replace")
    return rows


def _of_subject(tables: Tables, episode: Episode) -> list[Row]:
    """Return the other episodes of its project and subject that hold."""
    subject = subject_key(statement_of(episode.metadata).subject)
    if not subject:
        return []
    project = store_name(read_aliases(tables), episode.project)
    ids = [row["episode_id"] for row in tables["subjects"].find({"subject": subject}, ["episode_id"])]
    others = [each for each in ids if each != episode.episode_id]
    rows = tables["episodes"].among("episode_id", others, _FIELDS)
    return [row for row in rows if row["project"] == project and row["status"] in HOLDING]


def _replace(tables: Tables, rows: Sequence[Row], successor: str, cause: Cause) -> None:
    successor_of = {row["episode_id"]: successor for row in rows}
    if successor_of:
        standings = dict.fromkeys(successor_of, (Status.SUPERSEDED.value, successor))
        set_status(tables, rows, standings, cause)
        write_links(tables, successor_of, Regime.STATEMENT)
