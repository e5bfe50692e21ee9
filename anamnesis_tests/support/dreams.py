"""A memory in which detectors find something, and its proposals."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from anamnesis_pipeline.knowledge.topic_store import project_folder
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services.posted import note_of
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.proposals import Proposals
from anamnesis_pipeline.services.topic_edits import TopicEdits
from anamnesis_pipeline.services.topics import open_topics
from anamnesis_pipeline.services.wiring import open_pieces
from anamnesis_pipeline.store.knowledge_model import Proposal
from anamnesis_tests.support.archived_logs import DAY, OTHER, SESSION, Home
from anamnesis_tests.support.worked_sessions import migration

PROJECT = "/code/shop"


def proposals_of(home: Home, private: Private = NOTHING_PRIVATE) -> Proposals:
    writer = EpisodeWriter(home.store, open_redactor(home.settings).mask_text, open_pieces(), None)
    topics = TopicEdits(home.store, open_topics(home.settings), home.settings.machine)
    return Proposals(home.store, writer, topics, private)


def migrate(home: Home, session: str, at: int) -> None:
    """A session in which the same error is met, and fixed."""
    home.write(migration(session, at), f"-code-shop/{session}.jsonl")


def post(home: Home, text: str, at: int, project: str = PROJECT, type: Any = "decision", **fields: Any) -> Episode:
    draft = note_of(text, project=project, instance="box", type=type).model_copy(update=fields).draft()
    episode, _ = EpisodeWriter(home.store, open_redactor(home.settings).mask_text, open_pieces(), None).create(draft)
    return episode


def dreamt(home: Home, **settings: Any) -> list[Proposal]:
    proposals = proposals_of(home)
    proposals.dream(home.settings.model_copy(update=settings))
    return proposals.listed(limit=100)


def fill(home: Home) -> None:
    """Two sessions with the same error, two notes that say the same, and one that another corrects."""
    migrate(home, SESSION, 1)
    migrate(home, OTHER, 10_000)
    home.ingest()
    for number, text in enumerate(
        (
            "The staging database runs on port 5433",
            "Staging database: port 5433",
            "We deploy on Fridays",
            "We deploy on Mondays",
        )
    ):
        post(home, text, number, timestamp=DAY + timedelta(minutes=number))


def lessons_of(home: Home) -> Path:
    return home.settings.topics_dir / project_folder(PROJECT) / "lessons.md"
