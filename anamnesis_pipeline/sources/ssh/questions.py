"""Build one shell script that runs `find` for many roots of a remote host, and parse its answer. Pure.

The answer is a sequence of records, each ended by NUL, and between them the lines of ignore files from `grep`:

    <token>[<clock>] <home>        then, per root, `N` if there is no GNU find, which ends the answer, or
    R<absolute root>               and one of: `m` missing, `n` no folder, `p` unreadable, `=` unchanged, or
    <records of find> e            `k` in place of `e`: it was killed before it was done

A record of find is `<type> <size> <time> <device> <inode> <path>`. Types: f file, s link to a file (with its absolute
path), d folder, l link to a folder, x folder that cannot be read, u link to a folder above the root, o folder that is
not entered, g `.git`. For documents, `r<root without links>` comes first, and `t<absolute path of its target>` behind
each link.
"""

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from anamnesis_pipeline.errors import HostUnreachable
from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.parsing.text.file_names import bytes_of, name_of
from anamnesis_pipeline.sources.base import IGNORE_BYTES, IGNORE_FILES, REPOSITORY, TOOL_RESULTS, Wanted

_BEGIN = """\
LC_ALL=C; export LC_ALL; G=; cd /
printf '%s%s %s\\0' {token} "{clock}" "$HOME"
digest() {{
  if command -v sha256sum >/dev/null 2>&1; then sha256sum
  elif command -v shasum >/dev/null 2>&1; then shasum -a 256
  else cat >/dev/null; fi
}}
gnu() {{ [ -n "$G" ] || find / -maxdepth 0 -printf '' 2>/dev/null || {{ printf 'N\\0'; exit 0; }}; G=gnu; }}
walk() {{ find "$@" || [ $? -eq 1 ] || K=killed; }}
answer() {{
  if [ -n "$1" ]; then case "$(look 2>/dev/null | digest)" in "$1"*) printf 'R%s\\0=\\0' "$R"; return; esac; fi
  gnu
  printf 'R%s\\0' "$R"
  if [ ! -d "$R" ]; then
    P=$R
    while [ ! -d "$P" ]; do P=${{P%/*}}; P=${{P:-/}}; done
    if [ -e "$R" ] || [ -L "$R" ]; then printf 'n\\0'; elif [ -x "$P" ]; then printf 'm\\0'; else printf 'p\\0'; fi
  elif [ ! -r "$R" ] || [ ! -x "$R" ]; then printf 'p\\0'
  else
    K=; look
    if [ -n "$K" ]; then printf 'k\\0'; else printf 'e\\0'; fi
  fi
}}
"""
_CLOCK = "$(date +%s.%N)"
_RECORD = r"%s %T@ %D %i %P\0"
_NOT_HUGE = f"-size -{IGNORE_BYTES // 512 + 1}"
_NOT_TO_BE_READ = rf"\( ! -readable -o ! -executable \) -prune -printf 'x {_RECORD}'"
_ABOVE = (
    """A=$(cd -P "$R" && pwd); set -- -false; """
    """while [ -n "$A" ]; do A=${A%/*}; set -- "$@" -o -samefile "${A:-/}"; done"""
)
_LINK_UP = r"""-xtype l \( "$@" \) -prune"""
_FOLDERS = (
    rf"{_NOT_TO_BE_READ} -o {_LINK_UP} -printf 'u {_RECORD}' -o -xtype l -printf 'l {_RECORD}' -o -printf 'd {_RECORD}'"
)
_PARTS = re.compile(rb"(.) (\d+) (-?\d+)(?:\.(\d{1,9})\d*)? (\d+) (\d+) (.*)", re.DOTALL)
_MISSING_END = "broke off in the middle of its answer"


@dataclass(frozen=True, slots=True)
class Question:
    """The question about one root: the shell command `look`, in which `$R` is the root, and the known state."""

    root: str
    look: str
    known: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or folder from find; `kind` is the type of its record."""

    kind: str
    stat: FileStat


@dataclass(slots=True)
class Answer:
    """The answer to one question. `error`: empty, `m`, `n` or `p`. Entries are None if the state is the known one.
    `real`: the root without links; `targets`: link to a file -> the absolute path of its target, without links.
    """

    root: str
    error: str = ""
    entries: list[Entry] | None = None
    state: str = ""
    ignores: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    real: str = ""
    targets: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole answer of a script; `clock_s`: the host's time at its start, if requested. No answers: no GNU find."""

    home: str
    clock_s: float | None
    answers: tuple[Answer, ...] | None


def logs_question(root: str, known: str, depth: int, above: Sequence[str] = ()) -> Question:
    """Ask for all archived files at or below a root, and the files `above` it. Tool outputs come after the logs."""
    find = f'walk -L "$R" -mindepth 1 -maxdepth {depth}'
    logs = r"\( -name '*.jsonl*' -o -name 'agent-*.meta.json' -o -name 'local_*.json' \)"
    outputs = r"\( -name '*.txt' -o -name '*.json' -o -name '*.jsonl*' \)"
    look = [
        _ABOVE,
        rf"""walk -L "$R" -maxdepth 0 -printf 'd {_RECORD}'""",
        rf"{find} -type d \( -name {TOOL_RESULTS} -prune -o {_FOLDERS} \) -o -type f {logs} -printf 'f {_RECORD}'",
        rf"{find} -type d {_LINK_UP} "
        rf"-o -path '*/{TOOL_RESULTS}*' \( -type d \( {_FOLDERS} \) -o -type f {outputs} -printf 'f {_RECORD}' \)",
    ]
    for path in above:
        place = _root(path).decode("utf-8", "surrogateescape")
        record = _RECORD.replace("%P", f"../{path.rpartition('/')[2]}")
        look.append(rf"""find -L {place} -maxdepth 0 -type f -printf 'f {record}' 2>/dev/null""")
    return Question(root, "; ".join(look), known)


def documents_question(wanted: Wanted) -> Question:
    """Return the question for files by name, ignore files and repositories."""
    ignored = " -o ".join(f"-name {name}" for name in IGNORE_FILES)
    matching = [f"-iname {_glob(glob)}" for glob in wanted.names]
    named = " -o ".join([*matching, ignored]) if matching else "-true"
    skipped = " -o ".join(f"-name {_glob(glob)}" for glob in wanted.skip)
    shown = rf" -printf 'o {_RECORD}'" if wanted.names_skipped else ""
    prune = rf"\( {skipped} \) -prune{shown} -o " if skipped else ""
    link = (
        r"""for L; do stat -L --printf="s %s %.9Y %d %i %n\0" "$L" && """
        r"""printf "t%s\0" "$(readlink -f "$L")"; done"""
    )
    look = (
        r"""printf 'r%s\0' "$(cd -P "$R" && pwd)"; """
        rf"""walk -H "$R" -mindepth 1 -name {REPOSITORY} -prune -printf 'g {_RECORD}' """
        rf"-o -type d \( {prune}{_NOT_TO_BE_READ} \) "
        rf"-o \( {named} \) \( -type f -printf 'f {_RECORD}' \( {ignored} \) {_NOT_HUGE} -exec grep -aHsZ '' {{}} + "
        rf"-o -type l -xtype f -exec sh -c '{link}' sh {{}} + \)"
    )
    return Question(wanted.root, look, wanted.known)


def file_question(path: str) -> Question:
    """Return the question for one regular file or a link's target; its folder is the root."""
    folder, _, name = path.rpartition("/")
    record = _RECORD.replace("%P", ".")
    look = rf"""find -L "$R"/{_word(name)} -maxdepth 0 -type f -printf 'f {record}' 2>/dev/null"""
    return Question(folder or "/", look)


def folders_question(root: str) -> Question:
    """Return the question for the folders directly in a root, some links to folders, and possible logs."""
    find = 'find -L "$R" -mindepth 1 -maxdepth 1'
    return Question(root, rf"{find} \( -type d -printf 'd {_RECORD}' -o -name '*.jsonl*' -printf 'f {_RECORD}' \)")


def script_of(questions: Sequence[Question], token: str, *, with_clock: bool) -> bytes:
    """Return the script that asks all questions. It is bytes, as names are."""
    lines = [_BEGIN.format(token=token, clock=_CLOCK if with_clock else "").encode()]
    for question in questions:
        lines.append(b"R=" + _root(question.root))
        lines.append(b"look() { " + question.look.encode("utf-8", "surrogateescape") + b"; }")
        lines.append(f"answer {shlex.quote(question.known)}".encode())
    return b"\n".join(lines)


def _root(root: str) -> bytes:
    if root == "~" or root.startswith("~/"):
        return b'"$HOME"' + _quoted(bytes_of(root[1:].rstrip("/")))
    return _quoted(bytes_of(root.rstrip("/") or "/"))


def _quoted(raw: bytes) -> bytes:
    return b"'" + raw.replace(b"'", b"'\"'\"'") + b"'"  # fish reads other quoting differently


def _word(name: str) -> str:
    """Quote a name for the shell; bytes that are not UTF-8 become surrogates."""
    return _quoted(bytes_of(name)).decode("utf-8", "surrogateescape")


def _glob(glob: str) -> str:
    """Return a glob for `find`, in which a backslash is never part of the name."""
    return _word(glob.replace("\\", "\\\\"))


def read_reply(raw: bytes, token: str) -> Reply | None:
    """Parse the answer to `script_of`. Output of a shell's start-up files before it is skipped.

    :returns: None: no shell ran it, e.g. if only SFTP is allowed.
    :raises HostUnreachable: it is cut off.
    """
    begin = raw.find(token.encode())
    if begin < 0:
        return None
    reader = _Records(raw, begin + len(token))
    clock, _, home = reader.next().partition(b" ")
    clock_s = float(found[0]) if (found := re.match(rb"\d+(\.\d+)?", clock)) else None
    answers: list[Answer] = []
    while not reader.is_done:
        record = reader.next()
        if record == b"N":
            return Reply(name_of(home), clock_s, None)
        if record[:1] != b"R":
            raise HostUnreachable(f"the host {_MISSING_END}")
        answers.append(_answer(reader, name_of(record[1:])))
    return Reply(name_of(home), clock_s, tuple(answers))


def _answer(reader: "_Records", root: str) -> Answer:
    answer = Answer(root)
    start = reader.at
    entries: list[Entry] = []
    shown: dict[str, list[bytes]] = {}
    while True:
        if reader.is_shown_line:
            path, line = reader.shown_line()
            shown.setdefault(_below(root, path), []).append(line)
            continue
        before = reader.at
        record = reader.next()
        if record in {b"m", b"n", b"p"}:
            answer.error = record.decode()
            return answer
        if record == b"=":
            return answer
        if record == b"k":
            raise HostUnreachable(f"the host ended the listing of {root} before it was done; try again later")
        if record == b"e":
            answer.state = hashlib.sha256(reader.raw[start:before]).hexdigest()
            break
        _take(answer, entries, record)
    answer.entries = entries
    answer.ignores = {path: name_of(b"".join(lines)) for path, lines in shown.items()}
    for entry in entries:  # an empty file has no lines
        if entry.kind == "f" and entry.stat.size == 0 and entry.stat.path.rpartition("/")[2] in IGNORE_FILES:
            answer.ignores.setdefault(entry.stat.path, "")
    return answer


def _take(answer: Answer, entries: list[Entry], record: bytes) -> None:
    """Add a record of a listing to its answer."""
    if record[:1] == b"r":
        answer.real = name_of(record[1:])
    elif record[:1] == b"t" and entries and entries[-1].kind == "s":
        answer.targets[entries[-1].stat.path] = name_of(record[1:])
    elif parts := _PARTS.fullmatch(record):
        kind, size, seconds, fraction, device, inode, raw = parts.groups()
        mtime_ns = int(seconds) * 10**9 + int((fraction or b"0").ljust(9, b"0"))
        path = _below(answer.root, raw) if kind == b"s" else name_of(raw)
        entries.append(Entry(kind.decode(), FileStat(path, int(size), mtime_ns, int(device), int(inode))))
    else:
        answer.problems.append(f"{answer.root}: the host shows an entry in a way that is not understood, passed over")


def _below(root: str, raw: bytes) -> str:
    return name_of(raw).removeprefix(root.rstrip("/") + "/")


class _Records:
    """Position while parsing an answer."""

    def __init__(self, raw: bytes, at: int) -> None:
        self.raw = raw
        self.at = at

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.raw)

    @property
    def is_shown_line(self) -> bool:
        """Return whether a line of grep comes next: it begins with a path, as no record does."""
        return self.raw[self.at : self.at + 1] == b"/"

    def next(self) -> bytes:
        return self._until(b"\0")

    def shown_line(self) -> tuple[bytes, bytes]:
        """Return (path, line with its line break)."""
        return self._until(b"\0"), self._until(b"\n") + b"\n"

    def _until(self, end: bytes) -> bytes:
        at = self.raw.find(end, self.at)
        if at < 0:
            raise HostUnreachable(f"the host {_MISSING_END}")
        piece, self.at = self.raw[self.at : at], at + 1
        return piece


def complaints(stderr: bytes) -> Iterator[str]:
    """Yield `path: reason` for each path that `find` could not read. Loops of links are skipped: they are harmless."""
    for line in stderr.decode("utf-8", "replace").splitlines():
        text = line.removeprefix("find: ")
        if text != line and "file system loop" not in text and "No such file" not in text:
            path, _, reason = text.rpartition(": ")
            yield f"{path.strip(chr(39) + '‘’`')}: {reason.lower()}"
