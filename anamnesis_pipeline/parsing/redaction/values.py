"""Decide whether the right side of an assignment is a secret, and where it ends. Pure.

A generated password holds brackets, percent signs and commas as code does. So a value is a template only as a whole,
and unquoted brackets belong to a password if a word between them is unlikely in a program.
"""

import re

LONGEST_VALUE, LONGEST_BARE_VALUE = 4096, 256
"""Maximum characters; a longer value of an assignment is data."""
SHORTEST_VALUE = 8
LONGEST_SPACED_VALUE = 64
"""Maximum characters of a value with spaces; a longer one is a text."""

PLACEHOLDER = re.compile(
    r"""\*{3}|\.{3}|…|x{4}|0{8}|12345678|abcdef(?!\d)|REDACTED
    |your[_\-]?|example|change[_\-]?me|change[_\-]?this|placeholder|dummy|sample|foobar|lorem|insert
    |process\.env|environ|getenv|\benv\.|secrets?\.|\bvault:""",
    re.IGNORECASE | re.VERBOSE,
)
"""Marks a value as a placeholder for a secret, or as code that fetches one."""
FIELD = re.compile(
    r"""[$\#%]?\{\{[^{}]*\}\}|[$\#%]\{[^{}]*\}|\$\([^()]*\)|<%[^%]*%>
    |(?P<named>\{[ ]?(?:[A-Za-z_][\w.:\-()\[\]]*|\d{0,2})(?:[!:][^{}\s]{0,20})?[ ]?\}
    |%\([A-Za-z_]\w*\)[a-z]|%[A-Za-z_]\w*%|@[A-Za-z_]+@
    |(?:<|&lt;|&\#x3[Cc];)/?[A-Za-z][\w .\-:/="']*(?:>|&gt;|&\#x3[Ee];)
    |^\[[A-Za-z_][\w .\-]*\]$
    |(?:^|(?<=[:/@ ,]))\$(?:[A-Za-z_]\w*(?:(?:->|::|\.|:)\w+|\[\w*\]|\(\))*|\d)(?=[:/@ ,]|$))
    |%[\-+\#0]?\d{0,3}(?:\.\d+)?[lhz]{0,2}[diouxXeEfgGcsrqv]""",
    re.VERBOSE,
)
"""A field that a program fills: `${X}`, `{{ x }}`, `$(x)`, `{x}`, `%(x)s`, `%X%`, `<x>`, `$X`, `%s`."""
_STRUCTURE = re.compile(r"[\[{]\s*[\"'{\[]")
_PATTERN = re.compile(r"\(\?[:=!<P]|\[\^?(?:a-z|A-Z|0-9|\\)|\\[dwsDWSb](?!\w)|\]\{\d")
"""Found in regular expressions and hardly ever in a password."""
_CODE = re.compile(r"[()\[\]{}<>,;&|\"'`]|=>|::")
"""Ends a value in code, or is an expression there."""

WORDS = re.compile(r"_{0,2}[A-Za-z]+(?:[_\-./: ][A-Za-z]*)*[.,;:!?]?")
HUMPS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
CODE_WORDS = frozenset(
    (
        "account any auth bool buffer bytes change client code config confirm credential credentials current dict "
        "encrypted env error field form from get hash hashed input int invalid key label list login manager map "
        "missing name new none null object old option optional page param pass password plain provider ref reference "
        "request required reset response secret server service set store str string text token type user value vault "
        "with "
    ).split()
)
"""Words in code names that may be in a password's place: `SecretStr`, `currentPassword`."""
STOCK_VALUES = re.compile(
    "(?:pass(?:word|phrase)?s?|pwd|secret|token|postgres|test|my)+[0-9]{0,3}|undefined|required|optional|disabled|enabled"
    "|unauthorized|authorization|credentials?",
    re.IGNORECASE,
)


CLASS_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[a-z0-9])|(?<=[0-9])(?=[A-Za-z])")
RANDOM_CHANGES = 5
"""Changes between small letters, capitals and digits in a short value; names such as `base64Encode` have fewer."""


_DIGIT = re.compile(r"\d")
_DIGITS = re.compile(r"\d+")
_TWO_DIGITS = re.compile(r"(?s)\d.*?\d")
_TWO_LETTERS = re.compile(r"(?s)[^\W\d_].*?[^\W\d_]")


def looks_random(value: str) -> bool:
    """Return whether letters and digits are mixed without word shapes, as in generated credentials."""
    if _TWO_DIGITS.search(value) and _TWO_LETTERS.search(value):
        return not re.fullmatch(r"[A-Za-z_.\-/]*\d{1,4}", value)
    return bool(_DIGIT.search(value)) and len(value) >= 10 and len(CLASS_CHANGE.findall(value)) >= RANDOM_CHANGES


def is_mixed_throughout(value: str) -> bool:
    """Return whether letters of both cases and digits alternate as in no name, even one of many words."""
    if not has_odd_word(value) or len(CLASS_CHANGE.findall(value)) < len(value) // 4:
        return False
    return len(_DIGITS.findall(value)) > 1 or is_jumbled(value)


_MARK = re.compile(r"[!$%^*+=?@~#&]")


def is_generated(value: str) -> bool:
    """Return whether a word of a sentence or call is a password: random, or a mix of letters, a digit and a mark."""
    if looks_random(value):
        return True
    has_both = re.search(r"[A-Za-z].*\d|\d.*[A-Za-z]", value)
    return bool(has_both and _MARK.search(value)) and len(CLASS_CHANGE.findall(value)) + len(_MARK.findall(value)) >= 4


KEY_FILE = re.compile(r"id_(?:rsa|dsa|ecdsa|ed25519)(?:[_.\-][\w.\-]*)?|[\w.\-]+\.(?:pem|key|pub|crt|p12|pfx|ppk)")
"""The name of a key file: the value of `private key: …` in prose and settings."""


_PATH = re.compile(
    r"[\w\-]+(?:/[\w.\-]+)+\.[a-z]{2,5}$|[./~@][\w./~@\-+:%]*(?:\?[\w=&.\-%]*)?$|[a-z][a-z0-9+]*://|[A-Za-z]:\\|v?\d+(?:\.\d+)+$"
)


def is_path_or_address(value: str) -> bool:
    """Return whether it is a file, a URL or a version: values of keys such as `token_url`."""
    return bool(_PATH.match(value) or KEY_FILE.fullmatch(value))


_TECHNICAL = re.compile(
    r"(?i)0x[0-9a-f]+|(?:base|utf_?|sha_?|aes|rsa|u?int|float|ascii|latin|windows|rfc|pkcs)[_\-]?\d{1,5}"
    r"|md[45]|x509|ed25519|ed448|curve\d+|x25519|mlkem\d+p?\d*|secp\d+[a-z]1|pbkdf2|argon2(?:id|[id])?|oauth[12]?|https?[23]"
    r"|neo4j|log4j|(?<![a-z\d])(?:b64|x86|i18n|l10n|a11y|k[38]s|e2e|s3|ec2|ipv?[46]|v\d+|win(?:32|64)|mp[34]|[23][fd]a?"
    r"|web[23]|p12|p\d{3}|py[23]\d*|lib2|[iuf](?:8|16|32|64)|hs\d+|[re]s\d+)(?![a-z\d])|(?<![a-z\d])b64(?=[ed])"
)
_PAIRS = {")": "(", "]": "[", "}": "{"}
_ODD = re.compile(r"[A-Za-z]\d+[A-Za-z]|\d[A-Z]|\d[a-z]\d|\d[a-z]{5}")


def without_technical_words(text: str) -> str:
    """Return `text` without words such as `sha256`, `base64`, `utf_8`, which mix letters and digits."""
    return _TECHNICAL.sub(" ", text)


def has_odd_word(text: str) -> bool:
    """Return whether a word mixes letters and digits as no name or number does, except for `sha256Hash`."""
    return bool(_ODD.search(without_technical_words(text)))


_UPPER_AND_LOWER = re.compile(r"[A-Z].*[a-z]|[a-z].*[A-Z]")
_MARKS = frozenset("#%^~!?*+|&@$")
FEWEST_HUMPS = 5


def is_jumbled(value: str) -> bool:
    """Return whether letters of both cases form no words, or are among more marks than an expression has."""
    if len(value) < 10 or not _UPPER_AND_LOWER.search(value):
        return False
    humps = HUMPS.findall(value)
    if len(humps) >= FEWEST_HUMPS and 2 * sum(len(hump) <= 2 for hump in humps) >= len(humps):
        return True
    unopened = sum(value.count(closing) > value.count(opening) for closing, opening in _PAIRS.items())
    return len(_MARKS.intersection(value)) + unopened >= (2 if re.search(r"\d", value) else 3)


def is_stand_in(value: str, shortest: int = 3) -> bool:
    """Return whether a value is a placeholder: it says so, or is too short for a secret without its fields."""
    literal = FIELD.sub(lambda field: field[0] if field["named"] and has_odd_word(field[0]) else "", value)
    if literal != value and len(literal.strip("-_.:/,;@=+ ")) < shortest and not has_odd_word(literal):
        return True
    return bool(PLACEHOLDER.search(literal))


_WRAPPED = re.compile(r"[A-Za-z0-9+/=_\-]{40,}(?:\\?[ \t]*\r?\n[ \t]*[A-Za-z0-9+/=_\-]{2,})+\s*")
_SALT_MARKS = 8
"""Minimum number of distinct marks in a WordPress salt, and in no text."""
_NAME_OF_SECRET = re.compile(
    r"(?:[A-Za-z][a-z]*|[a-z]+\d{1,3}|v?\d{1,4})(?:[\-_/.](?:[A-Za-z][a-z]*|[a-z]+\d{1,3}|v?\d{1,4}))+(?:-[A-Za-z0-9]{6,10})?"
)
_ID = re.compile(
    r"(?:toolu|srvtoolu|msg|req|call|chatcmpl|thread|asst|resp|file|sha(?:1|256|384|512))[_\-:]|(?:urn|arn|data):|SHA256:|ssh-"
)
"""Prefixes of service IDs and fingerprints."""


def is_long_token(value: str) -> bool:
    """Return whether a word after "token" is one: long, with letters of both cases and digits, and no path."""
    has_all = re.search(r"[a-z]", value) and re.search(r"[A-Z]", value) and re.search(r"\d", value)
    return len(value) >= 24 and bool(has_all) and not _ID.match(value) and bool(re.fullmatch(r"[\w\-+=]+", value))


def is_name_of_secret(value: str) -> bool:
    """Return whether a value names an entry in a secret store, such as `prod/shop-db`, with or without AWS's suffix."""
    return bool(_NAME_OF_SECRET.fullmatch(value))


_MEMBER_NAME = r"_*[A-Za-z]?[a-z]+(?:_[a-z]+|[A-Z][a-z]+)*(?:_?v?\d{1,2})?"
_DOTTED = re.compile(rf"{_MEMBER_NAME}(?:\.{_MEMBER_NAME})+|[A-Z]{{2,6}}\d{{1,3}}(?:[A-Z][a-z]{{2,}})+")
"""A member of an object, or a class named after a standard."""


def is_literal_secret(value: str, *, quoted: bool, strong: bool) -> bool:
    """Return whether the right side of an assignment is a secret rather than a placeholder, code, a type or prose.

    :param strong: the key says password or secret, so a plain word counts too if it is quoted or in a shell export.
    """
    is_member = not quoted and _DOTTED.fullmatch(value) and not has_odd_word(value)
    if len(value) < SHORTEST_VALUE or _ID.match(value) or is_member:
        return False
    if quoted and _WRAPPED.fullmatch(value):
        return True
    spaced = re.search(r"\s", value)
    value = value[:LONGEST_BARE_VALUE]
    if (not strong and not _DIGIT.search(value)) or _is_something_else(value):
        return False
    if spaced:
        return quoted and (_is_salt(value) or (strong and _is_generated_with_spaces(value)))
    if not quoted and _CODE.search(value):
        return _is_secret_among_code(value, strong=strong)
    is_plain = _is_name(value) if value.isalpha() else WORDS.fullmatch(value)
    return looks_random(value) or (strong and not is_plain)


_COLUMN_TYPE = re.compile(r"[A-Za-z]+\(\d+(?:(?:\.\.|,)\d+)?\)")
_DATA = re.compile(r"[A-Za-z0-9+/=_\-]{120,}")
"""Base64, which may begin with a slash as a path does."""


def _is_something_else(value: str) -> bool:
    """Return whether it is a placeholder, a path, a stock word, a ruler, JSON or a regular expression."""
    if _COLUMN_TYPE.fullmatch(value):
        return True
    is_data = _DATA.fullmatch(value) and len(CLASS_CHANGE.findall(value)) > len(value) // 8
    if (
        is_stand_in(value, SHORTEST_VALUE)
        or STOCK_VALUES.fullmatch(value)
        or (is_path_or_address(value) and not is_data)
    ):
        return True
    return bool(re.search(r"([^\\])\1{5}", value) or _STRUCTURE.match(value) or _PATTERN.search(value))


def _is_name(letters: str) -> bool:
    """Return whether letters are a name in code: in capitals, or of several words including a typical one of code."""
    words = [word.lower() for word in HUMPS.findall(letters)]
    return letters.isupper() or (len(words) > 1 and not CODE_WORDS.isdisjoint(words))


ENVIRONMENT = re.compile(r"(?:\A|[\s;|&({\"'`])[A-Z][A-Z0-9_]*=[\"'`]?\Z")
"""A name in capitals and its sign, before the value: `SMTP_PASS=`."""
_BRACKETED = re.compile(r"[\w!#^*+~@?\-]+(?:[()\[\]{}<>]+[\w!#^*+~@?\-]+)+")


def is_environment_password(value: str) -> bool:
    """Return whether the value of a variable in capitals is a password, though it has only capitals, or brackets
    inside. A call or an index ends with its bracket.
    """
    if len(value) < SHORTEST_VALUE or PLACEHOLDER.search(value) or STOCK_VALUES.fullmatch(value):
        return False
    if value.isalpha():
        return value.isupper() and len(set(value)) > len(value) // 2
    return bool(_BRACKETED.fullmatch(value) and re.search(r"\d", value) and re.search(r"[A-Za-z]", value))


def is_passing(key: str, value: str) -> bool:
    """Return whether a key is the word of `PASS: test_parser` or `second pass: rewriting` rather than a password's."""
    return key == "PASS" or (key.lower() == "pass" and not looks_random(value))


_PHRASE = re.compile(r"[^\s\"'`]{2,24}(?: [^\s\"'`]{2,24}){1,11}")
_WORD_OF_PHRASE = re.compile(r"[\W\d]{0,4}[A-Za-z]+(?:-[A-Za-z]+)*[\W\d]{0,4}|\w*\d\w*")
_MIXED_WORD = re.compile(r"(?i)[a-z]\d|\d[a-z]")
_WORDS_OF_TEXTS = frozenset(
    (
        "about an and are as ask at be been by can cannot characters chars code contact das der die did digit "
        "digits do does ein empty es est for forgotten from has have in incorrect is ist it kein la least le "
        "letter letters long login match mindestens minimum more must nicht no not of on one only or our please "
        "pas repeat same see short should sign than that the their this ticket to too use using votre was weak "
        "with wrong you your zeichen "
    ).split()
)


def is_passphrase(value: str, *, alone: bool) -> bool:
    """Return whether a quoted value is a passphrase of words rather than a text.

    :param alone: its place holds only secrets, so that words without digits count.
    """
    words = [word.strip("0123456789!?#$%&*+@^~-.,;:").lower() for word in value.split()]
    is_text = any(word in _WORDS_OF_TEXTS or word in CODE_WORDS or "passw" in word for word in words)
    if is_text or not _PHRASE.fullmatch(value) or PLACEHOLDER.search(value):
        return False
    if not all(_WORD_OF_PHRASE.fullmatch(word) for word in value.split()):
        return False
    return len(words) >= (2 if alone else 3) and (
        bool(_MIXED_WORD.search(without_technical_words(value))) or (alone and len(words) >= 3)
    )


def _is_generated_with_spaces(value: str) -> bool:
    is_short = len(value) <= LONGEST_SPACED_VALUE and value.isprintable()
    return is_short and value == value.strip() and value[0] not in ",;+)" and has_odd_word(value)


def _is_salt(value: str) -> bool:
    return len(value) >= 32 and len(set(re.findall(r"[^\w\s]", value))) >= _SALT_MARKS and has_odd_word(value)


def _is_secret_among_code(value: str, *, strong: bool) -> bool:
    """Return whether it is a secret though it has characters that end a value, or form an expression, in code."""
    if _ENTITY.search(value) or (_MEMBER.match(value) and not has_odd_word(value)):
        return False
    head = _PLAIN.match(value)
    before = head[0] if head else ""
    if not _BRACKET.search(before) and is_literal_secret(before, quoted=False, strong=strong):
        return True
    return strong and (has_odd_word(value) or is_jumbled(value))


# --- where a value without quotes ends ---------------------------------------------------------------------


_PLAIN = re.compile(r"[^\s\"'`,;<>|&)]+")
_ENTITY = re.compile(r"&(?:lt|gt|\#x3[ce]);", re.IGNORECASE)
_MEMBER = re.compile(r"\$[A-Za-z_]\w*(?:->|::|[\[{(])")
_BRACKET = re.compile(r"[()\[\]{}]|=>|::")
_RUN = re.compile(rf"(?:[^\s\"'`]|(?<=\w)[\"'`](?=\w)){{0,{LONGEST_BARE_VALUE}}}")
_NAME = r"(?:(?:[a-z][a-z\d]*|[A-Z][a-z\d]+)(?:[A-Z][a-z\d]+|[_.\-][A-Za-z\d]+)*|[A-Z][A-Z\d_]*)(?:\[\w*\])?"
_NEXT = re.compile(
    rf"(?:[&;,]|&amp;){_NAME}(?:=|:(?!//))|(?:&&|\|\|)(?:\s|$|[a-z_./$(!]{{2}})"
    r"|</?[a-z][a-z:\-]*[1-6]?(?:/?>| [a-z\-]+=)|</[A-Za-z]{{1,20}}>|\[REDACTED:"
)
"""Text behind a value: the next pair of a query or a list, another command, a tag, a mask."""
_CLOSING = re.compile(r"[)\]}>]")
_LOOKED_AHEAD = 20
_MORE_WORDS = re.compile(r"(?: [^\s\"'`#]{1,64}){1,3}(?=[ \t]*(?: #|\r?\n|\Z))")
_LINE_BEGINS = re.compile(r"(?:^|\n)[ \t\-]*[\w.\-]*[ \t]*\Z")


def bare_value(text: str, low: int, key: int) -> str:
    """Return the unquoted value that begins at `low` and belongs to the key that begins at `key`.

    A bracket that was opened before the key, and a comma behind it, do not belong to the value.
    """
    run = _RUN.match(text, low)
    value = run[0] if run else ""
    if following := _NEXT.search(text[low : low + len(value) + _LOOKED_AHEAD]):
        value = value[: following.start()]
    return _without_closing(value, text[max(0, key - LONGEST_BARE_VALUE) : key]).rstrip(",;")


def _without_closing(value: str, before: str) -> str:
    inside: list[str] = []
    if not _CLOSING.search(value):
        return value
    for at, character in enumerate(value):
        if character in "([{":
            inside.append(character)
        elif opening := _PAIRS.get(character):
            if inside and inside[-1] == opening:
                inside.pop()
            elif before.count(opening) > before.count(character) and not value[at + 1 : at + 2].isalnum():
                return value[:at]
    is_tag = value.endswith(">") and before.count("<") > before.count(">")
    return value[:-1] if is_tag else value


def more_words(text: str, key: int, end: int) -> int:
    """Return the end of a setting whose value continues behind a space; `end` unless the rest of the line fits."""
    more = _MORE_WORDS.match(text, end)
    if more is None or not _LINE_BEGINS.search(text[max(0, key - 80) : key]):
        return end
    return more.end() if all(has_odd_word(word) for word in more[0].split()) else end
