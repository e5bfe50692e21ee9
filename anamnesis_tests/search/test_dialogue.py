"""Who speaks in what was posted, and whether it asks."""

from datetime import UTC, datetime

import pytest

from anamnesis_pipeline.model import EpisodeHead
from anamnesis_pipeline.search.dialogue import dialogue_factors, speakers_of, words_of
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.search.memory import Memory


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
    found = dialogue_factors(posted(), text, words_of(question))
    assert sorted(found) == factors
    assert found.get("speaker", 2) > 1 > found.get("asks", 0.5)
    assert dialogue_factors(posted("logs"), text, words_of(question)) == {}


def test_the_answer_precedes_the_question_and_what_somebody_else_said(store: Store) -> None:
    memory = Memory(store)
    asked = memory.add("Mel: Caroline, did you see the lake at dawn?")
    other = memory.add("Mel: Caroline should see the lake at dawn, and the lake at noon")
    told = memory.add("Caroline: yes, I saw the lake at dawn, from the boat")
    assert memory.ids("Did Caroline see the lake at dawn?") == [told, other, asked]
