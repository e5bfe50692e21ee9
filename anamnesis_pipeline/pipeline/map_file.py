"""The memory map as a file in the home; a process may read it while another replaces it.

It holds no text. Projects are identified by passages, whose names are read from the store on display, so the map
follows what is forgotten, renamed or private at once.
"""

import json
import os
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import StoreCorrupt

VERSION = 1
CENTRES = 5
"""Passages that identify a project, the most central first."""
NONE = -1
"""Placeholder where a project has fewer than `CENTRES` episodes."""
NEW_SHARE = 0.02
"""Share of added or removed episodes from which a map is remade automatically."""


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Points, each an episode, grouped by project, the largest project first.

    `places`: (n, 2), 0 to 65,535. `passages`: (n,), a passage of each episode. Project p has the points from
    `starts[p]` to `starts[p + 1]`, and `counts[p]` episodes; of more than `n` in all, a sample is drawn. `centres[p]`:
    see `CENTRES`. `episodes`: current ones with vectors when the map was made. `embedded`: all with vectors then.
    """

    space: str
    model_id: str
    made_at: datetime
    seconds: float
    landmarks: int
    episodes: int
    embedded: int
    places: NDArray[np.uint16]
    passages: NDArray[np.int64]
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    centres: NDArray[np.int64]

    @property
    def mark(self) -> str:
        """A unique id of this map."""
        return self.made_at.strftime("%Y%m%d%H%M%S%f")

    def is_of(self, point: int) -> int:
        """Return the index of a point's project."""
        return int(np.searchsorted(self.starts, point, side="right")) - 1

    def is_due(self, space: str, embedded: int) -> bool:
        """Return whether the map is outdated: made in another space, or before many episodes came or went."""
        return space != self.space or abs(embedded - self.embedded) > NEW_SHARE * max(self.embedded, 1)


_ARRAYS = ("places", "passages", "starts", "counts", "centres")
_FACTS = ("space", "model_id", "seconds", "landmarks", "episodes", "embedded")


def map_path(home: Path) -> Path:
    """Return the path of a home's map."""
    return home / "map" / "memory_map.npz"


def save_map(path: Path, made: MemoryMap) -> None:
    """Write the map to `path` atomically."""
    facts = {"version": VERSION, "made_at": made.made_at.isoformat(), **{name: getattr(made, name) for name in _FACTS}}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            arrays = {name: getattr(made, name) for name in _ARRAYS}
            np.savez(file, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_map(path: Path) -> MemoryMap | None:
    """Return the map at `path`; None if missing or of another version.

    :raises StoreCorrupt: the file is no valid map.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            facts = json.loads(held["facts"].tobytes())
            if facts["version"] != VERSION:
                return None
            arrays = {name: held[name] for name in _ARRAYS}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as exc:
        raise StoreCorrupt(f"{path} is damaged ({exc}); draw the map again, which replaces it") from exc
    return MemoryMap(
        made_at=datetime.fromisoformat(facts["made_at"]), **{name: facts[name] for name in _FACTS}, **arrays
    )
