"""What was freed goes back to the system. glibc keeps it, in an arena for each thread that asked, and under steady
searching those grew by a tenth within the hour (benchmarks/README.md, "Posts beside posts and searches").
"""

import ctypes
from contextlib import suppress

import anyio
from starlette.concurrency import run_in_threadpool

TRIMMED_EVERY_S = 60.0


async def keep_trimmed() -> None:
    """Give back once a minute, until cancelled: some 50 ms, without Python's lock."""
    while True:
        await anyio.sleep(TRIMMED_EVERY_S)
        await run_in_threadpool(trim)


def trim() -> None:
    """Give back what was freed. Other C libraries than glibc do so by themselves."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
