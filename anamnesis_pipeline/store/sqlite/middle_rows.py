"""Middles of episodes, read from SQLite."""

# ruff: noqa: S608

import sqlite3

from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.episode_middles import EpisodeMiddles, middles_of
from anamnesis_pipeline.store.sqlite.filters import condition
from anamnesis_pipeline.store.sqlite.space_rows import SpaceRow
from anamnesis_pipeline.store.sqlite.vector_tail import from_blobs
from anamnesis_pipeline.store.values import json_list


def read_middles(
    connection: sqlite3.Connection, space: SpaceRow, variant: Variant, where: Where, after: int, limit: int
) -> EpisodeMiddles:
    """See `VectorIndex.middles`."""
    terms, values = condition(where)
    episodes = connection.execute(
        f"""SELECT e.episode_key, e.episode_id, e.project FROM episodes e
            WHERE e.episode_key > ? AND {terms} ORDER BY e.episode_key LIMIT ?""",
        (after, *values, limit),
    ).fetchall()
    places = {key: place for place, (key, _, _) in enumerate(episodes)}
    rows = connection.execute(
        """SELECT p.episode_key, p.passage_id, v.vec FROM passages p
            JOIN vectors v ON v.space_id = ? AND v.variant = ? AND v.passage_id = p.passage_id
            WHERE p.episode_key IN (SELECT value FROM json_each(?)) ORDER BY p.episode_key, p.ordinal""",
        (space.space_id, variant, json_list(list(places))),
    ).fetchall()
    return middles_of(
        [(episode_id, project) for _, episode_id, project in episodes],
        [(places[key], passage_id) for key, passage_id, _ in rows],
        from_blobs([vector for _, _, vector in rows], space.dim),
        episodes[-1][0] if len(episodes) == limit else None,
    )
