"""What was freed goes back to the system. glibc keeps it, in an arena for each thread that asked, and under steady
searching those grow for hours (benchmarks/README.md, "Memory under steady searching").
"""

import ctypes
from contextlib import suppress

import anyio
from starlette.concurrency import run_in_threadpool

TRIMMED_EVERY_S = 60.0
ARENAS = 2
M_ARENA_MAX = -8
"""Of glibc's malloc.h."""


def share_arenas() -> None:
    """Let all threads of this process share a few arenas. To be called before they start."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


async def keep_trimmed() -> None:
    """Give back once a minute, until cancelled: some 50 ms, without Python's lock."""
    while True:
        await anyio.sleep(TRIMMED_EVERY_S)
        await run_in_threadpool(trim)


def trim() -> None:
    """Give back what was freed. Other C libraries than glibc do so by themselves."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
