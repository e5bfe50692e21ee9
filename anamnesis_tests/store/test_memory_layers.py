"""The layers of memory: when an episode moves from one to the next, and that what holds does not age."""

from datetime import UTC, datetime, timedelta

import pytest

from anamnesis_pipeline.model import EpisodeHead
from anamnesis_pipeline.search.boosts import aged
from anamnesis_pipeline.search.profiles import Decay, Profile
from anamnesis_pipeline.store.memory_layers import Layer, layer_of

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ENGRAM = Profile(decay=Decay.MULTIPLICATIVE, half_life_days=30)
TEN_YEARS = 60 * 24 * 3_650


def head(minutes: float = 60, **fields: object) -> EpisodeHead:
    values = {"source": "logs", "instance": "mac", "project": "api", "kind": "exchange", **fields}
    return EpisodeHead(episode_id="a", timestamp=NOW - timedelta(minutes=minutes), summary="", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("minutes", "retrievals", "layer"),
    [(29, 0, "working"), (30, 0, "episodic"), (31, 0, "episodic"), (29, 1, "working"), (0, 2, "episodic")],
)
def test_what_is_at_work_becomes_an_episode(minutes: int, retrievals: int, layer: str) -> None:
    assert layer_of(head(minutes, read_count=retrievals), NOW) == layer


@pytest.mark.parametrize(
    ("value", "retrievals", "layer"),
    [(0.7 * 4, 5, "semantic"), (0.69 * 4, 5, "episodic"), (0.7 * 4, 4, "episodic"), (True, 9, "episodic")],
)
def test_an_episode_that_is_worth_it_and_was_found_often_holds(value: float, retrievals: int, layer: str) -> None:
    proven = {"metadata": {"value": value}, "read_count": retrievals}
    assert layer_of(head(**proven), NOW) == layer
    assert layer_of(head(**proven, source="direct"), NOW) == "episodic"  # what a client says of itself


@pytest.mark.parametrize(
    ("fields", "layer"),
    [
        ({"kind": "code"}, "codebase"),
        ({"kind": "procedure"}, "procedural"),
        ({"kind": "record", "metadata": {"type": "procedure"}}, "procedural"),
        ({"kind": "record", "metadata": {"type": "fact"}}, "semantic"),
        ({"kind": "lesson"}, "semantic"),
        ({"metadata": {"trust": "curated"}}, "semantic"),
        ({"tags": ("pinned",)}, "semantic"),
        ({"metadata": {"value": 4.0}, "read_count": 5}, "semantic"),
    ],
)
def test_what_holds_is_as_near_after_ten_years(fields: dict[str, object], layer: str) -> None:
    old = head(TEN_YEARS, **fields)
    assert layer_of(old, NOW) == layer
    assert aged(0.8, old, ENGRAM, NOW) == 0.8


def test_what_happened_counts_less_with_age() -> None:
    assert layer_of(head(TEN_YEARS), NOW) is Layer.EPISODIC
    assert aged(0.8, head(60 * 24 * 30), ENGRAM, NOW) == pytest.approx(0.6)
