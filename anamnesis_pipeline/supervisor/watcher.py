"""Ends every process of one life as soon as its supervisor is gone, however it went.

    python -m anamnesis_pipeline.supervisor.watcher LIFE < the read end of a pipe

Only the supervisor holds the write end and it never writes, so the end of the file means that it is gone, also
after `kill -9`. The watcher does not carry the life's id in its own environment and so never ends itself.
"""

import os
import sys

from anamnesis_pipeline.supervisor.life import end_life


def watch(life: str, pipe: int) -> list[int]:
    """Wait for the end of `pipe`, then end `life`; returns the ids of processes that would not end."""
    while os.read(pipe, 1):
        pass
    return end_life(life, grace_s=5.0)


if __name__ == "__main__":
    sys.exit(1 if watch(sys.argv[1], sys.stdin.fileno()) else 0)
