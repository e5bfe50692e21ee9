"""Nothing planted stays readable; nothing else changes. Every credential here is made up when the test runs."""

import json
import os
import stat
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.parsing.redaction.masking import Redactor, load_salt
from anamnesis_tests.support.planted import ALNUM, Maker, credentials, key
from anamnesis_tests.support.planted_kinds import still_there

REDACTOR = Redactor(b"a salt for tests")
PLANTED = credentials(3)


def made_up(length, alphabet=ALNUM, seed=0):
    """The same text for the same arguments."""
    return Maker(f"{length}{alphabet}{seed}")(length, alphabet)


def escaped(text):
    """JSON with every character of a text escaped."""
    written = "".join(json.dumps(c)[1:-1] if c in "\"'\\" else f"\\u{ord(c):04x}" for c in text)
    return f'{{"content":"{written}"}}'


def three_deep(text):
    """JSON in JSON in JSON."""
    return json.dumps({"x": json.dumps({"b": json.dumps({"a": f"line\n{text}\nline"})})})


@pytest.mark.parametrize("as_written", [escaped, three_deep])
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_credential_is_masked_however_it_is_escaped(name, as_written):
    text, secrets = PLANTED[name]
    masked, found = REDACTOR.mask_line(as_written(text))
    assert still_there(secrets, masked + str(json.loads(masked))) == []
    assert found.total() >= 1
    assert REDACTOR.mask_line(masked) == (masked, Counter())


def test_a_key_printed_as_an_array_of_lines_is_masked_line_by_line():
    pem, lines = key(Maker(1).pem("RSA "))
    line = json.dumps({"structuredPatch": [{"lines": ["+" + part for part in pem.split("\n")], "newStart": 1}]})
    masked, found = REDACTOR.mask_line(line)
    assert not [part for part in lines if part in masked]
    assert found == Counter({"private-key": 1})
    assert json.loads(masked)["structuredPatch"][0]["newStart"] == 1


def test_a_password_that_holds_quotes_and_backslashes_is_masked_whole():
    secret = 'ab"cd\\' + made_up(10) + '"z9'
    for wrap in (lambda v: v, json.dumps, lambda v: json.dumps(json.dumps(v))):
        masked, _ = REDACTOR.mask_line(
            json.dumps({"password": secret, "input": wrap(json.dumps({"password": secret}))})
        )
        assert made_up(10) not in masked
        assert "z9" not in masked
        json.loads(masked)


def test_what_is_no_secret_stays_byte_for_byte():
    line = '{ "a" : "caf\\u00e9 \\/ x",\t"token":"' + "ghp" + "_" + made_up(36) + '", "n":1.50 ,"z":"\\u001b[0m"}'
    masked, _ = REDACTOR.mask_line(line)
    before, after = line.split('"ghp')[0], line.split(made_up(36))[1]
    assert masked.startswith(before + '"[REDACTED:github:')
    assert masked.endswith(after)


def test_a_mask_names_the_kind_and_tells_equal_secrets_under_one_salt():
    one, two = "ghp" + "_" + made_up(36, seed=1), "ghp" + "_" + made_up(36, seed=2)
    text, _ = REDACTOR.mask_text(f"{one} {two} {one}")
    first, second, third = text.split()
    assert first == third != second
    assert first.startswith("[REDACTED:github:")
    assert Redactor(b"another salt").mask_text(one)[0] != first


def test_the_same_secret_has_the_same_mask_at_every_depth_of_escaping():
    secret = made_up(40, ALNUM + "/+")
    pair = f'{{"aws_secret_access_key": "{secret}"}}'
    masks = {
        REDACTOR.mask_text(text)[0].split("[REDACTED:")[1].split("]")[0]
        for text in (pair, json.dumps(pair), json.dumps(json.dumps(pair)), pair.replace("/", "\\/"))
    }
    assert len(masks) == 1


def test_a_line_that_is_no_json_is_masked_as_text():
    secret = "ghp" + "_" + made_up(36)
    masked, found = REDACTOR.mask_line('{"type":"user","content":"' + secret + '{"torn')
    assert secret not in masked
    assert found == Counter({"github": 1})


def test_lone_surrogates_and_other_scripts_keep_their_places():
    secret = "ghp" + "_" + made_up(36)
    text = f"\u2192 \U0001f600 \ud800 Größe {secret} 漢字"
    masked, _ = REDACTOR.mask_text(text)
    assert masked.startswith("\u2192 \U0001f600 \ud800 Größe [REDACTED:github:")
    assert masked.endswith("] 漢字")


def test_secret_among_near_misses_is_masked():
    filler = ("eyJ" * 40 + "sk-" * 40 + "://a:b" * 20 + "password=" * 20 + "\\" * 50) * 200  # about 120 KB
    secret = "ghp" + "_" + made_up(36)
    masked, _ = REDACTOR.mask_line(json.dumps({"content": f"{filler} {secret} {filler}"}))
    assert secret not in masked


@given(st.text() | st.recursive(st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)).map(json.dumps))
def test_masking_is_idempotent_and_keeps_json_valid(line):
    masked, _ = REDACTOR.mask_line(line)
    assert REDACTOR.mask_line(masked) == (masked, Counter())


NAMES = sorted(PLANTED)


@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.text(alphabet=' \n\t"\\/:=,éx{', max_size=5)), min_size=1, max_size=5
    ),
    st.integers(0, 3),
)
def test_any_mixture_of_credentials_is_masked_once_and_for_all(pieces, depth):
    line = "".join(f"{glue} {PLANTED[name][0]} " for name, glue in pieces)
    for _ in range(depth):
        line = json.dumps({"k": line, "n": [1, line]})
    masked, _ = REDACTOR.mask_line(line)
    assert REDACTOR.mask_line(masked) == (masked, Counter())
    if depth:
        json.loads(masked)
    unescaped = masked.replace("\\", "")
    for name, _ in pieces:
        assert not [s for s in PLANTED[name][1] if len(s) > 15 and (s in masked or s in unescaped)], name


def test_the_salt_is_made_once_and_only_its_owner_may_read_it(tmp_path):
    path = tmp_path / "home" / "redaction.salt"
    salt = load_salt(path)
    assert len(salt) == 32
    assert load_salt(path) == salt
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(path.parent) == ["redaction.salt"]


def test_processes_that_start_together_agree_on_the_salt(tmp_path):
    code = (
        "import sys, pathlib; from anamnesis_pipeline.parsing.redaction.masking import load_salt;"
        "print(load_salt(pathlib.Path(sys.argv[1])).hex())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "redaction.salt")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({process.communicate(timeout=60)[0] for process in running}) == 1


@pytest.mark.parametrize("left", [b"", b"short", bytes(32)], ids=["empty", "short", "zeros"])
def test_damaged_salt_is_replaced_and_masks_are_keyed(tmp_path, left):
    path = tmp_path / "redaction.salt"
    path.write_bytes(left)
    salt = load_salt(path)
    assert len(salt) == 32
    assert any(salt)
    assert load_salt(path) == path.read_bytes() == salt
