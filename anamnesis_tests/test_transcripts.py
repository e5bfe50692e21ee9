import pytest

from anamnesis_pipeline.model import Segment, SegmentKind
from anamnesis_pipeline.transcripts import Voice, transcript, voice_shares, voices_in

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
        (K.PROMPT, "Fix it"), (K.THINKING, "Hm"), (K.STATEMENT, "I look"), (K.TOOL_INPUT, "Bash"),
        (K.TOOL_RESULT, "ok"), (K.STATEMENT, "It was the cache"), (K.NOTIFICATION, "a task ended"),
        (K.TOOL_INPUT, "Read"), (K.TOOL_ERROR, "gone"), (K.STATEMENT, "Nothing left"), (K.THINKING, "Done"),
    )  # fmt: skip
    voices = [voice for voice, _ in voices_in(text)]
    assert voices == [
        Voice.PERSON, Voice.OTHER, Voice.STATEMENT, Voice.OTHER, Voice.OTHER, Voice.CONCLUSION, Voice.OTHER,
        Voice.OTHER, Voice.OTHER, Voice.CONCLUSION, Voice.OTHER,
    ]  # fmt: skip


def test_steering_and_senders_and_continued_runs_are_read() -> None:
    segments = (
        Segment("a", "a", K.STEERING, 0, "stop", None),
        Segment("b", "b", K.CHANNEL, 0, "go on", None, sender="chat"),
        Segment("c", "c", K.STATEMENT, 40, "and so on", None),
    )
    assert [voice for voice, _ in voices_in(transcript(segments))] == [Voice.PERSON, Voice.PERSON, Voice.CONCLUSION]


@pytest.mark.parametrize("text", ["", "no marks", "[Somebody]\nwords", "  [User] in a line"])
def test_text_without_marks_has_no_voices(text: str) -> None:
    assert voices_in(text) == []
    assert voice_shares("words", voices_in(text)) == {}


def test_shares_of_a_passage_follow_its_lines() -> None:
    runs = voices_in(said((K.STATEMENT, "a" * 30), (K.TOOL_INPUT, "b" * 10 + "\n" + "c" * 60)))
    assert voice_shares("c" * 20, runs) == {Voice.OTHER: 1.0}
    assert voice_shares("a" * 30 + "\n" + "b" * 10, runs) == {Voice.STATEMENT: 0.75, Voice.OTHER: 0.25}
    assert voice_shares("of another text", runs) == {}
