"""A note: one thing that a person or Claude asks to be remembered, as an episode."""

import hashlib
from collections.abc import Sequence

from anamnesis_pipeline.services.schemas import EpisodeIn, TypeName

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
    is_short = len(text) <= SUMMARY_CHARS
    rest = [*([] if is_short else [text]), *([f"Why: {why}"] if why else [])]
    content = "\0".join([project, type, text, why, *tags, *([f"subject {subject}"] if subject else [])])
    return EpisodeIn(
        summary=text if is_short else text[:SUMMARY_CHARS] + "…",
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
