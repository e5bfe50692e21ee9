"""Tool implementations: validated arguments -> HTTP API calls -> text. All state is in the sidecar."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import anyio
from pydantic import ValidationError

from anamnesis_pipeline.errors import GiveUp, RetryLater
from anamnesis_pipeline.parsing.text.wording import NOTHING_GOOD
from anamnesis_pipeline.search.quoting import id_label, label
from anamnesis_pipeline.search.time_bounds import bound_texts
from anamnesis_pipeline.sidecar.mcp import texts
from anamnesis_pipeline.sidecar.mcp.client import Memory
from anamnesis_pipeline.sidecar.mcp.definitions import ARGUMENTS, Forget, Read, Remember, Search, Status, Timeline

ALL, CURRENT = "all", "current"
CALLS_AT_ONCE, PATIENCE_S = 16, 20.0
ALIKE = 0.93
"""Cosine similarity from which a new note is reported as similar to an existing one."""
ALIKE_CHARS = 2_000
SUMMARY_CHARS = 600
INSTANCE = "claude-code"
"""Author of posted notes."""
NO_PROJECT = "general"
MASKED = "[REDACTED:"
"""Prefix of a masked secret."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Project of a call; None: everything except private data of other projects. `note` is a message about it. `own` is
    the project of the client's folder, also if another one or all are requested. `is_new`: it has no data. `around`:
    keys of the private sources that contain the folder.
    """

    project: str | None
    note: str = ""
    own: str | None = None
    is_new: bool = False
    around: tuple[str, ...] = ()

    @property
    def include_private(self) -> list[str]:
        """Private projects and sources that are included."""
        return [*([self.own] if self.own else []), *self.around]


class Tools:
    """The six tools over one memory. Limited concurrency: excess calls wait, then fail."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._places = anyio.CapacityLimiter(CALLS_AT_ONCE)

    async def call(self, name: str, given: Mapping[str, Any] | None, folder: str | None) -> str:
        """Return the text answer of a tool.

        :param folder: the client's working directory, as a path of its machine; None: unknown.
        :raises GiveUp: no such tool, wrong arguments, or the service refuses.
        :raises RetryLater: too many concurrent calls, or the service is busy.
        :raises ServiceUnreachable: the sidecar does not answer.
        """
        arguments = checked(name, given)
        work: dict[str, Callable[[Any, str | None], Awaitable[str]]] = {
            "search": self._search,
            "read": self._read,
            "timeline": self._timeline,
            "remember": self._remember,
            "forget": self._forget,
            "status": self._status,
        }
        try:
            with anyio.fail_after(PATIENCE_S):
                await self._places.acquire()
        except TimeoutError as exc:
            raise RetryLater("too many calls of the memory at once; try again in a few seconds") from exc
        try:
            return await work[name](arguments, folder)
        finally:
            self._places.release()

    # --- tools ---------------------------------------------------------------------------------------------

    async def _search(self, asked: Search, folder: str | None) -> str:
        if not asked.query.strip():
            recent = Timeline(project=asked.project, since=asked.since, until=asked.until, limit=max(asked.limit, 1))
            return await self._timeline(recent, folder, kinds=asked.kind)
        scope = await self._scope(asked.project, folder)
        body = {
            "query": asked.query,
            "top_k": asked.limit,
            "mode": asked.mode,
            "profile": asked.rank,
            "project": scope.project,
            "include_private": scope.include_private,
            "kind": asked.kind,
            "quote_tokens": texts.QUOTE_TOKENS,
            "include": ["short_id"],
            **bound_texts(asked.since, asked.until, datetime.now(UTC), UTC),
        }
        answer = await self._memory.call("POST", "/api/episodes/search", body=body)
        first = [NOTHING_GOOD] if answer.get("weak") else []
        common = texts.places_of_all(answer["results"])
        hits = [texts.hit(rank, found, common) for rank, found in enumerate(answer["results"], 1)]
        hits = [f"(all of {' · '.join(common)})", *hits] if common else hits
        problems = [f"incomplete: {texts.flat(problem)}" for problem in answer["degraded"]]
        if not hits:
            hits = [_nothing(scope)]
        elif scope.project:
            hits.append(f'(project {texts.flat(scope.project)}; project="all" searches everything)')
        return texts.block([*filter(None, [scope.note]), *first, *hits, *problems])

    async def _read(self, asked: Read, folder: str | None) -> str:
        del folder
        lines: list[str] = []
        for episode_id in dict.fromkeys(asked.ids):
            path = _path(episode_id)
            try:
                record = await self._memory.call("GET", path, params={"include": "raw"})
            except GiveUp as exc:
                raise GiveUp(f"{texts.flat(episode_id)[:60]}: {exc}; `search` and `timeline` show ids") from exc
            lines += [*([""] if lines else []), *texts.record_lines(record)]
            if asked.around:
                lines += await self._neighbours(record, asked.around)
        pages = texts.pages(lines)
        if asked.page > len(pages):
            raise GiveUp(f"there is no page {asked.page}; the last one is {len(pages)}")
        more = f"; page={asked.page + 1} goes on" if asked.page < len(pages) else ""
        return texts.block([*pages[asked.page - 1], f"(page {asked.page} of {len(pages)}{more})"])

    async def _timeline(self, asked: Timeline, folder: str | None, kinds: list[str] | None = None) -> str:
        scope = Scope(None) if asked.session and not asked.project else await self._scope(asked.project, folder)
        session, private = await self._whole_session(asked.session) if asked.session else (None, None)
        params = {
            "project": scope.project,
            "include_private": private or scope.include_private,
            "session_id": session,
            **bound_texts(asked.since, asked.until, datetime.now(UTC), UTC),
            "order": asked.order,
            "limit": asked.limit,
            "cursor": asked.cursor,
            "kind": kinds or None,
            "include_superseded": True if asked.session else None,
            "include": "short_id",
            "by_session": None if asked.session or kinds else True,
        }
        page = await self._memory.call("GET", "/api/episodes", params=params)
        lines = [texts.session_line(record) or texts.line(record) for record in page["items"]]
        lines = lines or [_nothing(scope, asked.session)]
        if page["next_cursor"]:
            lines.append(f"(more: cursor={page['next_cursor']})")
        return texts.block([*filter(None, [scope.note]), f"({asked.order} first, times in UTC)", *lines])

    async def _remember(self, asked: Remember, folder: str | None) -> str:
        scope = await self._scope(asked.project, folder)
        project = scope.project or (scope.own if scope.is_new else None) or NO_PROJECT
        alike = await self._alike(asked.text, project, scope.include_private)
        is_short = len(asked.text) <= SUMMARY_CHARS
        summary = asked.text if is_short else asked.text[:SUMMARY_CHARS] + "…"
        rest = [*([] if is_short else [asked.text]), *([f"Why: {asked.why}"] if asked.why else [])]
        tags = list(dict.fromkeys([*asked.tags, *(["correction"] if asked.type == "correction" else [])]))
        body = {
            "summary": summary,
            "raw_exchange": "\n\n".join(rest),
            "instance": INSTANCE,
            "project": project,
            "kind": asked.type,
            "tags": tags,
            "metadata": {"type": asked.type, "why": asked.why},
            "episode_id": _note_id(project, asked),
        }
        stored = await self._memory.call("POST", "/api/episodes", body=body, params={"include": "raw"})
        note = stored["episode_id"]
        if alike == id_label(note):
            return f"Kept already in project {texts.flat(project)} as {asked.type}, id {note}."
        said = f"Kept in project {texts.flat(project)} as {asked.type}, id {note}."
        if MASKED in json.dumps(stored) and MASKED not in asked.text + asked.why:
            said += " A secret in it is masked."
        return said + (f" Much like {alike}: read it, and forget the one that no longer holds." if alike else "")

    async def _forget(self, asked: Forget, folder: str | None) -> str:
        del folder
        found = [await self._memory.call("GET", _path(name), accept={404}) for name in asked.ids]
        ids = [record.get("episode_id", name) for record, name in zip(found, asked.ids, strict=True)]
        body = {"ids": ids, "dry_run": not asked.confirm}
        report = await self._memory.call("POST", "/api/forget", body=body)
        counts = f"{report['episodes']} records, {report['messages']} messages, {report['lines']} lines of logs"
        if not report["episodes"]:
            return "Nothing of these ids is stored; `search` shows ids."
        if asked.confirm:
            rest = [texts.flat(text) for text in (*report["remains"], *report["problems"])]
            still = ["Copies may remain in:", *(texts.QUOTE + text for text in rest)] if rest else []
            return texts.block([f"Gone for good: {counts}.", *still])
        shown = [
            f"id {id_label(r['episode_id'])} {texts.QUOTE}{texts.flat(r['summary'])[:200]}" for r in report["shown"]
        ]
        ask = "Nothing is gone yet. Ask the user; if agreed, call again with confirm=true."
        return texts.block([f"Would go for good: {counts}.", *shown[:10], ask])

    async def _status(self, asked: Status, folder: str | None) -> str:
        lines = await self._health()
        if asked.ingest:
            started = await self._memory.call("POST", "/api/jsonl/ingest", body={})
            lines.append(f"reading new logs of {len(started['sources'])} sources now")
        if asked.project is None:
            return "\n".join(lines)
        params = {"cwd": folder} if asked.project == CURRENT else {"project": asked.project}
        if asked.project == ALL:
            raise GiveUp("a hand-off is of one project: `current`, or its name")
        if asked.project == CURRENT and not folder:
            raise GiveUp("the client does not say which folder it works in; name the project")
        handoff = await self._memory.call("GET", "/api/handoff", params=params)
        lines.append(handoff["text"])
        searched = [
            f"{texts.when(q['asked_at'])} {texts.QUOTE}{texts.flat(q['query'])[:200]}" for q in handoff["searched"]
        ]
        return "\n".join([*lines, *([texts.block(["Searched lately:", *searched])] if searched else [])])

    # --- details -------------------------------------------------------------------------------------------

    async def _scope(self, project: str | None, folder: str | None) -> Scope:
        """Return the requested project, else that of the client's folder if it has data."""
        if project and project not in {ALL, CURRENT}:
            return Scope(project)
        found = await self._memory.call("GET", "/api/projects/current", params={"cwd": folder})
        around = tuple(found["private_sources"])
        if found["known"] and project != ALL:
            return Scope(found["project"], own=found["project"], around=around)
        if project == ALL or not folder:
            return Scope(None, own=found["project"], around=around)
        name = texts.flat(found["project"])
        note = f"(nothing is known of the current project {name}: all are covered)"
        return Scope(None, note, own=found["project"], is_new=True, around=around)

    async def _whole_session(self, name: str) -> tuple[str, list[str]]:
        """Return the id of the session with this id or prefix, and its project: its content in other private projects
        stays hidden. Return `name` itself if there is none.
        """
        try:
            path = f"/api/sessions/{quote(name, safe='')}"
            session = (await self._memory.call("GET", path, params={"limit": 1}))["session"]
        except GiveUp:
            return name, []
        ids: list[str] = [*session["session_ids"], session["session_id"]]
        return next((each for each in ids if each.startswith(name)), ids[-1]), [session["project"] or NO_PROJECT]

    async def _alike(self, text: str, project: str, include_private: list[str]) -> str | None:
        """Return the id of a nearly identical note; None: there is none, or the search fails."""
        body = {
            "query": text[:ALIKE_CHARS],
            "top_k": 1,
            "mode": "semantic",
            "project": project,
            "track": False,
            "include_private": include_private,
        }
        try:
            found = (await self._memory.call("POST", "/api/episodes/search", body=body))["results"]
        except (GiveUp, RetryLater):
            return None
        is_alike = found and (found[0]["similarity_score"] or 0.0) >= ALIKE
        return id_label(found[0]["episode_id"]) if is_alike else None

    async def _neighbours(self, record: Mapping[str, Any], around: int) -> list[str]:
        """Return the records just before and after one in its session, else in its project. The session's content in
        another private project stays hidden: only the record was requested.
        """
        session, at = record["source"]["session_id"], record["timestamp"]
        if not session and not record["project"]:
            return []
        own = {"session_id": session, "include_private": [record["project"] or NO_PROJECT]}
        among = own if session else {"project": record["project"]}
        params = {**among, "limit": around + 1, "include": "short_id"}
        before = await self._memory.call("GET", "/api/episodes", params={**params, "until": at})
        after = await self._memory.call("GET", "/api/episodes", params={**params, "since": at, "order": "oldest"})

        def listed(items: list[dict[str, Any]]) -> list[str]:
            others = [item for item in items if item["episode_id"] != record["episode_id"]]
            return [text for item in others[:around] for text in texts.line(item).split("\n")]

        earlier = listed(before["items"][:around][::-1])
        return [*(["before it:", *earlier] if earlier else []), *_titled("after it:", listed(after["items"]))]

    async def _health(self) -> list[str]:
        """Report readiness, stored and embedded passages, and degraded components."""
        ready = await self._memory.call("GET", "/ready", accept={503})
        lines = [f"memory: degraded, {texts.flat(text)}" for text in ready.get("missing") or []] or ["memory: ready"]
        if covered := ready.get("coverage"):
            share = covered["embedded"] / covered["stored"] if covered["stored"] else 1.0
            lines.append(f"{covered['stored']:,} passages, {share:.0%} of them searched by meaning, all by their words")
        newest = (await self._memory.call("GET", "/api/episodes", params={"limit": 1}))["items"]
        if newest:
            lines.append(f"newest record: {texts.when(newest[0]['timestamp'])} UTC, {label(newest[0]['project'])}")
        return lines


def checked(name: str, given: Mapping[str, Any] | None) -> Any:
    """Validate the arguments of a tool.

    :raises GiveUp: no such tool, or invalid arguments, by name.
    """
    model = ARGUMENTS.get(name)
    if model is None:
        raise GiveUp(f"there is no tool {texts.flat(name)[:60]!r}; the tools are: {', '.join(ARGUMENTS)}")
    try:
        return model.model_validate(dict(given or {}))
    except ValidationError as exc:
        wrong = [f"{'.'.join(map(str, error['loc'])) or name}: {_problem(error)}" for error in exc.errors()[:5]]
        known = ", ".join(model.model_fields)
        raise GiveUp(f"{'; '.join(texts.flat(text)[:200] for text in wrong)} (arguments: {known})") from exc


def _problem(error: Mapping[str, Any]) -> str:
    return "is not a known argument" if error["type"] == "extra_forbidden" else str(error["msg"])


def _titled(title: str, lines: list[str]) -> list[str]:
    return [title, *lines] if lines else []


def _nothing(scope: Scope, session: str | None = None) -> str:
    if session:
        return "Nothing of this session; its whole id is wanted, which `read` of one of its records shows."
    if scope.project:
        return f'Nothing in project {texts.flat(scope.project)}. project="all" covers everything.'
    return "Nothing. Other words, or mode=exact for literal text, may find it; else nothing is known."


def _note_id(project: str, note: Remember) -> str:
    """Return an id derived from the content: storing a note twice keeps one record."""
    content = "\0".join([project, note.type, note.text, note.why, *note.tags])
    return f"ep_note_{hashlib.sha256(content.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _path(episode_id: str) -> str:
    """Return the path of a record; ids may contain any printable character."""
    if episode_id.startswith("/") or any(part in {"", ".", ".."} for part in episode_id.split("/")):
        raise GiveUp(f"{texts.flat(episode_id)[:60]!r} is no id; `search` and `timeline` show ids")
    return f"/api/episodes/{quote(episode_id, safe='/')}"
