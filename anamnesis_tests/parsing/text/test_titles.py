"""Titles tell what an episode is about, and hold no markdown, code or output of tools."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.parsing.text.titles import TITLE_CHARS, actions, title_of

CHUNK = {"exchange_id": "x", "prompt": "Why are webhooks charged twice?"}


def episode(raw: str, summary: str = "", **metadata: Any) -> Episode:
    when = datetime(2026, 3, 14, tzinfo=UTC)
    return Episode("e", "s", when, "mac", "acme", "exchange", summary, raw, metadata={**CHUNK, **metadata})


READ = "[Tool call]\nRead\nfile_path: /w/src/billing/retry.py\n\n[Tool result]\n     1\u2192def charge(key):"


@pytest.mark.parametrize(
    ("raw", "title"),
    [
        ("[User]\nWhy are webhooks charged twice?\n\n[Claude]\nLet me look.", "Why are webhooks charged twice?"),
        ("[User]\ncontinue\n\n[Claude]\nNow let me **fix** the `charge` retry:\n\n" + READ, "Fix the charge retry"),
        ("[Claude]\nGreat! The retry of the webhook lost its key.", "The retry of the webhook lost its key"),
        ("[Claude]\n```sh\nmake test\n```\n## The cause of the failure\ntext", "The cause of the failure"),
        (READ, "Read retry.py"),
        ("[Tool call]\nBash\ncommand: make test | tail\ndescription: Run all tests", "Run all tests"),
        ("[Tool call]\nBash\ncommand: git push", "Run git push"),
        ("[Tool result, continued]\n    88\u2192  def charge_again(key):\n", "Code of charge_again"),
        ("[Tool result]\nThe file /w/retry.py has been updated.", "Edit retry.py"),
        ('[Tool result]\n{"command": "x", "ok": true}\n<b>x</b>', "Output of tools: Why are webhooks charged twice?"),
        ("[Task for the subagent]\nFind where the key is lost. Report it.", "Find where the key is lost"),
    ],
)
def test_titles_tell_what_was_asked_said_or_done(raw: str, title: str) -> None:
    assert title_of(episode(raw)) == title


def test_a_summary_that_somebody_wrote_is_the_title() -> None:
    raw = "[User]\nwhy?\n\n[Claude]\nThe retry lost its key."
    assert title_of(episode(raw, "Webhook retries charged twice since the key was lost. It is fixed.")) == (
        "Webhook retries charged twice since the key was lost"
    )
    posted = replace(episode("user: why?", "- **Doors** of the hangar are new"), metadata={})
    assert title_of(posted) == "Doors of the hangar are new"


def test_a_section_is_called_by_the_end_of_its_way() -> None:
    assert title_of(episode("x", "x", title=["guide.md", "Install", "`make up`"])) == "guide.md / Install / make up"
    long = title_of(episode("x", "x", title=["guide.md", "A" * 50, "B" * 50]))
    assert long == "B" * 50


def test_many_files_are_counted() -> None:
    calls = [f"Edit\nfile_path: /w/{name}.py" for name in "abcde"]
    told = actions([*calls, calls[0], "TodoWrite\ntodos: []"])
    assert told == "Edit a.py, b.py, c.py and 2 more; Update the list of tasks"


@given(st.text(max_size=400), st.text(max_size=400))
def test_titles_are_short_and_on_one_line_whatever_is_stored(raw: str, summary: str) -> None:
    for each in (episode(raw, summary), episode(f"[Claude]\n{raw}", summary), episode(f"[Tool call]\n{raw}")):
        title = title_of(each)
        assert 0 < len(title) <= TITLE_CHARS
        assert title == " ".join(title.split())
        assert title == title_of(each)
