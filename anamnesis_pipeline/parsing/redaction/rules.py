"""The rules for secrets, and the hints by which one linear scan finds candidates. Pure.

detect-secrets knows most credentials; its patterns are used unchanged, compiled by RE2 where possible. Entropy rules
are left out, since prose and hashes match them, and so is its keyword rule, which is made for files of one language;
`ASSIGNMENT` and `values.py` replace it. The other rules cover its gaps.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import re2
from detect_secrets.plugins.artifactory import ArtifactoryDetector
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.basic_auth import BasicAuthDetector
from detect_secrets.plugins.cloudant import CloudantDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.softlayer import SoftlayerDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

from anamnesis_pipeline.parsing.redaction.places import COOKIE_TRIGGER, PLACES
from anamnesis_pipeline.parsing.redaction.sentences import FIRST_WORDS, NATIVE_KEYS, NATIVE_PASSWORDS, SENTENCE_TAIL
from anamnesis_pipeline.parsing.redaction.tokens import HINTS, SHAPES
from anamnesis_pipeline.parsing.redaction.values import (
    CLASS_CHANGE,
    RANDOM_CHANGES,
    STOCK_VALUES,
    is_mixed_throughout,
    is_stand_in,
    looks_random,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret. The secret is `group` of a match; `accept` makes the final decision."""

    kind: str
    pattern: Any
    group: int = 0
    accept: Callable[[str], bool] | None = None
    keyed: bool = False
    """The key of the assignment identifies the secret, not its own shape."""


def linear(pattern: str, flags: int = 0) -> Any:
    """Compile `pattern` by RE2, with detect-secrets' look-around, which RE2 lacks, replaced by equivalents."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not flags & re.IGNORECASE
    pattern = pattern.replace(r"(?:(?<=\W)|(?<=^))", r"(?:^|\W)")
    return re2.compile(pattern, options)


# --- values ----------------------------------------------------------------------------------------------


def _has_digit(value: str) -> bool:
    return _any_digit(value) and not is_stand_in(value)


def _any_digit(value: str) -> bool:
    return any(c.isdigit() for c in value)


_SAMPLE = re.compile(r"(?i)example|your[_\-]|x{6}|placeholder|redacted|eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6")
"""Marks a token as an example of documentation; the last is the payload that jwt.io shows."""


def _is_no_sample(value: str) -> bool:
    return not _SAMPLE.search(value)


def _is_jwt(value: str) -> bool:
    return _is_no_sample(value) and bool(JwtTokenDetector.is_formally_valid(value))


def _is_generated(value: str) -> bool:
    return (_any_digit(value) or len(CLASS_CHANGE.findall(value)) >= RANDOM_CHANGES) and _is_no_sample(value)


def is_url_password(value: str) -> bool:
    """Return whether the text in the place of an address's or command's password is one, and no placeholder."""
    return len(value) >= 3 and not is_stand_in(value) and not STOCK_VALUES.fullmatch(value)


def _is_no_group(value: str) -> bool:
    """Return whether the text behind `-u name:` is a password; `docker run --user` has a group there."""
    is_word = value.replace("-", "").isalpha() and value.islower()
    return is_url_password(value) and not value.isdigit() and not is_word


def _is_no_port(value: str) -> bool:
    """Return whether the text behind `-p` is a password; for `docker run --name mongo` it is a port."""
    return is_url_password(value) and not re.fullmatch(r"[\d.:]+(?:/[a-z]+)?", value)


def _holds_login(value: str) -> bool:
    """Return whether base64 holds a name and a password, as in Docker's configuration."""
    try:
        name, colon, password = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return bool(name and colon) and name.isprintable() and password.isprintable() and is_url_password(password)


def _mixed_case_and_digits(value: str) -> bool:
    return any(c.isdigit() for c in value) and any(c.islower() for c in value) and any(c.isupper() for c in value)


def _discord_id(value: str) -> bool:
    """Return whether the first third of a token is the base64 of a decimal account number, as in Discord's."""
    head = value.split(".", 1)[0]
    try:
        return base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).isdigit()
    except (binascii.Error, ValueError):
        return False


# --- rules -----------------------------------------------------------------------------------------------


_DETECT_SECRETS: tuple[tuple[str, Any, int, Callable[[str], bool] | None], ...] = (
    ("artifactory", ArtifactoryDetector, 0, _mixed_case_and_digits),
    ("aws", AWSKeyDetector, 1, None),
    ("azure-storage", AzureStorageKeyDetector, 0, None),
    ("basic-auth", BasicAuthDetector, 1, is_url_password),
    ("cloudant", CloudantDetector, 1, None),
    ("discord", DiscordBotTokenDetector, 0, _discord_id),
    ("github", GitHubTokenDetector, 0, None),
    ("jwt", JwtTokenDetector, 0, _is_jwt),
    ("mailchimp", MailchimpDetector, 0, None),
    ("openai", OpenAIDetector, 0, None),
    ("pypi", PypiTokenDetector, 0, None),
    ("sendgrid", SendGridDetector, 0, None),
    ("slack", SlackDetector, 0, None),
    ("softlayer", SoftlayerDetector, 1, None),
    ("square", SquareOAuthDetector, 0, None),
    ("stripe", StripeDetector, 0, None),
    ("twilio", TwilioKeyDetector, 0, None),
)

_KEYED = {"aws", "cloudant", "softlayer"}

_STRONG = (
    r"passw(?:or)?[dt]|passphrase|passwd|passcode|(?:store|key|ks|ts)pass\b|(?:\b|_)pass\b|pwd|\bpsk\b"
    r"|secret(?:[ _-]?(?:access[ _-]?)?key)?(?:_base)?|kennwort|geheimnis"
)
"""Names of passwords, whose values may be any word; `NATIVE_PASSWORDS` has more."""
_WEAK = (
    r"token|credentials?|authorization|(?-i:[A-Z0-9]_(?:KEY|AUTH|PAT|SAS|SALT|SESSION|APIKEY)|[A-Za-z]-Key)\b"
    r"|(?:api|app|application|access|auth|private|client|consumer|account|service|signing|encryption|decryption"
    r"|validation|deploy|master|licen[sc]e|product|activation|admin|server|shared|pre-?shared|write|ingest|integration"
    r"|storage|function|webhook|subscription|unseal|hmac|jwt|wallet|recovery|machine)[ _.-]?keys?"
    r"|api[_-]?hash|oob_?code|jsessionid|phpsessid"
    r"|(?:2fa|totp|otp|mfa|wallet|stellar|recovery)[ _-]?(?:seed|secret|code)"
    r"|(?:\b|_)pw\b|(?-i:[a-z]Pw\b)|zugangs(?:daten|code|token)|schl(?:ü|ue)ssel|jeton"
    r"|cl(?:é|e|ef)s? (?:api|secr(?:è|e)te|priv(?:é|e)e|d'acc(?:è|e)s|wi-?fi)"
    r"|(?:clave|llave|chave|chiave)(?: (?:de )?(?:api|secreta|privada|acceso|segreta))?"
)
"""Names of keys and tokens, whose values look random."""
_SUFFIX = (
    r"(?:[_-]?(?:value|base64|b64|raw|old|new|prod|production|dev|test|live|staging|main|default|private|public"
    r"|[0-9]{1,3})| [0-9]{1,2})?"
)
_TYPE = r"(?:str|String|string|&str|&'static str|SecretStr|Optional\[str\]|str \| None|any|bytes|char ?\*)"
ASSIGNMENT = linear(
    rf"(?i)(?P<name>(?P<strong>{_STRONG}|{NATIVE_PASSWORDS})|{_WEAK}|{NATIVE_KEYS}){_SUFFIX}"
    r"(?:(?:[\"'`]|\*{1,3}|__|</[a-z]{1,8}>)?[\])]?(?: ?\([^()\n]{1,40}\))?[ \t\x{a0}]{0,3}"
    rf"(?P<sign>(?::[ ]?{_TYPE}[ ]=)|:=|=>|->|={{1,3}}|:|→|：|＝)(?:\*{{1,3}}|__|</[a-z]{{1,8}}>)?[ \t\x{{a0}}]{{0,8}}"
    r"(?:[a-z]{1,2}(?P<prefixed>[\"']))?"
    r"|(?P<listed>[\"'][ \t]{0,2},[ \t]{0,12})|(?P<spaced> ))"
    r"(?P<quote>\*\*|[\"'`]?)"
)
"""A key that names a secret, an operator, and the quote before its value, if there is one."""
SENTENCE = linear(
    rf"(?i)(?P<name>(?P<strong>{_STRONG}|(?P<native_password>{NATIVE_PASSWORDS}))|(?P<native_key>{NATIVE_KEYS})|{_WEAK})"
    rf"{_SUFFIX}{SENTENCE_TAIL}"
)
"""A name of a secret and the words that lead to its value in a sentence."""
IN_ASSIGNMENT, IN_SENTENCE = (
    tuple(sorted(rule.groupindex, key=rule.groupindex.get)) for rule in (ASSIGNMENT, SENTENCE)
)
"""Names of their groups in order: RE2 is slow in finding one by name."""

OPTION = re.compile(r"(?:^|[\s\"'])--?[A-Za-z0-9_\-]*$")
IN_ARN = re.compile(r"\barn:[\w:/\-*.]*\Z")
HARMLESS_NAME = re.compile(
    r"(?:\A|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))(?i:(?:public|cache|primary|foreign|partition|sort|row"
    r"|hash|idempotency|lookup|object|query|route|group|registry|header|dedup(?:lication)?|routing|shard|publishable|verif\w+|next|prev(?:ious)?|page|pagination|continuation|sync"
    r"|cancel(?:lation)?|csrf|xsrf|bos|eos|pad|unk|mask|stop|sep|cls|special|input|output|max|min)"
    r"[ _\-]?(?:keys?|tokens?|key id))\Z"
)
"""Names of values that are no secret though they are called a key or a token."""

_SCHEME = (
    r"(?i:bearer|basic|ssws|geniekey|apikey|splunk|authorization: ?[\"']?(?:token|apikey))"
    r"[ \t]+([A-Za-z0-9\-._~+/]{16,}={0,2})"
)
_FLAGS_OF_CURL = r"\bcurl[ \t](?:(?:[^\n|;&]|\n[ \t]+-){0,200}(?:[ \t]|\n[ \t]+))?-[A-Za-z]{1,8}u"
_USER = rf"(?:\s-u|--user|{_FLAGS_OF_CURL})[ =]?[\"']?[\w.@+\-]+:([^\s\"':]{{6,}})"
_SSHPASS = r"sshpass -p[ =]?[\"']?([^\s\"']{4,})"
_NETRC = r"login[ \t]+\S+\s+password[ \t]+([^\s\"'\\]{6,})"
_ELEMENT = r"<(?i:[a-z:_\-]{0,40}(?:password|passwd|passphrase|secret|token|api_?key))>[ \t]*([^<\s]{6,512})[ \t]*</"
# a secret longer than a window ends where its characters do
_LONG_ELEMENT = r"<(?i:[a-z:_\-]{0,40}(?:password|passwd|passphrase|secret|token|api_?key))>[ \t]*([^<\s]{200,})"
_MYSQL = r"\b(?:mysql|mariadb)[a-z\-]*[ \t](?:[^\n|;&]{0,200}[ \t])?-p[\"']?([^\s\"'\\]{6,100})"
_MONGO_OPTION = r"(?:-p|--password)[ \t=]+[\"']?([^\s\"'\\\-][^\s\"'\\]{2,100})"
_MONGO = rf"\bmongo(?:sh|dump|restore|export|import|stat|top|files)[ \t](?:[^\n|;&]{{0,200}}[ \t])?{_MONGO_OPTION}"
# a container may have this name, too: only a user's name beside it indicates a login
_MONGO_USER = r"(?:-u|--username)[ \t=]"
_OLD_MONGO = rf"\bmongo[ \t](?:[^\n|;&]{{0,200}}[ \t])?{_MONGO_USER}[^\n|;&]{{0,200}}[ \t]{_MONGO_OPTION}"
_OLD_MONGO_TURNED = (
    rf"\bmongo[ \t](?:[^\n|;&]{{0,200}}[ \t])?{_MONGO_OPTION}[\"']?[ \t](?:[^\n|;&]{{0,200}}[ \t])?{_MONGO_USER}"
)
_REDIS = r"\bredis-cli[ \t](?:[^\n|;&]{0,200}[ \t])?(?:-a|--pass)[ \t=]+[\"']?([^\s\"'\\\-][^\s\"'\\]{2,100})"
# keys of caches and names of files look like these
_MAILGUN = r"(?:^|[^\w\-/])(key-[0-9a-f]{32})(?:[^\w\-]|$)"
_MAILGUN_NAMED = (
    r"(?i:mailgun|api[ _\-]?key|secret|token|password)[^\n]{0,80}?[^\w\-/]([0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8})\b"
)
_SIDEKIQ = r"CONTRIBSYS__COM[\"']?[ \t]*[=:][ \t]*[\"']?([0-9a-f]{8}:[0-9a-f]{8})"
_DOCKER_AUTH = r"[\"']auth[\"'] {0,3}: {0,3}[\"']([A-Za-z0-9+/]{8,}={0,2})[\"']"
_WEBHOOK = r"discord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/[0-9]{16,20}/([A-Za-z0-9_\-]{32,})"
_FACEBOOK_APP = r"(?:^|[^0-9])[0-9]{15,16}\|([A-Za-z0-9_\-]{27,40})"
_VOYAGE = r"(?:^|[^A-Za-z0-9])(pa-[A-Za-z0-9_\-]{40,})"
_NPMRC = r"(?::_authToken|_auth|_password)\s*=\s*[\"']?([A-Za-z0-9+/=_\-]{16,})"

_SAS = r"[?&;]sig=([A-Za-z0-9%+/_\-]{40,}={0,2})"


RULES = (
    *(
        Rule(kind, linear(p.pattern, p.flags), min(group, p.groups), accept or _is_no_sample, kind in _KEYED)
        for kind, plugin, group, accept in _DETECT_SECRETS
        for p in plugin.denylist
    ),
    Rule("npm", linear(_NPMRC), 1, _has_digit),
    Rule("authorization", linear(_SCHEME), 1, _has_digit),
    Rule("password", linear(_USER), 1, _is_no_group),
    Rule("password", linear(_SSHPASS), 1, is_url_password),
    Rule("password", linear(_NETRC), 1, is_url_password),
    Rule("password", linear(_ELEMENT), 1, is_url_password),
    Rule("password", linear(_LONG_ELEMENT), 1, looks_random),
    Rule("password", linear(_MYSQL), 1, is_url_password),
    *(Rule("password", linear(mongo), 1, _is_no_port) for mongo in (_MONGO, _OLD_MONGO, _OLD_MONGO_TURNED)),
    Rule("password", linear(_REDIS), 1, is_url_password),
    Rule("basic-auth", linear(_DOCKER_AUTH), 1, _holds_login),
    Rule("mailgun", linear(_MAILGUN), 1),
    Rule("mailgun", linear(_MAILGUN_NAMED), 1),
    Rule("sidekiq", linear(_SIDEKIQ), 1),
    Rule("webhook", linear(_WEBHOOK), 1, _any_digit),
    Rule("voyage", linear(_VOYAGE), 1, is_mixed_throughout),
    Rule("facebook", linear(_FACEBOOK_APP), 1, _mixed_case_and_digits),
    Rule("azure-sas", linear(_SAS), 1, looks_random),
)

_BEFORE = "(?:^|[^A-Za-z0-9])"
TOKEN_RULES = tuple(Rule(kind, linear(f"{_BEFORE}({shape})"), 1, _is_generated) for kind, shape in SHAPES)
ANY_TOKEN = linear(f"{_BEFORE}(?:{'|'.join(shape for _, shape in SHAPES)})")
"""If it finds nothing, none of `TOKEN_RULES` can match."""

# --- the prefilter ---------------------------------------------------------------------------------------


_TOKEN_HINTS = (
    r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}",
    r"AKC[a-zA-Z0-9]{10}|AP[0-9A-F][a-zA-Z0-9]{8}[\s\"\\]",
    r"AccountKey=",
    r":(?:\\*/){2}[^\s/:@\"'<>`?#]{0,100}:[^\s@\"<>`]{3,200}@",
    r"(?i:https?:(?:\\*/){2}(?:api\.softlayer\.com|hooks\.slack\.com))",
    r"[a-zA-Z0-9]\.[a-zA-Z0-9_\-]{6}\.[a-zA-Z0-9_\-]{12}",
    r"gl(?:pat|dt|ft|soat|rt|imt|ptt|agent|oas|cbt)-[A-Za-z0-9_\-]{16}|GR1348941",
    r"eyJ[A-Za-z0-9_=\-]{8,}\.",
    r"[0-9a-z]{4}-us[0-9]",
    r"sk-[A-Za-z0-9_\-]{20}",
    r"pypi-AgE|SG\.[a-zA-Z0-9_\-]{22}\.|xox[a-z]-[A-Za-z0-9]|sq0csp-",
    r"[rs]k_(?:live|test)_[0-9a-zA-Z]|[0-9]{8}:[0-9A-Za-z_\-]{35}|(?:AC|SK)[a-z0-9]{32}|gh[opusr]_[A-Za-z0-9_]{36}",
    r"[?&;]sig=[A-Za-z0-9%+/_\-]{40}",
    r"<(?i:[a-z:_\-]{0,40}(?:password|passwd|passphrase|secret|token|api_?key))>[^<\s]{6}",
    r"(?:mysql|mariadb)[a-z\-]*[ \t](?:[^\n|;&]{0,200}[ \t])?-p[\"'\\]{0,4}[^\s\"'\\]{6}",
    r"(?:mongo[a-z]{0,7}[ \t]+(?:[^\s\-][^\s]*[ \t]+)?|redis-cli[ \t]+)-|CONTRIBSYS__COM",
    r"[\"']auth\\*[\"'] {0,3}: {0,3}\\*[\"'][A-Za-z0-9+/]{8}|[0-9]{15}\|[A-Za-z0-9_\-]{27}",
    r"key-[0-9a-f]{20}|[0-9a-f]{2}-[0-9a-f]{8}-[0-9a-f]{8}",
    r"/webhooks/[0-9]{16}",
    r"(?i:bearer|basic|ssws|apikey|token|geniekey|splunk)[ \t]+[A-Za-z0-9._~+/\-]{16}",
    r"(?: -u|--user|sshpass -p)[ =]?[\"'\\]{0,4}[^\s\"':]{1,60}:?[^\s\"':]{6}",
    r" -[A-Za-z]{1,8}u ?[\"'\\]{0,4}[\w.@+\-]{1,60}:|pa-[A-Za-z0-9_\-]{40}",
    r"login[ \t]+[^\s\\]{1,100}(?:\s|\\+[nrt])+password[ \t]|_auth(?:Token)?\s{0,3}=|_password\s{0,3}=",
    COOKIE_TRIGGER,
    *HINTS,
)
_PLACE_HINTS = tuple(place.trigger for place in PLACES)
_NAME_HINT = rf"(?i:{_STRONG}|{_WEAK})[A-Za-z0-9_\-]{{0,12}}(?: [0-9]{{1,2}})?"
_SIGN_HINT = (
    r"[\"'\\`\])*_]{0,8}(?:</[a-z]{1,8}>)?(?: ?\([^()\n]{1,40}\))?(?:[ \t]| ){0,3}"
    rf"(?:: ?{_TYPE} =|[:=][:=>]{{0,2}}|->|→|：|＝|,)(?:\*{{1,3}}|__|</[a-z]{{1,8}}>)?(?:[ \t]| ){{0,12}}"
)
_KEY_HINTS = (
    r"://[^\s/:@\"'<>`?#]{0,100}:[^\s\"<>`|]{1,2}@",  # the password continues behind the sign
    # any characters of a password
    rf"(?i:{_STRONG})[A-Za-z0-9_\-]{{0,12}}{_SIGN_HINT}"
    r"(?:[A-Za-z]{0,2}[\\\"'`*]{1,8}[^\s\"'`\\][^\r\n]{7}|[^\s\"'`]\S{7})",
    rf"{_NAME_HINT}(?:{_SIGN_HINT}|[ ])(?:[A-Za-z]{{0,2}}[\\\"'`*]{{1,8}})?[^\s\"'\\`,;<>|&()\[\]{{}}]{{8}}",
    rf"--[a-z\-]{{0,20}}(?i:{_STRONG}) \\*[\"'][^\s\"'`\\][^\r\n]{{7}}",  # words between quotes
    rf"{_NAME_HINT}(?: ?\([^()\n]{{1,40}}\))? (?:{FIRST_WORDS})",
    rf"(?i:{NATIVE_PASSWORDS}|{NATIVE_KEYS})",
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def _in_bytes(pattern: str) -> bytes:
    r"""Return a pattern for text as one for bytes. JSON may have escaped characters beyond ASCII, and the break or tab
    before a word: in `\npass:` that is `pass`.
    """
    pattern = pattern.replace(r"\b", r"(?:\b|\\[nrt]|\\u[0-9a-fA-F]{4})")
    return escaped_or_not(pattern).encode()


def escaped_or_not(pattern: str) -> str:
    """Return a pattern that also finds characters beyond ASCII where JSON has escaped them."""
    return _NOT_ASCII.sub(_in_both_cases, pattern)


def _in_both_cases(character: re.Match[str]) -> str:
    cases = sorted({character[0], *(case for case in (character[0].lower(), character[0].upper()) if len(case) == 1)})
    return rf"(?:{'|'.join(cases)}|\\+u(?i:{'|'.join(f'{ord(case):04x}' for case in cases)}))"


PREFILTER_BYTES = 16 << 20
"""RE2 caches the states of an automaton: in 64 MiB for each, those of 250,000 searches, including 24 MiB that are
almost never used again. 8 MiB are too few for one state, and RE2 then runs without a cache.
"""


def prefilter(hints: tuple[str, ...]) -> Any:
    """Return the alternation over all possible matches of some rules, for bytes; escapes of JSON may be inside."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = PREFILTER_BYTES
    options.never_capture = True
    return re2.compile(_in_bytes("|".join(f"(?:{hint})" for hint in hints)), options)


KEYED_RULES = tuple(rule for rule in RULES if rule.keyed)
TOKEN_HINT = prefilter(_TOKEN_HINTS)
"""If it finds nothing, only `KEYED_RULES`, `PLACE_RULES` and `ASSIGNMENT` can match."""
PLACE_RULES = tuple(Rule(place.kind, linear(place.pattern), 1, place.accept) for place in PLACES)
PLACE_HINT = prefilter(_PLACE_HINTS)
"""If it finds nothing, none of `PLACE_RULES` can match."""
PREFILTERS = (TOKEN_HINT, PLACE_HINT, prefilter(_KEY_HINTS))
"""All possible matches of any rule. A single automaton would have so many states that it is rebuilt all the time."""

ESCAPED_PRINTABLE = re.compile(
    r"(?<!\\)\\+(?:u00(2[013-689a-fA-F]|[3-4][0-9a-fA-F]|5[0-9abd-fABD-F]|[67][0-9a-fA-F])|(/))"
)
"""Characters that need no escape in JSON but may have one, at any depth; quotes and backslashes are not among them."""

ESCAPED = re.compile(
    r"(?<!\\)\\+(?:u(00[2-7a-fA-F][0-9a-fA-F]|(?!00)(?:[0-9a-cA-CefEF][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{2})"
    r"|([nrt\"'/]))"
)
"""Escapes that hide a boundary, at any depth of JSON inside JSON."""

MASK = re.compile(r"\[REDACTED:([a-z0-9\-]{1,24}):[0-9a-f]{8}\]")
