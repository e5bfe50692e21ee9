"""Machines whose files are a dictionary, for tests of what is decided about them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256

from anamnesis_pipeline.errors import AnamnesisError, SourceMissing, SourceUnreadable
from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.sources.base import Listing, Read, Survey, Wanted, is_archived
from anamnesis_pipeline.sources.specs import DOCUMENTS


@dataclass
class HostInMemory:
    """Absolute path -> content. `down`: what every call raises; `stall`: what a survey waits for."""

    machine: str
    files: dict[str, str] = field(default_factory=dict)
    down: AnamnesisError | Exception | None = None
    stall: threading.Event | None = None
    surveys: list[Sequence[Wanted]] = field(default_factory=list)
    answers: list[Survey | SourceUnreadable] = field(default_factory=list)
    home_folder: str = "/home/ann"

    def survey(self, wanted: Sequence[Wanted]) -> list[Survey | SourceUnreadable]:
        self.surveys.append(wanted)
        if self.stall is not None:
            self.stall.wait(60)
        if self.down is not None:
            raise self.down
        self.answers = [self._survey(each) for each in wanted]
        return self.answers

    def _survey(self, wanted: Wanted) -> Survey | SourceUnreadable:
        root = wanted.root.replace("~", self.home_folder, 1)
        inside = {path[len(root) + 1 :]: text for path, text in self.files.items() if path.startswith(f"{root}/")}
        if not inside:
            return SourceMissing(f"there is no {root}")
        above = f"{root.rpartition('/')[0]}/history.jsonl"
        if wanted.kind != DOCUMENTS:
            inside = {path: text for path, text in inside.items() if is_archived(path)}
            inside |= {"../history.jsonl": self.files[above]} if above in self.files else {}
        state = sha256(repr(sorted(inside.items())).encode()).hexdigest()
        if state == wanted.known:
            return Survey(root, None, state)
        ignores = {path: text for path, text in inside.items() if path.endswith("ignore")}
        return Survey(root, tuple(self._stat(path, text) for path, text in sorted(inside.items())), state, (), ignores)

    def _stat(self, path: str, text: str) -> FileStat:
        return FileStat(path, len(text.encode()), sum(text.encode()), 1, 1)

    def clock_skew_s(self) -> float | None:
        return 0.25

    def home(self) -> str:
        return self.home_folder

    def folders(self, root: str) -> list[str]:
        return sorted({path[len(root) + 1 :].partition("/")[0] for path in self.files if path.startswith(f"{root}/")})

    def list_files(self, root: str) -> Listing:
        if self.down is not None:
            raise self.down
        found = [(path[len(root) + 1 :], text) for path, text in self.files.items() if path.startswith(f"{root}/")]
        return Listing(tuple(self._stat(path, text) for path, text in sorted(found) if is_archived(path)))

    def file(self, root: str, name: str) -> FileStat | None:
        path = f"{root}/{name}"
        return self._stat(name, self.files[path]) if path in self.files else None

    def read(self, path: str, offset: int, length: int) -> bytes:
        if self.down is not None:
            raise self.down
        return self.files[path].encode()[offset : offset + length]

    @contextmanager
    def fetching(self, files: Sequence[tuple[str, int]]) -> Iterator[Read]:
        yield self.read
