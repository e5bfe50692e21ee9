"""How much is retained after a time, and what is archived: each of the bounds alone spares a memory."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.model import EpisodeHead
from anamnesis_pipeline.search.boosts import aged
from anamnesis_pipeline.search.profiles import Decay, Profile
from anamnesis_pipeline.search.retention import (
    Curve,
    half_life_of,
    is_archivable,
    retention,
    trust_of,
    value_of,
    worth_of,
)
from anamnesis_tests.support.samples import episode

NOW = datetime(2026, 11, 1, tzinfo=UTC)
OLD = replace(episode("old", kind="note", summary="Ordered pizza while it ran."), timestamp=NOW - timedelta(days=120))
HEAD = EpisodeHead("head", "direct", NOW - timedelta(days=20), "i", "p", "note", "Ordered pizza.")


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        (Curve.L2, (1.0, 0.707, 0.5, 0.25, 0.125)),
        (Curve.HUBER, (1.0, 0.707, 0.525, 0.347, 0.259)),
        (Curve.ELASTIC, (1.0, 0.720, 0.5, 0.175, 0.0875)),
    ],
)
def test_curve_falls_as_its_table_says(curve: Curve, expected: tuple[float, ...]) -> None:
    found = tuple(retention(timedelta(days=days), curve=curve) for days in (0, 15, 30, 60, 90))
    assert found == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(("trust", "half_life"), [(1.0, 30), (0.5, 15), (0.4, 30 / 2.2)])
def test_what_is_less_trusted_fades_faster(trust: float, half_life: float) -> None:
    assert half_life_of(trust) == timedelta(days=half_life)
    assert retention(timedelta(days=half_life), trust, curve=Curve.L2) == pytest.approx(0.5)


def test_tiny_half_life_keeps_nothing() -> None:
    assert retention(timedelta(days=1), 0.5, half_life=timedelta(0)) < 0.001


@given(st.floats(0, 2_000), st.floats(0, 1))
def test_huber_never_keeps_less_than_l2(days: float, trust: float) -> None:
    age = timedelta(days=days)
    assert retention(age, trust) >= retention(age, trust, curve=Curve.L2) - 1e-12


def test_retrievals_strengthen_up_to_a_bound() -> None:
    bare = retention(timedelta(days=60))
    assert retention(timedelta(days=60), accesses=3) == pytest.approx(bare + 0.05 * 1.3863, abs=1e-4)
    assert retention(timedelta(days=60), accesses=10**6) == pytest.approx(bare + 0.3)
    assert retention(timedelta(0), accesses=10) == 1.0


def test_old_note_of_no_value_is_archivable() -> None:
    assert is_archivable(OLD, NOW)


@pytest.mark.parametrize(
    "spared",
    [
        replace(OLD, timestamp=NOW - timedelta(days=90)),
        replace(OLD, tags=("pinned",)),
        replace(OLD, retrieval_count=3),
        replace(OLD, kind="decision"),
        replace(OLD, summary="The NAS must always run `restic` at 3:00."),
        replace(OLD, source="logs", session_id="s", metadata={"value": 2.0}),
    ],
)
def test_each_bound_alone_spares_a_memory(spared: object) -> None:
    assert not is_archivable(spared, NOW)  # type: ignore[arg-type]


def test_trust_follows_where_a_memory_comes_from() -> None:
    assert trust_of(replace(OLD, metadata={"trust": "curated"})) == 1.0
    assert trust_of(OLD) == 0.7
    assert trust_of(replace(OLD, source="logs", session_id="s")) == 0.6
    assert trust_of(replace(OLD, source="docs")) == 0.5
    assert trust_of(replace(OLD, kind="record")) == 0.4


def test_worth_of_a_note_is_in_its_words() -> None:
    assert worth_of("Today the wifi was slow.") == 0.0
    assert worth_of("Today `wifi` was slow.") == 0.0
    assert worth_of("The cable tester is empty.") == 0.0
    assert worth_of("Someone bet that it would be dead by Easter.") == 0.0
    assert worth_of("Kaffee im Keller alle, schon wieder.") == 0.0
    assert worth_of("Le serveur a planté pendant la finale.") == 0.0
    assert worth_of("Se cortó la luz en la oficina de Rosario.") == 0.0
    assert worth_of("The warehouse moved to Snowflake.") >= 0.3
    assert worth_of("The frontend was built by the agency Nordlicht in Porto.") >= 0.3
    assert worth_of("Invoices were imported from SAP.") >= 0.3
    assert worth_of("The weather API is OpenMeteo.") >= 0.3
    assert worth_of("Nice to know, lol: the queue is Redis.") == 0.0
    assert worth_of("Die Daten liegen im Bucket Nordwind.") >= 0.3
    assert worth_of("Use pnpm for this repository.") >= 0.3
    assert worth_of("The cable tester is empty.", tagged=True) == 0.3
    assert value_of(replace(OLD, kind="decision")) == 1.0


@pytest.mark.parametrize("decay", [Decay.L2, Decay.HUBER, Decay.ELASTIC])
def test_score_falls_with_retention_if_a_search_asks(decay: Decay) -> None:
    profile = Profile(decay=decay)
    noted = replace(HEAD, source="direct")
    said = replace(HEAD, source="logs", session_id="s")
    shown = replace(noted, retrieval_count=20)
    scores = [aged(1.0, head, profile, NOW) for head in (said, noted, shown)]
    assert 0.5 <= scores[0] < scores[1] < scores[2] < 1.0, "trust and retrievals count"
    assert aged(1.0, replace(HEAD, kind="decision"), profile, NOW) == 1.0, "what lasts does not age"
    assert aged(1.0, said, Profile(), NOW) == 1.0, "by default age changes nothing"
