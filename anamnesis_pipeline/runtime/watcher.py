"""Ends all processes of a group once its supervisor is gone, for any reason.

    python -m anamnesis_pipeline.runtime.watcher LIFE < the read end of a pipe

Only the supervisor holds the write end and never writes, so end of file means that it is gone, also after `kill -9`.
The watcher does not carry the group's id in its environment and so never ends itself.
"""

import os
import sys

from anamnesis_pipeline.runtime.process_group import end_life


def watch(life: str, pipe: int) -> list[int]:
    """Wait for the end of `pipe`, then end `life`; return the ids of remaining processes."""
    while os.read(pipe, 1):
        pass
    return end_life(life, grace_s=5.0)


if __name__ == "__main__":
    sys.exit(1 if watch(sys.argv[1], sys.stdin.fileno()) else 0)
