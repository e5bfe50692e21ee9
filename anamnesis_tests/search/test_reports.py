"""What a message reports, sentence by sentence."""

import time

import pytest

from anamnesis_pipeline.search.reports import Topic, told, topic_of_heading, units_of

REPORT = """All green, the importer is in.

## Done
- **Importer** reads `orders.csv`
- Retries, see [the notes](https://x.test/n)
  with a backoff

**Filed:**
1. #41 slow start

### Remaining work (2)

| Task | Status |
|------|--------|
| Docs | in progress |
| Alerts | done |

Next: rotate the key. Then ship it.

```bash
make deploy
```

That is all."""


def topics(text: str) -> list[tuple[str, str]]:
    return [(unit.topic or "", unit.text) for unit in units_of(text)]


def test_report_is_read_by_headings_lists_tables_and_leads() -> None:
    assert topics(REPORT) == [
        ("", "All green, the importer is in."),
        ("done", "Importer reads `orders.csv`"),
        ("done", "Retries, see the notes with a backoff"),
        ("filed", "#41 slow start"),
        ("open", "Docs \u2013 in progress"),
        ("done", "Alerts \u2013 done"),
        ("open", "Next: rotate the key."),
        ("open", "Then ship it."),
        ("", "make deploy"),
        ("", "That is all."),
    ]


def test_told_names_each_heading_once_in_whole_sentences() -> None:
    assert told(units_of(REPORT)) == (
        "All green, the importer is in. Done: Importer reads `orders.csv`; Retries, see the notes with a backoff. "
        "Filed: #41 slow start. Remaining work (2): Docs \u2013 in progress; Alerts \u2013 done. Next: rotate the key. "
        "Then ship it. make deploy; That is all."
    )


@pytest.mark.parametrize(
    ("heading", "topic"),
    [
        ("Next Steps to Run", Topic.OPEN),
        ("What's left", Topic.OPEN),
        ("Remaining feedback for future consideration:", Topic.OPEN),
        ("Not yet done", Topic.OPEN),
        ("Decisions needed", Topic.OPEN),
        ("Follow-ups filed", Topic.FILED),
        ("Issues created (3)", Topic.FILED),
        ("Blocking Issues Resolved", Topic.DONE),
        ("What was done", Topic.DONE),
        ("Summary of changes", Topic.DONE),
        ("Design decisions", Topic.DECIDED),
        ("Still failing", Topic.FAILING),
        ("Open source", None),
        ("Next.js", None),
        ("Architecture", None),
    ],
)
def test_heading_has_the_topic_that_it_names(heading: str, topic: Topic | None) -> None:
    assert topic_of_heading(heading) is topic


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("Filed two follow-up issues for the cache.", "filed"),
        ("The migration has not been deployed.", "open"),
        ("Two tests still fail on Postgres 12.", "open"),
        ("Done: the parser.", "done"),
        ("\u2705 Pushed to main", "done"),
        ("\u23f3 Waiting for CI", "open"),
        ("Remaining: none", ""),
        ("Nothing is left to do.", ""),
        ("The remaining tests pass.", ""),
    ],
)
def test_sentence_has_the_topic_that_its_words_say(text: str, topic: str) -> None:
    assert [found for found, _ in topics(text)] == [topic]


def test_long_code_and_rulers_are_left_out() -> None:
    assert topics("Run:\n```\nmake\n```\n---\n```\na\nb\nc\n```\nBye now.") == [("", "Run: make"), ("", "Bye now.")]


def test_sentences_end_where_they_end() -> None:
    found = [unit.text for unit in units_of("Use e.g. Redis v1.2. It works! Does it? \u5b8c\u4e86\u3002\u6b21\u3078")]
    assert found == ["Use e.g. Redis v1.2.", "It works!", "Does it?", "\u5b8c\u4e86\u3002", "\u6b21\u3078"]


@pytest.mark.parametrize(
    "hostile",
    ["| " * 9_000, "**" * 20_000, "- [ ] " * 9_000, ": " * 20_000, "a. A" * 10_000, "next " * 10_000, "[" * 40_000],
)
def test_text_made_to_stall_is_read_in_linear_time(hostile: str) -> None:
    begun = time.process_time()
    units_of(hostile)
    units_of(hostile.replace(" ", "\n"))
    assert time.process_time() - begun < 2
