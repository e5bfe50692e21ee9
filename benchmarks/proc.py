"""Threads and memory of this process, as Linux tells them in /proc."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path


def cpu_ticks() -> dict[int, int]:
    """Thread -> user and system time in hundredths of a second, of this process."""
    return {int(tid): sum(map(int, _stat(tid)[11:13])) for tid in os.listdir("/proc/self/task")}


def _stat(tid: str) -> list[str]:
    """The fields of a thread's stat file from the third on."""
    return Path(f"/proc/self/task/{tid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()


def last_core_of(name: str) -> int:
    """The core that a thread ran on last."""
    worker = next(thread for thread in threading.enumerate() if thread.name == name)
    return int(_stat(str(worker.native_id))[36])


def pinned_to(core: int, tids: Iterable[int]) -> set[int]:
    """Those threads that may run on this core only."""
    return {tid for tid in tids if os.sched_getaffinity(tid) == {core}}


def resident_mib() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def peak_mib() -> float:
    """The most memory that this process ever had (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
