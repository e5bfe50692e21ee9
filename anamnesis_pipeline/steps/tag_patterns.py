"""The patterns that give documents further tags, as they are stored: one setting."""

from collections.abc import Sequence
from dataclasses import asdict

from anamnesis_pipeline.documents.trust import TagPattern, checked_pattern
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.store.records.settings import SettingsRecords

STORED = "documents.tag_patterns"
MOST_PATTERNS = 100
"""Each is tried on every document."""


def stored_patterns(settings: SettingsRecords) -> tuple[TagPattern, ...]:
    """Those that people configured, in their order."""
    return tuple(TagPattern(**pattern) for pattern in settings.get(STORED, ()))


def put_patterns(settings: SettingsRecords, patterns: Sequence[TagPattern]) -> None:
    """Let these be all. Documents that are parsed already keep their tags until they change.

    :raises BadSetting: one cannot be used, or there are more than 100. Nothing has changed then.
    """
    if len(patterns) > MOST_PATTERNS:
        raise BadSetting(
            f"{len(patterns)} tag patterns; at most {MOST_PATTERNS} may be, since each is tried on every document"
        )
    settings.set(STORED, [asdict(checked_pattern(pattern)) for pattern in patterns] or None)
