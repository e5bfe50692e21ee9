"""Small valid values for the tests of a store, and work that is done at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import (
    Episode,
    FileCursor,
    Part,
    Passage,
    Segment,
    SegmentKind,
    Space,
    Summary,
    Variant,
    part_id_of,
)
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.messages import ParsedChunk

T = TypeVar("T")

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)


def episode(episode_id: str, minute: float = 0, **fields: Any) -> Episode:
    """An active episode of source `direct`, `minute` minutes after noon of 2026-03-01."""
    given = {
        "source": "direct",
        "instance": "main",
        "project": "acme/api",
        "kind": "note",
        "summary": "a summary",
        "raw_exchange": f"all of {episode_id}",
    } | fields
    return Episode(episode_id=episode_id, timestamp=DAY + timedelta(minutes=minute), **given)


def passages(*texts: str, context: str = "") -> list[Passage]:
    """One passage per text, in order."""
    return [Passage(i, text, context, (f"uuid-{i}",)) for i, text in enumerate(texts)]


def put(store: Store, episode_id: str, *texts: str, context: str = "", minute: float = 0, **fields: Any) -> list[int]:
    """Write one episode; returns the keys of its passages by ordinal."""
    store.episodes.put([(episode(episode_id, minute, **fields), passages(*texts, context=context))])
    return [p.passage_id for p in store.episodes.passages_of(episode_id)]


def edit(store: Store, episode_id: str, *texts: str, **fields: Any) -> None:
    """Change fields of an episode, as who edits it does, and its passages to these texts, if any."""
    held = store.episodes.get([episode_id])[episode_id]
    written = passages(*texts) if texts else [each.passage for each in store.episodes.passages_of(episode_id)]
    store.episodes.replace(replace(held, **fields), written, held.content_hash)


def space(key: str, dim: int = 4, variants: Sequence[Variant] = (Variant.TEXT,), token_dims: int = 0) -> Space:
    """A space that was added and that nobody asked to fill."""
    return Space(key, f"model of {key}", dim, variants=tuple(variants), token_dims=token_dims)


def unit(*numbers: float) -> NDArray[np.float32]:
    """`numbers` as a vector of length 1, shape (len(numbers),)."""
    vector = np.array(numbers, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def random_units(count: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    """Vectors of length 1, shape (count, dim)."""
    matrix = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def filled(store: Store, count: int, dim: int = 8) -> tuple[list[int], NDArray[np.float32]]:
    """`count` episodes of one passage each in space `s`; every tenth is of project `few`. Keys and vectors."""
    store.spaces.put(space("s", dim))
    projects = ["many" if i % 10 else "few" for i in range(count)]
    store.episodes.put([(episode(f"e{i}", project=of), passages(f"text {i}")) for i, of in enumerate(projects)])
    keys, vectors = first_keys(store, *(f"e{i}" for i in range(count))), random_units(count, dim)
    assert store.vectors.put("s", Variant.TEXT, keys, vectors) == count
    return keys, vectors


def first_keys(store: Store, *episode_ids: str) -> list[int]:
    """Keys of the first passages of episodes without vectors in space `s`, read at once."""
    lacking = store.vectors.pending("s", ["direct"], len(episode_ids))
    found = {each.episode_id: each.passages[0].passage_id for each in lacking}
    return [found[episode_id] for episode_id in episode_ids]


def segment(key: str, text: str = "some text", minute: float | None = 0, start: int = 0) -> Segment:
    """A statement of the message `key`."""
    when = None if minute is None else DAY + timedelta(minutes=minute)
    return Segment(key, f"uuid of {key}", SegmentKind.STATEMENT, start, text, when)


def part(*segments: Segment, closed: bool = True, **fields: Any) -> Part:
    """A part of source `logs` that begins with the first segment."""
    given = {
        "source": "logs",
        "path": "a.jsonl",
        "session_id": "s",
        "exchange_id": "x",
        "ordinal": 0,
        "kind": "exchange",
        "project": "acme/api",
        "cwd": "/code",
        "prompt": "why?",
    } | fields
    return Part(part_id=part_id_of(segments[0]), segments=segments, closed=closed, **given)


def crawled(store: Store, path: str = "a.jsonl", source: str = "logs") -> FileCursor:
    """A file just crawled for the first time; returns its stored cursor."""
    assert store.files.commit_crawl(None, FileCursor(source, path, size=100, offset=100, lines=10), None)
    return store.files.cursors(source)[path]


def parsed(store: Store, *parts: Part, path: str = "a.jsonl", source: str = "logs", keys: Sequence[str] = ()) -> None:
    """Commit `parts` of a file, crawling it first when it is new."""
    before = store.files.cursors(source).get(path) or crawled(store, path, source)
    assert store.messages.commit_parsed(ParsedChunk(before, replace(before, parsed_lines=10), keys=keys, parts=parts))


def summary(of: Part, text: str = "in short") -> Summary:
    """A summary of the part as it is."""
    return Summary(of.part_id, of.content_hash, text, "extractive")


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """What each of these returns, done by threads that begin at one moment."""
    ready = Barrier(len(works))

    def run(work: Callable[[], T]) -> T:
        ready.wait(60)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [done.result() for done in [pool.submit(run, work) for work in works]]
