"""Text between marks."""

import time

import pytest

from anamnesis_pipeline.parsing.claude_logs.identity import as_typed
from anamnesis_pipeline.parsing.claude_logs.tagged import between, without, without_at_ends


def test_what_stands_between_two_marks_is_found_without_the_space_around_it():
    assert between("a <x> b </x> c <x>d</x>", "<x>", "</x>") == "b"
    assert between("<x></x>", "<x>", "</x>") == ""


@pytest.mark.parametrize("text", ["", "no marks", "<x> is not closed", "</x> closed before <x>"])
def test_nothing_stands_between_marks_that_are_not_both_there(text: str):
    assert between(text, "<x>", "</x>") is None
    assert without(text, "<x>", "</x>") == (text, 0)


def test_every_closed_block_is_cut_out_and_counted():
    assert without("a<x>1</x>b<x>2</x>c<x>3", "<x>", "</x>") == ("abc<x>3", 2)


@pytest.mark.parametrize(
    "hostile", ["<command-name>{}", "<command-name>a{}b", "<bash-input>{}", "<command-name>" * 9 + "{}"]
)
def test_markup_made_to_stall_takes_time_in_proportion_to_its_length(hostile: str):
    def seconds(count: int) -> float:
        text = hostile.format(" " * count)
        begun = time.process_time()
        for _ in range(20):
            as_typed(text)
        return time.process_time() - begun

    assert seconds(64_000) < 200 * (seconds(4_000) + 1e-3), "16 times the text; cubic would be 4,096 times the time"


X = "<x>1\n</x>"


@pytest.mark.parametrize(
    ("text", "left", "count"),
    [
        (f"out\n\n{X}\n", "out", 1),
        (f"{X}\n    out\n", "    out\n", 1),
        (f"\n{X}\n{X}\n\nout \n{X}\r\n\r\n<y>{X}2</y>  ", "out ", 4),
        (f"{X}\n{X}", "", 2),
        (f"a\n{X}\nb", f"a\n{X}\nb", 0),
        (f"a {X}", f"a {X}", 0),
        (f"{X} b", f"{X} b", 0),
        ("a\n<x>1", "a\n<x>1", 0),
        ("1</x>\nb", "1</x>\nb", 0),
        ("a\n<x>1</x> and 2</x>", "a\n<x>1</x> and 2</x>", 0),
        ("", "", 0),
    ],
)
def test_only_whole_blocks_at_the_ends_are_cut_off(text: str, left: str, count: int):
    assert without_at_ends(text, ("x", "y")) == (left, count)


@pytest.mark.parametrize(
    "hostile", ["<y>" + "\n<x></x>" * 9, "<x>" * 9, "\n</x>" * 9, "<x></x>\n" * 9, "<x>" + " \n" * 9]
)
def test_blocks_made_to_stall_take_time_in_proportion_to_their_length(hostile: str):
    def seconds(times: int) -> float:
        begun = time.process_time()
        without_at_ends(hostile * times, ("x", "y"))
        return time.process_time() - begun

    assert seconds(64_000) < 200 * (seconds(4_000) + 1e-3), "16 times the text; quadratic would be 256 times the time"
