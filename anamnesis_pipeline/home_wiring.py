"""What lies in the home beside the store: its salt and its archive."""

from pathlib import Path

from anamnesis_pipeline.exchanges.redaction import Redactor, load_salt
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.archive import Archive


def make_private(folder: Path) -> None:
    """Create a folder that only its owner may read; one that exists keeps its mode."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_redactor(settings: Settings) -> Redactor:
    """Masks secrets with this home's salt, so that one secret has one mask."""
    make_private(settings.home)
    return Redactor(load_salt(settings.home / "redaction.salt"))


def open_archive(settings: Settings) -> Archive:
    """The archive of this home, for the store that is set."""
    memory = f"MongoDB {settings.mongo_database}" if settings.store == "mongo" else "SQLite"
    return Archive(settings.archive_dir, memory)
