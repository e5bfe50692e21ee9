"""Quarantine chunks that a rule excludes: they are neither summarized nor found while the rule exists."""

from anamnesis_pipeline.model import Part, Source
from anamnesis_pipeline.parsing.text.transcripts import transcript
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.sources.exclusion import Rule
from anamnesis_pipeline.store.base import Store

_PAGE = 200


def hold_excluded(store: Store, source: Source) -> int:
    """Quarantine the unpublished chunks of a source that a rule matches. Return their number. Published ones stay."""
    exclusions = Exclusions(store)
    held, after = 0, ""
    while exclusions.stamp and (parts := store.exclusion.waiting(source.key, after, _PAGE)):
        after = parts[-1].part_id
        rules = {part.part_id: _rule_of(exclusions, source, part) for part in parts}
        held += store.exclusion.hold({part_id: rule.rule_id for part_id, rule in rules.items() if rule})
    return held


def _rule_of(exclusions: Exclusions, source: Source, part: Part) -> Rule | None:
    text = transcript(part.segments)
    return (
        exclusions.of_project(part.project)
        or exclusions.of_session(part.session_id)
        or exclusions.of_path(source.machine, f"{folder_of(source)}/{part.path}")
        or exclusions.of_content(text)
        or exclusions.of_content("\n\n".join(segment.text for segment in part.segments))
    )
