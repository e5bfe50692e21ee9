"""Vectors and token vectors in SQLite, and the index files derived from them."""

# ruff: noqa: S608

import json
import math
import sqlite3
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from heapq import nlargest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from anamnesis_pipeline.model import EpisodeFilter, Passage, ScoredPassage, StoredPassage, Variant
from anamnesis_pipeline.store.contracts import (
    EpisodeMiddles,
    IndexReport,
    IndexState,
    PendingEpisode,
    SpaceProgress,
    TokenRows,
    VectorIndex,
)
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE, batches
from anamnesis_pipeline.store.records.spaces import StoredSpace, find_space, note_checkpoint
from anamnesis_pipeline.store.sqlite import vector_search
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SqliteTables
from anamnesis_pipeline.store.sqlite.filters import PassingPassages, condition
from anamnesis_pipeline.store.sqlite.index_files import IndexFiles
from anamnesis_pipeline.store.sqlite.spaces import LACKS_A_VECTOR, count_lacking
from anamnesis_pipeline.store.sqlite.vector_search import FewVectors, VectorTail
from anamnesis_pipeline.store.values import json_list, moment
from anamnesis_pipeline.store.vector_values import (
    POOL,
    STORED,
    by_passage,
    bytes_each,
    check_tokens,
    check_width,
    from_blobs,
    kth_scores,
    middles_of,
    packed,
    share_found,
    spread,
    token_rows,
    unlike,
    vectors_by_passage,
)

Vectors = NDArray[np.float32]

EVERYTHING = EpisodeFilter(include_superseded=True)
"""The filter that a scan of all stored vectors amounts to."""


class SqliteVectors(VectorIndex):
    """Vectors in SQLite, and the index files over them."""

    def __init__(self, database: Database, index_dir: Path, few: PassingPassages) -> None:
        self._database = database
        self._few, self._few_vectors = few, FewVectors()
        self._files = IndexFiles(database, index_dir)
        self._lock = threading.Lock()
        self._tails: dict[tuple[int, str], VectorTail] = {}

    @override
    def put_all(
        self,
        space: str,
        passage_ids: Sequence[int],
        vectors: Mapping[Variant, Vectors],
        tokens: Sequence[NDArray[np.int8]] | None = None,
    ) -> int:
        rows = {variant: vectors_by_passage(passage_ids, matrix, STORED) for variant, matrix in vectors.items()}
        token_rows = by_passage(passage_ids, tokens)
        written = 0
        rows_each = max(1, len(rows) + bool(token_rows))
        for batch in batches(list(dict.fromkeys(passage_ids)), MAX_ROWS_PER_WRITE // rows_each):
            with self._database.write() as connection:
                row = find_space(SqliteTables(connection), space)
                for matrix in vectors.values():
                    check_width(row, np.asarray(matrix).shape, 2)
                check_tokens(row.key, row.token_dims, token_rows)
                written += _put(connection, row.space_id, batch, rows, token_rows)
        return written

    @override
    def get(self, space: str, variant: Variant, passage_ids: Sequence[int]) -> dict[int, Vectors]:
        with self._database.read() as connection:
            row = find_space(SqliteTables(connection), space)
            rows = connection.execute(
                """SELECT passage_id, vec FROM vectors WHERE space_id = ? AND variant = ?
                    AND passage_id IN (SELECT value FROM json_each(?))""",
                (row.space_id, variant, json_list(passage_ids)),
            ).fetchall()
        return dict(zip((r[0] for r in rows), from_blobs([r[1] for r in rows], row.dim), strict=True))

    @override
    def nearest(
        self, space: str, variant: Variant, vector: Vectors, k: int, where: EpisodeFilter
    ) -> list[ScoredPassage]:
        if k < 1:
            return []
        vector = np.asarray(vector, dtype=np.float32)
        with self._database.read() as connection:
            self._forget_dropped(connection)
            row = find_space(SqliteTables(connection), space)
            check_width(row, vector.shape, 1)
            current = self._files.current(connection, row, variant)
            with self._lock:
                key = (row.space_id, variant)
                its_tail = self._tails.setdefault(key, VectorTail(row.space_id, variant, row.dim))
            tail = its_tail.view(connection, current.row.covered_seq if current else 0)
            question = vector_search.Question(row.space_id, variant, vector, k, where)
            few = self._few.of(connection, where) if where.is_selective else None
            file = current.file if current else None
            return vector_search.nearest(connection, question, file, tail, few, self._few_vectors)

    @override
    def tokens(self, space: str, passage_ids: Sequence[int]) -> TokenRows:
        with self._database.read() as connection:
            row = find_space(SqliteTables(connection), space)
            rows = connection.execute(
                """SELECT passage_id, tokens, data FROM token_vectors WHERE space_id = ?
                    AND passage_id IN (SELECT value FROM json_each(?))""",
                (row.space_id, json_list(passage_ids)),
            ).fetchall()
        return token_rows(rows, row.token_dims)

    @override
    def token_bytes(self, space: str) -> int:
        with self._database.read() as connection:
            row = find_space(SqliteTables(connection), space)
            (tokens,) = connection.execute(  # the index holds what is needed
                "SELECT coalesce(sum(tokens), 0) FROM token_vectors INDEXED BY token_vectors_by_passage"
                " WHERE space_id = ?",
                (row.space_id,),
            ).fetchone()
        return int(tokens) * bytes_each(row.token_dims)

    @override
    def vector_bytes(self, space: str) -> int:
        with self._database.read() as connection:
            row = find_space(SqliteTables(connection), space)
            vectors, files = connection.execute(
                "SELECT (SELECT count(*) FROM vectors WHERE space_id = ?1),"
                " (SELECT coalesce(sum(bytes), 0) FROM index_files WHERE space_id = ?1)",
                (row.space_id,),
            ).fetchone()
        return int(vectors) * row.dim * STORED.itemsize + int(files)

    @override
    def pending(self, space: str, sources: Sequence[str], episodes: int) -> list[PendingEpisode]:
        with self._database.read() as connection:
            space_id = find_space(SqliteTables(connection), space).space_id
            # at most `episodes` rows of each source are read, however large the store
            sql = """SELECT timestamp, episode_key, source FROM pending WHERE space_id = ? AND source = ?
                ORDER BY timestamp DESC, episode_key DESC LIMIT ?"""
            waiting = (row for source in set(sources) for row in connection.execute(sql, (space_id, source, episodes)))
            found: list[PendingEpisode] = []
            for _, episode_key, source in nlargest(episodes, waiting):
                rows = connection.execute(
                    f"""SELECT p.passage_id, e.episode_id, p.ordinal, t.text, t.context, t.message_ids
                        FROM passages p JOIN passage_texts t USING (passage_id) JOIN episodes e USING (episode_key)
                        JOIN spaces s ON s.space_id = ?
                        WHERE p.episode_key = ? AND {LACKS_A_VECTOR} ORDER BY p.ordinal""",
                    (space_id, episode_key),
                )
                passages = tuple(
                    StoredPassage(key, episode_id, Passage(ordinal, text, context, tuple(json.loads(ids))))
                    for key, episode_id, ordinal, text, context, ids in rows
                )
                found.append(PendingEpisode(passages[0].episode_id, source, passages))
            return found

    @override
    def pending_sources(self, space: str) -> dict[str, int]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT source, sum(missing) FROM pending WHERE space_id = ? GROUP BY source ORDER BY source",
                (find_space(SqliteTables(connection), space).space_id,),
            )
            return dict(rows.fetchall())

    @override
    def progress(self, space: str) -> SpaceProgress:
        with self._database.read() as connection:
            space_id = find_space(SqliteTables(connection), space).space_id
            episodes, passages = connection.execute(
                "SELECT count(*), coalesce(sum(passages), 0) FROM episodes INDEXED BY episodes_passages"
            ).fetchone()
            lacking, missing = connection.execute(
                "SELECT count(*), coalesce(sum(missing), 0) FROM pending INDEXED BY pending_by_source"
                " WHERE space_id = ?",
                (space_id,),
            ).fetchone()
            last_episode, written_at = connection.execute(
                "SELECT last_episode, written_at FROM spaces WHERE space_id = ?", (space_id,)
            ).fetchone()
        return SpaceProgress(
            episodes=episodes,
            episodes_done=episodes - lacking,
            passages=passages,
            passages_done=passages - missing,
            last_episode=last_episode,
            written_at=moment(written_at) if written_at else None,
        )

    @override
    def build(self, space: str, *, force: bool = False, within_s: float = math.inf) -> IndexReport:
        """There is no server to wait for."""
        started = time.perf_counter()
        row, names = self._variants(space)
        self._files.remove_leftovers()
        refreshed = [self._files.refresh(row, variant, force=force) for variant in names]
        states = [self._files.coverage(row, variant) for variant in names]
        return IndexReport(
            space=space,
            vectors=sum(state.vectors for state in states),
            indexed=sum(state.indexed for state in states),
            dead=sum(state.dead for state in states),
            rebuilt=any(refreshed),
            seconds=time.perf_counter() - started,
        )

    @override
    def middles(self, space: str, variant: Variant, where: EpisodeFilter, after: int, limit: int) -> EpisodeMiddles:
        terms, values = condition(where)
        with self._database.read() as connection:
            row = find_space(SqliteTables(connection), space)
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
                (row.space_id, variant, json_list(places)),
            ).fetchall()
        return middles_of(
            [(episode_id, project) for _, episode_id, project in episodes],
            [(places[key], passage_id) for key, passage_id, _ in rows],
            from_blobs([vector for _, _, vector in rows], row.dim),
            episodes[-1][0] if len(episodes) == limit else None,
        )

    @override
    def recall(self, space: str, k: int = 10, samples: int = 100) -> float:
        row, names = self._variants(space)
        return statistics.mean(self._recall(row, variant, k, samples) for variant in names)

    @override
    def index_state(self, space: str) -> IndexState:
        """Of the variant whose index is worst."""
        row, names = self._variants(space)
        states = [self._files.state(row, variant) for variant in names]
        return min(states, key=lambda state: (not state.is_lost, 1.0 if state.recall is None else state.recall))

    def _recall(self, row: StoredSpace, variant: Variant, k: int, samples: int) -> float:
        with self._database.read() as connection:
            file = self._files.current(connection, row, variant)
        ids = self._files.ids(row, variant)
        pool = self.get(row.key, variant, ids[spread(len(ids), POOL * samples)].tolist())
        if file is None or not pool:
            return 1.0  # what no file covers is scanned
        queries = unlike(np.stack(list(pool.values())), samples)
        wanted = kth_scores((vectors for _, vectors in self._files.pages(row, variant)), queries, k)
        found = [[hit.score for hit in self.nearest(row.key, variant, query, k, EVERYTHING)] for query in queries]
        return share_found(found, wanted, min(k, len(ids)))

    def _variants(self, space: str) -> tuple[StoredSpace, Sequence[Variant]]:
        with self._database.read() as connection:
            self._forget_dropped(connection)
            row = find_space(SqliteTables(connection), space)
            return row, row.variants

    def _forget_dropped(self, connection: sqlite3.Connection) -> None:
        """Let go of what is kept of spaces that were dropped, by any process: a deleted file that is mapped still
        takes its room on the disk. The id of a space is never given to another one.
        """
        live = {space_id for (space_id,) in connection.execute("SELECT space_id FROM spaces")}
        with self._lock:
            for key in [key for key in self._tails if key[0] not in live]:
                del self._tails[key]
        self._files.close_all_but(live)


def _put(
    connection: sqlite3.Connection,
    space_id: int,
    passage_ids: Sequence[int],
    rows: Mapping[Variant, Mapping[int, NDArray[np.float16]]],
    tokens: Mapping[int, NDArray[np.int8]],
) -> int:
    """Vectors are deleted and inserted rather than updated: a new seq tells every process that the vector is new."""
    live = dict(
        connection.execute(
            "SELECT passage_id, episode_key FROM passages WHERE passage_id IN (SELECT value FROM json_each(?))",
            (json_list(passage_ids),),
        ).fetchall()
    )
    keys = [(space_id, variant, passage_id) for variant in rows for passage_id in live]
    connection.executemany("DELETE FROM vectors WHERE space_id = ? AND variant = ? AND passage_id = ?", keys)
    connection.executemany(
        "INSERT INTO vectors (space_id, variant, passage_id, vec) VALUES (?, ?, ?, ?)",
        [(*key, rows[key[1]][key[2]].tobytes()) for key in keys],
    )
    packs = [(space_id, key, len(tokens[key]), packed(tokens[key])) for key in live if key in tokens]
    connection.executemany("DELETE FROM token_vectors WHERE space_id = ? AND passage_id = ?", [p[:2] for p in packs])
    connection.executemany("INSERT INTO token_vectors (space_id, passage_id, tokens, data) VALUES (?, ?, ?, ?)", packs)
    count_lacking(connection, set(live.values()), space_id)
    note_checkpoint(SqliteTables(connection), space_id, [live[key] for key in passage_ids if key in live])
    return len(keys)
