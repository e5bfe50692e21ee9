"""Detect tool calls to this memory. Their results were remembered before and are not stored again.

A result is left out as a whole, so a script counts only if its output has nothing but this memory's answers.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from anamnesis_pipeline.parsing.claude_logs.shell_scripts import HEREDOC, SUBSTITUTED, output_files, pipelines, program

OWN_NAME = "anamnesis"
"""Name of the command, and of the MCP server and the plugin as installed."""

LONGEST_COMMAND = 20_000
"""Limit of a command that is read."""

_SERVER = re.compile(rf"mcp__(?:{OWN_NAME}|plugin_{OWN_NAME}_(?:{OWN_NAME}|memory))__.*", re.IGNORECASE | re.DOTALL)
_SHOWING = frozenset({"search", "recall", "forget"})
"""Subcommands that show stored content."""
_HINT = re.compile(r"anamnesis|/memory/|/api/(?:episodes|forget)", re.IGNORECASE)

_NAMED_HOST = rf"(?i::3010\b|(?:^|//|[@\s'\"=]){OWN_NAME}(?:\.[\w.\-]+)?[:/]|\b{OWN_NAME}_(?:url|host|port)\b)"
_HOST = rf"(?:(?i:\blocalhost\b|127\.0\.0\.1|\[::1\])|{_NAMED_HOST})"
_PATH = r"/api/(?:episodes/(?:search\b|[0-9a-f]{32}\b|ep_)|forget\b)"
_UP_TO = r"[^\s'\"]{0,200}"
_ENDPOINT = re.compile(rf"{_HOST}{_UP_TO}?(?:{_PATH}|/memory/[a-z])|{_NAMED_HOST}{_UP_TO}?/api/episodes\b")
"""Service addresses that answer with episodes. Other services have such paths too, so the host must match."""
_ANY_HOST, _ANY_PATH = re.compile(_HOST), re.compile(_PATH)
_BASE = re.compile(rf"\b([A-Za-z_]\w*)=[\"']?([^\s\"';&|]{{0,100}}?{_HOST}[^\s\"';&|]{{0,100}})")
"""A variable that holds an address of the service."""
_MAX_BASES = 4
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_FUNCTION = re.compile(r"([A-Za-z_]\w{0,100})[ \t]*\(\)")

_CLIENTS = frozenset("curl wget http https xh httpie irm iwr invoke-restmethod invoke-webrequest".split())
_SHELLS = frozenset("bash sh zsh fish dash eval".split())
_REMOTE = frozenset("ssh docker docker-compose podman nerdctl kubectl".split())
_REMOTE_WORDS = 12
"""Words of a remote call that are searched for a command."""
_ECHOES = frozenset({"echo", "printf"})
"""Programs whose only new output comes from substitutions in their arguments."""
_SILENT = frozenset(
    (
        "cd pushd popd export set unset shopt sleep true false : test [ [[ ]] read wait trap source . mkdir rm touch "
        "exit return break continue shift local declare readonly alias for in case esac fi done } umask mktemp which "
        "type pwd date #"
    ).split()
)
_FILTERS = frozenset(
    (
        "jq yq gron grep egrep fgrep rg head tail less more cat bat sed awk gawk cut sort uniq tr wc tee column fold "
        "fmt nl tac rev paste json_pp base64 fx glow strings"
    ).split()
)
"""Programs that pass on their piped input."""
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|node|deno|bun|ruby|perl|php|pwsh|powershell")
_CODE_OPTIONS = frozenset({"-c", "-e", "--eval", "-r", "-command", "-Command"})
_MODULE = f"{OWN_NAME}_pipeline"
_DEPTH = 4


def asks_memory(tool: str, value: Any) -> bool:
    """Return whether the result of a call holds only this memory's answer.

    :param value: the call's input.
    """
    if _SERVER.fullmatch(tool):
        return True
    if not isinstance(value, dict):
        return False
    url, command = value.get("url"), value.get("command")
    if isinstance(url, str) and _ENDPOINT.search(url):
        return True
    return isinstance(command, str) and is_question(command)


def is_question(command: str) -> bool:
    """Return whether a shell command shows only our search results, by command or HTTP."""
    if _HINT.search(command, 0, LONGEST_COMMAND) is None:
        return False
    script = re.sub(r"[\x01\x02]", "", command[:LONGEST_COMMAND])
    for name, base in islice(dict(_BASE.findall(script)).items(), _MAX_BASES):
        value = base.replace("\\", r"\\")
        script = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", value, script)[: 2 * LONGEST_COMMAND]
    return _Script(script, [], _DEPTH).shows_answers() is True


def _together(parts: Iterable[bool | None]) -> bool | None:
    """Return True for our answers only, False if anything else is shown, None if nothing is."""
    kinds = set(parts)
    return False if False in kinds else True if True in kinds else None


class _Script:
    """The output of a shell script.

    :param texts: its here-documents and substitutions, and those of the script around it.
    """

    def __init__(self, script: str, texts: list[str], depth: int) -> None:
        self._texts, self._depth = texts, depth
        self._pipelines = pipelines(script, texts)
        self._functions = frozenset(_FUNCTION.findall(script))
        commands = [words for stages in self._pipelines for words in stages]
        shown = [word for words in commands if program(words)[0] in _ECHOES | _FILTERS for word in words]
        self._shown_variables = frozenset(name for word in shown for name in _VARIABLE.findall(word))
        self._own_files: set[str] = set()

    def shows_answers(self) -> bool | None:
        """Return True for our answers only, False if anything else is shown, None if nothing is."""
        return _together([self._pipeline(stages) for stages in self._pipelines])

    def _pipeline(self, stages: Sequence[Sequence[str]]) -> bool | None:
        """Return the output of the last program, or of the one before it if the last only passes it on."""
        at = len(stages) - 1
        while at and self._passes_on(stages[at]):
            at -= 1
        shown = self._command(stages[at], stages[at - 1] if at else ())
        if shown:
            self._own_files.update(file for words in stages[at:] for file in output_files(words))
            self._own_files.update(word for words in stages[at:] if words[:1] == ["tee"] for word in words[1:])
        return None if output_files(stages[-1]) else shown

    def _passes_on(self, words: Sequence[str]) -> bool:
        name, arguments = program(words)
        if _INTERPRETER.fullmatch(name):
            return not self._code_asks(arguments)
        return not name or name in _FILTERS | _ECHOES | _SILENT

    def _command(self, words: Sequence[str], before: Sequence[str] = ()) -> bool | None:
        """:param before: the command whose output this one reads."""
        name, arguments = program(words)
        if name == OWN_NAME:
            return _shows(arguments) or None  # the output of its other commands is not needed
        if not name or name in _SILENT or name in self._functions or {"command", "-v"} <= set(words):
            return _together(self._output_in(w) for w in words if w.partition("=")[0] in self._shown_variables)
        if name in _ECHOES:
            return _together(map(self._output_in, arguments))
        if name in _FILTERS:
            return self._filtered(arguments)
        if place := SUBSTITUTED.fullmatch(name):
            return self._output_in(place[0])
        return self._asks(name, arguments, before)

    def _asks(self, name: str, arguments: Sequence[str], before: Sequence[str]) -> bool:
        if name in _CLIENTS:
            return any(map(_ENDPOINT.search, arguments))
        if name in _SHELLS | _REMOTE:
            return self._runs_question(name, arguments, before)
        return _INTERPRETER.fullmatch(name) is not None and self._code_asks(arguments)

    def _filtered(self, arguments: Sequence[str]) -> bool | None:
        """Return the output of a filter without piped input."""
        if not self._own_files.isdisjoint(arguments):
            return True
        if not any(word.startswith("<<<") or HEREDOC.search(word) for word in arguments):
            return False
        return _together(map(self._output_in, arguments))

    def _output_in(self, word: str) -> bool | None:
        """Return the output of the commands substituted in a word."""
        return _together(self._inner(self._texts[int(place)]) for place in SUBSTITUTED.findall(word))

    def _inner(self, script: str) -> bool | None:
        return _Script(script, self._texts, self._depth - 1).shows_answers() if self._depth else False

    def _runs_question(self, name: str, arguments: Sequence[str], before: Sequence[str]) -> bool:
        """Return whether a shell, or a remote runner, gets a script or a command of ours."""
        scripts = [word.removeprefix("<<<") for word in (*arguments, *before[1:]) if " " in word]
        scripts += self._heredocs((*arguments, *before))
        if name == "eval":
            scripts.append(" ".join(arguments))
        if any(map(self._inner, scripts)):
            return True
        commands = [arguments[at:] for at in range(min(len(arguments), _REMOTE_WORDS))] if name in _REMOTE else []
        return any(self._command(words) for words in commands if program(words)[0] in _CLIENTS | {OWN_NAME})

    def _heredocs(self, words: Iterable[str]) -> list[str]:
        return [self._texts[int(place)] for word in words for place in HEREDOC.findall(word)]

    def _code_asks(self, arguments: Sequence[str]) -> bool:
        """Return whether an interpreter runs our command, or code that calls our service."""
        module = arguments[arguments.index("-m") + 1 :] if "-m" in arguments else []
        if module and module[0].partition(".")[0] == _MODULE:
            return _shows(module[1:])
        code = self._heredocs(arguments)
        if not _CODE_OPTIONS.isdisjoint(arguments):
            places = [int(place) for word in arguments for place in SUBSTITUTED.findall(word)]
            code += (*arguments, *(self._texts[place] for place in places))
        return any(_ENDPOINT.search(text) or (_ANY_PATH.search(text) and _ANY_HOST.search(text)) for text in code)


def _shows(arguments: Sequence[str]) -> bool:
    """Return whether arguments of our command request stored content."""
    first = next((word for word in arguments if not word.startswith("-")), "")
    return first in _SHOWING and not {"--help", "-h"} & set(arguments)
