"""What is recorded of one thing: who changed a file or symbol and why, what ended an error, how a command is run.

It answers from the structure of tool calls, so it says nothing where nothing was done. No LLM is asked.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import dropwhile, pairwise

from anamnesis_pipeline.entities.in_actions import rules, stems
from anamnesis_pipeline.entities.in_calls import FIX_WITHIN, changes_name
from anamnesis_pipeline.entities.naming import command_names, is_same_file
from anamnesis_pipeline.knowledge.error_signatures import error_line, is_error_of_program, signature_of
from anamnesis_pipeline.knowledge.observing import PERSONS
from anamnesis_pipeline.knowledge.utterances import PARTS_AT_ONCE
from anamnesis_pipeline.model import Episode, EpisodeFilter, EpisodeHead, SegmentKind
from anamnesis_pipeline.parsing.claude_logs.commands import command_of_tests, commits
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.parsing.text.plain_text import shortened
from anamnesis_pipeline.parsing.text.sentences import sentences
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS
from anamnesis_pipeline.pipeline.session_record import is_go_on
from anamnesis_pipeline.search.project_labels import ALL, NOTHING_PRIVATE, Private
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import EntityKind, Mention, Relation
from anamnesis_pipeline.store.gateway import batches
from anamnesis_pipeline.store.knowledge_model import Observation, Signal
from anamnesis_pipeline.store.records.entities import leaf_of

MAX_MENTIONS = 2_000
"""Mentions of one thing that are looked at, the newest."""
MAX_COMMANDS = 600
"""Invocations of a project among which a task is looked for, the newest."""
MAX_RUNS = 600
"""Runs of a program among which a command is looked for, the newest."""
MAX_OF_SESSION = 2_000
MAX_TRIED = 6
MAX_EXPLAINED_CHARS = 240
MAX_REJECTED = 3
MAX_QUOTES = 3
MAX_EPISODES = 12
MAX_ONLY_NAMED = 40
"""Sessions that named a thing without editing it, among which those that decided about it are looked for."""
MAX_WHY_CHARS = 200
MAX_BEFORE = 200
"""Chunks of a session in which the prompt before one to go on is looked for."""
MAX_ALIKE = 3
MAX_PROJECTS = 200
"""Projects whose names are looked through where none is asked for."""
MAX_OUTPUTS = 10
"""Episodes in whose outputs an error is looked for that is not the telling line of any."""
MIN_STEM_CHARS = 5
SAME_ERROR, ENOUGH_COMMON = 0.7, 4
"""Least share of the words of two signatures that they have in common, for one error told in two ways; and how many
these must be for one to say less than the other.
"""
MAX_LINES = 20
"""Lines of an output without a telling one that are looked for."""
MAX_EXCHANGES = 10
"""Passages in whose exchanges a task is looked for of which no command has enough words."""
MAX_SAID_CHARS = 500
_BEFORE = frozenset({SegmentKind.PROMPT, SegmentKind.STATEMENT})
ENOUGH_WORDS = 0.6
"""Least share of the weight of a task's words that its command, script or description has."""
MAX_WORDS, MIN_WORDS = 8, 2
"""Words of an error by which outputs are looked for."""
_TEXTS = PERSONS | {SegmentKind.STATEMENT, SegmentKind.PLAN}
_RESULTS = frozenset({SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})
_ACTS = frozenset({Relation.EDITED, Relation.RAN})
_DONE = frozenset({EntityKind.FILE, EntityKind.COMMAND})
_DECIDED = frozenset({Signal.DECISION, Signal.PREFERENCE, Signal.CORRECTION, Signal.FACT})
_CHOSEN = frozenset({Signal.DECISION, Signal.PREFERENCE, Signal.CORRECTION})
_JOINS = re.compile(r"[-_]")
_DISTINCT = re.compile(r"^\w*(?:\w_\w|[a-z0-9][A-Z])\w*$")
_PATH = re.compile(r"[\w~@.+-]*[/\\][^\s]*|[\w@+-]+(?:\.[\w-]+)*\.\w{1,8}")


@dataclass(frozen=True, slots=True)
class Where:
    """Where it is asked. `projects`: stored names; none: in all that are not private. `included`: private projects and
    sources that are shown, too; `*`: all.
    """

    projects: tuple[str, ...] = ()
    private: Private = NOTHING_PRIVATE
    included: tuple[str, ...] = ()

    def shows(self, episode: Episode | EpisodeHead) -> bool:
        """Return whether an episode may be shown there."""
        if ALL in self.included:
            return True
        named = (*self.included, *self.projects)
        of = next((each for each in self.private.sources if each.key == episode.source), None)
        is_hidden = of is not None and not {of.key, of.spec}.intersection(self.included)
        if is_hidden and (self.included or episode.project not in self.projects):
            return False
        return not self.private.withholds(episode.project, named)


@dataclass(frozen=True, slots=True)
class Touched:
    """What one session did to a file or symbol, or decided about it.

    `names`: under which it was touched. `edits`: calls that edited it. `why`: what the session was asked before the
    last edit; `why_first`: before the first one, empty if that is the same. `decided`: verbatim; `rejected`: what a
    person corrected or took back there, verbatim.
    """

    session_id: str
    project: str
    machine: str
    first: datetime | None
    last: datetime | None
    names: tuple[str, ...]
    edits: int
    why: str
    episode_ids: tuple[str, ...]
    decided: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    why_first: str = ""


@dataclass(frozen=True, slots=True)
class Mended:
    """An error in one session: its line, the command that failed, what was tried, and what ended it, verbatim.

    `ended`: files and commands between the error and the success of what had failed; `told`: how Claude explained it.
    Both empty: it is not known to have ended there.
    """

    session_id: str
    project: str
    at: datetime | None
    episode_id: str
    line: str
    command: str = ""
    tried: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    told: str = ""


@dataclass(slots=True)
class Invocation:
    """A script that ran: where, how often it succeeded and failed, when and in which session it did so last."""

    script: str
    folder: str
    said: str
    project: str
    succeeded: int = 0
    failed: int = 0
    last: datetime | None = None
    session_id: str = ""
    episode_id: str = ""
    names: set[str] = field(default_factory=set)


def touched(store: Store, asked: str, where: Where, most: int) -> list[Touched]:
    """Return the sessions that changed a file or symbol, the newest first, then those that only decided about it.

    :param asked: a path, a piece of one, or the name of a symbol.
    :param most: maximum number.
    """
    asked = asked.strip().strip("`'\"()")
    found = [each for each in _named(store, asked, where) if each.session_id]
    return _of_sessions(store, found, most) or _of_sessions(store, _using(store, asked, where), most)


def _of_sessions(store: Store, found: Sequence[Mention], most: int) -> list[Touched]:
    """Return the sessions of mentions in which a thing was changed, then those that only decided about it."""
    sessions: dict[str, list[Mention]] = {}
    for each in found:
        sessions.setdefault(each.session_id, []).append(each)
    edited = [each for each, mentions in sessions.items() if any(m.relation is Relation.EDITED for m in mentions)]
    newest = sorted(sessions, key=lambda each: _last(sessions[each]), reverse=True)
    first = [each for each in newest if each in edited][:most]
    told = [(each, _said_about(store, sessions[each])) for each in first]
    only_named = [each for each in newest if each not in edited][: MAX_ONLY_NAMED if len(told) < most else 0]
    said = ((each, _said_about(store, sessions[each])) for each in only_named)
    told += [(each, its) for each, its in said if its]
    return [_touched(store, each, sessions[each], its) for each, its in told[:most]]


def mended(store: Store, asked: str, where: Where, most: int) -> list[Mended]:
    """Return the sessions in which an error occurred, those that ended it first, then the newest.

    :param asked: an error, or an output that has one.
    :param most: maximum number.
    """
    lines = asked.splitlines()[:MAX_LINES]
    lines = [line, *filter(is_error_of_program, lines)] if (line := error_line(asked)) else lines
    signatures = list(dict.fromkeys(filter(None, map(signature_of, lines))))
    found = next((its for each in signatures if (its := _errors(store, each, where))), [])
    latest: dict[str, Mention] = {}
    for each in found:
        latest.setdefault(each.session_id, each)
    told = [_mended(store, each, where) for each in list(latest.values())[: most * 2]]
    told = told or next((seen for each in signatures if (seen := _in_outputs(store, each, where))), [])
    return sorted(told, key=lambda each: not (each.ended or each.told))[:most]


def invocations(store: Store, asked: str, where: Where, most: int) -> list[Invocation]:
    """Return how a command or task was run, what succeeded and suits best first; then what never succeeded, at most
    MAX_REJECTED.

    :param asked: a command, or a task in words.
    :param most: maximum number of those that succeeded.
    """
    names = dict(command_names(asked))
    of_program = _invoked(_runs_of(store, set(names.values()), where))
    if of_program:
        words = [word for word in asked.split() if word.lower() not in STOP_WORDS]
        objects = [_object(word) for word in words[1:] if names.keys() == {*names.values()} and _is_object(word)]
        named = [each for each in of_program if each.names.intersection(names)]
        named = [each for each in named if not objects or any(word in each.script for word in objects)]
        if not named:  # the program runs with other words before its arguments
            rest = [word for word in words if not word.startswith("-") and word not in _LAUNCHERS | {*names.values()}]
            named = [each for each in of_program if rest and all(word in each.script for word in rest)]
        scored = [(sum(word in each.script for word in words) / len(words), each) for each in named if words]
        if not any(each.succeeded for _, each in scored):  # another program may run it
            given = [word for word in words[1:] if _PATH.fullmatch(word) and not word.startswith("-")]
            wanted = [*(name for name in names if " " in name), *(given if scored else ())]
            every = store.entities.ran(MAX_COMMANDS, projects=where.projects) if wanted else []
            having = [each for each in every if any(word in each.detail for word in wanted)]
            scored += [(0.0, each) for each in _invoked(_shown(store, having, where)) if each.succeeded]
    else:
        runs = store.entities.ran(MAX_COMMANDS, projects=where.projects)
        scored = _suiting(asked, _invoked(_shown(store, runs, where))) or _in_exchanges(store, asked, where)
    ordered = sorted(scored, key=lambda each: (each[0], each[1].succeeded, each[1].last or _NEVER), reverse=True)
    succeeded = [each for _, each in ordered if each.succeeded][:most]
    return [*succeeded, *[each for _, each in ordered if not each.succeeded][:MAX_REJECTED]]


def _is_object(word: str) -> bool:
    """Return whether a word of a command tells what it does: no option, number, path or file."""
    return not word.startswith("-") and "/" not in word and _PLAIN.search(word) is None


def _object(word: str) -> str:
    """Return a word of a command without quotes, and without what a call in it is given."""
    return word.strip("'\"").partition("(")[0]


_PLAIN = re.compile(r"^[\d.:]+$|\.[a-z]\w{0,4}$")
_NEVER = datetime.min.replace(tzinfo=UTC)


def _last(mentions: Sequence[Mention]) -> datetime:
    return max((each.at or _NEVER for each in mentions), default=_NEVER)


def _shown(store: Store, found: Sequence[Mention], where: Where) -> list[Mention]:
    if ALL in where.included or not where.private:
        return list(found)
    heads = store.episodes.heads(list({each.episode_id for each in found}))
    return [each for each in found if each.episode_id in heads and where.shows(heads[each.episode_id])]


# --- files and symbols -----------------------------------------------------------------------------------


def _named(store: Store, asked: str, where: Where) -> list[Mention]:
    """Return the mentions of a file, or of a symbol if no file has this name, the newest stored first. A name that a
    person gave stands for the thing.
    """
    names, shown = store.entities.names(), (*where.included, *where.projects)
    for given in names.called(asked):
        if given.project in (where.projects or [given.project]) and not where.private.withholds(given.project, shown):
            asked = names.of(given.project, given.entity).name
            break
    path = project_label(asked)
    if _PATH.fullmatch(asked):
        leaf = leaf_of(EntityKind.FILE, path)
        found = store.entities.named(EntityKind.FILE, leaf, MAX_MENTIONS, projects=where.projects)
        if files := _shown(store, [each for each in found if is_same_file(each.name, path)], where):
            return files
    symbol = _symbol_of(asked)
    found = store.entities.named(EntityKind.SYMBOL, symbol.lower(), MAX_MENTIONS, projects=where.projects)
    if symbols := _shown(store, [each for each in found if each.name == symbol], where):
        return symbols
    if "/" in path.strip("/"):
        beginnings, of = [f"{path.strip('/')}/"], "name"
    else:
        owns = dict.fromkeys((path.partition(".")[0], _class_of(path)))
        joined = [_CAMEL.sub(join, own).replace("-", join or "-") for own in owns for join in ("", "_", "-")]
        beginnings, of = sorted({each.lower() for each in joined if len(each) >= MIN_STEM_CHARS}), "leaf"
    found = store.entities.beginning(EntityKind.FILE, beginnings, MAX_MENTIONS, projects=where.projects, of=of)
    return _shown(store, [each for each in found if is_called(each.name, path)], where)


def _symbol_of(asked: str) -> str:
    """Return the last piece of a symbol's name as it is asked for: `func Delay`, `Slot#book!`, `Ring::close()`."""
    return re.split(r"[.#\s]|::", asked.rstrip("()!?"))[-1]


def _using(store: Store, asked: str, where: Where) -> list[Mention]:
    """Return the edits that add or take out the use of a symbol, and the texts that name it."""
    symbol = _symbol_of(asked)
    if not _DISTINCT.search(symbol):
        return []
    hits = store.text.with_all([symbol.lower()], MAX_OUTPUTS, EpisodeFilter(projects=where.projects))
    parts = store.forgetting.parts(list(dict.fromkeys(hit.episode_id for hit in hits)))
    calls = {each.uuid for part in parts for each in part.segments if changes_name(each.text, symbol)}
    mentions = _shown(store, store.entities.of_episodes([part.part_id for part in parts]), where)
    edits = [each for each in mentions if each.message_id in calls and _is_edited_file(each)]
    word = re.compile(rf"\b{re.escape(symbol)}\b")
    of_text = {part.part_id for part in parts for s in part.segments if s.kind in _TEXTS and word.search(s.text)}
    texts = {each.episode_id: each for each in mentions if each.episode_id in of_text}
    named = (replace(e, kind=EntityKind.SYMBOL, name=symbol, relation=Relation.MENTIONED) for e in texts.values())
    return [*edits, *named]


def _is_edited_file(mention: Mention) -> bool:
    """Return whether a mention tells that a file was edited. Pure."""
    return mention.kind is EntityKind.FILE and mention.relation is Relation.EDITED


def _class_of(dotted: str) -> str:
    """Return the last piece of a dotted name if it is a class, else the first."""
    last = dotted.rpartition(".")[2]
    return last if last[:1].isupper() else dotted.partition(".")[0]


def is_called(name: str, asked: str) -> bool:
    """Return whether a file is in a folder that is asked for, or is called so but for its ending and the way in which
    words are joined: `PdfExport`, also `PdfExport.run`, is `app/exports/pdf_export.rb`. Pure.
    """
    if "/" in asked.strip("/"):
        return f"/{asked.strip('/')}/".lower() in f"/{name}".lower()
    stem = _JOINS.sub("", name.rpartition("/")[2].partition(".")[0]).lower()
    wanted = {_JOINS.sub("", each).lower() for each in (asked.partition(".")[0], _class_of(asked))}
    return len(stem) >= MIN_STEM_CHARS and stem in wanted


def _known(store: Store, kind: EntityKind, where: Where) -> set[str]:
    """Return the names of the things of a kind that are known there."""
    projects = where.projects or store.projects.all()[:MAX_PROJECTS]
    return {name for each in projects for _, name, *_ in store.entities.counted(each, [kind])}


def _said_about(store: Store, mentions: Sequence[Mention]) -> list[Observation]:
    """Return what was decided or corrected where a thing is named, and while it was edited or in the exchange after
    that.
    """
    episodes = list(dict.fromkeys(each.episode_id for each in sorted(mentions, key=lambda each: each.place)))
    edited = {each.episode_id for each in mentions if each.relation is Relation.EDITED}
    near = _with_next(store, mentions[0].session_id, edited) if edited else set()
    leaves = {leaf_of(each.kind, each.name) for each in mentions}
    own = [stems(leaf.partition(".")[0]) for leaf in leaves] if edited else []
    folders = {folder for each in mentions if "/" in (folder := each.name.lower().rpartition("/")[0])}
    found = []
    for episode in list(dict.fromkeys([*near, *episodes]))[-MAX_EPISODES:]:
        for said in store.observations.of_episode(episode):
            text = f"{said.quote} {said.answer}".lower()
            is_named = any(each in text for each in leaves | folders) or any(its and its <= stems(text) for its in own)
            is_rule = said.signal in _DECIDED or (said.signal is Signal.REQUEST and rules(said.quote))
            if (is_rule and is_named) or (said.signal in _CHOSEN and episode in near):
                found.append(said)
    return found


def _with_next(store: Store, session_id: str, episodes: Collection[str]) -> set[str]:
    """Return episodes of a session, and those that follow them."""
    known = store.episodes.get(list(episodes)[:1])
    order = [each for episode in known.values() for each in store.sessions.told(episode.source, session_id)]
    return {*episodes, *(following for one, following in pairwise(order) if one in episodes)}


def _touched(store: Store, session_id: str, mentions: Sequence[Mention], said: Sequence[Observation]) -> Touched:
    edits = sorted((m for m in mentions if m.relation is Relation.EDITED), key=lambda each: each.place)
    shown = edits or sorted(mentions, key=lambda each: each.place)
    episodes = list(dict.fromkeys(each.episode_id for each in shown))
    first = store.episodes.get(episodes[:1]).get(episodes[0])
    why_first = _asked_before(store, episodes[0]) or shortened(first.summary if first else "", MAX_WHY_CHARS)
    why = _asked_before(store, edits[-1].episode_id) if edits else why_first
    return Touched(
        session_id,
        shown[0].project,
        first.machine if first else "",
        min((each.at for each in shown if each.at), default=None),
        max((each.at for each in shown if each.at), default=None),
        tuple(dict.fromkeys(each.name for each in shown)),
        len({each.place for each in edits}),
        why or why_first,
        tuple(episodes),
        _quotes(each for each in said if each.signal is not Signal.CORRECTION),
        _quotes(each for each in said if each.signal is Signal.CORRECTION),
        why_first if why not in {"", why_first} else "",
    )


def _asked_before(store: Store, episode_id: str) -> str:
    """Return what was asked for in an episode of a log, shortened; where that is only to go on, what was before it in
    the project.
    """
    part = next(iter(store.forgetting.parts([episode_id])), None)
    if part is None or not is_go_on(part.prompt):
        return shortened(part.prompt, MAX_WHY_CHARS) if part else ""
    order = store.sessions.told(part.source, part.session_id)
    before = order[: order.index(episode_id)] if episode_id in order else []
    for ids in batches(before[::-1][:MAX_BEFORE], PARTS_AT_ONCE):
        parts = {each.part_id: each for each in store.forgetting.parts(ids)}
        for its in (parts[each] for each in ids if each in parts):
            is_same = (its.agent_id, its.project) == (part.agent_id, part.project)
            if is_same and its.prompt and not is_go_on(its.prompt):
                return shortened(its.prompt, MAX_WHY_CHARS)
    return shortened(part.prompt, MAX_WHY_CHARS)


def _quotes(said: Iterable[Observation]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.quote for each in said))[:MAX_QUOTES]


def file_mentions(store: Store, name: str, where: Where, relation: Relation) -> list[Mention]:
    """Return the mentions of this very file that have a relation, the newest stored first.

    :param name: as `naming.file_name` returns it.
    """
    found = store.entities.named(EntityKind.FILE, leaf_of(EntityKind.FILE, name), MAX_MENTIONS, projects=where.projects)
    return _shown(store, [each for each in found if each.name == name and each.relation is relation], where)


# --- errors ----------------------------------------------------------------------------------------------


def _errors(store: Store, signature: str, where: Where) -> list[Mention]:
    """Return the occurrences of an error, the newest stored first; told in other words if it never occurred so."""
    if not signature:
        return []
    found = store.entities.named(EntityKind.ERROR, signature.lower(), MAX_MENTIONS, projects=where.projects)
    if not found:
        words = set(signature.split())
        alike = {name: _alike(words, set(name.split())) for name in _known(store, EntityKind.ERROR, where)}
        for name, share in sorted(alike.items(), key=lambda each: -each[1])[:MAX_ALIKE]:
            if share >= SAME_ERROR:
                found += store.entities.named(EntityKind.ERROR, name.lower(), MAX_MENTIONS, projects=where.projects)
    return _shown(store, found, where)


def _alike(one: set[str], other: set[str]) -> float:
    """Return the share of words that two signatures have in common; of the shorter one's, if these are enough."""
    common = len(one & other)
    return common / (min(len(one), len(other)) if common >= ENOUGH_COMMON else max(1, len(one | other)))


def _mended(store: Store, error: Mention, where: Where) -> Mended:
    """Return what was done after an error in its session, as far as it may be shown there."""
    session = _shown(store, store.entities.of_session(error.session_id, MAX_OF_SESSION), where)
    same = [each for each in session if each.kind is EntityKind.ERROR and each.name == error.name]
    first = min((each.place for each in same), default=error.place)
    ended = [each for each in session if each.relation is Relation.FIXED and each.other == error.name]
    until = max((each.place for each in ended), default=first + FIX_WITHIN)
    failed = [e for e in session if e.kind is EntityKind.COMMAND and e.relation is Relation.FAILED and e.place <= first]
    again = {(failed[-1].name, failed[-1].detail)} if failed else set()  # which succeeded in the end
    acts = [e for e in session if first < e.place <= until and e.relation in _ACTS and e.kind in _DONE]
    acts = [e for e in acts if (e.name, e.detail) not in again]
    if failed and not ended:  # the same program may have succeeded in another way
        by_run = _failure(store, failed[-1], same[0].detail if same else error.detail, where)
        if by_run.ended:
            return by_run
    did_end = tuple(dict.fromkeys(each.detail or each.name for each in ended))
    observed = store.observations.same(Signal.ERROR, error.name, MAX_OF_SESSION)
    own = [each for each in observed if each.session_id == error.session_id and each.answer]
    shown = store.episodes.heads([each.answer_id for each in own])
    words = (each.answer for each in own if each.answer_id in shown and where.shows(shown[each.answer_id]))
    told = next((each for each in words if not each.startswith("file_path: ") and each not in did_end), "")
    return Mended(
        error.session_id,
        error.project,
        error.at,
        error.episode_id,
        same[0].detail if same else error.detail,
        failed[-1].detail if failed else "",
        tuple(dict.fromkeys(e.detail or e.name for e in acts if (e.detail or e.name) not in did_end))[:MAX_TRIED],
        did_end,
        told or (explained(store, same[0] if same else error, ended) if ended else ""),
    )


def explained(store: Store, failed: Mention, ended: Sequence[Mention]) -> str:
    """Return the sentence of Claude, after something had failed, that says most of it and of what ended it.

    :param failed: the error, or the command that failed.
    """
    wanted = stems(" ".join(f"{each.detail} {each.name}" for each in (failed, *ended)))
    said: list[str] = []
    parts = {each.part_id: each for each in store.forgetting.parts([failed.episode_id, *(e.episode_id for e in ended)])}
    for part in parts.values():
        is_own = part.part_id == failed.episode_id
        after = dropwhile(lambda each, of=is_own: of and each.uuid != failed.message_id, part.segments)  # type: ignore[misc]
        said += [text for each in after if each.kind is SegmentKind.STATEMENT for text in sentences(each.text)]
    best = max(said, key=lambda each: len(stems(each) & wanted), default="")
    return best[:MAX_EXPLAINED_CHARS] if len(stems(best) & wanted) > 1 else ""


def _says(words: set[str], wanted: set[str]) -> bool:
    """Return whether a line has all words of an error that is asked for, or, if it has enough, no others."""
    return wanted <= words or (len(words) >= ENOUGH_COMMON and words <= wanted)


def _in_outputs(store: Store, signature: str, where: Where) -> list[Mended]:
    """Return what was done after commands failed whose output has the error in a line that is not its telling one, and
    what Claude told where another output or a person names it.
    """
    wanted = set(signature.split())
    words = [word for word in signature.split() if word.isalpha()][:MAX_WORDS]
    if len(words) < MIN_WORDS:
        return []
    least = min(len(words), ENOUGH_COMMON)
    hits = store.text.with_all(words, MAX_OUTPUTS, EpisodeFilter(projects=where.projects))
    found: dict[str, Mended] = {}
    for part in store.forgetting.parts(list(dict.fromkeys(hit.episode_id for hit in hits))):
        mentions = _shown(store, store.entities.of_episodes([part.part_id]), where)
        for call, result in pairwise((*part.segments[:1], *part.segments)):
            lines = result.text.splitlines() if result.kind in _RESULTS | PERSONS else []
            lines = [each for each in lines if sum(word in each.lower() for word in words) >= least]
            line = next((each.strip() for each in lines if _says(set(signature_of(each).split()), wanted)), "")
            if not line or not mentions:
                continue
            if failed := next((m for m in mentions if m.message_id == call.uuid and _is_failed(m)), None):
                found[part.session_id] = _failure(store, failed, line, where)
                break
            of = replace(mentions[0], message_id=result.uuid, detail=line, name="")
            told = explained(store, of, mentions)
            found.setdefault(part.session_id, Mended(of.session_id, of.project, of.at, of.episode_id, line, told=told))
    return list(found.values())


def _is_failed(mention: Mention) -> bool:
    return mention.kind is EntityKind.COMMAND and mention.relation is Relation.FAILED


def _failure(store: Store, failed: Mention, line: str, where: Where) -> Mended:
    """Return what was done between a command that failed and its success in the same session."""
    session = _shown(store, store.entities.of_session(failed.session_id, MAX_OF_SESSION), where)
    program = failed.name.partition(" ")[0]
    later = [e for e in session if failed.place < e.place <= failed.place + FIX_WITHIN and e.relation in _ACTS]
    runs = [e for e in later if e.kind is EntityKind.COMMAND and e.name.partition(" ")[0] == program]
    until = runs[0].place if runs else failed.place + FIX_WITHIN
    acts = [e for e in later if e.kind in _DONE and e.place <= until][-MAX_TRIED:]
    done = tuple(dict.fromkeys(e.detail or e.name for e in acts))
    ended, tried = (done, ()) if runs else ((), done)
    told = explained(store, failed, acts) if runs else ""
    return Mended(
        failed.session_id, failed.project, failed.at, failed.episode_id, line, failed.detail, tried, ended, told
    )


def ended_after(store: Store, failed: Mention, where: Where) -> tuple[str, tuple[str, ...], str]:
    """Return of a command that failed: the line of its error, what ended it in its session, and how Claude told that.

    What ended it is also another script of the same program that succeeded next. Nothing if files were edited
    between: these are as they are now.
    """
    session = _shown(store, store.entities.of_session(failed.session_id, MAX_OF_SESSION), where)
    program = failed.name.partition(" ")[0]
    later = [e for e in session if e.kind is EntityKind.COMMAND and e.place > failed.place]
    runs = [e for e in later if e.name.partition(" ")[0] == program and e.relation is Relation.RAN]
    until = runs[0].place if runs else failed.place + FIX_WITHIN
    if any(_is_edited_file(e) and failed.place < e.place <= until for e in session):
        return "", (), ""
    near = range(failed.place, failed.place + 2)  # the call, and its result
    error = next((e for e in session if e.kind is EntityKind.ERROR and e.place in near), None)
    if error is not None:
        mended_it = _mended(store, error, where)
        if mended_it.ended or mended_it.told:
            return error.detail, mended_it.ended, mended_it.told
    ended = [e for e in runs if e.detail != failed.detail][:1]
    line = error.detail if error else ""
    return line, tuple(e.detail for e in ended), explained(store, failed, ended) if line or ended else ""


# --- commands --------------------------------------------------------------------------------------------


def _runs_of(store: Store, programs: Collection[str], where: Where) -> list[Mention]:
    """Return the runs of these programs, the newest first."""
    found = [
        each
        for program in sorted(programs)
        for each in store.entities.named(EntityKind.COMMAND, program.lower(), MAX_RUNS, projects=where.projects)
        if each.relation in {Relation.RAN, Relation.FAILED}
    ]
    return _shown(store, found, where)


def _invoked(runs: Iterable[Mention]) -> list[Invocation]:
    """Return the scripts that ran, each once for each folder, the newest first."""
    found: dict[tuple[str, str, str], Invocation] = {}
    for each in runs:
        key = (each.project, each.folder, each.detail)
        row = found.setdefault(key, Invocation(each.detail, each.folder, each.other, each.project))
        row.names.add(each.name)
        if each.relation is Relation.RAN:
            row.succeeded += 1
            row.session_id, row.episode_id = row.session_id or each.session_id, row.episode_id or each.episode_id
            row.last = row.last or each.at
        else:
            row.failed += 1
    return list(found.values())


def _suiting(task: str, rows: Sequence[Invocation]) -> list[tuple[float, Invocation]]:
    """Return the share of a task's words that each invocation has, rare words weighing more, where it is enough."""
    texts = [_words_of(each.script, each.said) for each in rows]
    counts = Counter(word for text in texts for word in text)
    forms = {stem: {word for word in counts if _is_form(word, stem)} for stem in _stems(task) - _IDLE}
    weights = {stem: 1 / (1 + sum(counts[word] for word in its)) ** 0.5 for stem, its in forms.items()}
    whole = sum(weights.values()) or 1.0
    shares = [sum(weight for stem, weight in weights.items() if forms[stem] & text) / whole for text in texts]
    return [(share, each) for share, each in zip(shares, rows, strict=True) if share >= ENOUGH_WORDS]


def _is_form(word: str, other: str) -> bool:
    """Return whether two stems are one word, or a word and its short form."""
    is_beginning = word.startswith(other) or other.startswith(word)
    return word == other or (is_beginning and min(len(word), len(other)) >= MIN_STEM_CHARS)


def _in_exchanges(store: Store, task: str, where: Where) -> list[tuple[float, Invocation]]:
    """Return what succeeded where most words of a task are said of it: in its script and description, what was asked
    for and what Claude said before it.
    """
    wanted = _stems(task) - _IDLE
    if len(wanted) < MIN_WORDS:
        return []
    hits = store.text.matching(content_words(task), MAX_EXCHANGES, EpisodeFilter(projects=where.projects))
    parts = store.forgetting.parts(list(dict.fromkeys(hit.episode_id for hit in hits)))
    mentions = _shown(store, store.entities.of_episodes([part.part_id for part in parts]), where)
    runs = {m.message_id: m for m in mentions if m.kind is EntityKind.COMMAND and m.relation is Relation.RAN}
    found: dict[str, tuple[float, Mention]] = {}
    for part in parts:
        said = {SegmentKind.PROMPT: _stems(part.prompt)}
        for segment in part.segments:
            if segment.kind in _BEFORE:
                said[segment.kind] = _stems(segment.text[:MAX_SAID_CHARS])
            elif (run := runs.get(segment.uuid)) is not None and wanted & _words_of(run.detail, run.other):
                text = _words_of(run.detail, run.other).union(*said.values())
                share = sum(any(_is_form(word, stem) for word in text) for stem in wanted) / len(wanted)
                if share >= ENOUGH_WORDS:
                    found[run.message_id] = (share, run)
    return [(share, each) for share, run in found.values() for each in _invoked([run])]


@lru_cache(maxsize=8_192)
def _words_of(script: str, said: str) -> frozenset[str]:
    """Return the stems of a script and of what it does; that of `test` if it runs tests; none of a commit's message."""
    if commits(script):
        script, said = " ".join(name for name, _ in command_names(script)), ""
    return _stems(f"{script} {said} {'test' if command_of_tests(script) else ''}")


def _stems(text: str) -> frozenset[str]:
    pieces = [word for token in content_words(text) for word in _WORD.findall(token)]
    words = [_COUNTED.sub("", word.lower()) for piece in pieces for word in _CAMEL.split(piece)]
    return frozenset(_AFFIXES.sub("", word) if len(word) > 4 else word for word in words)


_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_COUNTED = re.compile(r"(?<=[^\W\d]{3})\d+$")
_AFFIXES = re.compile(r"^re(?=\w{5})|(?:ing|ed|es|s|e)$")
_LAUNCHERS = frozenset("npx bunx pnpx bundle exec dlx sudo env".split())
_IDLE = frozenset(
    "run runn all only one ones this machin how use here just do mak make new present fil file files except look see "
    "show check start ausführen starten laufen lassen nur alle lancer faire exécuter seulement ejecutar lanzar correr "
    "hacer crear solo rodar usam só".split()
)
"""Words of tasks that no command or description needs to have."""
