"""Who speaks in what was posted, and whether it asks."""

from datetime import UTC, datetime
from typing import Any

import pytest

from anamnesis_pipeline.model import EpisodeHead, Segment, SegmentKind
from anamnesis_pipeline.parsing.text.transcripts import Voice, transcript
from anamnesis_pipeline.search.dialogue import (
    asks_for_outcome,
    dialogue_factors,
    speakers_of,
    voice_factor,
    voice_factors,
    words_of,
)
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.profiles import PROFILES
from anamnesis_tests.support.searched_memory import START, Memory, embed_query


@pytest.mark.parametrize(
    ("text", "speakers"),
    [
        ("Caroline: I went to the lake", ["Caroline"]),
        ("Ada Lovelace: it prints", ["Ada Lovelace"]),
        ("Élodie: bonjour", ["Élodie"]),
        ("李雷: 你好", ["李雷"]),
        ("  Decision: we stay with SQLite", ["Decision"]),
        ("- **Yan**: no", ["Yan"]),
        ("[10:31] Zoe: yes", ["Zoe"]),
        ("Ada: is it on?\nBen: it is", ["Ada", "Ben"]),
        ("error: no such table", []),
        ("http://host", []),
        ("A: forty two", []),
        ("Why: it was slow", []),
        ("10:31: started", []),
        ("It broke: the importer stopped", []),
        ("Caroline said: no", []),
        ("One Two Three Four: five", []),
        ("", []),
    ],
)
def test_speakers_are_named_before_the_colon_of_a_line(text: str, speakers: list[str]) -> None:
    assert speakers_of(text) == speakers


def posted(source: str = "direct") -> EpisodeHead:
    return EpisodeHead("e", source, datetime(2026, 6, 1, tzinfo=UTC), "mac", "acme", "note", "")


@pytest.mark.parametrize(
    ("text", "question", "factors"),
    [
        ("Caroline: I went to the lake", "Where did Caroline go?", ["speaker"]),
        ("Caroline: I went to the lake", "What is caroline's plan?", ["speaker"]),
        ("Caroline: where did you go?", "Where did Melanie go?", ["asks"]),
        ("Melanie: where did you go? ", "Where did Melanie go?", ["asks", "speaker"]),
        ("Ada Lovelace: it prints", "What did Ada say?", ["speaker"]),
        ("Dr. Ruth O'Neil: it prints", "What did O'Neil say?", ["speaker"]),
        ("Ada: did it print?\nBen: did you look?", "What did Ben ask?", ["speaker"]),
        ("Does it print?", "Does it print?", []),
        ("Ben: when did you go?", "What did Ben ask?", ["speaker"]),
        ("it prints", "What prints?", []),
    ],
)
def test_who_is_asked_about_counts_more_and_a_question_less(text: str, question: str, factors: list[str]) -> None:
    found = dialogue_factors(posted(), text, words_of(question), 1.7)
    assert sorted(found) == factors
    assert found.get("speaker", 2) > 1 > found.get("asks", 0.5)
    assert dialogue_factors(posted("logs"), text, words_of(question), 1.7) == {}


def test_the_answer_precedes_the_question_and_what_somebody_else_said(memory: Memory) -> None:
    asked = memory.add("Mel: Caroline, did you see the lake at dawn?")
    other = memory.add("Mel: Caroline should see the lake at dawn, and the lake at noon")
    told = memory.add("Caroline: yes, I saw the lake at dawn, from the boat")
    assert memory.ids("Did Caroline see the lake at dawn?") == [told, other, asked]


SAYS = "the zeppelin hangar door jams because of rust"


def logged(memory: Memory, kind: SegmentKind, text: str, *, then: SegmentKind | None = None, **fields: Any) -> str:
    """An episode of a log that holds one message, and a tool's words behind it where `then` names them."""
    after = [Segment("b", "b", then, 0, "ls", None)] if then else []
    raw = transcript([Segment("a", "a", kind, 0, text, None), *after])
    return memory.add(text, source="pi--logs", session_id=f"s{kind}{then}", raw_exchange=raw, **fields)


@pytest.mark.parametrize("question", ["zeppelin hangar door rust", "why does the zeppelin hangar door jam?"])
def test_what_was_said_precedes_what_was_thought_or_printed(memory: Memory, question: str) -> None:
    at = {"timestamp": START}
    kinds = [SegmentKind.TOOL_RESULT, SegmentKind.TOOL_INPUT, SegmentKind.THINKING]
    others = [logged(memory, kind, f"{SAYS} {kind}", **at) for kind in kinds]
    statement = logged(memory, SegmentKind.STATEMENT, f"{SAYS} so", then=SegmentKind.TOOL_INPUT, **at)
    conclusion = logged(memory, SegmentKind.STATEMENT, f"{SAYS} now", **at)
    prompt = logged(memory, SegmentKind.PROMPT, f"{SAYS} eh", **at)
    ids = memory.ids(question, min_score=0, fold=False, top_k=10)
    assert {*ids[:3]} == {conclusion, prompt, statement}
    assert {*ids[3:]} == {*others}


@pytest.mark.parametrize(
    "question",
    [
        "what was the zeppelin problem in the end?",
        "what did the zeppelin problem turn out to be?",
        "what was the key fix of the zeppelin problem?",
        "zeppelin problem: which cause did we finally find?",
    ],
)
def test_the_latest_conclusion_precedes_earlier_ones(memory: Memory, question: str) -> None:
    ids = [
        logged(memory, SegmentKind.STATEMENT, f"The zeppelin problem is {what}.")
        for what in ("a broken seal", "the cold wind", "the old valve")
    ]
    found = memory.ids(question, min_score=0, fold=False, top_k=10)
    assert found[0] == ids[-1]


@pytest.mark.parametrize("question", ["where is the hangar?", "why?", "what did I want?", "how did it turn out?"])
def test_prompts_and_conclusions_count_before_statements(question: str) -> None:
    factors = voice_factors(question)
    person, conclusion, statement, other = (voice_factor({voice: 1.0}, factors) for voice in Voice)
    assert person == conclusion > statement > other == 1
    assert statement > voice_factor({Voice.STATEMENT: 0.5, Voice.OTHER: 0.5}, factors) > other
    assert voice_factor({}, factors) == 1


def test_questions_for_reasons_and_outcomes_weigh_words_more() -> None:
    plain = voice_factors("where is the hangar?")[Voice.PERSON]
    told = [
        "why did it jam?",
        "what came of it?",
        "which did we finally choose?",
        "what do I prefer?",
        "the root cause",
    ]
    assert all(voice_factors(question)[Voice.PERSON] > plain for question in told)
    assert [asks_for_outcome(question) for question in told] == [False, True, True, False, True]


def test_what_was_written_to_be_read_counts_as_much_as_what_a_person_said(memory: Memory) -> None:
    prompt, post = logged(memory, SegmentKind.PROMPT, SAYS), memory.add(f"{SAYS} too", raw_exchange=f"[User]\n{SAYS}")
    document = memory.add(f"{SAYS} here", source="files", kind="document")
    code = memory.add(f"{SAYS} there", source="files", kind="code")
    hits = memory.ask("zeppelin hangar door rust", min_score=0, fold=False, explain=True).hits
    told = {hit.episode.episode_id: (hit.explanation or {})["stages"].get("voice") for hit in hits}
    said = round(1.58**0.5, 4)
    assert told == {prompt: said, post: said, document: said, code: None}


@pytest.mark.parametrize(("voices", "factor"), [(0.0, None), (2.0, 1.58)])
def test_voices_says_how_much_a_speaker_counts(memory: Memory, voices: float, factor: float | None) -> None:
    logged(memory, SegmentKind.PROMPT, SAYS)
    memory.engine = Engine(memory.store, embed_query, numbers=lambda: {"voices": voices})
    (hit,) = memory.ask("zeppelin hangar door rust", min_score=0, explain=True).hits
    assert (hit.explanation or {})["stages"].get("voice") == factor


@pytest.mark.parametrize(
    ("number", "stage", "question"),
    [("named_speaker", "speaker", "Did Caroline see the lake?"), ("named_time", "time", "the lake in May 2026")],
)
def test_what_a_question_names_counts_as_much_as_is_set(memory: Memory, number: str, stage: str, question: str) -> None:
    memory.add("Caroline: I saw the lake at dawn", timestamp=datetime(2026, 5, 3, tzinfo=UTC))
    memory.engine = Engine(memory.store, embed_query, numbers=lambda: {number: 3.0})
    (hit,) = memory.ask(question, min_score=0, explain=True).hits
    assert (hit.explanation or {})["stages"]["factors"][stage] == 3.0


def test_a_short_conclusion_is_no_routine(memory: Memory) -> None:
    memory.engine = Engine(memory.store, embed_query, min_value=lambda: 1.0)
    low = {"metadata": {"value": 0.0}}
    conclusion = logged(memory, SegmentKind.STATEMENT, f"{SAYS} so", **low)
    output = logged(memory, SegmentKind.TOOL_RESULT, f"{SAYS} now", **low)
    hits = memory.ask("zeppelin hangar door rust", min_score=0, fold=False).hits
    assert {hit.episode.episode_id: hit.factor for hit in hits} == {
        conclusion: 1.0,
        output: PROFILES["default"].routine,
    }
