import pytest

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.mcp_server.times import since_of, until_of


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2026", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("2024-02-29", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"),
        ("2026-03-14T09:26", "2026-03-14T09:26:00Z", "2026-03-14T09:26:00Z"),
        ("2026-03-14T09:26:53+02:00", "2026-03-14T07:26:53Z", "2026-03-14T07:26:53Z"),
    ],
)
def test_a_day_month_or_year_lasts_to_its_end(text: str, since: str, until: str) -> None:
    assert (since_of(text), until_of(text)) == (since, until)


@pytest.mark.parametrize("text", ["yesterday", "2026-13", "2026-02-30", "1066", "9999-12-31", "x" * 40, "2026-3"])
def test_what_is_no_date_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(GiveUp):
        since_of(text)
    with pytest.raises(GiveUp, match=r"2026|1970"):
        until_of(text)


def test_no_time_is_no_bound() -> None:
    assert since_of(None) is None
    assert until_of("") is None
