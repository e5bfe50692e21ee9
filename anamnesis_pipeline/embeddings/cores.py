"""Which cores embedding uses, and how the kernel ranks its threads. Never imports torch."""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from anamnesis_pipeline.errors import BadSetting

T = TypeVar("T")

LIVE_NICENESS = 5
LOWEST_NICENESS = 19


class Priority(Enum):
    """How urgent a pool's work is beside that of other processes on the same cores. The kernel keeps the order."""

    QUERY = "query"
    """Somebody waits for the answer: nice 0."""
    LIVE = "live"
    """New episodes of the space that is searched: nice 5."""
    BACKGROUND = "background"
    """Everything else: runs only when a core has nothing else to do (SCHED_IDLE; nice 19 where that is refused)."""


def available_cores() -> list[int]:
    """The cores this process may use, whichever thread asks."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(os.getpid()))
    return list(range(os.cpu_count() or 1))


def cores_for(percent: int, chosen: Sequence[int], available: Sequence[int]) -> list[int]:
    """The cores to embed on: those chosen, else the first `percent` % of the available ones, at least one.

    :raises BadSetting: a chosen core is not available; the text names those that are.
    """
    if missing := sorted(set(chosen) - set(available)):
        raise BadSetting(
            f"embed_cores names {_listed(missing)}, but this process may use only {_listed(available)}; name some of "
            "these, or none, and embed_cpu_pct is the share of them"
        )
    if chosen:
        return list(dict.fromkeys(chosen))
    return list(available[: max(1, round(len(available) * percent / 100))])


def _listed(cores: Iterable[int]) -> str:
    return "cores " + ", ".join(map(str, cores))


def pin_this_thread(cores: Iterable[int]) -> None:
    """Let the calling thread, and those it starts from now on, run on these cores only."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)  # on Linux 0 means the calling thread, not the process


def rank_this_thread(priority: Priority) -> None:
    """Rank the calling thread, and those it starts from now on. A rank is never raised again."""
    if priority is Priority.QUERY or not hasattr(os, "setpriority"):
        return
    if priority is Priority.BACKGROUND and _only_when_idle():
        return
    niceness = LIVE_NICENESS if priority is Priority.LIVE else LOWEST_NICENESS
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def run_ranked(work: Callable[[], T], cores: Sequence[int], priority: Priority) -> T:
    """What `work` returns; it, and every thread that it starts, runs on these cores at this rank."""

    def settle() -> None:
        pin_this_thread(cores)
        rank_this_thread(priority)

    with ThreadPoolExecutor(1, initializer=settle) as thread:
        return thread.submit(work).result()


def _only_when_idle() -> bool:
    """Whether the kernel took the thread into SCHED_IDLE; some containers refuse it."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        return False
    return True


def has_gpu() -> bool:
    """Whether the kernel shows an NVIDIA GPU and torch is not built for processors alone."""
    gpus = Path("/proc/driver/nvidia/gpus")
    return gpus.is_dir() and any(gpus.iterdir()) and not _is_cpu_build()


def _is_cpu_build() -> bool:
    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return True
