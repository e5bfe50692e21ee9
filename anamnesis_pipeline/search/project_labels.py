"""What a bare project name means."""

from collections.abc import Sequence
from dataclasses import replace

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.base import Store


def with_labels(store: Store, where: Where) -> Where:
    """The filter with bare project names replaced by the labels they mean."""
    if not where.projects:
        return where
    known = store.episodes.projects()
    projects = {label for name in where.projects for label in (name, *labels_of(name, known))}
    return replace(where, projects=tuple(sorted(projects)))


def labels_of(name: str, known: Sequence[str]) -> list[str]:
    """The project labels that a bare name means: `api` means `acme/api` and `~/code/api`, never `my-api`."""
    return [label for label in known if label.endswith("/" + name)]
