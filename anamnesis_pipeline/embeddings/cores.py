"""The cores for embedding, and the scheduling priority of its threads. Never imports torch."""

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
    """The priority of a pool's work relative to other processes on the same cores, enforced by the kernel."""

    QUERY = "query"
    """A client waits for the answer: nice 0."""
    LIVE = "live"
    """New episodes of the searched space: nice 5."""
    BACKGROUND = "background"
    """Everything else: runs only when a core is idle (SCHED_IDLE; nice 19 if that is refused)."""


def available_cores() -> list[int]:
    """Return the cores this process may use, independent of the calling thread."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(os.getpid()))
    return list(range(os.cpu_count() or 1))


def cores_for(percent: int, chosen: Sequence[int], available: Sequence[int]) -> list[int]:
    """Return the cores to embed on: those chosen, else the first `percent` % of the available ones, at least one.

    :raises BadSetting: a chosen core is not available; the text names the available ones.
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
    """Restrict the calling thread, and those it starts from now on, to these cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)  # on Linux 0 means the calling thread, not the process


def rank_this_thread(priority: Priority) -> None:
    """Set the priority of the calling thread, and of those it starts from now on. It is never raised again."""
    if priority is Priority.QUERY or not hasattr(os, "setpriority"):
        return
    if priority is Priority.BACKGROUND and _only_when_idle():
        return
    niceness = LIVE_NICENESS if priority is Priority.LIVE else LOWEST_NICENESS
    started_with = os.getpriority(os.PRIO_PROCESS, 0)  # of a process under `nice`; only root may go below it
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(niceness, started_with))


def run_ranked(work: Callable[[], T], cores: Sequence[int], priority: Priority) -> T:
    """Return the result of `work`; it and every thread that it starts run on these cores at this priority."""

    def settle() -> None:
        pin_this_thread(cores)
        rank_this_thread(priority)

    with ThreadPoolExecutor(1, initializer=settle) as thread:
        return thread.submit(work).result()


def _only_when_idle() -> bool:
    """Return whether the kernel accepted SCHED_IDLE for the thread; some containers refuse it."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        return False
    return True


def has_gpu() -> bool:
    """Return whether the kernel shows an NVIDIA GPU and torch is not a CPU-only build."""
    gpus = Path("/proc/driver/nvidia/gpus")
    if not gpus.is_dir() or not any(gpus.iterdir()):
        return False
    try:
        return not version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False
