"""What a run of all detectors costs over a large memory: the first one, and one when nothing is new.

    python benchmarks/dream.py [LOGS] [--sessions 2000] [--megabytes 1000] [--notes 5000] [--keep HOME]

Session files as in `many_sessions.py`, ingested up to episodes, and notes of seven words each of which shares some with
others. Detectors compare words alone: no model is loaded.
"""

import argparse
import random
import tempfile
from contextlib import closing
from pathlib import Path

from many_sessions import PROJECTS, ingest, timed, write_tree
from proc import resident_mib
from service import SHARED
from store_speed import words_of_logs

from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE
from anamnesis_pipeline.services.posted import note_of
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.proposals import DreamReport, Proposals
from anamnesis_pipeline.services.topic_edits import TopicEdits
from anamnesis_pipeline.services.topics import open_topics
from anamnesis_pipeline.services.wiring import open_pieces, open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

WORDS = 7


def add_notes(store: Store, writer: EpisodeWriter, notes: int) -> None:
    """Post so many notes, each of words from the logs."""
    rng, words = random.Random(7), sorted(set(words_of_logs(SHARED / "data/claude_logs")))[:3_000]
    projects = store.projects.all() or [f"project-{number}" for number in range(PROJECTS)]
    for number in range(notes):
        text = " ".join(rng.choice(words) for _ in range(WORDS))
        note = note_of(f"We use {text}", project=projects[number % len(projects)], instance="box", type="decision")
        writer.create(note.draft(), embed=False)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("logs", nargs="?", type=Path, default=SHARED / "data/claude_logs/projects")
    arguments.add_argument("--sessions", type=int, default=2_000)
    arguments.add_argument("--megabytes", type=float, default=1_000)
    arguments.add_argument("--notes", type=int, default=5_000)
    arguments.add_argument("--keep", type=Path, help="folder that keeps logs and home for the next run")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as base:
        root = Path(given.keep or base)
        settings = Settings(home=root / "home", log_roots=(root / "projects",), machine="box")
        is_new = not settings.home.exists()
        if is_new:
            write_tree(given.logs, root / "projects", given.sessions, given.megabytes)
        with closing(open_store(settings)) as store:
            writer = EpisodeWriter(store, open_redactor(settings).mask_text, open_pieces(), None)
            if is_new:
                ingest(settings, store)
                add_notes(store, writer, given.notes)
            for name in store.settings.all("dream."):
                store.settings.set(name, None)  # observe and detect everything again
            topics = TopicEdits(store, open_topics(settings), "box")
            measure(store, Proposals(store, writer, topics, NOTHING_PRIVATE), settings)


def measure(store: Store, proposals: Proposals, settings: Settings) -> None:
    """Run twice; prints a table."""
    counts = store.overview.counts()
    print(f"{counts.episodes:,} episodes, {counts.messages:,} messages")
    for name in ("first", "nothing new"):
        reports: list[DreamReport] = []
        _, wall, cpu = timed(lambda found=reports: len(found.append(proposals.dream(settings)) or found))
        made = sum(each.new + each.renewed for each in reports[0].proposed.values())
        print(f"{name}: {cpu:,.1f} s of CPU, {wall:,.1f} s; read {reports[0].observed:,}, {made:,} proposals")
    print(f"observations {store.observations.counts()}, {resident_mib():.0f} MiB in memory")


if __name__ == "__main__":
    main()
