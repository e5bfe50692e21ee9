"""How counts and names read."""

from zoneinfo import ZoneInfo

from anamnesis_pipeline.cli.ingest import embedding_text
from anamnesis_pipeline.cli.projects import render
from anamnesis_pipeline.parsing.text.wording import counted, local_time
from anamnesis_pipeline.pipeline.embed import EmbedReport
from anamnesis_pipeline.pipeline.projects import ProjectRow


def test_one_is_no_plural() -> None:
    assert [counted(n, "part") for n in (0, 1, 1_200)] == ["0 parts", "1 part", "1,200 parts"]
    assert [counted(n, "part is", "parts are") for n in (1, 2)] == ["1 part is", "2 parts are"]


def test_times_are_shown_to_the_minute_in_the_zone_of_the_reader() -> None:
    assert local_time("2026-11-22T16:52:17.143673Z", ZoneInfo("Europe/Berlin")) == "2026-11-22 17:52"
    assert local_time(None) == "never"


def test_a_blank_project_has_a_name_in_lists() -> None:
    assert render([ProjectRow("", 1, ()), ProjectRow("acme/api", 2, ())]).splitlines() == [
        "(no project)  1 episode",
        "acme/api      2 episodes",
    ]


def test_no_more_is_embedded_than_there_is() -> None:
    assert embedding_text(EmbedReport(passages=8, passages_per_s=4.0), 6) == "  8 of 8 passages, 4/s"
    assert embedding_text(EmbedReport(passages=3, passages_per_s=4.0), 6) == "  3 of 6 passages, 4/s"
