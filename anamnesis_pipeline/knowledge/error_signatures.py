"""The signature of an error: its telling line without what differs from run to run. Pure."""

import re

from anamnesis_pipeline.parsing.text.plain_text import shortened
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS

MAX_LINE_CHARS = 300
MAX_SIGNED_CHARS = 1_000
"""Of a line, the beginning that its signature is made of."""
MAX_LABEL_CHARS = 160
MAX_OUTPUT_CHARS = 20_000
MIN_WORDS = 2
"""Words that a signature has beside the name of the error, an identifier counting twice; with fewer, different errors
look the same.
"""

SKELETON_WORDS = 3
"""Words that alone tell an error; then the names in it, which differ from run to run, do not count."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TELLING = re.compile(
    r"(?:^|(?<! an)[\s\[(])(?:[\w.]*(?:Error|Exception|Panic|Fault|Refused|Timeout))\b\s?[:()\]]"
    r"|^\s*(?:[\w./\\-]+:(?:\d+:){0,2}\s?)?(?:fatal(?: error)?|error|panic|E)\b(?:\[\w+\])?\s?[:!]?\s"
    r"|^[^\w\n]*(?:x |[A-Z]\w+ )?(?-i:Error)\b|(?<!an )\b(?:error|fatal|panic)\b(?: [A-Z]*\d+)?\s?[:!\]]"
    r"|^(?:.*[\w)]:)?\d+(?::\d+)?:?\s+error\b|(?-i:\b(?:ERR!|ERROR|FATAL|CRITICAL)\b)"
    r"|\bE(?:CONN\w+|NOENT|ACCES|PERM|ADDRINUSE|TIMEDOUT|PIPE|XIST|MFILE|NOTFOUND|RESOLVE|INTEGRITY|BUSY)\b"
    r"|\b(?:command not found|no such file or directory|permission denied|cannot find|could not (?:find|connect"
    r"|resolve)"
    r"|connection refused|undefined (?:reference|symbol|method|variable)|not recognized|segmentation fault"
    r"|out of memory"
    r"|address already in use|unresolved (?:import|reference)|no module named|does not exist|is not (?:defined"
    r"|installed)"
    r"|cannot (?:connect|open|import|read|resolve|allocate)|failed to \w+|unable to \w+|denied|deadlock|timed out)\b",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"^(?:.*\b(?:error|exception)\b.*|(?P<place>in \S+ line \d+)|.*\bpanicked at \S+)\s?:$", re.IGNORECASE
)
"""A line that says that the next one tells the error; `place`: unless that one is source with marks below."""
_MARKS = re.compile(r"^\s*\^-", re.MULTILINE)
_OF_PROGRAM = re.compile(
    r"\bassertion\b.*\bfail.*\.(?:cc?|cpp|cxx|h|hpp|mm?|rs|swift)\b|\.(?:cc?|cpp|cxx|h|hpp|mm?|rs|swift):.*\bassertion\b.*\bfail",
    re.IGNORECASE,
)
"""A program that stops by one of its assertions, with the place in its source."""
_CLASSED = re.compile(
    r"\b[\w.]*(?:\w(?:Error|Panic|Fault)|Exception|Error(?=:))\b|\bE[A-Z]{4,}\b|\berror\[\w+\]|\berror [A-Z]+\d+\b"
    r"|^(?:[a-z_]\w*\.)+[A-Z]\w+: \w"
)
_MARKED = re.compile(r"(?<!an )\b(?:error|fatal)\b(?: \d+)?\s?[:!\[\]]|^\W*error\b|\b(?:ERR!|FATAL|ERROR)\b")
_OF_TOOL = re.compile(
    r"<tool_use_error>|^(?:The user doesn't want|File has not been read|File has been modified|String to replace"
    r"|File does not exist|Found \d+ matches|No changes to make|Error: (?:File|String to replace|Path|EISDIR)"
    r"|\[Request interrupted|This Bash command|Claude requested permissions|InputValidationError|MCP error"
    r"|Request failed with status code|Cancelled|Permission to use)"
)
"""Claude Code's own refusals, which say nothing of the work."""
_OF_TEST = re.compile(
    r"\bassert(?:ion(?:(?:failed)?error)?|s|ed)?\b|\bexpected\b.{0,80}\b(?:got|received|actual|to|but was)\b"
    r"|^E\s+assert"
    r"|\b0 (?:failed|failures?|errors?)\b|\b(?:error|fail(?:ed|ure)?)s?\s?[:=]\s?0\b",
    re.IGNORECASE,
)
"""A test that fails while code is written is no error to learn from, and one that does not is none."""
_SWALLOWED = re.compile(
    r"^\s*(?:warning|warn|note|hint|help|info|debug|at |File \"|make(?:\[\d+\])?: \*\*\*|collect2:"
    r"|npm ERR! (?:A complete log|errno|path|code)"
    r"|\[[^\]]+ [0-9a-f]{7,40}\] |(?:\d+\s+)+[│|])",
    re.IGNORECASE,
)
"""Warnings, places, titles of commits, and source lines beside their numbers."""
_NOTICE = re.compile(r"\b(?:using|the|and) defaults?\b|\b(?:falling back|skipping|ignoring)\b", re.IGNORECASE)

_NONE = re.compile(
    r"\b(?:errors?|failures?|failed)\s?[=:]\s?0\b|\b(?:0|no) (?:errors?|failures?|failed)\b", re.IGNORECASE
)
"""A count of none."""

_TIME = r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?|\b\d\d:\d\d:\d\d\b"
_ADDRESS = r"\b0x[0-9a-f]+\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=\w*\d)[0-9a-f]{7,}\b|\b\d{6,}\b"
_PLACE = r"(\.[A-Za-z]{1,4})(?::\d+)+|\(\d+(?:,\s?\d+)?\)(?=:)|\bline \d+\b(?:, column \d+)?"
_CALLED = r"[\w./-]+\.rb:\d+:in [`'][^'`]*'"
_FOLDER = (
    r"(?<![\w.@+-])(?:\w+:/)?[\w.@+-]*(?:/[\w.@+-]+)+/(?=[\w.@+-])|(?<![\w/])~/(?:[\w.@+-]+/)*"
    r"|\b[A-Z]:\\(?:[\w.@+-]+\\)+"
)
_AMOUNT = r"\b\d+(?:\.\d+)?\s?(?:ms|s|sec(?:onds)?|min(?:utes)?|bytes|[KMG]i?B|%)(?!\w)"
_RUN = r"\b(?:pid|process|thread|worker|attempt|retry|request)[ =:#]*\d+\b"
_VOLATILE = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (_TIME, ""),
        (_ADDRESS, "#"),
        (_CALLED, ""),
        (_PLACE, r"\1"),
        (_FOLDER, ""),
        (_AMOUNT, "#"),
        (_RUN, ""),
    )
)
"""What differs from run to run, and what stands for it in a signature."""
_WORD = re.compile(r"[^\W_][\w.@:/-]*", re.UNICODE)


def error_line(output: str) -> str:
    """Return the line of an output, verbatim, that tells which error it was; empty: none tells."""
    plain = output[-MAX_OUTPUT_CHARS:]
    if _OF_TOOL.search(plain[:400]):
        return ""
    best, rank = "", 0
    lead: re.Match[str] | None = None
    is_quoted = _MARKS.search(plain) is not None
    for line in plain.splitlines():
        bare = _ANSI.sub("", line).strip()
        if not bare or len(line) > MAX_LINE_CHARS or _SWALLOWED.match(bare):
            continue
        is_stopped = _OF_PROGRAM.search(bare) is not None
        was_led = lead is not None and " " in bare and not (lead["place"] and is_quoted)
        lead = _LEADS.match(bare) if bare.endswith(":") else None
        if not (was_led or is_stopped or _TELLING.search(bare) or _CLASSED.match(bare)):
            continue
        if not (_NONE.search(bare) or (_OF_TEST.search(bare) and not is_stopped)) and signature_of(bare):
            its = 3 if was_led or is_stopped or _CLASSED.search(bare) else 2 if _MARKED.search(bare) and not lead else 1
            # the cause stands at the end of a traceback, and at the beginning of what a compiler says
            if its == 1 and _NOTICE.search(bare):
                continue
            if its > rank or its == rank == 3:
                best, rank = line.strip(), its
    return best


def is_error_of_program(line: str) -> bool:
    """Return whether a line names a class or code of error, and is not what a person says of one."""
    return _CLASSED.search(line) is not None or _OF_PROGRAM.search(line) is not None


def signature_of(line: str) -> str:
    """Return what the same error has in common in every run: words in small letters, without times, places, addresses
    and amounts. Empty: it says too little to tell it from others.
    """
    text = _ANSI.sub("", line[:MAX_SIGNED_CHARS])
    if (found := _NAMED.search(text)) is not None:
        text = text[found.start() :]  # a log puts its own words before it
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    words = [word.strip(".:/-").lower() for word in _WORD.findall(text)]
    told = [word for word in words if word and word not in STOP_WORDS]
    named = [word for word in told if not _GENERIC.fullmatch(word)]
    plain = dict.fromkeys(word for word in named if len(word) > 1 and not _SPECIFIC.search(word))
    if len(plain) >= SKELETON_WORDS:
        return " ".join(plain)
    told = [word for word in told if word not in _BARE] or told
    specific = sum(2 if _SPECIFIC.search(word) else 1 for word in set(named))
    return " ".join(told) if specific >= MIN_WORDS else ""


def label_of(line: str) -> str:
    """Return the line of an error to be read by people: in its own words and order, without times, folders, positions
    and control characters.
    """
    text = _UNSEEN.sub(" ", _ANSI.sub("", line[:MAX_SIGNED_CHARS]))
    text = _POSITION.sub(r"\1", _ABOVE.sub("", text))
    return shortened(_LEADING.sub("", " ".join(text.split())).rstrip(" :,-"), MAX_LABEL_CHARS)


_UNSEEN = re.compile(r"[\u2800-\u28ff]|[^\S ]|[\x00-\x1f\x7f-\x9f]")
"""Spinners, tabs and control characters."""
_ABOVE = re.compile(
    r"(?<![\w.@+:/-])(?:/[\w.@+-]+)+/(?=[\w.@+-])|(?<![\w/])~/(?:[\w.@+-]+/)*|\b[A-Z]:\\(?:[\w.@+-]+\\)+"
)
"""The folders of an absolute path."""
_POSITION = re.compile(
    r"(\.[A-Za-z]{1,4})(?::\d+)+(?=:|\s-\s)|(?<=[A-Za-z])\(\d+(?:,\s?\d+)?\)(?=\s?:)|:? line \d+(?=:)|, line \d+\b"
)
_LEADING = re.compile(rf"^(?:[\s:,|│>-]|\[\s*\]|\[?(?:{_TIME})\]?)+")


def is_same_error(signature: str, other: str) -> bool:
    """Return whether two signatures are of one error, of which one line says more than the other."""
    few, many = sorted((set(signature.split()), set(other.split())), key=len)
    return few <= many and len(few) >= SKELETON_WORDS and 2 * len(few) >= len(many)


def is_like_error(signature: str, other: str) -> bool:
    """Return whether two signatures may be of one error, in another place: they have most words in common."""
    few, many = sorted((set(signature.split()), set(other.split())), key=len)
    return len(few & many) >= max(SKELETON_WORDS, LIKE * len(many))


LIKE = 0.6
"""Share of the words that two lines of what may be one error have in common."""
_NAMED = re.compile(r"(?<![\w.])[\w.]*\w(?:Error|Exception)\b:(?=\s+\w+(?:\W+\w+){2})")
_BARE = frozenset({"error", "err", "e", "fatal"})
_SPECIFIC = re.compile(r"\w_\w|\w[./:@-]\w|\d")
_GENERIC = re.compile(
    r"(?:[\w.]*\.)?(?:runtime|value|type|key|attribute|name|index|os|io|syntax|assertion|import|module.?not.?found)?"
    r"(?:error|exception)s?|err|e|fatal|failed|failure|fail|exit|code|status|command|exited|errno|\d+|#|traceback"
    r"|most|recent"
    r"|call|last|process|critical|panic|thread|npm|main"
)
"""Words that many errors have."""
