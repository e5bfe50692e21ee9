"""What counts as still to be done, and as decided."""

import json
import time

import pytest

from anamnesis_pipeline.search.open_loops import (
    MAX_LINE_CHARS,
    decisions_in,
    open_loops,
    question_at_the_end,
    questions_in,
    todos_left,
)
from anamnesis_pipeline.search.reports import units_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("All green.\n\n## Next steps\n- Rotate the key\n1. Ship it\n\nBye.\n- not one", ["Rotate the key", "Ship it"]),
        ("**Remaining work:**\n* fix the flaky test", ["fix the flaky test"]),
        ("- [ ] write docs\n- [x] write code", ["write docs"]),
        ("TODO: rename the table", ["TODO: rename the table"]),
        ("Blocked on the vendor's reply.", ["Blocked on the vendor's reply."]),
        ("The migration is still failing on Postgres 12.", ["The migration is still failing on Postgres 12."]),
        ("A follow-up is needed for the cache.", ["A follow-up is needed for the cache."]),
        ("The parser still needs a fuzz test.", ["The parser still needs a fuzz test."]),
        ("Unresolved: who owns the bucket?", ["Unresolved: who owns the bucket?"]),
        ("Nothing remaining.\nBlocked: none\nNo open questions.", []),
        ("Next.js renders the page. The next line is empty. All tests pass.", []),
        ("I opened the file and the remaining tests pass.", []),
        ("", []),
    ],
)
def test_lines_that_name_what_is_open_are_found(text: str, found: list[str]) -> None:
    assert open_loops(text) == found


def test_lines_are_few_short_and_each_once() -> None:
    text = "\n".join(["TODO: the same"] * 3 + [f"TODO: number {n} " + "word " * 100 for n in range(9)])
    found = open_loops(text)
    assert len(found) == 4
    assert found[0] == "TODO: the same"
    assert max(map(len, found)) <= MAX_LINE_CHARS


CHOSEN = "We chose SQLite. Because nothing has to be installed then."
UNSUPPORTED = "The `ALTER` is not supported by SQLite. I need to rewrite it as a copy of the table."
KEPT = "We kept the old format instead of a new one."
FITS = "Kafka seems like the best fit"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It rained. We decided to keep SQLite as default.", ["We decided to keep SQLite as default."]),
        ("Decision: tokens expire after a day.", ["Decision: tokens expire after a day."]),
        ("Let's go with the queue. Then it works.", ["Let's go with the queue."]),
        ("It was agreed that Mondays are for releases!", ["It was agreed that Mondays are for releases!"]),
        ("Use x instead of y. Which decision is it?", []),
        (CHOSEN, [CHOSEN]),
        (UNSUPPORTED, [UNSUPPORTED]),
        (f"It works. {KEPT} Bye.", [KEPT]),
        (f"{FITS}:\n- it is fast\n- it is here\n\nBye.", [f"{FITS}: it is fast; it is here"]),
        ("## Decisions\n- Amounts are in cents\n\nAll is well.", ["Amounts are in cents"]),
    ],
)
def test_decisions_are_found_with_the_reason_beside_them(text: str, found: list[str]) -> None:
    assert decisions_in(text) == found


def test_wishes_are_told_apart_without_capitals() -> None:
    text = "those look ancient? the loop is not easy to test. we do container-first. use e.g. podman"
    assert decisions_in(text, by_person=True) == ["the loop is not easy to test. we do container-first."]


@pytest.mark.parametrize(
    "text",
    [
        "let's use apple container instead of docker proper.",
        "i'd rather have clicks than selectors",
        "we explicitly don't want hardcoded visual tests",
        "i think the agent and the oracle need to be the same",
        "Don't commit generated files.",
    ],
)
def test_wish_of_a_person_is_a_decision_and_of_claude_none(text: str) -> None:
    assert decisions_in(text, by_person=True) == [text]
    assert decisions_in(text.replace("instead of", "not")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is done. Shall I push?", ["Shall I push?"]),
        (
            "Two ways:\n- a fast one\n- a slow one\n\nWhich one?",
            ["Two ways:", "a fast one", "a slow one", "Which one?"],
        ),
        (
            "**What do you want?**\n\nA) Speed\n\nB) Care\n\nI lean to B.",
            ["What do you want?", "A) Speed", "B) Care", "I lean to B."],
        ),
        ("Why did it fail? The key was missing. It is there now. All is well.", []),
        ("Done.", []),
    ],
)
def test_question_at_the_end_comes_with_its_options(text: str, found: list[str]) -> None:
    assert [unit.text for unit in question_at_the_end(units_of(text))] == found


def test_todos_left_are_those_of_the_last_list() -> None:
    def todo(text: str, status: str) -> dict[str, str]:
        return {"content": text, "status": status}

    first = f"TodoWrite\ntodos: {json.dumps([todo('one', 'in_progress'), todo('two', 'pending')])}"
    last = f"TodoWrite\ntodos: {json.dumps([todo('one', 'completed'), todo('two', 'in_progress')])}"
    assert todos_left([first]) == ["one", "two"]
    assert todos_left([first, last]) == ["two"]
    assert todos_left([first, "TodoWrite\ntodos: [broken", "TodoWrite\ntodos: [1, {}]"]) == []
    values = ("[0].content: Match a\\d", "[0].status: pending", "[1].content: x", "[1].status: completed")
    lines = "\n".join(("TodoWrite", *(f"todos{value}" for value in values)))
    assert todos_left([first, lines]) == ["Match a\\d"]
    tasks = ["Task #1 created successfully: Parse", "Task #2 created successfully: Ship"]
    assert todos_left([*tasks, "TaskUpdate\ntaskId: 1\nstatus: completed"]) == ["Ship"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('AskUserQuestion\nquestions: [{"question":"Which one?"},{"question":"When?"}]', ["Which one?", "When?"]),
        ("AskUserQuestion\nquestions[0].question: Which \\d?\nquestions[0].header: x", ["Which \\d?"]),
        ('Bash\ncommand: echo "question":"no"', []),
    ],
)
def test_questions_are_read_in_both_forms_of_an_input(text: str, found: list[str]) -> None:
    assert questions_in(text) == found


@pytest.mark.parametrize("hostile", ["- " * 20_000, "TODO " * 10_000, "we " * 20_000, "*" * 50_000, "next " * 10_000])
def test_text_made_to_stall_does_not(hostile: str) -> None:
    begun = time.process_time()
    open_loops(hostile + ":")
    open_loops(hostile.replace(" ", "\n"))
    decisions_in(hostile)
    assert time.process_time() - begun < 2
