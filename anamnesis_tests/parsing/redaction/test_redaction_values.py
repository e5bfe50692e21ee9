"""A generated password is masked whole, whatever it is made of; code and templates with the same characters stay."""

import json
import random
import string

import pytest

from anamnesis_pipeline.parsing.redaction.masking import Redactor

REDACTOR = Redactor(b"a salt for tests")
MARKS = "!#$%&()*+,-./:;<=>?@[]^_{|}~"
SETTINGS = (
    "password: {}",
    "DB_PASSWORD={}",
    "db.password = {}",
    "export PASSWORD={}\nls",
    "  passwd: {}  # of the nas",
)
QUOTED = (
    '"password": "{}"',
    "password: '{}'",
    'DB_PASSWORD="{}"',
    'login(user="ann", password="{}")',
    'x(passwd=r"{}")',
)


def masked_everywhere(text: str) -> list[str]:
    """The text masked as it is, and as it stands in JSON, and in JSON inside JSON."""
    inner = json.dumps({"content": f"$ cat it\n{text}\n$"})
    outer = json.dumps({"x": inner})
    deep = json.loads(json.loads(REDACTOR.mask_line(outer)[0])["x"])["content"]
    return [REDACTOR.mask_line(text)[0], json.loads(REDACTOR.mask_line(inner)[0])["content"], deep]


def longest_left(value: str, text: str) -> int:
    """How many characters in a row of the value are still there."""
    starts = range(len(value))
    return max((end - at for at in starts for end in range(at, len(value) + 1) if value[at:end] in text), default=0)


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("shape", SETTINGS + QUOTED)
def test_no_character_of_a_password_cuts_it(shape: str, mark: str) -> None:
    secret = f"hunterAA{mark}Zx9qTAIL"
    for masked in masked_everywhere(shape.format(secret)):
        assert "hunter" not in masked
        assert "TAIL" not in masked


@pytest.mark.parametrize(("shape", "most"), [*((shape, 3) for shape in QUOTED), *((shape, 10) for shape in SETTINGS)])
def test_nearly_every_password_of_random_characters_is_masked(shape: str, most: int) -> None:
    draw = random.Random(shape)
    alphabet = string.ascii_letters + string.digits + MARKS
    values = ["".join(draw.choices(alphabet, k=draw.choice((12, 16, 20, 24)))) for _ in range(100)]
    assert sum(longest_left(value, REDACTOR.mask_line(shape.format(value))[0]) > 3 for value in values) <= most


@pytest.mark.parametrize("shape", ['"password": "{}"', "password: '{}'", 'DB_PASSWORD="{}"', "password: {}"])
def test_a_space_in_a_password_does_not_save_it(shape: str) -> None:
    for masked in masked_everywhere(shape.format("hunterAA Zx9qTAIL")):
        assert "TAIL" not in masked


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("curl 'https://h.test/?password=hunterA7x!Q9&user=ann&page=2'", "&user=ann&page=2'"),
        ("PASSWORD=hunterA7x!Q9 && make", " && make"),
        ("PASSWORD=hunterA7x!Q9; make", "; make"),
        ("{user: ann, password: hunterA7x!Q9}", "}"),
        ("connect(host, password=hunterA7x%Q9, port=1)", ", port=1)"),
        ("(password: hunterA7x!Q9)", ")"),
        ("Server=db;Password=hunterA7x,Q9z;Database=shop", ";Database=shop"),
        ("<li>password: hunterA7x!Q9</li>", "</li>"),
        ("password: hunterA7x,Q9z # of the nas", " # of the nas"),
        ("password: 'it''s-hunterA7x' # of the nas", "' # of the nas"),
        ("""PASSWORD='it'"'"'s-hunterA7x' make""", "' make"),
        ("password: quo'tedA7x9\nhost: nas", "\nhost: nas"),
        ('"password": "quo\'tedA7x9", "user": "ann"', '", "user": "ann"'),
        ("password: hunterAA Zx9qTAIL\nuser: ann", "\nuser: ann"),
        ("password: hunterA7x!Q9 is what the nas wants", " is what the nas wants"),
        ("password=hunterA7x!Q9 user=ann", " user=ann"),
    ],
)
def test_what_comes_behind_a_value_stays(text: str, after: str) -> None:
    masked, kinds = REDACTOR.mask_line(text)
    assert kinds.total() == 1
    assert masked.endswith(f"]{after}")
    assert REDACTOR.mask_line(masked)[0] == masked
