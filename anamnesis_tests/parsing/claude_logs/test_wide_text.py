"""Huge texts say the same in less memory."""

import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.parsing.claude_logs import wide_text
from anamnesis_pipeline.parsing.claude_logs.parser import read_messages
from anamnesis_pipeline.parsing.claude_logs.wide_text import flattened, holds_more_values, narrowed, slices
from anamnesis_pipeline.parsing.redaction.masking import Redactor

SECRET = "password: hunter2Xk99"


@pytest.fixture
def _everything_is_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_text, "HUGE_BYTES", 1)
    monkeypatch.setattr(wide_text, "SLICE", 7)


def record_of(text: str) -> str:
    return json.dumps({"type": "user", "uuid": "u", "message": {"content": text}}, ensure_ascii=False)


WIDE = 'plain wörter and \\ud83d, "quoted"\n ' * 4 + "\U0001f600\U0001f601\ue000"


@pytest.mark.usefixtures("_everything_is_huge")
def test_a_wide_line_is_read_as_its_narrow_form_which_takes_half_the_memory_or_less() -> None:
    line = record_of(WIDE)
    narrow = narrowed(line)
    assert json.loads(narrow) == json.loads(line)
    assert sys.getsizeof(narrow) < sys.getsizeof(line) * 0.6
    assert [m.message.text for m in read_messages([line], 0).messages] == [WIDE]


@pytest.mark.usefixtures("_everything_is_huge")
@pytest.mark.parametrize("text", ["plain", "wörter", "文字 " * 9, "\U0001f600" * 9])
def test_a_text_that_would_not_shrink_stays_as_it_is(text: str) -> None:
    assert narrowed(text) is text


@pytest.mark.usefixtures("_everything_is_huge")
@given(st.text(alphabet='ab \\"\nö文\U0001f600\U0010ffff', max_size=60), st.integers(0, 9), st.integers(0, 9))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_slices_joined_are_the_text_and_flat_ones_keep_every_place(text: str, start: int, left: int) -> None:
    pieces = list(slices(text, start, len(text) - left))
    assert "".join(pieces) == text[start : max(start, len(text) - left)]
    flat = flattened(list(slices(text, 0, len(text))), text)
    assert len(flat) == len(text)
    assert all(a == b or (ord(a) > 0xFFFF and b == "\xbf") for a, b in zip(text, flat, strict=True))
    assert json.loads(narrowed(json.dumps(text, ensure_ascii=False))) == text


def test_a_huge_wide_line_gets_the_masks_that_a_small_one_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = Redactor(b"salt").mask_line
    lines = [record_of(f"{WIDE} {SECRET}, {WIDE}"), record_of(f"{WIDE}\\n{SECRET}"), f"no JSON {WIDE} {SECRET} {WIDE}"]
    small = [mask(line) for line in lines]
    monkeypatch.setattr(wide_text, "HUGE_BYTES", 1)
    monkeypatch.setattr(wide_text, "SLICE", 7)
    assert [mask(line) for line in lines] == small
    assert all(found == {"password": 1} for _, found in small)


@pytest.mark.parametrize(
    ("line", "values"), [(json.dumps({"a": 'x, [y], {"z": 1},"\\' * 50}), 1), ('{"a":"1,2', 1), ("", 0)]
)
def test_commas_objects_and_lists_are_counted_outside_of_strings(line: str, values: int) -> None:
    assert [holds_more_values(line, most) for most in (values - 1, values)] == [True, False]


@given(st.recursive(st.text(',"[]{}\\:a ') | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_no_value_is_counted_that_is_not_there(value: object) -> None:
    line = json.dumps(value)
    assert holds_more_values(line, _values(value) - 1)
    assert not holds_more_values(line, _values(value))


def _values(value: object) -> int:
    """Commas and openings, counted in what was written."""
    if not isinstance(value, list | dict):
        return 0
    items = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(len(items) - 1, 0) + sum(map(_values, items))
