"""Classify a shell command: whether it changed, built or tested something, how tests ended, its commits. Pure.

A command that is not known to be read-only counts as an action.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from anamnesis_pipeline.parsing.claude_logs.shell_scripts import output_files, pipelines, program

MAX_SCRIPT_CHARS = 20_000
"""Limit of a script that is parsed; a longer one is mostly a here-document."""
SHOWN_CHARS = 160

_SHELLS = ("Bash\n", "PowerShell\n")
_GIVEN = re.compile(
    r"\ncommand: (.*?)(?=\n(?:description|timeout|run_in_background|sandbox|dangerouslyDisableSandbox): |\Z)", re.DOTALL
)

_LOOKING = frozenset(
    """
    ls cat grep egrep fgrep rg ag fd head tail echo printf pwd cd wc which type whereis tree file stat du df ps top env
    printenv export source . date sleep jq yq sort uniq diff cmp less more true false test [ [[ history man id whoami
    uname hostname basename dirname realpath readlink awk cut tr column nl tac xxd hexdump strings lsof netstat ss dig
    nslookup ping set unset alias wait jobs kill pkill nproc free uptime seq for done fi esac return exit shopt ulimit
    umask clear base64 md5sum sha1sum sha256sum comm join paste od pgrep ack bat exa eza watch break continue local
    declare trap read
    """.split()
)
_MOVING = frozenset("find mkdir rmdir chmod chown touch rm cp mv ln xargs tee unzip tar sleep cd".split())
_LOOKING_WORDS = frozenset(
    """
    show list ls status view get describe info log logs diff help version search inspect ps cat print tree outdated why
    freeze config grep stats ready images events history env doc metadata whoami explain read
    """.split()
)
_OWN_FILE = r"^(?!-$|- |-[cep]\b|-m json\.tool|\x02|$)"
_SQL = r"(?i)\b(?:insert|update|delete|create|alter|drop|truncate)\b"
_ACTS_WHEN: Mapping[str, str] = {
    "sed": r"(?:^| )(?:-[a-zE]*i|--in-place)",
    "perl": r"(?:^| )-[a-z]*i",
    "find": r" -(?:delete|exec (?!grep))",
    "curl": r"(?:^| )(?:-X|--request|-d|--data\S*|-F|-T|--json|-O|-o) ",
    "sqlite3": _SQL,
    "psql": _SQL,
    "mysql": _SQL,
    "python": _OWN_FILE,
    "python3": _OWN_FILE,
    "node": _OWN_FILE,
    "ruby": _OWN_FILE,
    "git": r"^(?:-[cC] \S+ |--\S+ )*(?:commit|push|merge|rebase|reset|checkout|switch|restore|revert|cherry-pick|init"
    r"|tag \S+|clone|pull|rm|mv|clean|apply|am|bisect|submodule|stash(?! list)|worktree (?:add|remove))\b",
    "gh": r"^(?!api)\S+ (?!view|list|checks|diff|status|watch)[a-z]",
}
"""Program -> arguments with which it is not read-only."""
_LAUNCHERS = frozenset({"npx", "bunx", "pnpx", "bundle", "exec", "dlx"})
_TESTERS = frozenset(
    """
    pytest py.test tox nox vitest jest mocha ava rspec phpunit ctest bats pest karma nextest behave trial nose2
    gotestsum
    """.split()
)
_TARGET = r"(?:[\w.-]+[:_-])?(?:tests?|spec|check|verify|nextest)(?:[:_-][\w.-]+)?(?= |$)"
_SCRIPT = r"^(?:-\S+ )*(?:\S*[/_-])?(?:run[_-]?)?tests?(?:[_-][\w-]+)?\.(?:sh|py|m?js|ts|rb)\b"
_OF_LANGUAGE, _OF_PACKAGES, _OF_TARGETS = (
    r"^(?:-\S+ )*(?:test|nextest)\b",
    rf"^(?:(?:run|exec) )?(?:-\S+ )*(?:t$|vitest|jest|{_TARGET})",
    rf"(?:^|[ :]){_TARGET}",
)
_TESTS_WHEN: Mapping[str, str] = {
    **dict.fromkeys("go cargo mix swift dotnet zig flutter dart deno".split(), _OF_LANGUAGE),
    **dict.fromkeys("npm pnpm yarn bun".split(), _OF_PACKAGES),
    **dict.fromkeys(
        "make just task gradle gradlew mvn mvnw rake rails sbt stack cabal bazel nx turbo composer lein meson ninja "
        "hatch pdm manage.py".split(),
        _OF_TARGETS,
    ),
    **dict.fromkeys("bash sh zsh node".split(), _SCRIPT),
    **dict.fromkeys(
        ("python", "python3"),
        rf"^(?:-\S+ )*?-m (?:pytest|unittest|nose2|tox|behave)\b|^\S*manage\.py test\b|{_SCRIPT}",
    ),
    **dict.fromkeys(("playwright", "cypress"), r"^(?:test|run)\b"),
}
"""Program -> arguments with which it runs tests."""
_TEST_SCRIPT = re.compile(r"(?:run[_-]?)?tests?(?:[_-][\w-]+)?\.(?:sh|py|rb)")
_ONLY_TOLD = frozenset({"--help", "--version", "-V", "--collect-only", "--co"})

_MOVES = re.compile(r"^cd \S+ (?:&&|;) ")
_SHORTENED = re.compile(
    r"(?: 2>&1)?(?: \| (?:tail|head|e?grep|rg|wc|sort|cat)\b(?:\"[^\"]*\"|'[^']*'|[^|&;<>\"'])*)*(?: 2>&1)?$"
)
"""Commands that only shorten an output."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONG_LINE = 500
_COUNTS = re.compile(
    r"\b\d+(?:\.\d+)?%? (?:tests? )?(?:passed|failed|passing|failing|errors?|failures?|skipped|examples?|pending)\b"
    r"|\bTests? run: ?\d+|\btest result: |\b(?:Passed|Failed): +\d+|\bOK \(\d+ tests?|\b\d+ (?:tests?|runs|specs?), \d+"
    r"|^# (?:pass|fail) \d+|^FAILED \((?:failures|errors)=|^Ran \d+ tests?\b|\bno tests ran\b"
)
_HALF = re.compile(r"^\d+ (?:passing|failing)|^# (?:pass|fail)|^FAILED \(")
"""A count of only passed, or only failed tests."""
_MAX_COUNTS = 3
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?:::|\.py)\S*)", re.MULTILINE)
_GO = re.compile(r"^(ok|FAIL|\?)\s*\t(\S+)", re.MULTILINE)
_GO_FAILED = re.compile(r"^\s*--- FAIL: (\S+)", re.MULTILINE)
_SHORT = re.compile(r"-[A-Za-z]")
"""An option that a value may follow."""
_EXIT = re.compile(r"\AExit code (\d+)")
_BACKGROUND = re.compile(r"\ACommand (?:running|was moved to) (?:in|the) background|in (?:the )?background with ID")

_GIT_COMMITS = re.compile(r"^(?:-[cC] \S+ |--\S+ )*(?:commit|cherry-pick|revert|merge)\b")
_COMMITTED = re.compile(
    r"^\[(?P<branch>[^\]\n]*?)(?: \(root-commit\))? (?P<hash>[0-9a-f]{7,40})\] (?P<subject>.+)$", re.MULTILINE
)
_LISTED = re.compile(r"^([0-9a-f]{7,40}) (?:\([^)]*\) )?(.+)$", re.MULTILINE)
_MESSAGE = re.compile(
    r"(?:^|\s)(?:-\w*m|--message)[ =]?(?:\"\$\(cat <<-?\s*['\"]?\w+['\"]?\s*\n(?P<heredoc>[^\n]+)"
    r"|\"(?P<double>[^\"\n]+)|'(?P<single>[^'\n]+))"
)
_FAILED_COMMIT = re.compile(r"nothing to commit|no changes added|nothing added to commit|hook .*failed|fatal:|error:")


def commands_of(script: str) -> Sequence[tuple[str, list[str], list[str]]]:
    """Return (program, its arguments, all words) of each simple command of a script. Callers change none of these."""
    return _commands_of(script[:MAX_SCRIPT_CHARS])


@lru_cache(maxsize=512)  # several rules read the scripts of one session
def _commands_of(script: str) -> Sequence[tuple[str, list[str], list[str]]]:
    found = []
    for stages in pipelines(script, []):
        for words in stages:
            name, rest = program(words)
            while name in _LAUNCHERS and rest and (name != "bundle" or rest[0] == "exec"):
                name, rest = program(rest)
            if name:
                found.append((name, rest, words))
    return found


def script_of(text: str) -> str:
    """Return the script in the input of a shell tool, as it was given; empty: this is the input of another tool."""
    found = _GIVEN.search(text) if text.startswith(_SHELLS) else None
    return found[1] if found else ""


def matters(script: str) -> bool:
    """Return whether a script changed, built or tested something, judging by its words."""
    return any(_acts(name, rest, words) for name, rest, words in commands_of(script))


def is_telling(program: str) -> bool:
    """Return whether a program does more than to show or move files, texts and processes."""
    return program not in _LOOKING | _MOVING


def shown(script: str) -> str:
    """Return a script on one line, at most SHOWN_CHARS, without the leading change of directory and commands that
    shorten its output.
    """
    flat = " ".join(script[: 10 * SHOWN_CHARS].split())
    flat = _SHORTENED.sub("", _MOVES.sub("", flat)) if len(script) < LONG_LINE else flat
    return flat if len(flat) <= SHOWN_CHARS else flat[: SHOWN_CHARS - 1].rstrip() + "\u2026"


def _acts(name: str, rest: Sequence[str], words: Sequence[str]) -> bool:
    if any(file and not file.startswith(("/dev/", "&")) for file in output_files(words)):
        return True
    if name in _LOOKING or not _ONLY_TOLD.isdisjoint(rest):
        return False
    if (acting := _ACTS_WHEN.get(name)) is not None:
        return re.search(acting, " ".join(rest)) is not None
    told = [word for before, word in pairwise(["", *rest]) if not word.startswith("-") and not _SHORT.fullmatch(before)]
    return not told or told[0] not in _LOOKING_WORDS or (told[0] == "config" and len(told) > 2)


# --- tests -----------------------------------------------------------------------------------------------


def command_of_tests(script: str) -> str:
    """Return the first command of a script that runs tests, on one line; empty: none does."""
    for name, rest, words in commands_of(script):
        if not _ONLY_TOLD.isdisjoint(rest):
            continue
        testing = _TESTS_WHEN.get(name)
        if name in _TESTERS or _TEST_SCRIPT.fullmatch(name) or (testing and re.search(testing, " ".join(rest))):
            return shown(" ".join(words))
    return ""


def outcome_of_tests(output: str, *, is_error: bool) -> str:
    """Return the outcome of a test run as printed."""
    plain = _ANSI.sub("", output)
    if _BACKGROUND.search(plain[:500]):
        return "started in the background"
    if found := _GO.findall(plain):
        ok, failed = (sum(state == each for state, _ in found) for each in ("ok", "FAIL"))
        names = list(dict.fromkeys(_GO_FAILED.findall(plain)))[:3]
        return f"{ok} packages ok, {failed} failed" + (f" ({', '.join(names)})" if names else "")
    lines = [" ".join(line.strip("= \t").split()) for line in plain.splitlines() if len(line) < LONG_LINE]
    if counted := [line for line in lines if _COUNTS.search(line)]:
        names = list(dict.fromkeys(_FAILED.findall(plain)))[:_MAX_COUNTS]
        told = "; ".join(dict.fromkeys(_last_counts(counted)))[:SHOWN_CHARS]
        return f"{told} ({', '.join(names)})" if names else told
    code = _EXIT.match(plain)
    if is_error:
        return f"failed with exit code {code[1]}" if code else "failed"
    return "ended without an error"


def _last_counts(counted: Sequence[str]) -> Sequence[str]:
    """Return the last line of counts, with those that belong to it: some runners print a line for each outcome."""
    last = counted[-1]
    if last.startswith("test result:"):
        return [line for line in counted if line.startswith("test result:")][-_MAX_COUNTS:]
    return counted[-2:] if _HALF.search(last) else [last]


# --- commits ---------------------------------------------------------------------------------------------


def commits(script: str) -> bool:
    """Return whether a script is meant to make commits."""
    return any(name == "git" and _GIT_COMMITS.search(" ".join(rest)) for name, rest, _ in commands_of(script))


def commits_in(script: str, output: str, *, is_error: bool) -> list[tuple[str, str]]:
    """Return (branch, `abc1234 subject`) of each commit of a script, in order. Without git's report, return the given
    subject, with its hash if the output lists it.
    """
    found = [(each["branch"], f"{each['hash']} {each['subject'].strip()}") for each in _COMMITTED.finditer(output)]
    if found or is_error or _FAILED_COMMIT.search(output) or (given := _MESSAGE.search(script)) is None:
        return found
    subject = next(text for text in (given["heredoc"], given["double"], given["single"]) if text).strip()
    listed = {text.strip(): name for name, text in _LISTED.findall(output)}
    return [("", f"{listed[subject]} {subject}" if subject in listed else subject)]
