"""The six tools over the services of the sidecar: validated arguments -> service calls -> text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio.from_thread
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from anamnesis_pipeline.errors import AnamnesisError, EpisodeNotFound, GiveUp, IdAmbiguous, InvalidEpisode, RetryLater
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.parsing.text.wording import NOTHING_GOOD, describe_problem
from anamnesis_pipeline.search.handoff import MAX_ITEMS
from anamnesis_pipeline.search.quoting import id_label, label
from anamnesis_pipeline.search.time_bounds import bound_texts, bounds_of
from anamnesis_pipeline.services.asking import Asked, Asking, blocks_of, question_of
from anamnesis_pipeline.services.context import ContextRequest
from anamnesis_pipeline.services.fields import check_id, field_errors
from anamnesis_pipeline.services.folder_project import current_project, project_meant
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.handoff import HANDOFF_TOKENS
from anamnesis_pipeline.services.log_ingest import JsonlControl
from anamnesis_pipeline.services.posted import NO_PROJECT, note_of, posted_body
from anamnesis_pipeline.services.proposals import waiting_of
from anamnesis_pipeline.services.reminder import knowledge_body, waiting_text
from anamnesis_pipeline.services.rendering import episode_body, utc_text
from anamnesis_pipeline.services.schemas import EpisodeOut, Include, SearchIn, SearchOut
from anamnesis_pipeline.services.searching import answer_question, count_opened, note_reading
from anamnesis_pipeline.services.session_reading import find_session, neighbours, timeline_page
from anamnesis_pipeline.services.short_ids import find_episode, short_ids
from anamnesis_pipeline.services.wiring import effective_settings, open_forgetter
from anamnesis_pipeline.sidecar.admission import Admission, DiskSpace
from anamnesis_pipeline.sidecar.mcp import texts
from anamnesis_pipeline.sidecar.mcp.client import refusal_of
from anamnesis_pipeline.sidecar.mcp.definitions import ARGUMENTS, Forget, Read, Remember, Search, Status, Timeline
from anamnesis_pipeline.sidecar.observation import log_unexpected
from anamnesis_pipeline.sidecar.problems import noted, sentence
from anamnesis_pipeline.sidecar.routes.context import maker_of
from anamnesis_pipeline.sidecar.routes.query import keep_question
from anamnesis_pipeline.sidecar.services import Services, readiness

ALL, CURRENT = "all", "current"
CALLS_AT_ONCE, CALLS_WAITING, PATIENCE_S = 16, 64, 20.0
INSTANCE = "claude-code"
"""Author of posted notes."""
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


class LocalTools:
    """The tools in this process. Calls run in threads of their own; excess ones wait, then fail. A search also passes
    the admission of the searches over HTTP.
    """

    def __init__(self, services: Services, admission: Admission, room: DiskSpace) -> None:
        self._services = services
        self._admission = admission
        self._room = room
        self._calls = Admission(CALLS_AT_ONCE, CALLS_WAITING, PATIENCE_S)

    async def call(self, name: str, given: Mapping[str, Any] | None, folder: str | None) -> str:
        """Return the text answer of a tool.

        :param folder: the client's working directory, as a path of this machine; None: unknown.
        :raises GiveUp: no such tool, wrong arguments, or the call is refused.
        :raises RetryLater: too many concurrent calls, or a service is busy.
        """
        arguments = checked(name, given)
        try:
            return await self._calls.run(lambda: self._answer(arguments, folder))
        except HTTPException as exc:
            raise RetryLater("too many calls of the memory at once; try again in a few seconds") from exc

    def _answer(self, asked: Any, folder: str | None) -> str:
        """Run one tool in this thread. A refusal reads as the problem that HTTP clients get."""
        try:
            match asked:
                case Search():
                    return self._search(asked, folder)
                case Read():
                    return self._read(asked)
                case Timeline():
                    return self._timeline(asked, folder)
                case Remember():
                    return self._remember(asked, folder)
                case Forget():
                    return self._forget(asked)
                case _:
                    return self._status(asked, folder)
        except Exception as exc:
            raise self._refusal(exc) from exc

    def _refusal(self, exc: Exception) -> AnamnesisError:
        if type(exc) is GiveUp:  # written for the model
            return exc
        match exc:
            case ValidationError():
                fields = field_errors(exc.errors())
                return GiveUp(describe_problem(422, {"detail": sentence(fields), "errors": fields}))
            case HTTPException():
                return refusal_of(exc.status_code, exc.detail)
            case AnamnesisError() if (status := noted(exc, self._room)) != 500:
                return refusal_of(status, str(exc))
        log_unexpected(exc)
        return refusal_of(500, "this should not happen; the log names the place")

    # --- tools ---------------------------------------------------------------------------------------------

    def _search(self, asked: Search, folder: str | None) -> str:
        if not asked.query.strip():
            recent = Timeline(project=asked.project, since=asked.since, until=asked.until, limit=asked.limit)
            return self._timeline(recent, folder, tuple(asked.kind))
        scope = Scope(None) if asked.session and not asked.project else self._scope(asked.project, folder)
        if (named := question_of(asked.query)) is not None:
            return self._about(*named, scope, asked.limit)
        session, include_private = None, scope.include_private
        if asked.session:
            session, include_private = self._whole_session(asked.session, include_private)
        as_of, _ = bounds_of(asked.as_of, None, datetime.now(UTC), UTC)
        answer = self._found(
            {
                "query": asked.query,
                "top_k": asked.limit,
                "mode": asked.mode,
                "profile": asked.rank,
                "project": scope.project,
                "include_private": include_private,
                "kind": asked.kind,
                "type": asked.type,
                "session_id": session,
                "as_of": utc_text(as_of) if as_of is not None else None,
                "quote_tokens": texts.QUOTE_TOKENS,
                "include": ["short_id"],
                **bound_texts(asked.since, asked.until, datetime.now(UTC), UTC),
            }
        )
        first = [NOTHING_GOOD] if answer["weak"] else []
        common = texts.places_of_all(answer["results"])
        hits = [texts.hit(rank, found, common) for rank, found in enumerate(answer["results"], 1)]
        hits = [f"(all of {' · '.join(common)})", *hits] if common else hits
        problems = [f"incomplete: {texts.flat(problem)}" for problem in answer["degraded"]]
        hits += texts.origins(answer["results"])
        if not hits:
            hits = [_nothing(scope)]
        elif scope.project:
            hits.append(f'(project {texts.flat(scope.project)}; project="all" searches everything)')
        return texts.block([*filter(None, [scope.note]), *first, *hits, *problems])

    def _about(self, kind: Asked, asked: str, scope: Scope, limit: int) -> str:
        """Return what is recorded of a thing."""
        services = self._services
        asking = Asking(services.store, services.engine.private(), services.settings.machine)
        body = asking.answer(kind, asked, asking.where(scope.project, scope.include_private), limit)
        blocks = list(blocks_of(kind, body))
        told = [texts.told(rank, each) for rank, each in enumerate(blocks, 1)] if body["items"] else []
        nothing = [] if told else [texts.told(0, each).removeprefix("0. ") for each in blocks]
        of = [f'(project {texts.flat(scope.project)}; project="all" covers everything)'] if scope.project else []
        return texts.block([*filter(None, [scope.note]), *told, *nothing, *of])

    def _read(self, asked: Read) -> str:
        lines: list[str] = []
        for name in dict.fromkeys(asked.ids):
            try:
                episode = self._episode(name)
            except (EpisodeNotFound, IdAmbiguous, InvalidEpisode) as exc:
                raise GiveUp(f"{texts.flat(name)[:60]}: {exc}; `search` and `timeline` show ids") from exc
            (record,) = self._bodies([episode], include=["raw"])
            count_opened(self._services.store, [episode.episode_id])
            note_reading(self._services.store, episode.episode_id)
            lines += [*([""] if lines else []), *texts.record_lines(record)]
            if asked.around:
                lines += self._neighbours(episode, asked.around)
        pages = texts.pages(lines)
        if asked.page > len(pages):
            raise GiveUp(f"there is no page {asked.page}; the last one is {len(pages)}")
        more = f"; page={asked.page + 1} goes on" if asked.page < len(pages) else ""
        return texts.block([*pages[asked.page - 1], f"(page {asked.page} of {len(pages)}{more})"])

    def _timeline(self, asked: Timeline, folder: str | None, kinds: tuple[str, ...] = ()) -> str:
        scope = Scope(None) if asked.session and not asked.project else self._scope(asked.project, folder)
        session, include_private = None, scope.include_private
        if asked.session:
            session, include_private = self._whole_session(asked.session, include_private)
        since, until = bounds_of(asked.since, asked.until, datetime.now(UTC), UTC)
        where = EpisodeFilter(
            projects=(scope.project,) if scope.project else (),
            session_id=session,
            since=since,
            until=until,
            kinds=kinds,
            include_superseded=bool(session),
        )
        store = self._services.store
        seen, oldest_first = self._services.engine.visible(where, include_private), asked.order == "oldest"
        if session or kinds:
            page = store.episodes.page(seen, asked.limit, asked.cursor, oldest_first=oldest_first)
        else:
            page = timeline_page(store, seen, asked.limit, asked.cursor, oldest_first=oldest_first)
        lines = [texts.session_line(record) or texts.line(record) for record in self._bodies(page.items)]
        lines = lines or [_nothing(scope, asked.session)]
        if page.next_cursor:
            lines.append(f"(more: cursor={page.next_cursor})")
        return texts.block([*filter(None, [scope.note]), f"({asked.order} first, times in UTC)", *lines])

    def _remember(self, asked: Remember, folder: str | None) -> str:
        scope = self._scope(asked.project, folder)
        named = scope.project or (scope.own if scope.is_new else None) or NO_PROJECT
        project = project_meant(self._services.store, self._services.engine.private(), named)
        note = note_of(
            asked.text,
            project=project,
            instance=INSTANCE,
            type=asked.type,
            why=asked.why,
            tags=asked.tags,
            subject=asked.subject,
            replaces=self._episode(asked.replaces).episode_id if asked.replaces else None,
        )
        store = self._services.store
        stored, created = self._services.poster.create(note.draft())
        done = posted_body(store, self._services.engine.private(), stored, created=created)
        where = f"in project {texts.flat(project)} as {asked.type}, id {stored.episode_id}."
        if not created:
            return f"Kept already {where}"
        if done["replaced"]:
            where += f" It replaces {', '.join(map(id_label, done['replaced']))}."
        if done["challenged"]:
            pinned = ", ".join(map(id_label, done["challenged"]))
            where += f" Pinned on the same subject, so challenged, not replaced: {pinned}."
        if MASKED in json.dumps(episode_body(stored, ["raw"])) and MASKED not in asked.text + asked.why:
            where += " A secret in it is masked."
        if done["alike"]:
            like = id_label(done["alike"][0]["episode_id"])
            where += f" Much like {like}: read it; if it no longer holds, name it in `replaces`."
        return f"Kept {where}"

    def _forget(self, asked: Forget) -> str:
        ids = []
        for name in asked.ids:
            try:
                ids.append(self._episode(name).episode_id)
            except EpisodeNotFound:  # a part of it may be stored
                ids.append(name)
        store, request = self._services.store, ForgetRequest(ids=tuple(ids))
        forgetter = open_forgetter(effective_settings(store), store)
        report = forgetter.forget(request) if asked.confirm else forgetter.preview(request)
        counts = f"{report.episodes} records, {report.messages} messages, {report.lines} lines of logs"
        if not report.episodes:
            return "Nothing of these ids is stored; `search` shows ids."
        if asked.confirm:
            rest = [texts.flat(text) for text in (*report.remains, *report.problems)]
            still = ["Copies may remain in:", *(texts.QUOTE + text for text in rest)] if rest else []
            return texts.block([f"Gone for good: {counts}.", *still])
        shown = [f"id {id_label(r.episode_id)} {texts.QUOTE}{texts.flat(r.summary)[:200]}" for r in report.shown]
        ask = "Nothing is gone yet. Ask the user; if agreed, call again with confirm=true."
        return texts.block([f"Would go for good: {counts}.", *shown[:10], ask])

    def _status(self, asked: Status, folder: str | None) -> str:
        store = self._services.store
        ready = readiness(self._services, self._room)
        lines = [f"memory: degraded, {texts.flat(text)}" for text in ready.missing] or ["memory: ready"]
        if covered := ready.coverage:
            share = covered["embedded"] / covered["stored"] if covered["stored"] else 1.0
            lines.append(f"{covered['stored']:,} passages, {share:.0%} of them searched by meaning, all by their words")
        for newest in store.episodes.page(self._services.engine.visible(EpisodeFilter(), ()), 1).items:
            at = texts.when(utc_text(newest.timestamp))
            lines.append(f"newest record: {at} UTC, {label(newest.project)}")
        knowledge = knowledge_body(waiting_of(store, self._services.engine.private()), datetime.now(UTC))
        lines.append(f"knowledge: {waiting_text(knowledge)}")
        if asked.ingest:
            started = JsonlControl(store, self._services.dagster).start()
            lines.append(f"reading new logs of {len(started['sources'])} sources now")
        if asked.project is None:
            return "\n".join(lines)
        if asked.project == ALL:
            raise GiveUp("a hand-off is of one project: `current`, or its name")
        if asked.project != CURRENT:
            request = ContextRequest(project=asked.project, max_tokens=HANDOFF_TOKENS)
        elif folder:
            request = ContextRequest(cwd=folder, max_tokens=HANDOFF_TOKENS)
        else:
            raise GiveUp("the client does not say which folder it works in; name the project")
        projects, _, block = maker_of(self._services).handoff(request)
        lines.append(block.text)
        searched = [
            f"{texts.when(utc_text(q.asked_at))} {texts.QUOTE}{texts.flat(q.query)[:200]}"
            for q in store.queries.latest(projects, MAX_ITEMS)
        ]
        return "\n".join([*lines, *([texts.block(["Searched lately:", *searched])] if searched else [])])

    # --- details -------------------------------------------------------------------------------------------

    def _found(self, body: dict[str, Any]) -> SearchOut:
        """Search as over HTTP: `body` is checked, admitted, answered and noted in the same way."""
        question = SearchIn.model_validate(body)
        services = self._services

        ask = partial(answer_question, services.store, services.engine, question, services.settings.machine)
        found, answer = anyio.from_thread.run(self._admission.run, ask)
        if question.track:
            keep_question(services, self._room, question, found)
        return answer

    def _episode(self, name: str) -> Episode:
        """Return the episode whose id is or begins with `name`."""
        try:
            return find_episode(self._services.store, check_id(name))
        except ValueError as exc:
            raise InvalidEpisode("episode_id", str(exc)) from exc

    def _bodies(self, episodes: Sequence[Episode], include: Sequence[Include] = ()) -> list[EpisodeOut]:
        short = {} if include else short_ids(self._services.store, [each.episode_id for each in episodes])
        return [episode_body(each, include, short) for each in episodes]

    def _scope(self, project: str | None, folder: str | None) -> Scope:
        """Return the requested project, else that of the client's folder if it has data."""
        if project and project not in {ALL, CURRENT}:
            return Scope(project)
        services = self._services
        found = current_project(services.store, folder, services.settings.machine, services.engine.private())
        around = found.private_sources
        if found.known and project != ALL:
            return Scope(found.project, own=found.project, around=around)
        if project == ALL or not found.project:
            return Scope(None, own=found.project, around=around)
        note = f"(nothing is known of the current project {texts.flat(found.project)}: all are covered)"
        return Scope(None, note, own=found.project, is_new=True, around=around)

    def _whole_session(self, name: str, include_private: list[str]) -> tuple[str, list[str]]:
        """Return the id of the session with this id or prefix, and its project: its content in other private projects
        stays hidden. Return the arguments if there is none.
        """
        try:
            session = find_session(self._services.store, name, EpisodeFilter())
        except (EpisodeNotFound, IdAmbiguous):
            return name, include_private
        ids = [*session.session_ids, session.session_id]
        return next((each for each in ids if each.startswith(name)), ids[-1]), [session.project or NO_PROJECT]

    def _neighbours(self, episode: Episode, around: int) -> list[str]:
        """Return the records just before and after one in its session, else in its project. The session's content in
        another private project stays hidden: only the record was requested.
        """
        if episode.session_id:
            among, own = EpisodeFilter(session_id=episode.session_id), [episode.project or NO_PROJECT]
        elif episode.project:
            among, own = EpisodeFilter(projects=(episode.project,)), []
        else:
            return []
        services = self._services
        sides = neighbours(services.store, services.engine, episode, around, among, own)
        lines: list[str] = []
        for title, found in zip(("before it:", "after it:"), sides, strict=True):
            listed = [text for record in self._bodies(found) for text in texts.line(record).split("\n")]
            lines += [title, *listed] if listed else []
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
        wrong = []
        for error in exc.errors()[:5]:
            (field,) = field_errors([error])
            said = "is not a known argument" if error["type"] == "extra_forbidden" else field["message"]
            wrong.append(texts.flat(f"{field['path'] or name}: {said}")[:200])
        known = ", ".join(model.model_fields)
        raise GiveUp(f"{'; '.join(wrong)} (arguments: {known})") from exc


def _nothing(scope: Scope, session: str | None = None) -> str:
    if session:
        return "Nothing of this session; its whole id is wanted, which `read` of one of its records shows."
    if scope.project:
        return f'Nothing in project {texts.flat(scope.project)}. project="all" covers everything.'
    return "Nothing. Other words, or mode=exact for literal text, may find it; else nothing is known."
