"""The text of topic files: what one says, the text with one more entry, and the difference as a diff. Pure.

A topic is a Markdown file with what holds now: a title, its purpose in the first line, and sections with entries. An
entry is an item of a list; a comment at its end names its sources. What a person wrote around it stays the same, to the
byte.
"""

import difflib
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, unquote

from anamnesis_pipeline.errors import TopicRefused
from anamnesis_pipeline.parsing.documents.anchors import plain_title
from anamnesis_pipeline.parsing.documents.headings import headings_among, markdown_blocks

LESSONS = "lessons"
"""Name of the topic with what went wrong before."""
BOM = "\ufeff"
MAX_SOURCES = 20
"""Sources named with one entry, the latest."""
NOTICE, FIXED_BY, CHECK = "Notice", "Fixed by", "Before similar work"
_PURPOSES = {
    LESSONS: "What went wrong before, how to notice it, what fixed it, and what to check first.",
    "facts": "What the user said is to be remembered.",
    "decisions": "What was decided, with the reasons.",
    "preferences": "How the user wants the work to be done.",
}
"""Topics that accepting makes -> their first line, which the index shows."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_MARKER = re.compile(r"\s*(?P<sign>[-*+]|\d{1,9}[.)])(?:\s+|$)")
_COMMENT = re.compile(r"\s*<!--.*?-->", re.DOTALL)
_SOURCES = re.compile(r"\s*<!-- sources: (?P<list>[^>]*?) -->")
_OPENS_A_BLOCK = re.compile(r"[#>|=_*+<~-]|`{3}|\d{1,9}[.)](?=\s|$)")
_NAMED_IN_ID = "/:._~@+=#|"
_LABEL = re.compile(rf"[-*+]\s+(?P<label>{NOTICE}|{FIXED_BY}|{CHECK}):\s*(?P<text>.*)", re.DOTALL)
_DESCRIPTION = re.compile(r"---[ \t]*\n(?:.*\n){0,50}?description:[ \t]*(?P<text>[^\n]+)\n(?:.*\n){0,50}?---[ \t]*\n")
"""Of Claude Code's own memory files: the front matter says what a file is for."""
_BEHIND_ESCAPE = re.compile(r"\\(?=[^\w\s])|\\(?=\d{1,9}[.)])")


@dataclass(frozen=True, slots=True)
class Ref:
    """A source of an entry: an episode, and its day (UTC), e.g. `2026-03-14`; empty: unknown."""

    episode_id: str
    day: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An item of a list. `text`: without its marker and comments; `lines`: [first, last) of the file, from 0."""

    heading: str
    text: str
    sources: tuple[Ref, ...]
    lines: tuple[int, int]
    marker: str = "-"


@dataclass(frozen=True, slots=True)
class TopicText:
    """What a topic file says. `purpose`: the first line of text below the title, outside of lists."""

    title: str
    purpose: str
    headings: tuple[str, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What went wrong, how to notice it, what fixed it, and what to check before similar work; empty: unknown."""

    goes_wrong: str
    notice: str = ""
    fixed_by: str = ""
    check: str = ""
    sources: tuple[Ref, ...] = ()


def ref(episode_id: str, at: datetime | None = None) -> Ref:
    """Return the source for an episode of this time."""
    return Ref(episode_id, f"{at:%Y-%m-%d}" if at else "")


def read_topic(text: str) -> TopicText:
    """Return what a topic file says."""
    lines = _lines(text)
    flat = "".join(f"{_bare(line)}\n" for line in lines)
    tokens = markdown_blocks(flat)
    headings = headings_among(tokens)
    title = next((each for each in headings if each.level == 1), None)
    top = title.line if title else -1
    under_title = (top, next((each.line for each in headings if each.line > top), len(lines)))
    described = _DESCRIPTION.match(flat)
    purpose = described["text"].strip("\"' ") if described else ""
    entries = list[Entry]()
    for token in tokens:
        if token.map is None:
            continue
        first, end = token.map
        if token.type == "inline" and token.level == 1 and not purpose and under_title[0] < first < under_title[1]:
            purpose = _plain(_bare(lines[first]))
        if token.type == "list_item_open" and token.level == 1:
            while end > first + 1 and not _bare(lines[end - 1]).strip():
                end -= 1
            heading = next((each.title for each in reversed(headings) if each.line < first), "")
            entries.append(_entry([_bare(line) for line in lines[first:end]], heading, (first, end)))
    others = tuple(each.title for each in headings if each != title)
    return TopicText(title.title if title else "", purpose, others, tuple(entries))


def with_entry(text: str, name: str, heading: str, entry: str, sources: Sequence[Ref] = ()) -> str:
    """Return the text with one more entry under a heading, which is added if it is missing; all else is unchanged. A
    text that holds the entry already, under any heading, is returned unchanged.

    :param text: of the file; empty: there is none yet.
    :param name: of the topic: the title of a new file.
    :param heading: empty: under the title.
    :param entry: one statement, with further lines indented below it; or a list, whose items are an entry each.
    :raises TopicRefused: the entry is empty, or would not be read as one, e.g. behind an unclosed code block.
    """
    if not _key(entry):
        raise TopicRefused("the entry has no text; write what holds, in one sentence")
    for each in _items(entry):
        if (wanted := _key(each)) in _keys(text):
            continue
        if not text.removeprefix(BOM).strip():
            title = name.replace("-", " ").strip().capitalize()
            text += f"# {title}\n" + (f"\n{_PURPOSES[name]}\n" if name in _PURPOSES else "")
        text = _inserted(text, " ".join(heading.split()).strip("# "), each, sources)
        if wanted not in _keys(text):
            raise TopicRefused(
                f"the topic {name} has a code block or comment that does not end, so that nothing can be added behind "
                "it; end it in the file"
            )
    return text


def without_entry(text: str, entry: str) -> str:
    """Return the text without the items of an entry, wherever they are; all else is unchanged."""
    lines, gone = _lines(text), {_key(each) for each in _items(entry)}
    for found in reversed(read_topic(text).entries):
        if _key(found.text) in gone:
            del lines[slice(*found.lines)]
    return "".join(lines)


def entries_from(text: str, episode_ids: Container[str], written: Sequence[str] = ()) -> list[Entry]:
    """Return the entries of a topic file that were written from these episodes: the comment of each names one of them,
    or it is one of the entries `written`.
    """
    keys = {_key(each) for entry in written for each in _items(entry)}
    return [
        each
        for each in read_topic(text).entries
        if any(source.episode_id in episode_ids for source in each.sources) or _key(each.text) in keys
    ]


def without_comments(text: str) -> str:
    """Return the text for reading: without the comments that name sources."""
    return _SOURCES.sub("", text)


def lesson_entry(lesson: Lesson) -> str:
    """Return the entry of a lesson, for `with_entry`; its sources are given to that. Lines of what fixed it are
    commands, and stay apart.
    """
    commands = [" ".join(line.split()) for line in lesson.fixed_by.replace("\\\n", " ").splitlines() if line.strip()]
    told = ((NOTICE, lesson.notice), (FIXED_BY, "; ".join(commands)), (CHECK, lesson.check))
    return "\n".join(
        [" ".join(lesson.goes_wrong.split()), *(f"- {label}: {' '.join(text.split())}" for label, text in told if text)]
    )


def lessons_of(text: str) -> list[Lesson]:
    """Return the lessons of `lessons.md`; one that a person wrote freely is what goes wrong, as a whole."""
    return [_lesson(each) for each in read_topic(text).entries]


def diff_of(former: str, new: str, path: str) -> str:
    """Return the unified diff, as `patch` and `git apply` take it.

    :param former: empty: there is no file yet.
    """
    before = "/dev/null" if not former else f"a/{path.lstrip('/')}"
    lines = difflib.unified_diff(_lines(former), _lines(new), before, f"b/{path.lstrip('/')}")
    whole = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(whole)


def _lines(text: str) -> list[str]:
    """Return the lines with their ends, as Markdown counts them."""
    return _LINE.findall(text)


def _bare(line: str) -> str:
    return line.removeprefix(BOM).rstrip("\r\n")


def _plain(line: str) -> str:
    return _MARKER.sub("", _COMMENT.sub("", line), count=1).strip()


def _key(text: str) -> str:
    """Return what equal entries share, however they are broken into lines and escaped."""
    flat = " ".join(_MARKER.sub("", line, count=1) for line in _COMMENT.sub("", text).splitlines())
    flat = _BEHIND_ESCAPE.sub("", flat.replace("&lt;!--", "<!--").replace("--&gt;", "-->"))
    return " ".join(flat.split()).casefold()


def _keys(text: str) -> set[str]:
    return {_key(each.text) for each in read_topic(text).entries}


def _items(entry: str) -> list[str]:
    """Return the items of a list; any other text is one item."""
    items = list[str]()
    for line in (each for each in entry.splitlines() if each.strip()):
        if not items or (_MARKER.match(items[0]) and _MARKER.match(line) and not line[0].isspace()):
            items.append(line)
        else:
            items[-1] += f"\n{line}"
    return [each for each in items if _key(each)]


def _entry(lines: Sequence[str], heading: str, place: tuple[int, int]) -> Entry:
    raw = "\n".join(lines)
    found = _SOURCES.search(raw)
    refs = [each.split() for each in found["list"].split(";")] if found else []
    sources = tuple(Ref(unquote(pieces[0]), *pieces[1:2]) for pieces in refs if pieces)
    first, *rest = _COMMENT.sub("", raw).rstrip().split("\n")
    mark = _MARKER.match(first)
    told = [first[mark.end() :] if mark else first, *(line.strip() for line in rest)]
    return Entry(heading, "\n".join(told).strip(), sources, place, mark["sign"] if mark else "-")


def _lesson(entry: Entry) -> Lesson:
    told, rest = dict[str, str](), list[str]()
    for line in entry.text.split("\n"):
        if found := _LABEL.match(line):
            told[found["label"]] = found["text"]
        else:
            rest.append(line)
    goes_wrong = " ".join(" ".join(rest).split())
    notice, fixed_by, check = (told.get(label, "") for label in (NOTICE, FIXED_BY, CHECK))
    return Lesson(goes_wrong, notice, fixed_by, check, entry.sources)


# --- writing ---------------------------------------------------------------------------------------------


def _inserted(text: str, heading: str, entry: str, sources: Sequence[Ref]) -> str:
    lines, entries = _lines(text), read_topic(text).entries
    found = headings_among(markdown_blocks("".join(f"{_bare(line)}\n" for line in lines)))
    wanted = plain_title(heading).casefold()
    place = next((n for n, each in enumerate(found) if each.title.casefold() == wanted), None)
    if not heading:
        place = next((n for n, each in enumerate(found) if each.level == 1), None)
    is_new = bool(heading) and place is None
    end = len(lines)
    if not is_new:
        following = found[place + 1 :] if place is not None else found
        end = following[0].line if following else end
    begin = found[place].line if place is not None else -1
    while end - 1 > begin and not _bare(lines[end - 1]).strip():
        end -= 1
    above = next((each.marker for each in entries if each.lines[1] == end), "")
    is_in_list = above in {"-", "*", "+"} and not is_new
    written = [*([f"## {heading}", ""] if is_new else []), *_written(entry, sources, above if is_in_list else "-")]
    new_line, ends_open = _line_end(lines), bool(lines[:end]) and not lines[end - 1].endswith(("\n", "\r"))
    return "".join(
        [
            *lines[:end],
            new_line * ends_open,
            new_line * (end > 0 and not is_in_list),
            *(f"{line}{new_line}" for line in written),
            new_line * (end < len(lines) and bool(_bare(lines[end]).strip())),
            *lines[end:],
        ]
    )


def _line_end(lines: Sequence[str]) -> str:
    """Return the line end of a text: that of its first line."""
    return lines[0][len(lines[0].rstrip("\r\n")) :] or "\n" if lines else "\n"


def _written(entry: str, sources: Sequence[Ref], marker: str) -> list[str]:
    """Return the lines of an entry, its sources in a comment at the end."""
    first, *rest = [line.strip() for line in entry.replace("\x00", "").splitlines() if line.strip()]
    written = [f"{marker} {_safe(_MARKER.sub('', first, count=1))}", *map(_below, rest)]
    if sources:
        written[-1] += f" <!-- sources: {'; '.join(map(_named, sources[-MAX_SOURCES:]))} -->"
    return written


def _below(line: str) -> str:
    found = _MARKER.match(line)
    return f"  - {_safe(line[found.end() :])}" if found else f"  {_safe(line)}"


def _safe(text: str) -> str:
    """Return one line of text that begins no block and holds no comment."""
    flat = " ".join(text.split()).replace("<!--", "&lt;!--").replace("-->", "--&gt;")
    return f"\\{flat}" if _OPENS_A_BLOCK.match(flat) else flat


def _named(source: Ref) -> str:
    return " ".join(filter(None, (quote(source.episode_id, safe=_NAMED_IN_ID), source.day)))
