"""Which embedding space the settings ask for, and making a space searchable: what the asset `vector_index` does."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anamnesis_pipeline.embeddings.models import ModelFiles
from anamnesis_pipeline.errors import GiveUp, SpaceConflict, SpaceNotFound
from anamnesis_pipeline.model import Space, Where
from anamnesis_pipeline.steps.reembed_state import (
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
"""Recall at 10 below which an index that was just brought up to date is built anew from nothing."""
SWITCH_FLOOR = 0.9
"""Recall at 10 below which searches do not move to a space by themselves."""
MEASURED_FOR = 1.2
"""Times as many passages as those over which recall was measured are still told by that."""
REST_PASSAGES = 2_000
"""More than so many missing passages are no rest but work for the asset `embeddings`."""
REST_ROUNDS = 5
EPISODES_CHECKED = 50
"""The newest episodes, whose vectors are checked."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """State of a space after `index_space`. `passages` are complete there, `missing` lack a vector.

    `waits` says that it is complete but answers searches only after somebody said yes.
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
    """The space with this key.

    :raises SpaceNotFound: there is none; the text names those there are.
    """
    spaces = store.spaces.all()
    for space in spaces:
        if space.key == key:
            return space
    raise SpaceNotFound(f"no space {key!r}; there are: {', '.join(space.key for space in spaces) or 'none yet'}")


def building_space(store: Store) -> Space | None:
    """The space that is being built now."""
    return next((space for space in store.spaces.all() if space.status == "building"), None)


def is_of_model(space: Space, files: ModelFiles) -> bool:
    """Whether these files made the space's vectors, whatever its generation."""
    return space.key == files.space(space.generation).key


def generations(store: Store, files: ModelFiles) -> list[Space]:
    """Every space of these files, the one to use first: the active one, then the building one, then what was active
    once, then what was added; the newest generation of each.
    """
    order = ("active", "building", "retired", "added")
    found = [space for space in store.spaces.all() if is_of_model(space, files)]
    return sorted(found, key=lambda space: (order.index(space.status), -space.generation))


def add_model(store: Store, files: ModelFiles, precision: str) -> Space:
    """The space of a model, added when it has none. It is embedded only once somebody asks."""
    if known := generations(store, files):
        return known[0]
    store.spaces.put(files.space(precision=precision))
    return generations(store, files)[0]


def begin(store: Store, space: Space, backfill_id: str | None = None) -> None:
    """Make a space the one that is being built, from nothing or from where it stopped.

    :raises SpaceConflict: another one is being built, or this one already is. Exactly one of two callers gets through.
    """
    store.spaces.start(space.key)
    set_paused(store, False)
    clear_failure(store, space.key)
    record_job(store, space, backfill_id)


def ensure_space(store: Store, files: ModelFiles, precision: str) -> Space:
    """The space that the model in the settings has, on its way where it is not active yet.

    The first space of a store is active from the start, and one that was active before goes live again at once if it
    lacks nothing. While another space is being built that one is left alone, and returned.
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
    return _begun(store, space)


def _begun(store: Store, space: Space) -> Space:
    try:
        begin(store, space)
    except SpaceConflict as exc:  # another process began one since we looked
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
    """Build what a space needs to be searched fast, check it, and switch to it when it was waiting for that.

    :param embed_rest: embeds what the space lacks; called while only a little arrived since it was complete.
    :param build: builds the index, from nothing if told so; where it runs and at which rank is the caller's choice.
    :param switch: False leaves a complete space waiting for somebody's yes.
    :param wanted_model: the setting `model`. When it is the active space's again, nobody waits for this one any more.
    :raises SpaceNotFound: no such space.
    :raises GiveUp: the space has vectors that no search can compare, or it is due to be switched to and its index finds
        too little.
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
    recall = _recall(store, key, passages, anew=due or index.rebuilt)
    if recall < RECALL_FLOOR and index.rebuilt:  # it may have been grown; one that was not even due is left until it is
        index = build(True)
        recall = _recall(store, key, passages, anew=True)
    missing = _missing(store, key)
    state = store.vectors.index_state(key)
    if due and recall < SWITCH_FLOOR:
        raise GiveUp(
            f"the index of {key} finds only {recall:.0%} of what is nearest, so searches stay where they are; switch "
            f"all the same with: anamnesis model use {key}"
        )
    switched = due and switch and not missing and _switch(store, space)
    return SpaceReport(
        index, state, recall, passages=passages, missing=missing, active=space.status == "active" or switched,
        switched=switched, waits=due and not switch and not missing,
    )  # fmt: skip


def check_vectors(store: Store, space: Space) -> tuple[int, int]:
    """Return how many vectors of the newest episodes were looked at, and how many of them no search can compare: not
    finite, zero, or of another length than the space's. Episodes without vectors are left out.
    """
    newest = store.episodes.page(Where(), EPISODES_CHECKED).items
    passages = [stored.passage_id for each in newest for stored in store.episodes.passages_of(each.episode_id)]
    vectors = [
        vector for variant in space.variants for vector in store.vectors.get(space.key, variant, passages).values()
    ]
    bad = sum(v.shape != (space.dim,) or not np.isfinite(v).all() or not np.any(v) for v in vectors)
    return len(vectors), bad


def _recall(store: Store, key: str, passages: int, *, anew: bool) -> float:
    """How much of what is nearest the space's index finds. Measuring reads every vector, so without `anew` what was
    found last counts until the space has grown by a fifth, or shrunk as much.
    """
    last = recall_of(store, key)
    if last is not None and not anew and last[1] / MEASURED_FOR <= passages <= MEASURED_FOR * last[1]:
        return last[0]
    recall = store.vectors.recall(key)
    record_recall(store, key, recall, passages)
    return recall


def _is_unwanted(store: Store, space: Space, wanted_model: str | None) -> bool:
    """Stops building a space whose start was taken back by setting the model to the active one's again."""
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
    """Whoever indexes a space that nobody started wants its model: else the sensor would switch back."""
    if space.status == "added":
        set_wanted_model(store, space.model_id)
    if not store.spaces.activate(space.key, only_from=space.status):  # it may have been given up meanwhile
        return False
    set_paused(store, False)
    return True
