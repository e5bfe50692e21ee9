"""The map of memory as a file of the home, which any process may read while another writes it anew.

It holds no text: projects are known by passages of theirs, whose names are read of the store when somebody looks, so
that what is forgotten, renamed or private is so on the map at once.
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
"""Passages that a project is known by, those in its middle first."""
NONE = -1
"""Stands for a passage where a project has fewer episodes than `CENTRES`."""
NEW_SHARE = 0.02
"""Share of episodes that came or went, from which on a map is made anew without being asked for."""


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Points, each an episode, by project, the project with the most episodes first.

    `places`: (n, 2), 0 to 65,535. `passages`: (n,), a passage of each episode. The points of project p are those from
    `starts[p]` to `starts[p + 1]`; `counts[p]` episodes it has, of which more than `n` in all are not drawn.
    `centres[p]`: see `CENTRES`. `episodes`: current ones with vectors when the map was made; `embedded`: all that had
    vectors then.
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
        """Tells this map from every other."""
        return self.made_at.strftime("%Y%m%d%H%M%S%f")

    def is_of(self, point: int) -> int:
        """The project of a point, by its place in the order."""
        return int(np.searchsorted(self.starts, point, side="right")) - 1

    def is_due(self, space: str, embedded: int) -> bool:
        """Whether the memory is another one by now: in another space, or with many episodes that came or went."""
        return space != self.space or abs(embedded - self.embedded) > NEW_SHARE * max(self.embedded, 1)


_ARRAYS = ("places", "passages", "starts", "counts", "centres")
_FACTS = ("space", "model_id", "seconds", "landmarks", "episodes", "embedded")


def map_path(home: Path) -> Path:
    """Where the map of a home is."""
    return home / "map" / "memory_map.npz"


def save_map(path: Path, made: MemoryMap) -> None:
    """Put the map at `path` in one step."""
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
    """The map at `path`; None where there is none, or one of another version.

    :raises StoreCorrupt: what is there is no map.
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
        raise StoreCorrupt(f"{path} is damaged ({exc}); have the map made anew, which replaces it") from exc
    return MemoryMap(
        made_at=datetime.fromisoformat(facts["made_at"]), **{name: facts[name] for name in _FACTS}, **arrays
    )  # fmt: skip
