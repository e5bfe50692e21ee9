"""The asset `session_summaries`: records of sessions that changed, and have ended or are idle."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from anamnesis_pipeline.embeddings.passages import passages_of_posted
from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.model import Episode, Part, Segment, SegmentKind, Source
from anamnesis_pipeline.parsing.claude_logs.chunking import PROMPT_HEAD
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.llm_choice import Llm
from anamnesis_pipeline.pipeline.projects import project_aliases
from anamnesis_pipeline.pipeline.session_record import Gathered, record_of
from anamnesis_pipeline.pipeline.sessions import SUMMARY_DUE, continued, summaries_due
from anamnesis_pipeline.pipeline.summarize import summarize_part
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import batches
from anamnesis_pipeline.store.records.sessions import File, NewRecord, SessionState
from anamnesis_pipeline.store.records.settings import store_name
from anamnesis_pipeline.store.session_model import (
    SessionRecord,
    episode_id_of,
    name_with_source,
    of_episode,
    text_of,
    to_episode,
)
from anamnesis_pipeline.store.values import instant

PAGE = 200
"""Sessions listed at once."""
MAX_JOINED = 1_000
"""Max sessions in one record."""
PARTS_AT_ONCE = 50
"""Chunks in memory at once, of at most 4,000 characters each."""
COPIES = 50
"""Copied messages checked per log; a copy has them from its beginning on."""


@dataclass(frozen=True, slots=True)
class SessionReport:
    """Result of one run. `revised`: records of sessions that continued. `changed`: records rewritten in place.
    `waiting`: sessions with a chunk that still grows.
    """

    written: int = 0
    revised: int = 0
    changed: int = 0
    unchanged: int = 0
    waiting: int = 0
    problem: str = ""
    """The last reason for a missing LLM summary."""


def summarize_sessions(
    store: Store, source: Source, llm: Llm, pieces: PieceCounter, instance: str = ""
) -> SessionReport:
    """Write the records of a source's sessions with new, changed or removed chunks; the cost is that of these sessions
    and those joined with them. The step is idempotent, and the next run finishes an interrupted one.

    :param llm: writes the summaries, by the rules for chunks; without a summary, title and outcome stand in, and a
        later run asks again.
    :param instance: of the episodes; empty: the source's machine.
    """
    run, after = _Run(store, source, llm, pieces, instance), ""
    while session_ids := store.sessions.changed(source.key, after, PAGE):
        for session_id in session_ids:
            run.write(session_id)
        after = session_ids[-1]
    for session_id, due in run.due.items():
        run.write(session_id)
        store.settings.swap(SUMMARY_DUE + session_id, list(due), None)  # not requested this time: no longer due
    return run.report


class _Run:
    """One run over a source's records."""

    def __init__(self, store: Store, source: Source, llm: Llm, pieces: PieceCounter, instance: str) -> None:
        self._store, self._llm, self._pieces, self._instance = store, llm, pieces, instance
        self._sources = {each.key: each for each in store.files.sources()}
        self._source = source
        self._aliases = project_aliases(store)
        self._done: set[str] = set()
        due = summaries_due(store, llm.clock())
        self.due = {session_id: its for session_id, its in due.items() if its[0] == source.key}
        self.report = SessionReport()

    @cached_property
    def _links(self) -> dict[str, set[str]]:
        """Session -> the sessions that continue it or that it continues."""
        found: dict[str, set[str]] = {}
        for session_id, later in continued(self._store.settings).items():
            found.setdefault(session_id, set()).add(later)
            found.setdefault(later, set()).add(session_id)
        return found

    def write(self, session_id: str) -> None:
        """Write the record of a session, unless another record includes it or it is still open."""
        if session_id in self._done:
            return
        members, gone, apart = self._joined(session_id)
        self._done.update(state.session_id for state, _ in members)
        if any(state.is_open for state, _ in members):
            self._count(waiting=1)
        elif members:
            self._settle(members, gone, apart)
        else:
            self._store.sessions.settle((), None, gone)

    def _settle(
        self, members: list[tuple[SessionState, Gathered]], gone: list[SessionState], apart: list[SessionState]
    ) -> None:
        sessions, states = self._store.sessions, [state for state, _ in members]
        root = states[0]
        name = self._name(root, apart)
        if any(state.root != name for state in states) and not sessions.join(states, name):
            return  # changed meanwhile: the next run handles it
        branches = {state.key: state.branch for state in states}
        record = record_of([gathered for _, gathered in members], self._machine, branches)
        until = instant(record.ended)
        goes_on = until > root.until
        record = replace(record, revision=root.revision + 1 if goes_on else root.revision)
        former = self._episode(name, root.revision)
        says_same = not goes_on and former is not None and of_episode(former) == replace(record, project=former.project)
        episode = None if says_same and root.session_id not in self.due else self._made(root, name, record, members)
        if episode is None or (says_same and former is not None and episode.summary == former.summary):
            sessions.settle(states, None, gone)
            self._count(unchanged=1)
            return
        passages = passages_of_posted(episode, (), self._pieces)
        if sessions.settle(states, NewRecord(episode, passages, root, record.revision, until), gone):
            is_new = record.revision == 1 and former is None
            self._count(written=is_new, revised=goes_on and not is_new, changed=not goes_on and not is_new)

    def _name(self, root: SessionState, apart: list[SessionState]) -> str:
        """Return the name from which record ids are made: the id of the first session, unless a session of another
        project has the same id and used it first.
        """
        with_source = name_with_source(root.session_id, root.source)
        holders = [each.source for each in apart if each.root == each.session_id == root.session_id]
        is_taken = any(root.root != root.session_id or source < root.source for source in holders)
        return with_source if is_taken or root.root == with_source else root.session_id

    def _made(
        self, root: SessionState, name: str, record: SessionRecord, members: list[tuple[SessionState, Gathered]]
    ) -> Episode:
        """Return the episode of a record."""
        path = f"{folder_of(self._sources[root.source])}/{members[0][1].path}"
        summary = self._summary(root, episode_id_of(self._machine, name, record.revision), record, members)
        episode = to_episode(record, root.source, path, summary, name)
        return replace(episode, instance=self._instance or episode.instance)

    # --- which sessions are one ------------------------------------------------------------------------------

    def _joined(
        self, session_id: str
    ) -> tuple[list[tuple[SessionState, Gathered]], list[SessionState], list[SessionState]]:
        """Return the sessions joined with this one, from every source of its machine, by start; those with nothing
        left; and those kept apart.

        Sessions are joined if one continues the other or has its messages, as forks and resumed ones do. They must
        share the project and the configured source, so that private text stays in its source.
        """
        found: list[tuple[SessionState, Gathered]] = []
        gone: list[SessionState] = []
        apart: list[SessionState] = []
        waiting, asked, seen, place = [session_id], {session_id}, set[tuple[str, str]](), None
        while waiting and len(asked) <= MAX_JOINED:
            states = self._store.sessions.states([waiting.pop(0)])
            for state in sorted(states, key=lambda each: each.key != (self._source.key, session_id)):
                source = self._sources.get(state.source)
                if state.key in seen or source is None or source.machine != self._machine:
                    continue
                seen.add(state.key)
                gathered = self._gathered(state)
                if gathered.is_empty:
                    gone += [state] if state.noted and not state.is_open else []
                    continue
                own_place = source.spec, store_name(self._aliases, gathered.project)
                place = place or own_place
                if own_place != place:
                    apart.append(state)
                    continue
                found.append((state, gathered))
                news = [each for each in self._neighbours(state, gathered) if each not in asked]
                waiting += news
                asked.update(news)
        return sorted(found, key=self._beginning), gone, apart

    def _beginning(self, member: tuple[SessionState, Gathered]) -> tuple[bool, bool, str, str, str]:
        """Return the sort key of joined sessions: logs first, then logs of subagents alone and the prompt history."""
        state, gathered = member
        began = instant(gathered.started) if gathered.started else ""
        return not self._is_log(state.source), not gathered.files_of, began, state.session_id, state.source

    def _neighbours(self, state: SessionState, gathered: Gathered) -> list[str]:
        """Return the candidates for joining with a session."""
        ids = {state.session_id, *self._links.get(state.session_id, ())}
        if self._is_log(state.source):
            ids |= self._sharing(gathered)
        return sorted(ids)

    def _sharing(self, gathered: Gathered) -> set[str]:
        """Return sessions in the same logs, or whose logs share messages with these."""
        originals = self._store.messages.owners(self._store.sessions.copied(gathered.files_of, COPIES))
        keys = [key for key in sorted(gathered.keys) if key.removeprefix("f:").startswith("u:")]
        copies = {(source, seen.path) for source, seen in self._store.messages.occurrences_of(keys)}
        files = {*gathered.files_of, *originals.values(), *copies}
        logs: set[File] = {file for file in files if self._is_log(file[0])}
        return set().union(*self._store.sessions.sessions_of(logs).values()) - {""}

    def _is_log(self, source: str) -> bool:
        """Return whether each file of a source is of one session; the prompt history covers all."""
        return source in self._sources and self._sources[source].kind == "claude_logs"

    @property
    def _machine(self) -> str:
        return self._source.machine

    # --- what they say ---------------------------------------------------------------------------------------

    def _gathered(self, state: SessionState) -> Gathered:
        gathered = Gathered(state.source, state.session_id)
        for batch in batches(self._store.sessions.told(state.source, state.session_id), PARTS_AT_ONCE):
            found = {part.part_id: part for part in self._store.forgetting.parts(batch)}
            for part_id in batch:
                if part_id in found:
                    gathered.add(found[part_id])
        return gathered.end()

    def _episode(self, name: str, revision: int) -> Episode | None:
        episode_id = episode_id_of(self._machine, name, revision)
        return self._store.episodes.get([episode_id]).get(episode_id) if revision else None

    def _summary(
        self, root: SessionState, record_id: str, record: SessionRecord, members: list[tuple[SessionState, Gathered]]
    ) -> str:
        """Return the LLM's summary of a record; empty: none was made."""
        if self._llm.open is None:
            return ""
        keys = sorted(set().union(*(gathered.keys for _, gathered in members)))
        if self._is_private(keys):
            return ""
        first = members[0][1]
        said = [(SegmentKind.PROMPT, record.prompt), (SegmentKind.STATEMENT, text_of(record))]
        part = Part(
            part_id=record_id,
            source=root.source,
            path=first.path,
            session_id=root.session_id,
            exchange_id="",
            ordinal=0,
            kind="exchange",
            project=record.project,
            cwd=first.cwd,
            prompt=record.prompt[:PROMPT_HEAD],
            closed=True,
            segments=tuple(
                Segment(f"{root.session_id}:{n}", "", kind, 0, text, record.started)
                for n, (kind, text) in enumerate(said)
                if text
            ),
        )
        made = summarize_part(self._store, part, self._llm, self.due.get(root.session_id, ("", "", 0))[2])
        again = [root.source, instant(made.retry_at), made.attempts] if made.retry_at is not None else None
        self._store.settings.set(SUMMARY_DUE + root.session_id, again)
        if made.problem:
            self.report = replace(self.report, problem=made.problem)
        return "" if made.model == extractive.MODEL or made.skip else made.text

    def _is_private(self, keys: Iterable[str]) -> bool:
        """Return whether a private source holds one of the messages, too."""
        private = self._llm.private_sources()
        return bool(private) and any(source in private for source, _ in self._store.messages.occurrences_of(list(keys)))

    def _count(self, **more: int) -> None:
        counts = {name: getattr(self.report, name) + int(count) for name, count in more.items()}
        self.report = replace(self.report, **counts)
