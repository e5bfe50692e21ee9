"""An ingest that is interrupted and goes on, to compare with one that was not: what both remember, byte for byte."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from anamnesis_pipeline.model import Episode, EpisodeFilter, Part, Space, Variant
from anamnesis_pipeline.pipeline.archived import archived_lines
from anamnesis_pipeline.pipeline.embed import embed_sources
from anamnesis_pipeline.runtime import home_wiring
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Observation
from anamnesis_pipeline.store.session_model import SESSION_KIND
from anamnesis_tests.support.hashing_embedder import HashingEmbedder

ROOT = Path(__file__).parents[2]
SHARED_LOGS = (ROOT / "../shared/data/claude_logs/projects").resolve()
EXAMPLES = ROOT / "examples" / "claude_logs"
SPACE = Space("hashing", "hashing-32", 32)
ENOUGH_S = 600.0
"""Seconds in which any ingest here is done."""
CHILD = """
import sys
from pathlib import Path
from anamnesis_tests.pipeline.soaked import SoakedHome

home = SoakedHome(Path(sys.argv[1]), Path(sys.argv[2]))
print("ready", flush=True)
home.ingest()
"""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Everything that an ingest made of logs. Numbers that a store gives out itself are left out."""

    parts: dict[str, Part]
    owners: dict[str, tuple[str, str]]
    aliases: dict[str, str]
    occurrences: list[tuple[str, str, str, int]]
    episodes: dict[str, Episode]
    passages: dict[str, list[object]]
    observed: dict[str, set[Observation]]
    waiting: list[int]
    """Sessions that wait to be read for what they say and touch."""
    vectors: dict[tuple[str, int, Variant], bytes]
    archived: dict[tuple[str, str], list[str]]

    def differences(self, other: "Remembered") -> list[str]:
        """What differs: name, and the key of some of it."""
        return [
            line for name in self.__slots__ for line in _differences(name, getattr(self, name), getattr(other, name))
        ]


def _differences(name: str, ours: Any, theirs: Any) -> list[str]:
    if not isinstance(ours, dict):
        return [] if ours == theirs else [name]
    keys = [key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)]
    return [f"{name} of {key}: {_fields(ours.get(key), theirs.get(key))}" for key in keys[:3]]


def _fields(ours: Any, theirs: Any) -> str:
    if not is_dataclass(ours) or not is_dataclass(theirs):
        return "differs" if ours and theirs else "is missing"
    names = [field.name for field in fields(ours) if getattr(ours, field.name) != getattr(theirs, field.name)]
    return ", ".join(f"{n}: {str(getattr(ours, n))[:400]} / {str(getattr(theirs, n))[:400]}" for n in names)


class SoakedHome:
    """A home that ingests a log root, embeds with hashed words, and may be opened by many processes in turn."""

    def __init__(self, place: Path, logs: Path) -> None:
        self.place, self.logs = place, logs
        self.settings = Settings(home=place, log_roots=(logs,), machine="box")

    def ingest(self) -> None:
        """All steps of all sources, then the vectors."""
        with closing(wiring.open_store(self.settings)) as store:
            store.spaces.put(SPACE)
            pipeline = wiring.open_pipeline(self.settings, store)
            ingest_all(pipeline, wiring.discover_sources(self.settings).sources)
            sources = sorted(store.vectors.pending_sources(SPACE.key))
            embed_sources(store, SPACE.key, sources, HashingEmbedder(SPACE.dim), checkpoint_every=25)

    def ingest_killed_after(self, share: float, whole_s: float) -> bool:
        """Ingest in a process that is killed with -9 after so many seconds; False when it was done before."""
        command = [sys.executable, "-c", CHILD, str(self.place), str(self.logs)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                child.wait(share * whole_s)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
            _, errors = child.communicate()
        assert child.returncode in (0, -signal.SIGKILL), errors.decode()
        return child.returncode != 0

    def remembered(self, *, of_sessions: bool = True) -> Remembered:
        """What is stored now, with the records of sessions or without."""
        with closing(wiring.open_store(self.settings)) as store:
            parts = {part.part_id: part for part in _all_parts(store)}
            keys = sorted({segment.message_key for part in parts.values() for segment in part.segments})
            episodes = {episode.episode_id: episode for episode in _all_episodes(store, of_sessions=of_sessions)}
            stored = {key: store.episodes.passages_of(key) for key in episodes}
            found = store.messages.occurrences_of(keys)
            return Remembered(
                parts=parts,
                owners=store.messages.owners(keys),
                aliases=store.forgetting.aliases_of(keys),
                occurrences=sorted((key, o.message_key, o.path, o.line) for key, o in found),
                episodes=episodes,
                passages={key: [held.passage for held in passages] for key, passages in stored.items()},
                observed={
                    key: {replace(each, number=0) for each in store.observations.of_episode(key)} for key in episodes
                },
                waiting=[store.observations.unobserved_count(), store.entities.unlinked_count()],
                vectors={
                    (held.episode_id, held.passage.ordinal, variant): vector.tobytes()
                    for passages in stored.values()
                    for held in passages
                    for variant in SPACE.variants
                    for vector in store.vectors.get(SPACE.key, variant, [held.passage_id]).values()
                },
                archived={
                    (source.key, cursor.path): list(
                        archived_lines(store, home_wiring.open_archive(self.settings), source.key, cursor.path, 0)
                    )
                    for source in store.files.sources()
                    for cursor in store.files.cursors(source.key).values()
                },
            )


def fresh_home(undisturbed: SoakedHome, place: Path, logs: Path) -> SoakedHome:
    """An empty home that masks as the other one does."""
    place.mkdir(parents=True)
    shutil.copy(undisturbed.place / "redaction.salt", place)
    return SoakedHome(place, logs)


def undisturbed_home(place: Path, logs: Path) -> tuple[SoakedHome, Remembered, float]:
    """A home after one whole ingest in a process of its own, what it remembers, and how many seconds that took."""
    home = SoakedHome(place, logs)
    begun = time.monotonic()
    assert not home.ingest_killed_after(1, ENOUGH_S)
    return home, home.remembered(), time.monotonic() - begun


def _all_parts(store: Store) -> Iterator[Part]:
    last = ""
    while page := store.forgetting.parts_after(last, 500):
        yield from page
        last = page[-1].part_id


def _all_episodes(store: Store, *, of_sessions: bool) -> Iterator[Episode]:
    cursor: str | None = None
    while True:
        page = store.episodes.page(EpisodeFilter(hidden_kinds=() if of_sessions else (SESSION_KIND,)), 500, cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return
