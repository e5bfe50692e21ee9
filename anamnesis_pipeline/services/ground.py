"""Where sessions were, how to resume them, and how many of the files that they edited have changed since they ended.

Files are looked at on this machine's disk if the session was here, else as they were crawled last. What was not looked
at is not counted.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Literal

from anamnesis_pipeline.entities.naming import root_of
from anamnesis_pipeline.model import Episode, Source
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.trust import is_logged
from anamnesis_pipeline.services.schemas import GroundOut
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.sessions import SessionSpan

MAX_FILES = 50
"""Files of a session that are looked at, those edited last."""
MAX_EDITS = 400
"""Edits of a session among which its files are found."""
SLACK = timedelta(minutes=1)
"""Between the time of a call in the log and that of the file which it wrote."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was seen. `at`: its time; of one that is gone, that of its folder, or its last time."""

    at: datetime
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """A session that an answer quotes. `folder`: where it began; empty: unknown, or not to be shown. `command`: what
    resumes it; empty: nothing does. `ground`: what became of its files; None: nothing is known.
    """

    folder: str = ""
    command: str = ""
    ground: GroundOut | None = None


@dataclass(frozen=True, slots=True)
class SessionAsked:
    """A session that an answer quotes. `resumed`: the session that goes on instead of it, else itself; empty: none."""

    session_id: str
    project: str
    machine: str
    resumed: str


def asked_of(episode: Episode) -> SessionAsked | None:
    """Return the session of an episode; None for what is of no session's log."""
    if not is_logged(episode):
        return None
    later = episode.metadata.get("continued_in")
    resumed = later if isinstance(later, str) and later else episode.session_id
    is_gone = episode.metadata.get("session_log") == "missing"
    return SessionAsked(episode.session_id, episode.project, episode.machine, "" if is_gone else resumed)


def disk_says(edited: Mapping[str, datetime], ended: datetime, seen: Mapping[str, Seen]) -> tuple[int, int]:
    """Return how many files changed after a session, and of how many that is known, from a disk. Pure.

    One that is gone counts if its folder changed after the session; nothing is known where none of the files is there.

    :param edited: file -> when the session edited it last.
    """
    if all(each.is_gone for each in seen.values()):
        return 0, 0
    known = [each for name, each in seen.items() if name in edited and not (each.is_gone and each.at <= ended + SLACK)]
    return sum(each.at > ended + SLACK for each in known), len(known)


def crawl_says(edited: Mapping[str, datetime], ended: datetime, seen: Mapping[str, Seen]) -> tuple[int, int]:
    """Return the same from what was crawled. A file counts that was crawled after the session had edited it. Pure."""
    known = [each for name, each in seen.items() if name in edited and each.at >= edited[name] - SLACK]
    return sum(each.is_gone or each.at > ended + SLACK for each in known), len(known)


class Grounds:
    """Looks at what became of the files of sessions."""

    def __init__(self, store: Store, private: Private, here: str) -> None:
        """:param here: the name of this machine."""
        self._store, self._private, self._here = store, private, here

    def of_episodes(self, episodes: Iterable[Episode]) -> dict[str, Origin]:
        """Return session -> its origin, for those of these episodes."""
        return self.of(filter(None, map(asked_of, episodes)))

    def of(self, asked: Iterable[SessionAsked]) -> dict[str, Origin]:
        """Return session -> its origin."""
        sessions = {each.session_id: each for each in asked}
        spans = self._store.sessions.spans(sessions)
        edits = self._store.entities.edited(spans, MAX_EDITS)
        gone = self._store.sessions.without_log(each.resumed for each in sessions.values() if each.resumed)
        sessions = {name: replace(e, resumed="") if e.resumed in gone else e for name, e in sessions.items()}
        return {
            name: self._origin(each, spans[name], edits.get(name, {})) if name in spans else Origin()
            for name, each in sessions.items()
        }

    def _origin(self, asked: SessionAsked, span: SessionSpan, edited: Mapping[str, datetime]) -> Origin:
        is_shown = span.project == asked.project or not self._private.is_of(span.project)
        latest = sorted(edited, key=edited.__getitem__, reverse=True)[:MAX_FILES]
        return Origin(
            span.folder if is_shown else "",
            f"claude --resume {asked.resumed}" if asked.resumed else "",
            self._ground(asked, span, {name: edited[name] for name in latest}, len(edited)),
        )

    def _ground(
        self, asked: SessionAsked, span: SessionSpan, edited: Mapping[str, datetime], number: int
    ) -> GroundOut | None:
        inside = [name for name in edited if not name.startswith(("/", "~")) and ".." not in name.split("/")]
        root = _root(span)
        if not inside or not root:
            return None
        by: Literal["disk", "crawl"] = "disk"
        seen = on_disk(root, inside) if asked.machine == self._here else {}
        changed, looked_at = disk_says(edited, span.ended, seen)
        if not looked_at:
            by, (changed, looked_at) = "crawl", crawl_says(edited, span.ended, self._crawled(asked, root, inside))
        return {"changed": changed, "looked_at": looked_at, "edited": number, "by": by} if looked_at else None

    def _crawled(self, asked: SessionAsked, root: str, names: Collection[str]) -> dict[str, Seen]:
        """Return the files that were crawled from the session's machine, without those of private sources."""
        found: dict[str, Seen] = {}
        for source in filter(self._is_open, self._store.files.sources()):
            folder = folder_of(source).rstrip("/")
            for name in names if source.machine == asked.machine else ():
                if (path := f"{root}/{name}").startswith(f"{folder}/"):
                    cursor = self._store.files.cursor(source.key, path.removeprefix(f"{folder}/"))
                    if cursor is not None and not cursor.unread:
                        found[name] = Seen(datetime.fromtimestamp(cursor.mtime_ns / 1e9, UTC), cursor.gone)
        return found

    def _is_open(self, source: Source) -> bool:
        return source.kind == DOCUMENTS and source.key not in self._private.keys


def on_disk(root: str, names: Collection[str]) -> dict[str, Seen]:
    """Return the files below a folder of this machine; links are not followed, and none leads outside."""
    found: dict[str, Seen] = {}
    whole = os.path.realpath(root)
    for name in names if os.path.isdir(root) else ():
        path = f"{root}/{name}"
        folder = os.path.dirname(path)
        if not f"{os.path.realpath(folder)}/".startswith(f"{whole.rstrip('/')}/"):
            continue
        try:
            is_gone, facts = False, os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            is_gone, facts = True, os.lstat(folder)
        except (OSError, ValueError):
            continue
        found[name] = Seen(datetime.fromtimestamp(facts.st_mtime, UTC), is_gone)
    return found


def _root(span: SessionSpan) -> str:
    """Return the root of the working copy that a session began in; empty: unknown."""
    wanted = root_of(span.project, [span.folder])
    place = PurePosixPath(span.folder)
    return next((str(each) for each in (place, *place.parents) if project_label(str(each)) == wanted), "")
