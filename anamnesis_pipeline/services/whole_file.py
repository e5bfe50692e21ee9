"""Atomic creation of a file: readers see all of it or nothing, and no other file is overwritten."""

import errno
import fcntl
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from anamnesis_pipeline.errors import AnamnesisError, GiveUp, StoreFull

UNFINISHED = ".unfinished"


@contextmanager
def appearing(out: Path) -> Iterator[BinaryIO]:
    """Write a file that appears at `out`, synced to disk, when the block ends; if the block raises, nothing appears.

    :raises GiveUp: the file exists, before or at the end; or it cannot be written.
    :raises StoreFull: the disk is full.
    """
    if out.exists():
        raise _present(out)
    # A unique name: another container's process with the same id may write beside this one.
    draft = out.with_name(f"{out.name}.{uuid4().hex[:12]}{UNFINISHED}")
    try:
        # Remove drafts left by killed processes: each may be as large as the whole.
        for abandoned in out.parent.glob(f"{glob.escape(out.name)}.*{UNFINISHED}"):
            with suppress(OSError), abandoned.open("rb") as left:
                if _is_locked(left):
                    abandoned.unlink()
        with new_file(draft) as file:
            _is_locked(file)  # until the file is closed or the process dies
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, out)  # a rename would overwrite a file that appeared meanwhile
        except FileExistsError as exc:
            raise _present(out) from exc
        except OSError:  # a file system without links
            if out.exists():
                raise _present(out) from None
            draft.replace(out)
    except OSError as problem:
        raise no_room(problem, out) from problem
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _is_locked(file: BinaryIO) -> bool:
    """Lock an open file; return whether that succeeded."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # also on file systems without locks
        return False
    return True


def _present(out: Path) -> GiveUp:
    return GiveUp(f"{out} is there already, and is not written over; choose another name")


def new_file(path: Path) -> BinaryIO:
    """Return a new empty file that only its owner may read."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def no_room(problem: OSError, path: Path) -> AnamnesisError:
    """Return our error for an OS error while writing `path`."""
    if problem.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoreFull(f"no room to write {path}: {problem.strerror}; free some, then try again")
    return GiveUp(f"{path} cannot be written: {problem.strerror or problem}")
