"""A secret is masked also where its name stands in a field of its own."""

import json

import pytest

from anamnesis_pipeline.parsing.redaction.masking import Redactor

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
        f'{{"ParameterKey": "DbPassword", "ParameterValue": "{SECRET}"}}',
        f'{{"name": "DB_PASSWORD", "type": "string", "value": "{SECRET}"}}',
        f"- name: DB_PASSWORD\n  # of the nas\n  value: {SECRET}\n- name: DB_HOST\n  value: nas-17\n",
        f"- {{name: DB_PASSWORD, value: {SECRET}}}\n",
        f"- name: DB_PASSWORD\n  value: |\n    {SECRET}\n",
        f"db:\n  password: >-\n    {SECRET}\n  host: nas\n",
        f"password:\n  value: {SECRET}\nhost:\n  value: nas-17\n",
        f'{{"password": {{"value": "{SECRET}"}}}}',
        f'{{"db_password": {{"sensitive": true, "type": "string", "value": "{SECRET}"}}}}',
        f'{{"password": {{"S": "{SECRET}"}}, "user": {{"S": "ann-1"}}}}',
        f'variable "db_password" {{\n  description = "of {{the}} db"\n  default     = "{SECRET}"\n}}\n',
        f'<add value="{SECRET}" key="ApiKey" />',
        f'<entry key="password">{SECRET}</entry>',
        f'<property name="db.password">{SECRET}</property>',
        f'<string name="api_key">{SECRET}</string>',
        f'<setting name="Password" serializeAs="String">\n  <value>{SECRET}</value>\n</setting>',
        f'<entry key="password"><![CDATA[{SECRET}]]></entry>',
        f"<password>\n{SECRET}\n</password>",
        f"<db.password>{SECRET}</db.password>",
        f"<dict><key>password</key>\n<string>{SECRET}</string></dict>",
        f"Password\n: {SECRET}\n",
    ],
)
def test_what_the_field_beside_it_names_a_secret_is_masked(text: str) -> None:
    masked, found = REDACTOR.mask_line(text)
    assert SECRET not in masked
    assert found.total() == 1
    assert masked.count("\n") == text.count("\n")
    assert REDACTOR.mask_line(masked)[0] == masked


VALUES = ("hunterAAZx9q,TAIL", "ab$c,TAIL<Zmore>9x", "quo'ted77TAIL", "p%c{d}e9xTAIL", "a;b&c|d(9xTAIL")


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "shape",
    [
        "- name: DB_PASSWORD\n  value: %\n",
        '- name: DB_PASSWORD\n  value: "%"\n',
        '{"key": "DB_PASSWORD", "value": "%"}',
        '{"value": "%", "key": "DB_PASSWORD"}',
        '{"password": {"value": "%"}}',
    ],
)
def test_such_a_value_is_masked_to_its_end(shape: str, value: str) -> None:
    masked, _ = REDACTOR.mask_line(shape.replace("%", value))
    assert "TAIL" not in masked
    assert value[:5] not in masked
    assert masked.count('"') == shape.count('"')


def test_a_password_of_letters_is_masked_where_its_name_is_a_variable_of_the_environment() -> None:
    text = "- name: ADMIN_PASSWORD\n  value: correcthorsebatterystaple\n"
    assert "horse" not in REDACTOR.mask_line(text)[0]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    "text",
    [
        f"my env is\n- name: DB_PASSWORD\n  value: {SECRET}",
        f'it says\n{{\n  "key": "DB_PASSWORD",\n  "value": "{SECRET}"\n}}\nthanks',
        f"Password:\n{SECRET}",
        f"the login\n\nKennwort\n\n{SECRET}\n\nbye",
        f'<entry key="password">{SECRET}</entry>',
    ],
)
def test_text_inside_json_is_read_as_it_was_written(text: str, depth: int) -> None:
    chat = [{"sender": "human", "text": text, "created_at": "2025-03-01"}, {"sender": "assistant", "text": "Good."}]
    raw = json.dumps(chat)
    for _ in range(depth - 1):
        raw = json.dumps({"export": raw})
    masked, found = REDACTOR.mask_line(raw)
    assert SECRET not in masked
    assert found.total() == 1
    after = json.loads(masked)
    after = after if depth == 1 else json.loads(after["export"])
    assert after[0]["created_at"] == "2025-03-01"
    assert after[1] == chat[1]


def test_the_lines_of_a_notebook_are_read_as_one_text() -> None:
    lines = ["env:\n", "- name: DB_PASSWORD\n", f"  value: {SECRET}\n", "Password:\n", f"{SECRET}2"]
    raw = json.dumps({"cells": [{"cell_type": "markdown", "source": lines}]}, indent=1)
    masked, _ = REDACTOR.mask_line(raw)
    assert f"value: {SECRET}" not in masked
    assert len(json.loads(masked)["cells"][0]["source"]) == len(lines)


def test_each_of_many_in_one_line_is_masked() -> None:
    pairs = [{"key": f"DB_{number}_PASSWORD", "value": f"{SECRET}{number}"} for number in range(50)]
    masked, found = REDACTOR.mask_line(json.dumps(pairs))
    assert SECRET not in masked
    assert found.total() == 50
    assert [pair["key"] for pair in json.loads(masked)] == [pair["key"] for pair in pairs]
