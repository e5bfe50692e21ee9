"""Return of freed memory to the system. glibc keeps it in an arena per thread, and under steady searching these grow
for hours (benchmarks/README.md, "Memory under steady searching").
"""

import ctypes
from contextlib import suppress

import anyio
from starlette.concurrency import run_in_threadpool

TRIMMED_EVERY_S = 60.0
ARENAS = 2
M_ARENA_MAX = -8
"""From glibc's malloc.h."""


def share_arenas() -> None:
    """Limit the number of arenas for all threads of this process. Call it before they start."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


async def keep_trimmed() -> None:
    """Trim once a minute, until cancelled: about 50 ms, without the GIL."""
    while True:
        await anyio.sleep(TRIMMED_EVERY_S)
        await run_in_threadpool(trim)


def trim() -> None:
    """Return freed memory to the system. C libraries other than glibc do so automatically."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
