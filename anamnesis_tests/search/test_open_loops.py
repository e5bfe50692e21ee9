"""What counts as still to be done, and as decided."""

import time

import pytest

from anamnesis_pipeline.search.open_loops import MOST_LINE_CHARS, decisions_in, open_loops


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
    assert max(map(len, found)) <= MOST_LINE_CHARS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It rained. We decided to keep SQLite as default.", ["We decided to keep SQLite as default."]),
        ("Decision: tokens expire after a day.", ["Decision: tokens expire after a day."]),
        ("Let's go with the queue. Then it works.", ["Let's go with the queue."]),
        ("It was agreed that Mondays are for releases!", ["It was agreed that Mondays are for releases!"]),
        ("Use x instead of y. Which decision is it?", []),
    ],
)
def test_sentences_that_say_what_was_decided_are_found(text: str, found: list[str]) -> None:
    assert decisions_in(text) == found


@pytest.mark.parametrize("hostile", ["- " * 20_000, "TODO " * 10_000, "we " * 20_000, "*" * 50_000, "next " * 10_000])
def test_text_made_to_stall_does_not(hostile: str) -> None:
    begun = time.process_time()
    open_loops(hostile + ":")
    open_loops(hostile.replace(" ", "\n"))
    decisions_in(hostile)
    assert time.process_time() - begun < 2
