"""Find the tests that failed when they last ran, in the output of their runners. Pure."""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from anamnesis_pipeline.model import SegmentKind
from anamnesis_pipeline.search.turns import Said

MAX_NAMES = 6
TAIL_CHARS = 20_000
"""Length of a command's output that is read; the outcome is at the end."""
MAX_COMMAND_CHARS = 120

_SHELLS = ("Bash\n", "PowerShell\n")
_COMMAND = re.compile(r"^command: (?P<command>[^\n]*)", re.MULTILINE)
_IS_TEST = re.compile(
    r"\b(?:py\.?test|tests?|jest|vitest|rspec|mocha|tox|nox|ctest|phpunit|unittest|ava|karma|gradlew?|mvn|check)\b",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"\b(\d{1,6}) (?:failed|failing|failures?|errors?)\b|\b(?:failures|errors|failed)\s?[=:]\s{0,8}(\d{1,6})",
    re.IGNORECASE,
)
_RAN = re.compile(
    r"\b(\d{1,6}) (?:passed|passing|tests?|doctests?|examples|runs|total)\b|\bran (\d{1,6}) tests?\b"
    r"|\b(?:tests run|tests|passed|total)\s?:\s{0,12}(\d{1,6})",
    re.IGNORECASE,
)
_UNITTEST = "FAILED ("
_NAME = re.compile(
    r"^(?:(?:FAILED|ERROR) ([^\s(]\S{0,200})|\s*--- FAIL: (\S{1,200})|test (\S{1,200}) \.\.\. FAILED"
    r"|\s*\d{1,3}\) (\S[^\n]{2,200})|\s*[\u2715\u2717\u00d7\u2716] (\S[^\n]{1,200})|(?:FAIL|ERROR): (\S{1,200})"
    r"|FAIL\s+(\S{1,200})|not ok \d{1,5} -? ?([^\n]{1,200}))",
    re.MULTILINE,
)
"""Names of failed tests as printed by pytest, Go, Cargo, ExUnit and RSpec, Jest and Vitest, unittest, and TAP."""


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A test run: its command, its line of counts, the numbers of tests and failures, and names of failed tests."""

    said: Said
    command: str
    counts: str
    ran: int
    failed: int
    names: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return the run in one line."""
        pieces = [f"`{self.command}`" if self.command else "", self.counts, "; ".join(self.names)]
        return ": ".join(piece for piece in pieces if piece)


def failing(messages: Iterable[Said]) -> SuiteRun | None:
    """Return the last run whose failures no later run has resolved: one with the same command, with at least as many
    tests, or one that names all that failed.
    """
    last: SuiteRun | None = None
    for run in runs_in(messages):
        if run.failed:
            last = run
        elif last is not None:
            stems = [re.split(r"::|[\[( ]", name)[0] for name in last.names]
            names_all = bool(stems) and all(stem in run.command for stem in stems)
            if run.command == last.command or run.ran >= last.ran or names_all:
                last = None
    return last


def runs_in(messages: Iterable[Said]) -> Iterable[SuiteRun]:
    """Yield the test runs, in order."""
    calls = deque[str]()
    for message in messages:
        if message.kind is SegmentKind.TOOL_INPUT:
            found = _COMMAND.search(message.text) if message.text.startswith(_SHELLS) else None
            calls.append(found["command"].strip() if found else "")
        elif message.kind in {SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR} and calls:
            command = calls.popleft()
            if _IS_TEST.search(command) and (run := run_of(message, command)) is not None:
                yield run


def run_of(printed: Said, command: str) -> SuiteRun | None:
    """Return the test run in a command's output; None: there is none."""
    text = printed.text[-TAIL_CHARS:]
    printed_names = (next(filter(None, found.groups())) for found in _NAME.finditer(text))
    names = tuple(dict.fromkeys(" ".join(name.split()) for name in printed_names))
    counted = [
        line for line in text.splitlines() if len(line) < 400 and (_RAN.search(line) or line.startswith(_UNITTEST))
    ]
    failed = max((_most(_FAILED, line) for line in counted), default=0) or len(names) * (not counted)
    if not counted and not names:
        return None
    telling = [line for line in counted if _most(_FAILED, line) == failed] or counted
    counts = " ".join(telling[-1].strip("= \t").split()) if telling else f"{failed} failed"
    ran = max((_most(_RAN, line) + _most(_FAILED, line) for line in counted), default=len(names))
    return SuiteRun(printed, command[:MAX_COMMAND_CHARS], counts, ran, failed, names[:MAX_NAMES] if failed else ())


def _most(pattern: re.Pattern[str], line: str) -> int:
    return max((int(next(filter(None, found.groups()))) for found in pattern.finditer(line)), default=0)
