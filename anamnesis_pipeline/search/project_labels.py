"""What a bare project name means, and which projects a question that names none is not answered from."""

from collections.abc import Sequence
from dataclasses import replace

from anamnesis_pipeline.file_names import composed
from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.base import Store

ALL = "*"


def with_labels(store: Store, where: Where) -> Where:
    """The filter with bare project names replaced by the labels they mean."""
    if not where.projects:
        return where
    known = store.episodes.projects()
    projects = {label for name in where.projects for label in (name, *labels_of(name, known))}
    return replace(where, projects=tuple(sorted(projects)))


def without_private(store: Store, where: Where, private: Sequence[str], included: Sequence[str]) -> Where:
    """The filter without private projects, unless it names a project or a session: whoever does means it.

    :param private: names of private projects, as `is_private` takes them.
    :param included: those that are asked for all the same; `*`: all.
    """
    if not private or where.projects or where.session_id or ALL in included:
        return where
    hidden = (p for p in store.episodes.projects() if is_private(p, private) and not is_private(p, included))
    return replace(where, hidden_projects=(*where.hidden_projects, *hidden))


def labels_of(name: str, known: Sequence[str]) -> list[str]:
    """The project labels that a name means: `api` means `api`, `acme/api` and `~/code/api`, never `my-api`; a name that
    was stored in another Unicode form is the same.
    """
    called = "/" + composed(name)
    return [label for label in known if f"/{composed(label)}".endswith(called)]


def is_private(project: str, names: Sequence[str]) -> bool:
    """Whether a project is one of those that are private; `api` also means `acme/api`."""
    label = f"/{composed(project)}".casefold()
    return any(label.endswith(f"/{composed(name)}".casefold()) for name in names)
