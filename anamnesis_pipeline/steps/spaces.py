"""Which embedding space the settings ask for, and making it searchable: what the asset `vector_index` does."""

from dataclasses import dataclass

from anamnesis_pipeline.embeddings.models import ModelFiles
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.store.base import IndexReport, Store


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """State of a space after `index_space`."""

    index: IndexReport
    active: bool
    switched: bool


def ensure_space(store: Store, files: ModelFiles, precision: str) -> Space:
    """The space of a model, added when it is new. The first space of a store is active from the start.

    A retired space that is wanted again goes live as soon as it is complete. A later generation of the model that is
    active already is what the settings ask for, too.
    """
    space = files.space(precision=precision)
    store.spaces.put(space)
    active = store.spaces.active()
    if active is not None and active.key.startswith(f"{space.key}-g"):
        return active
    known = _known(store, space.key)
    if active is None or known.status == "retired":
        store.spaces.activate(space.key)
        known = _known(store, space.key)
    return known


def _known(store: Store, key: str) -> Space:
    return next(space for space in store.spaces.all() if space.key == key)


def index_space(store: Store, key: str) -> SpaceReport:
    """Build what the space needs to be searched fast, and switch to it when it was waiting for that."""
    index = store.vectors.build(key)
    active = store.spaces.active()
    if active is not None and active.key == key:
        return SpaceReport(index, active=True, switched=False)
    wanted = next((space for space in store.spaces.all() if space.key == key), None)
    switched = wanted is not None and wanted.status == "building" and store.spaces.activate(key)
    return SpaceReport(index, active=switched, switched=switched)
