"""Lines into frames and back, with and without a base."""

import random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.sources import frames
from anamnesis_pipeline.sources.lines import mark_of

NOISE = random.Random(3).randbytes(3 << 20).hex()


@given(st.lists(st.text(st.characters(blacklist_characters="\n", blacklist_categories=())), min_size=1), st.binary())
def test_any_lines_come_back_with_any_base(lines, base):
    assert frames.unpacked(frames.packed(lines)) == lines
    if base:
        assert frames.unpacked(frames.packed_against(base, lines), base) == lines


def test_all_of_a_base_of_megabytes_is_used_wherever_its_text_is_repeated():
    pieces = [NOISE[at : at + 1000] for at in range(0, len(NOISE), 1000)]
    again = [f"{n} {piece}" for n, piece in enumerate(reversed(pieces))]
    frame = frames.packed_against(NOISE.encode(), again)
    assert len(frame) < len(frames.packed(again)) / 20
    assert frames.unpacked(frame, NOISE.encode()) == again


def test_a_frame_is_not_read_with_another_base():
    frame = frames.packed_against(NOISE.encode(), [NOISE])
    with pytest.raises(zstandard.ZstdError):
        frames.unpacked(frame, NOISE[::-1].encode())


def test_a_row_of_frames_is_one_base_unless_it_is_too_long(monkeypatch):
    row = frames.packed(["one", "two"]) + frames.packed(["three"])
    assert frames.base_text(row) == b"one\ntwothree"
    monkeypatch.setattr(frames, "TEXT_BYTES", 11)
    assert frames.base_text(row) == b""
    assert frames.packed_against(b"", ["one"]) is None
    assert frames.packed_against(b"one", ["a line that is too long"]) is None


def test_copies_that_keep_uuids_have_the_mark_of_their_original():
    first = '{"type":"summary","summary":"x"}'
    original = [first, '{"uuid":"0e828762-4b61-4628-acea-98e7713717ee","sessionId":"a"}']
    fork = ['{"sessionId": "b", "uuid": "0e828762-4b61-4628-acea-98e7713717ee"}', "{}"]
    assert mark_of(original) == mark_of(fork)
    assert mark_of([first]) == mark_of([first, "{}"]) != mark_of(original)
    assert mark_of(['{"text":"\\"uuid\\":\\"0e828762-4b61-4628-acea-98e7713717ee\\""}']) != mark_of(original)
