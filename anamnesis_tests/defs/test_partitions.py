"""Keys of partitions, and what is reported of an asset."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.defs.partitions import contiguous_runs, embed_key, split_embed_key
from anamnesis_pipeline.defs.reporting import counted, per_second, table, watermark
from anamnesis_pipeline.store.records.overview import SourceCounts

names = st.text("abcXYZ019._-", min_size=1, max_size=20)
orders = st.lists(st.integers(0, 60).map(str), unique=True, max_size=40)


@given(orders, st.sets(st.integers(0, 60).map(str)), st.integers(1, 10))
def test_runs_hold_each_wanted_key_once_in_order_and_no_other(order: list[str], wanted: set[str], longest: int) -> None:
    runs = contiguous_runs(order, wanted, longest)
    covered = [order[order.index(first) : order.index(last) + 1] for first, last in runs]
    assert [key for run in covered for key in run] == [key for key in order if key in wanted]
    assert all(1 <= len(run) <= longest for run in covered)


@given(orders, st.sets(st.integers(0, 60).map(str)))
def test_neighbours_share_a_run(order: list[str], wanted: set[str]) -> None:
    runs = contiguous_runs(order, wanted, 100)
    for (_, last), (first, _) in pairwise(runs):
        assert order.index(first) > order.index(last) + 1


@given(names, names)
def test_key_of_two_dimensions_comes_apart_again(source: str, space: str) -> None:
    assert embed_key(source, space) == f"{source}|{space}"
    assert split_embed_key(embed_key(source, space)) == (source, space)


def test_text_cannot_end_its_cell_or_its_row() -> None:
    shown = str(table([{"summary": "a | b\nc", "n": 1}]).value)
    assert len(shown.splitlines()) == 3
    assert "a \\| b c" in shown


def test_counts_come_largest_first() -> None:
    lines = str(counted({"few": 1, "many": 9}).value).splitlines()
    assert ["many" in lines[2], "few" in lines[3]] == [True, True]
    assert table([]).value == "(nothing)"


def test_watermark_changes_with_the_counts_it_names_only() -> None:
    before = watermark(SourceCounts(parts=1), "parts")
    assert before == watermark(SourceCounts(parts=1, lines=7), "parts")
    assert before != watermark(SourceCounts(parts=2), "parts")


def test_rate_over_no_time_is_nought() -> None:
    assert (per_second(10, 0), per_second(10, 4)) == (0.0, 2.5)
