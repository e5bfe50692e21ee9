"""Complete lines out of bytes."""

import json
import tracemalloc
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.sources import lines as lines_module
from anamnesis_pipeline.sources.lines import complete_lines, fingerprint, text_of

GLUED = b'{"type":"pr-link","prNu{"type":"user"}'


def read_all(data, offset=0):
    def read(at, length):
        return data[at : at + length]

    return list(complete_lines(read, offset, len(data)))


TAKEN = {
    "a torn tail waits": (b'{"a":1}\n{"b":', 0, [('{"a":1}', 8)]),
    "it is read when its newline comes": (b'{"a":1}\n{"b":2}\n', 8, [('{"b":2}', 16)]),
    "a whole last record needs no newline": (b'{"a":1}\n{"b":2}', 0, [('{"a":1}', 8), ('{"b":2}', 15)]),
    "and comes only once": (b'{"a":1}\n{"b":2}\n{"c":3}\n', 15, [('{"c":3}', 24)]),
    "a number waits": (b"12", 0, []),
    "half an object waits": (b'{"a":1', 0, []),
    "a text waits": (b'"text"', 0, []),
    "a list waits": (b"[1]", 0, []),
    "an object of half objects waits": (b'{"a":{"b":1}', 0, []),
    "glued records stay one line": (GLUED + b"\n", 0, [(GLUED.decode(), len(GLUED) + 1)]),
    "offsets are bytes, not characters": ('{"a":"é→"}\n{}\n'.encode(), 0, [('{"a":"é→"}', 14), ("{}", 17)]),
}


@pytest.mark.parametrize("what", TAKEN)
def test_complete_lines_are_read_once(what):
    data, offset, lines = TAKEN[what]
    assert read_all(data, offset) == lines


def test_windows_line_ends_byte_order_marks_nul_bytes_and_bad_utf8_do_no_harm():
    data = b'\xef\xbb\xbf{"a":1}\r\n{"b":"\xff"}\r\n\0\0\0\n\n{"c":3}\n'
    assert [line for line, _ in read_all(data)] == ['{"a":1}', '{"b":"\ufffd"}', '{"c":3}']
    assert text_of(b"\0\0") == ""


@contextmanager
def at_most(megabytes):
    """What is done inside takes no more memory at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
    finally:
        tracemalloc.stop()


def test_a_run_of_nul_bytes_takes_no_memory():
    head, size = b'{"a":1}\n{"b"', 128 << 20
    tail = b":2}\n"
    end = len(head) + size + len(tail)

    def read(at, length):
        if at == 0:
            return head
        return bytes(min(length, len(head) + size - at)) if at < len(head) + size else tail

    with at_most(16):
        assert list(complete_lines(read, 0, end)) == [('{"a":1}', 8), ('{"b":2}', end)]


@pytest.fixture
def small(monkeypatch):
    """Lines of more than 200 bytes are too long, and come in pieces of at most 64."""
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 200)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 64)
    monkeypatch.setattr(lines_module, "_CUTS", (0, 3, 9))


def whole(found):
    """The lines of which these are pieces."""
    lines = []
    for text, _ in found:
        if text.startswith("\0\0"):
            lines[-1] += text[2:]
        else:
            lines.append(text.removeprefix("\0"))
    return lines


def test_long_line_comes_in_pieces_and_its_neighbours_whole(small):
    lines = ['{"a":1}', "é→\U0001f600" * 90, '{"b":2}', "x" * 300, "y" * 200]
    data = "".join(f"{line}\n" for line in lines).encode()
    found = read_all(data)
    assert whole(found) == lines
    assert max(len(text.encode()) for text, _ in found if text.startswith("\0")) <= 66
    begun = [text.startswith("\0") for text, _ in found if not text.startswith("\0\0")]
    assert begun == [False, True, False, True, False]
    assert found[-1][1] == len(data)


def test_long_line_goes_on_behind_any_of_its_pieces(small):
    data = ('{"a":1}\n' + "é→\U0001f600" * 90 + '\n{"b":2}\n').encode()
    found = read_all(data)
    for number, (_, offset) in enumerate(found):
        if data[offset - 1 : offset] != b"\n":
            rest = complete_lines(lambda at, n: data[at : at + n], offset, len(data), inside=True)
            assert [*found[: number + 1], *rest] == found


def test_long_line_without_its_newline_waits(small):
    assert read_all(b'{"a":1}\n' + b"x" * 1000) == [('{"a":1}', 8)]
    assert read_all(b'{"' + b"\0" * 1000 + b'a":1}\n') == [('{"a":1}', 1008)]


def test_long_line_is_cut_between_secrets_or_left_out(small):
    line = b"a" * 60 + b"SECRET" + b"b" * 150 + b"S" * 200 + b"c" * 100

    def is_seam(at):
        return not set(line[at - 1 : at + 1]) <= set(b"SECRET")

    found = complete_lines(lambda at, n: (line + b"\n")[at : at + n], 0, len(line) + 1, is_seam)
    texts = [text.lstrip("\0") for text, _ in found]
    assert texts[0] == "a" * 55
    assert texts[1].startswith("aaaaaSECRETbb")
    assert lines_module.HIDDEN in texts
    assert all(text != "S" * 64 for text in texts[2:])
    assert "".join(texts).endswith("c" * 50)


def test_long_line_takes_no_memory():
    end = 512 << 20

    def read(at, length):
        length = min(length, end - at)
        return b"a" * (length - 1) + b"\n" if at + length == end else b"a" * length

    with at_most(150):
        assert sum(len(text) for text, _ in complete_lines(read, 0, end)) > end - 2


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
