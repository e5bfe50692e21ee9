"""Questions by thing, as every way in asks them: `blame` a file or symbol, `fix` an error, `how` to run something.

Answers are JSON bodies, and the same as lines for a terminal or a model. No LLM is asked.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from typing_extensions import TypedDict

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.quoting import label
from anamnesis_pipeline.services.folder_project import projects_called
from anamnesis_pipeline.services.ground import Grounds, Origin, SessionAsked, asked_of
from anamnesis_pipeline.services.rendering import origin_body, utc_text
from anamnesis_pipeline.services.schemas import GroundOut, OriginOut
from anamnesis_pipeline.services.things import Invocation, Mended, Touched, Where, invocations, mended, touched
from anamnesis_pipeline.store.base import Store

MAX_ITEMS = 20
DEFAULT_ITEMS = 5
MAX_ASKED_CHARS = 20_000
EPISODES_NAMED = 5


class Asked(StrEnum):
    """What is asked about a thing."""

    BLAME = "blame"
    FIX = "fix"
    HOW = "how"


_NOTHING = {
    Asked.BLAME: "Nothing is recorded of this file or symbol: no session changed it or decided about it. "
    "Search for its name in words",
    Asked.FIX: "Nothing is recorded of this error. Search for its main words",
    Asked.HOW: "Nothing is recorded of this: no run of it succeeded. Search for the task in words",
}
_ASKS = re.compile(rf"\s*({'|'.join(Asked)}):\s*(\S.*)", re.DOTALL)


class SessionToldOut(OriginOut):
    """A session that answers, with the episodes to read. `at`: when, null if unknown."""

    session_id: str
    project: str
    machine: str
    at: str | None
    episode_ids: list[str]


class BlameItemOut(SessionToldOut):
    """What a session did to a file or symbol. `names`: as it was called; `edits`: calls that edited it, 0 if it only
    decided about it; `why`: what was asked before the last edit; `why_first`: before the first one, empty if that is
    the same. `decided` and `rejected` there, verbatim.
    """

    names: list[str]
    edits: int
    why: str
    why_first: str
    decided: list[str]
    rejected: list[str]


class FixItemOut(SessionToldOut):
    """An error in a session: its `line`, the `command` that failed, what was `tried` in vain, what `ended` it (both
    empty: not known to have ended), and how Claude `told` it; all verbatim.
    """

    line: str
    command: str
    tried: list[str]
    ended: list[str]
    told: str


class HowItemOut(SessionToldOut):
    """A `script` that succeeded: `ran_in` which folder, what Claude `said` that it does, and how often it succeeded and
    failed. The session is the last one in which it succeeded.
    """

    script: str
    ran_in: str
    said: str
    succeeded: int
    failed: int


class FailedOut(TypedDict):
    """A script that never succeeded."""

    script: str
    ran_in: str
    failed: int


class BlameOut(TypedDict):
    """Sessions that changed a file or symbol, newest first, then those that only decided about it. `nothing`: why
    there are none, in a sentence.
    """

    asked: str
    items: list[BlameItemOut]
    nothing: str | None


class FixOut(TypedDict):
    """Sessions with an error, those that ended it first. `nothing`: why there are none, in a sentence."""

    asked: str
    items: list[FixItemOut]
    nothing: str | None


class HowOut(TypedDict):
    """Scripts that succeeded, the most fitting first, and `rejected`: those that never did. `nothing`: why there are
    none, in a sentence.
    """

    asked: str
    items: list[HowItemOut]
    rejected: list[FailedOut]
    nothing: str | None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an answer in words: ours, then a quote of what is stored."""

    ours: str
    quote: str = ""


def question_of(text: str) -> tuple[Asked, str] | None:
    """Return what a query asks about a thing: `blame: src/api.py`; None: it is another query. Pure."""
    found = _ASKS.fullmatch(text)
    return (Asked(found[1]), found[2].strip()) if found else None


def nothing_of(kind: Asked, where: Where | None) -> str:
    """Return the sentence that answers where nothing is recorded. Pure.

    :param where: None: there is no such project.
    """
    if where is None:
        return "No project has this name."
    return f"{_NOTHING[kind]}{', or ask in all projects' if where.projects else ''}."


class Asking:
    """Answers questions about things."""

    def __init__(self, store: Store, private: Private, here: str) -> None:
        """:param here: the name of this machine, whose disk tells what changed since."""
        self._store, self._private = store, private
        self._grounds = Grounds(store, private, here)

    def where(self, project: str | None, included: Collection[str]) -> Where | None:
        """Return where to look: in a project, or in all that are not private. None: there is no such project."""
        projects = projects_called(self._store, project) if project else ()
        return None if project and not projects else Where(projects, self._private, tuple(included))

    def answer(self, kind: Asked, asked: str, where: Where | None, most: int) -> BlameOut | FixOut | HowOut:
        """Return the body of any of the answers."""
        match kind:
            case Asked.BLAME:
                return self.blame(asked, where, most)
            case Asked.FIX:
                return self.fix(asked, where, most)
            case Asked.HOW:
                return self.how(asked, where, most)

    def blame(self, asked: str, where: Where | None, most: int) -> BlameOut:
        """Return who changed a file or symbol, and why."""
        found = touched(self._store, asked, where, most) if where else []
        told = self._told([(each.session_id, each.episode_ids, each.last) for each in found])
        items = [_blame_item(each, its) for each, its in zip(found, told, strict=True)]
        return {"asked": asked, "items": items, "nothing": None if items else nothing_of(Asked.BLAME, where)}

    def fix(self, asked: str, where: Where | None, most: int) -> FixOut:
        """Return where an error occurred, and what ended it."""
        found = mended(self._store, asked, where, most) if where else []
        told = self._told([(each.session_id, [each.episode_id], each.at) for each in found])
        items = [_fix_item(each, its) for each, its in zip(found, told, strict=True)]
        return {"asked": asked, "items": items, "nothing": None if items else nothing_of(Asked.FIX, where)}

    def how(self, asked: str, where: Where | None, most: int) -> HowOut:
        """Return how a command or task is run."""
        rows = invocations(self._store, asked, where, most) if where else []
        found = [each for each in rows if each.succeeded]
        told = self._told([(each.session_id, [each.episode_id], each.last) for each in found])
        items = [_how_item(each, its) for each, its in zip(found, told, strict=True)]
        rejected: list[FailedOut] = [
            {"script": each.script, "ran_in": each.folder, "failed": each.failed} for each in rows if not each.succeeded
        ]
        nothing = None if items else nothing_of(Asked.HOW, where)
        return {"asked": asked, "items": items, "rejected": rejected, "nothing": nothing}

    def _told(self, found: Sequence[tuple[str, Sequence[str], datetime | None]]) -> list[SessionToldOut]:
        """Return, for each session with its episodes, what all answers tell of it."""
        episodes = self._store.episodes.get([each for _, ids, _ in found for each in ids[:1]])
        sessions = {
            session: of
            for session, ids, _ in found
            if ids and ids[0] in episodes and (of := asked_of(episodes[ids[0]])) is not None
        }
        origins = self._grounds.of(sessions.values())
        return [
            _session_told(session, ids, at, episodes, sessions.get(session), origins.get(session, Origin()))
            for session, ids, at in found
        ]


def _session_told(
    session: str,
    ids: Sequence[str],
    at: datetime | None,
    episodes: Mapping[str, Episode],
    of: SessionAsked | None,
    origin: Origin,
) -> SessionToldOut:
    first = episodes.get(ids[0]) if ids else None
    return {
        "session_id": session,
        "project": first.project if first else "",
        "machine": of.machine if of else "",
        "at": utc_text(at) if at else None,
        "episode_ids": list(ids[:EPISODES_NAMED]),
        **origin_body(origin),
    }


def _blame_item(found: Touched, told: SessionToldOut) -> BlameItemOut:
    return {
        **told,
        "names": list(found.names),
        "edits": found.edits,
        "why": found.why,
        "why_first": found.why_first,
        "decided": list(found.decided),
        "rejected": list(found.rejected),
    }


def _fix_item(found: Mended, told: SessionToldOut) -> FixItemOut:
    return {
        **told,
        "line": found.line,
        "command": found.command,
        "tried": list(found.tried),
        "ended": list(found.ended),
        "told": found.told,
    }


def _how_item(found: Invocation, told: SessionToldOut) -> HowItemOut:
    return {
        **told,
        "script": found.script,
        "ran_in": found.folder,
        "said": found.said,
        "succeeded": found.succeeded,
        "failed": found.failed,
    }


# --- in words --------------------------------------------------------------------------------------------


def blocks_of(kind: Asked, body: Mapping[str, Any]) -> Iterator[list[Line]]:
    """Yield an answer in words: a block of lines for each item, its heading first. Pure."""
    if body["nothing"]:
        yield [Line(body["nothing"])]
    for item in body["items"]:
        lines = {Asked.BLAME: _blame_lines, Asked.FIX: _fix_lines, Asked.HOW: _how_lines}[kind](item)
        yield [*lines, *_origin_lines(item)]
    if failed := body.get("rejected"):
        yield [Line("Rejected, never succeeded here:"), *(Line("failed", each["script"]) for each in failed)]


def changed_since(ground: GroundOut) -> str:
    """Return `3 of 7 files changed since`. Pure."""
    as_of = "" if ground["by"] == "disk" else ", as crawled last"
    return f"{ground['changed']} of {counted(ground['looked_at'], 'file')} changed since{as_of}"


def resume_text(origin: Mapping[str, Any]) -> str:
    """Return `claude --resume 4f0c2b1e in /home/ann/shop on laptop`; empty where nothing resumes it. Pure."""
    if "resume" not in origin:
        return ""
    places = [("in", origin.get("folder")), ("on", origin["machine"])]
    return " ".join([origin["resume"], *(f"{word} {place}" for word, place in places if place)])


def _head(item: Mapping[str, Any], told: str, quote: str) -> Line:
    when = item["at"][:16].replace("T", " ") if item["at"] else "at an unknown time"
    return Line(f"{when} {label(item['project']) or '(no project)'}, {told}", quote)


def _blame_lines(item: Mapping[str, Any]) -> Iterator[Line]:
    done = counted(item["edits"], "edit") if item["edits"] else "decided only"
    yield _head(item, done, ", ".join(item["names"]))
    yield from (Line("asked", each) for each in (item["why_first"], item["why"]) if each)
    yield from (Line("decided", each) for each in item["decided"])
    yield from (Line("rejected", each) for each in item["rejected"])


def _fix_lines(item: Mapping[str, Any]) -> Iterator[Line]:
    is_over = item["ended"] or item["told"]
    yield _head(item, "it ended" if is_over else "not known to have ended", item["line"])
    if item["command"]:
        yield Line("failed", item["command"])
    yield from (Line("tried, did not end it", each) for each in item["tried"])
    yield from (Line("ended it", each) for each in item["ended"])
    if item["told"]:
        yield Line("told", item["told"])


def _how_lines(item: Mapping[str, Any]) -> Iterator[Line]:
    failed = f", failed {counted(item['failed'], 'time')}" if item["failed"] else ""
    yield _head(item, f"succeeded {counted(item['succeeded'], 'time')}{failed}", item["script"])
    if item["ran_in"]:
        yield Line("in", item["ran_in"])
    if item["said"]:
        yield Line("to", item["said"])


def _origin_lines(item: Mapping[str, Any]) -> Iterator[Line]:
    if command := resume_text(item):
        yield Line("to go on", command)
    if "ground" in item:
        yield Line(changed_since(item["ground"]))
