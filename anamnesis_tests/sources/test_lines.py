"""Complete lines out of bytes."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.sources import lines as lines_module
from anamnesis_pipeline.sources.lines import complete_lines, fingerprint, text_of


def read_all(data, offset=0):
    def read(at, length):
        return data[at : at + length]

    return list(complete_lines(read, offset, len(data)))


def test_a_torn_tail_waits_for_its_newline():
    assert read_all(b'{"a":1}\n{"b":') == [('{"a":1}', 8)]
    assert read_all(b'{"a":1}\n{"b":2}\n', 8) == [('{"b":2}', 16)]


def test_a_whole_last_record_counts_without_its_newline_and_only_once():
    assert read_all(b'{"a":1}\n{"b":2}') == [('{"a":1}', 8), ('{"b":2}', 15)]
    assert read_all(b'{"a":1}\n{"b":2}\n{"c":3}\n', 15) == [('{"c":3}', 24)]


def test_a_last_line_that_is_a_number_or_a_half_object_waits():
    for tail in (b"12", b'{"a":1', b'"text"', b"[1]", b'{"a":{"b":1}'):
        assert read_all(tail) == []


def test_glued_records_stay_one_line():
    glued = b'{"type":"pr-link","prNu{"type":"user"}'
    assert read_all(glued + b"\n") == [(glued.decode(), len(glued) + 1)]


def test_windows_line_ends_byte_order_marks_nul_bytes_and_bad_utf8_do_no_harm():
    data = b'\xef\xbb\xbf{"a":1}\r\n{"b":"\xff"}\r\n\0\0\0\n\n{"c":3}\n'
    assert [line for line, _ in read_all(data)] == ['{"a":1}', '{"b":"\ufffd"}', '{"c":3}']
    assert text_of(b"\0\0") == ""


def test_a_run_of_nul_bytes_takes_no_memory():
    head, size = b'{"a":1}\n{"b"', 128 << 20
    tail = b":2}\n"
    end = len(head) + size + len(tail)

    def read(at, length):
        if at == 0:
            return head
        return bytes(min(length, len(head) + size - at)) if at < len(head) + size else tail

    tracemalloc.start()
    try:
        assert list(complete_lines(read, 0, end)) == [('{"a":1}', 8), ('{"b":2}', end)]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_offsets_are_bytes_not_characters():
    data = '{"a":"é→"}\n{"b":1}\n'.encode()
    assert [end for _, end in read_all(data)] == [len('{"a":"é→"}\n'.encode()), len(data)]


def test_one_line_of_many_blocks_is_read_whole(monkeypatch):
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 7)
    line = json.dumps({"text": "x" * 1000})
    assert read_all(f"{line}\n{line}\n".encode()) == [(line, len(line) + 1), (line, 2 * len(line) + 2)]


@pytest.mark.parametrize("block", [1, 2, 5, 64])
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\ufeff"), min_size=1).map(str.strip)),
    st.data(),
)
def test_reading_in_two_goes_gives_the_same_lines_as_in_one(block, texts, data):
    original, lines_module.BLOCK_BYTES = lines_module.BLOCK_BYTES, block
    try:
        whole = "".join(f"{json.dumps({'t': text}, ensure_ascii=False)}\n" for text in texts).encode()
        cut = data.draw(st.integers(0, len(whole)))
        first = read_all(whole[:cut])
        offset = first[-1][1] if first else 0
        assert [line for line, _ in first + read_all(whole, offset)] == [line for line, _ in read_all(whole)]
    finally:
        lines_module.BLOCK_BYTES = original


def test_a_fingerprint_survives_growth_and_notices_rewrites():
    data = b"".join(b'{"n":%d}\n' % n for n in range(3000))

    def print_of(content, offset):
        return fingerprint(lambda at, length: content[at : at + length], offset)

    known = print_of(data, 20_000)
    assert print_of(data + b"more", 20_000) == known
    assert print_of(b"x" + data[1:], 20_000) != known
    assert print_of(data[:19_990] + b"y" + data[19_991:], 20_000) != known
    assert print_of(b"", 0) == print_of(data, 0)
