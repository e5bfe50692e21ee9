"""A note as an episode, and what the posting of an episode is answered with."""

import hashlib
from collections.abc import Collection, Mapping, Sequence

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services.folder_project import projects_alike
from anamnesis_pipeline.services.posting import Preview
from anamnesis_pipeline.services.rendering import NO_IDS, episode_body
from anamnesis_pipeline.services.schemas import EpisodeIn, PostedOut, TypeName
from anamnesis_pipeline.services.similarity import Novelty, novelty_of, novelty_of_text
from anamnesis_pipeline.store.base import Store

MAX_REPLACED = 20
SUMMARY_CHARS = 600
NO_PROJECT = "general"
"""Project of a note from a folder that belongs to none."""


def note_of(
    text: str,
    *,
    project: str,
    instance: str,
    type: TypeName = "note",
    why: str = "",
    tags: Sequence[str] = (),
    subject: str | None = None,
    replaces: str | None = None,
) -> EpisodeIn:
    """Return the episode of a note. Its id is made of the content, so that the same note is kept once.

    :param subject: what it states something about; the former statement on it is superseded.
    :param replaces: id of the episode that it takes the place of.
    """
    is_short = len(text) <= SUMMARY_CHARS and "\n" not in text.strip()
    rest = [*([] if is_short else [text]), *([f"Why: {why}"] if why else [])]
    content = "\0".join([project, type, text, why, *tags, *([f"subject {subject}"] if subject else [])])
    return EpisodeIn(
        summary=text if len(text) <= SUMMARY_CHARS else text[:SUMMARY_CHARS] + "…",
        raw_exchange="\n\n".join(rest),
        instance=instance,
        project=project,
        kind=type,
        tags=list(dict.fromkeys([*tags, *(["correction"] if type == "correction" else [])])),
        metadata={"type": type, "why": why},
        episode_id=f"ep_note_{hashlib.sha256(content.encode('utf-8', 'replace')).hexdigest()[:16]}",
        subject=subject,
        replaces=replaces,
    )


def posted_body(
    store: Store,
    private: Private,
    stored: Episode,
    include: Collection[str] = (),
    short: Mapping[str, str] = NO_IDS,
    *,
    created: bool,
) -> PostedOut:
    """Return what was done: what it replaced, how new it is, and what says nearly the same."""
    replaced = store.episodes.superseded_by(stored.episode_id, MAX_REPLACED) if created else []
    alike = projects_alike(store, private, stored.project)
    pinned = store.episodes.pinned_beside(stored)
    return _body(stored, include, short, created, replaced, pinned, novelty_of(store, private, stored), alike)


def preview_body(store: Store, engine: Engine, preview: Preview, include: Collection[str]) -> PostedOut:
    """Return what would be done."""
    episode = preview.episode
    found = novelty_of_text(store, engine, f"{episode.summary}\n{episode.raw_exchange}".strip(), episode.project)
    alike = projects_alike(store, engine.private(), episode.project)
    pinned = [each for each in store.episodes.pinned_beside(episode) if each not in preview.replaced]
    return _body(episode, include, NO_IDS, preview.is_new, preview.replaced, pinned, found, alike)


def _body(
    episode: Episode,
    include: Collection[str],
    short: Mapping[str, str],
    created: bool,
    replaced: Sequence[str],
    challenged: Sequence[str],
    novelty: Novelty,
    alike: list[str],
) -> PostedOut:
    return {
        **episode_body(episode, include, short),
        "operation": ("updated" if replaced else "added") if created else "unchanged",
        "replaced": list(replaced),
        "challenged": list(challenged),
        "novelty": None if novelty.value is None else round(novelty.value, 4),
        "alike": [
            {
                "episode_id": each.episode.episode_id,
                "similarity_score": round(each.similarity, 4),
                "summary": each.episode.summary,
            }
            for each in novelty.alike
            if each.episode.episode_id not in replaced
        ],
        "projects_alike": alike,
    }
