"""Episodes as rows."""

# ruff: noqa: S608
# only names of ours enter the SQL

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from anamnesis_pipeline.model import Episode, EpisodeHead, Passage
from anamnesis_pipeline.store.episode_values import EPISODE_FIELDS, HEAD_FIELDS, episode_of, head_of, stored_hash
from anamnesis_pipeline.store.project_names import PROJECT_ALIASES, store_name
from anamnesis_pipeline.store.sqlite.engine import EPISODE_TEXTS
from anamnesis_pipeline.store.tables import EPISODES
from anamnesis_pipeline.store.values import as_json, instant, json_list

_LISTS = EPISODES.lists


def _select(fields: Sequence[str]) -> str:
    columns = ", ".join(f"{'t' if name in EPISODE_TEXTS.fields else 'e'}.{name}" for name in fields)
    return f"SELECT {columns} FROM episodes e JOIN {EPISODE_TEXTS.name} t USING (episode_key)"


SELECT_EPISODES = _select(EPISODE_FIELDS)
SELECT_HEADS = _select(HEAD_FIELDS)


def read_row(row: Sequence[Any]) -> Episode:
    """A row of `SELECT_EPISODES`."""
    return episode_of(_fields(EPISODE_FIELDS, row))


def read_head(row: Sequence[Any]) -> EpisodeHead:
    """A row of `SELECT_HEADS`."""
    return head_of(_fields(HEAD_FIELDS, row))


def _fields(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return {name: json.loads(value) if name in _LISTS else value for name, value in zip(names, row, strict=True)}


SET_STATUS = """UPDATE episodes SET status = ?1, superseded_by = ?2, superseded_at = CASE ?1
    WHEN 'superseded' THEN CASE status WHEN 'superseded' THEN superseded_at ELSE ?4 END END"""
"""Of the values status, superseded by, the episode, and the time it is."""


def write_episode(connection: sqlite3.Connection, episode: Episode, passages: Sequence[Passage]) -> int:
    """Insert or update by id, leaving status and counters of an existing row alone; returns the row's key."""
    own, project = _projects(connection, episode)
    (episode_key,) = connection.execute(
        """INSERT INTO episodes (episode_id, source, timestamp, instance, project, own_project, kind, status,
                superseded_by, passages, content_hash, stored_hash)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (episode_id) DO UPDATE SET source = excluded.source, timestamp = excluded.timestamp,
                instance = excluded.instance, project = excluded.project,
                own_project = excluded.own_project, kind = excluded.kind,
                passages = excluded.passages, content_hash = excluded.content_hash,
                stored_hash = excluded.stored_hash
            RETURNING episode_key""",
        (episode.episode_id, episode.source, instant(episode.timestamp), episode.instance, project, own,
         episode.kind, episode.status, episode.superseded_by, len(passages), episode.content_hash,
         stored_hash(episode, passages)),
    ).fetchone()  # fmt: skip
    connection.execute(
        """INSERT INTO episode_texts (episode_key, summary, raw_exchange, tags, machine, path, session_id,
                message_ids, message_keys, metadata)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (episode_key) DO UPDATE SET summary = excluded.summary,
                raw_exchange = excluded.raw_exchange, tags = excluded.tags, machine = excluded.machine,
                path = excluded.path, session_id = excluded.session_id, message_ids = excluded.message_ids,
                message_keys = excluded.message_keys, metadata = excluded.metadata""",
        (episode_key, episode.summary, episode.raw_exchange, json_list(episode.tags), episode.machine, episode.path,
         episode.session_id, json_list(episode.message_ids), json_list(episode.message_keys),
         as_json(dict(episode.metadata))),
    )  # fmt: skip
    connection.execute("DELETE FROM episode_tags WHERE episode_key = ?", (episode_key,))
    connection.executemany(
        "INSERT INTO episode_tags (tag, episode_key) VALUES (?, ?)", [(tag, episode_key) for tag in set(episode.tags)]
    )
    return int(episode_key)


def _projects(connection: sqlite3.Connection, episode: Episode) -> tuple[str, str]:
    """The own name of the episode's project, and what the aliases call it. One that is written back under the name
    that it is called keeps its own.
    """
    aliases = read_aliases(connection)
    if not aliases:
        return episode.project, episode.project
    held = connection.execute(
        "SELECT own_project FROM episodes WHERE episode_id = ? AND project = ?", (episode.episode_id, episode.project)
    ).fetchone()
    own = held[0] if held else episode.project
    return own, store_name(aliases, own)


def read_aliases(connection: sqlite3.Connection) -> dict[str, str]:
    """Project -> what it is called instead."""
    row = connection.execute("SELECT value FROM settings WHERE name = ?", (PROJECT_ALIASES,)).fetchone()
    return json.loads(row[0]) if row else {}
