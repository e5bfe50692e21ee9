"""Mask secrets on entry, before anything is archived, summarized, embedded, logged or sent.

One linear scan (RE2) over the raw text selects candidates. The rules then see windows around them with escapes undone,
so that a secret inside JSON inside JSON is found in place. Everything else is unchanged, byte for byte. A mask reads
`[REDACTED:<kind>:<8 hex>]`: the same secret gives the same mask under one salt.
"""

import fcntl
import hashlib
import json
import logging
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anamnesis_pipeline.model import content_id
from anamnesis_pipeline.parsing.claude_logs.log_lines import has_too_many_values
from anamnesis_pipeline.parsing.claude_logs.wide_text import flattened, slices
from anamnesis_pipeline.parsing.redaction.blocks import end_of_wrapped, private_keys, windows
from anamnesis_pipeline.parsing.redaction.fields import NamedValue, named_values
from anamnesis_pipeline.parsing.redaction.places import cookies_in, passwords_in_addresses
from anamnesis_pipeline.parsing.redaction.rules import (
    ANY_TOKEN,
    ASSIGNMENT,
    ESCAPED,
    ESCAPED_PRINTABLE,
    HARMLESS_NAME,
    IN_ARN,
    IN_ASSIGNMENT,
    IN_SENTENCE,
    KEYED_RULES,
    MASK,
    OPTION,
    PLACE_HINT,
    PLACE_RULES,
    PREFILTERS,
    RULES,
    SENTENCE,
    TOKEN_HINT,
    TOKEN_RULES,
    Rule,
    is_url_password,
)
from anamnesis_pipeline.parsing.redaction.sentences import CHARS_AROUND, FORMER, is_told, without_other_script
from anamnesis_pipeline.parsing.redaction.values import (
    ENVIRONMENT,
    LONGEST_BARE_VALUE,
    LONGEST_VALUE,
    bare_value,
    is_environment_password,
    is_generated,
    is_literal_secret,
    is_long_token,
    is_name_of_secret,
    is_passing,
    is_passphrase,
    looks_random,
    more_words,
)

log = logging.getLogger(__name__)

RULES_VERSION = 1
"""Raised with each change of what is masked: `anamnesis redact --rescan` then begins again instead of going on."""
SALT_BYTES = 32
LEFT, RIGHT = 160, 400
"""Characters around a hit that the rules see."""
LONGER = {b"eyJ": 6_000}
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
_TOKEN_REST = re.compile(r"[A-Za-z0-9_\-]*+")
_JWT_REST = re.compile(r"[A-Za-z0-9_\-.=]*+")
_VALUE_REST = re.compile(r"(?:[^\s\"'`\\<>,;&|()\[\]{}]|\\+/)*+")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ELEMENT_BORDER = re.compile(r"\\*\"\s*,\s*\\*\"")
_AS_WRITTEN = {"password", "token", "basic-auth", "private-key"}
"""Kinds whose end the rule itself determines."""
_IN_PATHS = {"url-token", "hue", "webhook"}
"""Kinds inside a path, whose letters and slashes look like base64."""
MIN_DATA = 60
"""Characters of base64 around a word from which on it is a piece of data."""
_DATA_BEFORE = re.compile(r"[A-Za-z0-9+/]*\Z")
_DATA_BEHIND = re.compile(r"[A-Za-z0-9+/=]*")
_QUOTED_QUOTE = re.compile(r"''(?=\w)|'\"'\"'(?=\S)")
"""A quote within quotes, as in YAML, SQL and the shell."""


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    kind: str
    is_cut: bool = False
    """It extends to the end of the window."""


class _Unescaped:
    """A text with some escapes undone, and the original position of each character."""

    def __init__(self, text: str, escapes: re.Pattern[str]) -> None:
        pieces: list[str] = []
        self._here, self._there = [0], [0]
        at = length = 0
        for match in escapes.finditer(text):
            character = chr(int(match[1], 16)) if match[1] else _CONTROL.get(match[2], match[2])
            pieces += (text[at : match.start()], character)
            length += match.start() - at
            self._here += (length, length + 1)
            self._there += (match.start(), match.end())
            at, length = match.end(), length + 1
        self.text = "".join((*pieces, text[at:])) if pieces else text

    def origin(self, position: int) -> int:
        """Return the original position of the character at `position`."""
        nearest = bisect_right(self._here, position) - 1
        return self._there[nearest] + position - self._here[nearest]

    def escapes_at(self, position: int) -> int:
        """Return the number of backslashes before the character at `position`."""
        return self.origin(position + 1) - self.origin(position) - 1


def rules_version() -> str:
    """Return a version that changes with these rules and with the library that has the others."""
    return content_id(version("detect-secrets"), str(RULES_VERSION))


class Redactor:
    """Finds and masks secrets. Stateless except for the salt; thread-safe.

    :param salt: key of the hashes in masks; keep it secret, since short passwords could be guessed with it.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt[:64]

    def mask_text(self, text: str) -> tuple[str, Counter[str]]:
        """Return `text` with every secret masked, and the number of each kind. Masking again changes nothing."""
        spans = _find(text)
        return "".join(self._pieces(text, spans)) if spans else text, _kinds(spans)

    def mask_line(self, line: str) -> tuple[str, Counter[str]]:
        """Mask one raw JSONL line; valid JSON stays valid with the same shape. In another text, which may have several
        lines, the line breaks inside a secret stay behind its mask.
        """
        spans = _find(line)
        if not spans:
            return line, Counter()
        pieces = self._pieces(line, spans, keeps_lines=True)
        after = _decoded(flattened(pieces, line))
        if after is None or any(_find(text) for text in _strings(after)):
            record = _decoded(line)
            if record is not None:
                found = Counter[str]()
                masked = self._mask_value(record, found)
                return json.dumps(masked, separators=(",", ":")), found
        del after, line  # free huge ones before the copy is used
        return "".join(pieces), _kinds(spans)

    def _mask_value(self, value: Any, found: Counter[str]) -> Any:
        if isinstance(value, str):
            masked, counts = self.mask_text(value)
            found.update(counts)
            return masked
        if isinstance(value, list):
            return [self._mask_value(item, found) for item in value]
        if isinstance(value, dict):
            return {self._mask_value(key, found): self._mask_pair(key, item, found) for key, item in value.items()}
        return value

    def _mask_pair(self, key: str, item: Any, found: Counter[str]) -> Any:
        """Mask an item with its key: a string may be a secret only because of its key."""
        match = ASSIGNMENT.search(f'{key}="') if isinstance(item, str) else None
        if match and match["quote"] and is_literal_secret(item, quoted=True, strong=bool(match["strong"])):
            kind = "password" if match["strong"] else "token"
            found[kind] += 1
            return self._mask(kind, item)
        return self._mask_value(item, found)

    def _pieces(self, text: str, spans: Sequence[_Span], *, keeps_lines: bool = False) -> list[str]:
        """Return the pieces of the masked text."""
        pieces: list[str] = []
        at = 0
        for span in spans:
            secret = text[span.start : span.end]
            mask = self._mask(span.kind, secret)
            # a key printed as an array of lines crosses string literals: their quotes and commas stay
            borders = [border.group() for border in _ELEMENT_BORDER.finditer(secret)]
            breaks = "\n" * (secret.count("\n") - "".join(borders).count("\n")) if keeps_lines else ""
            pieces += (*slices(text, at, span.start), mask, *(border + mask for border in borders), breaks)
            at = span.end
        return [*pieces, *slices(text, at, len(text))]

    def _mask(self, kind: str, secret: str) -> str:
        plain = _Unescaped(secret, ESCAPED).text.encode("utf-8", "surrogatepass")
        return f"[REDACTED:{kind}:{hashlib.blake2b(plain, digest_size=4, key=self._salt).hexdigest()}]"


def masks_in(text: str) -> Counter[str]:
    """Return the number of masks of each kind in a masked text."""
    return Counter(mask[1] for mask in MASK.finditer(text)) if "[REDACTED:" in text else Counter()


def load_salt(path: Path) -> bytes:
    """Return the 32 random bytes in `path`, mode 0600. Write them if the file is missing, short, or all zeros after a
    crash of the machine. Masks under an empty key could be guessed by anyone.

    :raises OSError: the file cannot be read or written.
    """
    if path.exists() and _is_salt(salt := path.read_bytes()):  # the file may be read-only
        return salt
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # all processes use the salt of the first
        if _is_salt(salt := file.read()):
            return salt
        if salt:
            log.warning("%s is damaged and holds a new salt now: secrets get other masks than before", path)
        salt = os.urandom(SALT_BYTES)
        file.seek(0)
        file.write(salt)
        file.flush()
        os.fsync(file.fileno())
    return salt


def _is_salt(content: bytes) -> bool:
    return len(content) >= SALT_BYTES and any(content)


# --- finding ---------------------------------------------------------------------------------------------


def _kinds(spans: Sequence[_Span]) -> Counter[str]:
    return Counter(span.kind for span in spans)


def _find(text: str) -> list[_Span]:
    """Return every secret in `text`, in order, without overlaps."""
    if ("\\/" in text or "\\u00" in text) and ESCAPED_PRINTABLE.search(text):
        plain = _Unescaped(text, ESCAPED_PRINTABLE)
        return [_Span(plain.origin(s.start), plain.origin(s.end), s.kind) for s in _find_plain(plain.text)]
    return _find_plain(text)


def _find_plain(text: str) -> list[_Span]:
    if not text.isascii() and _SURROGATES.search(text):  # JSON may hold half a pair; RE2 wants UTF-8
        text = _SURROGATES.sub("\ufffd", text)
    spans = [
        span
        for start, end in windows(text, PREFILTERS, LEFT, RIGHT, LONGER)
        for span in _find_in_window(text, start, end)
    ]
    spans += (_Span(start, end, "private-key") for start, end in private_keys(text))
    spans += (span for value in named_values(text) for span in _of_named(text, value))
    if not spans:
        return spans
    fitted = [_fit_escapes(text, span) for span in _joined(text, spans)]
    return [span for span in fitted if span.end > span.start]


def _find_in_window(text: str, start: int, end: int) -> Iterator[_Span]:
    window = _Unescaped(text[start:end], ESCAPED)
    masks = [match.span() for match in MASK.finditer(window.text)]
    found = (
        *_by_rules(window.text, cut=start > 0),
        *_by_place(window.text),
        *_by_assignment(window),
        *_by_sentence(window),
    )
    for low, high, kind in found:
        if not any(low < mask_end and mask_start < high for mask_start, mask_end in masks):
            here, there = start + window.origin(low), start + window.origin(high)
            yield _Span(here, there, kind, is_cut=there == end or high - low == LONGEST_BARE_VALUE)


def _by_rules(window: str, *, cut: bool) -> Iterator[tuple[int, int, str]]:
    """:param cut: the window begins inside the text, so a match at its very start may be half a word."""
    for rule in _rules_for(window):
        for match in rule.pattern.finditer(window):
            low, high = match.span(rule.group)
            if low < 0 and rule.group:  # an alternative of the pattern without that group
                low, high = match.span()
            while high > low and window[high - 1] in " \t\r\n\"'":
                high -= 1
            while low < high and window[low] in " \t\r\n\"'=:":
                low += 1
            value = window[low:high]
            may_be_data = value.isalnum() and rule.kind not in _IN_PATHS
            if (cut and low == 0) or (may_be_data and _is_in_data(window, low, high)):
                continue
            if rule.accept is None or rule.accept(value):
                yield low, high, rule.kind


def _rules_for(window: str) -> Sequence[Rule]:
    data = window.encode()
    places = PLACE_RULES if PLACE_HINT.search(data) else ()
    if not TOKEN_HINT.search(data):
        return (*KEYED_RULES, *places)
    return (*TOKEN_RULES, *RULES, *places) if ANY_TOKEN.search(window) else (*RULES, *places)


def _is_in_data(window: str, low: int, high: int) -> bool:
    """Return whether an apparent token is a piece of base64."""
    before = _DATA_BEFORE.search(window, max(0, low - MIN_DATA), low)
    after = _DATA_BEHIND.match(window, high, high + MIN_DATA)
    around = (before[0] if before else "") + (after[0] if after else "")
    return len(around) >= MIN_DATA and bool(re.search(r"[+/]", around)) and bool(re.search(r"\d", around))


def _by_place(window: str) -> Iterator[tuple[int, int, str]]:
    if "://" in window:
        for low, high in passwords_in_addresses(window):
            if is_url_password(window[low:high]):
                yield low, high, "basic-auth"
    if "=" in window:
        yield from ((low, high, "cookie") for low, high in cookies_in(window))


def _of_named(text: str, value: NamedValue) -> Iterator[_Span]:
    """Yield the secret in a value that is separate from its name: found when both are joined to an assignment."""
    written = text[value.start : value.end]
    if MASK.search(written):
        return
    quote = "" if value.is_open else next((quote for quote in "\"'`" if quote not in written), "")
    before = f"{value.name}:{quote or ' '}"
    window = _Unescaped(f"{before}{written}{quote}", ESCAPED)
    for low, high, kind in _by_assignment(window):
        start, end = window.origin(low) - len(before), window.origin(high) - len(before)
        if start >= 0:
            is_cut = end >= len(written) or high - low == LONGEST_BARE_VALUE
            yield _Span(value.start + start, value.start + min(end, len(written)), kind, is_cut=is_cut)


def _by_assignment(window: _Unescaped) -> Iterator[tuple[int, int, str]]:
    done = 0
    for match in ASSIGNMENT.finditer(window.text):
        key, low = match.span()
        if key < done:
            continue
        said = dict(zip(IN_ASSIGNMENT, match.groups(), strict=True))
        name, sign, strong = said["name"], said["sign"], bool(said["strong"])
        if _is_harmless(window.text, key, key + len(name)):
            continue
        quote = said["prefixed"] or said["quote"]
        value, is_closed = _value_at(window, low, quote, key)
        value = value if is_closed or name.isascii() else without_other_script(value)
        if sign in {"->", "→"} and ("(" in match[0] or not is_generated(value)):
            continue
        if said["listed"] and not (is_closed and looks_random(value)):
            continue
        if sign == ":" and not quote and is_passing(said["strong"] or "", value):
            continue
        may_be_option = said["spaced"] or (strong and is_closed)
        is_option = bool(may_be_option and OPTION.search(window.text[max(0, key - 40) : key]))
        if said["spaced"] and not (is_option or is_long_token(value)):
            continue
        if "secret" in name.lower() and is_name_of_secret(value):
            continue
        in_environment = strong and sign == "=" and ENVIRONMENT.search(window.text[max(0, key - 60) : low])
        is_alone = bool(in_environment or is_option or "phrase" in name.lower())
        if (
            is_literal_secret(value, quoted=bool(quote), strong=strong)
            or (in_environment and is_environment_password(value))
            or (strong and is_closed and is_passphrase(value, alone=is_alone))
        ):
            end = low + len(value)
            goes_on = not is_closed and sign == ":" and strong
            done = more_words(window.text, key, end) if goes_on else end
            yield low, done, "password" if strong else "token"


def _by_sentence(window: _Unescaped) -> Iterator[tuple[int, int, str]]:
    for match in SENTENCE.finditer(window.text):
        key = match.start()
        said = dict(zip(IN_SENTENCE, match.groups(), strict=True))
        if _is_harmless(window.text, key, key + len(said["name"])):
            continue
        strong, quote, low = bool(said["strong"]), said["quote"], match.end(len(IN_SENTENCE))
        value, is_closed = _value_at(window, low, quote, key)
        values = [(low, value if is_closed else without_other_script(value), quote)]
        if former := FORMER.search(match[0]):
            values.append((key + former.start(1), former[1], ""))
        before = window.text[max(0, key - CHARS_AROUND) : key]
        after = window.text[low + len(value) : low + len(value) + CHARS_AROUND]
        for start, told, around in values:
            if is_told(said, told, before, after) and is_literal_secret(told, quoted=bool(around), strong=strong):
                yield start, start + len(told), "password" if strong else "token"
        if is_closed and said["is"] and strong and is_passphrase(value, alone="phrase" in said["name"].lower()):
            yield low, low + len(value), "password"


def _is_harmless(text: str, key: int, end: int) -> bool:
    """Return whether the name of a value marks it as no secret, or is part of a resource's name."""
    named, before = text[max(0, key - 24) : end], text[max(0, key - 120) : key]
    return bool(HARMLESS_NAME.search(named) or IN_ARN.search(before))


def _value_at(window: _Unescaped, low: int, quote: str, key: int) -> tuple[str, bool]:
    """Return the value from `low` on, and whether a quote ends it: up to the quote of the same depth of escaping, or to
    the end of an unquoted value.
    """
    high = window.text.find(quote, low, low + LONGEST_VALUE) if quote else -1
    opening = window.escapes_at(low - 1)
    while high >= 0:
        closing = window.escapes_at(high)
        again = _QUOTED_QUOTE.match(window.text, high) if high > low else None
        # one more level of JSON doubles the backslashes; whole pairs of a level are backslashes of the value
        is_end = closing <= opening or (closing - opening) % (2 * (opening + 1)) == 0
        if is_end and again is None:
            return window.text[low:high], True
        high = window.text.find(quote, again.end() if again else high + 1, low + LONGEST_VALUE)
    return bare_value(window.text, low, key), bool(quote)


def _joined(text: str, spans: list[_Span]) -> list[_Span]:
    """Return the spans in order, overlapping ones joined, each to the end of its secret. No character is read twice."""
    joined: list[_Span] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        if not joined or span.start >= joined[-1].end:
            joined.append(_Span(span.start, _end_of(text, span), span.kind))
        elif span.end > joined[-1].end:
            last = joined[-1]
            joined[-1] = _Span(last.start, _end_of(text, span), last.kind)
    return joined


def _end_of(text: str, span: _Span) -> int:
    """Return the end of a span. A token extends as far as its characters do, also beyond its rule and over lines."""
    if span.kind == "private-key" and not span.is_cut:
        return span.end
    if span.is_cut and span.kind != "jwt":
        rest = _VALUE_REST
    elif span.kind in _AS_WRITTEN:
        return end_of_wrapped(text, span.start, span.end)
    else:
        rest = _JWT_REST if span.kind == "jwt" else _TOKEN_REST
    match = rest.match(text, span.end)
    return end_of_wrapped(text, span.start, match.end() if match else span.end)


def _fit_escapes(text: str, span: _Span) -> _Span:
    """Move borders that fall inside a JSON escape, so that no backslash is separated from its character."""
    start, end = span.start, span.end
    if start < end and text[start] != "\\" and _odd_backslashes(text, start):
        start += 5 if text[start] == "u" else 1
    while end > start and _odd_backslashes(text, end):
        end -= 1
    return _Span(start, end, span.kind)


def _odd_backslashes(text: str, position: int) -> bool:
    run = position
    while run > 0 and text[run - 1] == "\\":
        run -= 1
    return (position - run) % 2 == 1


def _decoded(line: str) -> Any:
    if has_too_many_values(line):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _strings(value: Any) -> Iterator[str]:
    """Yield every string of a decoded JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
