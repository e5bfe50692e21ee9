"""View data of an episode's page."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard

from markupsafe import escape

from anamnesis_pipeline.model import MAX_RECORDS, Episode, EpisodeHead, record_id
from anamnesis_pipeline.parsing.claude_logs.value import CURATED, EXPLANATIONS
from anamnesis_pipeline.search.boosts import factors_of
from anamnesis_pipeline.search.trust import authority_of
from anamnesis_pipeline.services.fields import parse_time
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.sidecar.routes.proposals import proposals_of
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import layer_of

TEXT_BYTES = 50_000
"""Max bytes of the text as HTML; the rest loads on request."""
TEXT_OPEN = 6_000
"""Characters above which a text is collapsed."""
MAX_LINEAGE = 20
MAX_EVENTS = 20
MAX_MESSAGES = 50
VALUE_CHARS = 1_000
"""Max characters of a metadata field."""
NOTES = "notes"
"""Metadata field of user notes: objects of `at` and `text`, oldest first."""

_SHOWN_ELSEWHERE = frozenset({NOTES, "value", "value_signals", "consolidated_from", "title", "lines"})
_FACTORS = {
    "trust": "It was written down to be remembered.",
    "value": "It is routine: little was learned in it.",
    "priority": "It is tagged critical or correction, or was made of others.",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A component of an episode's rank."""

    label: str
    means: str
    value: float
    most: float
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A user's note on an episode; `number` counts from 0 in its metadata."""

    number: int
    at: datetime | None
    text: str


@dataclass(frozen=True, slots=True)
class Related:
    """A related episode and its relation. `head` is None if it is gone."""

    relation: str
    episode_id: str
    head: EpisodeHead | None


def view_of(services: Services, episode: Episode, hidden: frozenset[str]) -> dict[str, Any]:
    """Return the template's data.

    :param hidden: ids that no page shows.
    """
    store, now = services.store, datetime.now(UTC)
    text, is_whole = shown_text(episode.raw_exchange)
    quoting = store.proposals.of_episode(episode.episode_id, MAX_EVENTS)
    if not services.engine.private().holds(episode):
        quoting = proposals_of(services).without_private(quoting)
    return {
        "episode": episode,
        "layer": layer_of(episode, now).value,
        "authority": authority_of(episode, is_whole=True).value,
        "text": text,
        "is_whole": is_whole,
        "is_open": len(text) <= TEXT_OPEN,
        "tags_text": "\n".join(" ".join(tag.split()) for tag in episode.tags),
        "bars": bars_of(episode, effective_settings(store).summary_min_value),
        "related": related_to(store, episode, hidden),
        "events": list(reversed(store.events.of(episode.episode_id, MAX_EVENTS))),
        "history": store.statuses.history(episode.episode_id, MAX_EVENTS)[::-1],
        "proposals": quoting,
        "notes": notes_of(episode),
        "metadata": [(n, _as_text(value)) for n, value in episode.metadata.items() if n not in _SHOWN_ELSEWHERE],
        "title": _texts(episode.metadata.get("title")),
        "lines": [n for n in _list(episode.metadata.get("lines")) if isinstance(n, int)],
        "message_ids": episode.message_ids[:MAX_MESSAGES],
    }


def shown_text(text: str) -> tuple[str, bool]:
    """Return the part of a text that fits on a page, and whether it is complete. Pure."""
    if len(escape(text).encode()) <= TEXT_BYTES:
        return text, True
    least, most = 0, min(len(text), TEXT_BYTES)
    while least < most:
        middle = (least + most + 1) // 2
        fits = len(escape(text[:middle]).encode()) <= TEXT_BYTES
        least, most = (middle, most) if fits else (least, middle - 1)
    return text[:least], False


def bars_of(episode: Episode, least_value: float) -> list[Bar]:
    """Return the components of the rank: factors on the score, and the points of the value. Pure."""
    head = EpisodeHead(
        episode.episode_id,
        episode.source,
        episode.timestamp,
        episode.instance,
        episode.project,
        episode.kind,
        episode.summary,
        episode.tags,
        metadata=episode.metadata,
    )
    factors = factors_of(head, least_value)
    bars = [Bar(f"Factor: {name}", _FACTORS.get(name, ""), factor, 2.0, "× ") for name, factor in factors.items()]
    value, signals = episode.metadata.get("value"), episode.metadata.get("value_signals")
    if not _is_number(value):
        return bars
    points = {n: each for n, each in signals.items() if _is_number(each)} if isinstance(signals, dict) else {}
    most = max(CURATED, value, *points.values())
    bars.append(Bar("Value", "What was learned in it, in points.", value, most))
    return [
        *bars,
        *(Bar(name.replace("_", " "), EXPLANATIONS.get(name, ""), each, most, "+ ") for name, each in points.items()),
    ]


def related_to(store: Store, episode: Episode, hidden: frozenset[str]) -> list[Related]:
    """Return its origins, successors and derived episodes."""
    own = episode.episode_id
    relations: dict[str, str] = {}
    if episode.superseded_by:
        relations[episode.superseded_by] = f"{episode.status} by"
    relations |= dict.fromkeys(store.episodes.superseded_by(own, MAX_LINEAGE), "supersedes")
    made_of = _texts(episode.metadata.get("consolidated_from"))[:MAX_LINEAGE]
    relations |= dict.fromkeys(made_of, "made of")
    if isinstance(part := episode.metadata.get("part_id"), str):
        relations[part] = "drawn from"
    records = [record_id(own, number) for number in range(MAX_RECORDS)]
    heads = store.episodes.heads([*relations, *records])
    relations |= {name: "drawn from this" for name in records if name in heads}
    return [Related(how, name, heads.get(name)) for name, how in relations.items() if name not in {own, *hidden}]


def notes_of(episode: Episode) -> list[Note]:
    """Return the notes on an episode, oldest first; values of another form are skipped. Pure."""
    return [
        Note(number, _moment(note.get("at")), note["text"])
        for number, note in enumerate(_list(episode.metadata.get(NOTES)))
        if isinstance(note, dict) and isinstance(note.get("text"), str)
    ]


def _moment(text: Any) -> datetime | None:
    try:
        return parse_time(text)
    except ValueError:
        return None


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"


def _texts(value: Any) -> list[str]:
    return [each for each in _list(value) if isinstance(each, str)]


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
