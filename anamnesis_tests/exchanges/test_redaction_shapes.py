"""Shapes of assignments and tokens, each with many generated values: a rule that knows one value may miss the next."""

import json
import random
import string

import pytest

from anamnesis_pipeline.exchanges.redaction import Redactor

LETTERS, MIXED = string.ascii_letters, string.ascii_letters + string.digits
VALUES = 40

SHAPES = {
    "SECRET_KEY_BASE={}": (MIXED, 64),
    "ansible_become_pass={}": (MIXED, 12),
    '{{"user":"app","pass":"{}"}}': (MIXED, 12),
    "<password>{}</password>": (MIXED, 12),
    "<db:clientSecret>{}</db:clientSecret>": (MIXED, 24),
    "mysql -h db -u app -p{} shop": (MIXED, 12),
    "mysqldump --single-transaction -p'{}' shop": (MIXED, 12),
    "DB_PASSWORD={}": (LETTERS, 12),
    "password: {}": (LETTERS, 12),
    "export PGPASSWORD='{}'": (LETTERS, 12),
    "sshpass -p {} ssh host": (MIXED, 10),
    "curl -u bob:{} https://api.example.org": (MIXED, 10),
    "curl --user bob:{} https://api.example.org": (MIXED, 10),
    "curl -H 'Cookie: theme=dark; sid={}'": (MIXED, 32),
    "xai-{}": (MIXED, 80),
    "FLY_API_TOKEN='FlyV1 fm2_{}'": (MIXED, 120),
    "ops_eyJ{}": (MIXED, 200),
}


def values(shape: str) -> list[str]:
    alphabet, length = SHAPES[shape]
    draw = random.Random(shape)
    return ["".join(draw.choices(alphabet, k=length)) for _ in range(VALUES)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("where", ["as text", "in a line of JSON", "in JSON inside JSON"])
def test_every_generated_value_is_masked(shape: str, where: str) -> None:
    redactor = Redactor(b"test")
    for value in values(shape):
        text = shape.format(value)
        if where == "as text":
            masked, _ = redactor.mask_text(text)
        else:
            inner = {"content": json.dumps({"out": text}) if where == "in JSON inside JSON" else text}
            masked, _ = redactor.mask_line(json.dumps(inner))
        assert value not in masked
        assert "[REDACTED:" in masked


@pytest.mark.parametrize(
    "text",
    [
        "password: SecretStr = Field(...)",
        "password = PasswordField(label='x')",
        "secret: ClientSecretCredential",
        "let it pass: 12 tests, 3 files",
        "pass=0, fail=0",
        "<password>your-password</password>",
        "<Token>{token}</Token>",
        "mysql -u root -p shop < dump.sql",
        "docker run -p8080:8080 mysql",
        "docker run --user 1000000:1000000 --user www-data:www-data alpine",
        "api_key = base64Encode(utf8Decoder)",
        'if (pass === "test") return;',
        'autocomplete: "currentPassword", password: newPassword',
    ],
)
def test_what_only_looks_like_them_stays(text: str) -> None:
    assert Redactor(b"test").mask_text(text) == (text, {})
