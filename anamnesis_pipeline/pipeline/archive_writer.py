"""The single memory that writes an archive. Two would destroy each other's lines: each overwrites the bytes behind the
last frame that it knows, and removes revisions that it does not know.
"""

import os
import secrets
from pathlib import Path

from anamnesis_pipeline.errors import GiveUp

MARK = "written-by"
"""Name of the file, in the archive's folder, that names the memory that writes it."""


def claim(root: Path, memory: str) -> None:
    """Make `memory` the writer of the archive below `root`, which exists.

    :raises GiveUp: another memory is the writer.
    """
    mark = root / MARK
    while (holder := writer_of(root)) != memory:
        if holder:
            raise GiveUp(
                f"the archive in {root} is written by another memory, {holder}, and this is {memory}; each would "
                f"overwrite lines of the other; {advice(root, holder)}"
            )
        _put_first(mark, memory)


def advice(root: Path, holder: str) -> str:
    """Return what the user can do where another memory writes. Pure."""
    return (
        f"to go on with what {holder} holds, copy it with `anamnesis migrate` into an empty place; for a memory of its "
        f"own set another ANAMNESIS_HOME; if {holder} was given up for good, remove {root / MARK}"
    )


def writer_of(root: Path) -> str:
    """Return the memory that writes the archive below `root`; empty: none has yet, or a copy of it may take over."""
    try:
        return (root / MARK).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def release(root: Path) -> None:
    """Let the next memory that writes become the writer: two memories know the same frames now."""
    (root / MARK).unlink(missing_ok=True)


def _put_first(mark: Path, memory: str) -> None:
    """Write the mark atomically, unless another process wrote one first."""
    draft = mark.with_name(f".{MARK}.{secrets.token_hex(6)}")
    try:
        with draft.open("x", encoding="utf-8") as out:
            out.write(f"{memory}\n")
            out.flush()
            os.fsync(out.fileno())
        mark.hardlink_to(draft)  # a rename would replace a mark that appeared meanwhile
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not mark.exists():
            draft.replace(mark)
    finally:
        draft.unlink(missing_ok=True)
