"""From parts to summaries, episodes, vectors and the active space, each step on a real store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.hashing import HashingEmbedder
from anamnesis_pipeline.embeddings.models import ModelFiles
from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import FileCursor, Part, Segment, SegmentKind, Source, Space, Variant, Where, part_id_of
from anamnesis_pipeline.steps.embeddings import EmbedReport, embed_source
from anamnesis_pipeline.steps.episodes import episode_of, publish_source
from anamnesis_pipeline.steps.spaces import ensure_space, index_space
from anamnesis_pipeline.steps.summaries import summarize_source
from anamnesis_pipeline.store.base import ParsedChunk, Store

SOURCE = Source("mac--acme--00000000", "mac", "/logs", "acme")
START = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
SPACE = Space("hashing", "hashing-32", 32)
PIECES = minilm_pieces()


def part(number: int, *texts: str, closed: bool = True) -> Part:
    segments = tuple(
        Segment(f"k{number}-{n}", f"u{number}-{n}", (SegmentKind.PROMPT, SegmentKind.STATEMENT)[n > 0], 0, text,
                START + timedelta(hours=number, minutes=n))
        for n, text in enumerate(texts)
    )  # fmt: skip
    return Part(
        part_id_of(segments[0]), SOURCE.key, "a.jsonl", "s1", f"x{number}", number, "exchange", "acme/api", "/w/api",
        texts[0][:80], segments, closed,
    )  # fmt: skip


def parsed(store: Store, *parts: Part) -> None:
    """Write parts as the parser does."""
    store.ingest.put_sources([SOURCE])
    before = store.ingest.cursors(SOURCE.key).get("a.jsonl")
    if before is None:
        store.ingest.commit_crawl(None, FileCursor(SOURCE.key, "a.jsonl", lines=1), None)
        before = store.ingest.cursors(SOURCE.key)["a.jsonl"]
    assert store.ingest.commit_parsed(ParsedChunk(before, replace(before, parsed_lines=1), (), (), parts))


def publish(store: Store) -> tuple[int, int, int]:
    put = publish_source(store, SOURCE, PIECES, lambda part: f"so far: {part.prompt}").put
    return put.created, put.updated, put.unchanged


def test_closed_parts_are_summarized_once_and_again_when_they_change(store: Store) -> None:
    parsed(store, part(1, "one"), part(2, "two", closed=False))
    calls = []

    def summarize(part: Part) -> str:
        calls.append(part.ordinal)
        return f"summary of {part.ordinal}"

    assert summarize_source(store, SOURCE, "m", summarize).written == 1
    assert summarize_source(store, SOURCE, "m", summarize).written == 0
    assert calls == [1], "an open part waits"
    parsed(store, part(1, "one", "and more"))
    assert summarize_source(store, SOURCE, "m", summarize).written == 1


def test_an_open_part_is_searchable_and_becomes_its_summary_when_it_closes(store: Store) -> None:
    parsed(store, part(1, "Why is the zeppelin late?", closed=False))
    assert publish(store) == (1, 0, 0)
    (episode,) = store.episodes.page(Where(), 5).items
    assert episode.summary == "so far: Why is the zeppelin late?"
    parsed(store, part(1, "Why is the zeppelin late?", "Because of the wind."))
    summarize_source(store, SOURCE, "m", lambda part: "The wind made it late.")
    assert publish(store) == (0, 1, 0)
    (grown,) = store.episodes.page(Where(), 5).items
    assert (grown.episode_id, grown.summary) == (episode.episode_id, "The wind made it late.")
    assert publish(store) == (0, 0, 0), "a second run has nothing to do"


def test_an_episode_points_to_its_records_and_holds_its_text_with_speakers(store: Store) -> None:
    made = episode_of(part(1, "why?", "because"), SOURCE, "s")
    assert (made.episode_id, made.timestamp, made.instance) == (
        part(1, "why?").part_id,
        START + timedelta(hours=1),
        "mac",
    )
    assert (made.message_ids, made.message_keys) == (("u1-0", "u1-1"), ("k1-0", "k1-1"))
    assert made.path.endswith("acme/a.jsonl")
    assert made.raw_exchange == "[User]\nwhy?\n\n[Claude]\nbecause"
    assert made.metadata["ordinal"] == 1
    assert "agent_id" not in made.metadata


def test_a_message_that_goes_on_in_the_next_part_says_so_and_a_part_without_time_is_old(store: Store) -> None:
    whole = part(1, "why?")
    (segment,) = whole.segments
    later = replace(whole, segments=(replace(segment, start=500, timestamp=None, uuid=""),))
    made = episode_of(later, SOURCE, "s")
    assert made.raw_exchange == "[User, continued]\nwhy?"
    assert (made.timestamp.year, made.message_ids) == (1970, ())


def test_vectors_are_written_at_every_checkpoint_and_equal_texts_are_embedded_once(store: Store) -> None:
    store.spaces.put(SPACE)
    parsed(store, *[part(n, f"the number {n % 3} again") for n in range(60)])
    publish(store)
    reports: list[EmbedReport] = []
    batches: list[int] = []

    class Counting(HashingEmbedder):
        def embed(self, texts, role):  # type: ignore[no-untyped-def]
            batches.append(len(texts))
            assert len(texts) == len(set(texts))
            return super().embed(texts, role)

    report = embed_source(store, SPACE, SOURCE.key, Counting(32), 25, reports.append)
    assert [r.episodes for r in reports] == [25, 50, 60]
    assert (report.episodes, report.passages, report.vectors) == (60, 60, 120)
    assert report.passages_per_s > 0
    assert store.vectors.pending_sources(SPACE.key) == {}
    assert embed_source(store, SPACE, SOURCE.key, Counting(32), 25) == EmbedReport(0, 0, 0, 0.0)


def test_each_variant_gets_the_vector_of_its_own_text(store: Store) -> None:
    store.spaces.put(SPACE)
    parsed(store, part(1, "why is it late?"))
    publish(store)
    embed_source(store, SPACE, SOURCE.key, HashingEmbedder(32), 25)
    (stored,) = store.episodes.passages_of(part(1, "x").part_id)
    for variant, text in [(Variant.TEXT, stored.passage.text), (Variant.CONTEXT, stored.passage.with_context)]:
        vector = store.vectors.get(SPACE.key, variant, [stored.passage_id])[stored.passage_id]
        assert np.allclose(vector, HashingEmbedder(32).embed([text], "passage")[0], atol=1e-2)


def test_a_killed_run_keeps_what_its_checkpoints_wrote(store: Store) -> None:
    store.spaces.put(SPACE)
    parsed(store, *[part(n, f"number {n}") for n in range(60)])
    publish(store)

    class DiesLater(HashingEmbedder):
        calls = 0

        def embed(self, texts, role) -> NDArray[np.float32]:  # type: ignore[no-untyped-def]
            self.calls += 1
            if self.calls == 3:
                raise KeyboardInterrupt
            return super().embed(texts, role)

    with pytest.raises(KeyboardInterrupt):
        embed_source(store, SPACE, SOURCE.key, DiesLater(32), 25)
    assert store.vectors.pending_sources(SPACE.key) == {SOURCE.key: 10}
    assert embed_source(store, SPACE, SOURCE.key, HashingEmbedder(32), 25).episodes == 10


def files_of(name: str, tmp_path: object) -> ModelFiles:
    return ModelFiles(name, tmp_path, 32, "mean_tokens", 256, "", "", f"f{name}")  # type: ignore[arg-type]


def embed_all(store: Store, space: Space) -> None:
    embed_source(store, space, SOURCE.key, HashingEmbedder(32), 25)


def test_the_first_space_is_active_at_once_and_the_next_one_when_it_is_complete(store: Store, tmp_path: object) -> None:
    parsed(store, part(1, "one"))
    publish(store)
    first = ensure_space(store, files_of("a", tmp_path), "fp32")
    assert (first.status, ensure_space(store, files_of("a", tmp_path), "bf16")) == ("active", first)
    second = ensure_space(store, files_of("b", tmp_path), "fp32")
    assert second.status == "building"
    assert not index_space(store, second.key).switched, "a passage lacks its vector there"
    embed_all(store, second)
    report = index_space(store, second.key)
    assert (report.active, report.switched, report.index.vectors > 0) == (True, True, True)
    assert not index_space(store, second.key).switched
    assert [space.status for space in store.spaces.all()] == ["retired", "active"]


def test_a_retired_model_that_is_wanted_again_goes_live_once_it_is_complete(store: Store, tmp_path: object) -> None:
    first = ensure_space(store, files_of("a", tmp_path), "fp32")
    second = ensure_space(store, files_of("b", tmp_path), "fp32")
    index_space(store, second.key)
    parsed(store, part(1, "written meanwhile"))
    publish(store)
    assert ensure_space(store, files_of("a", tmp_path), "fp32").status == "retired", "a passage lacks its vector there"
    assert not index_space(store, first.key).switched
    embed_all(store, first)
    assert ensure_space(store, files_of("a", tmp_path), "fp32").status == "active"


def test_a_later_generation_of_the_wanted_model_is_what_is_wanted(store: Store, tmp_path: object) -> None:
    files = files_of("a", tmp_path)
    ensure_space(store, files, "fp32")
    store.spaces.put(files.space(generation=2))
    index_space(store, files.space(generation=2).key)
    assert ensure_space(store, files, "fp32").generation == 2
    assert [space.status for space in store.spaces.all()] == ["retired", "active"]
