"""A real store, archive and log folder in one home, for what reads and rewrites the archive."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import zstandard

from anamnesis_pipeline.model import Episode, EpisodeFilter, Source
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.pipeline.archived import archived_lines
from anamnesis_pipeline.runtime import home_wiring
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.forget import ForgetReport
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.rescan import Rescan, RescanReport, Rules
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.discovery import discover
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import SESSION_KIND

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
SESSION = "11111111-2222-4333-8444-555555555555"
OTHER = "66666666-2222-4333-8444-555555555555"
FOLDER = "-code-shop"
OF_LOGS = EpisodeFilter(hidden_kinds=(SESSION_KIND,))


def unmasked(text: str) -> tuple[str, Counter[str]]:
    """A rule set that knows no secret."""
    return text, Counter()


def record(role: str, text: str, number: int, session: str = SESSION, **fields: Any) -> dict[str, Any]:
    """A log record said `number` minutes after noon of 2026-03-01."""
    content = text if role == "user" else [{"type": "text", "text": text}]
    return {
        "type": role,
        "uuid": f"{session[:4]}-u{number}",
        "sessionId": session,
        "cwd": "/code/shop",
        "version": "2.1",
        "timestamp": (DAY + timedelta(minutes=number)).isoformat(),
        "message": {"role": role, "id": f"{session[:4]}-m{number}", "content": content},
    } | fields


def meets_a_lock(pid: int) -> bool:
    """Whether a process waits for a locked file."""
    return re.search(rf"-> FLOCK .* {pid} ", Path("/proc/locks").read_text()) is not None


class Home:
    """What one `ANAMNESIS_HOME` holds, with its log folder beside it."""

    def __init__(self, base: Path, store: Store | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.base, self.logs = base, base / "projects"
        ours = {"home": base / "home", "log_roots": (self.logs,), "machine": "box"}
        self.settings = Settings(**ours | dict(settings or {}))
        self.store = store or wiring.open_store(self.settings)
        self.archive = home_wiring.open_archive(self.settings)
        self.host = LocalHost("box")

    def write(self, lines: Iterable[dict[str, Any] | str], path: str = f"{FOLDER}/{SESSION}.jsonl") -> Path:
        """Append to a log below the log root."""
        file = self.logs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as out:
            for line in lines:
                out.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
        return file

    def say(self, *texts: str, at: int = 1, session: str = SESSION, path: str = "", **fields: Any) -> Path:
        """What a user and Claude say in turn, a minute apart."""
        said = [record(("user", "assistant")[n % 2], text, at + n, session, **fields) for n, text in enumerate(texts)]
        return self.write(said, path or f"{FOLDER}/{session}.jsonl")

    def ingest(self, mask: Callable[[str], tuple[str, Counter[str]]] | None = None) -> list[Episode]:
        """Everything up to episodes; returns them, newest first."""
        pipeline = wiring.open_pipeline(self.settings, self.store)
        if mask is not None:
            pipeline = replace(pipeline, mask=mask)
        ingest_all(pipeline, discover(self.host, [str(self.logs)]).sources)
        return self.episodes()

    def episodes(self) -> list[Episode]:
        """Of what was said: without records of sessions."""
        return self.store.episodes.page(OF_LOGS, 100).items

    def source(self, folder: str = FOLDER) -> Source:
        return next(s for s in self.store.files.sources() if s.folder == folder)

    def archived(self, path: str = f"{SESSION}.jsonl", generation: int = 0, folder: str = FOLDER) -> list[str]:
        return list(archived_lines(self.store, self.archive, self.source(folder).key, path, generation))

    def finds(self, word: str) -> set[str]:
        return {hit.episode_id for hit in self.store.text.matching([word], 50, OF_LOGS)}

    def holding(self, word: str) -> str:
        """The id of the one episode whose own text holds the word."""
        (found,) = [e.episode_id for e in self.episodes() if word in e.raw_exchange]
        return found

    def forget(self, word: str = "", **asked: Any) -> ForgetReport:
        """Forget the episode that holds a word, or what is asked."""
        wanted = {"ids": (self.holding(word),)} if word else asked
        return wiring.open_forgetter(self.settings, self.store).forget(ForgetRequest(**wanted))

    def preview(self, **asked: Any) -> ForgetReport:
        return wiring.open_forgetter(self.settings, self.store).preview(ForgetRequest(**asked))

    def rescan(self, redactor: Redactor, *, dry_run: bool = False) -> RescanReport:
        """Mask anew all that is stored."""
        rules = Rules(redactor.mask_text, redactor.mask_line, "1")
        return Rescan(self.store, self.archive, rules, dry_run=dry_run).run()

    def left(self, *words: str) -> list[str]:
        """Those of the words that can be read in some file."""
        data = self.bytes().lower()
        return [word for word in words if word.lower().encode() in data]

    def bytes(self) -> bytes:
        """Everything in every file of the home, archives uncompressed, texts packed in the database unpacked."""
        data = b"".join(file.read_bytes() for file in sorted(self.settings.home.rglob("*")) if file.is_file())
        for file in [*self.settings.home.rglob("*.zst"), *self.settings.home.rglob("catalog")]:
            with file.open("rb") as stream:
                data += zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True).read()
        parts = self.store.forgetting.parts_after("", 10_000)
        return data + "".join(s.text for part in parts for s in part.segments).encode("utf-8", "replace")

    def close(self) -> None:
        self.store.close()
