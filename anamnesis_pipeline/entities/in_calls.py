"""Things that the tool calls of a session touch: files edited, commands with their outcome, errors and what ended
them. Pure.
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile

from anamnesis_pipeline.entities.in_texts import things_of
from anamnesis_pipeline.entities.naming import MAX_NAME_CHARS, command_names, file_name, form_of, leaf_of, root_of
from anamnesis_pipeline.knowledge.claims import path_of
from anamnesis_pipeline.knowledge.error_signatures import error_line, is_like_error, signature_of
from anamnesis_pipeline.knowledge.observing import LOGS, PERSONS
from anamnesis_pipeline.knowledge.utterances import Utterance
from anamnesis_pipeline.model import SegmentKind, content_id
from anamnesis_pipeline.parsing.claude_logs import commands
from anamnesis_pipeline.parsing.claude_logs.message_keys import call_of
from anamnesis_pipeline.parsing.claude_logs.shell_scripts import HEREDOC, output_files
from anamnesis_pipeline.store.entity_model import EntityKind, Mention, Relation

MAX_DETAIL_CHARS = 400
MAX_PER_EPISODE = 60
MAX_SYMBOLS = 12
"""Symbols of one edit."""
MAX_PENDING = 16
"""Calls without a result yet, and errors without an end, the latest ones."""
MAX_FIXES = 5
"""Edits and commands that are taken for the end of one error, the last ones before the success."""
MIN_POINTS = 3
"""Numbers from #1 on, one after another, that are taken for the points of a list, not for tickets."""
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
_DEFINED = re.compile(
    r"\b(?:def(?:p|macrop?)?|fn|fun|func|function|class|struct|enum|trait|interface|type|sub)[ ]+(?:\w+\.)*"
    r"([A-Za-z]\w*_\w+)",
    re.IGNORECASE,
)
"""A definition in what a session read or wrote, of a name in snake case."""
_MANAGERS = frozenset(
    "pip pip3 pipx uv poetry pdm npm pnpm yarn bun cargo gem brew apt apt-get go composer conda".split()
)
_INSTALLS = frozenset("install add get require i".split())
_OF_PLACES = {"tool": 1, "global": 1, "workspace": 2}
"""Words of managers before those that install -> the number of words to skip."""
_WITH_VALUE = frozenset(
    """-r --requirement -c --constraint -e --editable -t --target -i --index-url --extra-index-url --index --source
    --registry --python --prefix --filter -F --workspace -C --dir --cwd --group -G --extra --optional --with --features
    -p --package --git --branch --rev --tag --path --root --bin --version -v -n --name --channel""".split()
)
"""Options of managers before a value, not a package."""
_PACKAGE = re.compile(r"@?[A-Za-z][\w.-]*(?:/[\w.-]+)*")
_VERSION = re.compile(r"(?:\[[\w,-]+\])?(?:(?:[=<>~!]=|[<>^~])[^\s]*|@[\w.^~-]+)$")


@dataclass(slots=True)
class _Error:
    """An error that has not ended: its mention, the script that failed, its output, the words of its commands, the
    names of those that failed, and what was done since.
    """

    mention: Mention
    script: str
    output: str
    parts: Mapping[str, Sequence[str]]
    failed: frozenset[str]
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
    texts: list[tuple[Utterance, int]] = field(default_factory=list)
    """What was said, read when all calls are known."""
    defined: set[str] = field(default_factory=set)
    """Names in snake case that calls define, or whose definition they show."""
    seen: set[tuple[str, int]] = field(default_factory=set)
    """Definitions in files that were read: name and hash of the text."""
    paths: set[str] = field(default_factory=set)
    """Names of the files that calls read or edit."""


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
            session.texts.append((said, place))
    for _, done in session.calls.values():
        session.found += done  # no output came, as of commands that print nothing
    return bounded([*session.found, *_named(session)])


def bounded(found: Iterable[Mention]) -> list[Mention]:
    """Return each thing of an episode once, at most MAX_PER_EPISODE; a command once for each script, and what is edited
    once for each call.
    """
    things: dict[str, set[tuple[str, ...]]] = {}
    kept: dict[tuple[str | int, ...], Mention] = {}
    found = list(found)
    tickets = {each.name for each in found if each.kind is EntityKind.TICKET}
    points = set(takewhile(tickets.__contains__, (f"#{number}" for number in range(1, len(tickets) + 1))))
    points = points if len(points) >= MIN_POINTS else set()  # of a list, which counts them
    for each in sorted(found, key=lambda mention: mention.place):
        if each.kind is EntityKind.TICKET and each.name in points:
            continue
        script = each.detail if each.kind is EntityKind.COMMAND else ""
        thing = (each.kind, each.name, each.relation, each.other, script)
        key = (each.episode_id, *thing, each.place if each.relation is Relation.EDITED else 0)
        its = things.setdefault(each.episode_id, set())
        if key not in kept and (thing in its or len(its) < MAX_PER_EPISODE) and each.name:
            its.add(thing)
            kept[key] = each
    return list(kept.values())


# --- calls -----------------------------------------------------------------------------------------------


def _called(session: _Session, call: Utterance, place: int) -> None:
    """Take a call: the files that it edits and the commands that it runs, whose outcome its result tells."""
    done = [*_edited(session, call, place), *_commands(call, place)]
    session.defined.update(_DEFINED.findall(call.text))
    if (path := _FILE.search(call.text)) is not None:
        session.paths.add(file_name(path[1], call.folder, session.root))
    session.paths.update(each.name for each in done if each.kind is EntityKind.FILE)
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
    session.defined.update(_DEFINED.findall(result.text))
    if _NUMBER.match(result.text):
        session.seen.update(_definitions(_NUMBER.sub("", result.text)))
    parts = _parts(script)
    failed = frozenset(parts)
    if has_failed:
        failed = _failed(script, parts, result.text)
        ran = [each for each in done if each.kind is EntityKind.COMMAND and each.name in failed]
        done = [replace(each, relation=Relation.FAILED) for each in ran]
    session.found += done
    may_fail = has_failed or LOGS.search(script) or (_hides_failure(script) and commands.matters(script))
    line = error_line(result.text) if may_fail else ""
    if line and (signature := signature_of(line)[:MAX_NAME_CHARS]):
        error = _mention(EntityKind.ERROR, signature, Relation.FAILED, result, place, detail=line)
        session.found.append(error)
        left = []
        for each in session.errors:
            is_other = each.mention.detail not in result.text and line not in each.output
            if is_other and not is_like_error(each.mention.name, signature) and failed & _again(parts, each):
                session.found += _credited(each, [], place)
            elif each.mention.name != signature:
                left.append(each)
        session.errors = [*left, _Error(error, script, result.text, parts, failed, place)][-MAX_PENDING:]
    elif not has_failed:
        session.found += _ended(session, done, script, place)


def _hides_failure(script: str) -> bool:
    """Return whether a script may succeed though a command of it fails: in a pipe, or before other commands."""
    return _JOINED.search(_QUOTED.sub("", script)) is not None


_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_JOINED = re.compile(r"[|;]|\S[ \t]*\n\s*\S")


def _parts(script: str) -> dict[str, list[str]]:
    """Return the words of each command of a script that does more than to show or move, by its name."""
    found = {}
    for program, _, words in commands.commands_of(script):
        if commands.is_telling(program):
            found.update({form[0][:MAX_NAME_CHARS]: words for form in form_of(shlex.join(words))[:1]})
    return found


def _failed(script: str, parts: Mapping[str, Sequence[str]], output: str) -> frozenset[str]:
    """Return the name of the command of a script that failed: that which the output names, else the last one."""
    for name, words in parts.items() if len(parts) > 1 else ():
        program = re.escape(name.partition(" ")[0])
        if re.search(rf"^(?:\S*sh: (?:line \d+: )?)?{program}(?:: | ERR!)", output, re.MULTILINE | re.IGNORECASE):
            return frozenset([name])
        own = shlex.join(words)
        if commands.command_of_tests(own) and _TESTS_FAILED.search(commands.outcome_of_tests(output, is_error=False)):
            return frozenset([name])
        if name == "git commit" and not commands.commits_in(script, output, is_error=True):
            return frozenset([name])
    return frozenset(list(parts)[-1:])


_TESTS_FAILED = re.compile(r"\b[1-9]\d* (?:tests? )?(?:failed|failing|failures?|errors?)\b|\bFailed: +[1-9]")


def _again(parts: Mapping[str, Sequence[str]], error: _Error) -> set[str]:
    """Return the names of the commands that had failed and are in a script, too. What an interpreter is given
    in place of a file must be the same.
    """
    return {
        name
        for name in parts.keys() & error.failed
        if name not in _INTERPRETERS
        or (parts[name] == error.parts[name] and not any(HEREDOC.search(word) for word in parts[name]))
    }


_INTERPRETERS = frozenset(
    "python python3 node ruby bash sh zsh perl php deno bun rscript julia lua elixir psql mysql sqlite3 pwsh osascript "
    "powershell ssh mongosh redis-cli curl".split()
)
"""Programs whose name alone does not say what they do."""


def _ended(session: _Session, done: Sequence[Mention], script: str, place: int) -> Iterator[Mention]:
    """Yield what was done between an error and the success of what had failed, for each error that has ended now. What
    a chain did before that command counts, and the command itself if it was given other options or variables.
    """
    parts = _parts(script) if session.errors else {}
    acts = [each for each in done if each.kind is EntityKind.FILE]
    ran = {each.name: each for each in done if each.kind is EntityKind.COMMAND}
    acting = {name: ran[name] for name, words in parts.items() if name in ran and commands.matters(shlex.join(words))}
    left = []
    for error in session.errors:
        is_same = bool(script) and script == error.script
        again = _again(parts, error)
        first = next((at for at, name in enumerate(parts) if name in again), 0)
        chained = [name for name in list(parts)[:first] if name in acting and parts[name] != error.parts.get(name)]
        own = [acting[name] for name in chained if not is_same]
        if not commands.command_of_tests(script):
            own += [acting[n] for n in again if n in acting and _is_given_otherwise(parts[n], error.parts[n], n)]
        if (is_same or again) and (error.done or own):
            yield from _credited(error, own, place)
        elif not is_same and place - error.since <= FIX_WITHIN:
            error.done += [*acts, *(act for name, act in acting.items() if name not in error.failed)]
            left.append(error)
    session.errors = left


def _credited(error: _Error, own: Sequence[Mention], place: int) -> Iterator[Mention]:
    for each in list({act.entity: act for act in [*error.done, *own]}.values())[-MAX_FIXES:]:
        yield replace(each, relation=Relation.FIXED, other=error.mention.name, place=place)


def _is_given_otherwise(words: Sequence[str], before: Sequence[str], name: str) -> bool:
    """Return whether a command has other options, variables or arguments than before. More or fewer of the same
    arguments, and options that say how much is run or shown, are no others.
    """
    given, were = (
        {word for word in takewhile(lambda word: word != "--", each) if _GIVEN.match(word) and not _SCOPE.match(word)}
        for each in (words, before)
    )
    if given != were:
        return True
    one, other = (
        {word for word in each if not (word.startswith("-") or _AMOUNT.fullmatch(word))} - {*name.split()}
        for each in (words, before)
    )
    return not (one <= other or other <= one) and bool(
        {_VERSION.sub("", word) for word in one} & {_VERSION.sub("", word) for word in other}
    )


_GIVEN = re.compile(r"-|[A-Za-z_]\w*=")
_AMOUNT = re.compile(r"\d{1,3}")
_SCOPE = re.compile(
    r"-(?:[qvxsktRn]|vv+|run|-(?:tests?|filter|only|grep|verbose|quiet|debug|trace|tail|lines|no-color|json|format|check))"
    r"(?:=|$)"
)


def _edited(session: _Session, call: Utterance, place: int) -> Iterator[Mention]:
    """Yield the files that a call edits, and the symbols that it defines there."""
    if _EDITS.match(call.text) is not None and (given := _FILE.search(call.text)) is not None:
        name = file_name(given[1], call.folder, session.root)
        yield _mention(EntityKind.FILE, name, Relation.EDITED, call, place)
        old, divider, new = call.text.partition("\nnew_string: ")
        before, after = _definitions(old), _definitions(new)
        same = {*before} & {*after} if divider else session.seen
        defined = dict.fromkeys(each[0] for each in [*before, *after] if each not in same)
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


def _definitions(text: str) -> list[tuple[str, int]]:
    """Return the symbols that a text defines, each with a hash of what follows up to the next."""
    found = list(_DEFINES.finditer(text))
    ends = [*(each.start() for each in found[1:]), len(text)]
    return [
        (each["name"] or each["bound"], hash(_LABELS.sub("", text[each.start() : end]).strip()))
        for each, end in zip(found, ends, strict=False)
    ]


_NUMBER = re.compile(r"^ *\d+\u2192", re.MULTILINE)
"""The number before a line of a file that was read."""
_LABELS = re.compile(r"\A(?:old_string|new_string|content|new_source): |\nreplace_all: \w+\Z")


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
        for package in _packages(program, rest):
            yield _mention(EntityKind.PACKAGE, package, Relation.DEPENDS_ON, call, place)
        if program in {"ssh", "scp", "rsync"}:
            for host in filter(None, map(_host, rest)):
                yield _mention(EntityKind.HOST, host, Relation.RAN, call, place)


def _packages(program: str, rest: Sequence[str]) -> Iterator[str]:
    """Yield the packages that a command installs, in small letters."""
    rest = list(takewhile(lambda word: not _REDIRECTS.match(word), rest))
    options = _WITH_VALUE | {"-w"} if program == "npm" else _WITH_VALUE
    words = [word for before, word in pairwise(["", *rest]) if before not in options and not word.startswith("-")]
    words = words[_OF_PLACES.get(words[0], 0) :] if words else []
    if program in _MANAGERS and words and words[0] in _INSTALLS:
        for word in words[1:]:
            package = _VERSION.sub("", word)
            if _PACKAGE.fullmatch(package) and not path_of(word):
                yield package.lower()


_REDIRECTS = re.compile(r"\d?[<>]")
_HOST = re.compile(
    r"(?:[\w.-]+@)?(?P<host>[A-Za-z0-9][\w-]*(?:\.[\w-]+)+|\d+(?:\.\d+){3})(?::.*)?|[\w.-]+@(?P<named>[\w-]+)(?::.*)?"
)


def _host(word: str) -> str:
    found = _HOST.fullmatch(word)
    return (found["host"] or found["named"]).lower() if found and not path_of(word) else ""


# --- words -----------------------------------------------------------------------------------------------


def _named(session: _Session) -> list[Mention]:
    """Return what a person or Claude names. The bare name of a file stands for the one path that ends so."""
    named = []
    for said, place in session.texts:
        for kind, name, other in things_of(said.text, session.defined):
            relation = Relation.DEPENDS_ON if other else Relation.MENTIONED
            name = file_name(name, "", session.root) if kind is EntityKind.FILE else name
            named.append(replace(_mention(kind, name, relation, said, place), other=other))
    told = {each.name for each in named if each.kind is EntityKind.FILE and "/" in each.name}
    paths: dict[str, list[str]] = defaultdict(list)
    for path in session.paths | told:
        paths[leaf_of(path)].append(path)
    whole = {leaf: its[0] for leaf, its in paths.items() if len(its) == 1}
    return [
        replace(each, name=whole.get(each.name.lower(), each.name)) if each.kind is EntityKind.FILE else each
        for each in named
    ]


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
