"""Load of the service's host. Values that the system does not report are None, never zero."""

import csv
import os
import platform
import shutil
import subprocess
import time
from contextlib import suppress

import psutil
from typing_extensions import TypedDict

MEASURED_S = 0.2
"""Seconds over which CPU use is measured: the system only counts busy time."""
GPU_ASKED_S = 2.0
_GPU_FIELDS = ("name", "utilization.gpu", "memory.used", "memory.total")
_MIB = 1024 * 1024


class LoadOut(TypedDict):
    """Processes that run or want to, on the average of so many minutes."""

    one: float
    five: float
    fifteen: float


class GpuOut(TypedDict):
    """A GPU; None: it does not say."""

    name: str
    percent: float | None
    memory_used_bytes: int | None
    memory_bytes: int | None


class HostOut(TypedDict):
    """The machine. `cpu_percent` of all its processors together; `gpus`: None where none can be asked about."""

    name: str
    system: str
    cpus: int | None
    cpu_percent: float | None
    load: LoadOut | None
    memory_bytes: int | None
    memory_available_bytes: int | None
    uptime_s: float | None
    gpus: list[GpuOut] | None


def host_state() -> HostOut:
    """Return the current state; takes `MEASURED_S`, and up to `GPU_ASKED_S` more with a GPU."""
    memory = uptime = percent = load = None
    with suppress(OSError, RuntimeError):
        memory = psutil.virtual_memory()
    with suppress(OSError, RuntimeError):
        uptime = round(time.time() - psutil.boot_time(), 1)
    with suppress(OSError, RuntimeError):
        percent = psutil.cpu_percent(MEASURED_S)
    with suppress(OSError):
        one, five, fifteen = os.getloadavg()
        load = LoadOut(one=round(one, 2), five=round(five, 2), fifteen=round(fifteen, 2))
    return {
        "name": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "cpus": psutil.cpu_count(),
        "cpu_percent": percent,
        "load": load,
        "memory_bytes": memory.total if memory else None,
        "memory_available_bytes": memory.available if memory else None,
        "uptime_s": uptime,
        "gpus": _gpus(),
    }


def _gpus() -> list[GpuOut] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=GPU_ASKED_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return gpus_of(done.stdout)


def gpus_of(told: str) -> list[GpuOut]:
    """Parse the CSV output of `nvidia-smi --query-gpu`. Pure."""
    rows = [row for row in csv.reader(told.splitlines(), skipinitialspace=True) if len(row) == len(_GPU_FIELDS)]
    return [
        {
            "name": name,
            "percent": _number(busy),
            "memory_used_bytes": _bytes(used),
            "memory_bytes": _bytes(total),
        }
        for name, busy, used, total in rows
    ]


def _number(text: str) -> float | None:
    """Return the number; None for `[N/A]` and the like."""
    try:
        return float(text)
    except ValueError:
        return None


def _bytes(mib: str) -> int | None:
    number = _number(mib)
    return None if number is None else int(number * _MIB)
