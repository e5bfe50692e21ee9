from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anamnesis_pipeline.model import EpisodeFilter, Passage, Segment, SegmentKind
from anamnesis_pipeline.parsing.text.transcripts import transcript
from anamnesis_pipeline.pipeline.embed import embed_passages
from anamnesis_pipeline.search.query import Hit
from anamnesis_pipeline.store.session_model import SessionRecord, to_episode
from anamnesis_tests.support.searched_memory import EMBEDDER, SPACE, Memory

DAY = datetime(2026, 2, 11, 9, tzinfo=UTC)
NOW = datetime(2026, 2, 18, 12, tzinfo=UTC)
OUTPUT = "total 4\n-rw-r--r-- 1 root root 512 Feb 11 zeppelin.txt\n" * 3
OUTCOME = "The door of the hangar opens again, and the tests of the motor pass on both machines."


def recorded(memory: Memory, name: str, started: datetime, **more: Any) -> str:
    record = SessionRecord(
        session_id=name,
        session_ids=(name,),
        machine="mac",
        project="acme/api",
        branch="",
        title=f"Title of {name}",
        prompt=f"Please mend {name}",
        outcome=OUTCOME,
        started=started,
        ended=started + timedelta(hours=1),
        messages=10,
        errors=0,
        commits=(f"abc1234 Mend {name}",),
        commands=("ls -la",),
    )
    episode = to_episode(replace(record, **more), "mac--logs")
    memory.store.episodes.put([(episode, [Passage(0, episode.raw_exchange)])])
    embed_passages(memory.store, SPACE, memory.store.episodes.passages_of(episode.episode_id), EMBEDDER)
    return episode.episode_id


def said(memory: Memory, session_id: str, at: datetime, *runs: tuple[SegmentKind, str]) -> str:
    segments = [Segment(f"k{n}", f"u{n}", kind, 0, text, at) for n, (kind, text) in enumerate(runs)]
    fields = {"source": "mac--logs", "kind": "exchange", "session_id": session_id, "timestamp": at}
    return memory.add(*(text for _, text in runs), raw_exchange=transcript(segments), **fields)


def asked(memory: Memory, question: str, **more: Any) -> list[Hit]:
    return memory.ask(question, now=NOW, **more).hits


@pytest.mark.parametrize(
    "question",
    [
        "What did we do on February 11?",
        "what did we do last week",
        "what were we up to last week?",
        "summarize last week",
        "what happened in February",
        "what did we do last Wednesday",
        "which commits did we make last week?",
        "2026-02-11",
        "what have we done since February 11",
        "what got done between February 10 and February 12?",
    ],
)
def test_a_question_for_a_time_is_answered_with_its_sessions(memory: Memory, question: str) -> None:
    recorded(memory, "earlier", DAY - timedelta(days=60))
    wanted = [recorded(memory, name, DAY + timedelta(hours=n)) for n, name in enumerate(("motor", "hangar"))]
    said(memory, "motor", DAY, (SegmentKind.PROMPT, "Please mend motor"), (SegmentKind.TOOL_RESULT, OUTPUT))
    hits = asked(memory, question)
    assert [hit.episode.episode_id for hit in hits] == wanted[::-1]
    told = hits[1].passage.passage.text
    assert all(part in told for part in ("Title of motor", "Please mend motor", OUTCOME, "abc1234 Mend motor"))
    assert "ls -la" not in told
    assert hits[0].score > hits[1].score > 0


def test_a_question_for_something_at_a_time_is_searched(memory: Memory) -> None:
    recorded(memory, "motor", DAY)
    found = said(memory, "motor", DAY, (SegmentKind.PROMPT, "the zeppelin migrations are slow"))
    hits = asked(memory, "why were the zeppelin migrations slow on February 11?")
    assert [hit.episode.episode_id for hit in hits] == [found]


def test_a_session_without_record_is_told_by_its_last_message(memory: Memory) -> None:
    look = (SegmentKind.STATEMENT, "I look at the door. " * 8)
    said(memory, "open", DAY, (SegmentKind.PROMPT, "Mend the door"), look, (SegmentKind.TOOL_INPUT, "ls"))
    last = said(memory, "open", DAY + timedelta(hours=1), (SegmentKind.STATEMENT, OUTCOME))
    said(memory, "open", DAY + timedelta(hours=2), (SegmentKind.TOOL_RESULT, OUTPUT))
    [hit] = asked(memory, "what did we do on February 11?")
    assert (hit.episode.episode_id, hit.passage.passage.text) == (last, OUTCOME)


def test_a_session_with_tool_output_alone_is_not_told(memory: Memory) -> None:
    said(memory, "open", DAY, (SegmentKind.TOOL_RESULT, OUTPUT))
    assert asked(memory, "what did we do last week?") == []


def test_a_session_counts_on_each_day_it_was_at_work(memory: Memory) -> None:
    long = recorded(memory, "long", DAY - timedelta(days=3), ended=DAY + timedelta(days=2))
    said(memory, "long", DAY, (SegmentKind.STATEMENT, OUTCOME))
    assert [hit.episode.episode_id for hit in asked(memory, "what did we do on February 11?")] == [long]
    assert asked(memory, "what did we do on February 12?") == []


def test_of_many_sessions_the_longest_are_told(memory: Memory) -> None:
    ids = [recorded(memory, f"s{n}", DAY + timedelta(minutes=n), messages=n % 4) for n in range(8)]
    hits = asked(memory, "what did we do on February 11?", top_k=4)
    assert [hit.episode.episode_id for hit in hits] == [ids[7], ids[6], ids[3], ids[2]]


def test_sessions_keep_filters_and_the_budget(memory: Memory) -> None:
    one = recorded(memory, "motor", DAY)
    other = recorded(memory, "hangar", DAY, project="acme/other")
    question = "what did we do on February 11?"
    in_other = asked(memory, question, where=EpisodeFilter(projects=("acme/other",)))
    assert [hit.episode.episode_id for hit in in_other] == [other]
    assert asked(memory, question, where=EpisodeFilter(kinds=("exchange",))) == []
    assert len(asked(memory, question, max_tokens=100)) == 1
    assert asked(memory, question, where=EpisodeFilter(instance="pi")) == []
    assert one in [hit.episode.episode_id for hit in asked(memory, question)]


def test_notes_of_the_time_follow_its_sessions(memory: Memory) -> None:
    note = memory.add("The keys are with the porter.", timestamp=DAY)
    session = recorded(memory, "motor", DAY)
    hits = asked(memory, "what did we do on February 11?")
    assert [hit.episode.episode_id for hit in hits] == [session, note]


def test_records_are_found_where_an_outcome_is_asked_for(memory: Memory) -> None:
    session = recorded(memory, "motor", DAY)
    ask: dict[str, Any] = {"min_score": 0}
    assert [hit.episode.episode_id for hit in asked(memory, "what came of the motor in the end?", **ask)] == [session]
    assert asked(memory, "the motor of the hangar", **ask) == []
