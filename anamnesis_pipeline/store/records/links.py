"""Which episodes stand for which others, and what happens to them when an episode is written or removed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anamnesis_pipeline.model import Status
from anamnesis_pipeline.store.gateway import Tables
from anamnesis_pipeline.store.records.session_notes import is_of_log
from anamnesis_pipeline.store.records.statuses import STATUS_FIELDS, Cause, revive, set_status


class Regime(StrEnum):
    """How an episode came to stand for others."""

    SESSION = "session"
    """It is the newest of a session that says the same; found by a rule, again whenever the session changes."""
    MERGE = "merge"
    """An LLM wrote it of the others."""
    STATEMENT = "statement"
    """It is a newer statement on their subject, or replaces them by name."""


_HIDES = {
    Regime.SESSION: (Status.SUPERSEDED, Cause("consolidation", "a later episode of its session says the same")),
    Regime.MERGE: (Status.MERGED, Cause("consolidation", "its text is in one that was merged of several")),
    Regime.STATEMENT: (Status.SUPERSEDED, Cause("statements", "a newer statement took its place")),
}
"""The status of what a link of a regime hides, and why."""
_RELEASED = Cause("consolidation", "what stood for it was removed")


@dataclass(frozen=True, slots=True)
class Link:
    """That `canonical` stands for an episode. Once `undone`, no run links the episode again."""

    episode_id: str
    canonical: str
    regime: Regime
    undone: bool = False


def note(tables: Tables, sessions: Iterable[tuple[str, str]]) -> None:
    """Let these sessions (source, id), as far as they are of logs, be settled again: something of them came, changed or
    went.
    """
    note_sessions(tables, sorted({session_id for source, session_id in sessions if is_of_log(source, session_id)}))


def links_of(tables: Tables, episode_ids: Iterable[str]) -> dict[str, Link]:
    """Return episode id -> its link, undone ones included; for those that have one."""
    return {
        row["episode_id"]: Link(row["episode_id"], row["canonical"], Regime(row["regime"]), bool(row["undone"]))
        for row in tables["consolidated"].among("episode_id", episode_ids)
    }


def quoting(tables: Tables, episode_ids: Iterable[str]) -> set[str]:
    """Return the merged episodes that quote any of these, also those that were retired."""
    return {link.canonical for link in links_of(tables, episode_ids).values() if link.regime is Regime.MERGE}


def outdated(tables: Tables, links: Mapping[str, Link], texts: Mapping[str, str]) -> set[str]:
    """Return the merged episodes that quote another text of an episode than it is about to have.

    :param links: of these episodes.
    :param texts: episode -> its new text.
    """
    merged_of = {key: link.canonical for key, link in links.items() if link.regime is Regime.MERGE}
    rows = tables["episodes"].among("episode_id", merged_of, ["episode_id", "raw_exchange"])
    return {merged_of[row["episode_id"]] for row in rows if row["raw_exchange"] != texts[row["episode_id"]]}


def forget_merges(tables: Tables, merged: Collection[str]) -> None:
    """Remove the links to merged episodes that were removed, undone ones too: what these quoted has changed."""
    if merged:
        tables["consolidated"].delete({"canonical": {"$in": sorted(merged)}})


def hide_again(tables: Tables, links: Collection[Link]) -> None:
    """Hide the episodes of these links, which were written, as they were, where another one stands for them."""
    for regime in Regime:
        wanted = {link.episode_id: link.canonical for link in links if not link.undone and link.regime is regime}
        hide(tables, behind_stored(tables, wanted), {}, regime)


def release(tables: Tables, canonicals: Collection[str]) -> None:
    """Let the episodes that these stood for be active, and forget that they did. Their sessions are settled again:
    another one may stand for them.
    """
    match = {"canonical": {"$in": sorted(canonicals)}, "undone": 0}
    members = {row["episode_id"]: row["canonical"] for row in tables["consolidated"].find(match)}
    if members:
        revive(tables, members, _RELEASED)
        tables["consolidated"].delete(match)
        sessions = {row["session_id"] for row in tables["episodes"].among("episode_id", members, ["session_id"])}
        note_sessions(tables, sorted(sessions - {""}))


def undo(tables: Tables, episode_ids: Sequence[str]) -> None:
    """Note that these are wanted as they are: no run links them again."""
    tables["consolidated"].update({"episode_id": {"$in": list(episode_ids)}}, {"undone": 1})


def note_sessions(tables: Tables, session_ids: Sequence[str]) -> None:
    """Let these sessions be settled again."""
    if not session_ids:
        return
    match = {"session_id": {"$in": list(session_ids)}}
    if tables["unconsolidated"].update(match, {}, add={"noted": 1}) < len(session_ids):
        tables["unconsolidated"].add([{"session_id": each, "noted": 1} for each in session_ids])


def behind_stored(tables: Tables, canonical_of: Mapping[str, str]) -> dict[str, str]:
    """Return those of these for which an episode is to stand that is stored."""
    rows = tables["episodes"].among("episode_id", set(canonical_of.values()), ["episode_id"])
    stored = {row["episode_id"] for row in rows}
    return {episode_id: canonical for episode_id, canonical in canonical_of.items() if canonical in stored}


def write_links(tables: Tables, canonical_of: Mapping[str, str], regime: Regime) -> None:
    """Note which episode stands for each of these from now on. A link that was undone stays undone, but for that of a
    new statement, which is a decision of its time.
    """
    rows = [
        {"episode_id": episode_id, "canonical": canonical, "regime": str(regime), "undone": 0}
        for episode_id, canonical in canonical_of.items()
    ]
    tables["consolidated"].put(rows, keep=[] if regime is Regime.STATEMENT else ["undone"])


def hide(tables: Tables, canonical_of: Mapping[str, str], before: Mapping[str, str], regime: Regime) -> set[str]:
    """Let another episode stand for each of these that is active, or for which that of `before` stood. Return the ids
    of those that are hidden now.
    """
    rows = [
        row
        for row in tables["episodes"].among("episode_id", canonical_of, STATUS_FIELDS)
        if row["status"] == Status.ACTIVE or row["superseded_by"] == before.get(row["episode_id"], "")
    ]
    status, cause = _HIDES[regime]
    set_status(tables, rows, {key: (status.value, canonical) for key, canonical in canonical_of.items()}, cause)
    return {row["episode_id"] for row in rows}
