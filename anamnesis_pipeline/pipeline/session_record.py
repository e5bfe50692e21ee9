"""Session records: facts gathered chunk by chunk, then joined into one record. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from anamnesis_pipeline.model import Part, Segment, SegmentKind, content_id, said_at
from anamnesis_pipeline.parsing.claude_logs import commands
from anamnesis_pipeline.parsing.claude_logs.message_keys import call_of
from anamnesis_pipeline.parsing.claude_logs.tagged import between
from anamnesis_pipeline.parsing.text.plain_text import without_markup
from anamnesis_pipeline.parsing.text.sentences import beginning
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS
from anamnesis_pipeline.search.open_loops import decisions_in, open_loops
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.store.session_model import MAX_TITLE, SessionRecord

MAX_PROMPT_CHARS = 1_000
MAX_OUTCOME_CHARS = 1_500
MAX_MESSAGE_CHARS = 40_000
"""Max characters of a message: its beginning and end; a record needs nothing in between."""
MAX_FILES, MAX_COMMITS = 100, 50
MAX_COMMANDS, MAX_TESTS = 20, 12
MAX_DECISIONS = MAX_OPEN_ITEMS = 8
MAX_PENDING = 256
"""Max remembered tool calls without a result, the latest ones."""
MAX_GO_ON_CHARS = 200
SUBSTANTIAL_CHARS = 40
AFTER_GO_ON_CHARS = 200
"""Minimum length of an answer to a bare "go on" that counts; shorter ones only say that work continues."""

_PERSONS = frozenset({SegmentKind.PROMPT, SegmentKind.CHANNEL, SegmentKind.STEERING, SegmentKind.PLAN})
_MACHINES = frozenset({SegmentKind.NOTIFICATION, SegmentKind.MACHINE_PROMPT, SegmentKind.PEER})
_RESULTS = frozenset({SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})
_CLAUDES = frozenset({SegmentKind.STATEMENT, SegmentKind.THINKING, SegmentKind.TOOL_INPUT, *_RESULTS})
_INTERRUPTED = "[Request interrupted by user"
_SHELLS = frozenset({"Bash", "PowerShell"})
_PATH = re.compile(r"\n(?:file_path|notebook_path|path): ([^\n]+)")
_EDITING = re.compile(
    r"(?:Multi|Notebook)?Edit|Write|str_replace\w*|mcp__\w+__(?:write|edit|create|patch)_?(?:text_)?file"
)
_VIEWING = re.compile(r"\ncommand: (?:view|undo_edit)(?:\n|\Z)")
_TODO = re.compile(r"\{[^{}]*\}")
_TODO_FIELD = re.compile(r'"(content|subject|status)":"((?:[^"\\]|\\.)*)"')
_TODO_LINE = re.compile(r"^todos\[(\d+)\]\.(content|status): (.*)$", re.MULTILINE)
_TASK_MADE = re.compile(r"Task #(\w+) created successfully: (.+)")
_TASK_CHANGED = re.compile(r"\ntaskId: (\w+)\b.*?\nstatus: (\w+)|\nstatus: (\w+).*?\ntaskId: (\w+)\b", re.DOTALL)
_GO_ON = re.compile(
    r"\W*(?:(?:ok(?:ay)?|yes|yep|sure|please|great|good|perfect|and|now|then|just|ja|oui|sí)\W+)*"
    r"(?:go (?:on|ahead)|continue|proceed|keep going|carry on|do it|resume|next|(?:mach )?weiter|yes|ok(?:ay)?"
    r"|yep|sure|ja|oui|vas-y|sí|sigue|adelante)"
    r"(?:\W+(?:please|now|then|from where you (?:left off|stopped)|where you left off|with (?:it|that)))*\W*",
    re.IGNORECASE,
)
_NARRATION = re.compile(r"(?:now,? )?(?:let me|i'll|i will|i'm going to|let's)\b", re.IGNORECASE)
"""Start of narration between two steps of work."""


class Answer(NamedTuple):
    """The last message of a turn. A higher `rank` says more about the session's outcome."""

    rank: int
    at: datetime
    text: str


@dataclass(slots=True)
class _Message:
    """A message, reassembled from its pieces."""

    key: str
    kind: SegmentKind
    at: datetime | None
    pieces: list[str]
    is_agents: bool
    cwd: str
    length: int = 0

    def add(self, text: str) -> None:
        """Append a piece; truncate the middle of a huge message."""
        self.length += len(text)
        self.pieces.append(text)
        if self.length > 2 * MAX_MESSAGE_CHARS:
            text = "".join(self.pieces)
            self.pieces = [text[: MAX_MESSAGE_CHARS // 2], text[-MAX_MESSAGE_CHARS // 2 :]]
            self.length = MAX_MESSAGE_CHARS

    @property
    def text(self) -> str:
        """The kept text."""
        return "".join(self.pieces)


@dataclass(slots=True)
class Gathered:
    """Facts of a session in one source. Add its chunks in order, then call `end`."""

    source: str
    session_id: str
    path: str = ""
    project: str = ""
    cwd: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    keys: set[str] = field(default_factory=set)
    files_of: set[tuple[str, str]] = field(default_factory=set)
    """Source and path of its logs, without those of subagents."""
    errors: int = 0
    prompts: list[str] = field(default_factory=list)
    """The first prompt, and the first that states a subject."""
    command: str = ""
    """The first slash command."""
    machine_prompt: str = ""
    """The first prompt that is not a person's."""
    answers: list[Answer] = field(default_factory=list)
    """The latest of each rank."""
    files: dict[str, None] = field(default_factory=dict)
    commands: dict[str, None] = field(default_factory=dict)
    tests: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    branch: str = ""
    """Branch of the last commit that names one."""
    decisions: dict[str, None] = field(default_factory=dict)
    todos: dict[str, str] = field(default_factory=dict)
    """To-do -> its state, by the last list that Claude wrote."""
    tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Task number -> its text and state."""
    _agents_path: str = ""
    _message: _Message | None = None
    _pending: dict[str, str] = field(default_factory=dict)
    _statement: _Message | None = None
    _asked_by: str = "machine"
    """What began the turn: `person`, `go on`, or `machine`."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no message."""
        return not self.keys

    def add(self, part: Part) -> None:
        """Add the next chunk."""
        if part.kind == "compact_summary" or (self.project and part.project != self.project):
            return  # text from another project, which may be private, does not belong in this record
        is_agents = bool(part.agent_id)
        if not is_agents:
            self.files_of.add((part.source, part.path))
            self.path, self.project, self.cwd = (
                self.path or part.path,
                self.project or part.project,
                self.cwd or part.cwd,
            )
        for segment in part.segments:
            self._segment(segment, is_agents, part.cwd)
        if is_agents:
            self._agents_path, self.project = self._agents_path or part.path, self.project or part.project

    def end(self) -> "Gathered":
        """Finish the last message and turn."""
        self._finish_message()
        self._finish_turn()
        self.path = self.path or self._agents_path
        return self

    def _segment(self, segment: Segment, is_agents: bool, cwd: str) -> None:
        if self._message is not None and self._message.key == segment.message_key:
            self._message.add(segment.text)
            return
        self._finish_message()
        if segment.message_key in self.keys:
            return
        self.keys.add(segment.message_key)
        at = said_at(segment.timestamp)
        if at is not None:
            self.started = min(self.started or at, at)
            self.ended = max(self.ended or at, at)
        self._message = _Message(segment.message_key, segment.kind, at, [], is_agents, cwd)
        self._message.add(segment.text)

    def _finish_message(self) -> None:
        message, self._message = self._message, None
        if message is None:
            return
        if message.kind is SegmentKind.TOOL_INPUT:
            self._call(message)
        elif message.kind in _RESULTS:
            self._result(message)
        elif message.is_agents:
            return
        elif message.kind is SegmentKind.STATEMENT:
            self._statement = message
            self._note_decisions(message.text)
        elif message.kind not in _CLAUDES:
            self._asked(message)

    # --- what was said ---------------------------------------------------------------------------------------

    def _asked(self, message: _Message) -> None:
        text, kind = message.text, message.kind
        if kind in _PERSONS:
            self._finish_turn()
            self._asked_by = "go on" if is_go_on(text) else "person"
            self._note_decisions(text)
            if kind is not SegmentKind.PLAN and (not self.prompts or (len(self.prompts) < 2 and _tells(text))):
                self.prompts.append(text)
        elif kind in _MACHINES and not text.startswith(_INTERRUPTED):
            self._finish_turn()
            self._asked_by = "machine"
            if kind is not SegmentKind.NOTIFICATION:
                self.machine_prompt = self.machine_prompt or text
        elif kind is SegmentKind.COMMAND and (name := between(text, "<command-name>", "</command-name>")):
            self._finish_turn()
            self._asked_by = "person"
            arguments = between(text, "<command-args>", "</command-args>") or ""
            self.command = self.command or f"{name.strip()} {arguments.strip()}".strip()

    def _finish_turn(self) -> None:
        """Rank Claude's last message before the next prompt: it may be the session's outcome."""
        said, self._statement = self._statement, None
        if said is None:
            return
        text = _without_narration(said.text.strip())
        is_telling = len(text) >= SUBSTANTIAL_CHARS and not text.endswith(":") and not _NARRATION.match(text)
        if self._asked_by == "machine":
            rank = 0
        elif self._asked_by == "go on" and len(text) < AFTER_GO_ON_CHARS:
            rank = 1
        else:
            rank = 3 if is_telling else 2
        answer = Answer(rank, said.at or self.ended or _NEVER, text)
        self.answers = [*(each for each in self.answers if each.rank != rank), answer]

    def _note_decisions(self, text: str) -> None:
        for decision in decisions_in(text):
            self.decisions.pop(decision, None)
            self.decisions[decision] = None
        while len(self.decisions) > MAX_DECISIONS:
            del self.decisions[next(iter(self.decisions))]

    # --- what was done ---------------------------------------------------------------------------------------

    def _call(self, message: _Message) -> None:
        text = message.text
        name = text.partition("\n")[0]
        if name == "TodoWrite":
            self.todos = _todos(text)
        elif name in {"TaskUpdate"} and (found := _TASK_CHANGED.search(text)):
            number, state = (found[1], found[2]) if found[1] else (found[4], found[3])
            if number in self.tasks:
                self.tasks[number] = (self.tasks[number][0], state)
        if name in _SHELLS or name == "TaskCreate" or _EDITING.fullmatch(name):
            self._pending[message.key.rpartition(":")[2]] = text
            if len(self._pending) > MAX_PENDING:
                del self._pending[next(iter(self._pending))]

    def _result(self, message: _Message) -> None:
        is_error = message.kind is SegmentKind.TOOL_ERROR
        self.errors += is_error
        call = call_of(message.key.removeprefix("f:"))
        text = self._pending.pop(content_id("tool_use", call), "") if call else ""
        if not text:
            return
        name = text.partition("\n")[0]
        if name == "TaskCreate":
            if found := _TASK_MADE.search(message.text):
                self.tasks[found[1]] = (found[2].strip(), "pending")
        elif name in _SHELLS:
            if script := commands.script_of(text):
                self._ran(script, message.text, is_error=is_error)
        elif is_error or _VIEWING.search(text) or len(self.files) >= MAX_FILES:
            return
        elif found := _PATH.search(text):
            self.files.setdefault(_relative(found[1].strip(), (self.cwd, message.cwd)))

    def _ran(self, script: str, output: str, *, is_error: bool) -> None:
        if tested := commands.command_of_tests(script):
            self.tests.append(f"{tested}: {commands.outcome_of_tests(output, is_error=is_error)}")
            del self.tests[:-MAX_TESTS]
        if commands.commits(script):
            for branch, commit in commands.commits_in(script, output, is_error=is_error):
                if "--amend" in script and self.commits:
                    self.commits.pop()
                self.commits = [*self.commits, commit][-MAX_COMMITS:]
                self.branch = branch if branch and not branch.startswith("detached") else self.branch
        elif commands.matters(script):
            shown = commands.shown(script)
            self.commands.pop(shown, None)
            self.commands[shown] = None
            if len(self.commands) > MAX_COMMANDS:
                del self.commands[next(iter(self.commands))]


_NEVER = datetime.fromtimestamp(0, UTC)


def record_of(
    gathered: Sequence[Gathered], machine: str, branches: Mapping[tuple[str, str], str], revision: int = 1
) -> SessionRecord:
    """Return the record of joined sessions, ordered by start; at least one is not empty.

    :param branches: (source, session) -> its last git branch.
    """
    first = gathered[0]
    answer = max((a for each in gathered for a in each.answers), key=lambda a: (min(a.rank, 3), a.at), default=None)
    outcome = answer.text if answer else ""
    commands_given = (each.command for each in gathered if each.command)
    prompt = next((each.prompts[0] for each in gathered if each.prompts), "") or next(commands_given, "")
    commits = _last((c for each in gathered for c in each.commits), MAX_COMMITS)
    named = [branches.get((each.source, each.session_id), "") or each.branch for each in gathered]
    return SessionRecord(
        session_id=first.session_id,
        session_ids=tuple(dict.fromkeys(each.session_id for each in gathered)),
        machine=machine,
        project=first.project,
        branch=next(filter(None, reversed(named)), ""),
        title=_title(gathered, outcome),
        prompt=beginning(prompt, MAX_PROMPT_CHARS, keep_lines=True),
        outcome=beginning(outcome, MAX_OUTCOME_CHARS, keep_lines=True),
        started=min((each.started for each in gathered if each.started), default=_NEVER),
        ended=max((each.ended for each in gathered if each.ended), default=_NEVER),
        messages=len(set().union(*(each.keys for each in gathered))),
        errors=sum(each.errors for each in gathered),
        files=tuple(dict.fromkeys(name for each in gathered for name in each.files))[:MAX_FILES],
        commands=_last((c for each in gathered for c in each.commands), MAX_COMMANDS),
        tests=_last((t for each in gathered for t in each.tests), MAX_TESTS),
        commits=commits,
        decisions=_last((d for each in gathered for d in each.decisions), MAX_DECISIONS),
        open_items=_open_items(gathered, outcome),
        revision=revision,
    )


def _without_narration(text: str) -> str:
    """Return a message without trailing paragraphs that only announce the next step, unless nothing else is left."""
    paragraphs = text.split("\n\n")
    while len(paragraphs) > 1 and (_NARRATION.match(paragraphs[-1]) and len(paragraphs[-1]) < AFTER_GO_ON_CHARS):
        paragraphs.pop()
    return "\n\n".join(paragraphs)


def _title(gathered: Sequence[Gathered], outcome: str) -> str:
    """Return a title of at most MAX_TITLE characters: the first meaningful line of the prompt, else of the outcome."""
    prompts = [prompt for each in gathered for prompt in each.prompts]
    asked = next(filter(_tells, prompts), "") or next(iter(prompts), "")
    if not _tells(asked):
        asked = next((each.command for each in gathered if each.command and each.command != "/clear"), "") or asked
    for text in (asked, next((each.machine_prompt for each in gathered if each.machine_prompt), ""), outcome):
        lines = [" ".join(line.split()) for line in without_markup(text[:4_000]).splitlines()]
        line = next((each for each in lines if _tells(each)), "") or next(filter(None, lines), "")
        if line := line.rstrip(" .:,;-"):
            return line if len(line) <= MAX_TITLE else beginning(line, MAX_TITLE).rstrip(" .:,;-")
    files = [name.rpartition("/")[2] for each in gathered for name in each.files]
    if files:
        return f"Changes of {', '.join(files)}"[:MAX_TITLE]
    began = min((each.started for each in gathered if each.started), default=None)
    return f"Session of {began:%Y-%m-%d %H:%M} UTC" if began else "Session without a date"


def _open_items(gathered: Sequence[Gathered], outcome: str) -> tuple[str, ...]:
    """Return open items named at the end of the work, then unfinished items of the last to-do list."""
    found = open_loops(outcome, MAX_OPEN_ITEMS)
    lists = [each for each in gathered if each.todos or each.tasks]
    if lists:
        todos = (*lists[-1].todos.items(), *lists[-1].tasks.values())
        found += [what for what, state in todos if state in {"pending", "in_progress"}]
    return tuple(dict.fromkeys(found))[:MAX_OPEN_ITEMS]


def _todos(text: str) -> dict[str, str]:
    """Return to-do -> state from a `TodoWrite` call, in either notation."""
    found = [dict(_TODO_FIELD.findall(item[0])) for item in _TODO.finditer(text)]
    lines: dict[str, dict[str, str]] = {}
    for number, name, value in _TODO_LINE.findall(text):
        lines.setdefault(number, {})[name] = value
    return {
        item["content"]: item["status"] for item in (*found, *lines.values()) if item.keys() >= {"content", "status"}
    }


def _relative(path: str, folders: Iterable[str]) -> str:
    """Return a path relative to the first folder that contains it, with `/`; unchanged if none does."""
    plain = path.replace("\\", "/")
    for folder in folders:
        inside = folder.replace("\\", "/").rstrip("/") + "/"
        if folder and plain.startswith(inside):
            return plain.removeprefix(inside)
    return path


def _last(items: Iterable[str], most: int) -> tuple[str, ...]:
    """Return the last `most` distinct items, in order."""
    return tuple(reversed(tuple(dict.fromkeys(reversed(list(items))))[:most]))


def is_go_on(prompt: str) -> bool:
    """Return whether a prompt only says yes, or to go on. Pure."""
    return len(prompt) <= MAX_GO_ON_CHARS and _GO_ON.fullmatch(prompt) is not None


def _tells(text: str) -> bool:
    """Return whether a text states a subject; `go on` does not."""
    return sum(word not in STOP_WORDS for word in content_words(text[:2_000])) > 2
