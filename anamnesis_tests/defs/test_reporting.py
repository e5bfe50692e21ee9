from anamnesis_pipeline.defs.reporting import counted, per_second, table, watermark
from anamnesis_pipeline.store.records.overview import SourceCounts


def test_a_text_cannot_end_its_cell_or_its_row() -> None:
    shown = str(table([{"summary": "a | b\nc", "n": 1}]).value)
    assert len(shown.splitlines()) == 3
    assert "a \\| b c" in shown


def test_counts_come_largest_first_and_nothing_is_said_to_be_nothing() -> None:
    lines = str(counted({"few": 1, "many": 9}).value).splitlines()
    assert ["many" in lines[2], "few" in lines[3]] == [True, True]
    assert table([]).value == "(nothing)"


def test_a_watermark_changes_with_the_counts_it_names_only() -> None:
    before = watermark(SourceCounts(parts=1), "parts")
    assert before == watermark(SourceCounts(parts=1, lines=7), "parts")
    assert before != watermark(SourceCounts(parts=2), "parts")


def test_a_rate_over_no_time_is_nought() -> None:
    assert (per_second(10, 0), per_second(10, 4)) == (0.0, 2.5)
