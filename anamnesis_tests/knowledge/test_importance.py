"""Importance is a sum that can be read, and a confirmation is one of somebody else."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.knowledge.importance import confirming, importance_of
from anamnesis_pipeline.model import EpisodeHead
from anamnesis_tests.support.samples import episode

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SAID = replace(episode("e"), source="logs", session_id="s1", timestamp=NOW - timedelta(days=30), kind="exchange")


def head(name: str, session: str = "", instance: str = "mac", **metadata: object) -> EpisodeHead:
    return EpisodeHead(name, "x", NOW, instance, "p", "note", name, session_id=session, metadata=metadata)


def value_of(name: str, **given: object) -> float:
    asked = {"confirmations": 0, "changes": 0} | given
    found = importance_of(asked.pop("said", SAID), NOW, **asked)  # type: ignore[arg-type]
    return next(each.value for each in found.factors if each.name == name)


def test_score_is_the_sum_of_nine_factors() -> None:
    found = importance_of(replace(SAID, metadata={"value": 3.0}, read_count=4), NOW, 2, 1)
    assert len(found.factors) == 9
    assert math.isclose(sum(each.weight for each in found.factors), 1)
    assert found.score == round(sum(each.contribution for each in found.factors), 4)
    assert all(0 <= each.value <= 1 for each in found.factors)


def test_recency_falls_with_the_half_life_of_its_trust() -> None:
    assert value_of("recency") == 0.2872, "30 days at the trust of a session"
    curated = replace(SAID, metadata={"trust": "curated"})
    assert value_of("recency", said=curated) == 0.5


def test_confirmation_raises_importance_on_a_log_scale() -> None:
    assert value_of("confirmations") == 0
    assert value_of("confirmations", confirmations=1) == 0.1733
    assert value_of("confirmations", confirmations=1_000) == 1


def test_same_session_twice_is_no_confirmation() -> None:
    others = [head("a", "s1"), head("b", "s2"), head("c", "s2"), head("d", instance="desk"), head("e", "s3")]
    assert sorted(each.episode_id for each in confirming(SAID, others).values()) == ["b", "d"]
    copies = [head("f", lines=[1, 2]), head("g", instance="desk", lines=[1, 2])]
    assert len(confirming(SAID, copies)) == 1, "copies of a file are no independent sources"


def test_correction_is_valence_and_doubt_is_no_stability() -> None:
    assert value_of("emotional_valence") == 0
    corrected = replace(SAID, metadata={"value_signals": {"correction": 3.0}})
    assert value_of("emotional_valence", said=corrected) == 1
    assert value_of("stability", changes=1) == 0.5
    assert value_of("stability", said=replace(SAID, status="invalidated")) == 0
