"""Rolling episodes: the notes of one session, which grow while it runs and outlive its compactions."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from anamnesis_pipeline.errors import EpisodeConflict
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.services.posting import EpisodeDraft, EpisodeWriter
from anamnesis_pipeline.store.base import Store

ROLLING_KIND = "rolling"
NOTES_HANDLE, DIARY_HANDLE = "notes", "diary"
"""Author of a person's notes on a session; tag of a diary, and its author where it is of no project."""
MAX_HANDLE_CHARS = 60
MAX_CHARS = 30_000
"""Max characters of a rolling episode, so few that all its passages get vectors before an upsert is answered."""
KEPT_CHARS = 14_900
"""Characters of existing text kept when a delta would exceed MAX_CHARS; older text moves to a separate closed
episode."""
MAX_DELTA_CHARS = 15_000
"""So many that a delta with its time fits behind the text that is kept."""
BETWEEN = "\n\n"
"""Separator of deltas."""
MAX_TAGS = 50
ATTEMPTS = 8
"""Attempts to append a delta while others are appended at the same time."""

_STAMP = re.compile(r"(?:\A|(?<=\n\n))\[\d{4}-\d\d-\d\d \d\d:\d\d\] ")
"""Time of a delta, before its text."""
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Delta:
    """An addition to a session's notes. `project` empty: that in which the session began, if known."""

    handle: str
    session_id: str
    text: str
    machine: str
    tags: tuple[str, ...] = ()
    project: str = ""


@dataclass(frozen=True, slots=True)
class Rolled:
    """The rolling episode after an upsert. `closed`: id of the episode that received older text in this upsert."""

    episode: Episode
    created: bool
    appended: bool
    closed: str | None = None


def diary_entry(text: str, machine: str, project: str, now: datetime, session_id: str = "") -> Delta:
    """Return a note as an addition to the notes of a session; without one, to the diary of a project for a day (UTC).

    :param project: in which it is kept; empty with a session: that of the session.
    """
    if session_id:
        return Delta(NOTES_HANDLE, session_id, text, machine, project=project)
    # an id holds the first 8 characters of a session: a day
    handle = project[-MAX_HANDLE_CHARS:].strip() or DIARY_HANDLE
    return Delta(handle, f"{now:%Y%m%d}-{DIARY_HANDLE}", text, machine, (DIARY_HANDLE,), project)


def rolling_id(machine: str, handle: str, session_id: str) -> str:
    """Return the id of a session's rolling episode."""
    pieces = (_NOT_IN_ID.sub("-", machine), _NOT_IN_ID.sub("-", handle), _NOT_IN_ID.sub("-", session_id[:8]))
    return "ep_rolling_" + "_".join(pieces)


def upsert(store: Store, poster: EpisodeWriter, delta: Delta, clock: Callable[[], datetime]) -> Rolled:
    """Append a delta, with its time (UTC), to its session's rolling episode, created if missing. Text that the episode
    already ends with changes nothing. The next search finds it.

    :raises EpisodeConflict: another session has this id, or other deltas come too fast.
    :raises Excluded: a rule excludes its project or its text.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(EpisodeConflict):  # another delta was written between reading and writing
            return _upsert(store, poster, delta, clock())
    return _upsert(store, poster, delta, clock())


def _upsert(store: Store, poster: EpisodeWriter, delta: Delta, now: datetime) -> Rolled:
    episode_id = rolling_id(delta.machine, delta.handle, delta.session_id)
    known = store.episodes.get([episode_id]).get(episode_id)
    text = poster.masked(delta.text.strip())
    entry = f"[{now:%Y-%m-%d %H:%M}] {text}"
    if known is None:
        project = delta.project or (store.projects.session_start(delta.session_id) or ("", ""))[0]
        about = f" on {project}" if project else ""
        draft = EpisodeDraft(  # its summary never changes, so appends leave earlier passages unchanged
            summary=f"Rolling notes of {delta.handle}{about}, session {delta.session_id[:8]} on {delta.machine}.",
            instance=delta.machine,
            project=project,
            raw_exchange=entry,
            tags=delta.tags,
            timestamp=now,
            episode_id=episode_id,
            kind=ROLLING_KIND,
            machine=delta.machine,
            session_id=delta.session_id,
            metadata={"handle": delta.handle, "began": now.isoformat(), "closed": 0},
        )
        episode, created = poster.create(draft)
        return Rolled(episode, created, True)
    # the id holds only the start of a session id
    theirs = (known.session_id, known.machine, known.metadata.get("handle"))
    if theirs != (delta.session_id, delta.machine, delta.handle):
        raise EpisodeConflict(
            f"episode {episode_id} is of session {known.session_id} on {known.machine}; choose another handle"
        )
    tags = tuple(dict.fromkeys((*known.tags, *map(poster.masked, delta.tags))))[:MAX_TAGS]
    said, told = _STAMP.sub("", known.raw_exchange), _STAMP.sub("", text)
    if said == told or said.endswith(BETWEEN + told):
        same = tags == known.tags
        return Rolled(known if same else _changed(poster, known, {"tags": tags}), False, False)
    kept, closed = _made_room(poster, known, len(entry))
    changes = {"raw_exchange": kept + BETWEEN + entry if kept else entry, "tags": tags, "timestamp": now}
    if closed is not None:
        changes["metadata"] = {**known.metadata, "closed": _closed(known) + 1}
    return Rolled(_changed(poster, known, changes), False, True, closed)


def _changed(poster: EpisodeWriter, known: Episode, changes: dict[str, object]) -> Episode:
    return poster.patch(known.episode_id, changes, expected_hash=known.content_hash)


def _made_room(poster: EpisodeWriter, known: Episode, chars: int) -> tuple[str, str | None]:
    """Return the text to keep, and the id of the closed episode if older text had to move.

    The split depends on the stored text alone: a retry after a failure finds it done.
    """
    text = known.raw_exchange
    if len(text) + len(BETWEEN) + chars <= MAX_CHARS:
        return text, None
    low = max(0, len(text) - KEPT_CHARS)
    between = text.find(BETWEEN, low)  # cut at the boundary of a delta, if there is one
    cut = between + len(BETWEEN) if between >= 0 else low
    number = _closed(known) + 1
    sibling = EpisodeDraft(
        summary=f"{known.summary.removesuffix('.')}, part {number}.",
        instance=known.instance,
        project=known.project,
        raw_exchange=text[:cut].strip(),
        tags=known.tags,
        timestamp=known.timestamp,
        episode_id=f"{known.episode_id}_{number}",
        kind=ROLLING_KIND,
        machine=known.machine,
        session_id=known.session_id,
        metadata={"rolling": known.episode_id, "part": number},
    )
    poster.create(sibling)
    return text[cut:].strip(), sibling.episode_id


def _closed(known: Episode) -> int:
    number = known.metadata.get("closed", 0)
    return number if isinstance(number, int) else 0
