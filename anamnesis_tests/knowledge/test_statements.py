"""Two sentences on one subject: whether both can hold."""

import pytest

from anamnesis_pipeline.knowledge.statements import Weights, claim_of, conflicts


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("We deploy on Fridays.", "Deploys are on Mondays now, no longer on Fridays."),
        ("We deploy on Friday.", "We deploy on Monday."),
        ("The API listens on port 8080.", "The API listens on port 9090."),
        ("Use npm for the frontend.", "Use pnpm instead of npm for the frontend."),
        ("Never mock the database in tests.", "Mock the database in tests."),
        ("Indent Python with tabs.", "Indent Python with spaces."),
    ],
)
def test_opposite_statements_conflict(older: str, newer: str) -> None:
    assert conflicts(claim_of(older), claim_of(newer))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("We deploy on Fridays.", "Deploys happen every Friday."),
        ("The API listens on port 8080.", "Port 8080 is the one of the API."),
        ("Never mock the database in tests.", "The database is never mocked in tests."),
    ],
)
def test_paraphrases_do_not_conflict(older: str, newer: str) -> None:
    assert conflicts(claim_of(older), claim_of(newer)) == ""


def test_rare_words_weigh_more_than_common_ones() -> None:
    claims = [claim_of(f"the service {name} logs errors") for name in ("billing", "search", "mail", "login")]
    weights = Weights(claims)
    rare, common = claim_of("billing"), claim_of("errors logs")
    assert weights.shared(rare, claims[0]) == weights.shared(common, claims[1]) == 1
    assert weights.alike(rare, claims[0]) > weights.alike(claim_of("logs"), claims[0])
