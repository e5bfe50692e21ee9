"""The contract of what a store does when text is forgotten for good, or masked anew."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from anamnesis_pipeline.model import Episode, Part, Passage
from anamnesis_pipeline.summary_model import Summary


@dataclass(frozen=True, slots=True)
class Selection:
    """What to forget. Empty fields do not filter; filled ones are all required.

    `path` is a log file as episodes name it, or a folder above some. `since` is inclusive, `until` exclusive. An
    episode or part is of the time at which it begins. `sources` are keys of sources; None: all of them.
    """

    ids: tuple[str, ...] | None = None
    session_id: str = ""
    path: str = ""
    sources: tuple[str, ...] | None = None
    projects: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class CachedReply:
    """A reply of an LLM that is kept so as not to ask again."""

    key: str
    reply: str
    backend: str
    model: str


class ForgetRecords(Protocol):
    """Everything that holds a text, whatever became of its episode."""

    def matching(self, what: Selection) -> list[str]:
        """Ids of the episodes, and of the parts without an episode, that pass all filters, newest first."""

    def forgotten(self, keys: Sequence[str]) -> set[str]:
        """Those of `keys` that a tombstone forbids."""

    def has_forgotten(self, begin: str = "") -> bool:
        """Whether there is any tombstone, or one of a key that begins so; cheap."""

    def aliases_of(self, keys: Sequence[str]) -> dict[str, str]:
        """Further key -> message key, for the further keys by which these messages are known."""

    def bury(self, keys_of: Mapping[str, Iterable[str]]) -> None:
        """Id -> message keys: leave a tombstone for each id, and for the keys beside those that it has."""

    def parts(self, part_ids: Sequence[str]) -> list[Part]:
        """Parts by id, also those whose episode was deleted."""

    def parts_of_files(self, files: Iterable[tuple[str, str]]) -> list[Part]:
        """The parts of these files (source, path), also those whose episode was deleted."""

    def parts_after(self, part_id: str, limit: int) -> list[Part]:
        """Parts by id, in the order of ids, that come behind this one; `''` comes before all."""

    def replace_parts(self, parts: Sequence[Part], *, resummarize: bool = False) -> int:
        """Write parts that exist with other texts. Ids stay, and the episode is to be published again; no reply of an
        LLM about the former text that is still to come is kept. Returns how many were there.

        :param resummarize: the summaries go, and so does every cached reply about these parts; the next run asks anew.
            Else the summary of the former text stands for the new one.
        """

    def remove_parts(self, part_ids: Sequence[str]) -> int:
        """Remove parts, their summaries, and every reply of an LLM about any version of them, cached or still to come;
        who owns their messages stays known. Returns how many parts there were.
        """

    def remove_file(self, source: str, path: str) -> None:
        """Let nothing tell that there was this file, of which no part is left: neither its name nor its archive."""

    def rewrite_episode(self, episode: Episode, passages: Sequence[Passage]) -> bool:
        """Write texts, metadata and passages of an episode as they are given, whatever was edited; status and counters
        stay. Unchanged passages keep their keys. Where the verbatim text is another, no reply of an LLM about the
        former one that is still to come is kept. False when there is no such id.
        """

    def rewrite_summary(self, before: Summary, after: Summary) -> bool:
        """Write text, tags and records of a summary as `after` gives them; the episode is to be published again. When
        it is tried again, and that a new one was asked for, stays. False when there is another than `before` by now.
        """

    def replies_after(self, key: str, limit: int) -> list[CachedReply]:
        """Cached replies in the order of their keys, behind this one; `''` comes before all."""

    def scrub(self) -> list[str]:
        """Make what was deleted unreadable in the store's files: full-text, pages, write-ahead log, index files.

        Takes a while on a large store; others can read and write meanwhile. Returns what could not be done, and why.
        """

    def keeps(self) -> list[str]:
        """Where the backend itself may keep what was deleted, out of reach of `scrub`, each as a place in words; empty
        where it does not.
        """
