"""Places of secrets that neither their form nor a setting's name identifies: commands, headers, addresses, calls in
code, lines of configuration files. Pure.

Each place has a trigger, searched for in the raw bytes, and a pattern for text without escapes whose group 1 is the
secret. A trigger holds no quotes, because JSON escapes them: `Q` matches a few, with or without backslashes.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anamnesis_pipeline.parsing.redaction.values import (
    CLASS_CHANGE,
    STOCK_VALUES,
    is_generated,
    is_mixed_throughout,
    is_passphrase,
    is_path_or_address,
    is_stand_in,
    looks_random,
)

Q = r"[\"'\\`]{0,8}"
_V = r"[\"']?([^\s\"'\\|;&<>]{6,200})"
"""A value of a command line."""
_REST = r"[ \t](?:[^\n|;&]{0,200}[ \t])?"
"""The other words of a command."""


def is_password(value: str) -> bool:
    """Return whether a word in the place of a password is one, and no template, path, number or name."""
    if len(value) < 4 or is_stand_in(value) or STOCK_VALUES.fullmatch(value) or is_path_or_address(value):
        return False
    return not value.isdigit() and not re.fullmatch(r"\W*[A-Za-z_][A-Za-z_\-.]*\W*|-{1,2}[\w\-]+", value)


def is_random_password(value: str) -> bool:
    """Return whether a string among others is generated: letters with digits, no name of a host, file or version."""
    if len(value) < 6 or not is_password(value):
        return False
    if re.search(r"\s|^[\w.\-]+\.[a-z]{2,6}(?::\d+)?$|^[\w.+\-]+@[\w.\-]+\.[a-z]{2,6}$|^\d[\d.:\-]*$", value):
        return False
    changes = len(CLASS_CHANGE.findall(value)) + len(re.findall(r"[^\w.\-/:]", value))
    return is_generated(value) and changes >= 3


def is_long_random(value: str) -> bool:
    """Return whether a value of an address is a key rather than a name or a number."""
    return len(value) >= 16 and looks_random(value) and not is_stand_in(value)


def is_link_token(value: str) -> bool:
    """Return whether a segment of a path is the token of a link, and no name of a page or file."""
    is_random = is_mixed_throughout(value) or bool(_UUID.fullmatch(value))
    return is_random and not is_stand_in(value) and not re.search(r"\.[a-z]\w{1,4}\Z", value)


def is_link_token_of_no_thing(value: str) -> bool:
    """Return the same where a path may name the object to confirm."""
    return is_link_token(value) and not _UUID.fullmatch(value)


def is_phrase_alone(value: str) -> bool:
    """Return whether a quoted value, in a place for secrets only, is a passphrase of words."""
    return is_passphrase(value, alone=True)


def is_any(value: str) -> bool:
    """Return whether a value is no placeholder."""
    return not is_stand_in(value)


def is_key_of_both_cases(value: str) -> bool:
    """Return whether a value has letters of both cases and digits."""
    return bool(re.search("[a-z]", value) and re.search("[A-Z]", value) and re.search(r"\d", value))


def is_codes(value: str) -> bool:
    """Return whether most words of a list are codes with digits."""
    codes = re.findall(r"[A-Za-z0-9]{4,}", value)
    return 2 * sum(any(c.isdigit() for c in code) for code in codes) > len(codes) >= 2


_PROSE = frozenset("and are for from has have her his its not our the they was were with you your".split())


def is_mnemonic(value: str) -> bool:
    """Return whether words are a wallet's mnemonic rather than a sentence."""
    words = re.findall("[a-z]+", value)
    return _PROSE.isdisjoint(words[:12]) and len(set(words)) > len(words) // 2


def is_byte_list(value: str) -> bool:
    """Return whether numbers are the bytes of a key rather than a picture or a table."""
    numbers = [int(number) for number in re.findall(r"\d+", value)]
    return len(numbers) == 64 and max(numbers) < 256 and len(set(numbers)) > 30


@dataclass(frozen=True, slots=True)
class Place:
    """A place where secrets are. `trigger` is looked for in raw bytes, `pattern` in plain text."""

    kind: str
    trigger: str
    pattern: str
    accept: Callable[[str], bool] = is_password


_UUID = re.compile(r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_RESET = r"(?:reset|passwords?|passwordless|forgot|recover|recovery|magic|one-?time)"
_CONFIRM = (
    r"(?:verify|verification|confirm|confirmation|activate|activation|invite|invitation|unlock|log-?in"
    r"|sign-?(?:in|up))"
)
_LINK = r"(?:https?://[^\s\"'<>]{1,150}|\b(?:GET|POST|PUT|PATCH)[ \t]+[\"']?[\w/\-]{0,80}|\bhref=[\"']?[\w/\-]{0,80})/"
_PART_OF_LINK = r"[A-Za-z_\-]{0,20}(?:/[\w=%@.+\-]{1,40}){0,2}?/([A-Za-z0-9_\-.~=%:]{15,}[A-Za-z0-9_\-=])"
_URL_CODES = (
    r"(?i:[?&;](?:amp;)?(?:code|key|sig|signature|ticket|otp|jwt|sas|hmac|sid|session|auth|invite|oob_?code"
    r"|magic(?:_?(?:link|code|key))?|x-amz-(?:signature|security-token)|x-goog-signature)=)"
)
_NET = r"(?i:net(?:\.exe)?)"
_UNC = r"[\n\r\t]?\S+(?:[\n\r\t]\S+){0,4}"
"""The name of a share; text after a backslash may look like an escape."""
_CODE = r"[A-Za-z0-9\-]*[0-9][A-Za-z0-9\-]*"
_CODES = rf"({_CODE}(?:(?:[\s\"',;*•·]|[0-9]{{1,2}}[.)])+{_CODE})+)"
_LABEL_OF_CODES = (
    r"(?i:recovery|backup|rescue|emergency|scratch|wiederherstellungs|notfall|backup-|secours|r[ée]cup[ée]ration"
    r"|recuperaci[óo]n|respaldo)"
)
_WORDS = r"(?:(?:\d{1,2}[.):]?[ \t]*)?[a-z]{3,8}[ ,\t\r\n]{1,4}){11,23}(?:\d{1,2}[.):]?[ \t]*)?[a-z]{3,8}"
_STRING = r"(?:[A-Za-z]{0,2}\"[^\"\n]{0,120}\"|'[^'\n]{0,120}')"
_ARGUMENT = rf"(?:{_STRING}|[\w.\[\]]{{1,60}}(?:\([^()\n]{{0,40}}\))?)"
_LOGIN_TOOLS = "docker|podman|nerdctl|helm|oras|skopeo|buildah|crane|az|oc|cf|ibmcloud|argocd|heroku|vault|npm"
_SQL_TOOLS = (
    "sqlcmd|bcp|osql|tsql|cqlsh|mosquitto_pub|mosquitto_sub|ipmitool|snowsql|influx|beeline|clickhouse-client|xfreerdp"
    "|nxc|netexec|crackmapexec|evil-winrm|plink|pscp|psftp|mssql-cli|arangosh|couchbase-cli|cbq"
    "|neo4j-admin|cypher-shell"
    "|rabbitmqadmin|ncftp|smbmap|vncviewer|kadmin|impala-shell|vsql|nzsql|hdbsql|db2|trino|dsmc"
)

PLACES = (
    # addresses
    Place("webhook", r"webhook\.office\.com/webhook", r"webhook\.office\.com/webhookb?2?/([^\s\"'<>]{30,})", is_any),
    Place("webhook", r"hooks\.zapier\.com", r"hooks\.zapier\.com/hooks/catch/([0-9]{4,}/[a-z0-9]{5,})", is_any),
    Place("webhook", r"maker\.ifttt\.com", r"maker\.ifttt\.com/\S{1,100}/key/([A-Za-z0-9_\-]{15,})", is_any),
    Place(
        "webhook",
        r"hooks\.slack\.com",
        r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_]{20,})",
    ),
    Place(
        "webhook",
        r"/hooks/[A-Za-z0-9]{17}",
        r"/hooks/([a-z0-9]{26}|[A-Za-z0-9]{17}/[A-Za-z0-9]{30,})\b",
        is_long_random,
    ),
    Place(
        "webhook",
        r"hook\.[a-z0-9.]*(?:make|integromat)\.com",
        r"hook\.[a-z0-9.]*(?:make|integromat)\.com/([a-z0-9]{20,})",
        is_any,
    ),
    Place("webhook", r"hc-ping\.com/", r"hc-ping\.com/([0-9a-f\-]{36})", is_any),
    Place(
        "sentry",
        r"//[0-9a-f]{32}",
        r"https?://([0-9a-f]{32}(?::[0-9a-f]{32})?)@[\w.\-]+/[0-9]+",
        is_any,
    ),
    Place(
        "url-token",
        _URL_CODES,
        rf"{_URL_CODES}([^\s&\"'<>#\\]{{16,}})",
        is_long_random,
    ),
    Place(
        "url-token",
        rf"(?i:{_RESET}[a-z_\-]{{0,20}}/)[A-Za-z0-9_\-.~=%:/]{{16}}",
        rf"(?i:{_LINK}[a-z_\-]{{0,20}}{_RESET}){_PART_OF_LINK}",
        is_link_token,
    ),
    Place(
        "url-token",
        rf"(?i:{_CONFIRM}[a-z_\-]{{0,20}}/)[A-Za-z0-9_\-.~=%:/]{{16}}",
        rf"(?i:{_LINK}[a-z_\-]{{0,20}}{_CONFIRM}){_PART_OF_LINK}",
        is_link_token_of_no_thing,
    ),
    Place(
        "hue",
        r"/api/[A-Za-z0-9_\-]{32}",
        r"/api/([A-Za-z0-9_\-]{32,40})/(?:lights|groups|config|sensors|scenes|schedules|rules|resourcelinks)\b",
        is_mixed_throughout,
    ),
    Place(
        "hue",
        r"/api/[A-Za-z0-9_\-]{32}",
        r"//(?:[0-9.]{7,15}|[\w.\-]{0,40}hue[\w.\-]{0,40})(?::[0-9]{1,5})?/api/([A-Za-z0-9_\-]{40})(?:[^\w\-]|$)",
        is_mixed_throughout,
    ),
    Place("hue", r"/config/whitelist/", r"/whitelist/([A-Za-z0-9_\-]{32,40})(?:[^\w\-]|$)", is_mixed_throughout),
    Place(
        "hue",
        rf"username{Q}[ \t]?[:=][ \t]?{Q}[A-Za-z0-9_\-]{{40}}",
        r"username[\"']?[ \t]*[:=][ \t]*[\"']?([A-Za-z0-9_\-]{40})(?:[\"'\s,;)}]|$)",
        is_mixed_throughout,
    ),
    Place(
        "password",
        r"jdbc:oracle:|sqlplus |\b(?:exp|imp|expdp|impdp|sqlldr|rman) ",
        r"(?:jdbc:oracle:[a-z0-9]+:|\b(?:sqlplus|exp|imp|expdp|impdp|sqlldr|rman)(?: -\w+"
        r"| target)* )[\"']?[\w$#]+/\"?([^\s\"'@/]{4,})\"?@",
    ),
    # command lines
    Place(
        "password",
        r"login[ \t]+(?:-|[a-z0-9\-]{1,20}[.:/])",
        rf"\b(?:{_LOGIN_TOOLS})[ \t](?:[^\n|;&]{{0,100}}[ \t])?login{_REST}-p[ =]?{_V}",
    ),
    Place(
        "password",
        r"\|[ \t]?(?:sudo|docker|podman|helm|gh|passwd|kinit|cryptsetup|gpg|nerdctl) ",
        r"(?:echo|printf)[ \t]+(?:-[a-z]+[ \t]+|[\"']?%s(?:\\+n)?[\"']?[ \t]+)?[\"']?([^\s\"'"
        r"|]{6,200})[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+(?:-[A-Za-z]+[ \t]+)*-[A-Za-z]*S|(?:sudo[ \t]+)?(?:"
        r"(?:docker|podman|helm|nerdctl|gh)[ \t][^\n|;&]{0,200}(?:-stdin|--with-token)|passwd|kinit"
        r"|cryptsetup|gpg))",
        is_random_password,
    ),
    Place(
        "password",
        r"\|[ \t]?(?:sudo )?chpasswd",
        r"[\"' ][\w.\-]+:([^\s\"'|]{4,200})[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?chpasswd",
    ),
    Place(
        "password",
        r"htpasswd[ \t]+-",
        rf"htpasswd[ \t]+-[A-Za-z]*b[A-Za-z]*[ \t]+(?:-[A-Za-z]+[ \t]+)*\S+[ \t]+\S+[ \t]+{_V}",
    ),
    Place(
        "password",
        r"(?:smbclient|rpcclient|smbget|smbcacls|winexe|wmic|net)[ \t][^\s]{1,30}[ \t]-",
        r"(?:-U|--user)[ =]?[\"']?[\w.\\/]{1,60}%([^\s\"']{4,100})",
        is_random_password,
    ),
    Place(
        "password",
        rf"{_NET}(?i: use )",
        rf"{_NET}(?i: use)[ \t]+(?:\S+[ \t]+)?{_UNC}[ \t]+{_V}[\"']?[ \t]+/(?i:u|user):",
    ),
    Place(
        "password",
        r"ldap[a-z]{3,8}[ \t]",
        rf"ldap(?:search|modify|add|delete|passwd|whoami|modrdn|compare){_REST}-w[ \t]?{_V}",
    ),
    Place(
        "password",
        rf"\b(?:{_SQL_TOOLS})[ \t]",
        rf"\b(?:{_SQL_TOOLS}){_REST}(?:-P|-p|-pw|-w|/p:|-password)[ =]?{_V}",
        is_random_password,
    ),
    Place(
        "password",
        r"\b(?:7z[ar]?|rar|unrar|unzip|zip)[ \t]",
        rf"\b(?:7z[ar]?|rar|unrar|unzip|zip){_REST}-(?:hp|p|P)[ ]?{_V}",
        is_random_password,
    ),
    Place("password", r"-pass[a-z]{0,3}[ =]", r"-pass(?:in|out)?[ =][\"']?pass:([^\s\"']{4,200})"),
    Place("password", r"nmcli[ \t]", rf"nmcli{_REST}(?:password|psk)[ \t]+{_V}"),
    Place(
        "token", r"authtoken[ \t]", r"ngrok[ \t](?:config[ \t]+add-)?authtoken[ \t]+[\"']?([A-Za-z0-9_]{20,})", is_any
    ),
    Place("password", r"--proxy-user|[ \t]-U ", r"--proxy-user[ =][\"']?[\w.@+\-]+:([^\s\"']{4,200})"),
    Place(
        "token",
        r"(?:setx|setenv|set -\w+|ENV|ARG)[ \t]+[A-Z]",
        r"(?:setx|setenv|set -\w+|ENV|ARG)[ \t]+[A-Z][A-Z0-9_]{0,60}(?:KEY|TOKEN|SECRET|PASS|PASSWORD|PWD"
        r"|AUTH)[ \t]+[\"']?([^\s\"']{8,})",
        is_random_password,
    ),
    Place(
        "password",
        r"(?:setx|setenv|set -\w+|ENV|ARG)[ \t]+[A-Z][A-Z0-9_]{0,40}PASS",
        r"(?:setx|setenv|set -\w+|ENV|ARG)[ \t]+[A-Z][A-Z0-9_]{0,40}PASS[A-Z_]{0,16}[ \t]+[\"']([^\"'\n]{8,100})[\"']",
        is_phrase_alone,
    ),
    Place(
        "password",
        r"#define[ \t]",
        r"#define[ \t]+\w{0,60}(?i:password|passphrase|secret|token|key|pass|psk)[ \t]+\"([^\"\n]{8,200})\"",
        is_random_password,
    ),
    Place(
        "token",
        r"define\([ \t]?\\*[\"'][A-Z_]{3,30}",
        r"define\([ \t]*[\"'][A-Z_]{0,40}(?:KEY|SALT|PASSWORD|SECRET"
        r"|TOKEN)[\"'][ \t]*,[ \t]*'([^'\n]{8,200})'",
        is_generated,
    ),
    Place(
        "password",
        r"\bmc ",
        rf"\bmc[ \t]+(?:alias[ \t]+set|config[ \t]+host[ \t]+add)[ \t]+\S+[ \t]+\S+[ \t]+\S+[ \t]+{_V}",
    ),
    Place(
        "password",
        r"rabbitmqctl ",
        rf"rabbitmqctl[ \t](?:[^\n|;&]{{0,80}}[ \t])?(?:add_user|change_password|authenticate_user)[ \t]+\S+[ \t]+{_V}",
    ),
    Place("password", r"lftp ", r"lftp[ \t](?:[^\n|;&]{0,120}[ \t])?-u[ \t]+[\"']?[\w.@+\-]+,([^\s\"']{4,200})"),
    Place("password", rf"{_NET}(?i: use )", rf"{_NET}(?i: use)[ \t][^|;&]{{0,200}}[ \t]/(?i:u|user):{_UNC}[ \t]+{_V}"),
    Place(
        "password",
        rf"{_NET}(?i: user )",
        rf"\b{_NET}(?i: user)[ \t]+(?:\"[^\"\n]{{1,60}}\"|[^\s\"/]{{1,60}})[ \t]+{_V}",
        is_random_password,
    ),
    Place("password", r"(?i:psexec)", rf"(?i:psexec)(?:64)?(?:\.exe)?{_REST}-p[ \t]+{_V}"),
    Place(
        "password",
        r"openssl (?:enc|aes|des)",
        rf"openssl[ \t]+(?:enc|aes[\w\-]*|des[\w\-]*){_REST}-k[ \t]+{_V}",
        is_random_password,
    ),
    Place(
        "private-key",
        r"openssl (?:enc|aes|des)",
        rf"openssl[ \t]+(?:enc|aes[\w\-]*|des[\w\-]*){_REST}-K[ \t]+[\"']?([0-9A-Fa-f]{{16,64}})\b",
        is_any,
    ),
    Place(
        "password",
        r"openssl passwd ",
        rf"openssl[ \t]+passwd(?:[ \t]+-(?:salt[ \t]+\S+|[156]|apr1|aixmd5|crypt|noverify|quiet|table))*[ \t]+{_V}",
    ),
    Place("password", r"[ \t]-hmac[ \t]", rf"openssl{_REST}-hmac[ \t]+{_V}"),
    Place(
        "password",
        r"[ \t]-(?:mac|kdf)opt[ \t]",
        rf"openssl{_REST}-(?:mac|kdf)opt[ \t]+[\"']?(?:hex)?(?:key|pass):([^\s\"'\\|;&<>]{{6,200}})",
    ),
    Place("password", r"snmp[a-z]{3,8} ", rf"snmp[a-z]{{3,8}}{_REST}-c[ \t]+{_V}", is_random_password),
    *(
        Place("password", r"snmp[a-z0-9\-]{3,16} ", rf"snmp[a-z0-9\-]{{3,16}}{_REST}-{option}[ \t]+{_V}")
        for option in ("A", "X")  # a command has both
    ),
    Place("password", r"createUser ", rf"createUser[ \t]+\S+[ \t]+(?:MD5|SHA[\w\-]*)[ \t]+{_V}"),
    Place(
        "password",
        r"createUser ",
        rf"createUser[ \t]+\S+[ \t]+(?:MD5|SHA[\w\-]*)[ \t]+\S+[ \t]+(?:DES|AES[\w\-]*)[ \t]+{_V}",
    ),
    Place("private-key", r"\| ?wg pubkey", r"([A-Za-z0-9+/]{42,43}=)[\"']?[ \t]*\|[ \t]*wg pubkey", is_any),
    Place(
        "private-key",
        r"-key <\((?:echo|printf) ",
        r"(?:private|preshared)-key[ \t]+<\((?:echo|printf)[ \t]+[\"']?([A-Za-z0-9+/]{42,43}=)",
        is_any,
    ),
    Place("private-key", r"wg pubkey ?<<<", r"wg pubkey[ \t]*<<<[ \t]*[\"']?([A-Za-z0-9+/]{42,43}=)", is_any),
    # SQL
    Place(
        "password",
        r"(?i:identified[ \t])",
        r"(?i:identified[ \t]+(?:with[ \t]+\w+[ \t]+)?(?:by|as)[ \t]+(?:password[ \t]+)?)N?[\"']([^\"'\n]{4,200})[\"']",
    ),
    Place(
        "password",
        r"(?i:password)[ \t=(]{1,6}N?\\*'",
        r"(?i:password[ \t]*(?:=|\(|[ \t])[ \t]*)N?'([^'\n]{6,200})'",
    ),
    # calls in code
    Place(
        "password",
        r"(?i:password|passwd|pwd|secret|token|apikey|api_key|credential)s?[ \t]?\([ \t]?\\*\"|(?i:securestring)",
        r"(?i:(?:set|with|\.)_?(?:password|passwd|pwd|secret|token|apikey|api_key|credential)s?"
        r"|securestring)[ \t]?\(?[ \t]*\"([^\"\n]{6,200})\"[ \t]*(?:\)|,|-)",
        is_random_password,
    ),
    Place(
        "password",
        r"(?i:connect|login|sign_?in|auth|credentials?|connection|connector|authenticate|basic_?auth"
        r"|mysqli|pdo)[ \t]?=?[ \t]?\([ \t]?(?:[\w.]{1,12},[ \t]?)?\\*[\"']",
        rf"(?i:connect|connection|connector|login|sign_?in|auth|authenticate|basic_?auth|credentials?"
        rf"|mysqli|pdo)(?:\(|[ \t]?=[ \t]?\()[ \t]*"
        rf"(?:{_ARGUMENT}[ \t]*,[ \t]*){{1,3}}[\"']([^\"'\n]{{6,120}})[\"'][ \t]*[,)]",
        is_random_password,
    ),
    # headers
    Place(
        "authorization",
        rf"(?i:authorization){Q}[ \t]{{0,3}}[:=,][ \t]{{0,3}}{Q}[A-Za-z]",
        r"(?i:authorization)[\"']?[ \t]{0,3}[:=,][ \t]{0,3}[\"'`]?(?:[A-Za-z][A-Za-z\-]{1,24}[ \t]+)(?:"
        r"(?i:token|key|apikey|username)=)?\"?([^\s\"'`,;<>(){}$]{16,})",
        is_long_random,
    ),
    Place(
        "token",
        rf"(?i:-(?:team|auth|session|csrf)){Q}[:=]",
        r"(?i:x-[a-z\-]{2,40}(?:team|auth|session|csrf))[\"']?[ \t]*[:=][ \t]*[\"']?([^\s\"'\\,;]{16,})",
        is_long_random,
    ),
    # configuration files
    Place("password", r"(?:requirepass|masterauth)[ \t]", rf"(?:requirepass|masterauth)[ \t]+{_V}"),
    Place("password", rf"\bPSK[ \t]*{Q}", r"\bPSK[ \t]+\"([^\"\n]{6,200})\""),
    Place("password", r"WIFI:", r"WIFI:(?:[A-OQ-Z]:[^;\n]{0,64};)*P:((?:\\.|[^;\\\n]){4,100});", is_any),
    Place(
        "password",
        r":(?:[0-9]{4,5}|\*):[A-Za-z_*][\w*\-]{0,20}:[A-Za-z_*]",
        r"(?:^|[\s\"'])[A-Za-z0-9.*\-]{1,80}:(?:[0-9]{4,5}"
        r"|\*):[A-Za-z_*][\w*\-]{0,60}:[A-Za-z_*][\w*\-]{0,60}:([^\s:\"']{6,100})(?:\s|$|[\"'])",
        is_random_password,
    ),
    Place(
        "password-hash",
        r"\$(?:1|2[abxy]?|5|6|7|y|apr1|argon2(?:id|[id])|scrypt|pbkdf2[\w\-]*)\$[./A-Za-z0-9$=,+\-]{20}",
        r"(\$(?:1|2[abxy]?|5|6|7|y|apr1|argon2(?:id|[id])|scrypt|pbkdf2[\w\-]*)\$[./A-Za-z0-9$=,+\-]{20,})",
        is_any,
    ),
    Place(
        "password-hash",
        r"pbkdf2_sha[0-9]+\$|\{S?SHA(?:256|512)?\}",
        r"(pbkdf2_sha[0-9]+\$[0-9]+\$[A-Za-z0-9]+\$[A-Za-z0-9+/=]{20,}|\{S?SHA(?:256|512)?\}[A-Za-z0-9+/=]{20,})",
        is_any,
    ),
    Place("password-hash", r"[0-9a-f]{8}:::", r":([0-9a-f]{32}:[0-9a-f]{32}):::", is_any),
    Place(
        "password",
        r"(?:password|secret|key)[ \t]+[0579][ \t]|snmp-server|radius-server|tacacs-server|pre-shared-key"
        r"|enable[ \t]+(?:secret|password)",
        r"(?:\b(?:username[ \t]+\S+[ \t]+(?:privilege[ \t]+[0-9]+[ \t]+)?|enable[ \t]+)(?:password"
        r"|secret)(?:[ \t]+[0-9])?|\bpassword[ \t]+[57]|\bsnmp-server[ \t]+community|\b(?:radius"
        r"|tacacs)-server[ \t]+(?:host[ \t]+\S+[ \t]+)?key(?:[ \t]+[07])?|\bpre-shared-key(?:[ \t]+"
        r"(?:local|remote|ascii-text|[06]))?)[ \t]+\"?([^\s\"]{6,200})",
        is_random_password,
    ),
    Place(
        "password",
        r"random_password|random_string",
        r"random_(?:password|string)[\"'][^\n]{0,40}(?s:.{0,400}?)[\"']result[\"']:[ \t]*\"([^\"\n]{6,200})\"",
        is_any,
    ),
    Place(
        "private-key",
        rf"\b(?:d|p|q|dp|dq|qi|k){Q}[ \t]?:[ \t]?{Q}[A-Za-z0-9_\-]{{20}}",
        r"\"(?:d|p|q|dp|dq|qi|k)\"[ \t]*:[ \t]*\"([A-Za-z0-9_\-]{40,})",
        is_key_of_both_cases,
    ),
    Place(
        "api-key",
        rf"key{Q}[ \t]?:[ \t]?{Q}[0-9a-f]{{20}}",
        r"\"username\"[ \t]*:[ \t]*\"[^\"\n]{1,60}\"[ \t]*,[ \t]*\"key\"[ \t]*:[ \t]*\"([0-9a-f]{32})\"",
        is_any,
    ),
    Place(
        "cookie",
        r"(?:TRUE|FALSE)(?:\t|\\+t| )[0-9]{1,10}(?:\t|\\+t| )",
        r"(?:TRUE|FALSE)\t/\S*\t(?:TRUE|FALSE)\t[0-9]{1,12}\t[^\t\n]{1,80}\t([^\s]{12,})",
        looks_random,
    ),
    Place(
        "password",
        r"(?i:password)>\s{0,8}(?:\\+[nrt]\s*){0,4}<(?i:value)>",
        r"<\w*(?i:password)>\s*<(?i:value)>\s*([^<\n]{4,200}?)\s*</",
        is_any,
    ),
    Place(
        "password",
        r"(?i:password|passwd|passphrase|secret|token|api_?key)[ \t][A-Za-z:]{1,20}=\\*[\"']",
        r"<(?i:[a-z:_.\-]{0,40}(?:password|passwd|passphrase|secret|token"
        r"|api_?key))[ \t][^<>]{1,200}>[ \t]*([^<\s]{6,512})[ \t]*</",
    ),
    Place(
        "token",
        rf"(?i:secret[_\-]?id){Q}[ \t]?[:=]",
        r"(?i:secret[_\-]?id)[\"']?[ \t]*[:=][ \t]*[\"']?([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})",
        is_any,
    ),
    Place(
        "password",
        rf"(?i:storepass|storepassword|keypass|keypassword|signing){Q}[ \t]+{Q}[^\s]{{6}}",
        r"(?i:storepass(?:word)?|keypass(?:word)?)[ \t]+[\"']?([^\s\"']{6,200})",
    ),
    # second factors, licences, wallets
    Place(
        "totp",
        r"(?i:totp|2fa|otp|mfa|authenticator|zwei-?faktor)",
        r"(?i:totp|2fa|otp|mfa|authenticator|zwei-?faktor)[^\n:=]{0,30}[:=][ \t]*[\"'`]?("
        r"(?:[A-Z2-7]{4}[ \-]){3,15}[A-Z2-7]{2,4}|(?:[a-z2-7]{4}[ \-]){3,15}[a-z2-7]{2,4})\b",
        looks_random,
    ),
    Place(
        "recovery-code",
        rf"{_LABEL_OF_CODES}[ \-_]?(?i:codes?)",
        rf"{_LABEL_OF_CODES}[ \-_]?(?i:codes?)[^\n:=]{{0,40}}[:=]?[\"'*]{{0,3}}[\s\[\"',;*\-•·]*{_CODES}",
        is_codes,
    ),
    Place(
        "recovery-code",
        r"(?i:codes? de (?:secours|r)|c[óo]digos? de (?:recup|resp))",
        rf"(?i:codes? de (?:secours|r\S{{1,3}}cup\S{{1,3}}ration)|c[óo]digos? de (?:recuperaci\S{{1,2}}n"
        rf"|respaldo))[^\n:=]{{0,40}}[:=][\s\[\"',;*\-•·]*{_CODES}",
        is_codes,
    ),
    Place(
        "license-key",
        r"[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}",
        r"(?:^|[^A-Z0-9\-])([A-Z0-9]{5}(?:-[A-Z0-9]{5}){3,5})(?:[^A-Z0-9\-]|$)",
        looks_random,
    ),
    Place(
        "mnemonic",
        r"(?i:mnemoni[ck]|(?:seed|recovery|wallet|backup|secret)[ _\-]?(?:phrase|words?|seed)"
        r"|wiederherstellungs(?:phrase|w)|frase (?:semilla|de recu)|phrase (?:de r|secr))",
        rf"(?i:mnemoni[ck]\w*(?: (?:phrase|words))?|(?:seed|recovery|wallet|backup|secret)[ _\-]?(?:phrase"
        rf"|words?|seed)|wiederherstellungs\w*|frase (?:semilla|de recuperaci\S{{1,2}}n)|phrase "
        rf"(?:de r\S{{1,3}}cup\S{{1,3}}ration|secr\S{{1,2}}te))[\"'`*]{{0,3}}[ \t]*(?:(?i:is|ist|est|es"
        rf"|lautet)\b)?[:= \t]{{0,3}}[\"'`*\s]{{0,6}}({_WORDS})",
        is_mnemonic,
    ),
    Place(
        "wallet-key",
        r"[^A-Za-z0-9+/=_\-][5KL][1-9A-HJ-NP-Za-km-z]{20}",
        r"(?:^|[^A-Za-z0-9+/=_\-])([5KL][1-9A-HJ-NP-Za-km-z]{50,51})(?:[^A-Za-z0-9+/=_\-]|$)",
        is_key_of_both_cases,
    ),
    Place(
        "wallet-key",
        r"\bS[A-Z2-7]{20}",
        r"(?:^|[^A-Za-z0-9+/=_\-])(S[A-Z2-7]{55})(?:[^A-Za-z0-9+/=_\-]|$)",
        looks_random,
    ),
    Place("wallet-key", r"\[\s?(?:[0-9]{1,3},\s?){9}", r"\[\s*((?:[0-9]{1,3},\s*){63}[0-9]{1,3})\s*\]", is_byte_list),
    Place(
        "password",
        r"(?i:passw|pass)[ \w]{0,12}[\"'\\*]{0,6}[:=]\s?[\"'\\*]{0,6}[A-Za-z]{4} [A-Za-z]{4} ",
        r"(?i:passw(?:or)?[dt]|pass)[\"'*]{0,3}[ \t]*[:=][ \t]*[\"'`*]{0,3}([A-Za-z]{4} [A-Za-z]{4} [A-Za-"
        r"z]{4} [A-Za-z]{4})(?:[\"'`\s]|$)",
        is_any,
    ),
    Place(
        "password",
        r"(?i:credentials?|creds|log-?in|zugang(?:sdaten)?|anmelde(?:daten|ung)|identifiants?"
        r"|credenciales|acceso|credenziali)[*\"'\\]{0,4}[ ]?[:=]",
        r"(?i:credentials?|creds|log-?in|zugang(?:sdaten)?|anmelde(?:daten|ung)|identifiants?"
        r"|credenciales|acceso|credenziali)[*\"']{0,3}[ ]?[:=][*\"'` \t]{0,4}[\w.@+\-]{1,60}[ \t]{0,2}"
        r"(?:/|:|\||,)[ \t]{0,2}[\"'`]?([^\s\"'`]{6,100})",
        is_random_password,
    ),
)


# --- cookies -----------------------------------------------------------------------------------------------

COOKIE_TRIGGER = r"(?i:cookie2?[\"'\\]{0,4}[ \t]{0,3}[:=]|--cookie[ =]|[ \t]-b[ \t])"
_COOKIES = re.compile(
    r"(?i:(?:set-)?cookie2?[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?|--cookie[ =][\"']?|"
    r"(?<=[ \t])-b[ \t]+[\"']?)(?=[^\s;=\"']{1,100}=)"
)
_PAIR = re.compile(r"[ \t]{0,3}([^\s;,=\"']{1,100})=(\"?[^\s;\"'\\]{0,8192})\"?(;?)")
_SESSION = re.compile(r"(?i)sess|sid|auth|token|jwt|csrf|xsrf|remember|login|secret|ticket|\bid$")
_TRACKER = re.compile(r"(?i)_ga|_gid|_gcl|_fbp|utm|consent|lang|theme|locale|path|domain|expires|max-age|samesite")


def cookies_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of cookie values in headers and commands: those of sessions, and random ones."""
    for header in _COOKIES.finditer(text):
        at = header.end()
        while pair := _PAIR.match(text, at):
            at = pair.end()
            name, value = pair[1], pair[2]
            is_session = _SESSION.search(name) and len(value) >= 12
            if (is_session or len(value) >= 20) and not _TRACKER.match(name) and looks_random(value):
                yield pair.span(2)
            if not pair[3]:
                break


# --- passwords in addresses --------------------------------------------------------------------------------

_ADDRESS = re.compile(r"://([^\s/:@\"'<>`?#]{0,100}):")
_PASSWORD_AND_HOST = re.compile(r"[^\s\"<>`|]{3,400}")
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.\-]*[A-Za-z0-9])?|%[0-9A-Fa-f]{2}\S*|[{$]\S*)"
    r"(?=[:/?#,\s'\")\]};]|\Z)"
)
_NAMED_HOST = re.compile(r"localhost|[\w\-]+\.[\w.\-]+|[\w.\-]+:\d|\[")
_PORT = re.compile(r"\d{1,5}(?:[/?#,\s]|\Z)|\d{1,5}[^@]*/@")


def passwords_in_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of an address's password, between user and host, with any characters.

    It ends at the first `@` before a host with a dot or a port, else at the last before any host.
    """
    for address in _ADDRESS.finditer(text):
        low = address.end()
        run = _PASSWORD_AND_HOST.match(text, low)
        if run is None or "@" not in run[0]:
            continue
        ends = [low + at for at, sign in enumerate(run[0]) if sign == "@" and at]
        hosts = [end for end in ends if _HOST.match(text, end + 1)]
        named = [end for end in hosts if _NAMED_HOST.match(text, end + 1)]
        if not hosts:
            continue
        plain = [end for end in hosts[:1] if not re.search(r"[/?#'@]", text[low:end])]
        high = named[0] if named else (plain or hosts[-1:])[0]
        if _PORT.match(text, low, high) and re.search("[/?#]", text[low:high]):
            continue
        yield low, high
