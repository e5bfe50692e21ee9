"""Tool calls that ask this very memory. What they get was remembered before, and is not remembered as news."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from pathlib import PurePosixPath
from typing import Any

OWN_NAME = "anamnesis"
"""Of the command, and part of the names that its MCP servers and their plugins are given."""

LONGEST_COMMAND = 20_000
"""Characters of a command that are looked at."""

_SHOWING = frozenset({"search", "recall", "forget"})
"""Subcommands that show what is stored."""
_HINT = re.compile(r"anamnesis|/memory/|/api/episodes", re.IGNORECASE)
_ENDPOINT = re.compile(
    r"/api/(?:episodes/(?:search\b|[0-9a-f]{32}\b|ep_)|forget\b)"
    r"|(?i:\blocalhost\b|127\.0\.0\.1|\[::1\]|:3010\b|anamnesis)[^\s'\"]{0,200}/memory/[a-z]"
    r"|(?i::3010\b|anamnesis)[^\s'\"]{0,200}/api/episodes\b"
)
"""Addresses of the service that answer with episodes. Other services have such paths too, so most want its port."""

_WRAPPERS = frozenset(
    "sudo time env nohup command exec timeout nice uv uvx pipx poetry run xargs do then else if while until ! {".split()
)
"""What may stand before a program's name, with options, numbers and assignments."""
_IN_BETWEEN = re.compile(r"-.*|[A-Za-z_]\w*=.*|[\d.]+[smhd]?", re.DOTALL)
_CLIENTS = frozenset("curl wget http https xh httpie irm iwr invoke-restmethod invoke-webrequest".split())
_SHELLS = frozenset("bash sh zsh fish dash ssh eval".split())
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|node|deno|bun|ruby|perl|php|pwsh|powershell")
_CODE_OPTIONS = frozenset({"-c", "-e", "--eval", "-r", "-command", "-Command"})
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
_MODULE = f"{OWN_NAME}_pipeline"
_DEPTH = 4


def asks_memory(tool: str, value: Any) -> bool:
    """Whether the result of a call holds what this memory answered.

    :param value: the call's input.
    """
    if tool.startswith("mcp__") and OWN_NAME in tool.split("__")[1].lower():
        return True
    if not isinstance(value, dict):
        return False
    url, command = value.get("url"), value.get("command")
    if isinstance(url, str) and _ENDPOINT.search(url):
        return True
    return isinstance(command, str) and is_question(command)


def is_question(command: str) -> bool:
    """Whether a shell command runs our search, by name or over HTTP; one that only speaks of it does not."""
    return _runs_question(command[:LONGEST_COMMAND], _DEPTH)


def _runs_question(command: str, depth: int) -> bool:
    if _HINT.search(command) is None:
        return False
    script, bodies = _without_heredocs(command.replace("\\\n", " "))
    if any(_is_asked(words, depth) for words in _commands(script)):
        return True
    for opening, body in bodies:
        programs = [PurePosixPath(words[0]).name for words in map(_program, _commands(opening)) if words]
        if any(map(_INTERPRETER.fullmatch, programs)) and _ENDPOINT.search(body):
            return True
        if depth and not _SHELLS.isdisjoint(programs) and _runs_question(body, depth - 1):
            return True
    return False


def _without_heredocs(command: str) -> tuple[str, list[tuple[str, str]]]:
    """The command without the texts that it gives to programs, and these with the line that each belongs to."""
    kept: list[str] = []
    bodies: list[tuple[str, str]] = []
    lines = iter(command.split("\n"))
    for line in lines:
        kept.append(line)
        if found := _HEREDOC.search(line):
            body: list[str] = []
            for inner in lines:
                if inner.strip() == found[2]:
                    break
                body.append(inner)
            bodies.append((line[: found.start()], "\n".join(body)))
    return "\n".join(kept), bodies


def _commands(script: str) -> Iterator[list[str]]:
    """The words of each simple command, unquoted, as far as the quotes match."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars=";|&()\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if set(word) <= set(";|&()\n"):
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:  # a quote that is not closed
        pass
    yield words


def _program(words: Sequence[str]) -> list[str]:
    """A simple command from its program's name on."""
    return list(dropwhile(lambda word: word in _WRAPPERS or _IN_BETWEEN.fullmatch(word) is not None, words))


def _is_asked(words: Sequence[str], depth: int) -> bool:
    if depth and any(_runs_question(word.partition("$(")[2], depth - 1) for word in words if "$(" in word):
        return True
    name, *rest = [PurePosixPath(word).name if not n else word for n, word in enumerate(_program(words))] or [""]
    name = name.lower().removesuffix(".exe")
    if name == OWN_NAME:
        return _shows(rest)
    if name in _CLIENTS:
        return any(map(_ENDPOINT.search, rest))
    if name in _SHELLS:
        return depth > 0 and any(_runs_question(word, depth - 1) for word in (*rest, " ".join(rest)))
    if _INTERPRETER.fullmatch(name):
        module = rest[rest.index("-m") + 1 :] if "-m" in rest else []
        is_own = bool(module) and module[0].partition(".")[0] == _MODULE
        runs_code = not _CODE_OPTIONS.isdisjoint(rest) and any(map(_ENDPOINT.search, rest))
        return (is_own and _shows(module[1:])) or runs_code
    return False


def _shows(arguments: Sequence[str]) -> bool:
    """Whether arguments of our command ask for what is stored."""
    first = next((word for word in arguments if not word.startswith("-")), "")
    return first in _SHOWING and not {"--help", "-h"} & set(arguments)
