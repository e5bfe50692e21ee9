"""Vectors and token vectors in MongoDB, and the search index over each space's.

A document of `vectors_<space>` has the vectors of a passage, one packed vector a variant, the facets, and `seq`.
"""

import logging
import math
import statistics
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from pymongo import ReplaceOne, UpdateOne
from typing_extensions import override

from anamnesis_pipeline.model import EpisodeFilter, ScoredPassage, StoredPassage, Variant
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
from anamnesis_pipeline.store.mongo.client import SEARCHED_S, Collections, Database
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.facets import FACETS, of_episodes
from anamnesis_pipeline.store.mongo.fulltext import leaves_few
from anamnesis_pipeline.store.mongo.schema import seq_counter, tokens_name, vectors_name
from anamnesis_pipeline.store.mongo.search_indexes import Quantization, SearchIndex, Tail, quantizes, vector_index
from anamnesis_pipeline.store.mongo.spaces import (
    SpaceDoc,
    SpaceIndexes,
    complete_passages,
    count_lacking,
    find_space,
    newest_lacking,
)
from anamnesis_pipeline.store.mongo.translation import IndexDown
from anamnesis_pipeline.store.mongo.vector_search import (
    FEW,
    FLOAT32,
    MAX_SCANNED,
    Question,
    VectorSearch,
    pack,
    unpack,
)
from anamnesis_pipeline.store.records.spaces import lacks_vectors, note_checkpoint
from anamnesis_pipeline.store.tables import TEXT
from anamnesis_pipeline.store.values import moment, passage_of
from anamnesis_pipeline.store.vector_values import (
    EXACT_BELOW,
    POOL,
    by_passage,
    bytes_each,
    check_tokens,
    check_width,
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


# --- search ----------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)


BUILD_WAIT_S = 3_600.0
CAUGHT_UP_IN_S, CAUGHT_UP_EVERY_S = 60.0, 0.2
"""So long a build waits for an index that can be asked to hold the last vectors, too; a search reads these itself."""

EVERYTHING = EpisodeFilter(include_superseded=True)
PAGE_ROWS = 4_096


class MongoVectors(VectorIndex, SpaceIndexes):
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
        scoring with the stored vectors. One that has another is built again by the next `build`.
        """
        self._database = database
        self._quantization: Quantization = quantization
        self._build_wait_s = build_wait_s
        self._passages = passages
        self._lock = threading.Lock()
        self._searches: dict[Hashable, tuple[SearchIndex, VectorSearch]] = {}

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

        def write(tables: Collections, batch: Sequence[int]) -> int:
            row = find_space(tables, space)
            for shape in shapes:
                check_width(row, shape, 2)
            check_tokens(row.key, row.token_dims, token_rows_of)
            live = tables["passages"].find({"_id": {"$in": list(batch)}}, ("_id", *FACETS), order=[("_id", 1)])
            episode_of = {each["_id"]: each["episode_id"] for each in live}
            written = write_vectors(tables, row, live, rows)
            packs = {key: token_rows_of[key] for key in episode_of if key in token_rows_of}
            tables[tokens_name(space)].write(
                [
                    ReplaceOne({"_id": key}, {"tokens": len(each), "data": packed(each)}, upsert=True)
                    for key, each in packs.items()
                ]
            )
            number_of = count_lacking(tables, set(episode_of.values()), row)
            numbers = [number_of[episode_of[passage_id]] for passage_id in batch if passage_id in episode_of]
            note_checkpoint(MongoTables(tables), row.space_id, numbers)
            return written

        return sum(
            self._database.write(partial(write, batch=batch))
            for batch in batches(list(dict.fromkeys(passage_ids)), MAX_ROWS_PER_WRITE // rows_each)
        )

    @override
    def get(self, space: str, variant: Variant, passage_ids: Sequence[int]) -> dict[int, Vectors]:
        has = {variant.value: {"$exists": True}}
        with self._database.read() as tables:
            row = find_space(tables, space)
            found = list(tables[vectors_name(space)].among("_id", passage_ids, ("_id", variant.value), **has))
        matrix = unpack([each[variant.value] for each in found], row.dim)
        return dict(zip((each["_id"] for each in found), matrix, strict=True))

    @override
    def nearest(
        self, space: str, variant: Variant, vector: Vectors, k: int, where: EpisodeFilter
    ) -> list[ScoredPassage]:
        if k < 1:
            return []
        vector = np.asarray(vector, dtype=np.float32)
        with self._database.read(within_s=SEARCHED_S) as tables:
            row = find_space(tables, space)
            check_width(row, vector.shape, 1)
            few = where.is_selective and leaves_few(tables, self._passages, where, FEW)
            question = Question(vectors_name(space), variant.value, vector, k, where, few or row.is_exact)
            return self._of(row)[1].nearest(tables, question)

    @override
    def tokens(self, space: str, passage_ids: Sequence[int]) -> TokenRows:
        with self._database.read() as tables:
            row = find_space(tables, space)
            ids = {"_id": {"$in": list(passage_ids)}}
            found = tables[tokens_name(space)].find(ids) if passage_ids else []
        return token_rows([(each["_id"], each["tokens"], each["data"]) for each in found], row.token_dims)

    @override
    def token_bytes(self, space: str) -> int:
        with self._database.read() as tables:
            row = find_space(tables, space)
            # the index over `tokens` holds what is needed
            sums = {"_id": None, "tokens": {"$sum": "$tokens"}}
            found = tables[tokens_name(space)].aggregate([{"$match": {"tokens": {"$gt": 0}}}, {"$group": sums}])
        return int(found[0]["tokens"]) * bytes_each(row.token_dims) if found else 0

    @override
    def vector_bytes(self, space: str) -> int:
        """What the server's index takes beside it is not known here."""
        row = self._find(space)
        return self.progress(space).passages_done * len(row.variants) * row.dim * FLOAT32.itemsize

    @override
    def pending(self, space: str, sources: Sequence[str], episodes: int) -> list[PendingEpisode]:
        with self._database.read() as tables:
            row = find_space(tables, space)
            newest = newest_lacking(tables, row.space_id, sources, episodes)
            rows = MongoTables(tables)["passages"].among("episode_id", [episode_id for episode_id, _ in newest])
            passages: dict[str, list[StoredPassage]] = {}
            for stored in sorted(map(passage_of, rows), key=lambda stored: stored.passage.ordinal):
                passages.setdefault(stored.episode_id, []).append(stored)
            done = complete_passages(tables, row, [s.passage_id for found in passages.values() for s in found])
        lacking = [
            (episode_id, source, tuple(s for s in passages.get(episode_id, ()) if s.passage_id not in done))
            for episode_id, source in newest
        ]
        return [PendingEpisode(episode_id, source, left) for episode_id, source, left in lacking if left]

    @override
    def pending_sources(self, space: str) -> dict[str, int]:
        with self._database.read() as tables:
            of_space = {"space_id": find_space(tables, space).space_id}
            found = MongoTables(tables)["pending"].sums(of_space, ["missing"], by=["source"])
        return dict(sorted((row["source"], row["missing"]) for row in found))

    @override
    def progress(self, space: str) -> SpaceProgress:
        with self._database.snapshot() as tables:  # of one moment, or more might be missing than is there
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

    @override
    def build(self, space: str, *, force: bool = False, within_s: float = math.inf) -> IndexReport:
        """The server keeps the index up to date, so it is built only where there is none of the definition that is
        wanted, or when it is forced; searches go on meanwhile. Nothing in it is dead: a vector that was removed is
        found no more, and leaves the index some time later. The index of full text is waited for, too, since opening a
        store waits for none.
        """
        started = time.perf_counter()
        over = time.monotonic() + within_s
        row = self._find(space)
        index, _ = self._of(row)
        rebuilt = index.build(self._database, force=force, wait_s=_until(over, self._build_wait_s))
        self._passages.build(self._database, force=False, wait_s=_until(over, self._build_wait_s))
        tails = self._catch_up(row, _until(over, CAUGHT_UP_IN_S))
        held = lacking = 0
        with self._database.read() as tables:
            collection = tables[vectors_name(row.key)]
            is_whole = not lacks_vectors(MongoTables(tables), row)  # every passage has every variant: none to look for
            for variant, tail in tails.items():
                has = {variant: {"$exists": True}}
                held += collection.size() if is_whole else collection.count(has)
                lacking += 0 if tail.is_empty else collection.count(tail.of(has))
        return IndexReport(
            space=space,
            vectors=held,
            indexed=held - lacking,
            dead=0,
            rebuilt=rebuilt,
            seconds=time.perf_counter() - started,
        )

    @override
    def middles(self, space: str, variant: Variant, where: EpisodeFilter, after: int, limit: int) -> EpisodeMiddles:
        wanted = {"$and": [of_episodes(where), {"number": {"$gt": after}}]}
        has = {variant.value: {"$exists": True}}
        with self._database.read() as tables:
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
        row = self._find(space)
        measured = [self._recall(row, variant, k, samples) for variant in row.variants]
        of_index = min(by_index for by_index, _ in measured)
        self._database.write(
            lambda tables: tables["spaces"].update({"_id": row.space_id}, {"$set": {"index_recall": of_index}})
        )
        return statistics.mean(by_search for _, by_search in measured)

    @override
    def index_state(self, space: str) -> IndexState:
        """What is wrong with the server's index otherwise, its searches tell."""
        row = self._find(space)
        return IndexState(recall=row.index_recall, is_exact=row.is_exact)

    @override
    def ask(self, space: SpaceDoc) -> None:
        """It is built some time later; `build` waits for it."""
        try:
            self._of(space)[0].ask_for(self._database)
        except IndexDown as exc:
            log.warning("%s; the index is made by the next search or build of the space", exc)

    @override
    def answers(self, space: SpaceDoc) -> bool:
        """By its index, or because there is little to read."""
        with self._database.read() as tables:
            if tables[vectors_name(space.key)].size() <= MAX_SCANNED:
                return True
            try:
                return bool(self._of(space)[0].name(tables))
            except IndexDown:
                return False

    def _find(self, space: str) -> SpaceDoc:
        with self._database.read() as tables:
            return find_space(tables, space)

    def _recall(self, row: SpaceDoc, variant: Variant, k: int, samples: int) -> tuple[float, float]:
        """Return the recall of the index, and that of searches, which ask it for an exact search where that is too low,
        over vectors that are spread over the passages by their keys, without any two that are alike.
        """
        name, field = vectors_name(row.key), variant.value
        has = {field: {"$exists": True}}
        search = self._of(row)[1]
        with self._database.read() as tables:
            ids = [found["_id"] for found in tables[name].each({}, ("_id",), order=[("_id", 1)])]
            chosen = {"_id": {"$in": [ids[place] for place in spread(len(ids), POOL * samples)]}, **has}
            pool = [found[field] for found in tables[name].find(chosen, (field,), order=[("_id", 1)])]
            if not pool:
                return 1.0, 1.0
            k = min(k, len(pool))
            queries = unlike(unpack(pool, row.dim), samples)
            rows = tables[name].each(has, (field,))
            pages = iter(lambda: [each[field] for each in islice(rows, PAGE_ROWS)], [])
            wanted = kth_scores((unpack(page, row.dim) for page in pages), queries, k)

            def share(*, exact: bool) -> float:
                questions = (Question(name, field, query, k, EVERYTHING, exact) for query in queries)
                found = [[hit.score for hit in search.nearest(tables, question)] for question in questions]
                return share_found(found, wanted, k)

            by_index = share(exact=False)
            return by_index, by_index if by_index >= EXACT_BELOW else share(exact=True)

    def _catch_up(self, row: SpaceDoc, wait_s: float) -> dict[str, Tail]:
        """What the index lacks of each variant, once it holds all there was when this began, or the time is over."""
        over = time.monotonic() + wait_s
        wanted: dict[str, int] = {}
        search, nothing = self._of(row)[1], np.zeros(row.dim, np.float32)
        questions = [Question(vectors_name(row.key), variant.value, nothing, 1, EVERYTHING) for variant in row.variants]
        while True:
            with self._database.read() as tables:
                tails = {question.variant: search.behind(tables, question) for question in questions}
            wanted = {variant: tail.newest for variant, tail in tails.items()} | wanted
            if all(tail.since >= wanted[variant] for variant, tail in tails.items()) or time.monotonic() > over:
                return tails
            time.sleep(CAUGHT_UP_EVERY_S)

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


def write_vectors(
    tables: Collections,
    space: SpaceDoc,
    passages: Sequence[Document],
    rows: Mapping[Variant, Mapping[int, Vectors]],
) -> int:
    """Write the vectors of these passages, given as documents with `_id` and `FACETS`. Return how many.

    A new `seq` tells every process that the vector is new.

    :param rows: variant -> passage id -> vector of shape (dim,).
    """
    if not rows or not passages:
        return 0
    name = vectors_name(space.key)
    first = tables.next_number(seq_counter(name), len(passages))
    writes = []
    for seq, passage in enumerate(passages, first):
        vectors = {variant.value: pack(found[passage["_id"]]) for variant, found in rows.items()}
        change = {**vectors, **{name: passage[name] for name in FACETS}, "seq": seq}
        writes.append(UpdateOne({"_id": passage["_id"]}, {"$set": change}, upsert=True))
    tables[name].write(writes)
    return len(rows) * len(passages)
