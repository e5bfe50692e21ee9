"""Files of the home beside the store: salt, archive, and rules about other memory tools."""

import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from anamnesis_pipeline.errors import BadSetting, GiveUp
from anamnesis_pipeline.parsing.claude_logs.observers import ObserverRules, built_in, read_rules
from anamnesis_pipeline.parsing.redaction.masking import Redactor, load_salt
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.settings import Settings

log = logging.getLogger(__name__)


def make_private(folder: Path) -> None:
    """Create a folder of the home with access for its owner only; an existing one keeps its mode.

    :raises GiveUp: it cannot be created.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise GiveUp(f"{folder} cannot be created ({exc.strerror}); set ANAMNESIS_HOME") from exc


def home_problem(home: Path) -> str:
    """Return why this home cannot be used; empty: it can. A missing one is created for the check and removed again."""
    missing = [place for place in (home, *home.parents) if not os.path.lexists(place)]
    try:
        make_private(home)
        with tempfile.TemporaryFile(dir=home):
            return ""
    except GiveUp as exc:
        return str(exc)
    except OSError as exc:
        return f"{home} cannot be written ({exc.strerror}); change its mode or owner, or set ANAMNESIS_HOME"
    finally:
        for place in missing:
            with suppress(OSError):
                place.rmdir()


def open_redactor(settings: Settings) -> Redactor:
    """Return the redactor with this home's salt: equal secrets have equal masks.

    :raises GiveUp: the salt cannot be read or written.
    """
    make_private(settings.home)
    salt = settings.home / "redaction.salt"
    try:
        return Redactor(load_salt(salt))
    except OSError as exc:
        raise GiveUp(f"{salt} cannot be read or written ({exc.strerror}); check who owns it and its folder") from exc


def open_observers(settings: Settings) -> ObserverRules:
    """Return the rules for sessions of other memory tools. An unreadable rules file adds none; doctor reports it."""
    try:
        return read_rules(settings.home)
    except BadSetting as problem:
        log.warning("No rules are added: %s", problem)
        return built_in()


def open_archive(settings: Settings) -> Archive:
    """Return the archive of this home for the configured store."""
    memory = f"MongoDB {settings.mongo_database}" if settings.store == "mongo" else "SQLite"
    return Archive(settings.archive_dir, memory)
