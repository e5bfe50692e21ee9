"""Secrets whose name is in a separate field or cell: `name: DB_PASSWORD`, then `value: ...`. Pure.

The rules decide about a value and its end: each value is passed to them beside its name, as an assignment. Escapes of
JSON count as the characters they represent, so that a chat in a JSON file is read as written.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from anamnesis_pipeline.parsing.redaction.blocks import windows
from anamnesis_pipeline.parsing.redaction.rules import ASSIGNMENT, HARMLESS_NAME, escaped_or_not, prefilter
from anamnesis_pipeline.parsing.redaction.sentences import NATIVE_KEYS, NATIVE_PASSWORDS

LEFT, RIGHT = 100, 800
"""Characters around a hit that are searched for a name; its value may be farther away."""
MAX_NAME_CHARS = 60
MAX_VALUE_CHARS = 4_096
MAX_CHARS_BETWEEN = 400
"""Other fields and comments may be between a name and its value."""
MAX_CHARS_OF_VARIABLE = 1_000
MAX_CHARS_OF_LINE = 320
MAX_CHARS_OF_HEADINGS = 1_000
MAX_LINES_OF_BLOCK = 50

_WORD = r"(?i:pass|kennwort|pwd|secret|token|key|cred|auth|contrase|senha)"
_NATIVE = rf"{NATIVE_PASSWORDS}|{NATIVE_KEYS}"
_NAME = rf"(?P<name>[\w .\-/]{{0,60}}{_WORD}[\w .\-/]{{0,60}})"
# in the searched text, a form feed replaces each backslash of an escape
_QUOTE = r"\f{0,8}[\"'`]?"
_IS = rf"{_QUOTE}[ \t]{{0,8}}[:=][ \t]{{0,8}}"
_OF_WHAT = (
    r"(?:parameter|option|setting|attribute|property|variable|var|env|config|field|header|secret|entry|string|plain)"
)
# Kubernetes and compose (`- name: A`, then `value: B`), exports of consoles, attributes of XML
_NAME_FIELDS = re2.compile(rf"(?:\b|_)(?i:{_OF_WHAT}?[_\-]?(?:name|key|id)|parameter|variable){_IS}{_QUOTE}{_NAME}")
_VALUE_FIELD = re2.compile(
    rf"(?:\A|[^A-Za-z\d])(?:(?i:{_OF_WHAT}?[_\-]?value|default|contents?|secret_?string){_IS}"
    r"|S\f{0,8}\"[ \t]{0,8}:[ \t]{0,8})"
)
_ITEM_ENDS = re2.compile(rf"[{{}}<]|\n[ \t\f]*-[ \t]|(?i:name|key|id){_IS}")
# an object, a block or lines below a key; text before the word is checked only if one is found
_KEY_ENDS = re2.compile(
    rf"{_WORD}[\w .\-/]{{0,60}}{_QUOTE}[ \t]{{0,8}}"
    r"(?:[:=]\s{0,40}\{|:[ \t\f]{0,8}(?:[|>][+\-0-9]{0,2}[ \t\f]{0,8})?\n)"
)
_KEY_BEGINS = re.compile(r"[\w .\-/]{0,60}\Z")
_KEY_NAME = re.compile(r"[\w .\-/]+")
_BLOCK_BEGINS = re.compile(r"[|>][+\-\d]{0,2}[ \t\f]*\n\Z")
_VARIABLES = re2.compile(rf'\bvariable[ \t]+\f{{0,8}}"{_NAME}\f{{0,8}}"\s{{0,20}}\{{')
_DEFAULT = re.compile(r"\bdefault[ \t]{0,20}=[ \t]{0,8}")
_VARIABLE_ENDS = re.compile(r"\n\f*\}|\n\f*(?:variable|resource|output)[ \t]")
_BLOCK = re.compile(r"[|>][+\-\d]{0,2}[ \t\f]*\n")

_TEXT = r"\s{0,80}(?:<!\[CDATA\[\s{0,80})?(?P<value>[^<\s][^<]{6,510}?)\s{0,80}(?:\]\]>\s{0,80})?<"
_LONG_TEXT = r"\s{0,80}(?P<value>[^<\s]{200})"
_TEXT_OF_ELEMENT = re.compile(rf"\f*[\"'][^<>]{{0,200}}(?<!/)>(?:\s*<value>)?{_TEXT}")
_ELEMENTS = re2.compile(
    rf"<(?:[\w\-]{{1,40}}:)?(?P<name>[\w.\-]{{0,40}}{_WORD}[\w.\-]{{0,40}})(?:\s[^<>]{{0,200}})?>{_TEXT}/"
)
_LONG_ELEMENTS = re2.compile(
    rf"<(?:[\w\-]{{1,40}}:)?(?P<name>[\w.\-]{{0,40}}{_WORD}[\w.\-]{{0,40}})(?:\s[^<>]{{0,200}})?>{_LONG_TEXT}"
)
_LONG_TEXT_OF_ELEMENT = re.compile(rf"\f*[\"'][^<>]{{0,80}}(?<!/)>(?:\s*<value>)?{_LONG_TEXT}")
_KEY_ELEMENTS = re2.compile(rf"<key>\s{{0,20}}{_NAME}</key>\s{{0,80}}<string>{_TEXT}/")

# a line of a form, or of a list of terms: the name, and below it only the value
_NAME_ENDS_LINE = re2.compile(rf"{_WORD}[\w .\-/]{{0,60}}:?[ \t\f*]{{0,8}}\n")
_NAME_LINE = re.compile(
    rf"[ \t>*#\-|\"]{{0,20}}{_NAME}:?[ \t\f*]{{0,8}}\n\s{{0,20}}(?:[:~][ \t]{{1,8}})?{_QUOTE}"
    r"(?P<value>[^\s\"'`]{8,256}(?:['`](?=\w)[^\s\"'`]{1,256})?)[\"'`]?[ \t\f]{0,8}(?:\n|\"|\Z)"
)
_IS_NO_VALUE = re.compile(r"\w+[.\w]*[(\[]|pass\Z|\[.*\]\(|[\[<{(!|].*[\])>}|]\Z|.*:\Z")
"""A link, brackets, or a heading."""
_Q = r"[\"'\\`]{0,8}"
_CHARS = r"[\w.\-/]{0,24}"
_LABEL = r"(?i:passw|passphrase|kennwort|pwd|secret|token|key|cred|auth|_pass|pass:|contrase|senha)"
_LABEL_OF_COLUMN = rf"(?:(?i:passw|passphrase|pwd|secret|token|api[ _\-]?key|access[ _\-]?key|kennwort|{_NATIVE}))"
FIELD_HINT = prefilter(
    (
        rf"(?i:name|key|id|parameter|variable){_Q}[ \t]{{0,4}}[:=][ \t]{{0,4}}{_Q}{_CHARS}{_WORD}",
        rf"{_WORD}{_CHARS}{_Q}[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:\{{|(?:\\+[nr]|\r?\n)\s{{0,8}}\{{)",
        rf"{_LABEL}[\w.\-/ ]{{0,12}}:?[ \t*]{{0,4}}(?:[|>][+\-0-9]{{0,2}}[ \t]{{0,4}})?(?:\\+[nr]|\r?\n)",
        rf"{_WORD}[\w.\-]{{0,24}}{_Q}(?:[ \t][^<>]{{0,40}})?>",
        r"(?i:variable)[ \t]+\\*\"",
        # headings: a name and others behind it, or quoted at the end of the line
        rf"{_LABEL_OF_COLUMN}[\w.\- ]{{0,24}}{_Q}[ ]{{0,8}}(?:[,;|\t]|\\+t)(?:[ \"]|\\+\")*"
        r"(?:[\w\x80-\xff]|\\+u[0-9a-f]{4})"
        r"(?:[\w .\-/()\",;|\t\x80-\xff]|\\+(?:[\"t]|u[0-9a-f]{4}))*(?:[^|\\]|\\+u[0-9a-f]{4})?(?:\r?\n|\\+[nr])",
        rf"[,;\t](?:[ \\])*\"[\w.\- ]*{_LABEL_OF_COLUMN}[\w.\- ]*\\*\"(?:\r?\n|\\+[nr])",
        rf"(?i:{_NATIVE})\\*\"?(?:\r?\n|\\+[nr])",
    )
)
"""Present in every raw text with a value; without it, nothing is searched."""
TABLE_HINT = prefilter((rf"\|[ \t*`]{{0,4}}[\w.\-/ ]{{0,24}}(?:{_WORD}|(?i:{_NATIVE}))[^|\r\n]{{0,24}}\|",))
"""Present in every table that names a secret."""
_DIGIT = re.compile(r"\d")
_ESCAPE = re.compile(r"\\+([nrt\"'/])")
_MEANS = {"n": "\n", "r": "\f", "t": "\t"}
_FLOW_ENDS = re.compile(r"\}(?=[\s,\]})]|\Z)")
_FIRST_WORD = re.compile(r"\f*[\"'`]?[^\s\"'`]*")
_WORD_OF_PROSE = re.compile(r"\f*([\"'`]?)[^\W\d_]+(?:\f*\1(?![\"'`]?\w)|[\s,])")
"""First word of prose, such as a translation, in a password's place."""


@dataclass(frozen=True, slots=True)
class NamedValue:
    """Characters [start, end) of a text are a value that belongs to a name."""

    start: int
    end: int
    name: str
    is_open: bool = False
    """The rules determine the end of the value; it may be quoted and followed by other text."""


def named_values(text: str) -> list[NamedValue]:
    """Return every value whose name is in a field, cell, line or element near or around it, in order."""
    plain = ""
    named: dict[int, NamedValue] = {}
    for start, end in windows(text, (FIELD_HINT,), LEFT, RIGHT):
        plain = plain or _plain(text)
        named |= {value.start: value for value in _named_in(plain, start, end)}
    if "|" in text and TABLE_HINT.search(text.encode("utf-8", "replace")):
        named |= {value.start: value for value in _in_tables(plain or _plain(text))}
    return [named[start] for start in sorted(named)]


def _plain(text: str) -> str:
    """Return the text with escapes of JSON decoded, at the same positions."""
    return _ESCAPE.sub(_of_same_length, text) if "\\" in text else text


def _of_same_length(escape: re.Match[str]) -> str:
    return "\f" * (len(escape[0]) - 1) + _MEANS.get(escape[1], escape[1])


# --- where names stand, and their values -------------------------------------------------------------------


def _named_in(text: str, low: int, high: int) -> Iterator[NamedValue]:
    """Yield values whose name is in a range of the text."""
    part = text[low:high]
    yield from _beside(text, part, low)
    yield from _within(text, part, low)
    yield from _of_variables(text, part, low)
    yield from _in_elements(part, low)
    yield from _below(text, part, low)
    yield from _in_columns(text, part, low)


def _beside(text: str, part: str, low: int) -> Iterator[NamedValue]:
    """Yield values in the field after or before that of their name, in the same item."""
    for match in _NAME_FIELDS.finditer(part):
        name, at = match["name"], low + match.end()
        behind = text[at : at + MAX_CHARS_BETWEEN]
        inside = _TEXT_OF_ELEMENT.match(behind) or _LONG_TEXT_OF_ELEMENT.match(behind) if ">" in behind else None
        if inside:
            yield from _told(name, at + inside.start("value"), inside["value"])
        elif (start := _value_in(behind)) is not None:
            yield from _rest_of_line(text, name, at + start)
        elif (start := _value_before(text, low + match.start())) is not None:
            yield from _rest_of_line(text, name, start)


def _value_in(item: str) -> int | None:
    """Return the beginning of the value behind a name, unless the item ends before."""
    field = _VALUE_FIELD.search(item)
    return None if field is None or _ITEM_ENDS.search(item[: field.start()]) else field.end()


def _value_before(text: str, end: int) -> int | None:
    begin = max(0, end - MAX_CHARS_BETWEEN)
    before = text[begin:end]
    field = next(reversed(list(_VALUE_FIELD.finditer(before))), None)
    if field is None:
        return None
    quote = before[field.end() : field.end() + 1]
    closing = before.find(quote, field.end() + 1) if quote in ('"', "'") else -1
    word = _FIRST_WORD.match(before, field.end())
    behind = closing if closing >= 0 or word is None else word.end()
    return None if _ITEM_ENDS.search(before[behind:]) else begin + field.end()


def _within(text: str, part: str, low: int) -> Iterator[NamedValue]:
    """Yield values in an object, a block or lines below a key with the name: `{"password": {"value": ...}}`."""
    for match in _KEY_ENDS.finditer(part):
        begin, end = low + match.start(), low + match.end()
        before = _KEY_BEGINS.search(text[max(0, begin - MAX_NAME_CHARS) : begin])
        key = begin - (len(before[0]) if before else 0)
        named = _KEY_NAME.match(text, key, end)
        if named is None:
            continue
        if _BLOCK_BEGINS.search(match[0]):
            yield from _lines_of_block(text, named[0], end)
            continue
        behind = text[end : end + MAX_CHARS_BETWEEN]
        start = _value_in(behind)
        if start is not None and (match[0].endswith("{") or _is_deeper(text, key, behind[:start])):
            yield from _rest_of_line(text, named[0], end + start)


def _of_variables(text: str, part: str, low: int) -> Iterator[NamedValue]:
    """Yield default values of Terraform variables."""
    for match in _VARIABLES.finditer(part):
        at = low + match.end()
        default = _DEFAULT.search(behind := text[at : at + MAX_CHARS_OF_VARIABLE])
        if default is not None and not _VARIABLE_ENDS.search(behind, 0, default.start()):
            yield from _rest_of_line(text, match["name"], at + default.end())


def _is_deeper(text: str, key: int, lines: str) -> bool:
    """Return whether the lines behind a key are indented more than it."""
    begin = text.rfind("\n", 0, key + 1) + 1
    margin = _margin(text[begin : begin + 2 * MAX_NAME_CHARS])
    return all(_margin(line) > margin for line in lines.split("\n") if line.strip())


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _rest_of_line(text: str, name: str, start: int) -> Iterator[NamedValue]:
    if block := _BLOCK.match(text, start):
        yield from _lines_of_block(text, name, block.end())
        return
    line = text[start : start + MAX_VALUE_CHARS].partition("\n")[0]
    quote = line.lstrip("\f")[:1]
    is_long = quote in ('"', "'") and quote not in line.lstrip("\f")[1:MAX_CHARS_OF_LINE]
    line = line if is_long else line[:MAX_CHARS_OF_LINE]
    if quote not in ('"', "'") and (closing := _FLOW_ENDS.search(line)) and _is_flow(text, start):
        line = line[: closing.start()]
    if name.isupper() or not _WORD_OF_PROSE.match(line):
        yield NamedValue(start, start + len(line), _key(name), is_open=True)


def _is_flow(text: str, start: int) -> bool:
    """Return whether a brace is open on the line: `{name: A, value: B}`."""
    before = text[max(0, start - MAX_CHARS_BETWEEN) : start].rpartition("\n")[2]
    return before.count("{") > before.count("}")


def _lines_of_block(text: str, name: str, start: int) -> Iterator[NamedValue]:
    """Yield the lines with the indentation of the first one."""
    margin = 0
    for _ in range(MAX_LINES_OF_BLOCK):
        line = text[start : start + MAX_VALUE_CHARS].partition("\n")[0]
        indent = _margin(line)
        margin = margin or indent
        if not indent or indent < margin:
            return
        value = line.strip()
        yield from _told(name, start + line.index(value), value)
        start += len(line) + 1


def _in_elements(part: str, low: int) -> Iterator[NamedValue]:
    if "<" not in part:
        return
    for pattern in (_ELEMENTS, _KEY_ELEMENTS, _LONG_ELEMENTS):
        of_value = pattern.groupindex["value"]
        for match in pattern.finditer(part):
            yield from _told(match["name"], low + match.start(of_value), match["value"])


def _below(text: str, part: str, low: int) -> Iterator[NamedValue]:
    for end in _NAME_ENDS_LINE.finditer(part):
        at = low + end.start()
        begin = max(text.rfind("\n", max(0, at - MAX_NAME_CHARS), at) + 1, at - MAX_NAME_CHARS, 0)
        in_string = max(begin, text.rfind('"', begin, at) + 1)  # the name may begin a string of JSON
        match = _NAME_LINE.match(text, begin) or _NAME_LINE.match(text, in_string)
        if match and not _IS_NO_VALUE.match(match["value"]):
            yield from _told(match["name"], match.start("value"), match["value"])


def _told(name: str, start: int, value: str) -> Iterator[NamedValue]:
    if _DIGIT.search(value):  # a word below a heading is no value
        yield NamedValue(start, start + len(value), _key(name))


def _key(name: str) -> str:
    return re.sub(r"[ .\-/]+", "_", name.strip(" .-/"))


# --- rows below a line of headings: CSV, TSV, what psql prints --------------------------------------------

_CHARS_OF_HEADINGS = r"(?:[\w .\-/()\"',;|\t\f[:^ascii:]]|\\+u[0-9A-Fa-f]{4})*"
_LINE_OF_HEADINGS = re2.compile(
    rf"{_CHARS_OF_HEADINGS}(?:{_WORD}|(?i:{escaped_or_not(_NATIVE)})){_CHARS_OF_HEADINGS}\n"
)
_ESCAPED_LETTER = re.compile(r"\\+u([0-9A-Fa-f]{4})")
_HEADING = re.compile(r"(?!(?i:import|from|return|select|def|enter|type|use|with|print)\b )[^\W\d][\w .\-/()]{0,60}")
_RULER_OF_ROWS = re.compile(r"[\s\f|+\-]*-[\s\f|+\-]*")
_CELL_OF = {
    sign: re.compile(rf'[ \f]*(?:"((?:[^"\n]|"\f*")*?)\f*"[ \f]*(?=[{sign}]|\Z)|([^\n{sign}]*))(?:[{sign}]|\Z)')
    for sign in "\t;|,"
}
_FEWEST_CHARS_OF_TOKEN = 16
"""For a column of tokens, which may be counted words."""


def _in_columns(text: str, part: str, low: int) -> Iterator[NamedValue]:
    """Yield cells below a heading that names a secret, in a line of headings followed by its rows."""
    for hit in _LINE_OF_HEADINGS.finditer(part):
        end = low + hit.end() - 1
        farthest = max(0, end - MAX_CHARS_OF_HEADINGS)
        begin = max(farthest, text.rfind("\n", farthest, end) + 1)
        # a string of JSON ends at a quote with fewer backslashes than its breaks have
        escapes = end - begin - len(text[begin:end].rstrip("\f"))
        quote = re.compile(rf'(?<!\f{{{escapes}}})"') if escapes else None
        for border in quote.finditer(text, begin, end) if quote else ():
            begin = border.end()
        begin = end - len(text[begin:end].lstrip(" \t\f"))
        sign = next((sign for sign in _CELL_OF if sign in text[begin:end] and _headings(text, begin, end, sign)), "")
        if sign:
            yield from _in_rows(text, end + 1, _headings(text, begin, end, sign), sign, quote)


def _in_rows(
    text: str, at: int, headings: Sequence[str], sign: str, quote: re.Pattern[str] | None
) -> Iterator[NamedValue]:
    """Yield values in the lines from `at` on with as many cells as there are headings."""
    is_last = False
    while not is_last:
        end = text.find("\n", at, at + MAX_VALUE_CHARS)
        border = quote.search(text, at, end if end >= 0 else at + MAX_VALUE_CHARS) if quote else None
        is_last = end < 0 or border is not None
        stop = border.start() if border else end if end >= 0 else min(len(text), at + MAX_VALUE_CHARS)
        cells = _cells(text, at, stop, sign)
        if not _RULER_OF_ROWS.fullmatch(text, at, stop):
            if len(cells) < len(headings) or _headings(text, at, stop, sign):
                return
            for (start, value), name in zip(cells, headings, strict=False):
                if name and len(cells) == len(headings) and _is_of_column(name, value):
                    yield NamedValue(start, start + len(value), name)
        at = end + 1


def _cells(text: str, begin: int, end: int, sign: str) -> list[tuple[int, str]]:
    """Return start and content of each cell of a line, without quotes around it."""
    cells = []
    for cell in _CELL_OF[sign].finditer(text, begin, end):
        group = 1 if cell[1] is not None else 2
        value = cell[group].strip(" \t\r\f")
        cells.append((cell.start(group) + cell[group].index(value), value))
        if text[cell.end() - 1 : cell.end()] != sign:
            break
    return cells


def _headings(text: str, begin: int, end: int, sign: str) -> list[str]:
    """Return for each column the name of a secret, or an empty text; no columns if the line has no headings."""
    cells = [_as_read(value.strip("'")) for _, value in _cells(text, begin, end, sign)]
    if len(cells) < 2 or not all(map(_HEADING.fullmatch, cells)):
        return []
    names = [_name_in(value) for value in cells]
    return names if any(names) else []


def _as_read(cell: str) -> str:
    """Return a heading with escapes of JSON decoded."""
    return _ESCAPED_LETTER.sub(lambda escape: chr(int(escape[1], 16)), cell) if "\\" in cell else cell


def _is_of_column(name: str, value: str) -> bool:
    """Return whether a cell may hold the secret that its column names."""
    is_password = ASSIGNMENT.search(f"{name}:")["strong"] is not None
    return bool(_DIGIT.search(value)) and (is_password or len(value) >= _FEWEST_CHARS_OF_TOKEN)


# --- tables of Markdown ----------------------------------------------------------------------------------

_ROW = re.compile(r"(?:^|(?<=[\"\n]))[ \t\f]*\|(.*\|)", re.MULTILINE)
_CELL = re.compile(r"((?:\\\||[^|])*)\|")
_RULER = re.compile(r"[\s|:+\-]*")
_MARKS = " \t\f\"'`*_"
_ASIDE = re.compile(r"\s*[(\[][^()\[\]]{0,60}[)\]]\s*")


def _in_tables(text: str) -> Iterator[NamedValue]:
    """Yield cells under a heading, or behind a cell, that names a secret."""
    headings: dict[int, str] = {}
    end = -1
    for row in _ROW.finditer(text) if "|" in text else ():
        if text[end + 1 : row.start()].strip():
            headings = {}
        end = row.end()
        if _RULER.fullmatch(row[1]):
            continue
        before = ""
        for column, cell in enumerate(_CELL.finditer(text, row.start(1), row.end(1))):
            value = cell[1].strip(_MARKS)
            told, before = before or headings.get(column, ""), _name_in(_as_read(value))
            if before:
                headings[column] = before
            elif told and value and (len(value) <= MAX_VALUE_CHARS or " " not in value):
                begins = cell.start() + cell[1].index(value)
                yield NamedValue(begins, begins + len(value), told)


def _name_in(cell: str) -> str:
    """Return a cell as the key of an assignment, if it names a secret."""
    words = _ASIDE.sub(" ", cell).strip(_MARKS + ":") if len(cell) <= MAX_NAME_CHARS else ""
    return _key(words) if words and _names_secret(_key(words)) else ""


@lru_cache(1024)
def _names_secret(key: str) -> bool:
    name: Any = ASSIGNMENT.search(f"{key}: ")
    return name is not None and not HARMLESS_NAME.search(key)
