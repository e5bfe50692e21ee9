"""A secret is masked also where its name stands in a field of its own."""

import pytest

from anamnesis_pipeline.documents.named_secrets import named_masked
from anamnesis_pipeline.exchanges.redaction import Redactor

REDACTOR = Redactor(b"a salt for tests")
SECRET = "hunter2-Zx9!kQ71"


@pytest.mark.parametrize(
    "text",
    [
        f"env:\n  - name: DB_PASSWORD\n    value: {SECRET}\n",
        f'env:\n  - name: "DB_PASSWORD"\n    value: "{SECRET}"\n',
        f'{{"key": "DB_PASSWORD", "value": "{SECRET}"}}',
        f'{{\n  "value": "{SECRET}",\n  "name": "db.password"\n}}',
        f'<property name="db.password" value="{SECRET}"/>',
        f'variable "db_password" {{\n  type    = string\n  default = "{SECRET}"\n}}\n',
        f"Host\n\nnas\n\nPassword\n\n{SECRET}\n",
        f"## API key:\n{SECRET}\n",
        f"Kennwort:\n{SECRET}\n",
    ],
)
def test_what_the_field_beside_it_names_a_secret_is_masked(text: str) -> None:
    masked, found = named_masked(text, REDACTOR.mask_line)
    assert SECRET not in masked
    assert found.total() == 1
    assert masked.count("\n") == text.count("\n")
    assert named_masked(masked, REDACTOR.mask_line)[0] == masked


@pytest.mark.parametrize(
    "text",
    [
        "env:\n  - name: DB_HOST\n    value: nas-17.local.example\n",
        "env:\n  - name: DB_PASSWORD\n    valueFrom: secretKeyRef\n",
        '{"key": "color", "value": "dark-red-17"}',
        "## Passwords\n\nAuthentication\n",
        'variable "region" {\n  default = "eu-central-17"\n}\nvariable "db_password" {}\n',
        "def f(name='key', value=17): ...\n",
    ],
)
def test_what_names_no_secret_stays(text: str) -> None:
    assert named_masked(text, REDACTOR.mask_line) == (text, {})
