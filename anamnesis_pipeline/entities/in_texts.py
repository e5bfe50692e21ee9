"""Things that a text names: files, symbols, URLs, hosts, packages, tickets, people and days. Pure.

Precision before recall: what looks like one of these by chance is left out.
"""

import re
from collections.abc import Collection, Iterator
from datetime import date
from ipaddress import AddressValueError, IPv4Address
from itertools import pairwise
from urllib.parse import urlsplit

from anamnesis_pipeline.knowledge.claims import path_of
from anamnesis_pipeline.store.entity_model import EntityKind

MAX_TEXT_CHARS = 20_000
MAX_THINGS = 40
"""Things of one text, the first ones."""
MAX_LINK_CHARS = 60
"""Characters between two things of which the first depends on the second."""

Thing = tuple[EntityKind, str, str]
"""Kind, name, and the name of what depends on it; mostly empty."""

_FENCE = re.compile(r"^[ ]{0,3}(```+|~~~+).*?(?:^[ ]{0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
_URL = re.compile(r"\bhttps?://[^\s<>\"'`)\]}|\\]+", re.IGNORECASE)
_CODE = re.compile(r"`([^`\n]{2,200})`")
_PATH = re.compile(r"(?<![\w/`:.@~$(<\[-])(?:~?/|\./)?(?:[\w.@+-]+/)+[\w.@+-]+\.[A-Za-z]\w{0,9}(?::\d+)?(?![\w/*<{-])")
_FILE = re.compile(
    r"(?<![\w/.@-])[\w-]+(?:\.[\w-]+)*"
    r"\.(?:py|ts|tsx|jsx|rs|go|java|rb|php|cs|cpp|swift|kt|sql|sh|toml|ya?ml)\b(?![\w/(])"
)
_PRODUCT = re.compile(r"[A-Za-z]+\.(?:js|io|ai)|dist|build|lib|src")
"""What may be a library or a folder of products as well."""
_SYMBOL = re.compile(r"(?:[A-Za-z_]\w*(?:\.|::))*([A-Za-z_]\w{2,})(\(\)|/\d)?")
_CAMEL = re.compile(r"[A-Za-z0-9]*[a-z][A-Z]\w*", re.ASCII)
"""In camel case, as functions, classes and types are; snake case is that of fields and keys as well."""
_PINNED = re.compile(r"(@?[A-Za-z][\w.-]*(?:/[\w.-]+)?)(?:\[[\w,-]+\])?(?:==|>=|~=|@\^?(?=\d))v?\d[\w.*]*")
_MAIL = re.compile(r"(?<![\w.+/:-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?![\w@/:-])")
_SIGNED = re.compile(
    r"(?:Co-Authored-By|Signed-off-by|Author|Reported-by):\s*([^\n<]{2,60}?)\s*<[^\n>]+@", re.IGNORECASE
)
_KEY = re.compile(r"(?<![\w./#-])([A-Z]{2,10}-\d{1,6})(?![\w-]|\.\d)")
_NO_TICKET = re.compile(
    r"(?:UTF|ISO|SHA|MD|RFC|CVE|ISBN|RTX|GTX|GPT|BM|EU|US|AES|RSA|TLS|HTTP|IPV|IPv|COVID|CP|KOI|GB|BASE|PEP|ADR|INT|UINT"
    r"|DNS|HTTP|TCP|UDP|FP|BF|MP|EN|DIN|IEEE|ANSI|ES|ECMA|PHP|CPU|GPU|V|M|F|X|Q|T|P|K|R|C|RC|L|H)-\d+"
)
_ISSUE = re.compile(
    r"\b(?:issue|PR|pull request|ticket|bug|MR|merge request)s?[ \t]+#(?P<number>\d{1,6})\b"
    r"|(?P<repository>\b[\w.-]+/[\w.-]+)#(?P<of>\d{1,6})\b|(?<![\w&/#])#(?P<bare>\d{2,6})\b(?![\w-])",
    re.IGNORECASE,
)
_ISO = re.compile(r"(?<![\w/.-])(\d{4})-(\d\d)-(\d\d)(?![\w/-]|\.\d)")
_MONTHS = {
    name: number
    for number, names in enumerate(
        """january januar janvier enero|february februar février febrero|march märz mars marzo|april avril abril
        |may mai mayo|june juni juin junio|july juli juillet julio|august août agosto|september septembre septiembre
        |october oktober octobre octubre|november novembre noviembre|december dezember décembre diciembre""".split("|"),
        1,
    )
    for name in names.split()
}
_NAMES_OF_MONTHS = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY = re.compile(
    rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.|er)?\s+(?:of\s+|de\s+)?(?P<month>{_NAMES_OF_MONTHS})\s+"
    rf"(?:de\s+|,\s*)?(?P<year>\d{{4}})\b"
    rf"|\b(?P<before>{_NAMES_OF_MONTHS})\s+(?P<its>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<of>\d{{4}})\b",
    re.IGNORECASE,
)
_DEPENDS = re.compile(
    r"\b(?:depends? on|requires?|uses?|is built (?:on|with)|imports?|hängt (?:ab )?von|dépend de|depende de)\b",
    re.IGNORECASE,
)
_NEVER = re.compile(r"\b(?:not|no longer|never|n't|nicht|nie|pas|no)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[.!?]\s|\n")
_LOCAL = frozenset({"localhost", "example.com", "example.org", "www.example.com"})


def things_of(text: str, defined: Collection[str] = ()) -> list[Thing]:
    """Return what a text names, in order, each once.

    :param defined: names in snake case that are known to be of symbols.
    """
    text = _FENCE.sub("\n", text[:MAX_TEXT_CHARS])
    found: dict[tuple[EntityKind, str], int] = {}
    for at, kind, name in sorted(_all(text, defined)):
        found.setdefault((kind, name), at)
    named = list(found.items())[:MAX_THINGS]
    links = dict(_links(text, [(at, *thing) for thing, at in named]))
    return [(kind, name, links.get((kind, name), "")) for (kind, name), _ in named]


def _all(text: str, defined: Collection[str]) -> Iterator[tuple[int, EntityKind, str]]:
    """Yield where each thing is named."""
    for found in _URL.finditer(text):
        yield from _of_url(found)
    bare = _URL.sub(lambda url: " " * len(url[0]), text)
    for found in _CODE.finditer(bare):
        yield from _of_code(found, defined)
    for found in (*_PATH.finditer(bare), *_FILE.finditer(bare)):
        if path := path_of(found[0]):
            yield found.start(), EntityKind.FILE, path
    yield from _people_and_tickets(bare)
    yield from _days(bare)


def _people_and_tickets(text: str) -> Iterator[tuple[int, EntityKind, str]]:
    for found in _MAIL.finditer(text):
        if not path_of(found[0]) and found[0].partition("@")[0].lower() != "git":
            yield found.start(), EntityKind.PERSON, found[0].lower()
    for found in _SIGNED.finditer(text):
        yield found.start(), EntityKind.PERSON, found[1].strip()
    for found in _KEY.finditer(text):
        if not _NO_TICKET.fullmatch(found[1]):
            yield found.start(), EntityKind.TICKET, found[1]
    for found in _ISSUE.finditer(text):
        number = found["number"] or found["of"] or found["bare"]
        yield found.start(), EntityKind.TICKET, f"{found['repository'] or ''}#{number}"


def _of_url(found: re.Match[str]) -> Iterator[tuple[int, EntityKind, str]]:
    address = found[0].rstrip(".,;:!?*_")
    try:
        split = urlsplit(address)
        host = (split.hostname or "").lower()
    except ValueError:
        return
    if not host or host in _LOCAL or any(mark in address for mark in "<>{}$…") or address.endswith("..."):
        return
    if host.startswith("127.") or "." not in host:
        return
    path = split.path.rstrip("/")
    yield found.start(), EntityKind.URL, f"{host}{path}{'?' + split.query if split.query else ''}"[:300]
    yield found.start(), EntityKind.HOST, host


def _of_code(found: re.Match[str], defined: Collection[str]) -> Iterator[tuple[int, EntityKind, str]]:
    """Yield what a span of code names."""
    code, at = found[1].strip(), found.start()
    symbol = _SYMBOL.fullmatch(code)
    if symbol is not None and len(symbol[1]) > 3 and (symbol[2] or _CAMEL.fullmatch(symbol[1]) or symbol[1] in defined):
        yield at, EntityKind.SYMBOL, symbol[1]
    elif (path := path_of(code)) and not _PRODUCT.fullmatch(path):
        yield at, EntityKind.FILE, path
    elif pinned := _PINNED.fullmatch(code):
        yield at, EntityKind.PACKAGE, pinned[1].lower()
    elif _is_address(code):
        yield at, EntityKind.HOST, code


def _is_address(code: str) -> bool:
    try:
        return not IPv4Address(code).is_loopback
    except AddressValueError:
        return False


def _days(text: str) -> Iterator[tuple[int, EntityKind, str]]:
    for found in _ISO.finditer(text):
        if day := _day(found[1], found[2], found[3]):
            yield found.start(), EntityKind.DATE, day
    for found in _DAY.finditer(text):
        month = _MONTHS[(found["month"] or found["before"]).lower()]
        if day := _day(found["year"] or found["of"], str(month), found["day"] or found["its"]):
            yield found.start(), EntityKind.DATE, day


def _day(year: str, month: str, day: str) -> str:
    try:
        found = date(int(year), int(month), int(day))
    except ValueError:
        return ""
    return found.isoformat() if 1990 <= found.year < 2100 else ""


def _links(text: str, named: list[tuple[int, EntityKind, str]]) -> Iterator[tuple[tuple[EntityKind, str], str]]:
    """Yield the things of which the text says that the one before depends on them, with the name of that one."""
    for (at, _, name), (other_at, kind, other) in pairwise(named):
        between = text[at:other_at]
        if len(between) > MAX_LINK_CHARS + len(name) or _SENTENCE.search(between) or _NEVER.search(between):
            continue
        if _DEPENDS.search(between) and name != other:
            yield (kind, other), name
