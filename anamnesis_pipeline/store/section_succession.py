"""Which section of a document's new version took the place of one that went. Pure."""

from collections.abc import Collection, Iterable, Sequence
from difflib import SequenceMatcher

from anamnesis_pipeline.store.document_base import Sighting


def successors(held: Collection[Sighting], now: Collection[Sighting]) -> dict[str, str]:
    """Part that went -> part that came: the one with the same body, under whatever heading, else the one that stands
    under an equal heading between the same neighbours.

    Texts are matched first, so of equal headings only what is left over is compared by place; where that leaves more
    than one possibility, nothing is said.
    """
    before = sorted((s for s in held if s.present), key=lambda s: s.ordinal)
    after = sorted(now, key=lambda s: s.ordinal)
    stood, stands = {s.part_id for s in before}, {s.part_id for s in after}
    bodies = {s.body: s.part_id for s in reversed(after) if s.part_id not in stood}
    found = {s.part_id: bodies[s.body] for s in before if s.part_id not in stands and s.body in bodies}
    taken = set(found.values())
    old = _by_heading(s for s in before if s.part_id not in found)
    new = _by_heading(s for s in after if s.part_id not in taken)
    for heading in old.keys() & new.keys():
        found |= _between_neighbours(old[heading], new[heading])
    return found


def _by_heading(sightings: Iterable[Sighting]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for s in sightings:
        found.setdefault((s.place, s.anchor), []).append(s.part_id)
    return found


def _between_neighbours(old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """Runs that were replaced by as many, one by one; a part that only moved is none of them."""
    moved = set(old) & set(new)
    found: dict[str, str] = {}
    for what, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        went, came = ([p for p in run if p not in moved] for run in (old[i:j], new[k:m]))
        if what == "replace" and len(went) == len(came):
            found |= zip(went, came, strict=True)
    return found
