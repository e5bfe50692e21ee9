"""Choose the sentences of a hit that answer the question: the consecutive sentences to quote.

The token vectors of passages decide: the run that fits the budget and best matches the words of the question. Without
token vectors, the words themselves are matched.
"""

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Part, SegmentKind, Space, StoredPassage
from anamnesis_pipeline.parsing.text.sentences import Span, sentence_spans
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS
from anamnesis_pipeline.parsing.text.unspaced_scripts import words_in
from anamnesis_pipeline.search.reranking import similarities
from anamnesis_pipeline.search.token_estimate import cost
from anamnesis_pipeline.search.words import content_words, literal_tokens
from anamnesis_pipeline.store.base import Store

AROUND = 2
"""Passages before and after a hit whose sentences may be quoted, too: the answer is often beside the hit. With 0 the
answer is quoted to 12 of 22 development questions, with 1 or 2 to 16."""
LONGEST = 60
"""Tokens of a sentence; a longer one is split into several."""
SHARPNESS = 2.0
"""Power of a cosine: one exact word says more than several similar ones."""
LITERALS = 0.5
"""Weight of all literal tokens of a question together; that of its words is 1."""
UNSAID = 0.5
"""Factor for tool input and output where a reason is asked for."""

_REASON = re.compile(r"\b(?:why|reasons?|how come|what for|decid\w+|warum|wieso|weshalb|pourquoi)\b", re.IGNORECASE)
_UNSAID = frozenset(
    {SegmentKind.TOOL_INPUT, SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR, SegmentKind.COMMAND, SegmentKind.SKILL}
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a passage, verbatim. `found`: match of each word of the question in it; comparable within one
    question.
    """

    text: str
    found: NDArray[np.float32]


Run = Sequence[Sentence]
"""Consecutive sentences."""


def best_run(runs: Sequence[Run], most: int, count: Callable[[str], int] = cost) -> Run:
    """Return the consecutive sentences with the best answer that cost at most `most` together: those that include the
    best sentence and match most words of the question. A single sentence may cost more.
    """
    chosen: Run = ()
    best = (-np.inf, 0)
    for run in runs:
        costs = [count(sentence.text) for sentence in run]
        alone = [float(sentence.found.sum()) for sentence in run]
        for first in range(len(run)):
            total, found = 0, run[first].found
            for last in range(first, len(run)):
                total += costs[last]
                if total > most and last > first:
                    break
                found = np.maximum(found, run[last].found)
                score = max(alone[first : last + 1]) + float(found.sum())
                if (score, total) > best:
                    best, chosen = (score, total), run[first : last + 1]
    return chosen


class SentenceReader:
    """Reads the sentences of hits and scores their answers. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def runs(
        self,
        text: str,
        space: Space | None,
        tokens: NDArray[np.float32] | None,
        found: Sequence[Sequence[StoredPassage]],
    ) -> list[list[list[Sentence]]]:
        """Return the runs of sentences in and around each hit, given by its passages.

        :param text: the question.
        :param tokens: its token vectors in `space`; None: match its words.
        """
        around = self._around(found)
        keys = [stored.passage_id for runs in around for run in runs for stored in run]
        vectors = self._vectors(space, keys) if tokens is not None else {}
        parts: dict[str, Part] = {}
        if _REASON.search(text):
            chunks = self._store.forgetting.parts([passages[0].episode_id for passages in found])
            parts = {part.part_id: part for part in chunks}
        words = content_words(text)
        literals = [token.casefold() for token in literal_tokens(text) if token.lower() not in STOP_WORDS]

        def sentences(stored: StoredPassage, *, by_vectors: bool) -> Iterator[Sentence]:
            said = stored.passage.text
            spans, part = list(_pieces(said)), parts.get(stored.episode_id)
            if by_vectors and tokens is not None:
                rows = _by_vectors(said, spans, tokens, vectors[stored.passage_id])
            else:
                rows = _by_words(said, spans, words)
            for (start, end), row in zip(spans, rows, strict=True):
                held = [LITERALS / len(literals) * (literal in said[start:end].casefold()) for literal in literals]
                is_unsaid = part is not None and not any(held) and _is_unsaid(said[start:end], part)
                found = np.append(row, np.array(held, dtype=np.float32))
                yield Sentence(said[start:end], found * np.float32(UNSAID if is_unsaid else 1))

        read = []
        for passages, runs in zip(found, around, strict=True):
            by_vectors = all(stored.passage_id in vectors for stored in passages)
            read.append(
                [
                    [
                        sentence
                        for stored in run
                        if not by_vectors or stored.passage_id in vectors
                        for sentence in sentences(stored, by_vectors=by_vectors)
                    ]
                    for run in runs
                ]
            )
        return read

    def _around(self, found: Sequence[Sequence[StoredPassage]]) -> list[list[list[StoredPassage]]]:
        """Return the passages around each hit, consecutive ones together. An episode's passages have consecutive keys,
        unless it was edited.
        """
        own = {stored.passage_id: stored for passages in found for stored in passages}
        steps = range(-AROUND, AROUND + 1)
        near = self._store.episodes.passages([key + step for key in own for step in steps if key + step not in own])
        near.update(own)
        runs = []
        for passages in found:
            keys = sorted({stored.passage_id + step for stored in passages for step in steps} & near.keys())
            mine = [near[key] for key in keys if near[key].episode_id == passages[0].episode_id]
            consecutive: list[list[StoredPassage]] = []
            for stored in sorted(mine, key=lambda stored: stored.passage.ordinal):
                if not consecutive or stored.passage.ordinal != consecutive[-1][-1].passage.ordinal + 1:
                    consecutive.append([])
                consecutive[-1].append(stored)
            runs.append(consecutive)
        return runs

    def _vectors(self, space: Space | None, keys: Sequence[int]) -> Mapping[int, NDArray[np.int8]]:
        if space is None:
            return {}
        try:
            rows = self._store.vectors.tokens(space.key, keys)
        except AnamnesisError:  # the lists have reported it already
            return {}
        ends = [*rows.starts[1:].tolist(), len(rows.bits)]
        spans = zip(rows.passage_ids, rows.starts.tolist(), ends[: len(rows.passage_ids)], strict=True)
        return {key: rows.numbers(start, end) for key, start, end in spans}


def _pieces(text: str) -> Iterator[Span]:
    """Return the sentences of a text; long ones are split, at spaces where possible."""
    for start, end in sentence_spans(text):
        at = start
        while (tokens := cost(text[at:end])) > LONGEST:
            most = max(1, (end - at) * LONGEST // tokens)
            space = text.rfind(" ", at + most // 2, at + most)
            cut = space + 1 if space >= 0 else at + most
            yield at, cut
            at = cut
        yield at, end


def _by_vectors(
    text: str, spans: Sequence[Span], tokens: NDArray[np.float32], rows: NDArray[np.int8]
) -> list[NDArray[np.float32]]:
    """Return the match of a question's words in each sentence, by the passage's token vectors. If the vectors do not
    match these pieces, e.g. with another tokenizer, they are assumed to be spread evenly over the passage.
    """
    starts = [start for start, _ in minilm_pieces().kept([text])[0]]
    if len(starts) != len(rows):
        starts = [starts[number * len(starts) // len(rows)] for number in range(len(rows))]
    lengths = np.maximum(np.linalg.norm(tokens, axis=1), 1e-9).astype(np.float32)
    cosines = similarities(tokens, rows) / lengths
    found = []
    for start, end in spans:
        first, last = bisect_left(starts, start), bisect_left(starts, end)
        best = cosines[first:last].max(axis=0) if last > first else np.zeros(len(tokens), dtype=np.float32)
        found.append(lengths * np.maximum(best, 0) ** np.float32(SHARPNESS))
    return found


def _by_words(text: str, spans: Sequence[Span], words: Sequence[str]) -> list[NDArray[np.float32]]:
    """Return the same by the words themselves."""
    share = 1 / max(len(words), 1)
    found = []
    for start, end in spans:
        held: Set[str] = {word.lower() for word, _, _ in words_in(text[start:end])}
        found.append(np.array([share * (word in held) for word in words], dtype=np.float32))
    return found


def _is_unsaid(sentence: str, part: Part) -> bool:
    """Return whether a sentence is only tool input or output."""
    kinds = {segment.kind for segment in part.segments if sentence in segment.text}
    return bool(kinds) and kinds <= _UNSAID


# --- excerpts --------------------------------------------------------------------------------------------

# The excerpt of a hit: the passages of the episode that answer. Pure.

SECOND_WITHIN = 12
"""The second best passage of an episode is shown, too, if its rank among all passages is at most this: it is needed for
3% of the questions, and lengthens an answer by a quarter. With 10 a development question is lost."""
CUT = "[…]"
"""Marks omitted text between two passages."""


def excerpt_of(passages: Sequence[StoredPassage]) -> tuple[str, tuple[str, ...]]:
    """Return the text of one or two passages of an episode in its order, and the IDs of their messages."""
    ordered = sorted(passages, key=lambda stored: stored.passage.ordinal)
    text = ordered[0].passage.text
    for before, after in itertools.pairwise(ordered):
        apart = after.passage.ordinal - before.passage.ordinal > 1
        text += f"\n{CUT}\n" if apart else "\n"
        text += after.passage.text
    ids = dict.fromkeys(id_ for stored in passages for id_ in stored.passage.message_ids)
    return text, tuple(ids)


def second_passages(scores: Mapping[int, float], episode_of: Mapping[int, str]) -> dict[str, int]:
    """Return episode ID -> its second best passage, if that is among the first of all."""
    seen: set[str] = set()
    seconds: dict[str, int] = {}
    for key in sorted(scores, key=lambda key: (-scores[key], -key))[:SECOND_WITHIN]:
        if episode_of[key] in seen:
            seconds.setdefault(episode_of[key], key)
        seen.add(episode_of[key])
    return seconds
