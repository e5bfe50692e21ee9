"""What is kept of a forgotten text tells its edited copies, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.pipeline.similarity import (
    DIGEST_BYTES,
    MAX_RUNS,
    is_little_else,
    kept_of,
    ranges_held,
    runs_of,
    still_holds,
)

SECRET, OTHER = b"s" * 32, b"t" * 32
PORTS = "The sidecar listens on 3010, and Dagster on 3000 of the same machine."


def kept(text: str, elsewhere: str = "") -> bytes:
    return kept_of(runs_of(text, SECRET), runs_of(elsewhere, SECRET))


def holds(text: str, forgotten: str) -> bool:
    return still_holds(runs_of(text, SECRET), kept(forgotten))


DEPLOY = "The deploy day is Tuesday now."
LINES = [" ".join(f"word{line}x{n}" for n in range(12)) for line in range(20)]
UNSPACED = "サーバーは三千十番で待ち受けていて、管理画面は同じ機械にある。"


@pytest.mark.parametrize(
    ("now", "forgotten", "told"),
    [
        (PORTS.replace("3010", "4010"), PORTS, True),
        (f"And now: {PORTS.upper()} That is all.", PORTS, True),
        ("Which port the sidecar has is said in its settings; Dagster is on the same machine.", PORTS, False),
        ("The deploy day is Tuesday now, as it was.", DEPLOY, True),
        ("The deploy day is Friday, decided by the whole team last week.", DEPLOY, False),
        ("\n".join([*LINES[:10], "new ones"]), "\n".join(LINES), True),
        ("\n".join([*LINES[:5], "new ones"]), "\n".join(LINES), False),
        (UNSPACED.replace("三", "四"), UNSPACED, True),
        ("まったく別の文章をここに書きました。", UNSPACED, False),
    ],
    ids=["a word", "capitals", "written anew", "a copy", "a correction", "half", "a quarter", "a sign", "other signs"],
)
def test_an_edited_copy_is_told_and_one_written_anew_is_not(now: str, forgotten: str, told: bool) -> None:
    assert holds(now, forgotten) is told


def test_of_a_text_only_what_was_forgotten_is_meant() -> None:
    entries = [f"Entry {n}: the {n}th gate was painted {n} times by somebody called {n * 7}." for n in range(40)]
    edited = PORTS.replace("3010", "4010")
    text = "\n".join([*entries[:20], edited, *entries[20:]])
    runs = runs_of(text, SECRET)
    assert still_holds(runs, kept(PORTS))
    assert not is_little_else(runs, kept(PORTS))
    assert is_little_else(runs_of(f"{edited} Or so.", SECRET), kept(PORTS))
    assert [text[begin:end] for begin, end in ranges_held(text, SECRET, kept(PORTS))] == [edited.rstrip(".")]


def test_of_a_long_text_all_that_is_left_is_meant() -> None:
    old = "\n".join(" ".join(f"word{line}x{n}" for n in range(12)) for line in range(200))
    new = "\n".join(" ".join(f"new{line}y{n}" for n in range(12)) for line in range(600))
    ((begin, end),) = ranges_held(f"{new}\n{old}\n{new}", SECRET, kept(old))
    assert begin <= len(new) + 1
    assert end >= len(new) + 1 + len(old)
    assert end - begin < 2 * len(old)
    assert not is_little_else(runs_of(f"{new}\n{old}", SECRET), kept(old))


def test_what_stands_around_it_as_well_tells_nothing() -> None:
    form = "weather of the day was fine and the mood of all was good"
    assert kept(f"Monday {form}", f"Tuesday {form}") == b""


@given(st.text(max_size=3_000))
def test_what_is_kept_says_nothing_without_the_secret(text: str) -> None:
    runs = runs_of(text, SECRET)
    assert len(kept_of(runs, set())) <= MAX_RUNS * DIGEST_BYTES
    assert still_holds(runs, kept_of(runs, set())) or len(runs) < 3
    assert len(runs & runs_of(text, OTHER)) <= 1 + len(runs) // 100
