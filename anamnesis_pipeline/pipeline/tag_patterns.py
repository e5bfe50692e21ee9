"""Stored tag patterns, which give documents further tags: one setting."""

from collections.abc import Sequence
from dataclasses import asdict

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.parsing.documents.trust import TagPattern, checked_pattern
from anamnesis_pipeline.store.records.settings import SettingsRecords

STORED = "documents.tag_patterns"
MAX_PATTERNS = 100
"""Limit, since each is tried on every document."""


def stored_patterns(settings: SettingsRecords) -> tuple[TagPattern, ...]:
    """Return the configured patterns, in order."""
    return tuple(TagPattern(**pattern) for pattern in settings.get(STORED, ()))


def put_patterns(settings: SettingsRecords, patterns: Sequence[TagPattern]) -> None:
    """Replace all patterns. Parsed documents keep their tags until they change.

    :raises BadSetting: one is invalid, or there are more than 100; nothing has changed then.
    """
    if len(patterns) > MAX_PATTERNS:
        raise BadSetting(
            f"{len(patterns)} tag patterns; at most {MAX_PATTERNS} may be, since each is tried on every document"
        )
    settings.set(STORED, [asdict(checked_pattern(pattern)) for pattern in patterns] or None)
