"""Things that the tool calls of a session touch: files edited, commands with their outcome, errors and what ended
them. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from anamnesis_pipeline.entities.in_texts import things_of
from anamnesis_pipeline.entities.naming import MAX_NAME_CHARS, command_names, file_name, root_of
from anamnesis_pipeline.knowledge.claims import path_of
from anamnesis_pipeline.knowledge.error_signatures import error_line, signature_of
from anamnesis_pipeline.knowledge.observing import LOGS, PERSONS
from anamnesis_pipeline.knowledge.utterances import Utterance
from anamnesis_pipeline.model import SegmentKind, content_id
from anamnesis_pipeline.parsing.claude_logs import commands
from anamnesis_pipeline.parsing.claude_logs.message_keys import call_of
from anamnesis_pipeline.parsing.claude_logs.shell_scripts import output_files
from anamnesis_pipeline.store.entity_model import EntityKind, Mention, Relation

MAX_DETAIL_CHARS = 400
MAX_PER_EPISODE = 60
MAX_SYMBOLS = 12
"""Symbols of one edit."""
MAX_PENDING = 16
"""Calls without a result yet, and errors without an end, the latest ones."""
MAX_FIXES = 5
"""Edits and commands that are taken for the end of one error, the last ones before the success."""
FIX_WITHIN = 80
"""Messages after an error in which its end is looked for."""

_RESULTS = frozenset({SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})
_TEXTS = PERSONS | {SegmentKind.STATEMENT, SegmentKind.PLAN}
_EDITS = re.compile(r"(?:\w*__)?(?:(?:Multi|Notebook)?Edit|Write|str_replace\w*|write_file|edit_file)\n")
_FILE = re.compile(r"^(?:file_path|notebook_path|path): ([^\n]+)", re.MULTILINE)
_DESCRIBED = re.compile(r"^description: ([^\n]{1,200})", re.MULTILINE)
_MCP = re.compile(r"mcp__([\w-]+?)__(\w+)")
_DEFINES = re.compile(
    r"""^(?:(?:old_string|new_string|content|new_source):[ ])?[ \t]*
    (?:(?:export|default|public|private|protected|static|abstract|final|pub(?:\(\w+\))?|async|override|unsafe)\s+)*
    (?:
        (?: def(?:p|macro|module)? | class | function\*? | fn | fun(?=\s+\w+\s*[(<]) | interface | struct | enum | trait
          | protocol | (?:module|record|object)(?=\s+[A-Z])
          | type(?=\s+\w+\s*(?:[=<]|struct|interface)) | func(?:\s*\([^)\n]*\))? )
        \s+(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w{2,})
      | (?:const|let|var)\s+(?P<bound>[A-Za-z_]\w{2,})\s*=\s*(?:async\s*)?
        (?: function\b | \([^)\n]*\)\s*(?::[^=\n]+)?=> )
    )""",
    re.MULTILINE | re.VERBOSE,
)
_RENAMES = re.compile(r"\bs([/|#,])(?:\\b|\\<)?([A-Za-z_]\w{2,})(?:\\b|\\>)?\1([A-Za-z_]\w{2,})\1")
"""A name in place of another, as `sed` writes it."""
_INSTALLS = re.compile(
    r"^(?:(?:pip3?|uv pip|pipx|uv|poetry|pdm|npm|pnpm|yarn|bun|cargo|gem|brew|apt|apt-get|go|composer|conda)\b.*?)"
    r"\b(?:install|add|get|require|i)\b"
)
_PACKAGE = re.compile(r"@?[A-Za-z][\w.-]*(?:/[\w.-]+)*")
_VERSION = re.compile(r"(?:\[[\w,-]+\])?(?:(?:[=<>~!]=|[<>^~])[^\s]*|@[\w.^~-]+)$")


@dataclass(slots=True)
class _Error:
    """An error that has not ended: its mention, the script and the names of the commands that failed, and what was
    done since.
    """

    mention: Mention
    script: str
    names: frozenset[str]
    since: int
    done: list[Mention] = field(default_factory=list)


@dataclass(slots=True)
class _Session:
    """What is open while a session is read."""

    root: str = ""
    folders: list[str] = field(default_factory=list)
    calls: dict[str, tuple[Utterance, list[Mention]]] = field(default_factory=dict)
    """Key of a call without a result -> the call, and what it does."""
    errors: list[_Error] = field(default_factory=list)
    found: list[Mention] = field(default_factory=list)


def mentions_of_session(utterances: Iterable[Utterance]) -> list[Mention]:
    """Return the things that a session touches or names, in order; each of an episode once.

    :param utterances: in order.
    """
    session = _Session()
    for place, said in enumerate(utterances):
        if said.folder and not session.folders:
            session.folders = [said.folder]
            session.root = root_of(said.project, session.folders)
        if said.kind is SegmentKind.TOOL_INPUT:
            _called(session, said, place)
        elif said.kind in _RESULTS:
            _returned(session, said, place)
        elif said.kind in _TEXTS:
            session.found += _named(session, said, place)
    for _, done in session.calls.values():
        session.found += done  # no output came, as of commands that print nothing
    return bounded(session.found)


def bounded(found: Iterable[Mention]) -> list[Mention]:
    """Return each thing of an episode once, at most MAX_PER_EPISODE; a command once for each script."""
    counts: dict[str, int] = {}
    kept: dict[tuple[str, ...], Mention] = {}
    for each in sorted(found, key=lambda mention: mention.place):
        script = each.detail if each.kind is EntityKind.COMMAND else ""
        key = (each.episode_id, each.kind, each.name, each.relation, each.other, script)
        if key not in kept and counts.get(each.episode_id, 0) < MAX_PER_EPISODE and each.name:
            counts[each.episode_id] = counts.get(each.episode_id, 0) + 1
            kept[key] = each
    return list(kept.values())


# --- calls -----------------------------------------------------------------------------------------------


def _called(session: _Session, call: Utterance, place: int) -> None:
    """Take a call: the files that it edits and the commands that it runs, whose outcome its result tells."""
    done = [*_edited(session, call, place), *_commands(call, place)]
    if (server := _MCP.match(call.text)) is not None:
        done.append(_mention(EntityKind.TOOL, f"{server[1]} {server[2]}", Relation.RAN, call, place))
    if done:
        session.calls[call.key.rpartition(":")[2]] = (call, done)
    if len(session.calls) > MAX_PENDING:
        session.found += session.calls.pop(next(iter(session.calls)))[1]


def _returned(session: _Session, result: Utterance, place: int) -> None:
    """Take the result of a call: the outcome of its commands, an error, or the end of one."""
    call_id = call_of(result.key.removeprefix("f:"))
    call, done = session.calls.pop(content_id("tool_use", call_id) if call_id else "", (None, []))
    script = commands.script_of(call.text) if call is not None else ""
    has_failed = result.kind is SegmentKind.TOOL_ERROR
    ran = [each for each in done if each.kind is EntityKind.COMMAND]
    if has_failed:
        done = [replace(each, relation=Relation.FAILED) for each in ran]
    session.found += done
    may_fail = has_failed or (script and (commands.matters(script) or LOGS.search(script)))
    line = error_line(result.text) if may_fail else ""
    if line and (signature := signature_of(line)[:MAX_NAME_CHARS]):
        error = _mention(EntityKind.ERROR, signature, Relation.FAILED, result, place, detail=line)
        session.found.append(error)
        others = [each for each in session.errors if each.mention.name != signature]
        session.errors = [*others, _Error(error, script, frozenset(each.name for each in ran), place)][-MAX_PENDING:]
    elif not has_failed:
        session.found += _ended(session, done, script, place)


def _ended(session: _Session, done: Sequence[Mention], script: str, place: int) -> Iterator[Mention]:
    """Yield what was done between an error and the success of what had failed, for each error that has ended now. The
    same command given otherwise is itself the end, unless it runs tests: these may be others.
    """
    names = {each.name for each in done if each.kind is EntityKind.COMMAND}
    acts = [each for each in done if each.kind is EntityKind.FILE]
    acts += [each for each in done if each.kind is EntityKind.COMMAND and commands.matters(script)]
    left = []
    for error in session.errors:
        is_same = bool(script) and script == error.script
        given = [each for each in acts if each.name in error.names]
        own = given if given and not is_same and not commands.command_of_tests(script) else []
        if own or (error.done and (is_same or names & error.names)):
            for each in list({act.entity: act for act in [*error.done, *own]}.values())[-MAX_FIXES:]:
                yield replace(each, relation=Relation.FIXED, other=error.mention.name, place=place)
        elif place - error.since <= FIX_WITHIN:
            error.done += acts
            left.append(error)
    session.errors = left


def _edited(session: _Session, call: Utterance, place: int) -> Iterator[Mention]:
    """Yield the files that a call edits, and the symbols that it defines there."""
    if _EDITS.match(call.text) is not None and (given := _FILE.search(call.text)) is not None:
        name = file_name(given[1], call.folder, session.root)
        yield _mention(EntityKind.FILE, name, Relation.EDITED, call, place)
        defined = dict.fromkeys(each["name"] or each["bound"] for each in _DEFINES.finditer(call.text))
        for symbol in list(defined)[:MAX_SYMBOLS]:
            yield _mention(EntityKind.SYMBOL, symbol, Relation.EDITED, call, place, other=name)
        return
    script = commands.script_of(call.text)
    for _, old, new in _RENAMES.findall(script) if "sed " in script or "perl " in script else ():
        for symbol in (old, new):
            yield _mention(EntityKind.SYMBOL, symbol, Relation.EDITED, call, place)
    for program, rest, words in commands.commands_of(script):
        files = list(output_files(words))
        if program == "sed" and any(word.startswith("-i") or word == "--in-place" for word in rest):
            files += [word for word in rest if not word.startswith("-")][1:]
        elif program in {"rm", "mv", "cp", "touch"} or (program == "git" and rest[:1] in (["mv"], ["rm"])):
            files += [word for word in rest if not word.startswith("-")]
        for path in filter(path_of, files):
            yield _mention(EntityKind.FILE, file_name(path, call.folder, session.root), Relation.EDITED, call, place)


def changes_name(call: str, name: str) -> bool:
    """Return whether a call edits a file so that a name occurs more or less often in it."""
    if _EDITS.match(call) is None:
        return False
    before, _, after = call.partition("\nnew_string: ")
    word = re.compile(rf"\b{re.escape(name)}\b")
    return len(word.findall(before)) != len(word.findall(after))


def _commands(call: Utterance, place: int) -> Iterator[Mention]:
    """Yield the commands of a call, the packages that they install and the hosts that they reach."""
    script = commands.script_of(call.text)
    detail = script.strip()[:MAX_DETAIL_CHARS]
    said = found[1].strip() if (found := _DESCRIBED.search(call.text)) else ""
    for name, program in dict.fromkeys(command_names(script)):
        if commands.is_telling(program):
            yield replace(
                _mention(EntityKind.COMMAND, name, Relation.RAN, call, place, detail=detail, other=said),
                folder=call.folder,
            )
            yield _mention(EntityKind.TOOL, program, Relation.RAN, call, place)
    for program, rest, _ in commands.commands_of(script):
        if _INSTALLS.match(" ".join([program, *rest])):
            for word in rest[1:]:
                package = _VERSION.sub("", word)
                if _PACKAGE.fullmatch(package) and not path_of(word) and package not in _INSTALL_WORDS:
                    yield _mention(EntityKind.PACKAGE, package.lower(), Relation.DEPENDS_ON, call, place)
        if program in {"ssh", "scp", "rsync"}:
            for host in filter(None, map(_host, rest)):
                yield _mention(EntityKind.HOST, host, Relation.RAN, call, place)


_INSTALL_WORDS = frozenset("install add get require i pip pip3 uv -y global dev".split())
_HOST = re.compile(
    r"(?:[\w.-]+@)?(?P<host>[A-Za-z0-9][\w-]*(?:\.[\w-]+)+|\d+(?:\.\d+){3})(?::.*)?|[\w.-]+@(?P<named>[\w-]+)(?::.*)?"
)


def _host(word: str) -> str:
    found = _HOST.fullmatch(word)
    return (found["host"] or found["named"]).lower() if found and not path_of(word) else ""


# --- words -----------------------------------------------------------------------------------------------


def _named(session: _Session, said: Utterance, place: int) -> Iterator[Mention]:
    """Yield what a person or Claude names."""
    for kind, name, other in things_of(said.text):
        if kind is EntityKind.FILE:
            name = file_name(name, "", session.root)
        yield replace(
            _mention(kind, name, Relation.DEPENDS_ON if other else Relation.MENTIONED, said, place), other=other
        )


def _mention(
    kind: EntityKind, name: str, relation: Relation, of: Utterance, place: int, *, detail: str = "", other: str = ""
) -> Mention:
    return Mention(
        kind,
        name[:MAX_NAME_CHARS],
        relation,
        of.episode_id,
        of.project,
        of.session_id,
        of.message_id,
        of.at,
        place,
        other,
        detail,
    )
