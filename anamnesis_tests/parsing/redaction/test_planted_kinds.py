"""Every kind of secret that people paste is masked to its end wherever it stands, and nothing that only looks so is."""

import json
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.parsing.redaction.blocks import private_keys, windows
from anamnesis_pipeline.parsing.redaction.fields import named_values
from anamnesis_pipeline.parsing.redaction.masking import LEFT, LONGER, PREFILTERS, RIGHT, Redactor
from anamnesis_pipeline.parsing.redaction.rules import ASSIGNMENT, PLACE_RULES, RULES, TOKEN_RULES
from anamnesis_tests.parsing.redaction.harmless import harmless
from anamnesis_tests.support.planted import ALNUM, BASE64, Maker, credentials
from anamnesis_tests.support.planted_kinds import PROSE, kinds, planted_kinds, still_there

REDACTOR = Redactor(b"a salt for tests")
SEEDS = range(3)
PLANTED = [
    planted_kinds(seed) | {f"{name}, its form": made for name, made in credentials(seed).items()} for seed in SEEDS
]


@pytest.mark.parametrize("name", PLANTED[0])
def test_planted_kind_is_masked_in_prose_and_json(name: str) -> None:
    for text, pieces in (planted[name] for planted in PLANTED):
        for before, after in PROSE.values():
            masked, _ = REDACTOR.mask_text(f"{before}\n{text}\n{after}")
            assert still_there(pieces, masked) == []
            assert masked.startswith(before)
            assert masked.endswith(after)
            record = {
                "message": {"content": f"{before}\n{text}\n{after}"},
                "x": json.dumps({"stdout": f"$\n{text}\n$"}),
            }
            for line in (json.dumps(record), json.dumps(record, ensure_ascii=False)):
                masked, _ = REDACTOR.mask_line(line)
                assert still_there(pieces, masked) == []
                assert json.loads(masked).keys() == record.keys()
                assert REDACTOR.mask_line(masked)[0] == masked


@pytest.mark.parametrize("name", dict(kinds()))
def test_planted_kind_is_masked_alone_behind_a_break(name: str) -> None:
    for text, pieces in (planted[name] for planted in PLANTED):
        for before in ("server: nas\n", "\t"):
            line = json.dumps({"content": before + text})
            assert still_there(pieces, REDACTOR.mask_line(line)[0]) == []
            nested = json.dumps({"content": line})
            assert still_there(pieces, REDACTOR.mask_line(nested)[0]) == []


@pytest.mark.parametrize("name", ["SMTP_PASS", "DB_PASS", "FTP_PASSWORD"])
@pytest.mark.parametrize("quote", ["", "'", '"'])
@pytest.mark.parametrize(
    "value", ["NFVSCZHSMLYC", "23g(c36)m61", "425{Z94}699", "s39<X84>t62", "ZK(RT)QWXV[BNM]7", "qw[er]TY12"]
)
def test_environment_password_of_capitals_or_brackets(name: str, quote: str, value: str) -> None:
    text = f"export {name}={quote}{value}{quote}"
    assert value not in REDACTOR.mask_text(text)[0]
    assert value not in REDACTOR.mask_line(json.dumps({"content": f"ok\n{text}\n"}))[0]


@pytest.mark.parametrize("share", [r"\\10.0.0.7\s", r"\\nas\share", r"\\tank\root", r"\\router\net$\new"])
@pytest.mark.parametrize("user", ["me", r"CORP\me", r"CORP\nina"])
def test_net_use_is_masked_whatever_its_backslashes_seem(share: str, user: str) -> None:
    password = "Xq7!mZ2kPw9v"  # pragma: allowlist secret
    for drive in ("", "Z: "):
        for words in (f"/user:{user} {password}", f"{password} /user:{user}", f'/U:{user} "{password}" /savecred'):
            text = f"net use {drive}{share} {words}"
            for _ in range(3):
                assert password not in REDACTOR.mask_text(text)[0]
                text = json.dumps({"content": f"a\n{text}\nb"})


@pytest.mark.parametrize("name", [name for name, template in kinds() if "\n" not in template])
def test_planted_kind_is_masked_within_a_sentence(name: str) -> None:
    for text, pieces in (planted[name] for planted in PLANTED):
        assert still_there(pieces, REDACTOR.mask_text(f"wir nehmen {text} dafür, und dann weiter")[0]) == []


@pytest.mark.parametrize("text", harmless())
def test_harmless_text_stays(text: str) -> None:
    assert REDACTOR.mask_text(text) == (text, {})
    bare, within = json.dumps({"content": text}), json.dumps({"x": f"see {text}\nnext"})
    for line in (text, bare, json.dumps({"a": bare}), json.dumps({"a": within})):
        assert REDACTOR.mask_line(line) == (line, {})


# --- long and wrapped values -------------------------------------------------------------------------------

LONG = (
    "AWS_SESSION_TOKEN={}",
    '"SessionToken": "{}"',
    "signing_key: {}",
    "Authorization: Bearer {}",
    "api_key = '{}'",
    "-H 'X-Api-Key: {}'",
    "https://h.test/?access_token={}&page=2",
    "<token>{}</token>",
    "| API key | {} |",
    "- name: API_KEY\n  value: {}",
    '{"key": "API_KEY", "value": "{}"}',
    '<string name="api_key">{}</string>',
    '<apiKey kind="main">{}</apiKey>',
)


@pytest.mark.parametrize("length", [200, 257, 411, 908, 1_600, 4_097, 40_000])
@pytest.mark.parametrize("shape", LONG)
def test_long_value_is_masked_to_its_end(shape: str, length: int) -> None:
    value = Maker(f"{shape}{length}")(length, ALNUM if "Bearer" in shape else BASE64)
    text = shape.replace("{}", value)
    for masked in (REDACTOR.mask_text(text)[0], REDACTOR.mask_line(json.dumps({"c": f"a\n{text}\nb"}))[0]):
        assert not [at for at in range(0, length - 12, 12) if value[at : at + 12] in masked]
        assert masked.count("[REDACTED:") == 1


@pytest.mark.parametrize("width", [64, 70, 76])
@pytest.mark.parametrize("shape", ["SIGNING_KEY={}", 'signing_key: "{}"', "api_token: {}\nnext: 1"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\\\n", "\n    "])
def test_wrapped_value_is_masked_to_its_end(shape: str, end: str, width: int) -> None:
    value = Maker(f"{shape}{width}")(width * 8 + 21, BASE64)
    lines = [value[at : at + width] for at in range(0, len(value), width)]
    text = shape.replace("{}", end.join(lines))
    for masked in (REDACTOR.mask_text(text)[0], REDACTOR.mask_line(json.dumps({"c": f"a\n{text}\nb"}))[0]):
        assert [line for line in lines if line in masked] == []


@pytest.mark.parametrize("mark", list("@/#'?:%&=+!$"))
@pytest.mark.parametrize("after", ["@db.internal:5432/shop", "@localhost/shop", "@10.0.0.7/shop?x=1"])
def test_password_of_an_address_is_masked_whatever_it_holds(mark: str, after: str) -> None:
    masked, _ = REDACTOR.mask_text(f"use postgres://app:hunter{mark}Zx9qTAIL{after} now")
    assert "hunter" not in masked
    assert "TAIL" not in masked
    assert masked.endswith(f"{after} now")


@pytest.mark.parametrize(
    "names", [("sid", "auth"), ("first", "sessionid", "csrftoken", "jwt"), ("a", "remember_token")]
)
def test_every_cookie_of_a_session_is_masked(names: tuple[str, ...]) -> None:
    values = {name: Maker(name)(32) for name in names}
    header = "; ".join(f"{name}={value}" for name, value in values.items())
    for shape in ("Cookie: {}", "curl -H 'Cookie: {}' h.test", "curl -b '{}' h.test", "Set-Cookie: {}; Path=/"):
        masked, _ = REDACTOR.mask_text(shape.replace("{}", header))
        assert [value for value in values.values() if value in masked] == []
        assert all(f"{name}=" in masked for name in names)


# --- work --------------------------------------------------------------------------------------------------

BEGINNINGS = (
    *("eyJ", "eyJhbGciOiJI.", "PuTTY-User-Key-File-3:", f"-----{'BEGIN'} RSA PRIVATE KEY-----", "password="),
    *('password: "', "Cookie: sid=", "Set-Cookie: a=b;", "<password>", "mysql -p", "Bearer ", "://a:b@", "://a:"),
    *("sk-", "name: password\n", "token is ", "api_key: abcdefgh12,", "AKIA", "| token |", "recovery codes: "),
    *("seed phrase: a ", "connect(", "WIFI:", "-----", "password:\n", "\n", " ", "é", "=", "a1B2", "[1,", "$2b$"),
    *('variable "token" {', "|", "\\", '\\"', "{", "AccountKey=", 'password="', "пароль ", "user,password\n"),
    *("логин;пароль\n", '"密码"\t', "password,", "\\u043f,", "https://h/reset/", "/verify/", "GET /magic/"),
    *("&oobCode=", "/api/", "pa-", "AQE", "net use ", "openssl enc -K ", "curl -sSLu a:", "snmpget -A ", "username:"),
)


def test_every_rule_is_linear_by_its_engine() -> None:
    engines = {type(rule.pattern).__module__ for rule in (*RULES, *TOKEN_RULES, *PLACE_RULES)}
    assert engines == {type(ASSIGNMENT).__module__} == {"re2"}


@given(st.lists(st.sampled_from(BEGINNINGS), min_size=1, max_size=3), st.integers(100, 4_000))
def test_rules_see_each_character_a_bounded_number_of_times(beginnings: list[str], repeats: int) -> None:
    text = "".join(beginnings) * repeats
    seen = sum(end - start for start, end in windows(text, PREFILTERS, LEFT, RIGHT, LONGER))
    assert seen <= 2 * len(text) + LEFT + max(LONGER.values())
    keys = list(private_keys(text))
    assert all(before[1] <= after[0] for before, after in pairwise(keys))


@given(st.lists(st.sampled_from(BEGINNINGS), min_size=1, max_size=3))
def test_twice_the_text_takes_at_most_twice_the_steps(beginnings: list[str]) -> None:
    few, many = (steps("".join(beginnings) * repeats) for repeats in (200, 400))
    assert many <= 2.2 * few + 400


def steps(text: str) -> int:
    """Calls of functions, of C as well, that masking makes."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        REDACTOR.mask_text(text)
        named_values(text)
    finally:
        sys.setprofile(None)
    return counted
