"""Tombstones of sections: by exact text everywhere, and by similarity in the document that had it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from anamnesis_pipeline.model import Part, Section, SegmentKind, content_id
from anamnesis_pipeline.parsing.claude_logs.message_keys import SECTION_KEY
from anamnesis_pipeline.parsing.documents.anchors import plain_title
from anamnesis_pipeline.pipeline.exclusion import kept_away_by
from anamnesis_pipeline.pipeline.forgotten_sections import goes, keys_of, spans_of
from anamnesis_pipeline.pipeline.similarity import is_little_else, kept_of, ranges_held, runs_of, still_holds
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.exclusion import BuriedSection


def bury_sections(store: Store, parts: Iterable[Part]) -> None:
    """Store similarity digests of these sections for each document that has them now, to detect edited copies. Other
    chunks are ignored. Repeatable; existing digests stay.
    """
    going = {part.part_id: part for part in parts if part.section is not None}
    if not going:
        return
    secret = store.exclusion.secret()
    for source, path in sorted(store.documents.files_of(sorted(going))):
        seen = store.documents.sightings_of(source, path)
        staying = store.forgetting.parts([s.part_id for s in seen if s.present and s.part_id not in going])
        elsewhere = set().union(*(runs_of(_body_of_part(part), secret) for part in staying))
        store.exclusion.bury_sections(
            [
                BuriedSection(
                    s.part_id,
                    source,
                    path,
                    s.place,
                    kept_of(runs_of(_body_of_part(going[s.part_id]), secret), elsewhere),
                )
                for s in seen
                if s.part_id in going
            ]
        )


class SectionTombstones:
    """Forgotten sections of one source's documents.

    `told` names files with text that only resembles a forgotten one: the match may be a correction.
    """

    def __init__(self, store: Store, source: str) -> None:
        self._store, self._source = store, source
        self.told: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether no section was ever deleted; cheap."""
        return not self._store.forgetting.has_forgotten(SECTION_KEY) and not self._store.exclusion.has_buried()

    def going(self, path: str, place: str, sections: Sequence[Section], text: str) -> list[Section]:
        """Return the sections that were forgotten, or that hold a good part of one forgotten there or in a file with an
        equal section (as a renamed file has). If a section says much else, its `spans` are the matching lines.

        :param place: the document's key, see `message_keys.place_of`.
        :param text: of the document.
        """
        gone = self._store.forgetting.forgotten(sorted({key for section in sections for key in keys_of(section)}))
        texts = [content_id(*(piece.text for piece in section.pieces)) for section in sections]
        buried = [each for each in self._store.exclusion.buried_at(self._source, place, texts) if each.kept]
        held = [[] if goes(section, gone) else self._held_by(section, buried) for section in sections]
        # keep it away from this document after further changes
        again = {BuriedSection(each.episode_id, self._source, path, place, each.kept) for its in held for each in its}
        if again:
            self._store.exclusion.bury_sections(again)
        if any(held):
            way_back = kept_away_by(self._store, {each.episode_id for its in held for each in its})
            self.told.append(f"{path}: what is much like a forgotten text stays away; {way_back}")
        return [
            self._narrowed(section, its, text)
            for section, its in zip(sections, held, strict=True)
            if its or goes(section, gone)
        ]

    def _held_by(self, section: Section, buried: Sequence[BuriedSection]) -> list[BuriedSection]:
        """Return the forgotten sections of which this one holds a good part."""
        if not buried:
            return []
        runs = self._runs(section)
        return [each for each in buried if still_holds(runs, each.kept)]

    def _runs(self, section: Section) -> set[bytes]:
        written = "\n".join(piece.text for piece in section.pieces if piece.kind is not SegmentKind.OUTLINE)
        return runs_of(_body(written, section.title), self._secret)

    def _narrowed(self, section: Section, held: Sequence[BuriedSection], text: str) -> Section:
        """Return the section, narrowed to the forgotten lines if it says much else."""
        runs = self._runs(section)
        if not held or section.values or any(is_little_else(runs, each.kept) for each in held):
            return section
        lines = sorted(
            (max(start, text.rfind("\n", 0, start + begin) + 1), min(end, _line_end(text, start + stop)))
            for start, end in spans_of(section, text.split("\n"))
            for each in held
            for begin, stop in ranges_held(text[start:end], self._secret, each.kept)
        )
        return replace(section, spans=tuple(lines)) if lines else section

    @cached_property
    def _secret(self) -> bytes:
        return self._store.exclusion.secret()


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _body_of_part(part: Part) -> str:
    written = "\n".join(segment.text for segment in part.segments if segment.kind is not SegmentKind.OUTLINE)
    return _body(written, part.section.title if part.section else ())


def _body(text: str, title: Sequence[str]) -> str:
    """Return a text without its leading heading, which says only where the text is."""
    first, _, rest = text.lstrip().partition("\n")
    return rest if title and plain_title(first.strip("# ")) == title[-1] else text
