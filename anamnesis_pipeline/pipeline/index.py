"""Selection of the embedding space by the settings, and the asset `vector_index`, which makes it searchable."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from anamnesis_pipeline.embeddings.models import ModelFiles
from anamnesis_pipeline.embeddings.pool_work import LoadedModel
from anamnesis_pipeline.embeddings.token_sample import SAMPLE
from anamnesis_pipeline.embeddings.token_vectors import Projection, learn_projection
from anamnesis_pipeline.errors import GiveUp, SpaceConflict, SpaceNotFound
from anamnesis_pipeline.model import EpisodeFilter, Space
from anamnesis_pipeline.pipeline.reembed_state import (
    clear_failure,
    forget_space,
    recall_of,
    record_job,
    record_recall,
    set_paused,
    set_wanted_model,
)
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import IndexReport, IndexState

RECALL_FLOOR = 0.99
"""Recall at 10 below which a freshly updated index is rebuilt from scratch."""
SWITCH_FLOOR = 0.9
"""Recall at 10 below which searches do not switch to a space automatically."""
MEASURED_FOR = 1.2
"""Growth factor up to which a recall measurement stays valid."""
REST_PASSAGES = 2_000
"""More missing passages than this are left to the asset `embeddings`."""
REST_ROUNDS = 5
EPISODES_CHECKED = 50
"""Number of newest episodes whose vectors are checked."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """State of a space after `index_space`. `passages` have all vectors, `missing` lack one.

    `waits`: complete, but answers searches only after a confirmation.
    """

    index: IndexReport
    state: IndexState
    recall: float
    passages: int
    missing: int
    active: bool
    switched: bool
    waits: bool


def known_space(store: Store, key: str) -> Space:
    """Return the space with this key.

    :raises SpaceNotFound: there is none; the text names the existing ones.
    """
    spaces = store.spaces.all()
    for space in spaces:
        if space.key == key:
            return space
    raise SpaceNotFound(f"no space {key!r}; there are: {', '.join(space.key for space in spaces) or 'none yet'}")


def building_space(store: Store) -> Space | None:
    """Return the space that is being built now."""
    return next((space for space in store.spaces.all() if space.status == "building"), None)


def is_of_model(space: Space, files: ModelFiles) -> bool:
    """Return whether these files made the space's vectors, in any generation."""
    return space.key == files.space(space.generation).key


def generations(store: Store, files: ModelFiles) -> list[Space]:
    """Return every space of these files in order of preference: active, building, retired, added; the newest generation
    of each first.
    """
    order = ("active", "building", "retired", "added")
    found = [space for space in store.spaces.all() if is_of_model(space, files)]
    return sorted(found, key=lambda space: (order.index(space.status), -space.generation))


def add_model(store: Store, files: ModelFiles, precision: str) -> Space:
    """Return the space of a model, added if missing. It is embedded only on request."""
    if known := generations(store, files):
        return known[0]
    store.spaces.put(files.space(precision=precision))
    return generations(store, files)[0]


def begin(store: Store, space: Space, backfill_id: str | None = None) -> None:
    """Start building a space, from scratch or from where it stopped.

    :raises SpaceConflict: a space is being built. Of two concurrent callers exactly one succeeds.
    """
    store.spaces.start(space.key)
    set_paused(store, False)
    clear_failure(store, space.key)
    record_job(store, space, backfill_id)


def ensure_space(store: Store, files: ModelFiles, precision: str) -> Space:
    """Return the space of the model in the settings; start building it unless it is active.

    The first space of a store is active from the start, and a complete retired one is activated at once. While another
    space is being built, return that one unchanged.
    """
    active, building = store.spaces.active(), building_space(store)
    for current in (active, building):
        if current is not None and is_of_model(current, files):
            return current
    if building is not None and active is not None:
        log.info("%s has to wait: %s is being built", files.model_id, building.key)
        return building
    space = add_model(store, files, precision)
    if (active is None or space.status == "retired") and store.spaces.activate(space.key):
        return known_space(store, space.key)
    try:
        begin(store, space)
    except SpaceConflict as exc:  # another process started one meanwhile
        log.info("%s", exc)
        return building_space(store) or known_space(store, space.key)
    return known_space(store, space.key)


def index_space(
    store: Store,
    key: str,
    *,
    embed_rest: Callable[[], object] = lambda: None,
    build: Callable[[bool], IndexReport] | None = None,
    switch: bool = True,
    wanted_model: str | None = None,
) -> SpaceReport:
    """Build and check the index of a space, and switch to the space if it was due.

    :param embed_rest: embeds missing passages; called while only a few arrived since the space was complete.
    :param build: builds the index, from scratch if True; the caller chooses its host and priority.
    :param switch: False: a complete space waits for confirmation.
    :param wanted_model: the setting `model`. If it is the active space's again, this build is no longer wanted.
    :raises SpaceNotFound: no such space.
    :raises GiveUp: the space has vectors that no search can compare, or it is due and its index finds too little.
    """
    space = known_space(store, key)
    if bad := check_vectors(store, space)[1]:
        raise GiveUp(
            f"{bad} vectors of the newest episodes in {key} are zero, not finite, or of another length than "
            f"{space.dim}, so no index is made of them; embed with another model, or restore a backup"
        )
    build = build or (lambda force: store.vectors.build(key, force=force))
    index = build(False)
    due = space.status in ("added", "building") and not _is_unwanted(store, space, wanted_model)
    if due:
        _embed_rest(store, key, embed_rest)
    passages = store.vectors.count(key)
    recall = _recall(store, key, passages, again=due or index.rebuilt)
    if recall < RECALL_FLOOR and index.rebuilt:  # it may have been extended; one not due stays until it is
        index = build(True)
        recall = _recall(store, key, passages, again=True)
    missing = _missing(store, key)
    state = store.vectors.index_state(key)
    if due and recall < SWITCH_FLOOR:
        raise GiveUp(
            f"the index of {key} finds only {recall:.0%} of what is nearest, so searches stay where they are; switch "
            f"all the same with: anamnesis model use {key}"
        )
    switched = due and switch and not missing and _switch(store, space)
    return SpaceReport(
        index,
        state,
        recall,
        passages=passages,
        missing=missing,
        active=space.status == "active" or switched,
        switched=switched,
        waits=due and not switch and not missing,
    )


def check_vectors(store: Store, space: Space) -> tuple[int, int]:
    """Return how many vectors of the newest episodes were checked, and how many are unusable: not finite, zero, or of
    another length than the space's. Episodes without vectors are skipped.
    """
    newest = store.episodes.page(EpisodeFilter(), EPISODES_CHECKED).items
    passages = [stored.passage_id for each in newest for stored in store.episodes.passages_of(each.episode_id)]
    vectors = [
        vector for variant in space.variants for vector in store.vectors.get(space.key, variant, passages).values()
    ]
    bad = sum(v.shape != (space.dim,) or not np.isfinite(v).all() or not np.any(v) for v in vectors)
    return len(vectors), bad


def _recall(store: Store, key: str, passages: int, *, again: bool) -> float:
    """Return the recall of the space's index. Measuring reads every vector, so unless forced the last measurement
    counts until the space has grown by a fifth, or shrunk as much.
    """
    last = recall_of(store, key)
    if last is not None and not again and last[1] / MEASURED_FOR <= passages <= MEASURED_FOR * last[1]:
        return last[0]
    recall = store.vectors.recall(key)
    record_recall(store, key, recall, passages)
    return recall


def _is_unwanted(store: Store, space: Space, wanted_model: str | None) -> bool:
    """Stop building a space, and return True, if the model setting was changed back to the active one's."""
    active = store.spaces.active()
    if space.status != "building" or active is None:
        return False
    if wanted_model != active.model_id or wanted_model == space.model_id:
        return False
    log.info("%s is complete but no longer wanted: the model is set to %s", space.key, wanted_model)
    store.spaces.stop(space.key)
    forget_space(store, space.key)
    return True


def _embed_rest(store: Store, key: str, embed_rest: Callable[[], object]) -> None:
    for _ in range(REST_ROUNDS):
        if not 0 < _missing(store, key) <= REST_PASSAGES:
            return
        embed_rest()


def _missing(store: Store, key: str) -> int:
    return sum(store.vectors.pending_sources(key).values())


def _switch(store: Store, space: Space) -> bool:
    """Switch to a space. A manually indexed one becomes the wanted model; else the sensor would switch back."""
    if space.status == "added":
        set_wanted_model(store, space.model_id)
    if not store.spaces.activate(space.key, only_from=space.status):  # it may have been given up meanwhile
        return False
    set_paused(store, False)
    return True


# --- token projection ------------------------------------------------------------------------------------

# Projection of a space's token vectors: learned when its model is first loaded, and stored with the space.

TEXTS_AT_ONCE = 16


def space_projection(store: Store, space: Space, model: LoadedModel) -> Projection | None:
    """Return the projection of a space's token vectors; None when it has none.

    A stored projection wins over a learned one, also when two processes load the model at once, so that all token
    vectors of a space stay comparable.
    """
    if not space.token_dims:
        return None
    kept = store.spaces.projection(space.key)
    if kept is None:
        prefixed = [space.passage_prefix + text for text in SAMPLE]
        samples = []
        for first in range(0, len(prefixed), TEXTS_AT_ONCE):
            ids = model.token_ids(prefixed[first : first + TEXTS_AT_ONCE])
            samples += model.forward_with_tokens(ids, None)[1]
        with threadpool_limits(1):  # on a busy machine, numpy's threads would wait for each other ten times as long
            learned = learn_projection(samples, space.token_dims)
        kept = store.spaces.keep_projection(space.key, learned)
    return kept
