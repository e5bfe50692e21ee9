"""What a client did to an episode of a log outlasts the log's growth, and nothing said later is lost with it."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import Episode, Where
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.sources.discovery import discover
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.steps.llm_choice import Llm
from anamnesis_pipeline.steps.pipeline import Pipeline, ingest_all
from anamnesis_pipeline.steps.posting import Poster
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.summaries import extractive
from anamnesis_pipeline.wiring import archive_lines

SESSION = "11111111-2222-4333-8444-555555555555"


def unmasked(text: str) -> tuple[str, Counter[str]]:
    return text, Counter()


class Memory:
    """A real store fed from one growing log."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.log = store, folder / "logs" / "-code-shop" / f"{SESSION}.jsonl"
        self.log.parent.mkdir(parents=True)
        archive = Archive(folder / "archive")
        self.host = LocalHost("box")
        self.root = str(folder / "logs")
        self.pipeline = Pipeline(
            store, lambda source: self.host, archive, unmasked, archive_lines(store, archive), lambda source: str,
            minilm_pieces(),
            idle_minutes=30, llm=Llm(), headline=extractive.summarize,
        )  # fmt: skip
        self.poster = Poster(store, unmasked, minilm_pieces(), None)
        self._lines = 0

    def say(self, role: str, text: str) -> None:
        self._lines += 1
        now = datetime.now(UTC).isoformat()
        content = text if role == "user" else [{"type": "text", "text": text}]
        record = {
            "type": role, "uuid": f"u{self._lines}", "sessionId": SESSION, "cwd": "/code/shop", "timestamp": now,
            "message": {"role": role, "id": f"m{self._lines}", "content": content},
        }  # fmt: skip
        with self.log.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def ingest(self) -> list[Episode]:
        ingest_all(self.pipeline, discover(self.host, [self.root]).sources)
        return self.store.episodes.page(Where(), 100).items

    def finds(self, word: str) -> set[str]:
        return {hit.episode_id for hit in self.store.text.matching([word], 10, Where())}


@pytest.fixture
def memory(store: Store, tmp_path: Path) -> Memory:
    memory = Memory(store, tmp_path)
    memory.say("user", "why is the ledger wrong")
    memory.say("assistant", "The zeppelin module rounds twice.")
    return memory


def test_what_is_said_after_an_open_part_was_deleted_is_kept_and_the_deleted_stays_away(memory: Memory) -> None:
    (episode,) = memory.ingest()
    assert memory.store.episodes.delete(episode.episode_id)
    memory.say("assistant", "The quagga module is fixed now.")
    (later,) = memory.ingest()
    assert later.episode_id != episode.episode_id
    assert memory.finds("quagga") == {later.episode_id}
    assert memory.finds("zeppelin") == set()


def test_an_edit_outlasts_the_growth_of_its_part(memory: Memory) -> None:
    (episode,) = memory.ingest()
    memory.poster.patch(
        episode.episode_id, {"summary": "Ledger: kumquat rounding", "tags": ("billing",), "project": "shop"}
    )
    memory.say("assistant", "The quagga module is fixed now.")
    for _ in range(2):
        (grown,) = memory.ingest()
        assert (grown.summary, grown.tags, grown.project) == ("Ledger: kumquat rounding", ("billing",), "shop")
        assert "quagga" in grown.raw_exchange
        for word in ("zeppelin", "quagga", "kumquat"):
            assert memory.finds(word) == {episode.episode_id}
    ordinals = [held.passage.ordinal for held in memory.store.episodes.passages_of(episode.episode_id)]
    assert ordinals == list(range(len(ordinals)))


def test_a_rewritten_text_is_not_overwritten_by_its_log(memory: Memory) -> None:
    (episode,) = memory.ingest()
    memory.poster.patch(episode.episode_id, {"raw_exchange": "only this is true"})
    memory.say("assistant", "The quagga module is fixed now.")
    (kept,) = memory.ingest()
    assert kept.raw_exchange == "only this is true"
