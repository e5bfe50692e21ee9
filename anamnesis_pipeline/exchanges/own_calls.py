"""Tool calls that ask this very memory. What they get was remembered before, and is not remembered as news.

A result is left out as a whole, so a script counts only where nothing else than this memory's answers is seen.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from anamnesis_pipeline.exchanges.shell_scripts import HEREDOC, SUBSTITUTED, output_files, pipelines, program

OWN_NAME = "anamnesis"
"""Of the command, and of the MCP server and the plugin as they are set up."""

LONGEST_COMMAND = 20_000
"""Characters of a command that are looked at."""

_SERVER = re.compile(rf"mcp__(?:{OWN_NAME}|plugin_{OWN_NAME}_(?:{OWN_NAME}|memory))__.*", re.IGNORECASE | re.DOTALL)
_SHOWING = frozenset({"search", "recall", "forget"})
"""Subcommands that show what is stored."""
_HINT = re.compile(r"anamnesis|/memory/|/api/(?:episodes|forget)", re.IGNORECASE)

_NAMED_HOST = rf"(?i::3010\b|(?:^|//|[@\s'\"=]){OWN_NAME}(?:\.[\w.\-]+)?[:/]|\b{OWN_NAME}_(?:url|host|port)\b)"
_HOST = rf"(?:(?i:\blocalhost\b|127\.0\.0\.1|\[::1\])|{_NAMED_HOST})"
_PATH = r"/api/(?:episodes/(?:search\b|[0-9a-f]{32}\b|ep_)|forget\b)"
_UP_TO = r"[^\s'\"]{0,200}"
_ENDPOINT = re.compile(rf"{_HOST}{_UP_TO}?(?:{_PATH}|/memory/[a-z])|{_NAMED_HOST}{_UP_TO}?/api/episodes\b")
"""Addresses of the service that answer with episodes. Other services have such paths too, so the host counts."""
_ANY_HOST, _ANY_PATH = re.compile(_HOST), re.compile(_PATH)
_BASE = re.compile(rf"\b([A-Za-z_]\w*)=[\"']?([^\s\"';&|]{{0,100}}?{_HOST}[^\s\"';&|]{{0,100}})")
"""A variable that holds an address of the service."""
_MOST_BASES = 4
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_FUNCTION = re.compile(r"([A-Za-z_]\w{0,100})[ \t]*\(\)")

_CLIENTS = frozenset("curl wget http https xh httpie irm iwr invoke-restmethod invoke-webrequest".split())
_SHELLS = frozenset("bash sh zsh fish dash eval".split())
_REMOTE = frozenset("ssh docker docker-compose podman nerdctl kubectl".split())
_REMOTE_WORDS = 12
"""Words of a remote call among which a command is looked for."""
_ECHOES = frozenset({"echo", "printf"})
"""Programs that show nothing worth remembering but what is put into their words."""
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
"""Programs that pass on what comes to them through a pipe."""
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|node|deno|bun|ruby|perl|php|pwsh|powershell")
_CODE_OPTIONS = frozenset({"-c", "-e", "--eval", "-r", "-command", "-Command"})
_MODULE = f"{OWN_NAME}_pipeline"
_DEPTH = 4


def asks_memory(tool: str, value: Any) -> bool:
    """Whether the result of a call holds what this memory answered, and nothing else.

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
    """Whether a shell command shows what our search found, by name or over HTTP, and nothing of other programs."""
    if _HINT.search(command, 0, LONGEST_COMMAND) is None:
        return False
    script = re.sub(r"[\x01\x02]", "", command[:LONGEST_COMMAND])
    for name, base in islice(dict(_BASE.findall(script)).items(), _MOST_BASES):
        value = base.replace("\\", r"\\")
        script = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", value, script)[: 2 * LONGEST_COMMAND]
    return _Script(script, [], _DEPTH).shows_answers() is True


def _together(parts: Iterable[bool | None]) -> bool | None:
    """True for our answers alone, False where something else is shown, None where nothing is."""
    kinds = set(parts)
    return False if False in kinds else True if True in kinds else None


class _Script:
    """What a shell script shows.

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
        """True for our answers alone, False where something else is shown, None where nothing is."""
        return _together([self._pipeline(stages) for stages in self._pipelines])

    def _pipeline(self, stages: Sequence[Sequence[str]]) -> bool | None:
        """What the last program shows, or, where that only passes it on, the program before it."""
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
            return _shows(arguments) or None  # what its other commands say is no loss
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
        """What a filter shows that reads no pipe."""
        if not self._own_files.isdisjoint(arguments):
            return True
        if not any(word.startswith("<<<") or HEREDOC.search(word) for word in arguments):
            return False
        return _together(map(self._output_in, arguments))

    def _output_in(self, word: str) -> bool | None:
        """What is shown of the commands whose output stands in a word."""
        return _together(self._inner(self._texts[int(place)]) for place in SUBSTITUTED.findall(word))

    def _inner(self, script: str) -> bool | None:
        return _Script(script, self._texts, self._depth - 1).shows_answers() if self._depth else False

    def _runs_question(self, name: str, arguments: Sequence[str], before: Sequence[str]) -> bool:
        """Whether a shell, or a program that runs others elsewhere, is given a script or a command of ours."""
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
        """Whether an interpreter runs our command, or code that asks our service."""
        module = arguments[arguments.index("-m") + 1 :] if "-m" in arguments else []
        if module and module[0].partition(".")[0] == _MODULE:
            return _shows(module[1:])
        code = self._heredocs(arguments)
        if not _CODE_OPTIONS.isdisjoint(arguments):
            places = [int(place) for word in arguments for place in SUBSTITUTED.findall(word)]
            code += (*arguments, *(self._texts[place] for place in places))
        return any(_ENDPOINT.search(text) or (_ANY_PATH.search(text) and _ANY_HOST.search(text)) for text in code)


def _shows(arguments: Sequence[str]) -> bool:
    """Whether arguments of our command ask for what is stored."""
    first = next((word for word in arguments if not word.startswith("-")), "")
    return first in _SHOWING and not {"--help", "-h"} & set(arguments)
