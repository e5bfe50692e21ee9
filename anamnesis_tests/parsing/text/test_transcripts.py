import pytest

from anamnesis_pipeline.model import Segment, SegmentKind
from anamnesis_pipeline.parsing.text.transcripts import Voice, transcript, voice_shares, voices_in

K = SegmentKind


def said(*runs: tuple[SegmentKind, str]) -> str:
    segments = tuple(Segment(f"k{n}", f"u{n}", kind, 0, text, None) for n, (kind, text) in enumerate(runs))
    return transcript(segments)


@pytest.mark.parametrize("kind", list(SegmentKind))
def test_every_run_of_a_transcript_is_read_back(kind: SegmentKind) -> None:
    text = said((kind, "one\n\ntwo [User]"), (K.PROMPT, "three"))
    assert [run for _, run in voices_in(text)] == ["one\n\ntwo [User]", "three"]


def test_voices_tell_the_last_message_of_a_turn_from_others() -> None:
    text = said(
        (K.PROMPT, "Fix it"),
        (K.THINKING, "Hm"),
        (K.STATEMENT, "I look"),
        (K.TOOL_INPUT, "Bash"),
        (K.TOOL_RESULT, "ok"),
        (K.STATEMENT, "It was the cache"),
        (K.NOTIFICATION, "a task ended"),
        (K.TOOL_INPUT, "Read"),
        (K.TOOL_ERROR, "gone"),
        (K.STATEMENT, "Nothing left"),
        (K.THINKING, "Done"),
    )
    voices = [voice for voice, _ in voices_in(text)]
    assert voices == [
        Voice.PERSON,
        Voice.OTHER,
        Voice.STATEMENT,
        Voice.OTHER,
        Voice.OTHER,
        Voice.CONCLUSION,
        Voice.OTHER,
        Voice.OTHER,
        Voice.OTHER,
        Voice.CONCLUSION,
        Voice.OTHER,
    ]


@pytest.mark.parametrize(
    ("words", "voice"),
    [
        ("Now run the tests:", Voice.OTHER),
        ("Jetzt die Tests:", Voice.OTHER),
        ("**Step 7: Check if the commit is there**", Voice.OTHER),
        ("Let me check the log.", Voice.OTHER),
        ("The hangar door jams because of rust", Voice.STATEMENT),
        ("The index is stale. Let me build it:", Voice.STATEMENT),
        ("The tests fail because the generated client is older than the schema it was made from:", Voice.STATEMENT),
    ],
)
def test_what_announces_a_tool_is_no_statement(words: str, voice: Voice) -> None:
    text = said((K.PROMPT, "Go"), (K.STATEMENT, words), (K.TOOL_INPUT, "make"), (K.STATEMENT, words))
    assert [each for each, _ in voices_in(text)] == [Voice.PERSON, voice, Voice.OTHER, Voice.CONCLUSION]


def test_steering_senders_and_continued_runs_are_read() -> None:
    segments = (
        Segment("a", "a", K.STEERING, 0, "stop", None),
        Segment("b", "b", K.CHANNEL, 0, "go on", None, sender="chat"),
        Segment("c", "c", K.STATEMENT, 900, "now:", None),  # the short end of a longer one
        Segment("d", "d", K.TOOL_INPUT, 0, "make", None),
        Segment("e", "e", K.STATEMENT, 40, "and so on", None),
    )
    found = [voice for voice, _ in voices_in(transcript(segments))]
    assert found == [Voice.PERSON, Voice.PERSON, Voice.STATEMENT, Voice.OTHER, Voice.CONCLUSION]


@pytest.mark.parametrize("text", ["", "no marks", "[Somebody]\nwords", "  [User] in a line"])
def test_text_without_marks_has_no_voices(text: str) -> None:
    assert voices_in(text) == []
    assert voice_shares("words", voices_in(text)) == {}


def test_shares_of_a_passage_follow_its_lines() -> None:
    runs = voices_in(said((K.STATEMENT, "a" * 30), (K.TOOL_INPUT, "b" * 10 + "\n" + "c" * 60)))
    assert voice_shares("c" * 20, runs) == {Voice.OTHER: 1.0}
    assert voice_shares("a" * 30 + "\n" + "b" * 10, runs) == {Voice.STATEMENT: 0.75, Voice.OTHER: 0.25}
    assert voice_shares("of another text", runs) == {}
