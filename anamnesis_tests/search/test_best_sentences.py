"""The sentences that answer are quoted, with token vectors and without."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.base import query_vectors
from anamnesis_pipeline.model import Part, Segment, SegmentKind, Space, StoredPassage
from anamnesis_pipeline.pipeline.embed import embed_passages
from anamnesis_pipeline.search.best_sentences import Sentence, SentenceReader, best_run
from anamnesis_pipeline.store.records.forgetting import ForgetRecords
from anamnesis_tests.support.hashing_embedder import HashingEmbedder
from anamnesis_tests.support.searched_memory import START, Memory

TOKENS = Space("tokens", "hashing-128", 128, token_dims=64)
EMBEDDER = HashingEmbedder(128, 64)
PASSAGES = (
    "The weather was fine that day. Nobody went out.",
    "We looked at the hangar first. Its roof was sound.",
    "The zeppelin needs new doors. They cost too much.",
    "Somebody painted a wall.",
)


@pytest.fixture
def passages(memory: Memory) -> list[StoredPassage]:
    return memory.store.episodes.passages_of(memory.add(*PASSAGES))


def quoted(memory: Memory, text: str, found: StoredPassage, most: int = 8, *, with_tokens: bool = False) -> str:
    tokens = query_vectors(EMBEDDER.embed_with_tokens([text], "query")).tokens if with_tokens else None
    (runs,) = SentenceReader(memory.store).runs(text, TOKENS, tokens, [[found]])
    return " ".join(sentence.text for sentence in best_run(runs, most))


def test_without_vectors_the_words_of_the_question_tell(memory: Memory, passages: list[StoredPassage]) -> None:
    asked = "What does the zeppelin need, doors?"
    assert quoted(memory, asked, passages[2]) == "The zeppelin needs new doors."
    assert quoted(memory, asked, passages[1]) == "The zeppelin needs new doors."  # right beside what was found
    assert PASSAGES[1] + " The zeppelin needs new doors." in quoted(memory, asked, passages[2], 30)


def test_with_token_vectors_they_tell(memory: Memory, passages: list[StoredPassage]) -> None:
    memory.store.spaces.put(TOKENS)
    embed_passages(memory.store, TOKENS, passages, EMBEDDER)
    assert quoted(memory, "roof sound", passages[2], with_tokens=True) == "Its roof was sound."
    assert quoted(memory, "painted wall", passages[3], with_tokens=True) == "Somebody painted a wall."


def test_passages_of_other_episodes_are_never_quoted(memory: Memory, passages: list[StoredPassage]) -> None:
    (alone,) = memory.store.episodes.passages_of(memory.add("Nothing of this kind."))
    assert quoted(memory, "zeppelin doors", alone) == "Nothing of this kind."


def test_a_long_sentence_is_quoted_where_it_answers(memory: Memory) -> None:
    text = "other words " * 80 + "the zeppelin has doors " + "more words " * 80
    (found,) = memory.store.episodes.passages_of(memory.add(text))
    assert "the zeppelin has doors" in quoted(memory, "zeppelin doors", found, 66)


def test_a_question_for_a_reason_prefers_what_was_said(memory: Memory) -> None:
    printed, said = "The migration state column was added.", "The migration fails since the state may be null."
    (found,) = memory.store.episodes.passages_of(memory.add(f"{printed}\n{said}"))
    segments = (
        Segment("k1", "u1", SegmentKind.TOOL_RESULT, 0, printed, START),
        Segment("k2", "u2", SegmentKind.STATEMENT, 0, said, START),
    )
    part = Part(found.episode_id, "s", "a", "s1", "x", 0, "exchange", "p", "/w", "", segments, closed=True)
    parts = SimpleNamespace(parts=lambda _: [part])
    memory.store = replace(memory.store, forgetting=cast(ForgetRecords, parts))
    assert quoted(memory, "Which migration state column was added?", found, 12) == printed
    assert quoted(memory, "Why was the migration for the state column refused?", found, 12) == said


def test_the_best_run_holds_the_best_sentence_and_fits() -> None:
    given = {"a": 0.1, "b": 0.9, "c": 0.2}
    run = [Sentence(text, np.array([found, 0], dtype=np.float32)) for text, found in given.items()]
    assert [s.text for s in best_run([run], 1, len)] == ["b"]
    assert [s.text for s in best_run([run], 3, len)] == ["a", "b", "c"]
    assert [s.text for s in best_run([run], 0, len)] == ["b"]
    assert best_run([], 9) == ()
