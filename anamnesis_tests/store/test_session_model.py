"""Records of sessions, and the episodes that hold them."""

from dataclasses import replace
from datetime import UTC, datetime

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import (
    SESSION_KIND,
    SessionRecord,
    of_episode,
    summary_of,
    text_of,
    to_episode,
)

RECORD = SessionRecord(
    session_id="s1",
    session_ids=("s1", "s2"),
    machine="laptop",
    project="acme/api",
    branch="main",
    messages=41,
    errors=1,
    revision=2,
    files=("tests/test_login.py",),
    commands=("make test",),
    tests=("pytest: 12 passed",),
    title="Fix the flaky login test",
    prompt="The login test fails every tenth time. Fix it.",
    outcome="The test waited for a fixed second; it now waits for the answer itself.",
    started=datetime(2026, 2, 11, 9, 30, 1, 500_000, UTC),
    ended=datetime(2026, 2, 11, 11, tzinfo=UTC),
    commits=("abc1234 Wait for the answer of the login",),
    decisions=("We decided to keep the old route.",),
    open_items=("Measure the slow start",),
)


def test_session_record_survives_the_store(store: Store) -> None:
    episode = to_episode(RECORD, "laptop--api--0a0a0a0a", "/home/ann/.claude/projects/api/s1.jsonl")
    store.episodes.put([(episode, [])])
    (stored,) = store.episodes.page(EpisodeFilter(kinds=(SESSION_KIND,)), 10).items
    assert of_episode(stored) == RECORD
    assert (stored.timestamp, stored.session_id, stored.project) == (RECORD.started, "s1", "acme/api")


def test_session_record_is_none_where_metadata_is_malformed() -> None:
    episode = to_episode(RECORD, "direct")
    values = dict(episode.metadata["session"])
    for wrong in ({}, {"session": None}, {"session": {**values, "started": "soon"}}, {"session": {"title": "x"}}):
        assert of_episode(replace(episode, metadata=wrong)) is None
    assert of_episode(replace(episode, kind="exchange")) is None


def test_session_revisions_are_episodes_of_their_own() -> None:
    revisions = [to_episode(replace(RECORD, revision=n), "direct").episode_id for n in (1, 2)]
    elsewhere = to_episode(replace(RECORD, machine="desk"), "direct").episode_id
    assert len({*revisions, elsewhere}) == 3


def test_session_text_tells_every_field_and_its_summary_is_short() -> None:
    text = text_of(RECORD)
    for said in (RECORD.title, RECORD.prompt, RECORD.outcome, *RECORD.files, *RECORD.tests, *RECORD.commits):
        assert said in text
    assert "2026-02-11 09:30 to 2026-02-11 11:00 UTC: 41 messages, 1 error." in text
    assert "Open items:\n- Measure the slow start" in text
    assert summary_of(RECORD) == f"{RECORD.title}. {RECORD.outcome}"
    assert len(summary_of(replace(RECORD, outcome="word " * 400))) <= 480
