"""What a parsed document changes of what was seen in its file, and of the parts that go by it: the same for every
backend. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anamnesis_pipeline.document_model import source_tag
from anamnesis_pipeline.model import Part, SectionFacts
from anamnesis_pipeline.store.document_base import Sighting
from anamnesis_pipeline.store.records.parts import pack_section, unpack_section
from anamnesis_pipeline.store.values import clean, indexed


@dataclass(frozen=True, slots=True)
class FileChange:
    """What stands in a file `now`, by part; which texts went that stood there, and which came."""

    now: Mapping[str, Sighting]
    went: Sequence[Sighting]
    came: Sequence[Sighting]


def change_of(held: Mapping[str, Sighting], sections: Sequence[tuple[Part, Sighting]]) -> FileChange:
    """What the sections of a file change.

    :param held: part -> where it was seen in this file, present or not.
    """
    now = {s.part_id: _since(replace(s, cwd=clean(s.cwd)), held.get(s.part_id)) for _, s in sections}
    return FileChange(
        now,
        [s for s in held.values() if s.present and s.part_id not in now],
        [s for s in now.values() if s.part_id not in held or not held[s.part_id].present],
    )


def followed(part: Part, known: str) -> dict[str, str | int]:
    """The fields of a part that is stored which follow the file that it goes by: as it was parsed there just now, but
    for when its text was first seen.

    :param known: its section as it is stored.
    """
    facts, seen = part.section, unpack_section(known)
    if facts is not None and seen is not None:
        facts = replace(facts, seen=seen.seen)
    return {
        "project": indexed(part.project), "cwd": clean(part.cwd), "prompt": clean(part.prompt), "ordinal": part.ordinal,
        "section": pack_section(facts),
    }  # fmt: skip


def rehomed(section: str, former: str, other: Sighting, specs: Mapping[str, str]) -> dict[str, str | int]:
    """The fields of a part that goes by another file from now on, in which it was seen so.

    :param section: its section as it is stored.
    :param former: the source of the file that it went by.
    :param specs: source -> name of the configured source that it comes from.
    """
    facts = unpack_section(section)
    return {
        "source": other.source, "path": other.path, "cwd": other.cwd, "ordinal": other.ordinal,
        "section": pack_section(None if facts is None else _shown_in(facts, former, other, specs)),
    }  # fmt: skip


def _since(new: Sighting, held: Sighting | None) -> Sighting:
    """A text that stood there before keeps the time since when it does."""
    if held is None or not held.present:
        return new
    return replace(new, since_ns=held.since_ns, skew_ns=held.skew_ns)


def _shown_in(facts: SectionFacts, former: str, other: Sighting, specs: Mapping[str, str]) -> SectionFacts:
    """Facts with the lines of the other file, and the tag of the configured source that it is shown of now."""
    kept = [tag for tag in facts.tags if tag != source_tag(specs.get(former, ""))]
    own = [source_tag(spec)] if (spec := specs.get(other.source)) else []
    tags = tuple(dict.fromkeys([*kept, *own]))
    return replace(facts, first_line=other.first_line, last_line=other.last_line, tags=tags)
