"""What was freed goes back to the system."""

import ctypes
from pathlib import Path

import pytest

from anamnesis_pipeline.sidecar.trimming import trim

BLOCKS, BLOCK_BYTES = 64_000, 1_000


def own_kb() -> int:
    """What this process holds of its own memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_what_was_freed_behind_a_block_in_use_goes_back() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    *freed, held = [libc.malloc(BLOCK_BYTES) for _ in range(BLOCKS)]
    for block in (*freed, held):
        ctypes.memset(block, 1, BLOCK_BYTES)
    for block in freed:
        libc.free(block)
    before = own_kb()
    trim()
    assert before - own_kb() > BLOCKS * BLOCK_BYTES / 1024 / 2
    libc.free(held)
