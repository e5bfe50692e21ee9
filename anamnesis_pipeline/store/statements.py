"""What a memory states: on which subject, and from and until when it holds. Pure.

It stands in the metadata of an episode, so that exports, copies and edits keep it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.parsing.text.file_names import composed
from anamnesis_pipeline.store.values import instant

STATEMENT = "statement"
"""The metadata field."""


@dataclass(frozen=True, slots=True)
class Statement:
    """`subject`: what it is about, e.g. `deploy day`; of one project and subject one statement holds. It holds from
    `valid_from` on, inclusive, until `valid_until`, exclusive; None: no bound.
    """

    subject: str = ""
    valid_from: datetime | None = None
    valid_until: datetime | None = None

    def holds_at(self, when: datetime) -> bool:
        """Return whether its bounds include a time."""
        begins, ends = self.valid_from, self.valid_until
        return (begins is None or begins <= when) and (ends is None or when < ends)


NO_STATEMENT = Statement()


def statement_of(metadata: Mapping[str, Any]) -> Statement:
    """Return the statement in an episode's metadata; what has another form states nothing."""
    field = metadata.get(STATEMENT)
    if not isinstance(field, Mapping):
        return NO_STATEMENT
    subject = field.get("subject")
    return Statement(
        subject if isinstance(subject, str) else "", _time(field.get("valid_from")), _time(field.get("valid_until"))
    )


def with_statement(metadata: Mapping[str, Any], statement: Statement) -> dict[str, Any]:
    """Return the metadata with this statement in place of the one they have."""
    rest = {name: value for name, value in metadata.items() if name != STATEMENT}
    field: dict[str, str] = {"subject": statement.subject} if statement.subject else {}
    for name, when in (("valid_from", statement.valid_from), ("valid_until", statement.valid_until)):
        if when is not None:
            field[name] = instant(when)
    return rest | ({STATEMENT: field} if field else {})


def subject_key(subject: str) -> str:
    """Return the form in which subjects are compared: case and spaces make no difference."""
    return " ".join(composed(subject).casefold().split())


def _time(value: object) -> datetime | None:
    try:
        when = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return when.replace(tzinfo=UTC) if when is not None and when.tzinfo is None else when
