"""Vectors and token vectors in MongoDB, and the search index over each space's."""

import logging
import math
import statistics
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from anamnesis_pipeline.model import ScoredPassage, StoredPassage, Variant, Where
from anamnesis_pipeline.store.contracts import (
    EpisodeMiddles,
    IndexReport,
    IndexState,
    PendingEpisode,
    SpaceProgress,
    TokenRows,
    VectorIndex,
)
from anamnesis_pipeline.store.episode_values import passage_of
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE, batches
from anamnesis_pipeline.store.mongo.client import SEARCHED_S, Collections, Database
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.facets import FACETS, of_episodes
from anamnesis_pipeline.store.mongo.index_tail import Tail, leaves_few
from anamnesis_pipeline.store.mongo.search_indexes import Quantization, SearchIndex, quantizes, vector_index
from anamnesis_pipeline.store.mongo.space_docs import (
    SpaceDoc,
    complete_passages,
    count_lacking,
    find_space,
    newest_lacking,
    tokens_name,
    vectors_name,
)
from anamnesis_pipeline.store.mongo.spaces import SpaceIndexes
from anamnesis_pipeline.store.mongo.translation import IndexDown
from anamnesis_pipeline.store.mongo.vector_docs import (
    BYTES_EACH,
    FLOAT32,
    Rows,
    Sample,
    note_checkpoint,
    sample_of,
    unpack,
    write_tokens,
    write_vectors,
)
from anamnesis_pipeline.store.mongo.vector_search import FEW, MOST_SCANNED, Question, VectorSearch
from anamnesis_pipeline.store.records.spaces import lacks_vectors
from anamnesis_pipeline.store.tables import TEXT
from anamnesis_pipeline.store.values import moment
from anamnesis_pipeline.store.vector_values import (
    EXACT_BELOW,
    Tokens,
    by_passage,
    bytes_each,
    check_tokens,
    check_width,
    middles_of,
    token_rows,
    vectors_by_passage,
)

Vectors = NDArray[np.float32]


# --- search ----------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)


BUILD_WAIT_S = 3_600.0
CAUGHT_UP_IN_S, CAUGHT_UP_EVERY_S = 60.0, 0.2
"""So long a build waits for an index that can be asked to hold the last vectors, too; a search reads these itself."""

EVERYTHING = Where(include_superseded=True)


class MongoVectors(VectorIndex):
    """Vectors in MongoDB, and the search index over those of each space."""

    def __init__(
        self,
        database: Database,
        passages: SearchIndex,
        quantization: Quantization = "none",
        *,
        build_wait_s: float = BUILD_WAIT_S,
    ) -> None:
        """:param passages: the index of full text, which counts what filters leave.
        :param quantization: of the search indexes: what they take in memory, at some loss that is made good by
        scoring with the stored vectors. One that has another is built anew by the next `build`.
        """
        self._database = database
        self._quantization: Quantization = quantization
        self._build_wait_s = build_wait_s
        self._passages = passages
        self._lock = threading.Lock()
        self._searches: dict[Hashable, tuple[SearchIndex, VectorSearch]] = {}

    @override
    def put(self, space: str, variant: Variant, passage_ids: Sequence[int], vectors: Vectors) -> int:
        return self.put_all(space, passage_ids, {variant: vectors})

    @override
    def put_all(
        self,
        space: str,
        passage_ids: Sequence[int],
        vectors: Mapping[Variant, Vectors],
        tokens: Sequence[NDArray[np.int8]] | None = None,
    ) -> int:
        shapes = [np.asarray(matrix).shape for matrix in vectors.values()]
        rows = {variant: vectors_by_passage(passage_ids, matrix, FLOAT32) for variant, matrix in vectors.items()}
        token_rows_of = by_passage(passage_ids, tokens)
        rows_each = max(1, len(rows) + bool(token_rows_of))
        return sum(
            self._database.write(partial(_put, key=space, shapes=shapes, batch=batch, rows=rows, tokens=token_rows_of))
            for batch in batches(list(dict.fromkeys(passage_ids)), MAX_ROWS_PER_WRITE // rows_each)
        )

    @override
    def get(self, space: str, variant: Variant, passage_ids: Sequence[int]) -> dict[int, Vectors]:
        def work(tables: Collections) -> dict[int, Vectors]:
            row = find_space(tables, space)
            has = {variant.value: {"$exists": True}}
            found = list(tables[vectors_name(space)].among("_id", passage_ids, ("_id", variant.value), **has))
            matrix = unpack([each[variant.value] for each in found], row.dim)
            return dict(zip((each["_id"] for each in found), matrix, strict=True))

        return self._database.read(work)

    @override
    def nearest(self, space: str, variant: Variant, vector: Vectors, k: int, where: Where) -> list[ScoredPassage]:
        if k < 1:
            return []
        vector = np.asarray(vector, dtype=np.float32)

        def work(tables: Collections) -> list[ScoredPassage]:
            row = find_space(tables, space)
            check_width(row, vector.shape, 1)
            few = where.is_selective and leaves_few(tables, self._passages, where, FEW)
            question = Question(vectors_name(space), variant.value, vector, k, where, few or row.is_exact)
            return self._of(row)[1].nearest(tables, question)

        return self._database.read(work, within_s=SEARCHED_S)

    @override
    def tokens(self, space: str, passage_ids: Sequence[int]) -> TokenRows:
        with self._database.reading() as tables:
            row = find_space(tables, space)
            ids = {"_id": {"$in": list(passage_ids)}}
            found = tables[tokens_name(space)].find(ids) if passage_ids else []
        return token_rows([(each["_id"], each["tokens"], each["data"]) for each in found], row.token_dims)

    @override
    def token_bytes(self, space: str) -> int:
        with self._database.reading() as tables:
            row = find_space(tables, space)
            # the index over `tokens` holds what is needed
            sums = {"_id": None, "tokens": {"$sum": "$tokens"}}
            found = tables[tokens_name(space)].aggregate([{"$match": {"tokens": {"$gt": 0}}}, {"$group": sums}])
        return int(found[0]["tokens"]) * bytes_each(row.token_dims) if found else 0

    @override
    def vector_bytes(self, space: str) -> int:
        """What the server's index takes beside it is not known here."""
        row = self._database.read(lambda tables: find_space(tables, space))
        return self.progress(space).passages_done * len(row.variants) * row.dim * BYTES_EACH

    @override
    def pending(self, space: str, sources: Sequence[str], episodes: int) -> list[PendingEpisode]:
        return self._database.read(lambda tables: _pending(tables, find_space(tables, space), sources, episodes))

    @override
    def pending_sources(self, space: str) -> dict[str, int]:
        def work(tables: Collections) -> dict[str, int]:
            of_space = {"space_id": find_space(tables, space).space_id}
            found = MongoTables(tables)["pending"].sums(of_space, ["missing"], by=["source"])
            return dict(sorted((row["source"], row["missing"]) for row in found))

        return self._database.read(work)

    @override
    def count(self, space: str) -> int:
        return self.progress(space).passages_done

    @override
    def progress(self, space: str) -> SpaceProgress:
        def work(tables: Collections) -> SpaceProgress:
            space_id = find_space(tables, space).space_id
            rows = MongoTables(tables)
            (lacking,) = rows["pending"].sums({"space_id": space_id}, ["missing"])
            (there,) = rows["episodes"].sums({"source": TEXT}, ["passages"])
            reached = tables["spaces"].one({"_id": space_id}, ("last_episode", "written_at")) or {}
            written_at = reached.get("written_at")
            return SpaceProgress(
                episodes=there["rows"],
                episodes_done=there["rows"] - lacking["rows"],
                passages=there["passages"],
                passages_done=there["passages"] - lacking["missing"],
                last_episode=reached.get("last_episode"),
                written_at=moment(written_at) if written_at else None,
            )

        return self._database.snapshot(work)  # of one moment, or more might be missing than is there

    @override
    def build(self, space: str, *, force: bool = False, within_s: float = math.inf) -> IndexReport:
        """The server keeps the index up to date by itself, so it is built only where there is
        none of the definition that is wanted, or when it is forced; searches go on meanwhile. Nothing in it is dead: a
        vector that was removed is found no more, and leaves the index some time later. The index of full text is
        waited for, too, since opening a store waits for none.
        """
        started = time.perf_counter()
        over = time.monotonic() + within_s
        row = self._database.read(lambda tables: find_space(tables, space))
        index, _ = self._of(row)
        rebuilt = index.build(self._database, force=force, wait_s=_until(over, self._build_wait_s))
        self._passages.build(self._database, force=False, wait_s=_until(over, self._build_wait_s))
        tails = self._catch_up(row, _until(over, CAUGHT_UP_IN_S))
        held, lacking = self._database.read(lambda tables: _counted(tables, row, tails))
        return IndexReport(
            space=space,
            vectors=held,
            indexed=held - lacking,
            dead=0,
            rebuilt=rebuilt,
            seconds=time.perf_counter() - started,
        )

    @override
    def middles(self, space: str, variant: Variant, where: Where, after: int, limit: int) -> EpisodeMiddles:
        wanted = {"$and": [of_episodes(where), {"number": {"$gt": after}}]}
        has = {variant.value: {"$exists": True}}
        with self._database.reading() as tables:
            row = find_space(tables, space)
            episodes = tables["episodes"].find(wanted, ("_id", "project", "number"), order=[("number", 1)], limit=limit)
            places = {each["_id"]: place for place, each in enumerate(episodes)}
            passages = list(tables["passages"].among("episode_id", places, ("_id", "episode_id", "ordinal")))
            ids = [each["_id"] for each in passages]
            found = tables[vectors_name(space)].among("_id", ids, ("_id", variant.value), **has)
            vectors = {each["_id"]: each[variant.value] for each in found}
        held = [each for each in passages if each["_id"] in vectors]
        held.sort(key=lambda each: (places[each["episode_id"]], each["ordinal"]))
        return middles_of(
            [(each["_id"], each["project"]) for each in episodes],
            [(places[each["episode_id"]], each["_id"]) for each in held],
            unpack([vectors[each["_id"]] for each in held], row.dim),
            episodes[-1]["number"] if len(episodes) == limit else None,
        )

    @override
    def recall(self, space: str, k: int = 10, samples: int = 100) -> float:
        row = self._database.read(lambda tables: find_space(tables, space))
        measured = [self._recall(row, variant, k, samples) for variant in row.variants]
        of_index = min(by_index for by_index, _ in measured)
        self._database.write(
            lambda tables: tables["spaces"].update({"_id": row.space_id}, {"$set": {"index_recall": of_index}})
        )
        return statistics.mean(by_search for _, by_search in measured)

    @override
    def index_state(self, space: str) -> IndexState:
        """What is wrong with the server's index otherwise, its searches tell."""
        row = self._database.read(lambda tables: find_space(tables, space))
        return IndexState(recall=row.index_recall, is_exact=row.is_exact)

    @property
    def indexes(self) -> SpaceIndexes:
        """What spaces ask of their search indexes."""
        return SpaceIndexes(self._ask, self._answers)

    def _ask(self, space: SpaceDoc) -> None:
        """Ask for the search index of a space that is new; it is built some time later, `build` waits for it."""
        try:
            self._of(space)[0].ask_for(self._database)
        except IndexDown as exc:
            log.warning("%s; the index is made by the next search or build of the space", exc)

    def _answers(self, space: SpaceDoc) -> bool:
        """Whether a space can be searched by now: by its index, or because there is little to read."""

        def work(tables: Collections) -> bool:
            if tables[vectors_name(space.key)].size() <= MOST_SCANNED:
                return True
            try:
                return bool(self._of(space)[0].name(tables))
            except IndexDown:
                return False

        return self._database.read(work)

    def _recall(self, row: SpaceDoc, variant: Variant, k: int, samples: int) -> tuple[float, float]:
        """The recall of the index, and that of searches, which ask it for an exact search where that is too low."""
        name = vectors_name(row.key)

        def work(tables: Collections) -> tuple[float, float]:
            if (sample := sample_of(tables, name, variant.value, row.dim, k, samples)) is None:
                return 1.0, 1.0
            by_index = sample.share(self._scores(tables, row, variant, sample, exact=False))
            if by_index >= EXACT_BELOW:
                return by_index, by_index
            return by_index, sample.share(self._scores(tables, row, variant, sample, exact=True))

        return self._database.read(work)

    def _scores(
        self, tables: Collections, row: SpaceDoc, variant: Variant, sample: Sample, *, exact: bool
    ) -> list[list[float]]:
        search, name = self._of(row)[1], vectors_name(row.key)
        questions = [Question(name, variant.value, query, sample.k, EVERYTHING, exact) for query in sample.queries]
        return [[hit.score for hit in search.nearest(tables, question)] for question in questions]

    def _catch_up(self, row: SpaceDoc, wait_s: float) -> dict[str, Tail]:
        """What the index lacks of each variant, once it holds all there was when this began, or the time is over."""
        over = time.monotonic() + wait_s
        wanted: dict[str, int] = {}
        while True:
            tails = self._database.read(partial(self._behind, row=row))
            wanted = {variant: tail.newest for variant, tail in tails.items()} | wanted
            if all(tail.since >= wanted[variant] for variant, tail in tails.items()) or time.monotonic() > over:
                return tails
            time.sleep(CAUGHT_UP_EVERY_S)

    def _behind(self, tables: Collections, row: SpaceDoc) -> dict[str, Tail]:
        search, nothing = self._of(row)[1], np.zeros(row.dim, np.float32)
        questions = [Question(vectors_name(row.key), variant.value, nothing, 1, EVERYTHING) for variant in row.variants]
        return {question.variant: search.behind(tables, question) for question in questions}

    def _of(self, space: SpaceDoc) -> tuple[SearchIndex, VectorSearch]:
        """The search index of a space, and what searches by it. A database that was restored may give the id, or the
        key, to another space.
        """
        which = (space.space_id, space.key, space.dim, tuple(space.variants))
        with self._lock:
            if which not in self._searches:
                index = vector_index(space, self._quantization)
                quantized = quantizes(space.dim, self._quantization)
                self._searches[which] = (index, VectorSearch(index, quantized=quantized))
            return self._searches[which]


def _until(over: float, most_s: float) -> float:
    """How long may be waited up to a moment of the monotonic clock, in seconds."""
    return max(0.0, min(most_s, over - time.monotonic()))


def _put(
    tables: Collections,
    key: str,
    shapes: Sequence[tuple[int, ...]],
    batch: Sequence[int],
    rows: Rows,
    tokens: Mapping[int, Tokens],
) -> int:
    space = find_space(tables, key)
    for shape in shapes:
        check_width(space, shape, 2)
    check_tokens(space.key, space.token_dims, tokens)
    live = tables["passages"].find({"_id": {"$in": list(batch)}}, ("_id", *FACETS), order=[("_id", 1)])
    written = write_vectors(tables, space, live, rows)
    episode_of = {each["_id"]: each["episode_id"] for each in live}
    write_tokens(tables, space, list(episode_of), tokens)
    count_lacking(tables, set(episode_of.values()), space.space_id)
    note_checkpoint(tables, space, [episode_of[passage_id] for passage_id in batch if passage_id in episode_of])
    return written


def _counted(tables: Collections, row: SpaceDoc, tails: Mapping[str, Tail]) -> tuple[int, int]:
    """The vectors of a space, and how many of them its index lacks."""
    collection = tables[vectors_name(row.key)]
    is_whole = not lacks_vectors(MongoTables(tables), row)  # every passage has every variant: nothing to look through
    held = lacking = 0
    for variant, tail in tails.items():
        has = {variant: {"$exists": True}}
        held += collection.size() if is_whole else collection.count(has)
        lacking += 0 if tail.is_empty else collection.count(tail.of(has))
    return held, lacking


def _pending(tables: Collections, space: SpaceDoc, sources: Sequence[str], episodes: int) -> list[PendingEpisode]:
    newest = newest_lacking(tables, space.space_id, sources, episodes)
    rows = MongoTables(tables)["passages"].among("episode_id", [episode_id for episode_id, _ in newest])
    passages: dict[str, list[StoredPassage]] = {}
    for stored in sorted(map(passage_of, rows), key=lambda stored: stored.passage.ordinal):
        passages.setdefault(stored.episode_id, []).append(stored)
    ids = [stored.passage_id for found in passages.values() for stored in found]
    done = complete_passages(tables, space, ids)
    lacking = [
        (episode_id, source, tuple(s for s in passages.get(episode_id, ()) if s.passage_id not in done))
        for episode_id, source in newest
    ]
    return [PendingEpisode(episode_id, source, left) for episode_id, source, left in lacking if left]
