"""What a client did to an episode of a log outlasts the log's growth, and nothing said later is lost with it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from anamnesis_pipeline import wiring
from anamnesis_pipeline.steps.posting import Poster
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.steps.archived_logs import Home, record, unmasked

NOW = datetime.now(UTC).isoformat()


@pytest.fixture
def memory(store: Store, tmp_path: Path) -> Home:
    """A store fed from one log that still grows."""
    home = Home(tmp_path, store)
    home.say("why is the ledger wrong", "The zeppelin module rounds twice.", timestamp=NOW)
    return home


def go_on(memory: Home) -> None:
    memory.write([record("assistant", "The quagga module is fixed now.", 3, timestamp=NOW)])


def patch(memory: Home, episode_id: str, **changes: object) -> None:
    Poster(memory.store, unmasked, wiring.open_pieces(), None).patch(episode_id, changes)


def test_what_is_said_after_a_delete_is_kept(memory: Home) -> None:
    (episode,) = memory.ingest(unmasked)
    assert memory.store.episodes.delete(episode.episode_id)
    go_on(memory)
    (later,) = memory.ingest(unmasked)
    assert later.episode_id != episode.episode_id
    assert memory.finds("quagga") == {later.episode_id}
    assert memory.finds("zeppelin") == set()


def test_an_edit_outlasts_the_growth_of_its_part(memory: Home) -> None:
    (episode,) = memory.ingest(unmasked)
    patch(memory, episode.episode_id, summary="Ledger: kumquat rounding", tags=("billing",), project="shop")
    go_on(memory)
    for _ in range(2):
        (grown,) = memory.ingest(unmasked)
        assert (grown.summary, grown.tags, grown.project) == ("Ledger: kumquat rounding", ("billing",), "shop")
        assert "quagga" in grown.raw_exchange
        for word in ("zeppelin", "quagga", "kumquat"):
            assert memory.finds(word) == {episode.episode_id}
    ordinals = [held.passage.ordinal for held in memory.store.episodes.passages_of(episode.episode_id)]
    assert ordinals == list(range(len(ordinals)))


def test_a_rewritten_text_is_not_overwritten_by_its_log(memory: Home) -> None:
    (episode,) = memory.ingest(unmasked)
    patch(memory, episode.episode_id, raw_exchange="only this is true")
    go_on(memory)
    (kept,) = memory.ingest(unmasked)
    assert kept.raw_exchange == "only this is true"
