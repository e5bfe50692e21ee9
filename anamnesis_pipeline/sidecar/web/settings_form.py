"""Settings form: values, their origins, the user's input, and validation errors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from anamnesis_pipeline.services.fields import field_errors
from anamnesis_pipeline.services.wiring import stored_settings
from anamnesis_pipeline.settings import Settings, origins
from anamnesis_pipeline.store.base import Store

WAS = "was."
"""Prefix of hidden fields with the value at render time, so that only changed fields are stored."""
_ORIGINS = (
    ("stored", "set here"),
    ("environment", "from the environment"),
    ("secret", "from a secret file"),
    ("file", "from config.toml"),
    ("default", "default"),
)
_TOLD = dict(_ORIGINS)
Kind = Literal["choice", "whole", "number", "text", "lines"]


@dataclass(frozen=True, slots=True)
class Field:
    """A setting in a form. `choices` maps values to labels; `offered` are suggestions."""

    name: str
    label: str
    hint: str = ""
    kind: Kind = "text"
    choices: Mapping[str, str] = field(default_factory=dict)
    offered: Sequence[str] = ()
    least: float | None = None
    most: float | None = None
    unit: str = ""
    note_at: str = ""
    """URL of a note about a value that is being chosen."""
    note_of: str = ""
    """Another field that the note depends on."""


@dataclass(frozen=True, slots=True)
class Row:
    """A field with its values as text. `fallback` is the value without a stored one, and its origin."""

    field: Field
    text: str
    was: str
    origin: str
    fallback: str
    fallback_origin: str
    is_locked: bool
    problem: str = ""

    @property
    def told(self) -> str:
        """Origin of the value, in words."""
        return origin_told(self.origin)

    @property
    def fallback_told(self) -> str:
        """Origin of the fallback, in words."""
        return origin_told(self.fallback_origin)


def field_of(name: str, **more: Any) -> Field:
    """Return the field of a setting: label, hint, kind and limits are those of `Settings`.

    :param more: further attributes of the field.
    """
    setting = Settings.model_fields[name]
    types = {setting.annotation, *get_args(setting.annotation)}
    kind: Kind = "choice" if "choices" in more else "whole" if int in types else "number" if float in types else "text"
    if setting.annotation == tuple[str, ...]:
        kind = "lines"
    hint = str(setting.description).replace("separated by `,`", "one a line").replace("`", "")
    limits = {key: getattr(rule, key) for rule in setting.metadata for key in ("ge", "le") if hasattr(rule, key)}
    return Field(name, str(setting.title), hint, kind, least=limits.get("ge"), most=limits.get("le"), **more)


def origin_told(origin: str) -> str:
    """Describe the origin of a value."""
    return _TOLD[origin]


def rows_of(
    store: Store,
    fields: Sequence[Field],
    typed: Mapping[str, str] | None = None,
    problems: Mapping[str, str] | None = None,
) -> list[Row]:
    """Return the fields with their current values, or with the rejected input.

    :param typed: name -> text of a submitted form.
    :param problems: name -> why it is invalid.
    """
    now = {row.name: row for row in origins(stored_settings(store))}
    without = {row.name: row for row in origins({})}
    is_locking = bool(now["lock_env"].value)
    rows = []
    for each in fields:
        row, beneath, was = now[each.name], without[each.name], text_of(now[each.name].value)
        rows.append(
            Row(
                each,
                (typed or {}).get(each.name, was),
                was,
                row.origin,
                text_of(beneath.value),
                beneath.origin,
                is_locked=is_locking and row.origin not in {"stored", "default"},
                problem=(problems or {}).get(each.name, ""),
            )
        )
    return rows


def changed_in(sent: Mapping[str, str]) -> dict[str, str]:
    """Return name -> text of the changed fields of a form."""
    return {
        name: text
        for name, text in sent.items()
        if not name.startswith(WAS) and _plain(text) != _plain(sent.get(WAS + name, ""))
    }


def changes_of(fields: Sequence[Field], sent: Mapping[str, str]) -> dict[str, Any]:
    """Return the changes of a form as JSON values; an invalid number stays text and fails validation later."""
    typed = changed_in(sent)
    return {each.name: _value(each, typed[each.name]) for each in fields if each.name in typed}


def problems_of(adapter: TypeAdapter[Any], changes: Mapping[str, Any]) -> dict[str, str]:
    """Return name -> error of each invalid value."""
    try:
        adapter.validate_python(dict(changes))
    except ValidationError as exc:
        return {error["path"].partition(".")[0]: error["message"] for error in reversed(field_errors(exc.errors()))}
    return {}


def text_of(value: Any) -> str:
    """Format a value for a text field."""
    if isinstance(value, tuple | list):
        return "\n".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.10g}"
    return "" if value is None else str(value)


def _plain(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def _value(each: Field, text: str) -> Any:
    text = _plain(text)
    if each.kind == "lines":
        return [line for line in text.split("\n") if line]
    if each.kind in {"whole", "number"}:
        return _number(text) if text else None
    return text


def _number(text: str) -> int | float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return int(number) if number.is_integer() else number


async def sent_form(request: Request) -> dict[str, str]:
    """Return the text fields of a submitted form; the last value of each name counts."""
    form = await request.form()
    return {name: value for name, value in form.items() if isinstance(value, str)}
