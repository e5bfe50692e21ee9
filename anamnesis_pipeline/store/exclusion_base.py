"""The contract of what a store does to keep things away, and to let them come back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from anamnesis_pipeline.model import Part


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What keeps a deleted episode away. `reason` is a person's, or empty."""

    episode_id: str
    deleted_at: datetime
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lifted:
    """What comes back of something that was lifted: `parts` that are stored and will be published again, or, where
    these were forgotten, what is still in `files`, which are read again from their beginning.
    """

    tombstones: int = 0
    parts: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class BuriedSection:
    """What a tombstone keeps of a section that stood in a file (`source`, `path`): the `place` of the document, and in
    `kept` what tells an edited copy (`likeness.kept_of`), empty where nothing does.
    """

    episode_id: str
    source: str
    path: str
    place: str
    kept: bytes


class ExclusionRecords(Protocol):
    """Parts that a rule holds back, and tombstones."""

    def waiting(self, source: str, after: str, limit: int) -> list[Part]:
        """Parts of a source that are to be published and that no rule holds, by id, behind `after`."""

    def hold(self, rule_of: Mapping[str, str]) -> int:
        """Part -> rule: let these not be summarized nor published. What is published of them stays. Returns how many
        were not held before.
        """

    def release(self, rule_id: str) -> int:
        """Let what a rule held be summarized and published. Returns how many parts."""

    def held(self) -> dict[str, int]:
        """Rule -> parts that it holds."""

    def explain(self, reason: str, episode_ids: Iterable[str], went_with: Mapping[str, str]) -> None:
        """Note with these tombstones why they are there.

        :param went_with: tombstone -> the episode, or the rule, with which it went and is lifted; it is no entry of its
            own.
        """

    def tombstones(self, limit: int, before: tuple[datetime, str] | None = None) -> list[Tombstone]:
        """The newest first, by (time, id), but those that went with something else. `before`: only what follows that
        one.
        """

    def entries_of(self, ids: Sequence[str]) -> dict[str, str]:
        """Tombstone, or part that is held -> what keeps it away and can be lifted: a rule, or the tombstone that stands
        in the list, which is its own or that with which it went.
        """

    def stood_in(self, episode_ids: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """Tombstone -> the files (source, path), sorted, in which what it is of stood, as far as that is known."""

    def lift(self, episode_ids: Sequence[str]) -> Lifted:
        """Remove the tombstones of these ids and of what went with them; the next ingest brings back what there is."""

    def lift_keys(self, keys: Sequence[str]) -> None:
        """Let messages of these keys come in again, whatever was deleted with them; its ids stay deleted."""

    def secret(self) -> bytes:
        """32 bytes that only this store has, for the digests that its tombstones keep."""

    def bury_sections(self, sections: Iterable[BuriedSection]) -> None:
        """Keep these; what is kept already of the same section in the same file stays."""

    def has_buried(self) -> bool:
        """Whether there is any buried section; cheap."""

    def buried_at(self, source: str, place: str, texts: Iterable[str]) -> list[BuriedSection]:
        """What was buried in this document, or in a file of the source in which one of these texts was seen
        (`Sighting.text`); each section once.
        """
