"""Facts about sessions beside their messages: continuations, missing logs, sessions of other memory tools; and the
unknown record types found in logs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from anamnesis_pipeline.model import SAID_FROM, SAID_UNTIL, EpisodeFilter, Part, Source
from anamnesis_pipeline.parsing.claude_logs.parser import FileOrigin
from anamnesis_pipeline.parsing.claude_logs.records import KNOWN_TYPES
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.forgetting import Selection
from anamnesis_pipeline.store.records.settings import SettingsRecords
from anamnesis_pipeline.store.values import instant

CONTINUED = "sessions.continued_in."
"""Settings prefix, then a session id -> the session that continues it."""
WITHOUT_LOG = "sessions.without_log."
"""Settings prefix, then the id of a session of which only subagent logs were read -> their source."""
SUMMARY_DUE = "sessions.summary_due."
"""Settings prefix, then the id of a session whose record lacks the LLM's summary -> its source, the time of the next
attempt, and the number of failures."""
UNKNOWN_RECORDS = "records.unknown"
"""Settings key: unknown type -> its count, the last version that wrote one."""
OBSERVED = "sessions.of_observers"
"""Settings key: memory tool -> number of its sessions that were left out."""
ODD_TIMES, ODD_TIMES_RENEWED = "times.odd", "times.odd_renewed"
"""Settings keys: number of messages with implausible times, and examples; whether those stored by an earlier version
were renewed."""
MAX_EXAMPLES = 5
PAGE = 200
MAX_UNKNOWN = 50
"""Max unknown types remembered, the first ones."""
MAX_HOPS = 100
"""Max continuations followed."""


@dataclass(frozen=True, slots=True)
class OddTimes:
    """Messages with implausible times; `examples` name log, line and time."""

    count: int
    examples: tuple[str, ...]


def latest_session(links: Mapping[str, str], session_id: str) -> str:
    """Return the last continuation of a session, or itself.

    :param links: session -> the next one.
    """
    seen = [session_id]
    while len(seen) <= MAX_HOPS and (later := links.get(seen[-1])) and later not in seen:
        seen.append(later)
    return seen[-1]


def continued(settings: SettingsRecords) -> dict[str, str]:
    """Return session -> the session that continues it."""
    return {name.removeprefix(CONTINUED): str(later) for name, later in settings.all(CONTINUED).items()}


def note_continued(store: Store, found: Mapping[str, str]) -> None:
    """Store continuations, and rewrite the episodes of all sessions that lead to them."""
    for session_id, later in found.items():
        store.settings.set(CONTINUED + session_id, later)
    links = continued(store.settings) if found else {}
    for session_id in links:
        if latest_session(links, session_id) in {latest_session(links, named) for named in found}:
            store.parts.renew_session(session_id)


def summaries_due(store: Store, now: datetime) -> dict[str, tuple[str, str, int]]:
    """Return session -> its source, due time and failures, where the record's summary is due."""
    every = ((name.removeprefix(SUMMARY_DUE), its) for name, its in store.settings.all(SUMMARY_DUE).items())
    return {session_id: (source, due, failed) for session_id, (source, due, failed) in every if due <= instant(now)}


def sources_to_summarize(store: Store, now: datetime) -> set[str]:
    """Return sources with chunks or session records whose summary is due."""
    return store.summaries.sources_to_summarize(now) | {source for source, _, _ in summaries_due(store, now).values()}


def forget_sessions(store: Store, gone: Collection[str], publish: Callable[[Source], object]) -> None:
    """Remove all facts, branches included, about sessions that are gone.

    :param publish: rewrites the episodes of a source, some of which name a removed session.
    """
    settings, known = store.settings, odd_times(store.settings)
    _forget_links(store, gone, publish)
    store.sessions.settle((), None, [state for state in store.sessions.states(gone) if state.session_id in gone])
    for prefix in (WITHOUT_LOG, SUMMARY_DUE):
        for name in settings.all(prefix):
            if name.removeprefix(prefix) in gone:
                settings.set(name, None)
    kept = [example for example in known.examples if not any(session_id in example for session_id in gone)]
    if len(kept) < len(known.examples):
        settings.set(ODD_TIMES, [known.count, kept])


def _forget_links(store: Store, gone: Collection[str], publish: Callable[[Source], object]) -> None:
    """Remove sessions from their chains; link their predecessors to their successors."""
    links, left = continued(store.settings), dict[str, str]()
    beyond = {session_id: later for session_id, later in links.items() if session_id in gone}
    for session_id, later in links.items():
        end = latest_session(beyond, later)
        if session_id not in gone and end not in gone:
            left[session_id] = end
        if left.get(session_id) != later:
            store.settings.set(CONTINUED + session_id, left.get(session_id))
    sources: set[str] = set()
    for session_id in links.keys() - set(gone):
        if latest_session(left, session_id) != latest_session(links, session_id):
            store.parts.renew_session(session_id)
            of_session = store.forgetting.matching(Selection(session_id=session_id))
            sources |= {part.source for part in store.forgetting.parts(of_session)}
    for source in store.files.sources():
        if source.key in sources:
            publish(source)


def note_unknown(settings: SettingsRecords, found: Mapping[str, tuple[int, str]]) -> None:
    """Count records and content blocks of unknown types.

    :param found: type -> its count, and the version of Claude Code that wrote the last; empty: unknown.
    """
    if not found:
        return
    known: dict[str, list[int | str]] = dict(settings.get(UNKNOWN_RECORDS, {}))
    for name, (count, version) in found.items():
        if name in known or len(known) < MAX_UNKNOWN:
            before, last = known.get(name, (0, ""))
            known[name] = [int(before) + count, version or last]
    settings.set(UNKNOWN_RECORDS, known)


def unknown_records(settings: SettingsRecords) -> dict[str, tuple[int, str]]:
    """Return unknown type, named as in `KNOWN_TYPES` -> its count, the version of the last."""
    stored = settings.get(UNKNOWN_RECORDS, {})
    return {name: (int(count), str(version)) for name, (count, version) in stored.items() if name not in KNOWN_TYPES}


def note_odd_times(settings: SettingsRecords, path: str, found: Sequence[tuple[int, str]]) -> None:
    """Count messages of a log with implausible times.

    :param found: (line, original time) each.
    """
    if found:
        known = odd_times(settings)
        named = [*known.examples, *(f"{path}:{line + 1} {text!r}" for line, text in found)]
        settings.set(ODD_TIMES, [known.count + len(found), named[:MAX_EXAMPLES]])


def odd_times(settings: SettingsRecords) -> OddTimes:
    """Return the messages with implausible times found so far."""
    count, examples = settings.get(ODD_TIMES, (0, ()))
    return OddTimes(int(count), tuple(map(str, examples)))


def renew_odd_times(store: Store) -> None:
    """Rewrite sessions whose episodes an earlier version stored with implausible times; runs once per store."""
    if store.settings.get(ODD_TIMES_RENEWED):
        return
    for where in (
        EpisodeFilter(until=SAID_FROM, include_superseded=True),
        EpisodeFilter(since=SAID_UNTIL, include_superseded=True),
    ):
        cursor = None
        while True:
            page = store.episodes.page(where, PAGE, cursor)
            for session_id in {episode.session_id for episode in page.items if episode.session_id}:
                store.parts.renew_session(session_id)
            if (cursor := page.next_cursor) is None:
                break
    store.settings.set(ODD_TIMES_RENEWED, True)


def note_observers(settings: SettingsRecords, begun: Mapping[str, int]) -> None:
    """Count sessions of other memory tools, by tool; they are archived, not indexed."""
    if begun:
        known = Counter({name: int(count) for name, count in observed_sessions(settings).items()})
        settings.set(OBSERVED, dict(known + Counter(begun)))


def observed_sessions(settings: SettingsRecords) -> dict[str, int]:
    """Return memory tool -> number of its sessions that were left out."""
    return dict(settings.get(OBSERVED, {}))


class SessionFacts:
    """Session facts for the episodes of a source, as of now."""

    def __init__(self, store: Store, source: Source) -> None:
        self._store, self._source = store, source
        self._links = continued(store.settings)

    def of(self, part: Part) -> dict[str, str]:
        """Return metadata fields for a chunk's episode."""
        found = {}
        if (later := latest_session(self._links, part.session_id)) != part.session_id:
            found["continued_in"] = later
        if part.agent_id and part.session_id and part.session_id not in self._logs:
            self._store.settings.set(WITHOUT_LOG + part.session_id, self._source.key)
            found["session_log"] = "missing"
        return found

    def renew(self) -> None:
        """Rewrite the episodes of subagents whose session log has been read meanwhile."""
        for name, source in self._store.settings.all(WITHOUT_LOG).items():
            if source == self._source.key and (session_id := name.removeprefix(WITHOUT_LOG)) in self._logs:
                self._store.parts.renew_session(session_id)
                self._store.settings.set(name, None)

    @cached_property
    def _logs(self) -> frozenset[str]:
        """Names of the source's archived logs; a session's own log has its id."""
        cursors = self._store.files.cursors(self._source.key)
        return frozenset(FileOrigin(self._source.key, path).stem for path in cursors)
