import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.llm.extractive import (
    MAX_CHARS,
    MAX_SENTENCES,
    MODEL,
    PROMPT_CHARS,
    is_extractive,
    summarize,
    telling_sentences,
)
from anamnesis_pipeline.model import Part, Segment, SegmentKind
from anamnesis_pipeline.parsing.text.sentences import sentences

NOW = datetime(2026, 3, 14, tzinfo=UTC)


def part(*said: tuple[SegmentKind, str], prompt: str = "", kind: str = "exchange") -> Part:
    segments = tuple(Segment(f"k{n}", f"u{n}", what, 0, text, NOW) for n, (what, text) in enumerate(said))
    return Part("p", "s", "a.jsonl", "s1", "x", 0, kind, "acme/api", "/w", prompt, segments, closed=True)


def test_a_summary_is_what_was_asked_and_said_about_it_most() -> None:
    said = "A webhook charged twice. Somebody painted another wall green yesterday. The webhook charged nobody else."
    summary = summarize(part((SegmentKind.PROMPT, "Why did it charge twice?"), (SegmentKind.STATEMENT, said)))
    assert summary == f"Why did it charge twice? {said}"
    assert telling_sentences(sentences(said), 1) == ["A webhook charged twice."]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([(SegmentKind.PROMPT, "fix  it\nplease")], "fix it please"),
        ([(SegmentKind.AGENT_PROMPT, "look for it"), (SegmentKind.TOOL_INPUT, "Bash: make")], "look for it Bash: make"),
        ([(SegmentKind.TOOL_INPUT, "Bash: make"), (SegmentKind.TOOL_RESULT, "ok")], "Bash: make"),
        ([(SegmentKind.TOOL_INPUT, "Edit\nfile_path: /w/src/retry.py\nold_string: a")], "Edit retry.py"),
        ([(SegmentKind.TOOL_RESULT, "     1→def charge(key):\n     2→    return 1")], "Code of charge"),
        ([(SegmentKind.TOOL_RESULT, "only output")], "Output of tools"),
        ([(SegmentKind.THINKING, "The cause must be the missing key.")], "The cause must be the missing key."),
        ([(SegmentKind.TOOL_RESULT, " \n")], "exchange"),
    ],
)
def test_what_was_done_is_told_where_nothing_was_said(said: list[tuple[SegmentKind, str]], expected: str) -> None:
    assert summarize(part(*said)) == expected
    assert expected != "exchange" or summarize(part(*said, prompt="why?")) == "why?"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(SegmentKind), st.text(max_size=600)), max_size=6), st.text(max_size=300))
def test_a_summary_is_one_line_within_its_bound(said: list[tuple[SegmentKind, str]], prompt: str) -> None:
    summary = summarize(part(*said, prompt=prompt))
    assert summary.strip()
    assert len(summary) <= MAX_CHARS
    assert summary == " ".join(summary.split())
    assert summary == summarize(part(*said, prompt=prompt))


def test_a_long_prompt_leaves_room_for_the_answer() -> None:
    answer = "The cause is a missing idempotency key."
    summary = summarize(part((SegmentKind.PROMPT, "please " * 200), (SegmentKind.STATEMENT, answer)))
    assert summary.endswith(answer)
    assert len(summary) <= PROMPT_CHARS + 1 + len(answer)
    assert len(summarize(part((SegmentKind.PROMPT, "x" * 5_000)))) <= PROMPT_CHARS, "an unbroken word is cut"


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=800), st.integers(0, 5))
def test_telling_sentences_are_some_of_the_text_in_its_order(text: str, most: int) -> None:
    found = telling_sentences(sentences(text), most)
    assert len(found) <= most
    flat = " ".join(text.split())
    at = [flat.find(sentence.rstrip("…")) for sentence in found]
    assert at == sorted(at)
    assert -1 not in at


def test_a_repeated_word_counts_less_the_second_time() -> None:
    queue = "The queue lost jobs again today."
    text = f"{queue} {queue[:-1]} too. Payments were charged twice by retries."
    assert "Payments were charged twice by retries." in telling_sentences(sentences(text), 2)
    assert len(telling_sentences(sentences(text), MAX_SENTENCES)) == 3


CHOOSE = """
import random
from anamnesis_pipeline.parsing.text.sentences import sentences
from anamnesis_pipeline.llm.extractive import telling_sentences

chance = random.Random(1)
words = [f"word{n}" for n in range(40)]
for _ in range(40):
    bags = [chance.sample(words, chance.randint(8, 20)) for _ in range(10)]
    text = "\\n".join(" ".join(chance.sample(bag, len(bag))) for _ in range(2) for bag in bags)
    print(telling_sentences(sentences(text), 3))
"""


def test_the_same_sentences_are_chosen_in_every_process() -> None:
    def chosen(hash_seed: int) -> bytes:
        environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
        root = Path(__file__).parents[3]
        return subprocess.check_output([sys.executable, "-c", CHOOSE], env=environment, cwd=root)

    assert len({chosen(seed) for seed in range(1, 4)}) == 1


def test_summaries_hold_no_markdown_code_or_tool_lines() -> None:
    said = (
        "## Findings\n\nThe **retry** of `charge()` in [billing](src/billing.py) has no key, e.g. in v1.2.3.\n\n"
        "```python\ncharge(key=None)\n```\n| a | b |\n|---|---|\nLet me fix the missing key now."
    )
    summary = summarize(part((SegmentKind.PROMPT, "Why twice?"), (SegmentKind.STATEMENT, said)))
    assert summary == (
        "Why twice? The retry of charge() in billing has no key, e.g. in v1.2.3. Let me fix the missing key now."
    )


def test_summaries_of_an_earlier_method_are_extractive_too() -> None:
    assert is_extractive("extractive-sumbasic-1")
    assert is_extractive(MODEL)
    assert not is_extractive("claude-haiku-5-5")
