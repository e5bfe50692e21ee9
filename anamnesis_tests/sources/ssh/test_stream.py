import io
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.sources.ssh.stream import BLOCK_BYTES, regular_files

MAX_BYTES = 1 << 20
NAMES = st.one_of(
    st.binary(min_size=1, max_size=300).map(lambda raw: b"/tree/" + raw.replace(b"\0", b"x").replace(b"/", b"y")),
    st.integers(95, 105).map(lambda length: b"/" + b"n" * length),
)
FILES = st.lists(st.tuples(NAMES, st.binary(max_size=3 * BLOCK_BYTES)), max_size=5)


def in_pieces(stream: bytes, most: int) -> Callable[[int], bytes]:
    """A receiver that hands over a few bytes at a time."""
    source = io.BytesIO(stream)
    return lambda count: source.read(min(count, most))


def entry(name: bytes, content: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    info = tarfile.TarInfo(os.fsdecode(name))
    info.size, info.type, info.linkname = len(content), kind, target
    header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    return header + content + bytes(-len(content) % BLOCK_BYTES)


def stream_of(*entries: bytes) -> bytes:
    return b"".join(entries) + bytes(2 * BLOCK_BYTES)


@given(FILES, st.integers(1, 3_000))
def test_every_file_comes_whole_under_its_name_however_the_stream_is_cut_in_pieces(files, most):
    stream = stream_of(*(entry(name, content) for name, content in files))
    assert list(regular_files(in_pieces(stream, most), MAX_BYTES)) == files


@given(FILES.filter(bool), st.data())
def test_a_stream_that_ends_anywhere_is_told_from_a_whole_one_and_gives_whole_files_only(files, data):
    stream = b"".join(entry(name, content) for name, content in files)
    end = data.draw(st.integers(0, len(stream)))
    found = []
    with pytest.raises(EOFError):
        found.extend(regular_files(in_pieces(stream[:end], 1_000), MAX_BYTES))
    assert found == files[: len(found)]


def test_folders_links_pipes_and_large_files_are_passed_over_with_what_they_hold():
    stream = stream_of(
        entry(b"/folder", kind=tarfile.DIRTYPE),
        entry(b"/link", kind=tarfile.SYMTYPE, target="t" * 300),
        entry(b"/pipe", kind=tarfile.FIFOTYPE),
        entry(b"/" + b"l" * 200, b"x" * (MAX_BYTES + 1)),
        entry(b"/same", kind=tarfile.LNKTYPE, target="/kept"),
        entry(b"/kept", b"kept"),
    )
    assert list(regular_files(in_pieces(stream, 1 << 16), MAX_BYTES)) == [(b"/kept", b"kept")]


@pytest.mark.parametrize("said", [b"", b"Welcome!\n", b"sh: tar: not found\n" * 100, b"x" * 5_000, bytes(511)])
def test_what_is_no_stream_of_tar_is_refused(said):
    with pytest.raises(EOFError):
        list(regular_files(in_pieces(said, 1_000), MAX_BYTES))


def test_a_header_in_which_a_bit_was_turned_is_refused():
    stream = bytearray(stream_of(entry(b"/a", b"1"), entry(b"/b", b"2")))
    stream[2 * BLOCK_BYTES] ^= 1
    with pytest.raises(EOFError):
        list(regular_files(in_pieces(bytes(stream), 1_000), MAX_BYTES))


def test_what_the_tar_of_this_machine_writes_is_read(tmp_path: Path):
    contents = {
        b"a b\nc.md": b"one",
        b"\xff\xfe.md": b"two",
        b"empty.md": b"",
        b"n" * 99: b"3",
        b"n" * 100: b"4",
        b"n" * 101: b"5",
        b"n" * 200: b"6" * 2_000,
        "ä.md".encode(): b"7",
    }
    for name, content in contents.items():
        (tmp_path / os.fsdecode(name)).write_bytes(content)
    made = subprocess.run(
        ["tar", "--create", "--file=-", "--format=gnu", "--null", "--files-from=-"],
        cwd=tmp_path,
        input=b"\0".join(contents),
        capture_output=True,
        check=True,
    )
    assert dict(regular_files(in_pieces(made.stdout, 700), MAX_BYTES)) == contents
