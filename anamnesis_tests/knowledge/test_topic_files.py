"""The text of topic files: entries are added once, and what a person wrote around them stays to the byte."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anamnesis_pipeline.errors import TopicRefused
from anamnesis_pipeline.knowledge.topic_files import (
    Lesson,
    Ref,
    diff_of,
    lesson_entry,
    lessons_of,
    read_topic,
    ref,
    with_entry,
)

DEPLOYS = """# Deploys

How and when the shop goes live.

## Day

- On Thursdays, since support is complete then. <!-- sources: ep1 2026-03-04; ep%202 -->
* with another mark

## Rollback

1. `make back`
"""
WORDS = st.text(st.sampled_from("ab #-*`>\n\r<!=1.~_&;\\\ufeff\u2028é"), max_size=60)


def test_topic_is_read_with_purpose_entries_and_sources() -> None:
    topic = read_topic(DEPLOYS)
    assert (topic.title, topic.purpose, topic.headings) == (
        "Deploys",
        "How and when the shop goes live.",
        ("Day", "Rollback"),
    )
    assert [(each.heading, each.text) for each in topic.entries] == [
        ("Day", "On Thursdays, since support is complete then."),
        ("Day", "with another mark"),
        ("Rollback", "`make back`"),
    ]
    assert topic.entries[0].sources == (Ref("ep1", "2026-03-04"), Ref("ep 2"))


@pytest.mark.parametrize(
    ("text", "purpose"),
    [
        ("# T\n\n## A\n\nnot it\n", ""),
        ("what it is for\n\n# T\n", ""),
        ("# T\n\n- first item\n", ""),
        ("# T\n\n- first item\n\nof all\n", "of all"),
        ("---\nname: x\ndescription: What the front matter says\n---\n\n# T\n\nother\n", "What the front matter says"),
    ],
)
def test_purpose_is_the_first_line_below_the_title(text: str, purpose: str) -> None:
    assert read_topic(text).purpose == purpose


def test_entry_goes_to_the_end_of_its_section() -> None:
    new = with_entry(DEPLOYS, "deploys", "day", "Not in December.", [ref("ep3", datetime(2026, 5, 1, tzinfo=UTC))])
    assert new == DEPLOYS.replace(
        "* with another mark\n", "* with another mark\n* Not in December. <!-- sources: ep3 2026-05-01 -->\n"
    )


def test_list_is_added_item_by_item() -> None:
    new = with_entry(DEPLOYS, "deploys", "Rollback", "- With blue.\n- `make back`\n  and wait\n- with another mark")
    assert new == DEPLOYS + "\n- With blue.\n- `make back`\n  and wait\n"


def test_missing_section_is_added_at_the_end() -> None:
    assert with_entry(DEPLOYS, "deploys", "Who", "Ann.") == DEPLOYS + "\n## Who\n\n- Ann.\n"


def test_new_file_begins_with_the_title_of_its_name() -> None:
    assert with_entry("", "deploy-day", "When", "Thursday.") == "# Deploy day\n\n## When\n\n- Thursday.\n"


@pytest.mark.parametrize("again", ["On  thursdays,\nsince support is complete then.", "- with another mark"])
def test_entry_that_is_there_is_not_added_again(again: str) -> None:
    assert with_entry(DEPLOYS, "deploys", "Elsewhere", again, [Ref("ep9")]) == DEPLOYS


def test_line_ends_and_byte_order_mark_are_kept() -> None:
    text = "\ufeff# T\r\nabout\r\n## A\r\nwords\r\n## B\r\n- one"
    new = with_entry(text, "t", "A", "more")
    assert new == "\ufeff# T\r\nabout\r\n## A\r\nwords\r\n\r\n- more\r\n\r\n## B\r\n- one"
    assert with_entry(new, "t", "B", "two") == new + "\r\n- two\r\n"


@given(WORDS, st.sampled_from(["", "A", "a b"]), WORDS)
def test_adding_only_inserts_and_only_once(text: str, heading: str, entry: str) -> None:
    try:
        new = with_entry(text, "t", heading, entry, [Ref("e-->1", "2026-01-01")])
    except TopicRefused:
        assume(False)
    assert with_entry(new, "t", heading, entry) == new
    start = next((n for n, (a, b) in enumerate(zip(text, new, strict=False)) if a != b), min(len(text), len(new)))
    rest = len(text) - start
    assert new[:start] + new[len(new) - rest :] == text or text in new


def test_entry_behind_an_open_code_block_is_refused() -> None:
    with pytest.raises(TopicRefused, match="does not end"):
        with_entry("# T\n\n```\ncode\n", "t", "", "lost")


def test_text_of_an_entry_opens_no_block() -> None:
    new = with_entry("# T\n", "t", "", "# no heading\n```\n--> no end", [Ref("e")])
    (entry,) = read_topic(new).entries
    assert (read_topic(new).headings, entry.sources) == ((), (Ref("e"),))


def test_lesson_survives_its_file() -> None:
    lesson = Lesson("Port 5432 is in use", "connection refused", "stop the database", "look at the port first")
    text = with_entry("", "lessons", "Tests", lesson_entry(lesson), [Ref("e", "2026-01-02")])
    assert text.startswith("# Lessons\n\nWhat went wrong before")
    text += "- written by hand\n  over two lines\n"
    assert lessons_of(text) == [
        Lesson(lesson.goes_wrong, lesson.notice, lesson.fixed_by, lesson.check, (Ref("e", "2026-01-02"),)),
        Lesson("written by hand over two lines"),
    ]


def test_commands_of_a_lesson_stay_apart() -> None:
    entry = lesson_entry(Lesson("Port in use", fixed_by="docker stop \\\n  db\nmake test"))
    assert entry == "Port in use\n- Fixed by: docker stop db; make test"


@pytest.mark.parametrize("former", ["", "# T\n", "# T\n\n- a\n\n## B\n\nwithout an end", DEPLOYS])
def test_diff_is_what_git_applies(tmp_path: Path, former: str) -> None:
    new = with_entry(former, "t", "B", "one more")
    if former:
        (tmp_path / "t.md").write_text(former, newline="")
    diff = diff_of(former, new, "t.md").encode()
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff, check=True)
    assert (tmp_path / "t.md").read_bytes().decode() == new
