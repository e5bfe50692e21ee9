"""Parse shell scripts into pipelines of commands, as far as their quotes match. Pure; runs nothing."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import PurePosixPath

_WRAPPERS = frozenset(
    (
        "sudo time env nohup command exec timeout nice uv uvx pipx poetry run xargs do then else if elif while until "
        "! {"
    ).split()
)
"""Words that may precede a program's name, with options, numbers and assignments."""
_MANAGERS = frozenset({"uv", "poetry", "pipx"})
_IN_BETWEEN = re.compile(r"-.*|[A-Za-z_]\w*=.*|[\d.]+[smhd]?", re.DOTALL)
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
_SUBSTITUTION = re.compile(r"\$\(((?:[^()'\"]|'[^']*'|\"[^\"]*\"){0,2000}+)\)|`([^`]{0,2000})`")
_NESTED = 4
_COMMENT_LINE = re.compile(r"(?m)^[ \t]*#.*$")
_JOINED_ERRORS = re.compile(r"\d?>&\d")
_REDIRECTION = re.compile(r"1?>{1,2}\|?(.*)", re.DOTALL)
_BORDERS = ";|&()\n"

SUBSTITUTED = re.compile(r"\x01(\d+)\x01")
"""Replaces a command substitution; the number is its index in `texts`."""
HEREDOC = re.compile(r"\x02(\d+)\x02")
"""Replaces a here-document."""


def pipelines(script: str, texts: list[str]) -> list[list[list[str]]]:
    """Return the words, unquoted, of each command of each pipeline.

    :param texts: receives the texts of here-documents and substitutions; scripts in these are read with the same list.
    """
    script = _without_heredocs(script.replace("\\\n", " "), texts)
    for _ in range(_NESTED):
        script, found = _SUBSTITUTION.subn(lambda m: _taken("\x01", m[1] or m[2] or "", texts), script)
        if not found:
            break
    script = _JOINED_ERRORS.sub(" ", _COMMENT_LINE.sub("", script)).replace("&>", ">")
    all_of_them: list[list[list[str]]] = [[]]
    for words, border in _commands(script):
        all_of_them[-1].append(words)
        if "|" not in border.replace("||", ""):
            all_of_them.append([])
    return [stages for stages in all_of_them if any(stages)]


def _taken(mark: str, text: str, texts: list[str]) -> str:
    texts.append(text)
    return f"{mark}{len(texts) - 1}{mark}"


def _without_heredocs(script: str, texts: list[str]) -> str:
    kept: list[str] = []
    lines = iter(script.split("\n"))
    for line in lines:
        found = _HEREDOC.search(line)
        if found is None:
            kept.append(line)
            continue
        body = "\n".join(takewhile(_differs_from(found[2]), lines))
        place = _taken("\x02", body, texts)
        kept.append(f"{line[: found.start()]} {place} {line[found.end() :]}")
    return "\n".join(kept)


def _differs_from(end: str) -> Callable[[str], bool]:
    return lambda line: line.strip() != end


def _commands(script: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each simple command, and the separator before the next."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars=_BORDERS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if word and set(word) <= set(_BORDERS):
                yield words, word
                words = []
            else:
                words.append(word)
    except ValueError:  # an unclosed quote
        pass
    yield words, ""


_VALUED = frozenset("--env-file --with --extra --group --python --directory --filter --prefix".split())
"""Options of wrappers that a value follows."""


def program(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return a simple command's program, without its folder, and its arguments."""
    pairs = zip(words, ["", *words], strict=False)
    skipped = takewhile(
        lambda pair: pair[0] in _WRAPPERS or _IN_BETWEEN.fullmatch(pair[0]) is not None or pair[1] in _VALUED, pairs
    )
    rest = list(words[sum(1 for _ in skipped) :])
    before = words[len(words) - len(rest) - 1] if len(rest) < len(words) else ""
    if rest and before in _MANAGERS and rest[0] != "pip":  # it works itself, and runs no other program
        return before, rest
    name = PurePosixPath(rest[0]).name.lower().removesuffix(".exe") if rest else ""
    return name, rest[1:]


def output_files(words: Sequence[str]) -> list[str]:
    """Return the files that a command's output is redirected to."""
    files: list[str] = []
    downloads = program(words)[0] == "curl"
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if found := _REDIRECTION.fullmatch(word):
            files.append(found[1] or following)
        elif downloads and word in {"-o", "--output"}:
            files.append(following)
    return files
