"""The process group of one `anamnesis up`: its members, and ending them.

Every process that the supervisor starts carries `ANAMNESIS_LIFE=<uuid>` in its environment and passes it on: Dagster's
run workers are grandchildren, outside any POSIX process group of the supervisor.
"""

import contextlib
import os
import time
from collections.abc import Callable

import psutil

LIFE_VARIABLE = "ANAMNESIS_LIFE"
_QUIET_SCANS = 3
"""Consecutive empty scans after which a group counts as ended: a scan may miss a fork."""


def members(life: str) -> list[psutil.Process]:
    """Return live processes of this user that carry `life`, except the caller."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # ended, a zombie, or another user's
            if process.pid != os.getpid() and process.environ().get(LIFE_VARIABLE) == life:
                found.append(process)
    return found


def end_life(
    life: str,
    *,
    grace_s: float = 10.0,
    kill_s: float = 5.0,
    hurry: Callable[[], bool] = lambda: False,
    between_scans: Callable[[], object] = lambda: None,
) -> list[int]:
    """End every process of `life`: SIGTERM once each, SIGKILL after `grace_s` seconds or when `hurry()` is true.

    :param between_scans: called after each scan; a parent reaps its children there.
    :return: ids of processes that remain `kill_s` seconds after the first SIGKILL; normally none.
    """
    asked: set[psutil.Process] = set()
    kill_at = time.monotonic() + grace_s
    quiet = 0
    while True:
        found = members(life)
        between_scans()
        quiet = 0 if found else quiet + 1
        if quiet >= _QUIET_SCANS:
            return []
        if hurry():
            kill_at = min(kill_at, time.monotonic())
        if time.monotonic() >= kill_at + kill_s:
            return [process.pid for process in found]
        killing = time.monotonic() >= kill_at
        for process in found:
            with contextlib.suppress(psutil.Error):  # psutil refuses a reused process id
                if killing:
                    process.kill()
                elif process not in asked:
                    process.terminate()
        asked.update(found)
        time.sleep(0.05)
