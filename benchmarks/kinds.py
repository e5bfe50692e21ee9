"""What each kind of text is worth a vector: the shared logs searched without the vectors of one kind at a time.

    python benchmarks/kinds.py [--home FOLDER]

The text of every kind stays searchable by words. Counts a question as answered if one of the first five hits shows a
passage of a message that answers (several may; one is named). `--home` keeps the indexed memory for the next run, and
may be that of silence.py. Needs ../shared/data and ../shared/bench.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from service import SHARED, need_shared
from silence import PROMPTS, indexed_home

from anamnesis_pipeline.embeddings.space_models import SpaceModels
from anamnesis_pipeline.model import EpisodeFilter, Part, ScoredPassage, SegmentKind, StoredPassage, Variant
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import Hit, SearchQuery
from anamnesis_pipeline.services.wiring import open_services
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import TokenRows, VectorIndex

KIND_OF = {
    SegmentKind.STATEMENT: "statements",
    SegmentKind.THINKING: "statements",
    SegmentKind.PROMPT: "prompts",
    SegmentKind.STEERING: "prompts",
    SegmentKind.AGENT_PROMPT: "prompts",
    SegmentKind.TOOL_INPUT: "tool inputs",
    SegmentKind.TOOL_ERROR: "errors",
    SegmentKind.TOOL_RESULT: "short outputs",
}
OTHER, BULKY = "other", "bulky outputs"
BULKY_CHARS = 2_000
"""Output of a tool that is longer than this in one part is bulky."""


class WithoutVectors:
    """An index that has lost the vectors of some passages."""

    def __init__(self, index: VectorIndex, lost: frozenset[int]) -> None:
        self._index, self._lost = index, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    def nearest(self, space: str, variant: Variant, vector: Any, k: int, where: EpisodeFilter) -> list[ScoredPassage]:
        """As the store's, from what is left."""
        found = self._index.nearest(space, variant, vector, k + len(self._lost), where)
        return [scored for scored in found if scored.passage_id not in self._lost][:k]

    def get(self, space: str, variant: Variant, passage_ids: Sequence[int]) -> Mapping[int, Any]:
        """As the store's, from what is left."""
        return self._index.get(space, variant, [key for key in passage_ids if key not in self._lost])

    def tokens(self, space: str, passage_ids: Sequence[int]) -> TokenRows:
        """As the store's, from what is left."""
        return self._index.tokens(space, [key for key in passage_ids if key not in self._lost])


def kind_of(stored: StoredPassage, part: Part | None) -> str:
    """The kind that most of a passage's text is of."""
    if part is None:
        return OTHER
    chars: Counter[str] = Counter()
    lines = [line for line in stored.passage.text.splitlines() if line.strip()]
    for segment in part.segments:
        if segment.uuid in stored.passage.message_ids:
            kind = KIND_OF.get(segment.kind, OTHER)
            bulky = segment.kind is SegmentKind.TOOL_RESULT and len(segment.text) > BULKY_CHARS
            chars[BULKY if bulky else kind] += sum(len(line) for line in lines if line in segment.text)
    return max(chars, key=lambda kind: chars[kind]) if chars else OTHER


def passages_by_kind(store: Store) -> dict[str, frozenset[int]]:
    """Kind -> ids of its passages."""
    found: dict[str, set[int]] = {}
    cursor: str | None = None
    while True:
        page = store.episodes.page(EpisodeFilter(), 200, cursor)
        parts = {part.part_id: part for part in store.forgetting.parts([e.episode_id for e in page.items])}
        for episode in page.items:
            for stored in store.episodes.passages_of(episode.episode_id):
                found.setdefault(kind_of(stored, parts.get(episode.episode_id)), set()).add(stored.passage_id)
        cursor = page.next_cursor
        if cursor is None:
            return {kind: frozenset(ids) for kind, ids in found.items()}


def questions() -> dict[str, list[tuple[str, set[str]]]]:
    """Set -> (question, ids of messages that answer it)."""
    need_shared()
    prompts = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    asked = (SHARED / "bench/claude_qa/dev.jsonl").read_text(encoding="utf-8").splitlines()
    answerable = [row for row in map(json.loads, asked) if row["gold"]]
    return {
        "prompts": [(row["prompt"], set(row["uuids"])) for row in prompts if row["related"]],
        "claude_qa": [
            (row["question"], {uuid for gold in row["gold"] for uuid in gold["evidence_uuids"]}) for row in answerable
        ],
    }


def shows(hit: Hit, answers: set[str]) -> bool:
    """Whether a hit shows a passage of a message that answers."""
    shown = [hit.passage, *([hit.second] if hit.second else [])]
    return any(answers & set(stored.passage.message_ids) for stored in shown)


def answered(engine: Engine, asked: Sequence[tuple[str, set[str]]]) -> float:
    """Share of the questions with an answer among the first five hits."""
    hits = [(engine.search(SearchQuery(text, 5, track=False)).hits, answers) for text, answers in asked]
    return sum(any(shows(hit, answers) for hit in found) for found, answers in hits) / len(asked)


def main() -> None:
    """Index, then ask with one kind less at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="folder that keeps the memory (default: thrown away)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        services = open_services(Settings(home=indexed_home(args.home or Path(temporary))))
        services.pool.load_in_background()
        while not services.pool.ready:
            time.sleep(0.2)
        report(services.store, services.pool)
        services.close()


def report(store: Store, pool: SpaceModels) -> None:
    """A line for each kind."""
    kinds, sets = passages_by_kind(store), questions()
    everything = frozenset[int]().union(*kinds.values())
    spoken = kinds["statements"] | kinds["prompts"]
    print(f"{'':44} {'passages':>9}" + "".join(f"{name:>11}" for name in sets))
    lost: dict[str, frozenset[int]] = {"none": frozenset()}
    lost |= kinds | {"all outputs": kinds[BULKY] | kinds["short outputs"]}
    lost |= {"all but what was said": everything - spoken, "everything": everything}
    for name, ids in lost.items():
        index = cast("VectorIndex", WithoutVectors(store.vectors, ids))
        engine = Engine(replace(store, vectors=index), pool.embed_query, pool.space_for)
        shares = "".join(f"{answered(engine, asked):>11.3f}" for asked in sets.values())
        print(f"without vectors of {name:25} {len(ids) / len(everything):>9.1%}{shares}", flush=True)


if __name__ == "__main__":
    main()
